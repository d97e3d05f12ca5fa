"""Exact inner-product search over unit vectors with stable ids (FAISS)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np


class DenseIndex:
    """id -> unit vector of shape (dim,), searched by cosine (inner product). Vectors may be replaced and removed.

    Flat and exact: a conversation holds some hundreds of notes, and an approximate graph could not remove one.
    """

    def __init__(self, dim: int):
        import faiss

        # The matrices are small: waking threads costs more than they save, and would fight the encoder's.
        faiss.omp_set_num_threads(1)
        self.dim = dim
        self._ids: set[int] = set()
        self._index: Any = faiss.IndexIDMap2(faiss.IndexFlatIP(dim))

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: int) -> bool:
        return id in self._ids

    def add(self, id: int, vector: np.ndarray) -> None:
        """Add a vector under a new id (>= 0). ValueError for a taken id or a wrong shape."""
        if id < 0:
            raise ValueError(f"id {id} is negative")
        if id in self._ids:
            raise ValueError(f"id {id} is taken; use replace")
        self._index.add_with_ids(self._row(vector), np.array([id], dtype=np.int64))
        self._ids.add(id)

    def replace(self, id: int, vector: np.ndarray) -> None:
        """Give a held id another vector. KeyError for an unknown id."""
        if id not in self._ids:
            raise KeyError(id)
        row = self._row(vector)
        self._index.remove_ids(np.array([id], dtype=np.int64))
        self._index.add_with_ids(row, np.array([id], dtype=np.int64))

    def remove(self, id: int) -> None:
        """Forget a held id. KeyError for an unknown id."""
        self._ids.remove(id)
        self._index.remove_ids(np.array([id], dtype=np.int64))

    def search(self, vector: np.ndarray, k: int, exclude: Collection[int] = ()) -> list[tuple[int, float]]:
        """The k best (id, inner product), best first, equal scores by lower id; ids in `exclude` left out.

        Fewer than k when the index holds no more.
        """
        left_out = self._ids.intersection(exclude)
        wanted = min(k, len(self._ids) - len(left_out))
        if wanted <= 0:
            return []
        row = self._row(vector)
        fetched = min(len(self._ids), wanted + len(left_out) + 1)
        while True:
            scores, ids = self._index.search(row, fetched)
            # FAISS breaks ties by its own order, so a tie at the cut is fetched whole before it is ranked.
            if fetched == len(self._ids) or scores[0, -1] < scores[0, wanted + len(left_out) - 1]:
                break
            fetched = min(len(self._ids), 2 * fetched)
        ranked = sorted(zip(ids[0].tolist(), scores[0].tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))
        return [(id, score) for id, score in ranked if id not in left_out][:wanted]

    def _row(self, vector: np.ndarray) -> np.ndarray:
        row = np.ascontiguousarray(vector, dtype=np.float32).reshape(1, -1)
        if row.shape[1] != self.dim:
            raise ValueError(f"a vector of {row.shape[1]} dimensions in an index of {self.dim}")
        return row
