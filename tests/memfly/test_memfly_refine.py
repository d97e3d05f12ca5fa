"""Refinement stops for each of its three reasons; the reader's notes come by fusion over the rounds."""

import asyncio

import pytest

from memfly.pathways import Hit
from memfly.refine import refine, select


def hits(*notes):
    return [Hit(note, rank, 1.0 / rank, ("topic",)) for rank, note in enumerate(notes, start=1)]


def run(pools, verdicts, i_max=3, k_total=20, round_weight=1.0):
    """Drive refinement with pools by query and verdicts in order; returns the result and what was asked."""
    asked, judged = [], []

    async def retrieve(query):
        asked.append(query)
        return hits(*pools[query])

    async def judge(notes):
        judged.append(list(notes))
        return verdicts[len(judged) - 1]

    done = asyncio.run(refine("q", retrieve, judge, i_max=i_max, k_total=k_total, rrf_k=10, round_weight=round_weight))
    return done, asked, judged


def test_sufficient_stops_without_another_search():
    done, asked, judged = run({"q": [1, 2]}, [None])
    assert (done.stop, asked, judged) == ("sufficient", ["q"], [[1, 2]])
    assert [(f.hit.note, f.round) for f in done.evidence] == [(1, 0), (2, 0)]


def test_no_new_note_stops():
    done, asked, judged = run({"q": [1, 2], "s": [2, 1]}, ["s", "never asked"])
    assert (done.stop, asked, len(judged)) == ("no_new_note", ["q", "s"], 1)


def test_an_empty_sub_query_brings_no_new_note():
    done, asked, _ = run({"q": [1, 2]}, ["  "])
    assert (done.stop, asked) == ("no_new_note", ["q"])


def test_i_max_stops():
    pools = {"q": [1], "a": [2], "b": [3], "c": [4], "d": [5]}
    done, asked, judged = run(pools, ["a", "b", "c", "d"])
    assert (done.stop, asked) == ("i_max", ["q", "a", "b", "c"])
    assert len(judged) == 3
    assert [(f.hit.note, f.round) for f in done.evidence] == [(1, 0), (2, 1), (3, 2), (4, 3)]


def test_sufficient_in_a_later_round():
    done, asked, judged = run({"q": [1], "a": [2]}, ["a", None])
    assert (done.stop, asked, judged) == ("sufficient", ["q", "a"], [[1], [1, 2]])


def test_without_refinement_nobody_judges():
    done, asked, judged = run({"q": [1]}, [], i_max=0)
    assert (done.stop, asked, judged) == (None, ["q"], [])


def test_rounds_fuse_by_reciprocal_rank_and_are_cut():
    """rrf 10: note 3: 1/13 + 1/11 = 0.168; 1: 1/11 = 0.0909; 2: 1/12; 4: 1/12 (2 is older)."""
    rounds = [hits(1, 2, 3), hits(3, 4)]
    assert [f.hit.note for f in select(rounds, None, 10, 1.0)] == [3, 1, 2, 4]
    assert [f.hit.note for f in select(rounds, 2, 10, 1.0)] == [3, 1]
    # at half weight: 1: 0.0909; 3: 1/13 + 1/22 = 0.122; 2: 0.0833; 4: 1/24
    assert [f.hit.note for f in select(rounds, None, 10, 0.5)] == [3, 1, 2, 4]
    assert [f.hit.note for f in select([hits(1, 2, 3), hits(5, 4), hits(6)], None, 10, 0.5)] == [1, 2, 3, 5, 4, 6]
    third = select(rounds, None, 10, 1.0)[0]
    assert (third.round, third.hit.rank) == (0, 3)  # of the round that first brought it


@pytest.mark.parametrize(("k_total", "notes"), [(2, 2), (None, 6)])
def test_k_total_bounds_what_the_reader_gets(k_total, notes):
    done, _, _ = run({"q": [1, 2, 3], "a": [4, 5, 6]}, ["a", None], k_total=k_total)
    assert len(done.evidence) == notes
