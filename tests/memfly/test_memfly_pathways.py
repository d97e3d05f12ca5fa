"""Fusion, candidates and each pathway alone on a hand-made memory, ranks worked out by hand."""

from math import log, sqrt

import numpy as np
import pytest
from memfly_fakes import memory, turn, unit

from memfly.candidates import candidates, keyword_overlap, shared_keywords
from memfly.config import MemFlyConfig
from memfly.fusion import rrf
from memfly.note import Draft
from memfly.pathways import Probe, macro_semantic, matched_keywords, micro_symbolic, pool, retrieve, topological

KEYWORDS = {"pottery": [1, 0, 0], "clay": [0.8, 0.6, 0], "race": [0, 1, 0], "ann": [0, 0, 1]}


@pytest.fixture
def house():
    """Note 0: pottery, ann. 1: clay. 2: race, ann. 3: pottery, race. Topics: {pottery, clay}, {race}, {ann}."""
    return memory(
        [
            ([1, 0, 0, 0], ["pottery", "ann"]),
            ([0.8, 0.6, 0, 0], ["clay"]),
            ([0, 1, 0, 0], ["race", "ann"]),
            ([0.6, 0.8, 0, 0], ["pottery", "race"]),
        ],
        keywords=KEYWORDS,
        topics=[(["pottery", "clay"], [1, 0]), (["race"], [0, 1]), (["ann"], [0, 0, 1])],
        edges=[(0, 2, 0.9), (1, 2, 0.6), (0, 3, 0.8)],
    )


def test_rrf_by_hand():
    fused = rrf([[3, 1], [1, 2]], 10)
    assert [note for note, _ in fused] == [1, 3, 2]
    assert fused[0][1] == pytest.approx(1 / 12 + 1 / 11)
    assert fused[1][1] == pytest.approx(1 / 11)
    assert fused[2][1] == pytest.approx(1 / 12)


def test_rrf_breaks_ties_by_the_older_note_whatever_the_order_of_lists():
    assert [n for n, _ in rrf([[7, 2, 5], [2, 7, 5]], 60)] == [2, 7, 5]
    assert rrf([[1, 2, 3], [3, 1, 2], [2, 3, 1]], 10)[0][0] == 1
    assert rrf([], 10) == []
    assert rrf([[4], [5]], 10, [0.5, 1.0]) == [(5, pytest.approx(1 / 11)), (4, pytest.approx(0.5 / 11))]


def test_a_smaller_constant_rewards_rank_over_membership():
    """One first place against two tenth places: 1/11 > 2/20... at 10 they tie for 2/20 = 0.1 > 0.0909; at 1 not."""
    first, both = [[0, *range(10, 18), 5], [*range(20, 29), 5]], [0, 5]
    order = [n for n, _ in rrf(first, 60) if n in both]
    assert order == [5, 0]
    assert [n for n, _ in rrf(first, 1) if n in both] == [0, 5]


def test_macro_semantic(house):
    """h_topic = (0.8, 0.6): the nearest two topics are pottery+clay (0.8) and race (0.6); ann is left out.
    cos: note 0 0.8, note 1 1.0, note 2 0.6, note 3 0.96."""
    ranked, topics = macro_semantic(house, unit([0.8, 0.6], 4), 2)
    assert topics == [0, 1]
    assert [note for note, _ in ranked] == [1, 3, 0, 2]
    assert [score for _, score in ranked] == pytest.approx([1.0, 0.96, 0.8, 0.6], abs=1e-6)
    ranked, topics = macro_semantic(house, unit([0, 0, 1, 0.1], 4), 1)
    assert topics == [2]
    assert sorted(note for note, _ in ranked) == [0, 2]


def test_matched_keywords_take_the_best_of_two_entities(house):
    entities = np.stack([unit([0.6, 0.8, 0], 4), unit([1, 0, 0], 4)])
    forms = {house.keywords[k].form: score for k, score in matched_keywords(house, entities, 2).items()}
    # first entity: clay 0.48 + 0.48 = 0.96, race 0.8; second: pottery 1.0, clay 0.8
    assert forms == pytest.approx({"pottery": 1.0, "clay": 0.96, "race": 0.8}, abs=1e-6)


