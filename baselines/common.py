"""What several compared systems share: turns and dates as text, sizes for their plans."""

from __future__ import annotations

from datetime import datetime

from harness.locomo.schema import Turn
from harness.prompts import ROOT

TOKENS_PER_WORD = 1.35
"""For plans alone. Our choice: English dialogue with common byte-pair tokenizers."""


def turn_line(turn: Turn) -> str:
    """A raw turn as prompts and readers see it: "speaker: text [image: caption]"."""
    return f"{turn.speaker}: {turn.full_text}"


def day(when: datetime) -> str:
    """A date as prompts and readers see it, e.g. "8 May 2023"."""
    return f"{when.day} {when:%B %Y}"


def date_time(when: datetime) -> str:
    """A date with its time, e.g. "13:56 on 8 May 2023"."""
    return f"{when:%H:%M} on {day(when)}"


def word_count(text: str) -> int:
    """Words between white space, the unit of EvidenceItem.ends."""
    return len(text.split())


def frame_tokens(prompt: str) -> float:
    """Tokens of a prompt file without its inputs, for plans."""
    return TOKENS_PER_WORD * word_count((ROOT / prompt).read_text(encoding="utf-8"))
