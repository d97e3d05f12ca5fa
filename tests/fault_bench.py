"""A run in this process whose every call goes over HTTP to the stand-in's endpoint, which fails by rule. Waits between
tries take no time; only hanging requests do, as long as the client's timeout."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web
from contract_bench import Bench

from harness.llm.cache import ReplyCache
from harness.llm.client import Chat
from harness.llm.limiter import Limiter
from harness.llm.retry import Retrier
from harness.llm.tokens import counter
from harness.llm.transport import OpenAITransport
from harness.runner import Parts
from scripts.endpoint import build_app
from scripts.faults import MENDABLE, Settings

TIMEOUT_S = 0.4
RETRIES = 30


def settings(kinds: tuple[str, ...] = MENDABLE, **fields: Any) -> Settings:
    return Settings(kinds=kinds, **{"retry_after_s": 0.0, "drip_s": 0.02, **fields})


@contextlib.contextmanager
def served(chosen: Settings) -> Iterator[str]:
    """The endpoint in a thread of its own; its base URL."""
    ready: list[Any] = []
    started = threading.Event()

    async def serve() -> None:
        runner = web.AppRunner(build_app(0.0, chosen), access_log=None, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        stop = asyncio.Event()
        ready.extend((runner.addresses[0][1], asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(30)
    port, loop, stop = ready
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats") as response:
        return json.load(response)


class Instant:
    """A clock whose sleeps take no time and pass all the same."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.skipped

    async def sleep(self, seconds: float) -> None:
        self.skipped += seconds
        await asyncio.sleep(0)


class OverHttp(Bench):
    """A Bench whose backbone is the endpoint at `url`."""

    def __init__(self, *arguments: Any, url: str, timeout_s: float = TIMEOUT_S, **options: Any):
        super().__init__(*arguments, **options)
        self._url = url
        self._timeout_s = timeout_s

    def _parts(self, cache: ReplyCache) -> Parts:
        spec, clock = self.spec.backbone, Instant()
        chat = Chat(
            spec,
            cache,
            OpenAITransport(spec.model, self._url, None, timeout_s=self._timeout_s),
            counter(spec),
            limiter=Limiter(spec.concurrency_start, spec.concurrency_max, clock=clock, sleep=clock.sleep),
            retrier=Retrier(RETRIES, clock=clock, sleep=clock.sleep, jitter=lambda: 0.0),
        )
        return replace(super()._parts(cache), chat=chat)


def comparable(folder: Path) -> tuple[dict[str, Any], dict[tuple, dict[str, Any]], dict[str, bytes]]:
    """Metrics, answers and memories without times. A question that ran out of tries before the endpoint was known to be
    gone has an error record, and one more since it was asked again: the later one counts."""
    metrics = json.loads((folder / "metrics.json").read_text())
    answers = {}
    for line in (folder / "answers.jsonl").read_text().split("\n"):
        if line:
            record = json.loads(line)
            key = (record["sample_id"], record["qa_index"], record["trial"])
            assert key not in answers or answers[key]["error"]["kind"] == "server"
            answers[key] = record
    for value in (metrics, metrics["memory"], *answers.values()):
        for told in ("latency_s", "wall_s", "code", "crc"):  # somebody may work on the code while its tests run
            value.pop(told, None)
    metrics["table"]["lines"] = [line for line in metrics["table"]["lines"] if not line.startswith("answers made by")]
    memory = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("memory/*/*.jsonl")}
    return metrics, answers, memory
