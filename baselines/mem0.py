"""Mem0 (arXiv:2504.19413): a memory of facts that are added, updated and deleted as the conversation goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from baselines.common import TOKENS_PER_WORD, date_time, frame_tokens
from baselines.mem0_official import FACTS as OFFICIAL_FACTS
from baselines.mem0_official import UPDATE_FRAME_TOKENS, OfficialMem0, require_package
from baselines.mem0_paper import DECIDE, FACTS, MAX_FACTS, SUMMARY, Hit, PaperMem0
from harness.calls import longest
from harness.llm.types import Meter
from harness.locomo.schema import Conversation
from harness.memory import CallPlan, DataShape, Evidence, EvidenceItem, MemoryStats, MemorySystem, Query, Services
from harness.spec import REFUSE_UNKNOWN, Count, Positive, Temperature, identity

FACT_TOKENS, DATE_TOKENS = 20, 12
"""Of a short fact, and of its date, for plans (our choice); the longest facts repeat their message."""


@dataclass(frozen=True, kw_only=True)
class Mem0Config:
    """Options marked [paper] are read by impl=paper alone; the official package has its own, hard-coded."""

    __pydantic_config__ = REFUSE_UNKNOWN

    impl: Literal["paper", "official"] = identity(default="paper")
    """paper: ours, from the paper's description. official: the published package mem0ai 1.0.x (make setup-mem0)."""
    per_speaker: bool = identity(default=True)
    """One store per speaker, as in the paper's own evaluation; False: both speakers in one store."""
    top_k: Positive = identity(default=30)
    """Memories a question gets from each store (the paper's evaluation code: 30 of each speaker)."""
    temperature: Temperature = identity(default=0.0)
    """Of every memory call. Our choice: a memory is then a function of its replies."""
    recent: Count = identity(default=10)
    """[paper] m: earlier messages that extraction sees (section 3.3)."""
    similar: Positive = identity(default=10)
    """[paper] s: stored memories a new fact is compared with (section 3.3; the package: 5)."""
    decide: Literal["pair", "fact"] = identity(default="pair")
    """[paper] pair: all facts of a pair are decided in one call, each against its own s memories (the official code's
    economy). fact: one call for each, which sees what the facts before it did (algorithm 1 to the letter)."""
    summary_every: Positive = identity(default=5)
    """[paper] Pairs between two refreshes of the summary. Our choice: m messages, so that what leaves them is summed up."""
    summary_lag: Count = identity(default=1)
    """[paper] Refreshes that extraction is behind. Our choice for "in the background": while five pairs are read, the
    five before them are being summed up; the lag is fixed, so that the result does not depend on timing."""
    summary_words: Positive = identity(default=150)
    """[paper] Most words of the summary. Our choice."""


