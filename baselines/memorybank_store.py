"""MemoryBank's store: pairs of turns with a memory strength, what the forgetting curve leaves of them, documents."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from baselines.common import day, turn_line
from harness.locomo.schema import Turn

Forgetting = Literal["paper", "official_code", "off"]


@dataclass(frozen=True)
class Pair:
    """Two turns in a row (one at the end of an odd session) with memory strength S and the last recall."""

    turns: tuple[Turn, ...]
    last_recall: datetime
    strength: int = 1

    def recalled(self, when: datetime) -> Pair:
        """S += 1 and t = 0, the paper's memory updating."""
        return replace(self, strength=self.strength + 1, last_recall=when)

    def retention(self, mode: Forgetting, now: datetime) -> float:
        """R in [0, 1] at `now`; t in whole calendar days, as the official code counts."""
        days = max(0, (now.date() - self.last_recall.date()).days)
        if mode == "off":
            return 1.0
        return math.exp(-days / self.strength) if mode == "paper" else math.exp(-days * self.strength / 5)

    @property
    def body(self) -> str:
        return "\n".join(turn_line(turn) for turn in self.turns)


@dataclass(frozen=True)
class Day:
    """One session: its pairs that are left, and what was written of it (None: no usable reply)."""

    session: int
    date: datetime
    pairs: tuple[Pair, ...]
    summary: str | None = None
    personality: str | None = None
    strategy: str | None = None


@dataclass(frozen=True)
class Document:
    """What the index holds: a pair, or the summary of a date (pair None). text: as it is embedded."""

    day: Day
    text: str
    body: str
    pair: Pair | None


def drawn(seed: int, sample_id: str, dia_id: str) -> float:
    """A number in [0, 1) for a pair, by hash: independent of timing, of other pairs, and of the curve."""
    digest = hashlib.sha256(json.dumps([seed, sample_id, dia_id]).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def load(days: Sequence[Day], mode: Forgetting, now: datetime, *, seed: int, sample_id: str) -> list[Day]:
    """What is left at `now`: each pair survives with probability R, a date goes with its last pair."""
    left = []
    for one in days:
        pairs = tuple(
            pair for pair in one.pairs if drawn(seed, sample_id, pair.turns[0].dia_id) < pair.retention(mode, now)
        )
        if pairs:
            left.append(replace(one, pairs=pairs))
    return left


def extend(documents: Sequence[Document], hit: int, most: int) -> list[int]:
    """The hit and adjacent documents of its date, next and previous in turn, while all texts together take at most
    `most` characters: the first that does not fit ends it. Places in `documents`, in order."""
    taken, length = [hit], len(documents[hit].text)
    for distance in range(1, len(documents)):
        beside = [
            place
            for place in (hit + distance, hit - distance)
            if 0 <= place < len(documents) and documents[place].day.session == documents[hit].day.session
        ]
        if not beside:
            break
        for place in beside:
            length += len(documents[place].text)
            if length > most:
                return sorted(taken)
            taken.append(place)
    return sorted(taken)


def documents_of(one: Day) -> list[Document]:
    """The pairs that are left of a date, then its summary, where there is one."""
    found = [Document(one, f"Conversation on {day(one.date)}: {pair.body}", pair.body, pair) for pair in one.pairs]
    if one.summary:
        body = f"Summary of the day: {one.summary}"
        found.append(Document(one, f"Summary of the conversation on {day(one.date)}: {one.summary}", body, None))
    return found


def document_lines(document: Document) -> list[tuple[str, Turn | None]]:
    """The lines the reader sees, each with its turn."""
    if document.pair is None:
        return [(document.body, None)]
    return [(turn_line(turn), turn) for turn in document.pair.turns]
