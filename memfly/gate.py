"""Phase 2, the gate (Eq. 6): MERGE, LINK or APPEND, decided from scores alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memfly.config import MemFlyConfig
from memfly.scoring import Scores


@dataclass(frozen=True)
class Candidate:
    """An older note with its scores against the new one."""

    note: int
    scores: Scores


@dataclass(frozen=True)
class Decision:
    """merge_into: the note that takes the new turn, None where a note is added. links: (note, s_comp) to relate the
    resulting note to, in the candidates' order. Neither: APPEND."""

    merge_into: int | None
    links: tuple[tuple[int, float], ...]

    @property
    def is_append(self) -> bool:
        return self.merge_into is None and not self.links


def decide(candidates: Sequence[Candidate], config: MemFlyConfig) -> Decision:
    """[P] Merge into the candidate of highest s_red if s_red > tau_merge; link to every other one with
    s_comp > tau_link. Comparisons are strict; ties go to higher s_comp, then to the older note. Our choice: links
    apply also after a merge, with the scores already given, never to the note merged into."""
    merge_into = None
    if config.merge and candidates:
        best = min(candidates, key=lambda c: (-c.scores.s_red, -c.scores.s_comp, c.note))
        if best.scores.s_red > config.tau_merge:
            merge_into = best.note
    links = ()
    if config.link:
        links = tuple(
            (c.note, c.scores.s_comp) for c in candidates if c.note != merge_into and c.scores.s_comp > config.tau_link
        )
    return Decision(merge_into, links)