class Mem0(MemorySystem):
    """Mem0 of arXiv:2504.19413, dense variant (no graph).

    State: facts, each with its text, its speaker's store, the turns it came from and the date of the last change; one
    exact vector index per store. Writing goes in pairs of messages within a session: (1) extraction sees a rolling
    summary, the last m messages and the pair, and gives facts; (2) each fact is held against its s most similar
    memories and is added, updates one, deletes one, or does nothing; beside it the summary is refreshed every
    `summary_every` pairs. Reading: the top_k memories of each store, by cosine, without a call.

    Calls, impl=paper: per pair 1 extraction, at most 1 decision (`decide: fact`: at most 1 a fact; none while nothing is
    stored yet), and 1 summary in `summary_every` pairs; per question none beside the reader's. impl=official: 1 or 2 per
    pair and store. Evidence: exact per batch: a memory stands for the turns of the pair it was taken from; an update
    keeps the turns of what it replaces and adds its own.

    Deviations from the paper: facts of one pair share a decision call (`decide`); extraction names the speaker of each
    fact, so that two stores cost no second extraction; the "background" of the summary is a fixed lag. From both: the
    session's date stands in every prompt (the package's own prompts anchor on the day they are run), and updates keep
    provenance. What impl=official deviates in: see baselines/mem0_official.py. Wording of all our prompts is ours.
    """

    Config = Mem0Config
    evidence_kind = "exact"
    prompt_files = (FACTS, DECIDE, SUMMARY, OFFICIAL_FACTS)
    config: Mem0Config

    def __init__(self, config: Mem0Config, services: Services):
        super().__init__(config, services)
        self._memory: PaperMem0 | OfficialMem0 | None = None

    async def ingest(self, conversation: Conversation) -> None:
        """Build the memory. EndpointError passes through; ConfigError: impl=official without the package."""
        memory = (PaperMem0 if self.config.impl == "paper" else OfficialMem0)(self.config, self.services)
        await memory.build(conversation)
        self._memory = memory

    async def recall(self, query: Query, meter: Meter) -> Evidence:
        """The memories nearest to the question, best first in `items`, by store in `context`."""
        hits = await self._built().search(query.text)
        ranked = sorted(hits, key=lambda hit: (-hit.score, hit.order))
        kept = longest(len(ranked), lambda n: self._fits(_context(ranked[:n], hits)))
        items = tuple(
            EvidenceItem(_line(hit), hit.dia_ids, rank, hit.score, hit.date, (hit.owner or "all",))
            for rank, hit in enumerate(ranked[:kept], start=1)
        )
        trace = {"found": len(ranked), "dropped": len(ranked) - kept}
        return Evidence(_context(ranked[:kept], hits), items, trace)

    def _fits(self, text: str) -> bool:
        tokens = self.services.context_tokens
        return len(text) <= tokens or self.services.chat.count_tokens(text) <= tokens

    def _built(self) -> PaperMem0 | OfficialMem0:
        if self._memory is None:
            raise RuntimeError("Mem0: nothing has been ingested")
        return self._memory

    def stats(self) -> MemoryStats:
        """merges: updates. merged_turns: turns of memories that hold more than one pair, by their updates."""
        memory = self._built()
        rows = [row for row in memory.rows() if not row["deleted"]]
        sizes = [len(row["dia_ids"]) for row in rows]
        merged = {dia_id for row in rows if len(row["dia_ids"]) > 2 for dia_id in row["dia_ids"]}
        return MemoryStats(
            notes=len(rows),
            merges=memory.counts["updates"],
            appends=memory.counts["adds"],
            largest=max(sizes, default=0),
            merged_turns=len(merged),
            extra={name: count for name, count in sorted(memory.counts.items()) if name not in ("updates", "adds")},
        )

    def export(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        """memories: every fact that was ever stored, with its history; deleted ones are marked."""
        return {"memories": self._built().rows()}

    @classmethod
    def table_notices(cls, config: Mem0Config, *, can_judge: bool) -> tuple[str, ...]:
        if config.impl == "paper":
            return ()
        return (f"mem0: the published package, mem0ai {require_package()}",)

    @classmethod
    def plan(cls, config: Mem0Config, shape: DataShape, *, can_judge: bool) -> CallPlan:
        """Exact extractions; decisions for no pair, or for every one that can have neighbours. Tokens: short facts in half
        as many neighbours as allowed, or whole messages in all of them."""
        if config.impl == "official":
            require_package()
        pairs = sum((len(words) + 1) // 2 for words in shape.turn_words)
        message = TOKENS_PER_WORD * shape.words / max(1, shape.turns)
        stores = 2 if config.per_speaker else 1
        # How pairs fall on conversations is not known here: each may leave one unfinished period, and is `lag` behind.
        periods = int(pairs / config.summary_every) - shape.conversations * config.summary_lag
        calls, tokens, context = [], [], []
        for share, spread, reply in ((0.5, -1, FACT_TOKENS), (1.0, 1, max(message, FACT_TOKENS))):
            fact = reply + DATE_TOKENS
            context.append(int(share * stores * config.top_k * fact))
            if config.impl == "official":
                adds = stores * pairs
                updates = adds if share == 1 else 0
                read = frame_tokens(OFFICIAL_FACTS) + 2 * message + 2 * reply
                decide = UPDATE_FRAME_TOKENS + 14 * fact
                calls.append(adds + updates)
                tokens.append(int(adds * read + updates * decide))
                continue
            decisions = 0 if share < 1 else pairs * (MAX_FACTS if config.decide == "fact" else 1)
            summaries = max(0, periods + spread * shape.conversations)
            seen = 2 + config.recent * share
            read = frame_tokens(FACTS) + seen * (message + DATE_TOKENS) + share * config.summary_words + 2 * reply
            decide = frame_tokens(DECIDE) + (4 + 2 * config.similar) * fact
            renew = frame_tokens(SUMMARY) + (2 * config.summary_words + 2 * config.summary_every * message) * share
            calls.append(pairs + decisions + summaries)
            tokens.append(int(pairs * read + decisions * decide + summaries * renew))
        return CallPlan(tuple(calls), tuple(tokens), (0, 0), (0, 0), tuple(context))


def _line(hit: Hit) -> str:
    return f"[{date_time(hit.shown)}] {hit.text}"


def _context(kept: Sequence[Hit], found: Sequence[Hit]) -> str:
    """The memories kept, best first under the heading of their store; one store needs no heading."""
    parts = []
    for owner in dict.fromkeys(hit.owner for hit in found):
        lines = [_line(hit) for hit in kept if hit.owner == owner]
        if lines:
            parts.append("\n".join([f"What is remembered of {owner}:", *lines] if owner else lines))
    return "\n\n".join(parts)
