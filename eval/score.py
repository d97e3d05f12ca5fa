"""One answer, scored by every scorer: the protocol that asked does not choose who scores."""

from __future__ import annotations

from eval.metrics import abstained, bleu1, f1_amem, f1_locomo
from harness.locomo.schema import Question

SCORER_VERSION = "1"
"""Raise it when a metric comes to give another value: figures of two versions stand in no table together."""

ANSWER_METRICS = ("f1_amem", "f1_locomo", "bleu1", "abstained")


def score_answer(question: Question, answer: str) -> dict[str, float]:
    """ANSWER_METRICS of a parsed answer, as fractions.

    f1_amem and bleu1 compare with `Question.reference` (category 5: the trap); f1_locomo with the gold (category 5:
    with nothing, abstaining is right).
    """
    reference = question.reference
    return {
        "f1_amem": f1_amem(answer, reference),
        "f1_locomo": f1_locomo(answer, reference, question.category),
        "bleu1": bleu1(answer, reference),
        "abstained": abstained(answer),
    }
