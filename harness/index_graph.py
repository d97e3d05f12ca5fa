"""An HNSW graph (FAISS) whose vectors can be replaced: the old one stays as a dead node that no search returns."""

from __future__ import annotations

import numpy as np

NEIGHBOURS = 32
BREADTH_BUILDING = 80
BREADTH_SEARCHING = 128
"""M, efConstruction and efSearch of HNSW (Malkov and Yashunin, arXiv:1603.09320). Our choice; the recall they give on
text embeddings is measured by scripts/bench.py."""


class Graph:
    """id -> unit vector of shape (1, dim), float32, searched by inner product, approximately."""

    def __init__(self, dim: int):
        import faiss

        self._faiss = faiss
        self._index = faiss.IndexHNSWFlat(dim, NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efConstruction = BREADTH_BUILDING
        self._ids: list[int] = []
        """By node; -1: dead."""
        self._node: dict[int, int] = {}

    def __len__(self) -> int:
        """Nodes, the dead ones included."""
        return len(self._ids)

    @property
    def dead(self) -> int:
        return len(self._ids) - len(self._node)

    def put(self, id: int, row: np.ndarray) -> None:
        """Add a vector, or give an id another one."""
        self.drop(id)
        self._node[id] = len(self._ids)
        self._ids.append(id)
        self._index.add(row)

    def drop(self, id: int) -> None:
        """Forget an id, if it is held."""
        node = self._node.pop(id, None)
        if node is not None:
            self._ids[node] = -1

    def search(self, row: np.ndarray, k: int, exclude: set[int]) -> list[tuple[int, float]]:
        """The k best (id, inner product) that are found, best first, equal scores by lower id."""
        left_out = sum(id in self._node for id in exclude)
        wanted = min(k, len(self._node) - left_out)
        if wanted <= 0:
            return []
        fetched = min(len(self._ids), wanted + left_out + 8)
        while True:
            breadth = self._faiss.SearchParametersHNSW(efSearch=max(BREADTH_SEARCHING, 2 * fetched))
            scores, nodes = self._index.search(row, fetched, params=breadth)
            found = [
                (self._ids[node], score)
                for node, score in zip(nodes[0].tolist(), scores[0].tolist(), strict=True)
                if node >= 0 and self._ids[node] >= 0 and self._ids[node] not in exclude
            ]
            # Dead nodes lie together: a note merged into often leaves all its former vectors near the present one.
            if len(found) >= wanted or fetched == len(self._ids):
                return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:wanted]
            fetched = min(len(self._ids), 2 * fetched)
