"""Iterative evidence refinement: judge the pool, search for what is missing, stop [P]."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from memfly.fusion import rrf
from memfly.pathways import Hit

Stop = Literal["sufficient", "no_new_note", "i_max"]


@dataclass(frozen=True)
class Found:
    """A note of the final evidence: the hit of the round that first brought it (0: the first retrieval)."""

    hit: Hit
    round: int


@dataclass(frozen=True)
class Refined:
    """evidence: best first. stop: why there was no further round (None: no refinement was asked for)."""

    evidence: tuple[Found, ...]
    stop: Stop | None


Judge = Callable[[Sequence[int]], Awaitable[str | None]]
"""The notes found so far, best first -> None when they suffice, else a sub-query (may be empty)."""


async def refine(
    query: str,
    retrieve: Callable[[str], Awaitable[list[Hit]]],
    judge: Judge,
    *,
    i_max: int,
    k_total: int | None,
    rrf_k: float,
    round_weight: float,
) -> Refined:
    """Retrieve for `query`, then up to i_max times: judge, and if the pool does not suffice retrieve for the sub-query.

    E := E U new notes [P]. It ends when the judge is content, when a round brings no new note (an empty sub-query
    brings none and is not asked), or after i_max rounds. The reader gets at most k_total notes, by fusion over the
    rounds (our choice).
    """
    rounds = [await retrieve(query)]
    stop: Stop | None = None
    for _ in range(i_max):
        known = {hit.note for hits in rounds for hit in hits}
        sub_query = await judge([found.hit.note for found in select(rounds, k_total, rrf_k, round_weight)])
        if sub_query is None:
            stop = "sufficient"
            break
        if not sub_query.strip():
            stop = "no_new_note"
            break
        hits = await retrieve(sub_query)
        rounds.append(hits)
        if known.issuperset(hit.note for hit in hits):
            stop = "no_new_note"
            break
        stop = "i_max"
    return Refined(tuple(select(rounds, k_total, rrf_k, round_weight)), stop)


def select(rounds: Sequence[Sequence[Hit]], k_total: int | None, rrf_k: float, round_weight: float) -> list[Found]:
    """The best k_total notes of all rounds (null: all of them) by reciprocal rank fusion of the rounds, round r counting
    round_weight ** r, the question's own round being 0."""
    first: dict[int, Found] = {}
    for number, hits in enumerate(rounds):
        for hit in hits:
            first.setdefault(hit.note, Found(hit, number))
    weights = [round_weight**number for number in range(len(rounds))]
    fused = rrf(([hit.note for hit in hits] for hits in rounds), rrf_k, weights)
    return [first[note] for note, _ in fused[:k_total]]
