"""What a call costs beside the endpoint's time: the bench's client beside the bare openai client, 64 calls at once."""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from harness.llm.build import build_chat
from harness.llm.cache import ReplyCache
from harness.llm.structured import wire_schema
from scripts.benches.endpoint import serving
from scripts.benches.trip import prepared

TITLE = "A call beside the bare openai client"
LATENCY_S = 0.2
AT_ONCE = 64
CALLS = 960
WARM_UP = 64
ROUNDS = 3
WORDS = 300
Ask = Callable[[int], Awaitable[Any]]


class Judgement(BaseModel):
    """A reply of the size of MemFly's pair scores."""

    s_red: float
    s_comp: float


def measure(data: Path | None) -> dict[str, Any]:
    """Calls a second and CPU a call, of each client in turn, several rounds."""
    rounds: dict[str, list[tuple[float, float]]] = {}
    with serving(LATENCY_S) as url:
        for number in range(ROUNDS):
            for name, run in (("memfly-bench", _ours), ("openai, httpx", _httpx), ("openai, aiohttp", _aiohttp)):
                rounds.setdefault(name, []).append(asyncio.run(run(url, number)))
    clients = {
        name: {
            "calls_per_s": statistics.median(rate for rate, _ in each),
            "cpu_ms": statistics.median(1e3 * cpu for _, cpu in each),
        }
        for name, each in rounds.items()
    }
    return {"latency_s": LATENCY_S, "at_once": AT_ONCE, "calls": CALLS, "rounds": ROUNDS, "clients": clients}


def prompt(number: int) -> list[dict[str, str]]:
    """A prompt of WORDS words, no two alike."""
    text = " ".join(f"word{(number * 7919 + place) % 5000}" for place in range(WORDS))
    return [{"role": "user", "content": f"Question {number}.\n{text}"}]


async def _ours(url: str, number: int) -> tuple[float, float]:
    """The whole path of a run: cache, limiter, budget, transport, parsing, accounts."""
    spec = prepared(["memory=rag"]).spec.backbone
    with tempfile.TemporaryDirectory() as place:
        cache = ReplyCache(Path(place), "use", "bench")
        chat = build_chat(spec, cache, base_url=url)
        try:
            return await _timed(lambda call: chat.complete(prompt(call), schema=Judgement), number)
        finally:
            await chat.aclose()
            cache.close()


async def _httpx(url: str, number: int) -> tuple[float, float]:
    from openai import DefaultAsyncHttpxClient

    return await _bare(url, number, DefaultAsyncHttpxClient())


async def _aiohttp(url: str, number: int) -> tuple[float, float]:
    from openai import DefaultAioHttpClient

    return await _bare(url, number, DefaultAioHttpClient())


async def _bare(url: str, number: int, http_client: Any) -> tuple[float, float]:
    """The reply is parsed by its schema and nothing else is done with it."""
    from openai import AsyncOpenAI

    asked = {"type": "json_schema", "json_schema": {"name": "reply", "schema": wire_schema(Judgement), "strict": True}}
    client = AsyncOpenAI(api_key="none", base_url=url, max_retries=0, http_client=http_client)

    async def ask(call: int) -> Judgement:
        completion = await client.chat.completions.create(
            model="scripted", messages=prompt(call), response_format=asked, temperature=0, max_tokens=256
        )
        return Judgement.model_validate_json(completion.choices[0].message.content)

    try:
        return await _timed(ask, number)
    finally:
        await client.close()


async def _timed(ask: Ask, number: int) -> tuple[float, float]:
    """Calls a second and CPU seconds a call, AT_ONCE of them under way, after a warm-up that opens the connections.

    The rate is that between the first AT_ONCE replies and the last: what a run of hours has, not the filling and emptying of the
    places at its ends.
    """
    first = number * (CALLS + WARM_UP)
    await asyncio.gather(*(ask(first + call) for call in range(WARM_UP)))
    left = iter(range(first + WARM_UP, first + WARM_UP + CALLS))
    replies: list[float] = []

    async def work() -> None:
        for call in left:
            await ask(call)
            replies.append(time.perf_counter())

    gc.collect()
    cpu = time.process_time()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    spent = time.process_time() - cpu
    return (CALLS - 2 * AT_ONCE) / (replies[-AT_ONCE - 1] - replies[AT_ONCE - 1]), spent / CALLS


def page(figures: dict[str, Any]) -> str:
    """The Markdown page of these figures."""
    ideal = figures["at_once"] / figures["latency_s"]
    rows = [
        f"| {name} | {one['calls_per_s']:.0f} | {one['calls_per_s'] / ideal:.1%} | {one['cpu_ms']:.2f} |"
        for name, one in figures["clients"].items()
    ]
    return f"""{figures["calls"]} calls of {WORDS} words with a schema, {figures["at_once"]} at once, to an endpoint that takes {figures["latency_s"]} s and runs in a process
of its own; median of {figures["rounds"]} interleaved rounds. Ours is the whole path of a run (cache, limiter, budget, retries, parsing, accounts);
the bare client parses the reply and does nothing else.

| client | calls a second | of the ideal {ideal:.0f} | CPU a call, ms |
| --- | ---: | ---: | ---: |
{chr(10).join(rows)}"""
