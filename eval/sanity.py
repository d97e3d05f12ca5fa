"""Answerers that read nothing. Their scores on a data set bound what a figure can mean."""

from __future__ import annotations

from collections.abc import Callable

from harness.locomo.schema import Question
from harness.protocol import ABSTAIN


def always_abstain(question: Question) -> str:
    """Refuses every question: what f1_locomo pays for silence."""
    return ABSTAIN


def trap_only(question: Question) -> str:
    """The trap in category 5, nothing elsewhere: what f1_amem pays for being fooled."""
    return question.reference if question.category == 5 else ""


def perfect_copy(question: Question) -> str:
    """The reference itself: how far each scorer lies from 1 at its best."""
    return question.reference


SANITY: dict[str, Callable[[Question], str]] = {
    "always_abstain": always_abstain,
    "trap_only": trap_only,
    "perfect_copy": perfect_copy,
}
