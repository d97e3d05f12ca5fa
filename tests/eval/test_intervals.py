"""Intervals and comparisons by hand and against independent computations."""

import itertools
import random

import numpy as np
import pytest

from eval.intervals import compare, holm, mean_interval, sign_flip_p, too_few

FIVE = {"a": [1.0, 0.0], "b": [1.0], "c": [0.0, 0.0, 1.0], "d": [1.0, 1.0], "e": [0.0, 1.0]}


def test_five_conversations_by_hand():
    # 10 values, sum 6: mean 0.6. Residuals (sum - 0.6 size): -0.2, 0.4, -0.8, 0.8, -0.2; squares sum to 1.52.
    # var = 5/4 x 1.52 / 100 = 0.019; t(0.975, 4) = 2.776445; half = 2.776445 x 0.1378405 = 0.3827056
    low, high = mean_interval(FIVE)
    assert low == pytest.approx(0.6 - 0.3827056, abs=1e-6)
    assert high == pytest.approx(0.6 + 0.3827056, abs=1e-6)


def test_equals_the_sandwich_of_a_regression_on_a_constant():
    """Stata's cluster-robust variance of an intercept, written with matrices (its small-sample factor k/(k-1) and
    not times (N-1)/(N-p), which for the intercept alone is 1)."""
    rng = np.random.default_rng(5)
    clusters = {str(c): rng.random(rng.integers(3, 40)).tolist() for c in range(9)}
    y = np.concatenate([clusters[c] for c in clusters])
    group = np.concatenate([[int(c)] * len(clusters[c]) for c in clusters])
    x = np.ones((len(y), 1))
    bread = np.linalg.inv(x.T @ x)
    residual = y - x @ (bread @ x.T @ y)
    meat = sum(np.outer(s := x[group == g].T @ residual[group == g], s) for g in range(9))
    variance = (bread @ meat @ bread)[0, 0] * 9 / 8
    half = 2.306004 * variance**0.5  # t(0.975, 8)
    low, high = mean_interval(clusters)
    assert (low, high) == (pytest.approx(y.mean() - half, abs=1e-6), pytest.approx(y.mean() + half, abs=1e-6))


def test_fewer_than_five_conversations_have_no_interval():
    assert mean_interval({k: FIVE[k] for k in "abcd"}) is None
    assert mean_interval({**{k: FIVE[k] for k in "abcd"}, "e": []}) is None  # a conversation without a value is none
    assert "4 conversations" in too_few(4) and "1 conversation," in too_few(1)


def test_sign_flip_smallest_p_with_ten():
    assert sign_flip_p([1.0, 2.0, 0.5, 0.1, 3.0, 1.1, 0.7, 0.2, 0.4, 0.9]) == 2 / 1024


def test_sign_flip_against_plain_enumeration():
    rng = random.Random(3)
    for k in (1, 2, 5, 8):
        d = [rng.choice([-2, -1, 0, 1, 2, 3]) for _ in range(k)]
        tail = [
            abs(sum(s * v for s, v in zip(signs, d, strict=True))) >= abs(sum(d))
            for signs in itertools.product((1, -1), repeat=k)
        ]
        assert sign_flip_p(d) == sum(tail) / 2**k


def test_sign_flip_counts_ties_in_spite_of_rounding():
    # 0.1 + 0.2 and 0.3 are equal on paper: with signs (+,+,0) and (0,0,+) swapped both lie in the tail.
    # |±0.1 ±0.2 ±0.3|: values 0.6, 0, 0.4, 0.2, each twice. Observed 0.1 + 0.2 - 0.3 = 0 -> every pattern counts.
    assert sign_flip_p([0.1, 0.2, -0.3]) == 1.0


def test_sign_flip_gives_up_where_enumeration_is_out_of_reach():
    assert sign_flip_p([1.0] * 21) is None
    assert sign_flip_p([1.0] * 20) == 2 / 2**20


def test_compare_pairs_questions_and_uses_the_same_estimator():
    b = {(c, i): 0.25 for c in FIVE for i in range(len(FIVE[c]))}
    a = {(c, i): value + 0.25 for c in FIVE for i, value in enumerate(FIVE[c])}
    found = compare(a | {("z", 0): 1.0}, b | {("y", 3): 1.0})
    assert found.difference == pytest.approx(0.6)
    assert found.interval == pytest.approx(mean_interval(FIVE))
    assert (found.questions, found.conversations, found.reason) == (10, 5, None)
    # totals 1, 1, 1, 2, 1 (sum 6): the tail is all plus and all minus
    assert found.p == 2 / 32


def test_compare_with_few_conversations_says_why():
    found = compare({("a", 0): 1.0}, {("a", 0): 0.5})
    assert (found.difference, found.interval, found.p) == (0.5, None, None)
    assert found.reason == too_few(1)
    assert compare({("a", 0): 1.0}, {}).difference is None


def test_holm_by_hand():
    # sorted: 0.01 x 4 = 0.04; 0.02 x 3 = 0.06; 0.03 x 2 = 0.06; 0.9 x 1 = 0.9
    p = {"w": 0.03, "x": 0.01, "y": 0.9, "z": 0.02, "unknown": None}
    assert holm(p) == {
        "w": pytest.approx(0.06),
        "x": pytest.approx(0.04),
        "y": 0.9,
        "z": pytest.approx(0.06),
        "unknown": None,
    }
    # monotone and never above 1: 0.4 x 2 = 0.8, then 0.5 x 1 = 0.5 is raised to 0.8; 0.9 x 2 is cut at 1
    assert holm({"a": 0.5, "b": 0.4}) == {"a": 0.8, "b": 0.8}
    assert holm({"a": 0.95, "b": 0.9}) == {"a": 1.0, "b": 1.0}


@pytest.mark.slow
def test_coverage_with_ten_unequal_conversations():
    """Binary scores whose rate varies by conversation, sizes as in LoCoMo-10: 95% intervals hold 93 to 97 times
    in 100, question-level ones far fewer."""
    rng = np.random.default_rng(11)
    sizes = [199, 105, 193, 260, 242, 158, 190, 239, 196, 204]
    rounds, covered, naive = 3000, 0, 0
    for _ in range(rounds):
        rates = np.clip(rng.normal(0.4, 0.08, len(sizes)), 0, 1)
        clusters = {
            str(i): (rng.random(n) < r).astype(float) for i, (n, r) in enumerate(zip(sizes, rates, strict=True))
        }
        low, high = mean_interval(clusters)
        covered += low <= 0.4 <= high
        pooled = np.concatenate(list(clusters.values()))
        naive += abs(pooled.mean() - 0.4) <= 1.96 * pooled.std() / len(pooled) ** 0.5
    assert 0.93 <= covered / rounds <= 0.97
    assert naive / rounds < 0.8
