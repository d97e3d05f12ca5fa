"""What a run will take, before it starts: calls, tokens, minutes, dollars."""

from __future__ import annotations

from dataclasses import dataclass

from harness.memory import CallPlan
from harness.spec import RunSpec

ANSWER_TOKENS = (4, 30)
"""Completion tokens of an answer (our choice: golds have 1 to 30 words, most under 8)."""
FRAME_TOKENS = 220
"""Prompt tokens of an answer beside the context (our choice: the longest frame of the shipped protocols)."""


@dataclass(frozen=True)
class Plan:
    """Lowest and highest figures of a run in which nothing is cached."""

    calls: tuple[int, int]
    tokens: tuple[int, int]
    minutes: tuple[float, float]
    usd: tuple[float, float] | None

    def line(self) -> str:
        """One line for a person."""
        parts = [
            f"{_range(self.calls)} calls",
            f"{_range(self.tokens)} tokens",
            f"about {_minutes(self.minutes)} minutes",
        ]
        if self.usd is not None:
            parts.append(f"${self.usd[0]:.2f} to ${self.usd[1]:.2f}")
        return "plan (nothing cached): " + ", ".join(parts)


def make_plan(spec: RunSpec, system_plan: CallPlan, questions: int) -> Plan:
    """Add the reader's calls to the system's own, and turn tokens into minutes and dollars.

    Minutes: prompt tokens / speed_prompt_tps + completion tokens / speed_completion_tps, speeds being the
    backbone's over all slots. The share of completion tokens is taken as a tenth (our choice).
    """
    asked = questions * spec.trials if system_plan.reader else 0
    room = min(spec.backbone.window, spec.protocol.max_context_tokens or spec.backbone.window)
    calls, tokens, minutes, usd = [], [], [], []
    for i in (0, 1):
        reader = asked * (FRAME_TOKENS + min(system_plan.context_tokens[i], room) + ANSWER_TOKENS[i])
        n_calls = system_plan.memory_calls[i] + questions * system_plan.query_calls[i] + asked
        n_tokens = system_plan.memory_tokens[i] + questions * system_plan.query_tokens[i] + reader
        completion = n_tokens // 10
        seconds = (n_tokens - completion) / spec.backbone.speed_prompt_tps
        seconds += completion / spec.backbone.speed_completion_tps
        price = spec.backbone.price
        calls.append(n_calls)
        tokens.append(n_tokens)
        minutes.append(seconds / 60)
        usd.append(((n_tokens - completion) * price.prompt + completion * price.completion) / 1e6)
    priced = spec.backbone.price.date is not None
    return Plan(tuple(calls), tuple(tokens), tuple(minutes), tuple(usd) if priced else None)


def _range(pair: tuple[int, int]) -> str:
    low, high = pair
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _minutes(pair: tuple[float, float]) -> str:
    low, high = (f"{value:.1f}" if value < 10 else f"{value:,.0f}" for value in pair)
    return low if low == high else f"{low} to {high}"
