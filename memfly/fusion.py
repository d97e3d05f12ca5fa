"""Reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def rrf(lists: Iterable[Sequence[int]], k: float) -> list[tuple[int, float]]:
    """Fuse ranked id lists: score = sum over lists of 1 / (k + rank), ranks from 1.

    Best first; equal scores by lower id, which is the older note. [P] RRF.
    """
    scores: dict[int, float] = {}
    for ranked in lists:
        for rank, item in enumerate(ranked, start=1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (k + rank)
    return by_score(scores)


def by_score(scores: dict[int, float]) -> list[tuple[int, float]]:
    """Best first, ties by lower id. Scores are rounded so that the order of summation cannot decide a tie."""
    return sorted(((i, round(s, 12)) for i, s in scores.items()), key=lambda pair: (-pair[1], pair[0]))
