"""BM25 over note texts (memfly_plus): exact wording the keywords missed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from harness.llm.words import words


class Lexical:
    """BM25 of a question over the texts of all notes, by stemmed words (Porter). Built once, after ingestion."""

    def __init__(self, texts: Sequence[str]):
        import bm25s

        self._index: Any = None
        corpus = [tokens(text) for text in texts]
        self._vocabulary = {word for tokenised in corpus for word in tokenised}
        if self._vocabulary:
            self._index = bm25s.BM25()
            self._index.index(corpus, show_progress=False)

    def scores(self, question: str) -> np.ndarray | None:
        """Score of every note, by id, 0 where it shares no word with the question. Shape (notes,), float64. None: no
        note does."""
        asked = [word for word in tokens(question) if word in self._vocabulary]
        return self._index.get_scores(asked).astype(np.float64) if asked else None


def tokens(text: str) -> list[str]:
    """Stemmed words, repeats kept; function words too, which BM25 weighs by itself."""
    return [_stem(word.casefold()) for word in words(text)]


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    return _stemmer().stem(word)
