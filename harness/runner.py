"""The controller of a run: build every memory, ask every question, record, resume.

Conversations run at once, and so do the questions of all of them; the chat client bounds what is in flight.
Nothing here depends on which finishes first: records are keyed, and aggregated in the data's order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness.accounts import built_values, evidence_values, shared_values, usage_values, with_calls
from harness.built import SharedMemories
from harness.errors import ConfigError, EndpointError, RecordError, ReplyError
from harness.llm.types import ChatModel, Meter
from harness.locomo.schema import Dataset, Question, Sample
from harness.memory import Evidence, EvidenceItem, MemorySystem, Query, Services
from harness.progress import Progress
from harness.protocol import Protocol
from harness.records import AnswerKey, RunFolder, table_texts
from harness.spec import RunSpec

Scorer = Callable[[Question, str, Sequence[EvidenceItem]], dict[str, float]]
"""(question with its gold, parsed answer, evidence) -> {metric: value}. Injected: scoring lives in eval."""

Oracle = Callable[[Question], str]
"""An answerer that sees the gold (MemorySystem.oracle). Injected as the scorer is."""

PULSE_S = 5.0
"""Seconds of its account that a killed process can lose (our choice)."""

_PROBE = "probe"
"""Purpose of the client's own first call (ChatModel.settle)."""

MARGIN_TOKENS = 48
"""Kept free in the window for the chat template's own tokens (our choice: templates take 10 to 40)."""


@dataclass(frozen=True)
class Parts:
    """What a run is made of, built by the door."""

    spec: RunSpec
    dataset: Dataset
    system: type[MemorySystem]
    protocol: Protocol
    chat: ChatModel
    embedder: Any
    score: Scorer
    oracle: Oracle | None = None
    """Answers in the reader's place, for a system that names one."""
    memories: SharedMemories | None = None
    """Where built memories are found and left for other runs."""


def context_budget(parts: Parts) -> int:
    """Tokens of context the answer prompt can take: the window less the reply and the longest prompt without it."""
    questions = [q for sample in parts.dataset.samples for q in sample.questions]
    spec = parts.spec
    frame = parts.protocol.overhead_tokens(parts.chat.count_tokens, questions)
    budget = spec.backbone.window - spec.protocol.max_tokens - frame - MARGIN_TOKENS
    if budget < 1:
        raise ConfigError(
            f"backbone.window={spec.backbone.window} leaves no room for evidence beside protocol.max_tokens="
            f"{spec.protocol.max_tokens} and a frame of {frame} tokens; lower protocol.max_tokens"
        )
    return min(budget, spec.protocol.max_context_tokens or budget)


async def run(parts: Parts, folder: RunFolder, progress: Progress) -> list[dict[str, Any]]:
    """Do what is not yet done of a run. Returns what each memory cost and holds, in the data's order.

    An EndpointError that is fatal ends the run with everything so far on the disk; so does a cancellation.
    """
    runner = _Runner(parts, folder, progress)
    pulse = asyncio.create_task(_pulse(progress, folder))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(runner.conversation(sample)) for sample in parts.dataset.samples]
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    finally:
        pulse.cancel()
    return [task.result() for task in tasks]


async def _pulse(progress: Progress, folder: RunFolder) -> None:
    """Lines appear while memories are built too, when nothing else happens; the status on the disk keeps up."""
    while True:
        progress.tick()
        await asyncio.sleep(PULSE_S)
        await asyncio.to_thread(folder.heartbeat)


