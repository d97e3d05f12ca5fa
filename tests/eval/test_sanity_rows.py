"""The answerers that read nothing, and the bounds they set on LoCoMo-10 (asserted where the file is at hand)."""

import os
from pathlib import Path

import pytest

from eval.sanity import SANITY, always_abstain, perfect_copy, trap_only
from eval.score import score_answer
from harness.locomo.loader import load_dataset
from harness.locomo.schema import Question
from harness.spec import DatasetSpec

ROOT = Path(__file__).resolve().parents[2]
LOCOMO = Path(os.environ.get("LOCOMO_PATH") or ROOT / "../shared/data/locomo10.json")


def test_each_answerer():
    plain = Question("s", 0, 4, "?", "the lake", None, (), ())
    trap = Question("s", 1, 5, "?", None, "a necklace", (), ())
    assert [always_abstain(plain), always_abstain(trap)] == ["Not mentioned in the conversation"] * 2
    assert [trap_only(plain), trap_only(trap)] == ["", "a necklace"]
    assert [perfect_copy(plain), perfect_copy(trap)] == ["the lake", "a necklace"]


@pytest.fixture(scope="module")
def questions():
    if not LOCOMO.exists():
        pytest.skip(f"LoCoMo-10 is not here (LOCOMO_PATH or {LOCOMO})")
    dataset = load_dataset(DatasetSpec(name="locomo10", path=str(LOCOMO)))
    return [question for sample in dataset.samples for question in sample.questions]


def micro(questions, answerer, metric):
    values = [score_answer(q, SANITY[answerer](q))[metric] for q in questions]
    return sum(values) / len(values)


@pytest.mark.parametrize(
    ("answerer", "metric", "percent"),
    [
        ("always_abstain", "f1_locomo", 23.30),
        ("always_abstain", "f1_amem", 3.04),
        ("trap_only", "f1_locomo", 0.10),
        ("trap_only", "f1_amem", 22.46),
        ("perfect_copy", "f1_amem", 100.0),
    ],
)
def test_five_category_bounds(questions, answerer, metric, percent):
    assert len(questions) == 1986
    assert round(100 * micro(questions, answerer, metric), 2) == percent


@pytest.mark.parametrize(("category", "value"), [(1, 1.0), (2, 1.0), (3, 0.927), (4, 1.0), (5, 0.0045)])
def test_a_perfect_copy_under_locomos_scorer(questions, category, value):
    asked = [q for q in questions if q.category == category]
    places = 4 if category == 5 else 3
    assert round(micro(asked, "perfect_copy", "f1_locomo"), places) == value
