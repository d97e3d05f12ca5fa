"""Phase 3: topics are communities of the keyword co-occurrence graph (Leiden, modularity), within size bounds [P]."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from memfly.hierarchy import Hierarchy, Topic
from memfly.leiden import partition

Cosine = Callable[[list[int], list[int]], float]

_WORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="topics")
"""One: whoever waits for Leiden takes no thread from others."""


@dataclass(frozen=True)
class KeywordGraph:
    """What topics are made of, as it stood at one moment: nothing that happens to the memory later changes it.

    notes: each note's keyword ids. vectors: each keyword's embedding, shape (d,). counts: how many notes hold it.
    """

    notes: list[list[int]]
    vectors: list[np.ndarray]
    counts: list[int]

    @classmethod
    def of(cls, hierarchy: Hierarchy) -> KeywordGraph:
        return cls(
            [list(note.keywords) for note in hierarchy.notes],
            [keyword.vector for keyword in hierarchy.keywords],
            [len(keyword.notes) for keyword in hierarchy.keywords],
        )

    def cooccurrence(self) -> tuple[np.ndarray, np.ndarray]:
        """G_kw: edges (m, 2) of keyword ids, lower id first, in ascending order; weights (m,): notes that hold both."""
        size = len(self.vectors)
        codes = [np.empty(0, dtype=np.int64)]
        for note in self.notes:
            held = np.array(sorted(note), dtype=np.int64)
            first, second = np.triu_indices(len(held), k=1)
            codes.append(held[first] * size + held[second])
        found, weights = np.unique(np.concatenate(codes), return_counts=True)
        return np.stack(np.divmod(found, max(size, 1)), axis=1), weights.astype(np.float64)

    def centroids(self) -> Callable[[Sequence[int]], np.ndarray]:
        """Keyword ids -> mu_C, unit length, float32, shape (d,)."""
        vectors = np.stack(self.vectors) if self.vectors else np.zeros((0, 1))
        counts = np.array(self.counts, dtype=np.float64)

        def centroid(members: Sequence[int]) -> np.ndarray:
            """Normalised mean of the keywords' embeddings, weighted by note counts (our choice)."""
            index = list(members)
            mean = (vectors[index] * counts[index, None]).sum(axis=0)
            return (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)

        return centroid


def evolving(graph: KeywordGraph, *, smallest: int, largest: int, seed: int) -> asyncio.Future[list[Topic]]:
    """`evolve` beside the event loop, which it never holds up. Those of all conversations take turns."""
    work = partial(evolve, graph, smallest=smallest, largest=largest, seed=seed)
    return asyncio.get_running_loop().run_in_executor(_WORKER, work)


def evolve(graph: KeywordGraph, *, smallest: int, largest: int, seed: int) -> list[Topic]:
    """The topics of a memory; deterministic for a seed. Order: by their first keyword."""
    pairs, weights = graph.cooccurrence()
    centroid = graph.centroids()
    groups = communities(
        len(graph.vectors),
        pairs,
        weights,
        smallest=smallest,
        largest=largest,
        seed=seed,
        cosine=lambda a, b: float(centroid(a) @ centroid(b)),
    )
    return [Topic(tuple(group), centroid(group)) for group in groups]


def communities(
    size: int,
    pairs: np.ndarray,
    weights: np.ndarray,
    *,
    smallest: int,
    largest: int,
    seed: int,
    cosine: Cosine,
) -> list[list[int]]:
    """Partition `size` vertices into communities of smallest..largest members as far as that is possible.

    pairs: (m, 2) vertex ids; weights: (m,). Leiden (memfly.leiden) with the optimiser's own maximum size;
    what still exceeds it is split; what falls short joins a neighbour (see _join_small).
    """
    if size == 0:
        return []
    groups = partition(size, pairs, weights, largest, seed)
    groups = [part for group in groups for part in _split(group, largest)]
    _join_small(groups, pairs, weights, smallest, largest, cosine)
    return sorted((sorted(group) for group in groups if group), key=lambda group: group[0])


def violations(topics: Sequence[Topic], smallest: int, largest: int) -> list[int]:
    """Sizes of the topics outside the bounds."""
    return [len(t.keywords) for t in topics if not smallest <= len(t.keywords) <= largest]


def _split(group: list[int], largest: int) -> list[list[int]]:
    """Equal consecutive parts of at most `largest`: a safety net, for versions that let the bound slip."""
    parts = -(-len(group) // largest)
    return [part.tolist() for part in np.array_split(np.array(group), parts)] if parts > 1 else [group]


def _join_small(
    groups: list[list[int]], pairs: np.ndarray, weights: np.ndarray, smallest: int, largest: int, cosine: Cosine
) -> None:
    """Each community below the bound, smallest first, joins the community it shares most weight with that still has
    room, else the one of nearest centroid that has; where none has, it stays as it is (and is reported)."""
    owner = {int(v): g for g, group in enumerate(groups) for v in group}
    shared: list[dict[int, float]] = [{} for _ in groups]
    for (a, b), weight in zip(pairs.tolist(), weights.tolist(), strict=True):
        ga, gb = owner[a], owner[b]
        if ga != gb:
            shared[ga][gb] = shared[ga].get(gb, 0.0) + weight
            shared[gb][ga] = shared[gb].get(ga, 0.0) + weight
    stuck: set[int] = set()
    while True:
        small = [g for g, group in enumerate(groups) if 0 < len(group) < smallest and g not in stuck]
        if not small:
            return
        here = min(small, key=lambda g: (len(groups[g]), groups[g][0]))
        room = [
            g for g, group in enumerate(groups) if group and g != here and len(group) + len(groups[here]) <= largest
        ]
        if not room:
            stuck.add(here)
            continue
        near = [g for g in room if g in shared[here]]
        if near:
            target = min(near, key=lambda g: (-shared[here][g], groups[g][0]))
        else:
            target = min(room, key=lambda g: (-round(cosine(groups[here], groups[g]), 9), groups[g][0]))
        groups[target] = sorted(groups[target] + groups[here])
        groups[here] = []
        for other, weight in shared[here].items():
            shared[other].pop(here, None)
            if other != target:
                shared[target][other] = shared[target].get(other, 0.0) + weight
                shared[other][target] = shared[other].get(target, 0.0) + weight
        shared[here] = {}
