"""A note n = (r, c, h, K): the raw turns it holds, its context, its embedding and its keywords [P]."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from harness.locomo.schema import Turn


def turn_line(turn: Turn) -> str:
    """A raw turn as prompts and readers see it: "speaker: text [image: caption]"."""
    return f"{turn.speaker}: {turn.full_text}"


def day(when: datetime) -> str:
    """A date as prompts and readers see it, e.g. "8 May 2023"."""
    return f"{when.day} {when:%B %Y}"


def date_time(when: datetime) -> str:
    """A date with its time, e.g. "8 May 2023, 13:56"."""
    return f"{day(when)}, {when:%H:%M}"


@dataclass(frozen=True)
class Draft:
    """What ingestion makes of one turn before the gate has spoken. vector: h, unit length, float32, shape (d,).
    keywords: normalised, in the order of extraction; keyword_vectors: (len(keywords), d)."""

    turn: Turn
    context: str
    keywords: tuple[str, ...]
    vector: np.ndarray
    keyword_vectors: np.ndarray


@dataclass
class Note:
    """A note of the memory. `id` is its position in order of creation, so a lower id is an older note.
    `keywords` maps keyword ids to nothing but their order (an ordered set)."""

    id: int
    turns: list[Turn]
    context: str
    vector: np.ndarray
    keywords: dict[int, None] = field(default_factory=dict)

    @property
    def date(self) -> datetime:
        """Of its first turn: our choice for merged notes."""
        return self.turns[0].date_time

    @property
    def dia_ids(self) -> tuple[str, ...]:
        return tuple(turn.dia_id for turn in self.turns)

    @property
    def text(self) -> str:
        """Context and raw turns: what BM25 and, where asked for, the embedding read."""
        return embedding_text(self.context, self.turns)


def embedding_text(context: str, turns: list[Turn] | tuple[Turn, ...]) -> str:
    """The context followed by the raw turns it does not already repeat word by word."""
    lines = [turn_line(turn) for turn in turns]
    return "\n".join([context, *(line for line in lines if line not in context)])
