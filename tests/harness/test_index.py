"""The dense index against brute force."""

import numpy as np
import pytest

from harness.index import DenseIndex


def unit(*values):
    vector = np.array(values, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def brute_force(vectors, query, k, exclude=()):
    scores = {
        id: float(np.dot(vector.astype(np.float64), query)) for id, vector in vectors.items() if id not in exclude
    }
    return sorted(scores, key=lambda id: (-round(scores[id], 6), id))[:k]


def test_order_scores_and_ties_by_hand():
    index = DenseIndex(2)
    for id, vector in [(7, unit(1, 0)), (3, unit(1, 0)), (5, unit(0, 1)), (2, unit(3, 4)), (9, unit(1, 0))]:
        index.add(id, vector)
    assert len(index) == 5 and 7 in index and 4 not in index
    found = index.search(unit(1, 0), 4)
    assert [id for id, _ in found] == [3, 7, 9, 2]
    np.testing.assert_allclose([score for _, score in found], [1, 1, 1, 0.6], atol=1e-6)
    assert [id for id, _ in index.search(unit(1, 0), 1)] == [3]
    assert [id for id, _ in index.search(unit(1, 0), 2, exclude=[3])] == [7, 9]
    assert [id for id, _ in index.search(unit(1, 0), 10, exclude=[3, 9, 1000])] == [7, 2, 5]


def test_nothing_to_find():
    index = DenseIndex(2)
    assert index.search(unit(1, 0), 3) == []
    index.add(0, unit(1, 0))
    assert index.search(unit(1, 0), 0) == []
    assert index.search(unit(1, 0), 3, exclude={0}) == []


def test_a_replaced_vector_is_found_at_its_new_place_only():
    index = DenseIndex(2)
    index.add(1, unit(1, 0))
    index.add(2, unit(1, 1))
    index.replace(1, unit(0, 1))
    assert len(index) == 2
    assert [id for id, _ in index.search(unit(1, 0), 5)] == [2, 1]
    assert [id for id, _ in index.search(unit(0, 1), 5)] == [1, 2]


def test_against_brute_force_through_additions_and_replacements():
    rng = np.random.default_rng(3)
    index, held = DenseIndex(16), {}
    for id in rng.permutation(400).tolist():
        # Every fourth vector repeats an earlier one: ties at every depth.
        vector = held[rng.choice(list(held))] if held and id % 4 == 0 else unit(*rng.normal(size=16))
        index.add(id, vector)
        held[id] = vector
        if id % 7 == 0:
            target = int(rng.choice(list(held)))
            held[target] = unit(*rng.normal(size=16))
            index.replace(target, held[target])
    for _ in range(60):
        query = held[int(rng.choice(list(held)))] if rng.random() < 0.5 else unit(*rng.normal(size=16))
        k = int(rng.integers(1, 30))
        exclude = set(rng.choice(400, size=int(rng.integers(0, 50)), replace=False).tolist())
        assert [id for id, _ in index.search(query, k, exclude)] == brute_force(held, query, k, exclude)


def test_a_tie_wider_than_the_cut_is_ranked_by_id():
    index = DenseIndex(2)
    for id in reversed(range(200)):
        index.add(id, unit(1, 0))
    assert [id for id, _ in index.search(unit(1, 0), 3, exclude=[0, 1])] == [2, 3, 4]


def test_wrong_use_is_refused():
    index = DenseIndex(2)
    index.add(1, unit(1, 0))
    with pytest.raises(ValueError, match="taken"):
        index.add(1, unit(1, 0))
    with pytest.raises(ValueError, match="negative"):
        index.add(-1, unit(1, 0))
    with pytest.raises(KeyError):
        index.replace(2, unit(1, 0))
    with pytest.raises(ValueError, match="3 dimensions in an index of 2"):
        index.add(2, unit(1, 0, 0))
    with pytest.raises(ValueError, match="3 dimensions"):
        index.search(unit(1, 0, 0), 1)
    assert len(index) == 1


def test_a_removed_vector_is_found_no_more_and_its_id_is_free():
    index = DenseIndex(2)
    index.add(1, unit(1, 0))
    index.add(2, unit(0, 1))
    index.remove(1)
    assert [id for id, _ in index.search(unit(1, 0), 5)] == [2] and len(index) == 1 and 1 not in index
    index.add(1, unit(3, 4))
    assert [id for id, _ in index.search(unit(0, 1), 5)] == [2, 1]
    with pytest.raises(KeyError):
        index.remove(9)
