"""The gate's decisions (Eq. 6), at and around both thresholds."""

import pytest

from memfly.config import MemFlyConfig
from memfly.gate import Candidate, decide
from memfly.scoring import Scores, embedding_scores

CONFIG = MemFlyConfig()


def cand(*rows):
    return [Candidate(note, Scores(s_red, s_comp)) for note, s_red, s_comp in rows]


@pytest.mark.parametrize(("s_red", "merged"), [(0.69, None), (0.7, None), (0.7000001, 4), (1.0, 4), (0.0, None)])
def test_merge_is_strictly_above_tau_merge(s_red, merged):
    assert decide(cand((4, s_red, 0.0)), CONFIG).merge_into == merged


@pytest.mark.parametrize(
    ("s_comp", "linked"), [(0.49, ()), (0.5, ()), (0.5000001, ((4, 0.5000001),)), (1.0, ((4, 1.0),))]
)
def test_link_is_strictly_above_tau_link(s_comp, linked):
    decision = decide(cand((4, 0.0, s_comp)), CONFIG)
    assert decision.links == linked
    assert decision.is_append == (not linked)


def test_merge_goes_to_the_highest_redundancy_and_links_to_every_other():
    decision = decide(cand((1, 0.8, 0.9), (2, 0.95, 0.9), (3, 0.1, 0.6), (4, 0.1, 0.5)), CONFIG)
    assert decision.merge_into == 2
    assert decision.links == ((1, 0.9), (3, 0.6))  # 1 is redundant too, but only the best takes the turn


def test_ties_go_to_higher_complementarity_then_to_the_older_note():
    assert decide(cand((1, 0.9, 0.1), (5, 0.9, 0.3)), CONFIG).merge_into == 5
    assert decide(cand((5, 0.9, 0.3), (2, 0.9, 0.3)), CONFIG).merge_into == 2


def test_no_candidates_is_an_append():
    assert decide([], CONFIG).is_append


def test_no_merge_leaves_a_redundant_note_to_its_complementarity():
    config = MemFlyConfig(merge=False)
    assert decide(cand((1, 1.0, 0.2)), config).is_append
    assert decide(cand((1, 1.0, 0.6)), config).links == ((1, 0.6),)


def test_no_link_still_merges():
    decision = decide(cand((1, 0.9, 0.9), (2, 0.0, 0.9)), MemFlyConfig(link=False))
    assert decision.merge_into == 1
    assert decision.links == ()


def test_thresholds_are_the_configs():
    config = MemFlyConfig(tau_merge=0.3, tau_link=0.2)
    assert decide(cand((1, 0.31, 0.0), (2, 0.0, 0.21)), config) == decide(cand((1, 0.31, 0.0), (2, 0.0, 0.21)), config)
    assert decide(cand((1, 0.31, 0.0), (2, 0.0, 0.21)), config).merge_into == 1
    assert decide(cand((1, 0.3, 0.0), (2, 0.0, 0.2)), config).is_append


@pytest.mark.parametrize(
    ("cosine", "overlap", "s_red", "s_comp"),
    [
        (0.4, 0.25, 0.0, 0.5),  # at the lower cosine nothing is redundant
        (0.7, 0.25, 0.5, 0.25),  # half way: half redundant, complementarity halved
        (1.0, 0.25, 1.0, 0.0),
        (-0.2, 0.9, 0.0, 1.0),  # both clipped
        (1.0000001, 0.0, 1.0, 0.0),
    ],
)
def test_embedding_scores_by_hand(cosine, overlap, s_red, s_comp):
    config = MemFlyConfig(red_cosine_low=0.4, red_cosine_high=1.0, comp_gain=2.0)
    scores = embedding_scores(cosine, overlap, config)
    assert scores.s_red == pytest.approx(s_red)
    assert scores.s_comp == pytest.approx(s_comp)
