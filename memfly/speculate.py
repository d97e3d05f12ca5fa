"""Exact speculative scoring: the next notes are scored before the updates ahead of them are committed.

A pair's score is a function of two contents. So it may be asked for as soon as these are known, and is used if, on
commit, the same contents are compared; else the right one is asked for then. What is committed is therefore what a
depth of 1 commits, byte for byte, given the same reply for the same request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from harness.calls import Caller, abandon
from harness.llm.types import Meter
from memfly.candidates import candidates
from memfly.config import MemFlyConfig
from memfly.expected import Expected
from memfly.hierarchy import Hierarchy
from memfly.note import Draft
from memfly.scoring import UNRELATED, Content, Scores, score_pair

_AT_ONCE = 200


@dataclass
class _Pair:
    """A pair that was asked for. meter: what it spent. ahead: asked before it was needed."""

    task: asyncio.Task[Scores | None]
    meter: Meter
    ahead: bool
    used: bool = False


class Speculation:
    """The pair scores of one conversation, each asked once by its contents, whenever and however often it is used.

    What is asked depends on the replies alone, never on their timing: at each commit the drafts of the next depth - 1
    turns are compared with the memory as it will be if all of them are appended. That is exact until one is merged,
    so a merge wastes at most (depth - 1) x k_cand calls, and without merges none is wasted. An error is raised, and a
    missing score is counted as a fallback, where a pair is used; one that is not used fails without a trace, since a
    depth of 1 would not have asked for it. Listwise scores are not speculated on: a merge would make whole lists
    useless, and listwise is there to save tokens.
    """

    def __init__(self, hierarchy: Hierarchy, config: MemFlyConfig, caller: Caller, meter: Meter):
        self.hierarchy = hierarchy
        self.config = config
        self.caller = caller
        self.meter = meter
        self._pairs: dict[tuple[Content, Content], _Pair] = {}
        self._expected = 0
        self._notes = 0

    @property
    def ahead(self) -> int:
        """Pairs asked for before they were needed."""
        return sum(pair.ahead for pair in self._pairs.values())

    @property
    def wasted(self) -> int:
        """Pairs asked for and not used."""
        return sum(not pair.used for pair in self._pairs.values())

    async def scores(self, found: Sequence[int], upcoming: Sequence[Draft]) -> list[Scores]:
        """Scores of the first upcoming draft against the notes `found`; those of the others are asked for.

        Fallback "score_missing": a pair without a usable score counts as unrelated. EndpointError passes through.
        """
        new = Content.of_draft(upcoming[0])
        needed = [self._ask(new, self._content(note, upcoming)) for note in found]
        for pair in needed:
            pair.used = True
        self._look_ahead(upcoming)
        given = await asyncio.gather(*(pair.task for pair in needed))
        for _ in range(given.count(None)):
            self.meter.fallback("score_missing")
        return [UNRELATED if score is None else score for score in given]

    async def finish(self) -> None:
        """Wait for what was asked in vain, so that the meter does not depend on timing."""
        await asyncio.gather(*(pair.task for pair in self._pairs.values()), return_exceptions=True)

    async def close(self) -> None:
        """Stop what still runs, and charge what was spent. A call that was not used is paid for, but is no error."""
        await abandon(pair.task for pair in self._pairs.values())
        for place, pair in enumerate(self._pairs.values(), 1):
            if place % _AT_ONCE == 0:  # a long conversation has thousands of pairs
                await asyncio.sleep(0)
            spent = pair.meter if pair.used else replace(pair.meter, errors=0, unanswered=0)
            for field in fields(Meter):
                setattr(self.meter, field.name, getattr(self.meter, field.name) + getattr(spent, field.name))

    def _look_ahead(self, upcoming: Sequence[Draft]) -> None:
        """Ask for what the drafts behind the first are expected to need. What was expected at the last commit still
        holds if that appended its note."""
        appended = len(self.hierarchy.notes) == self._notes + 1
        asked = self._expected - 1 if appended else 0
        expected = Expected(self.hierarchy)
        for place in range(1, len(upcoming)):
            before, new = upcoming[place - 1], upcoming[place]
            expected.add(before)
            if place > asked:
                previous = len(expected) - 1 if before.turn.session == new.turn.session else None
                for note in candidates(expected, new, previous, self.config):
                    self._ask(Content.of_draft(new), self._content(note, upcoming), ahead=True)
        self._expected, self._notes = len(upcoming) - 1, len(self.hierarchy.notes)

    def _content(self, note: int, upcoming: Sequence[Draft]) -> Content:
        """Of a note, or of an upcoming draft by the id it is expected to have."""
        notes = self.hierarchy.notes
        return Content.of_note(notes[note]) if note < len(notes) else Content.of_draft(upcoming[note - len(notes)])

    def _ask(self, new: Content, old: Content, *, ahead: bool = False) -> _Pair:
        if (new, old) not in self._pairs:
            meter = Meter()
            task = asyncio.ensure_future(score_pair(new, old, self.caller, meter))
            self._pairs[new, old] = _Pair(task, meter, ahead)
        return self._pairs[new, old]
