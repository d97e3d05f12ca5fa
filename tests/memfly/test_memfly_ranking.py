"""Rankings read from the top against whole sorts, and the fusion of such rankings against that of whole lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfly.fusion import by_score, rrf
from memfly.ranking import Ranking, fuse

# Few different scores: ties at every depth.
scored = st.dictionaries(st.integers(0, 60), st.sampled_from([0.0, 0.25, 0.5, 0.5000001, 1.0]), max_size=50)


def test_by_hand():
    ranking = Ranking.of({4: 0.5, 9: 0.75, 2: 0.5, 7: 0.1})
    assert ranking.best(1) == [(9, 0.75)]
    assert ranking.best(2) == [(9, 0.75), (2, 0.5)]  # 4 is as good, and younger
    assert list(ranking) == ranking.best(99) == [(9, 0.75), (2, 0.5), (4, 0.5), (7, 0.1)]
    assert [ranking.rank(note) for note in (9, 2, 4, 7, 8, 99)] == [1, 2, 3, 4, None, None]
    assert 4 in ranking and 3 not in ranking and 99 not in ranking
    assert Ranking.of({}).best(3) == []


@given(scored, st.integers(0, 60))
def test_the_top_is_that_of_the_whole_sort(scores, count):
    ranking, whole = Ranking.of(scores), by_score(scores)
    assert ranking.best(count) == whole[:count]
    assert [ranking.rank(note) for note, _ in whole] == list(range(1, len(whole) + 1))


@given(st.lists(scored, max_size=3), st.sampled_from([0.0, 1.0, 10.0, 60.0]), st.integers(0, 30))
def test_fusion_is_that_of_the_whole_lists(lists, k, count):
    whole = rrf([[note for note, _ in by_score(scores)] for scores in lists], k)
    assert fuse([Ranking.of(scores) for scores in lists], k, count) == whole[:count]


def test_long_rankings_are_not_sorted_whole():
    """The best of two rankings of 5,000 that agree on their first notes is found among the first few of each."""
    deepest = []

    class Watched(Ranking):
        def best(self, count):
            deepest.append(count)
            return super().best(count)

    notes = np.arange(5000, dtype=np.int64)
    first = Watched(notes, np.linspace(1, 0, 5000))
    second = Watched(notes, np.linspace(1, 0, 5000) ** 2)
    assert fuse([first, second], 10, 3) == [(n, pytest.approx(2 / (11 + n))) for n in range(3)]
    assert max(deepest) <= 12
