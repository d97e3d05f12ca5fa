"""The memory as it will be if the next drafts are all appended: where their candidates are looked for ahead of time."""

from __future__ import annotations

from collections.abc import Iterator

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
        self.note_index = _Joined(hierarchy.note_index, len(hierarchy.notes))

    def add(self, draft: Draft) -> None:
        """Expect a draft to be appended."""
        note = len(self)
        self._drafts.append(draft)
        self.note_index.add(note, draft.vector)
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
        return Keyword(held.id, form, held.vector, _Postings(held.notes, holders))

    def idf(self, keyword: Keyword | None) -> float:
        return idf(len(self), keyword)


class _Postings(dict[int, None]):
    """Postings and those expected behind them, without a copy: of a common keyword they are half the memory."""

    def __init__(self, held: dict[int, None], expected: dict[int, None]):
        super().__init__(expected)
        self._held = held

    def __len__(self) -> int:
        return len(self._held) + super().__len__()

    def __iter__(self) -> Iterator[int]:
        yield from self._held
        yield from super().__iter__()

    def __contains__(self, note: object) -> bool:
        return note in self._held or super().__contains__(note)


class _Joined:
    """An index and vectors behind it, searched as one. `base`: the id of the first of these."""

    def __init__(self, first: DenseIndex, base: int):
        self._first = first
        self._second = DenseIndex(first.dim)
        self._base = base

    def add(self, id: int, vector: np.ndarray) -> None:
        self._second.add(id - self._base, vector)

    def search(self, vector: np.ndarray, k: int) -> list[tuple[int, float]]:
        behind = [(self._base + place, score) for place, score in self._second.search(vector, k)]
        return sorted([*self._first.search(vector, k), *behind], key=lambda pair: (-pair[1], pair[0]))[:k]
