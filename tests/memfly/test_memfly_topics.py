"""Leiden topics: both bounds on graphs that violate them, determinism, centroids."""

import itertools

import numpy as np
import pytest
from memfly_fakes import memory

from memfly import leiden
from memfly.hierarchy import Hierarchy
from memfly.topics import KeywordGraph, _split, communities, evolve, violations


def graph(*edges):
    pairs = np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2)
    return pairs, np.array([edge[2] for edge in edges], dtype=float)


def clique(members, weight=1.0):
    return [(a, b, weight) for a, b in itertools.combinations(members, 2)]


def partition(size, edges, smallest=3, largest=50, seed=0, cosine=lambda a, b: 0.0):
    return communities(size, *graph(*edges), smallest=smallest, largest=largest, seed=seed, cosine=cosine)


def test_two_cliques_are_two_topics():
    edges = [*clique(range(4), 5.0), *clique(range(4, 9), 5.0), (0, 4, 1.0)]
    assert partition(9, edges) == [[0, 1, 2, 3], [4, 5, 6, 7, 8]]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_clique_above_the_bound_is_cut(seed):
    """A clique of 120 is one community by modularity; none may hold more than 50."""
    groups = partition(120, clique(range(120)), seed=seed)
    assert sorted(v for group in groups for v in group) == list(range(120))
    assert all(3 <= len(group) <= 50 for group in groups)
    # the optimiser keeps the bound by itself; cutting is only the net below it
    assert max(len(group) for group in leiden.partition(120, *graph(*clique(range(120))), 50, seed)) <= 50


def test_what_the_optimiser_lets_slip_is_cut(monkeypatch):
    monkeypatch.setattr("memfly.topics.partition", lambda size, *_: [list(range(size))])
    assert [len(group) for group in partition(120, clique(range(120)))] == [40, 40, 40]


def test_stars_and_isolated_vertices_keep_both_bounds():
    """Five hubs with 60 leaves each, 7 isolated vertices: far from any bound by themselves."""
    edges = [(hub, 5 + hub * 60 + leaf, 1.0) for hub in range(5) for leaf in range(60)]
    size = 5 + 300 + 7
    groups = partition(size, edges)
    assert sorted(v for group in groups for v in group) == list(range(size))
    assert all(3 <= len(group) <= 50 for group in groups)


def test_a_small_community_joins_where_it_shares_most_weight():
    """{8, 9} hangs on both cliques, with 1.0 on the first and 1.5 on the second."""
    edges = [*clique(range(4), 9.0), *clique(range(4, 8), 9.0), (8, 9, 9.0), (8, 0, 1.0), (9, 5, 1.5)]
    assert partition(10, edges, smallest=3) == [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]


def test_a_full_neighbour_is_passed_over():
    """The heavier neighbour has no room for two more (largest 5), the other has."""
    edges = [*clique(range(3), 9.0), *clique(range(3, 8), 9.0), (8, 9, 9.0), (8, 0, 1.0), (9, 5, 1.5)]
    assert partition(10, edges, smallest=3, largest=5) == [[0, 1, 2, 8, 9], [3, 4, 5, 6, 7]]


def test_without_a_neighbour_the_nearest_centroid_takes_it():
    edges = [*clique(range(4), 9.0), *clique(range(4, 8), 9.0), (8, 9, 9.0)]
    near = partition(10, edges, cosine=lambda a, b: 1.0 if 4 in b else 0.2)
    assert near == [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]


def test_what_cannot_be_mended_stays_and_is_a_violation():
    assert partition(2, [(0, 1, 1.0)]) == [[0, 1]]
    assert partition(0, []) == []
    full = [*clique(range(3), 9.0), (3, 4, 9.0)]
    assert partition(5, full, smallest=3, largest=4) == [[0, 1, 2], [3, 4]]


def test_split_is_even():
    assert [len(part) for part in _split(list(range(101)), 50)] == [34, 34, 33]
    assert _split([4, 2], 50) == [[4, 2]]


def test_topics_of_a_memory_have_weighted_centroids_and_do_not_change():
    keywords = {"a": [1, 0], "b": [0, 1], "c": [1, 0], "lone": [0, 0, 1]}
    house = memory([([1], ["a", "b", "c"]), ([1], ["a", "b", "c"]), ([1], ["a"]), ([1], ["lone"])], keywords=keywords)
    pairs, weights = KeywordGraph.of(house).cooccurrence()
    assert pairs.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert weights.tolist() == [2.0, 2.0, 2.0]
    topics = evolve(KeywordGraph.of(house), smallest=1, largest=3, seed=0)
    assert [t.keywords for t in topics] == [(0, 1, 2), (3,)]
    # a counts 3, b 2, c 2: (5, 2) / sqrt(29)
    assert topics[0].centroid[:2] == pytest.approx(np.array([5, 2]) / np.sqrt(29), abs=1e-6)
    assert violations(topics, 2, 50) == [1]
    assert violations(topics, 1, 2) == [3]
    assert evolve(KeywordGraph.of(Hierarchy(4)), smallest=3, largest=50, seed=0) == []


def test_the_same_seed_gives_the_same_topics():
    rng = np.random.default_rng(3)
    edges = [(int(a), int(b), float(w + 1)) for a, b, w in rng.integers(0, 200, (900, 3)) if a < b]
    first, second = partition(200, edges, seed=5), partition(200, edges, seed=5)
    assert first == second
    assert all(3 <= len(group) <= 50 for group in first)
