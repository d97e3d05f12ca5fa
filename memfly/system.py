"""MemFly as a MemorySystem: build the memory, then answer any number of recalls from it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.calls import Caller, abandon
from harness.llm.types import Meter
from harness.llm.words import names_and_words
from harness.locomo.schema import Conversation
from harness.memory import CallPlan, DataShape, Evidence, EvidenceItem, MemoryStats, MemorySystem, Query, Services
from memfly.builder import Builder
from memfly.calls import JUDGE, PARSE, PROMPT_FILES, REPLY_TOKENS
from memfly.config import MemFlyConfig
from memfly.export import stats, tables
from memfly.hierarchy import Hierarchy
from memfly.lexical import Lexical
from memfly.pathways import Hit, Probe, retrieve
from memfly.plan import predict
from memfly.refine import refine
from memfly.render import fit
from memfly.replies import Judged, Parsed
from memfly.restore import Tables, restore

EMBEDDING_NOTICE = "gate scored by embeddings, not by the LLM of the paper"
MAX_ENTITIES = 8


class MemFly(MemorySystem):
    """The method of arXiv:2602.07885 over one conversation. After `ingest` nothing changes it."""

    Config = MemFlyConfig
    evidence_kind = "exact"
    prompt_files = PROMPT_FILES
    config: MemFlyConfig

    def __init__(self, config: MemFlyConfig, services: Services):
        super().__init__(config, services)
        self._caller = Caller(services.chat, config.temperature, REPLY_TOKENS)
        self._builder: Builder | None = None
        self._lexical: Lexical | None = None
        self._stats: MemoryStats | None = None

    async def ingest(self, conversation: Conversation) -> None:
        """Build the memory. EndpointError passes through."""
        builder = Builder(self.config, self.services, self._caller)
        await builder.build(conversation)
        await self._use(builder)

    async def restore(self, tables: Tables, stats: MemoryStats, conversation: Conversation) -> None:
        """Take over an exported memory. Recalls, `stats` and `export` are those of the built one."""
        builder = Builder(self.config, self.services, self._caller)
        await restore(tables, conversation, self.services.embedder, builder.hierarchy, embed_raw=self.config.embed_raw)
        builder.growth = [dict(row) for row in tables["growth"]]
        self._stats = stats
        await self._use(builder)

    async def _use(self, builder: Builder) -> None:
        if self.config.bm25_weight > 0:
            texts = [note.text for note in builder.hierarchy.notes]
            self._lexical = await asyncio.to_thread(Lexical, texts)  # stemming a long conversation takes its time
        self._builder = builder

    async def recall(self, query: Query, meter: Meter) -> Evidence:
        """Evidence by three pathways and refinement, best first in `items`, chronological in `context`."""
        hierarchy = self._built().hierarchy
        rounds: list[dict[str, Any]] = []

        async def search(text: str) -> list[Hit]:
            probe, parsed = await self._probe(text, meter)
            hits, trace = retrieve(hierarchy, probe, self.config)
            rounds.append({"query": text, **parsed, **trace})
            return hits

        async def judge(notes: Sequence[int]) -> str | None:
            return await self._judge(query.text, [hierarchy.notes[note] for note in notes], meter)

        if not hierarchy.notes:
            return Evidence(context="", trace={"rounds": [], "stop": "empty_memory"})
        config = self.config
        found = await refine(
            query.text,
            search,
            judge,
            i_max=config.i_max,
            k_total=config.k_total,
            rrf_k=config.rrf_k,
            round_weight=config.round_weight,
        )
        by_note = {f.hit.note: f for f in found.evidence}
        fitted = fit(
            [hierarchy.notes[f.hit.note] for f in found.evidence],
            config.render,
            self.services.context_tokens,
            self.services.chat.count_tokens,
        )
        items = []
        for shown in fitted.shown:
            hit, round_number = by_note[shown.note.id].hit, by_note[shown.note.id].round
            items.append(
                EvidenceItem(
                    text=shown.text,
                    dia_ids=shown.dia_ids,
                    rank=hit.rank,
                    score=hit.score,
                    date=shown.note.date,
                    paths=hit.paths,
                    round=round_number,
                    ends=shown.ends,
                )
            )
        trace = {
            "rounds": rounds,
            "stop": found.stop,
            "dropped_notes": fitted.dropped_notes,
            "dropped_turns": fitted.dropped_turns,
        }
        return Evidence(context=fitted.context, items=tuple(items), trace=trace)

    async def _probe(self, text: str, meter: Meter) -> tuple[Probe, dict[str, Any]]:
        """F_theta: a query as a topic sentence and entities, embedded. Fallback "parse_raw", for what is
        missing: the query itself, its names and content words."""
        own = asyncio.ensure_future(self.services.embedder.encode([text]))  # encoded while the model reads it
        try:
            question = self._caller.clip(text, self._caller.room(PARSE))
            value = await self._caller.ask(PARSE, Parsed, meter, question=question)
        finally:
            await abandon([own])
        topic, entities = (value.topic.strip(), value.entities) if value else ("", [])
        entities = list(dict.fromkeys(entity.strip() for entity in entities if entity.strip()))[:MAX_ENTITIES]
        if not topic or not entities:
            meter.fallback("parse_raw")
        topic = topic or text
        entities = entities or list(names_and_words(text))[:MAX_ENTITIES]
        vectors = await self.services.embedder.encode([text, topic, *entities])
        bm25 = self._lexical.scores(text) if self._lexical else None
        return Probe(vectors[0], vectors[1], vectors[2:], bm25), {"topic": topic, "entities": entities}

    async def _judge(self, question: str, notes: Sequence[Any], meter: Meter) -> str | None:
        """None when the evidence suffices, else a sub-query. Fallback "judge_stop": it suffices."""
        caller = self._caller
        question = caller.clip(question, caller.room(JUDGE) // 2)
        left = caller.room(JUDGE) - caller.chat.count_tokens(question)
        evidence = fit(notes, self.config.render, left, caller.chat.count_tokens).context
        value = await caller.ask(JUDGE, Judged, meter, question=question, evidence=evidence)
        if value is None:
            meter.fallback("judge_stop")
            return None
        return None if value.sufficient else value.sub_query

    def _built(self) -> Builder:
        if self._builder is None:
            raise RuntimeError("MemFly: nothing has been ingested")
        return self._builder

    @property
    def hierarchy(self) -> Hierarchy:
        """The built memory. RuntimeError before `ingest`."""
        return self._built().hierarchy

    def stats(self) -> MemoryStats:
        return self._stats or stats(self._built())

    def export(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        return tables(self._built())

    @classmethod
    def table_notices(cls, config: MemFlyConfig, *, can_judge: bool) -> tuple[str, ...]:
        embedded = config.update and config.resolve_scoring(can_judge) == "embedding"
        return (EMBEDDING_NOTICE,) if embedded else ()

    @classmethod
    def plan(cls, config: MemFlyConfig, shape: DataShape, *, can_judge: bool) -> CallPlan:
        return predict(config, shape, can_judge=can_judge)