def test_micro_symbolic(house):
    """N = 4; df: pottery 2, clay 1, race 2. Scores: note 0: ln 3; 1: 0.96 ln 5 = 1.545; 2: 0.8 ln 3 = 0.879;
    3: 1.8 ln 3 = 1.978."""
    ids = {form: house.keyword(form).id for form in KEYWORDS}
    matched = {ids["pottery"]: 1.0, ids["clay"]: 0.96, ids["race"]: 0.8}
    ranked = micro_symbolic(house, matched, None, 0.0)
    assert [note for note, _ in ranked] == [3, 1, 0, 2]
    assert [s for _, s in ranked] == pytest.approx([1.8 * log(3), 0.96 * log(5), log(3), 0.8 * log(3)], abs=1e-9)


def test_bm25_joins_the_micro_symbolic_list_each_part_by_its_maximum(house):
    matched = {house.keyword("pottery").id: 1.0}  # notes 0 and 3, ln 3 each: 1.0 after scaling
    ranked = micro_symbolic(house, matched, np.array([2.0, 0, 8.0, 0]), 0.5)
    assert dict(ranked) == pytest.approx({0: 1.0 + 0.5 * 0.25, 3: 1.0, 2: 0.5})
    assert dict(micro_symbolic(house, matched, np.array([0, 0, 8.0, 0]), 0.0)) == pytest.approx({0: log(3), 3: log(3)})


def test_topological(house):
    """Anchors 0 (0.2) and 1 (0.1). Note 2 by 0: 0.2 x 0.9 x 0.5 = 0.09, by 1: 0.1 x 0.6 x 0.5; the best counts.
    Note 3 by 0: 0.2 x 0.8 x 0.9 = 0.144."""
    cosines = np.array([0.1, 0.2, 0.5, 0.9]).__getitem__
    ranked = topological(house, [(0, 0.2), (1, 0.1)], cosines, anchors_too=False)
    assert list(ranked) == [(3, pytest.approx(0.144)), (2, pytest.approx(0.09))]
    assert list(topological(house, [(0, 0.2), (3, 0.1)], cosines, anchors_too=False)) == [(2, pytest.approx(0.09))]
    with_anchors = topological(house, [(0, 0.2), (3, 0.1)], cosines, anchors_too=True)
    assert list(with_anchors) == [(3, pytest.approx(0.144)), (2, pytest.approx(0.09)), (0, pytest.approx(0.008))]


def test_quota_gives_neighbours_places_only_for_what_the_list_would_not_bring():
    fused = [(n, 1 - n / 100) for n in range(8)]

    def nothing(count, present):
        assert count == 0
        return []

    chosen, filled = pool(fused, [(9, 0.5), (2, 0.4), (6, 0.3), (10, 0.2)], nothing, size=6, quota=2)
    assert sorted(n for n, _ in chosen) == [0, 1, 2, 3, 6, 9]  # 2 is in the head already; 10 exceeds the quota
    assert filled == []
    chosen, _ = pool(fused, [(9, 0.5)], nothing, size=6, quota=2)
    assert sorted(n for n, _ in chosen) == [0, 1, 2, 3, 4, 9]  # a place no neighbour takes goes back to the list
    chosen, _ = pool(fused, [(9, 0.5)], nothing, size=6, quota=0)
    assert [n for n, _ in chosen] == [0, 1, 2, 3, 4, 5]


def test_a_short_pool_is_filled_by_cosine():
    asked = []

    def nearest(count, present):
        asked.append((count, set(present)))
        return [(1, 0.9), (2, 0.9)]

    chosen, filled = pool([(3, 0.5)], [], nearest, size=3, quota=1)
    assert asked == [(2, {3})]
    assert [n for n, _ in chosen] == [3, 1, 2]
    assert filled == [1, 2]


def probe():
    return Probe(unit([1, 0.1], 4), unit([1, 0.2], 4), np.stack([unit([1, 0, 0], 4)]))


def test_retrieve_names_paths_and_says_what_it_filled(house):
    config = MemFlyConfig(k_topic=1, k_key=1, k_final=4, anchors=1, neighbour_quota=1)
    hits, trace = retrieve(house, probe(), config)
    # topic pottery+clay: notes 0, 1, 3; keyword pottery: notes 0, 3; anchor 0 has the neighbours 2 and 3
    assert {hit.note: hit.paths for hit in hits} == {
        0: ("topic", "keyword"),
        1: ("topic",),
        3: ("topic", "keyword", "neighbor"),
        2: ("neighbor",),
    }
    assert [hit.rank for hit in hits] == [1, 2, 3, 4]
    assert hits[0].note == 0
    assert trace["filled"] == 0
    hits, trace = retrieve(house, probe(), MemFlyConfig(topic=False, keyword=False, k_final=2))
    assert [(hit.note, hit.paths) for hit in hits] == [(0, ("fill",)), (1, ("fill",))]
    assert trace["filled"] == 2


