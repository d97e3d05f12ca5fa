"""A clock that only moves when somebody sleeps, a transport that says what it is told, and small specs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from harness.llm.cache import ReplyCache, Row
from harness.llm.client import Chat
from harness.llm.limiter import Limiter
from harness.llm.retry import Retrier
from harness.llm.tokens import TokenCounter, estimate
from harness.llm.transport import Outgoing
from harness.spec import BackboneSpec


class Clock:
    """Time for tests: `sleep` moves it and lets others run. `slept` lists every sleep."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Told:
    """A transport that answers with the next of `replies`: a text, a Row, or an exception; or with replies(request)."""

    def __init__(self, replies: list[str | Row | Exception] | Callable[[Outgoing], str | Row | Exception]):
        self.replies = replies
        self.sent: list[Outgoing] = []
        self.closed = False

    async def send(self, request: Outgoing) -> Row:
        self.sent.append(request)
        await asyncio.sleep(0)
        reply = self.replies(request) if callable(self.replies) else self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, Row) else Row(reply, prompt_tokens=10, completion_tokens=3, latency_s=0.25)

    async def aclose(self) -> None:
        self.closed = True


def backbone(**fields: object) -> BackboneSpec:
    base: dict[str, object] = {"name": "told", "kind": "openai", "model": "m", "window": 4096, "structured": "schema"}
    return BackboneSpec(**{**base, **fields})


def chat_of(
    replies: list | Callable,
    path: Path,
    *,
    mode: str = "use",
    run_id: str = "run-a",
    clock: Clock | None = None,
    **fields: object,
) -> tuple[Chat, Told]:
    """A chat client over a told transport, its cache in `path`."""
    spec = backbone(**fields)
    told = Told(replies)
    clock = clock or Clock()
    retrier = Retrier(spec.retries, clock=clock, sleep=clock.sleep, jitter=lambda: 1.0)
    cache = ReplyCache(path, mode, run_id)
    limiter = Limiter(spec.concurrency_start, spec.concurrency_max, clock=clock, sleep=clock.sleep)
    chat = Chat(spec, cache, told, TokenCounter("estimate", estimate), limiter=limiter, retrier=retrier)
    return chat, told


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]
