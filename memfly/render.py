"""Notes as text: what the judge and the reader see, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.llm.words import sentences
from harness.locomo.schema import Turn
from memfly.note import Note, date_time, turn_line

Render = Literal["context+raw", "context", "raw"]


@dataclass(frozen=True)
class Shown:
    """A note as text. dia_ids: the turns it shows, oldest first; ends: for each of them the number of words of `text`
    after which it is wholly shown."""

    note: Note
    text: str
    dia_ids: tuple[str, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True)
class Fitted:
    """What fits a budget. shown: in rank order; context: in chronological order; dropped_*: what did not fit."""

    shown: tuple[Shown, ...]
    context: str
    dropped_notes: int
    dropped_turns: int


def show(note: Note, render: Render, skip_turns: int = 0) -> Shown:
    """One note: a line with its date-time and context, then its raw turns, those of another day with their own.

    A context of which every sentence stands in the raw turns word by word is not shown twice. skip_turns: how many of the oldest raw turns
    are left out; they are no longer among `dia_ids`, even where the context still speaks of them.
    """
    turns = note.turns[skip_turns:]
    head = f"[{date_time(note.date)}]"
    if render == "context":
        text = f"{head} {note.context}"
        return Shown(note, text, tuple(t.dia_id for t in turns), (len(text.split()),) * len(turns))
    lines = [_dated(turn, note) for turn in turns]
    if render == "context+raw" and not _repeats(note.context, turns):
        lines.insert(0, f"{head} {note.context}")
    elif lines:
        lines[0] = f"{head} {lines[0]}"
    else:
        lines = [head]
    ends, words = [], 0
    for line in lines:
        words += len(line.split())
        ends.append(words)
    return Shown(note, "\n".join(lines), tuple(t.dia_id for t in turns), tuple(ends[len(ends) - len(turns) :]))


def _repeats(context: str, turns: Sequence[Turn]) -> bool:
    said = "\n".join(turn_line(turn) for turn in turns)
    return context in said or all(sentence in said for sentence in sentences(context))


def _dated(turn: Turn, note: Note) -> str:
    line = turn_line(turn)
    return line if turn.date_time == note.date else f"({date_time(turn.date_time)}) {line}"


def fit(ranked: Sequence[Note], render: Render, tokens: int, count: Callable[[str], int]) -> Fitted:
    """As much of the evidence as fits into `tokens`, notes given best first.

    The lowest-ranked notes go first; when one is left, its oldest raw turns go.
    """
    shown = [show(note, render) for note in ranked]
    dropped_notes = dropped_turns = 0
    while len(shown) > 1 and not _fits(chronological(shown), tokens, count):
        shown.pop()
        dropped_notes += 1
    if len(shown) == 1:
        note = shown[0].note
        while dropped_turns < len(note.turns) and not _fits(shown[0].text, tokens, count):
            dropped_turns += 1
            shown = [show(note, render, skip_turns=dropped_turns)]
    return Fitted(tuple(shown), chronological(shown), dropped_notes, dropped_turns)


def chronological(shown: Sequence[Shown]) -> str:
    """The texts by date of first turn. Note ids follow it: a note is created with its first turn."""
    return "\n".join(item.text for item in sorted(shown, key=lambda item: item.note.id))


def _fits(text: str, tokens: int, count: Callable[[str], int]) -> bool:
    return len(text) <= tokens or count(text) <= tokens
