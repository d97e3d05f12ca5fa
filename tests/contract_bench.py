"""A whole run in this process: the shipped sample cut small, the scripted stand-in behind a transport that can be
unsteady, hashed vectors. What the contracts of every memory system are checked with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from eval.evidence import score_evidence
from eval.sanity import SANITY
from eval.score import score_answer
from harness.built import SharedMemories
from harness.compose import build_spec, register_defaults
from harness.embed import build_embedder
from harness.llm.cache import ReplyCache, Row
from harness.llm.client import Chat
from harness.llm.tokens import counter
from harness.llm.transport import Outgoing, ScriptedTransport
from harness.llm.types import Meter
from harness.locomo.loader import load_dataset
from harness.locomo.schema import Conversation, Dataset, Sample
from harness.memory import Evidence, MemorySystem, Query, Services
from harness.progress import Progress
from harness.protocol import build_protocol
from harness.records import RunFolder
from harness.runner import Parts, context_budget, run
from harness.spec import DatasetSpec

CONF = Path(__file__).resolve().parent.parent / "conf"
NAMES = sorted(path.stem for path in (CONF / "memory").glob("*.yaml"))
STAND_INS = ("backbone=scripted", "embedder=hashing")
SMALL = ("dataset=sample", "dataset.max_turns=14", "dataset.max_questions=5")
"""Two conversations of 14 turns, a session and a turn of the next; five questions each."""
GARBAGE = ("", "{", "no reply of this kind")


class Unsteady:
    """The stand-in, its replies late by a random number of turns of the loop (`latency` is the seed), every n-th of
    them garbage. `sent`: every request."""

    def __init__(self, latency: int | None = None, garbage_every: int | None = None):
        self.sent: list[Outgoing] = []
        self.garbage = 0
        self._scripted = ScriptedTransport()
        self._random = None if latency is None else random.Random(latency)
        self._every = garbage_every

    async def send(self, request: Outgoing) -> Row:
        self.sent.append(request)
        number = len(self.sent)
        if self._random is not None:
            for _ in range(self._random.randrange(8)):
                await asyncio.sleep(0)
        row = await self._scripted.send(request)
        if self._every and number % self._every == 0:
            # A text without a schema has no wrong form: only an empty one is unusable.
            row = replace(row, text="" if request.schema is None else GARBAGE[self.garbage % len(GARBAGE)])
            self.garbage += 1
        return row

    async def aclose(self) -> None:
        return None

    @property
    def prompts(self) -> list[str]:
        return sorted("\n".join(message["content"] for message in request.messages) for request in self.sent)


@cache
def composed(name: str, *overrides: str) -> tuple[Any, type[MemorySystem]]:
    """Spec and class of a system under its shipped configuration."""
    register_defaults()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        chosen = compose("config", overrides=[f"memory={name}", *STAND_INS, *overrides])
    values = OmegaConf.to_container(chosen, resolve=True)
    values.pop("plan")
    return build_spec(values)


@cache
def loaded(spec: DatasetSpec) -> Dataset:
    return load_dataset(spec)


class Bench:
    """One system under its shipped configuration. `samples` replaces the shipped data; `attempts` the backbone's;
    `shared`: where built memories are found and left."""

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        latency: int | None = None,
        garbage_every: int | None = None,
        attempts: int = 3,
        samples: Sequence[Sample] | None = None,
        overrides: Sequence[str] = (),
        shared: Path | None = None,
    ):
        spec, self.system = composed(name, *SMALL, *overrides)
        self.shared = shared
        self.spec = replace(spec, backbone=replace(spec.backbone, attempts=attempts))
        self.dataset: Dataset = loaded(spec.dataset)
        if samples is not None:
            self.dataset = replace(self.dataset, samples=tuple(samples))
        self.path = path
        self.transport = Unsteady(latency, garbage_every)
        self.records: list[dict[str, Any]] = []
        self.built: list[dict[str, Any]] = []

    def _parts(self, cache: ReplyCache) -> Parts:
        memories = None
        if self.shared:
            memories = SharedMemories(self.shared, self.spec, self.system, cache.run_id, self.path.name)
        spec = self.spec
        chat = Chat(spec.backbone, cache, self.transport, counter(spec.backbone))

        def score(question, answer, items):
            exact = self.system.evidence_of(spec.memory) == "exact"
            return score_answer(question, answer) | (score_evidence(question.evidence, items) if exact else {})

        oracle = None if self.system.oracle is None else SANITY[self.system.oracle]
        embedder = build_embedder(spec.embedder, self.path)
        protocol = build_protocol(spec.protocol)
        return Parts(spec, self.dataset, self.system, protocol, chat, embedder, score, oracle, memories)

    def run(self) -> Bench:
        """The run as the door does it: `records` in the data's order, `built`, the memories under `path`."""

        async def session(folder: RunFolder, cache: ReplyCache) -> None:
            parts = self._parts(cache)
            progress = Progress(0, 0, parts.chat.live, quiet=True)
            try:
                self.built = await run(parts, folder, progress)
            finally:
                await parts.chat.aclose()
                await parts.embedder.aclose()

        with RunFolder(self.path / "run", "identity", {}) as folder:
            cache = ReplyCache(self.path / "cache", "use", folder.run_id)
            try:
                asyncio.run(session(folder, cache))
            finally:
                cache.close()
            keys = [(q.sample_id, q.qa_index, 0) for sample in self.dataset.samples for q in sample.questions]
            assert sorted(keys) == sorted(folder.answers)
            self.records = [folder.answers[key] for key in keys]
        return self

    def outcome(self) -> tuple[list[dict[str, Any]], dict[str, bytes], list[Any]]:
        """What must be equal whatever the timing: answers, memories, what they count."""
        timing = ("latency_s", "usage")
        records = [{k: v for k, v in record.items() if k not in timing} for record in self.records]
        memory = {
            str(path.relative_to(self.path)): path.read_bytes()
            for path in (self.path / "run").rglob("memory/*/*.jsonl")
        }
        return records, memory, [{k: v for k, v in one.items() if k not in timing} for one in self.built]

    def remember(self, conversation: Conversation | None, texts: Sequence[str]) -> tuple[list[Evidence], Services]:
        """Recalls, all at once, of a memory that has ingested `conversation` (None: nothing)."""

        async def session(cache: ReplyCache) -> tuple[list[Evidence], Services]:
            parts = self._parts(cache)
            room = context_budget(parts)
            services = Services(parts.chat, parts.embedder, Meter(), self.spec.seed, room)
            system = self.system(self.spec.memory, services)
            try:
                if conversation is not None:
                    await system.ingest(conversation)
                recalls = [system.recall(Query(f"q/{i}", text, 4), Meter()) for i, text in enumerate(texts)]
                found = await asyncio.gather(*recalls)
                system.stats()
                for rows in system.export().values():
                    list(rows)
                return found, services
            finally:
                await parts.chat.aclose()
                await parts.embedder.aclose()

        cache = ReplyCache(self.path / "cache", "use", "contract")
        try:
            return asyncio.run(session(cache))
        finally:
            cache.close()
