"""Answer metrics against vectors that the official scorers produced, and against NLTK's own BLEU."""

import json
from pathlib import Path

import pytest

from eval.metrics import abstained, bleu1, f1_amem, f1_locomo
from eval.score import score_answer
from harness.locomo.schema import Question

VECTORS = json.loads((Path(__file__).parent / "metric_vectors.json").read_text(encoding="utf-8"))["vectors"]


def test_all_vectors_are_here():
    assert [v["id"] for v in VECTORS] == [f"v{i:02d}" for i in range(1, 23)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["id"])
def test_metric_vector(vector):
    said, gold = vector["prediction"], str(vector["gold"])
    assert f1_locomo(said, gold, vector["category"]) == pytest.approx(vector["locomo_f1"], abs=5e-7)
    assert f1_amem(said, gold) == pytest.approx(vector["amem_f1"], abs=5e-7)
    assert bleu1(said, gold) == pytest.approx(vector["bleu1_no_punkt"], abs=5e-7)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["id"])
def test_score_answer_takes_the_reference_of_its_category(vector):
    gold = str(vector["gold"])
    five = vector["category"] == 5
    question = Question("s", 0, vector["category"], "?", None if five else gold, gold if five else None, (), ())
    assert score_answer(question, vector["prediction"]) == {
        "f1_amem": pytest.approx(vector["amem_f1"], abs=5e-7),
        "f1_locomo": pytest.approx(vector["locomo_f1"], abs=5e-7),
        "bleu1": pytest.approx(vector["bleu1_no_punkt"], abs=5e-7),
        "abstained": float(vector["id"] in {"v16", "v18"}),
    }


@pytest.mark.parametrize(
    ("said", "gold"),
    [
        ("the the the cat", "the cat sat on the mat"),
        ("It's $3.50, isn't it?", "It isn't $3.50."),
        ("a (very) long reply -- with dashes and 'quotes'", "a reply with dashes"),
        ("Dr. Smith can't go. He won't.", "dr. smith cannot go"),
        ("x", ""),
        ("", ""),
    ],
)
def test_bleu1_equals_nltks_sentence_bleu(said, gold):
    from nltk.tokenize.destructive import NLTKWordTokenizer
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    split = NLTKWordTokenizer().tokenize
    expected = (
        sentence_bleu(
            [split(gold.lower())],
            split(said.lower()),
            weights=(1, 0, 0, 0),
            smoothing_function=SmoothingFunction().method1,
        )
        if said
        else 0.0
    )
    assert bleu1(said, gold) == pytest.approx(expected, abs=1e-12)


def test_category_1_takes_the_best_part_for_each_gold_part():
    # gold parts: "red kite", "lake". Said parts: "kite", "the lakes".
    # red kite: best is "kite", P 1, R 1/2, F1 2/3; lake: "lakes" stems to lake, F1 1. Mean 5/6.
    assert f1_locomo("kite, the lakes", "red kite, lake", 1) == pytest.approx(5 / 6)
    # As one text (category 4): {kite, lake} of {red, kite, lake}: P 1, R 2/3, F1 4/5.
    assert f1_locomo("kite, the lakes", "red kite, lake", 4) == pytest.approx(4 / 5)


def test_category_3_cuts_the_gold_alone():
    assert f1_locomo("yes", "Yes; because she said so", 3) == 1.0
    assert f1_locomo("yes", "Yes; because she said so", 4) == pytest.approx(2 / 6)  # 1 of 5 words
    assert f1_locomo("yes; it seems", "Yes; because", 3) == pytest.approx(2 * (1 / 3) / (4 / 3))


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("Not mentioned in the conversation", 1.0),
        ("It is NOT MENTIONED.", 1.0),
        ("There is no information available", 1.0),
        ("not-mentioned", 0.0),
        ("I do not know", 0.0),
        ("", 0.0),
    ],
)
def test_abstained(said, value):
    assert abstained(said) == value
    assert f1_locomo(said, "anything", 5) == value
