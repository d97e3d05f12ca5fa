"""An endless conversation for measuring at any size: the data set's turns, then turns like them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from harness.embed import Embedder
from harness.llm.words import names_and_words
from harness.locomo.loader import Dataset
from harness.locomo.schema import Turn
from memfly.ingest import raw_context
from memfly.keywords import normalise, note_keywords
from memfly.note import Draft
from memfly.replies import MAX_KEYWORDS

NEW_FORMS = 0.04
"""Share of keywords, beyond the turns there are, that the memory has not seen (new words go on coming in any text)."""
AGAIN = 0.03
"""Share of turns that say again what an earlier one said: they are merged into it."""
REMEMBERED = 5000
"""Latest turns among which that earlier one is."""


class World:
    """Turns with their vectors and keywords, deterministic. Beyond the turns of the data set a vector is made of three
    turns' and a keyword is a variant of one of theirs, with a vector made likewise."""

    def __init__(self, dataset: Dataset):
        self.turns = [turn for sample in dataset.samples for turn in sample.conversation.turns]
        self.questions = [question.question for sample in dataset.samples for question in sample.questions]
        self.speakers = [normalise(name) for name in dict.fromkeys(turn.speaker for turn in self.turns)][:2]
        """The same two throughout, as in one conversation: each is a keyword of half of all notes."""
        self._rng = np.random.default_rng(0)
        self._texts = np.empty((0, 0), dtype=np.float32)
        self._forms: dict[str, np.ndarray] = {}
        self._variants: dict[str, int] = {}

    async def embed(self, embedder: Embedder) -> None:
        """The vectors of every turn and of every keyword."""
        self._texts = await embedder.encode([raw_context(turn) for turn in self.turns])
        forms = list(dict.fromkeys(form for turn in self.turns for form in keywords_of(turn)))
        self._forms = dict(zip(forms, await embedder.encode(forms), strict=True))

    @property
    def vectors(self) -> np.ndarray:
        """Those of the data set's turns and keywords, shape (n, d)."""
        return np.concatenate([self._texts, np.stack(list(self._forms.values()))])

    def drafts(self) -> Iterator[Draft]:
        """One draft a turn, without end."""
        recent: list[np.ndarray] = []
        number = 0
        while True:
            place = number % len(self.turns)
            vector = self._texts[place]
            if number >= len(self.turns):
                vector = self._like(vector)
            if recent and self._rng.random() < AGAIN:
                vector = recent[self._draw(len(recent))]
            elif len(recent) < REMEMBERED:
                recent.append(vector)
            else:
                recent[number % REMEMBERED] = vector
            turn = replace(self.turns[place], dia_id=f"D1:{number + 1}", session=1)
            own = normalise(turn.speaker)
            said = [self._variant(form, number) for form in keywords_of(turn) if form != own]
            forms = tuple(dict.fromkeys([self.speakers[number % 2], *said]))
            yield Draft(turn, raw_context(turn), forms, vector, np.stack([self._forms[form] for form in forms]))
            number += 1

    def _like(self, vector: np.ndarray) -> np.ndarray:
        """Unit vector as far from this one as two texts on one subject are (a cosine of 0.6): this one, moved by the
        difference of two turns."""
        moved = vector + self._texts[self._draw(len(self._texts))] - self._texts[self._draw(len(self._texts))]
        return (moved / np.linalg.norm(moved)).astype(np.float32)

    def _draw(self, count: int) -> int:
        return int(self._rng.integers(0, count))

    def _variant(self, form: str, number: int) -> str:
        if number < len(self.turns):
            return form
        made = self._variants.get(form, 0)
        if self._rng.random() < NEW_FORMS:
            self._variants[form] = made + 1
            variant = f"{form} {made + 1}"
            self._forms[variant] = self._like(self._forms[form])
            return variant
        which = self._draw(made + 1)
        return f"{form} {which}" if which else form


def keywords_of(turn: Turn) -> tuple[str, ...]:
    """The keywords of a turn whose extraction failed: names and content words."""
    return note_keywords(names_and_words(turn.full_text)[:MAX_KEYWORDS], turn.speaker)