def _first(errors: BaseExceptionGroup) -> BaseException:
    """The first real error of a group: its siblings were cancelled because of it."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Runner:
    def __init__(self, parts: Parts, folder: RunFolder, progress: Progress):
        self.parts = parts
        self.folder = folder
        self.progress = progress
        self.context_tokens = context_budget(parts)
        self.conversations = asyncio.Semaphore(parts.spec.run.conversations_at_once)
        self.questions = asyncio.Semaphore(parts.spec.run.questions_at_once)
        self._settling = asyncio.Lock()
        self._settled: Meter | None = None
        held = {sample.sample_id: folder.read_built(sample.sample_id) for sample in parts.dataset.samples}
        asked = (id for id, one in held.items() if one and _PROBE in one["purposes"])
        # Else the first that is still to be built, in the data's order: which is ready first is luck.
        self._settler = next(asked, None) or next((id for id, one in held.items() if one is None), None)
        for key, record in folder.answers.items():
            if not self._unanswered(key):
                progress.answered += 1
                progress.errors += record["error"] is not None

    async def conversation(self, sample: Sample) -> dict[str, Any]:
        async with self.conversations:
            waiting = [
                (question, trials) for question in sample.questions if (trials := self._missing_trials(question))
            ]
            built = self.folder.read_built(sample.sample_id)
            if built is None or waiting:
                # A memory lives in this process alone. After a kill it is built again from the cached replies,
                # which is exact and costs no call that was already paid for.
                system, built = await self._restore(sample, built) or await self._build(sample, built)
                async with asyncio.TaskGroup() as group:
                    for question, trials in waiting:
                        group.create_task(self._ask(system, question, trials))
            else:
                self.progress.finished(sample.sample_id, len(sample.conversation.turns))
            return built

    def _missing_trials(self, question: Question) -> list[int]:
        return [
            trial
            for trial in range(self.parts.spec.trials)
            if self._unanswered((question.sample_id, question.qa_index, trial))
        ]

    def _unanswered(self, key: AnswerKey) -> bool:
        """Not asked yet, or no reply was had: a resumed run asks again what an outage took. A bad reply is final."""
        record = self.folder.answers.get(key)
        return record is None or (
            record["error"] is not None and record["error"]["kind"] not in ("empty", "unparsable")
        )

    def _empty(self, meter: Meter, embedder: Any, took_in: Callable[[int], None] = lambda turns: None) -> MemorySystem:
        services = Services(
            chat=self.parts.chat,
            embedder=embedder,
            meter=meter,
            seed=self.parts.spec.seed,
            context_tokens=self.context_tokens,
            took_in=took_in,
        )
        return self.parts.system(self.parts.spec.memory, services)

    async def _build(self, sample: Sample, held: dict[str, Any] | None) -> tuple[MemorySystem, dict[str, Any]]:
        """held: built.json of an earlier process of this run."""
        memories = self.parts.memories
        asked = await self._first_calls(sample) if memories else Meter()
        meter, embedder = Meter(), self.parts.embedder.listener()
        system = self._empty(meter, embedder, partial(self.progress.took_in, sample.sample_id))
        await system.ingest(sample.conversation)
        facts, tables = await asyncio.to_thread(
            lambda: (built_values(sample, system, meter), table_texts(system.export()))
        )
        built = with_calls(facts, asked)
        answered = any(key[0] == sample.sample_id and not self._unanswered(key) for key in self.folder.answers)
        if answered and (changed := await asyncio.to_thread(self.folder.changed_tables, sample.sample_id, tables)):
            raise RecordError(
                f"{self.folder.path}: the memory of {sample.sample_id} is not built again as the one that answers were "
                f"made on ({', '.join(changed)} differ: other code, packages or replies); run.fresh=true starts anew"
            )
        # Not shared: what this run held before, which was stored then (a refresh may have replaced its replies since);
        # what an outage took replies from, which may be had another time.
        if memories and held is None and not meter.unanswered:
            await memories.keep(sample.conversation, tables, facts, frozenset(embedder.too_long))
        await self._written(sample, tables, built)
        return system, built

    async def _restore(self, sample: Sample, held: dict[str, Any] | None) -> tuple[MemorySystem, dict[str, Any]] | None:
        """The memory that this run or another built before, its calls counted as replies from the cache are."""
        memories = self.parts.memories
        if memories is None:
            return None
        found = await memories.restore(sample.conversation, lambda: self._empty(Meter(), self.parts.embedder))
        if found is None:
            return None
        system, stored = found
        if await asyncio.to_thread(self.folder.changed_tables, sample.sample_id, stored.tables):
            return None  # this run's own replies may still give the memory that it had
        self.parts.embedder.too_long.update(stored.too_long)
        own = stored.run_id == memories.run_id
        facts = held or (stored.built if own else shared_values(stored, memories.run))
        asked = await self._first_calls(sample)
        built = facts if _PROBE in facts["purposes"] else with_calls(facts, asked)
        await self._written(sample, stored.tables, built)
        return system, built

    async def _first_calls(self, sample: Sample) -> Meter:
        """What the client asks before its first call with a schema, for the one memory in whose account it stands.

        Each process asks it once, whichever memory comes first, so it is kept apart from a memory's own calls.
        """
        async with self._settling:
            if self._settled is None:
                self._settled = Meter()
                try:
                    await self.parts.chat.settle(self._settled)
                except EndpointError as error:
                    if error.fatal:
                        raise
        if self._settler is None:
            self._settler = sample.sample_id
        return self._settled if self._settler == sample.sample_id else Meter()

    async def _written(self, sample: Sample, tables: Mapping[str, str], built: dict[str, Any]) -> None:
        def write() -> None:
            self.folder.heartbeat()  # what the embedder said of this memory is on the disk before the memory is complete
            self.folder.write_memory(sample.sample_id, tables, built)

        await asyncio.to_thread(write)
        self.progress.finished(sample.sample_id, len(sample.conversation.turns))
        self.progress.tick()

    async def _ask(self, system: MemorySystem, question: Question, trials: list[int]) -> None:
        async with self.questions:
            query = Query(f"{question.sample_id}/{question.qa_index}", question.question, question.category)
            meter, started = Meter(), time.perf_counter()
            try:
                evidence = await system.recall(query, meter)
            except (ReplyError, EndpointError) as error:
                if getattr(error, "fatal", False):
                    raise
                for trial in trials:
                    self._record(question, trial, meter, started, error=error)
                    meter = Meter()
                return
            for trial in trials:
                if trial > 0:
                    # What recall cost stands in the first trial's record, also when that was written before a kill.
                    meter, started = Meter(), time.perf_counter()
                await self._answer(system, question, query, evidence, trial, meter, started)

    async def _answer(
        self,
        system: MemorySystem,
        question: Question,
        query: Query,
        evidence: Evidence,
        trial: int,
        meter: Meter,
        started: float,
    ) -> None:
        request = self.parts.protocol.request(question, evidence.context, seed=self.parts.spec.seed, trial=trial)
        if self.parts.oracle is not None:
            answer = self.parts.oracle(question)
            scores = self.parts.score(question, answer, evidence.items)
            done = {"reply": answer, "answer": answer, "scores": scores}
            self._record(question, trial, meter, started, evidence=evidence, options=request.options, **done)
            return
        try:
            reply = await system.answer(query, evidence, meter)
            if reply is None:
                reply = await self.parts.chat.complete(
                    request.messages,
                    schema=request.schema,
                    temperature=request.temperature,
                    max_tokens=request.max_tokens,
                    purpose="answer",
                    meter=meter,
                    trial=trial,
                )
        except (ReplyError, EndpointError) as error:
            if getattr(error, "fatal", False):
                raise
            self._record(question, trial, meter, started, evidence=evidence, options=request.options, error=error)
            return
        answer = self.parts.protocol.parse(reply, request)
        scores = self.parts.score(question, answer, evidence.items)
        self._record(
            question,
            trial,
            meter,
            started,
            evidence=evidence,
            options=request.options,
            reply=reply.text,
            answer=answer,
            scores=scores,
        )

    def _record(
        self,
        question: Question,
        trial: int,
        meter: Meter,
        started: float,
        *,
        evidence: Evidence | None = None,
        options: Sequence[str] | None = None,
        reply: str | None = None,
        answer: str | None = None,
        scores: dict[str, float] | None = None,
        error: ReplyError | EndpointError | None = None,
    ) -> None:
        if isinstance(error, ReplyError):
            reply = error.text
        context = evidence.context if evidence else ""
        self.folder.append_answer(
            {
                "sample_id": question.sample_id,
                "qa_index": question.qa_index,
                "trial": trial,
                "category": question.category,
                "question": question.question,
                "gold": question.reference,
                "gold_evidence": list(question.evidence),
                "reply": reply,
                "answer": answer,
                "options": list(options) if options else None,
                "evidence": [evidence_values(item) for item in evidence.items] if evidence else [],
                "context_tokens": self.parts.chat.count_tokens(context) if context else 0,
                "trace": dict(evidence.trace) if evidence else {},
                "scores": scores or {},
                "usage": usage_values(meter),
                "fallbacks": dict(meter.fallbacks),
                "call_errors": meter.errors,
                "latency_s": round(time.perf_counter() - started, 4),
                "code": self.folder.code,
                "error": {"kind": error.kind, "message": str(error)} if error else None,
            }
        )
        self.progress.answered += 1
        self.progress.errors += error is not None
        self.progress.tick()
