"""Reciprocal rank fusion."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence


def rrf(lists: Iterable[Sequence[int]], k: float, weights: Iterable[float] | None = None) -> list[tuple[int, float]]:
    """Fuse ranked id lists: score = sum over lists of weight / (k + rank), ranks from 1, weights 1 by default.

    Best first; equal scores by lower id, which is the older note. [P] RRF.
    """
    scores: dict[int, float] = {}
    for ranked, weight in zip(lists, itertools.repeat(1.0) if weights is None else weights, strict=False):
        for rank, item in enumerate(ranked, start=1):
            scores[item] = scores.get(item, 0.0) + weight / (k + rank)
    # Rounded, so that the order of summation cannot decide a tie.
    return by_score({item: round(score, 12) for item, score in scores.items()})


def by_score(scores: Mapping[int, float]) -> list[tuple[int, float]]:
    """Best first, ties by lower id."""
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
