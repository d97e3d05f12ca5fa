"""Rankings that are read from their top: a common keyword or a wide topic lists half of a large memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from memfly.fusion import by_score


class Ranking:
    """Notes with scores, best first, equal scores by lower id (the older note). Sorted only as far as it is read."""

    def __init__(self, notes: np.ndarray, scores: np.ndarray):
        """notes: ids in ascending order, int64, shape (n,); scores: float64, shape (n,)."""
        self.notes = notes
        self.scores = scores

    @classmethod
    def of(cls, scores: Mapping[int, float]) -> Ranking:
        """Of note id -> score."""
        notes = np.array(sorted(scores), dtype=np.int64)
        return cls(notes, np.array([scores[note] for note in notes.tolist()], dtype=np.float64))

    def __len__(self) -> int:
        return len(self.notes)

    def __contains__(self, note: int) -> bool:
        return self._place(note) is not None

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return iter(self.best(len(self)))

    def best(self, count: int) -> list[tuple[int, float]]:
        """The first `count` (note id, score); all of them when there are no more."""
        places = np.arange(len(self))
        if count <= 0:
            return []
        if count < len(self):
            least = np.partition(self.scores, len(self) - count)[len(self) - count]
            places = np.flatnonzero(self.scores >= least)  # more than count where the last place is tied
        order = places[np.lexsort((places, -self.scores[places]))[:count]]
        return list(zip(self.notes[order].tolist(), self.scores[order].tolist(), strict=True))

    def rank(self, note: int) -> int | None:
        """A note's rank, from 1; None where it is not listed."""
        place = self._place(note)
        if place is None:
            return None
        score = self.scores[place]
        higher = np.count_nonzero(self.scores > score)
        return 1 + int(higher + np.count_nonzero(self.scores[:place] == score))

    def _place(self, note: int) -> int | None:
        place = int(np.searchsorted(self.notes, note))
        return place if place < len(self) and self.notes[place] == note else None


def fuse(rankings: Sequence[Ranking], k: float, count: int) -> list[tuple[int, float]]:
    """The `count` best of reciprocal rank fusion over whole rankings (memfly.fusion.rrf), read only as far as needed.

    A ranking adds at most 1 / (k + depth + 1) to a note that is not among its first `depth`. A note that cannot reach
    the best with that is not looked up, and once no unseen note can, it is done (Fagin's threshold algorithm).
    """
    if count <= 0:
        return []
    depth = 4 * count
    while True:
        tops = [{note: rank for rank, (note, _) in enumerate(ranking.best(depth), start=1)} for ranking in rankings]
        beyond = [1.0 / (k + depth + 1) if len(ranking) > depth else 0.0 for ranking in rankings]
        seen = dict.fromkeys(note for top in tops for note in top)
        least = {note: sum(1.0 / (k + top[note]) for top in tops if note in top) for note in seen}
        best = heapq.nlargest(count, least.values())
        hopeful = [
            note
            for note, score in least.items()
            if len(best) < count
            or score + sum(more for top, more in zip(tops, beyond, strict=True) if note not in top) > best[-1] - 1e-9
        ]
        fused = by_score({note: _reciprocal(rankings, tops, k, note) for note in hopeful})[:count]
        if not any(beyond) or (len(fused) == count and fused[-1][1] > sum(beyond) + 1e-9):
            return fused
        depth *= 4


def _reciprocal(rankings: Sequence[Ranking], tops: Sequence[Mapping[int, int]], k: float, note: int) -> float:
    ranks = (top.get(note) or ranking.rank(note) for ranking, top in zip(rankings, tops, strict=True))
    return round(sum(1.0 / (k + rank) for rank in ranks if rank is not None), 12)
