"""Exact speculative scoring: the next notes are scored before the updates ahead of them are committed.

A judgement is a function of the contents it is asked with: of two notes (pairwise), or of a note and its candidates
(listwise). So it may be asked as soon as these contents are known, and is used if, on commit, the same contents are to
be judged; else the right one is asked for then. What is committed is therefore what a depth of 1 commits, byte for
byte, given the same reply for the same request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from harness.calls import Caller, abandon
from harness.llm.types import Meter
from memfly.candidates import candidates
from memfly.config import MemFlyConfig
from memfly.expected import Expected
from memfly.hierarchy import Hierarchy
from memfly.note import Draft
from memfly.scoring import UNRELATED, Content, Scores, score_list, score_pair

Contents = tuple[Content, tuple[Content, ...]]
"""All that a judgement sees: a new note and the older ones it is compared with."""


@dataclass
class _Judgement:
    """One call, asked once however often it is used. meter: what it spent. ahead: asked before it was needed."""

    task: asyncio.Task[list[Scores | None]]
    meter: Meter
    ahead: bool
    used: bool = False


class Speculation:
    """The judgements of one conversation, each asked once by its contents, and what is asked ahead.

    What is asked depends on the replies alone, never on their timing: at each commit the drafts of the next depth - 1
    turns are compared with the memory as it will be if all of them are appended. That is exact until one is merged,
    so a merge wastes at most (depth - 1) x k_cand pairs (pairwise) or depth - 1 lists (listwise), and without merges
    nothing is wasted. An error is raised, and a missing score is counted as a fallback, where a judgement is used; one
    that is not used fails without a trace, since a depth of 1 would not have asked for it.
    """

    def __init__(self, hierarchy: Hierarchy, config: MemFlyConfig, scoring: str, caller: Caller, meter: Meter):
        self.hierarchy = hierarchy
        self.config = config
        self.caller = caller
        self.meter = meter
        self._pairwise = scoring == "pairwise"
        self._asked: dict[Contents, _Judgement] = {}
        self._expected = 0
        self._notes = 0

    @property
    def ahead(self) -> int:
        """Judgements asked before they were needed."""
        return sum(judgement.ahead for judgement in self._asked.values())

    @property
    def wasted(self) -> int:
        """Judgements asked and not used."""
        return sum(not judgement.used for judgement in self._asked.values())

    async def scores(self, found: Sequence[int], upcoming: Sequence[Draft]) -> list[Scores]:
        """Scores of the first upcoming draft against the notes `found`; those of the others are asked for.

        Fallback "score_missing": a pair without a usable score counts as unrelated. EndpointError passes through.
        """
        new = Content.of_draft(upcoming[0])
        needed = [
            self._ask(contents) for contents in self._split(new, [self._content(note, upcoming) for note in found])
        ]
        self._look_ahead(upcoming)
        for judgement in needed:
            judgement.used = True
        given = [score for scores in await asyncio.gather(*(j.task for j in needed)) for score in scores]
        for _ in range(given.count(None)):
            self.meter.fallback("score_missing")
        return [score or UNRELATED for score in given]

    async def finish(self) -> None:
        """Wait for what was asked in vain, so that the meter does not depend on timing."""
        await asyncio.gather(*(judgement.task for judgement in self._asked.values()), return_exceptions=True)

    async def close(self) -> None:
        """Stop what still runs, and charge what was spent. A call that was not used is paid for, but is no error."""
        await abandon(judgement.task for judgement in self._asked.values())
        for judgement in self._asked.values():
            spent = judgement.meter if judgement.used else replace(judgement.meter, errors=0, unanswered=0)
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
                olds = [self._content(note, upcoming) for note in candidates(expected, new, previous, self.config)]
                for contents in self._split(Content.of_draft(new), olds):
                    self._ask(contents, ahead=True)
        self._expected, self._notes = len(upcoming) - 1, len(self.hierarchy.notes)

    def _content(self, note: int, upcoming: Sequence[Draft]) -> Content:
        notes = self.hierarchy.notes
        return Content.of_note(notes[note]) if note < len(notes) else Content.of_draft(upcoming[note - len(notes)])

    def _split(self, new: Content, olds: Sequence[Content]) -> Iterator[Contents]:
        """The judgements that a note's comparison with others takes."""
        if self._pairwise:
            yield from ((new, (old,)) for old in olds)
        elif olds:
            yield new, tuple(olds)

    def _ask(self, contents: Contents, *, ahead: bool = False) -> _Judgement:
        if contents not in self._asked:
            meter = Meter()
            task = asyncio.ensure_future(self._judge(contents, meter))
            self._asked[contents] = _Judgement(task, meter, ahead)
        return self._asked[contents]

    async def _judge(self, contents: Contents, meter: Meter) -> list[Scores | None]:
        new, olds = contents
        if self._pairwise:
            return [await score_pair(new, olds[0], self.caller, meter)]
        return await score_list(new, olds, self.caller, meter)
