"""The index beyond its exact size: what it finds, what it forgets, when it is rebuilt, and that it costs no copy."""

import numpy as np
import pytest

from harness.index import DEAD, MOVED, DenseIndex


def vectors(count, dim=16, seed=0):
    """Unit vectors around 20 centres, as texts are: some near, most not."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(20, dim))[rng.integers(0, 20, count)] + 0.5 * rng.normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def filled(rows, exact=100):
    index = DenseIndex(rows.shape[1], exact)
    for id, row in enumerate(rows):
        index.add(id, row)
    return index


def found_of(index, queries, k=10):
    """Share of the exact k nearest that a search finds."""
    shares = []
    for query in queries:
        right = {id for id, _ in index.scan(query, k)}
        shares.append(len(right & {id for id, _ in index.search(query, k)}) / len(right))
    return float(np.mean(shares))


def test_the_graph_takes_over_once_it_holds_all():
    """101 vectors are one too many: the graph then takes 4 with each write, and has overtaken after a third more."""
    rows = vectors(200)
    index = DenseIndex(16, 100)
    for id, row in enumerate(rows):
        index.add(id, row)
        assert (index._graph is None) == (id + 1 < 134)  # 4 (n - 100) >= n from n = 134 on
    assert MOVED == 4 and len(index._graph) == 200 and index._next is None


def test_scores_are_those_of_the_scan_bit_by_bit():
    rows = vectors(3000)
    index = filled(rows)
    everything = index.cosines(rows[7])
    some = np.array([0, 5, 2999])
    assert index.cosines(rows[7], some).tobytes() == everything[some].tobytes()
    for id, score in [*index.search(rows[7], 20), *index.scan(rows[7], 20)]:
        assert np.float32(score).tobytes() == everything[id].tobytes()
    assert index.search(rows[7], 1)[0][0] == 7


def test_most_of_the_nearest_are_found():
    rows = vectors(5000)
    assert found_of(filled(rows), vectors(200, seed=1)) > 0.95


def test_a_replaced_vector_is_found_at_its_new_place_only():
    rows = vectors(1000)
    index, turned = filled(rows), -rows[3]
    index.replace(3, turned)
    assert index.search(turned, 1) == [(3, pytest.approx(1.0))]
    assert 3 not in [id for id, _ in index.search(rows[3], 900)]
    assert len(index) == 1000


def test_a_note_merged_into_again_and_again_hides_nothing():
    """All its former vectors lie beside the present one: a search has to look past them."""
    rows = vectors(400)
    index = filled(rows)
    for step in range(70):
        nudged = rows[3] + np.float32(1e-4 * (step + 1)) * rows[4]
        index.replace(3, nudged / np.linalg.norm(nudged))
    assert index._graph.dead == 70
    found = [id for id, _ in index.search(rows[3], 10)]
    assert found[0] == 3 and len(set(found)) == 10


def test_a_fifth_of_dead_vectors_and_a_new_graph_is_made_while_the_old_one_serves():
    rows, again = vectors(400), vectors(400, seed=2)
    index = filled(rows)
    before = index._graph
    for id in range(100):  # 100 of 500 are dead: not yet more than a fifth
        index.replace(id, again[id])
    assert DEAD == 0.2 and index._graph is before and index._next is None
    index.replace(100, again[100])
    assert index._next is not None
    for id in range(101, 200):  # with the one above, 100 writes of 4 each
        assert index._graph is before
        index.replace(id, again[id])
        assert found_of(index, again[id - 2 : id + 1]) > 0.9
    assert index._graph is not before and index._graph.dead <= 100
    assert found_of(index, [*rows[300:], *again[:200]]) > 0.95


def test_removed_and_excluded_ids_are_not_returned():
    rows = vectors(1000)
    index = filled(rows)
    nearest = [id for id, _ in index.scan(rows[0], 30)]
    index.remove(nearest[1])
    left_out = nearest[2:12]
    found = [id for id, _ in index.search(rows[0], 10, exclude=left_out)]
    assert not {nearest[1], *left_out} & set(found) and len(found) == 10
    assert index.cosines(rows[0])[nearest[1]] == 0
    assert nearest[1] not in index and len(index) == 999
    index.add(nearest[1], rows[0])
    assert index.search(rows[0], 2)[0][1] == pytest.approx(1.0)


def test_the_same_writes_give_the_same_answers():
    rows, queries = vectors(2000), vectors(50, seed=1)
    answers = []
    for _ in range(2):
        index = filled(rows)
        for id in range(0, 2000, 5):
            index.replace(id, rows[id - 1])
        answers.append([index.search(query, 10) for query in queries])
    assert answers[0] == answers[1]
