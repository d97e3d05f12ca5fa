"""What a run will take, before it starts: calls, tokens, hours, dollars."""

from __future__ import annotations

from dataclasses import dataclass

from harness.memory import CallPlan
from harness.spec import BackboneSpec, RunSpec

ANSWER_TOKENS = (4, 30)
"""Completion tokens of an answer (our choice: golds have 1 to 30 words, most under 8)."""
FRAME_TOKENS = 220
"""Prompt tokens of an answer beside the context (our choice: the longest frame of the shipped protocols)."""
COMPLETION_SHARE = 0.1
"""Share of completion tokens among all (our choice: prompts are long, replies short)."""


PROBE_TOKENS = 40
"""Of the one small question with which a client finds out whether the endpoint heeds schemas (harness/llm/client.py)."""


@dataclass(frozen=True)
class Amount:
    """Lowest and highest figures; `usd` is None where the backbone has no price."""

    calls: tuple[int, int]
    tokens: tuple[int, int]
    hours: tuple[float, float]
    usd: tuple[float, float] | None

    def __add__(self, other: Amount) -> Amount:
        usd = None if self.usd is None and other.usd is None else _sum(self.usd or (0.0, 0.0), other.usd or (0.0, 0.0))
        return Amount(
            _sum(self.calls, other.calls), _sum(self.tokens, other.tokens), _sum(self.hours, other.hours), usd
        )

    def load(self) -> str:
        return f"{_range(self.calls)} calls, {_range(self.tokens)} tokens"

    def text(self) -> str:
        parts = [self.load(), f"about {_time(self.hours)}"]
        if self.usd is not None:
            parts.append(f"${self.usd[0]:,.2f} to ${self.usd[1]:,.2f}")
        return ", ".join(parts)


NOTHING = Amount((0, 0), (0, 0), (0.0, 0.0), None)


@dataclass(frozen=True)
class Plan:
    """A run in which nothing is cached: building the memories, and asking (recall and answer)."""

    building: Amount
    asking: Amount

    @property
    def total(self) -> Amount:
        return self.building + self.asking

    @property
    def usd(self) -> tuple[float, float] | None:
        return self.total.usd

    def line(self) -> str:
        """One line for a person."""
        return f"plan (nothing cached): {self.total.text()}"


def make_plan(spec: RunSpec, system_plan: CallPlan, questions: int) -> Plan:
    """Add the reader's calls to the system's own, and turn tokens into hours and dollars."""
    asked = questions * spec.trials if system_plan.reader else 0
    room = min(spec.backbone.window, spec.protocol.max_context_tokens or spec.backbone.window)
    # It comes before the first call with a schema: surely where the reader's own has one, perhaps elsewhere.
    probed = system_plan.reader and spec.backbone.structured == "auto" and spec.backbone.kind != "scripted"
    probes = (int(probed and spec.protocol.name == "amem"), int(probed))
    calls, tokens = [], []
    for i in (0, 1):
        reader = asked * (FRAME_TOKENS + min(system_plan.context_tokens[i], room) + ANSWER_TOKENS[i])
        calls.append(questions * system_plan.query_calls[i] + asked + probes[i])
        tokens.append(questions * system_plan.query_tokens[i] + reader + probes[i] * PROBE_TOKENS)
    return Plan(
        building=_amount(spec.backbone, system_plan.memory_calls, system_plan.memory_tokens),
        asking=_amount(spec.backbone, tuple(calls), tuple(tokens)),
    )


def _amount(backbone: BackboneSpec, calls: tuple[int, int], tokens: tuple[int, int]) -> Amount:
    """Hours: prompt tokens / speed_prompt_tps + completion tokens / speed_completion_tps, speeds being the
    backbone's over all slots."""
    hours, usd = [], []
    for n in tokens:
        completion = n * COMPLETION_SHARE
        prompt = n - completion
        hours.append((prompt / backbone.speed_prompt_tps + completion / backbone.speed_completion_tps) / 3600)
        usd.append((prompt * backbone.price.prompt + completion * backbone.price.completion) / 1e6)
    priced = backbone.price.prompt > 0 or backbone.price.completion > 0
    return Amount(calls, tokens, tuple(hours), tuple(usd) if priced else None)


def _sum(a: tuple, b: tuple) -> tuple:
    return a[0] + b[0], a[1] + b[1]


def _range(pair: tuple[int, int]) -> str:
    low, high = pair
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _time(hours: tuple[float, float]) -> str:
    """Minutes below two hours, hours above."""
    unit, scale = ("hours", 1) if hours[1] >= 2 else ("minutes", 60)
    low, high = (f"{value * scale:.1f}" if value * scale < 10 else f"{value * scale:,.0f}" for value in hours)
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"
