"""Tokens and dollars. A meter counts the tokens of every reply used, and the dollars of those this run paid for."""

from __future__ import annotations

from dataclasses import dataclass

from harness.llm.cache import Row
from harness.llm.types import Meter, Usage
from harness.spec import PriceSpec


@dataclass
class Live:
    """Running totals of a chat client, for progress display.

    `in_flight`: requests at the endpoint now, of those `under_way`, which also wait for a place, a pause or another try.
    `received`: replies that came while they were waited for, also by way of another process that asked first;
    `failed_tries`: tries that brought none, `last_failure` in short what the last of them met. `calls`: replies used, each attempt once; `cache_hits` of them were in the cache, also where an earlier
    process of this run had put them there. Tokens are of all calls and of tries that brought no reply and were billed,
    `usd` of what this run paid for, in this process or an earlier one.
    """

    in_flight: int = 0
    under_way: int = 0
    received: int = 0
    failed_tries: int = 0
    last_failure: str = ""
    calls: int = 0
    cache_hits: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0


def usage_of(row: Row, price: PriceSpec, *, computed: bool) -> Usage:
    """Usage of one reply. Dollars are 0 for a cached one: it was paid for by another run, or earlier in this one."""
    return _priced((row.prompt_tokens, row.completion_tokens), price if computed else PriceSpec())


def _priced(tokens: tuple[int, int], price: PriceSpec) -> Usage:
    prompt, completion = tokens
    return Usage(prompt, completion, (prompt * price.prompt + completion * price.completion) / 1e6)


def charge_failed(billed: tuple[int, int], price: PriceSpec, *, live: Live, meter: Meter | None) -> None:
    """Count the tokens of a try that brought no reply, in the totals and for the caller that made it. No call: nobody
    used it."""
    usage = _priced(billed, price)
    _add(usage, live)
    if meter is not None:
        meter.usage += usage


def _add(usage: Usage, live: Live) -> None:
    live.prompt_tokens += usage.prompt_tokens
    live.completion_tokens += usage.completion_tokens
    live.usd += usage.usd


def charge(row: Row, usage: Usage, *, computed: bool, purpose: str, live: Live, meter: Meter | None) -> None:
    """Count one reply in the running totals and in the caller's meter."""
    live.calls += 1
    _add(usage, live)
    if meter is None:
        return
    meter.calls += 1
    meter.computed += computed
    meter.cached += not computed
    meter.usage += usage
    meter.latency_s += row.latency_s
    meter.purposes[purpose] += 1
