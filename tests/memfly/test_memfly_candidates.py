"""The sparse list of candidates against the sum over all postings, and its bound in a large memory."""

from math import log

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from memfly_fakes import turn, unit

from memfly.candidates import shared_keywords
from memfly.expected import Expected
from memfly.hierarchy import Hierarchy
from memfly.note import Draft

WORDS = ["ann", "bob", "clay", "pottery", "race", "swim", "tea"]
# "ann" is on most notes, as a speaker's name is.
held = st.sets(st.sampled_from(WORDS[1:]), max_size=4).flatmap(
    lambda some: st.sampled_from([sorted(some), sorted({"ann", *some})])
)


def draft(keywords):
    vectors = np.stack([unit([1, WORDS.index(k) + 1], 2) for k in keywords]) if keywords else np.zeros((0, 2))
    return Draft(turn("D1:1", "text"), "text", tuple(keywords), unit([1, 0], 2), vectors)


def house(notes):
    hierarchy = Hierarchy(2)
    for keywords in notes:
        hierarchy.add(draft(keywords))
    return hierarchy


def all_postings(notes, keywords):
    """Independent: every note that shares a keyword, by the sum of ln(1 + N / df), best first, older first."""
    idf = {k: log(1 + len(notes) / max(1, sum(k in note for note in notes))) for k in WORDS}
    scores = {n: sum(idf[k] for k in keywords if k in note) for n, note in enumerate(notes)}
    shared = [n for n, note in enumerate(notes) if set(note) & set(keywords)]
    return sorted(shared, key=lambda n: (-round(scores[n], 9), n))


@given(st.lists(held, max_size=40), held, st.integers(1, 12))
def test_the_list_is_that_of_all_postings(notes, keywords, count):
    found = shared_keywords(house(notes), draft(keywords), count, 10_000)
    assert [note for note, _ in found] == all_postings(notes, keywords)[:count]


@given(st.lists(held, max_size=20), st.lists(held, min_size=1, max_size=8), held)
def test_an_expected_memory_lists_as_the_memory_will(notes, coming, keywords):
    expected = Expected(house(notes))
    for one in coming:
        expected.add(draft(one))
    assert shared_keywords(expected, draft(keywords), 10, 10_000) == shared_keywords(
        house([*notes, *coming]), draft(keywords), 10, 10_000
    )


def test_a_common_keyword_is_read_only_as_far_as_it_can_matter():
    """Ten notes hold "clay" and "ann", 990 "ann" alone: none of these can be among the best ten."""
    memory = house([["ann"]] * 990 + [["ann", "clay"]] * 10)
    read = []

    class Counted(dict):
        def __iter__(self):
            for note in super().__iter__():
                read.append(note)
                yield note

    memory.keyword("ann").notes = Counted(memory.keyword("ann").notes)
    found = shared_keywords(memory, draft(["ann", "clay"]), 10, 10_000)
    assert [note for note, _ in found] == list(range(990, 1000))
    assert found[0][1] == round(log(1 + 1000 / 1000), 12) + round(log(1 + 1000 / 10), 12)
    assert read == []


def test_a_tie_with_what_was_not_read_goes_to_the_older_note():
    """Keywords of two notes each: "tea" on 2 and 3, "clay" on 0 and 1, which are as good."""
    memory = house([["clay"], ["clay"], ["tea"], ["tea"]])
    assert [note for note, _ in shared_keywords(memory, draft(["tea", "clay"]), 2, 10_000)] == [0, 1]


def test_beyond_the_bound_the_first_postings_are_read():
    """At most 5 postings: the rare keyword's two, then the first three of the common one; all keywords count."""
    memory = house([["ann"]] * 10 + [["tea"], ["ann", "tea"], ["ann"]])
    found = shared_keywords(memory, draft(["ann", "tea"]), 10, 5)
    assert [note for note, _ in found] == [11, 10, 0, 1, 2]
    assert found[-1][1] == round(log(1 + 13 / 12), 12)
