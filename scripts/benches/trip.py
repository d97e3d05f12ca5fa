"""One run in this process, through the runner, with ingestion and answering timed apart."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from harness.compose import register_defaults
from harness.embed import Embedder, Listener
from harness.llm.build import build_chat
from harness.llm.cache import ReplyCache, Row
from harness.llm.client import Chat
from harness.llm.tokens import counter
from harness.llm.transport import Outgoing, ScriptedTransport, Transport
from harness.prepare import Prepared, prepare
from harness.progress import Progress
from harness.records import RunFolder
from harness.runner import Parts, run
from scripts.benches import clock

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Phase:
    """seconds: of the loop's clock. calls: replies used. waited_s: the sum of the calls' latencies. cpu_s: of this
    process, all threads. tokens: prompt and completion, by the bench's estimate."""

    seconds: float
    calls: int
    waited_s: float
    cpu_s: float
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Trip:
    """ingest, answer: of a run of one conversation. counts: what its memory says of itself."""

    turns: int
    questions: int
    ingest: Phase
    answer: Phase
    counts: dict[str, Any]


def prepared(overrides: Sequence[str]) -> Prepared:
    """A run as the door would prepare it, the stand-in being asked and no memory shared."""
    register_defaults()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        chosen = compose("config", overrides=["backbone=scripted", "run.share_memory=false", *overrides])
    return prepare(OmegaConf.to_container(chosen, resolve=True))  # type: ignore[arg-type]


def slice_of(data: Path | None) -> list[str]:
    """Overrides for one conversation: LoCoMo's conv-26, or the first of the shipped sample."""
    if data is None:
        return ["dataset=sample", "dataset.conversations=[sample-1]"]
    return ["dataset=locomo10", f"dataset.path={data}", "dataset.conversations=[conv-26]"]


def travel(jobs: Sequence[tuple[Prepared, Embedder]], base_url: str | None = None) -> list[Trip]:
    """Runs at the same time over HTTP, or with no `base_url` in this process, where a reply takes backbone.latency_s
    seconds. `cpu_s` is that of all of them."""

    async def together() -> list[Trip]:
        def chat(job: Prepared, cache: ReplyCache) -> Chat:
            return build_chat(job.spec.backbone, cache, base_url=base_url)

        return await asyncio.gather(*(_travel(job, embedder, partial(chat, job)) for job, embedder in jobs))

    return asyncio.run(together())


def imagine(job: Prepared, embedder: Embedder, latency_s: float, places: int) -> Trip:
    """The same run if only the model took time, with so many calls at once."""
    backbone = replace(job.spec.backbone, concurrency_start=places, concurrency_max=places)
    run_spec = replace(job.spec.run, questions_at_once=max(places, job.spec.run.questions_at_once))
    job = replace(job, spec=replace(job.spec, backbone=backbone, run=run_spec))

    def chat(cache: ReplyCache) -> Chat:
        return Chat(backbone, cache, ScriptedTransport(latency_s), counter(backbone))

    return clock.run(_travel(job, _Awaited(embedder), chat))


class _Awaited:
    """An embedder that the jumping clock waits for."""

    def __init__(self, embedder: Embedder):
        self._embedder = embedder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    def listener(self) -> Listener:
        return Listener(self)  # type: ignore[arg-type]

    async def encode(self, texts: Sequence[str]) -> Any:
        loop = asyncio.get_running_loop()
        loop.busy += 1  # type: ignore[attr-defined]
        try:
            return await self._embedder.encode(texts)
        finally:
            loop.busy -= 1  # type: ignore[attr-defined]


class _Timed:
    """A transport that sums up latencies, by the loop's clock."""

    def __init__(self, transport: Transport):
        self._transport = transport
        self.waited_s = 0.0

    async def send(self, request: Outgoing) -> Row:
        loop = asyncio.get_running_loop()
        began = loop.time()
        row = await self._transport.send(request)
        self.waited_s += loop.time() - began
        return row

    async def aclose(self) -> None:
        await self._transport.aclose()


@dataclass
class _Phases(Progress):
    """Notes where ingestion ends."""

    built_at: Phase | None = None
    look: Callable[[], Phase] | None = None

    def tick(self) -> None:
        if self.built and self.built_at is None and self.look is not None:
            self.built_at = self.look()


async def _travel(job: Prepared, embedder: Any, make_chat: Callable[[ReplyCache], Chat]) -> Trip:
    with tempfile.TemporaryDirectory() as place, RunFolder(Path(place) / "run", job.identity, {}) as folder:
        cache = ReplyCache(Path(place) / "cache", "use", folder.run_id)
        chat = make_chat(cache)
        timed = _Timed(chat._transport)
        chat._transport = timed
        live, loop = chat.live, asyncio.get_running_loop()
        began, cpu = loop.time(), time.process_time()

        def look() -> Phase:
            return Phase(
                loop.time() - began,
                live.calls,
                timed.waited_s,
                time.process_time() - cpu,
                live.prompt_tokens,
                live.completion_tokens,
            )

        progress = _Phases(1, job.dataset.n_questions, live, quiet=True, look=look)
        parts = Parts(job.spec, job.dataset, job.system, job.protocol, chat, embedder, lambda *_: {})
        try:
            (built,) = await run(parts, folder, progress)
            ended = look()
        finally:
            await chat.aclose()
            cache.close()
    assert progress.built_at is not None  # noqa: S101 - the run has ended
    ingest = progress.built_at
    answer = Phase(*(end - start for end, start in zip(vars(ended).values(), vars(ingest).values(), strict=True)))
    (sample,) = job.dataset.samples
    return Trip(len(sample.conversation.turns), job.dataset.n_questions, ingest, answer, built)
