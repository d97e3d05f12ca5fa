"""Phase 2, the scores of Eq. 6: s_red ~ 1 - D_JS(p(Y|n_t), p(Y|n_i)) and s_comp, both in [0, 1], in three ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.calls import Caller
from harness.llm.types import Meter
from memfly.calls import SCORE, SCORE_LIST
from memfly.config import MemFlyConfig
from memfly.note import Draft, Note, day
from memfly.replies import ListScores, PairScore

TAG_TOKENS = 24
"""Room for a note's tag with its number and date in a listwise prompt."""


@dataclass(frozen=True)
class Content:
    """All that a prompt sees of a note: a pair's score depends on nothing but two of these and the backbone."""

    date: str
    context: str

    @classmethod
    def of_note(cls, note: Note) -> Content:
        return cls(day(note.date), note.context)

    @classmethod
    def of_draft(cls, new: Draft) -> Content:
        return cls(day(new.turn.date_time), new.context)


@dataclass(frozen=True)
class Scores:
    """s_red: redundancy; s_comp: complementarity; both in [0, 1]."""

    s_red: float
    s_comp: float


UNRELATED = Scores(0.0, 0.0)
"""Fallback "score_missing": a pair without a usable score is neither merged nor linked."""


async def score_pair(new: Content, old: Content, caller: Caller, meter: Meter) -> Scores | None:
    """[P] One call assesses one pair. None: no usable reply. EndpointError passes through."""
    new, old = fitted([new, old], caller.room(SCORE), caller)
    value = await caller.ask(SCORE, PairScore, meter, new=new, old=old)
    return None if value is None else Scores(value.s_red, value.s_comp)


async def score_list(new: Content, olds: Sequence[Content], caller: Caller, meter: Meter) -> list[Scores]:
    """One call for all candidates. An entry that is missing, or numbered outside the list, counts as missing."""
    if not olds:
        return []
    room = caller.room(SCORE_LIST) - TAG_TOKENS * (len(olds) + 1)
    new, *olds = fitted([new, *olds], room, caller)
    value = await caller.ask(SCORE_LIST, ListScores, meter, new=new, olds=olds)
    given = {entry.id: Scores(entry.s_red, entry.s_comp) for entry in reversed(value.scores)} if value else {}
    scores = []
    for number in range(1, len(olds) + 1):
        if number not in given:
            meter.fallback("score_missing")
        scores.append(given.get(number, UNRELATED))
    return scores


def embedding_scores(cosine: float, overlap: float, config: MemFlyConfig) -> Scores:
    """Scores without a model call: our choice, a baseline of the claim that a language model must judge.

    cosine: of the two embeddings. overlap: idf-weighted share of common keywords, in [0, 1].
    s_red rises linearly between two calibrated cosines; s_comp is discounted by s_red.
    """
    low, high = config.red_cosine_low, config.red_cosine_high
    s_red = float(np.clip((cosine - low) / max(high - low, 1e-9), 0.0, 1.0))
    return Scores(s_red, min(1.0, config.comp_gain * overlap) * (1.0 - s_red))


def fitted(contents: Sequence[Content], tokens: int, caller: Caller) -> list[Content]:
    """The contents as they are if they fit into `tokens`, else each cut to an equal share."""
    if caller.fits("\n".join(content.context for content in contents), tokens):
        return list(contents)
    share = max(1, tokens // len(contents))
    return [Content(content.date, caller.clip(content.context, share)) for content in contents]