@pytest.mark.parametrize("path", ["topic", "keyword", "neighbor"])
def test_an_ablated_pathway_finds_nothing(house, path):
    config = MemFlyConfig(k_topic=1, k_key=1, k_final=4, anchors=1, neighbour_quota=1)
    with_it, _ = retrieve(house, probe(), config)
    without, trace = retrieve(house, probe(), MemFlyConfig(**{**vars(config), path: False}))
    assert any(path in hit.paths for hit in with_it)
    assert not any(path in hit.paths for hit in without)
    assert path not in trace["listed"]


def test_neighbour_mode_list_fuses_three_lists(house):
    config = MemFlyConfig(k_topic=1, k_key=1, k_final=4, anchors=1, neighbour_mode="list", rrf_k=10)
    hits, _ = retrieve(house, probe(), config)
    # topic: 0, 1, 3 (cos 0.98, 0.90, 0.75); keyword: 0, 3; neighbours of 0: 2 and 3; cos with the query 0.0995, 0.677
    scores = {hit.note: hit.score for hit in hits}
    assert scores == pytest.approx({0: 1 / 11 + 1 / 11, 3: 1 / 13 + 1 / 12 + 1 / 11, 1: 1 / 12, 2: 1 / 12}, abs=1e-9)
    assert [hit.note for hit in hits] == [3, 0, 1, 2]


def draft(vector, keywords):
    vectors = np.stack([unit(KEYWORDS.get(k, [1, 1, 1]), 4) for k in keywords])
    return Draft(turn("D1:9", "new"), "new", tuple(keywords), unit(vector, 4), vectors)


def test_candidates_fuse_both_lists_and_keep_the_previous_note(house):
    new = draft([1, 0, 0, 0], ["race", "ann"])
    # dense: 0, 1, 3, 2. sparse: race + ann: note 2 (2 ln 3), notes 0 and 3 (ln 3 each)
    assert [n for n, _ in shared_keywords(house, new, 10, 1000)] == [2, 0, 3]
    # rrf 10: 0: 1/11 + 1/12, 2: 1/14 + 1/11, 3: 1/13 + 1/13, 1: 1/12
    assert candidates(house, new, None, MemFlyConfig()) == [0, 2, 3, 1]
    assert candidates(house, new, 1, MemFlyConfig(k_cand=2)) == [0, 1]
    assert candidates(house, new, 2, MemFlyConfig(k_cand=2)) == [0, 2]
    assert candidates(house, new, 1, MemFlyConfig(k_cand=2, candidate_previous=False)) == [0, 2]
    assert candidates(house, new, 3, MemFlyConfig(k_dense=1, k_sparse=1)) == [0, 2, 3]
    assert candidates(memory([], keywords={}), new, None, MemFlyConfig()) == []


def test_keyword_overlap_is_weighted_by_idf(house):
    new = draft([1, 0, 0, 0], ["race", "marathon"])
    # idf: race ln 3, marathon unseen ln 5; note 2 holds race and ann, ln 3 each
    expected = log(3) / sqrt((log(3) + log(5)) * 2 * log(3))
    assert keyword_overlap(house, new, house.notes[2]) == pytest.approx(expected)
    assert keyword_overlap(house, new, house.notes[1]) == 0.0
    assert house.idf(house.keyword("clay")) == pytest.approx(log(5))


def test_linking_twice_keeps_the_higher_weight_and_counts_once(house):
    assert house.edge_count == 3
    assert not house.link(2, 0, 0.4)
    assert house.edges[0][2] == house.edges[2][0] == 0.9
    assert not house.link(0, 2, 1.5)
    assert house.edges[0][2] == house.edges[2][0] == 1.5
    assert house.link(1, 3, 0.1)
    assert house.edge_count == 4
    with pytest.raises(ValueError, match="itself"):
        house.link(1, 1, 0.5)
