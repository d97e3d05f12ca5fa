"""Surface forms: how a keyword is normalised, and which keywords a note gets beside the extracted ones."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from harness.llm.words import content_list

MAX_WORDS = 6
"""A longer "keyword" is a sentence some small model wrote: only its content words are posted (our choice)."""


def normalise(keyword: str) -> str:
    """NFKC, case-folded, white space collapsed, outer punctuation removed. Our choice: no stemming."""
    folded = unicodedata.normalize("NFKC", keyword).casefold()
    return " ".join(folded.split()).strip(" .,;:!?\"'`()[]{}*-_")


def note_keywords(extracted: Iterable[str], speaker: str) -> tuple[str, ...]:
    """The keyword set K of a note, in order, without repeats.

    Our choice: the speaker first, always, so that no note is without a keyword; then each extracted keyword, a
    keyword of several words followed by its content words.
    """
    found: dict[str, None] = {}
    for keyword in (speaker, *extracted):
        form = normalise(keyword)
        words = form.split()
        if form and len(words) <= MAX_WORDS:
            found[form] = None
        if len(words) > 1:
            found.update((normalise(word), None) for word in content_list(form))
    found.pop("", None)
    return tuple(found)
