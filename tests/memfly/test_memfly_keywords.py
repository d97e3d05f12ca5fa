"""Surface forms and the keyword set of a note."""

import pytest

from memfly.keywords import normalise, note_keywords


@pytest.mark.parametrize(
    ("raw", "form"),
    [
        ("  Lake   Sunrise ", "lake sunrise"),
        ("ＬＧＢＴＱ", "lgbtq"),  # NFKC
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),  # case-folding
        ('"Charlotte\'s Web".', "charlotte's web"),
        ("painting", "painting"),  # no stemming
        ("...", ""),
    ],
)
def test_normalise(raw, form):
    assert normalise(raw) == form


def test_the_speaker_comes_first_and_words_of_a_phrase_are_posted_too():
    assert note_keywords(["LGBTQ support group", "powerful", "Support"], "Caroline") == (
        "caroline",
        "lgbtq support group",
        "lgbtq",
        "support",
        "group",
        "powerful",
    )


def test_no_note_is_without_a_keyword():
    assert note_keywords([], "Ann") == ("ann",)
    assert note_keywords(["", " ! ", "the"], "Ann") == ("ann", "the")


def test_a_sentence_in_a_keywords_place_gives_its_content_words_alone():
    assert note_keywords(["she went to the big lake with all of her kids"], "Ann") == (
        "ann",
        "went",
        "big",
        "lake",
        "kids",
    )
