"""Phase 3: topics are communities of the keyword co-occurrence graph (Leiden, modularity), within size bounds [P]."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from memfly.hierarchy import Hierarchy, Topic

Cosine = Callable[[list[int], list[int]], float]


def evolve(hierarchy: Hierarchy, *, smallest: int, largest: int, seed: int) -> list[Topic]:
    """The topics of the present memory; deterministic for a seed. Order: by their first keyword."""
    pairs, weights = hierarchy.cooccurrence()
    centroid = centroids(hierarchy)
    groups = communities(
        len(hierarchy.keywords),
        pairs,
        weights,
        smallest=smallest,
        largest=largest,
        seed=seed,
        cosine=lambda a, b: float(centroid(a) @ centroid(b)),
    )
    return [Topic(tuple(group), centroid(group)) for group in groups]


def centroids(hierarchy: Hierarchy) -> Callable[[Sequence[int]], np.ndarray]:
    """Keyword ids -> mu_C of the present memory, unit length, float32, shape (d,)."""
    vectors = np.stack([keyword.vector for keyword in hierarchy.keywords]) if hierarchy.keywords else np.zeros((0, 1))
    counts = np.array([len(keyword.notes) for keyword in hierarchy.keywords], dtype=np.float64)

    def centroid(members: Sequence[int]) -> np.ndarray:
        """Normalised mean of the keywords' embeddings, weighted by note counts (our choice)."""
        index = list(members)
        mean = (vectors[index] * counts[index, None]).sum(axis=0)
        return (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)

    return centroid


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

    pairs: (m, 2) vertex ids; weights: (m,). Leiden with the optimiser's own maximum size, iterated until stable;
    what still exceeds it is split; what falls short joins a neighbour (see _join_small).
    """
    if size == 0:
        return []
    groups = _leiden(size, pairs, weights, largest, seed)
    groups = [part for group in groups for part in _split(group, largest)]
    _join_small(groups, pairs, weights, smallest, largest, cosine)
    return sorted((sorted(group) for group in groups if group), key=lambda group: group[0])


def violations(topics: Sequence[Topic], smallest: int, largest: int) -> list[int]:
    """Sizes of the topics outside the bounds."""
    return [len(t.keywords) for t in topics if not smallest <= len(t.keywords) <= largest]


def _leiden(size: int, pairs: np.ndarray, weights: np.ndarray, largest: int, seed: int) -> list[list[int]]:
    import igraph
    import leidenalg

    graph = igraph.Graph(n=size, edges=pairs.tolist())
    optimiser = leidenalg.Optimiser()
    optimiser.set_rng_seed(seed)
    optimiser.max_comm_size = largest
    optimiser.community_constraint_enforcement = 1  # without it max_comm_size is not kept while aggregating
    partition = leidenalg.ModularityVertexPartition(graph, weights=weights.tolist())
    optimiser.optimise_partition(partition, n_iterations=-1)
    return [sorted(members) for members in partition]


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
