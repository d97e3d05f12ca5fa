"""Inner-product search over unit vectors with stable ids (FAISS): exact up to a size, by an HNSW graph beyond it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from harness.index_graph import Graph

EXACT = 20_000
"""Vectors up to which a search is exact (our choice: a scan of 20,000 x 384 floats takes half a millisecond, and no
LoCoMo conversation has more than 700 turns)."""
MOVED = 4
"""Vectors that each write moves into a graph under construction (our choice: it is complete a third of the size later,
and no single write takes long)."""
DEAD = 0.2
"""Share of replaced or removed vectors in a graph at which another is made (our choice)."""
_BLOCK = 4096


class DenseIndex:
    """id -> unit vector of shape (dim,), searched by cosine (inner product). Vectors may be replaced and removed.

    ids are positions: room is kept for every id below the highest. Up to `exact` vectors a search scans all of them;
    beyond, an HNSW graph is walked, which may miss some of the nearest. `scan` and `cosines` are exact at any size. An
    index depends on the writes and their order alone.
    """

    def __init__(self, dim: int, exact: int = EXACT):
        import faiss

        # The matrices are small: waking threads costs more than they save, and would fight the encoder's.
        faiss.omp_set_num_threads(1)
        self.dim = dim
        self.exact = exact
        self._faiss: Any = faiss
        self._blocks: list[np.ndarray] = []
        """Rows by id. Blocks, since one growing array would be copied whole now and then."""
        self._live = np.zeros(0, dtype=bool)
        self._count = 0
        self._end = 0
        """One more than the highest id there was."""
        self._graph: Graph | None = None
        self._next: Graph | None = None
        """A graph under construction: it holds what is live of the ids below `_moved`."""
        self._moved = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, id: int) -> bool:
        return 0 <= id < self._end and bool(self._live[id])

    @property
    def dead_share(self) -> float:
        """Of the graph's nodes, those of replaced and removed vectors; 0 where there is no graph."""
        return self._graph.dead / len(self._graph) if self._graph else 0.0

    def add(self, id: int, vector: np.ndarray) -> None:
        """Add a vector under a new id (>= 0). ValueError for a taken id or a wrong shape."""
        if id < 0:
            raise ValueError(f"id {id} is negative")
        if id in self:
            raise ValueError(f"id {id} is taken; use replace")
        row = self._row(vector)
        while len(self._live) <= id:
            self._blocks.append(np.zeros((_BLOCK, self.dim), dtype=np.float32))
            self._live = np.concatenate([self._live, np.zeros(_BLOCK, dtype=bool)])
        self._live[id] = True
        self._count += 1
        self._end = max(self._end, id + 1)
        self._write(id, row)

    def replace(self, id: int, vector: np.ndarray) -> None:
        """Give a held id another vector. KeyError for an unknown id."""
        if id not in self:
            raise KeyError(id)
        self._write(id, self._row(vector))

    def remove(self, id: int) -> None:
        """Forget a held id. KeyError for an unknown id."""
        if id not in self:
            raise KeyError(id)
        self._live[id] = False
        self._count -= 1
        self._blocks[id // _BLOCK][id % _BLOCK] = 0
        for graph in (self._graph, self._next):
            if graph is not None:
                graph.drop(id)

    def search(self, vector: np.ndarray, k: int, exclude: Collection[int] = ()) -> list[tuple[int, float]]:
        """The k best (id, inner product), best first, equal scores by lower id; ids in `exclude` left out.

        Fewer than k when the index holds no more (or, beyond `exact`, when the graph finds no more).
        """
        if self._graph is None:
            return self.scan(vector, k, exclude)
        return self._graph.search(self._row(vector), k, set(exclude))

    def scan(self, vector: np.ndarray, k: int, exclude: Collection[int] = ()) -> list[tuple[int, float]]:
        """As `search`, exact at any size."""
        left_out = [id for id in exclude if id in self]
        wanted = min(k, self._count - len(left_out))
        if wanted <= 0:
            return []
        scores = self.cosines(vector)
        scores[~self._live[: self._end]] = -np.inf
        scores[left_out] = -np.inf
        least = np.partition(scores, len(scores) - wanted)[len(scores) - wanted]
        ids = np.flatnonzero(scores >= least)  # more than wanted where the last place is tied
        order = np.lexsort((ids, -scores[ids]))[:wanted]
        return list(zip(ids[order].tolist(), scores[ids[order]].tolist(), strict=True))

    def cosines(self, vector: np.ndarray, ids: np.ndarray | None = None) -> np.ndarray:
        """Inner products with the held vectors of `ids` (ascending, int64), or of every id there was (0 where none is
        held any more). Shape (ids,), float32. Equal vectors get equal values, wherever they stand."""
        query = self._row(vector)[0]
        out = np.zeros(self._end if ids is None else len(ids), dtype=np.float32)
        pointer, ready = self._faiss.swig_ptr, self._faiss
        cuts = np.arange(0, len(self._live) + 1, _BLOCK)
        places = np.minimum(cuts, self._end) if ids is None else np.searchsorted(ids, cuts)
        for block, low, high in zip(self._blocks, places[:-1].tolist(), places[1:].tolist(), strict=True):
            if high == low:
                continue
            part = out[low:high]
            if ids is None:
                ready.fvec_inner_products_ny(pointer(part), pointer(query), pointer(block), self.dim, high - low)
            else:
                rows = np.ascontiguousarray(ids[low:high] % _BLOCK, dtype=np.int64)
                ready.fvec_inner_products_by_idx(
                    pointer(part), pointer(query), pointer(block), pointer(rows), self.dim, 1, high - low
                )
        return out

    def _write(self, id: int, row: np.ndarray) -> None:
        self._blocks[id // _BLOCK][id % _BLOCK] = row[0]
        if self._graph is not None:
            self._graph.put(id, row)
        if self._next is None and self._wants_graph():
            self._next, self._moved = Graph(self.dim), 0
        elif self._next is not None and id < self._moved:
            self._next.put(id, row)
        if self._next is not None:
            self._move(self._next)

    def _wants_graph(self) -> bool:
        if self._graph is None:
            return self._count > self.exact
        return self.dead_share > DEAD

    def _move(self, graph: Graph) -> None:
        """Take some more vectors into the next graph, and use it once it holds all."""
        moved = 0
        while moved < MOVED and self._moved < self._end:
            if self._live[self._moved]:
                graph.put(self._moved, self._blocks[self._moved // _BLOCK][self._moved % _BLOCK][None])
                moved += 1
            self._moved += 1
        if self._moved == self._end:
            self._graph, self._next = graph, None

    def _row(self, vector: np.ndarray) -> np.ndarray:
        row = np.ascontiguousarray(vector, dtype=np.float32).reshape(1, -1)
        if row.shape[1] != self.dim:
            raise ValueError(f"a vector of {row.shape[1]} dimensions in an index of {self.dim}")
        return row
