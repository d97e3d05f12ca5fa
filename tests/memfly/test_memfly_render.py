"""Notes as text: three renderings, where each turn ends, and what is dropped when the window is small."""

from datetime import datetime

import numpy as np
import pytest
from memfly_fakes import START, turn

from memfly.note import Note
from memfly.render import fit, show

LATER = datetime(2023, 6, 9, 20, 0)


def note(id=0, context="Ann bought a kiln.", turns=None):
    return Note(id, turns or [turn("D1:1", "I bought a kiln!", caption="a kiln")], context, np.zeros(2))


def merged(id=0):
    return note(
        id,
        "Ann bought a kiln and fired a bowl.",
        [turn("D1:1", "I bought a kiln!"), turn("D2:3", "I fired a bowl.", when=LATER)],
    )


def count(text):
    return len(text.split())


def test_context_and_raw():
    shown = show(note(), "context+raw")
    assert shown.text == "[8 May 2023, 13:56] Ann bought a kiln.\nAnn: I bought a kiln! [image: a kiln]"
    assert shown.dia_ids == ("D1:1",)
    assert shown.ends == (8 + 8,)


def test_context_alone_and_raw_alone():
    assert show(note(), "context").text == "[8 May 2023, 13:56] Ann bought a kiln."
    assert show(note(), "context").ends == (8,)
    assert show(note(), "raw").text == "[8 May 2023, 13:56] Ann: I bought a kiln! [image: a kiln]"
    assert show(note(), "raw").ends == (12,)


def test_a_merged_note_shows_each_raw_turn_with_its_own_date():
    shown = show(merged(), "context+raw")
    assert shown.text.splitlines() == [
        "[8 May 2023, 13:56] Ann bought a kiln and fired a bowl.",
        "Ann: I bought a kiln!",
        "(9 June 2023, 20:00) Ann: I fired a bowl.",
    ]
    assert shown.dia_ids == ("D1:1", "D2:3")
    assert shown.ends == (17, 26)
    assert show(merged(), "context").ends == (12, 12)


def test_a_context_that_repeats_its_turn_is_shown_once():
    same = note(context="Ann: I bought a kiln! [image: a kiln]")
    assert show(same, "context+raw") == show(same, "raw")


def test_context_is_chronological_and_items_keep_their_rank():
    ranked = [note(2, "C."), note(0, "A."), note(1, "B.")]
    fitted = fit(ranked, "context", 1000, count)
    assert [s.note.id for s in fitted.shown] == [2, 0, 1]
    assert [line.split()[-1] for line in fitted.context.splitlines()] == ["A.", "B.", "C."]


def test_overflow_drops_the_lowest_ranked_first():
    ranked = [note(2, "C " * 200), note(0, "A " * 200), note(1, "B " * 200)]  # 204 words each
    fitted = fit(ranked, "context", 408, count)
    assert [s.note.id for s in fitted.shown] == [2, 0]
    assert (fitted.dropped_notes, fitted.dropped_turns) == (1, 0)
    assert fit(ranked, "context", 407, count).dropped_notes == 2
    assert fit(ranked, "context", 612, count).dropped_notes == 0


def test_then_a_merged_notes_oldest_raw_turns():
    turns = [turn(f"D1:{n}", "w " * 100) for n in range(1, 6)]  # 101 words each with the speaker
    one = note(0, "c " * 20, turns)  # 4 + 20 words
    fitted = fit([one, note(1)], "context+raw", 24 + 2 * 101, count)
    assert fitted.shown[0].dia_ids == ("D1:4", "D1:5")
    assert fitted.shown[0].ends == (125, 226)
    assert (fitted.dropped_notes, fitted.dropped_turns) == (1, 3)
    nothing_fits = fit([one], "context+raw", 3, count)
    assert nothing_fits.shown[0].dia_ids == ()
    assert nothing_fits.dropped_turns == 5


def test_nothing_is_nothing():
    fitted = fit([], "context+raw", 10, count)
    assert (fitted.shown, fitted.context) == ((), "")


@pytest.mark.parametrize("hour", [9, 0])
def test_times_have_two_digits(hour):
    early = note(0, turns=[turn("D1:1", "Hi", when=START.replace(hour=hour, minute=5))])
    assert show(early, "raw").text == f"[8 May 2023, 0{hour}:05] Ann: Hi"
