"""Tokens and dollars. A meter counts the tokens of every reply used, and the dollars of those this run paid for."""

from __future__ import annotations

from dataclasses import dataclass

from harness.llm.cache import Row
from harness.llm.types import Meter, Usage
from harness.spec import PriceSpec


@dataclass
class Live:
    """Running totals of a chat client, for progress display.

    `in_flight`: requests at the endpoint now. `calls`: replies used, each attempt once, `computed` of them paid for
    by this run, `cache_hits` not. Tokens are of all calls, `usd` of the computed ones.
    """

    in_flight: int = 0
    calls: int = 0
    computed: int = 0
    cache_hits: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0


def usage_of(row: Row, price: PriceSpec, *, computed: bool) -> Usage:
    """Usage of one reply. Dollars are 0 for a cached one: it was paid for by another run, or earlier in this one."""
    usd = (row.prompt_tokens * price.prompt + row.completion_tokens * price.completion) / 1e6 if computed else 0.0
    return Usage(row.prompt_tokens, row.completion_tokens, usd)


def charge(row: Row, usage: Usage, *, computed: bool, purpose: str, live: Live, meter: Meter | None) -> None:
    """Count one reply in the running totals and in the caller's meter."""
    live.calls += 1
    live.computed += computed
    live.cache_hits += not computed
    live.prompt_tokens += usage.prompt_tokens
    live.completion_tokens += usage.completion_tokens
    live.usd += usage.usd
    if meter is None:
        return
    meter.calls += 1
    meter.computed += computed
    meter.cached += not computed
    meter.usage += usage
    meter.latency_s += row.latency_s
    meter.purposes[purpose] += 1
