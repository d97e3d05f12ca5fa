"""The memory as it will be if the next drafts are all appended: where their candidates are looked for ahead of time."""

from __future__ import annotations

import numpy as np

from harness.index import DenseIndex
from memfly.hierarchy import Hierarchy, Keyword, idf
from memfly.note import Draft


class Expected:
    """A memory and drafts behind it, without changing it. A draft's id is the one it will have as a note.

    It ranks as the memory itself will, rounding included, until a draft is merged instead. Adding a draft costs as
    much as its keywords, whatever the memory's size.
    """

    def __init__(self, hierarchy: Hierarchy):
        self._hierarchy = hierarchy
        self._drafts: list[Draft] = []
        self._holders: dict[str, dict[int, None]] = {}
        self.note_index = _Joined(hierarchy.note_index, DenseIndex(hierarchy.note_index.dim))

    def add(self, draft: Draft) -> None:
        """Expect a draft to be appended."""
        note = len(self)
        self._drafts.append(draft)
        self.note_index.second.add(note, draft.vector)
        for form in draft.keywords:
            self._holders.setdefault(form, {})[note] = None

    def __len__(self) -> int:
        """Notes, the expected ones included."""
        return len(self._hierarchy.notes) + len(self._drafts)

    def keyword(self, form: str) -> Keyword | None:
        """As Hierarchy.keyword, its postings with those expected; the vector is of no use here and may be empty."""
        held, holders = self._hierarchy.keyword(form), self._holders.get(form)
        if holders is None:
            return held
        if held is None:
            return Keyword(-1, form, np.empty(0, dtype=np.float32), holders)
        return Keyword(held.id, form, held.vector, held.notes | holders)

    def idf(self, keyword: Keyword | None) -> float:
        return idf(len(self), keyword)


class _Joined:
    """Two indices searched as one; ids of the second are higher."""

    def __init__(self, first: DenseIndex, second: DenseIndex):
        self.first = first
        self.second = second

    def search(self, vector: np.ndarray, k: int) -> list[tuple[int, float]]:
        found = [*self.first.search(vector, k), *self.second.search(vector, k)]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]
