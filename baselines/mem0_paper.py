"""Mem0's write path as its paper tells it (arXiv:2504.19413, section 2.1, algorithm 1): facts, and what each does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from baselines.common import date_time, day, turn_line
from harness.calls import Caller, abandon, longest
from harness.index import DenseIndex
from harness.locomo.schema import Conversation, Turn
from harness.memory import Services

if TYPE_CHECKING:
    from baselines.mem0 import Mem0Config

FACTS = "baselines/prompts/mem0_facts.j2"
DECIDE = "baselines/prompts/mem0_decide.j2"
SUMMARY = "baselines/prompts/mem0_summary.j2"

MAX_FACTS = 6
"""A bound for runaway lists: two messages seldom hold four facts (our choice)."""
REPLY_TOKENS = {FACTS: 400, DECIDE: 500, SUMMARY: 300}
"""Longest reply of each prompt (our choice: twice what a thorough reply takes)."""
Operation = Literal["ADD", "UPDATE", "DELETE", "NOOP"]

_SAID = {"rule": "similar", "tag": "memory", "to": "new", "least": 0.9, "name": "id"}
_ALIKE = {**_SAID, "least": 0.5}
_OPERATION = {
    "rule": "if",
    "of": _SAID,
    "then": "NOOP",
    "else": {"rule": "if", "of": _ALIKE, "then": "UPDATE", "else": "ADD"},
}


class Fact(BaseModel):
    """maxLength is a bound for runaways, which only servers that decode by grammar are sent."""

    speaker: str = Field(json_schema_extra={"maxLength": 40})
    text: str = Field(json_schema_extra={"maxLength": 200})


class Facts(BaseModel):
    """What a pair of messages says that is worth remembering. The stand-in takes every message as a fact."""

    facts: list[Fact] = Field(
        json_schema_extra={
            "maxItems": MAX_FACTS,
            "x-scripted": {
                "rule": "each",
                "tag": "message",
                "item": {"speaker": {"rule": "attribute", "name": "speaker"}, "text": {"rule": "copy", "tag": "."}},
            },
        }
    )


class Decision(BaseModel):
    fact: int
    operation: Operation
    memory: int | None
    text: str = Field(json_schema_extra={"maxLength": 300})


class Decisions(BaseModel):
    """What every new fact does. The stand-in updates what shares half of its content words, and repeats nothing."""

    decisions: list[Decision] = Field(
        json_schema_extra={
            "x-scripted": {
                "rule": "each",
                "tag": "fact",
                "inside": True,
                "item": {
                    "fact": {"rule": "attribute", "name": "id"},
                    "operation": _OPERATION,
                    "memory": {"rule": "closest", "question": "new", "tag": "memory"},
                    "text": {"rule": "copy", "tag": "new"},
                },
            }
        }
    )


class Summary(BaseModel):
    summary: str = Field(
        json_schema_extra={"maxLength": 1500, "x-scripted": {"rule": "lead", "tag": "messages", "words": 60}}
    )


@dataclass(frozen=True)
class Pair:
    """Two messages in a row, or the one that is left over at a session's end. recent: the messages before it."""

    turns: tuple[Turn, ...]
    recent: tuple[Turn, ...]

    @property
    def date(self) -> datetime:
        return self.turns[0].date_time


@dataclass
class Memory:
    """A stored fact. turns: of every pair that made or updated it, oldest first. updated: date of the last of these.
    history: its earlier texts."""

    id: int
    owner: str
    text: str
    turns: list[Turn]
    updated: datetime
    history: list[str] = field(default_factory=list)
    deleted: bool = False

    def rewrite(self, text: str, pair: Pair) -> None:
        """A new text; the provenance of what it replaces is kept beside the pair's."""
        self.history.append(self.text)
        self.text = text
        held = {turn.dia_id for turn in self.turns}
        self.turns += [turn for turn in pair.turns if turn.dia_id not in held]
        self.updated = pair.date

    def hit(self, score: float, order: int) -> Hit:
        dia_ids = tuple(turn.dia_id for turn in self.turns)
        return Hit(self.owner, self.text, dia_ids, score, self.turns[0].date_time, self.updated, order)

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.id,
            "owner": self.owner,
            "text": self.text,
            "dia_ids": [turn.dia_id for turn in self.turns],
            "updated": self.updated.isoformat(),
            "history": self.history,
            "deleted": self.deleted,
        }


@dataclass(frozen=True)
class Hit:
    """A memory that a search found. date: of its first turn; shown: the date the reader sees; order: breaks ties."""

    owner: str
    text: str
    dia_ids: tuple[str, ...]
    score: float
    date: datetime
    shown: datetime
    order: int


def pairs_of(conversation: Conversation, recent: int) -> list[Pair]:
    """The conversation in pairs that do not cross sessions, each with the `recent` messages before it."""
    made: list[Pair] = []
    said: list[Turn] = []
    for session in conversation.sessions:
        for start in range(0, len(session.turns), 2):
            turns = session.turns[start : start + 2]
            made.append(Pair(turns, tuple(said[max(0, len(said) - recent) :])))
            said += turns
    return made


def summary_of(pair: int, every: int, lag: int) -> int:
    """Which summary extraction of the pair at this position (from 0) reads; summary k covers the first k * every
    pairs, 0 is none."""
    return max(0, pair // every - lag)


def dated_line(turn: Turn) -> str:
    return f"[{day(turn.date_time)}] {turn_line(turn)}"


class PaperMem0:
    """One conversation's memories. The result depends on the replies alone, never on their timing: extraction reads
    no memory, the summary it reads is fixed by its place, and decisions are taken in the order of the conversation."""

    def __init__(self, config: Mem0Config, services: Services):
        self.config = config
        self.services = services
        self.caller = Caller(services.chat, config.temperature, REPLY_TOKENS)
        self.memories: list[Memory] = []
        self.counts: Counter[str] = Counter()
        self._indices: dict[str, DenseIndex] = {}

    async def build(self, conversation: Conversation) -> None:
        config = self.config
        speakers = (conversation.speaker_a, conversation.speaker_b) if config.per_speaker else ("",)
        self._indices = {owner: DenseIndex(self.services.embedder.dim) for owner in speakers}
        pairs = pairs_of(conversation, config.recent)
        summaries: list[asyncio.Future[str]] = []
        needed = summary_of(len(pairs) - 1, config.summary_every, config.summary_lag) if pairs else 0
        for k in range(needed):
            said = [t for p in pairs[k * config.summary_every : (k + 1) * config.summary_every] for t in p.turns]
            summaries.append(asyncio.ensure_future(self._summarise(said, summaries[-1] if summaries else None)))
        jobs = []
        for place, pair in enumerate(pairs):
            number = summary_of(place, config.summary_every, config.summary_lag)
            jobs.append(asyncio.ensure_future(self._extract(pair, summaries[number - 1] if number else None)))
        try:
            for pair, job in zip(pairs, jobs, strict=True):
                await self._commit(pair, *await job)
                self.services.took_in(len(pair.turns))
        finally:
            await abandon([*jobs, *summaries])

    async def _summarise(self, turns: Sequence[Turn], before: asyncio.Future[str] | None) -> str:
        """The summary renewed by `turns`. Fallback "summary_kept": the old one."""
        old = await before if before else ""
        room = self.caller.room(SUMMARY)
        shown = self.caller.clip(old, room // 3)
        lines = self.caller.latest([dated_line(turn) for turn in turns], room - self.caller.chat.count_tokens(shown))
        value = await self.caller.ask(
            SUMMARY,
            Summary,
            self.services.meter,
            words=self.config.summary_words,
            summary=shown,
            messages="\n".join(lines),
        )
        if value is None or not value.summary.strip():
            self.services.meter.fallback("summary_kept")
            return old
        return " ".join(value.summary.split()[: self.config.summary_words])

    async def _extract(
        self, pair: Pair, summary: asyncio.Future[str] | None
    ) -> tuple[list[Fact], Sequence[np.ndarray]]:
        """The facts of a pair, their speakers made known, and their embeddings. Fallbacks: "facts_none" (no usable
        reply: nothing is stored, as in the official code), "unknown_speaker" (the pair's first)."""
        caller, count = self.caller, self.caller.chat.count_tokens
        room = caller.room(FACTS)
        messages = [
            {"speaker": turn.speaker, "line": caller.clip(turn_line(turn), room // (2 * len(pair.turns)))}
            for turn in pair.turns
        ]
        shown = caller.clip(await summary if summary else "", room // 4)
        left = room - count(shown) - sum(count(message["line"]) for message in messages)
        recent = caller.latest([dated_line(turn) for turn in pair.recent], left)
        value = await caller.ask(
            FACTS,
            Facts,
            self.services.meter,
            summary=shown,
            recent="\n".join(recent),
            date=date_time(pair.date),
            messages=messages,
        )
        if value is None:
            self.services.meter.fallback("facts_none")
            return [], ()
        facts: dict[tuple[str, str], Fact] = {}
        for fact in value.facts:
            if text := " ".join(fact.text.split()):
                owner = self._owner(fact.speaker, pair)
                facts.setdefault((owner, text.casefold()), Fact(speaker=owner, text=text))
        found = list(facts.values())
        return found, await self.services.embedder.encode([fact.text for fact in found]) if found else ()

    def _owner(self, name: str, pair: Pair) -> str:
        if not self.config.per_speaker:
            return ""
        for owner in self._indices:
            if owner.casefold() == name.strip().casefold():
                return owner
        self.services.meter.fallback("unknown_speaker")
        return pair.turns[0].speaker

    async def _commit(self, pair: Pair, facts: Sequence[Fact], vectors: Sequence[np.ndarray]) -> None:
        """Decide on the facts of a pair, all in one call or each in its own, and carry it out."""
        if not facts:
            return
        self.counts["facts"] += len(facts)
        each = [[place] for place in range(len(facts))]
        for group in [list(range(len(facts)))] if self.config.decide == "pair" else each:
            near = {p: self._near(facts[p].speaker, vectors[p], self.config.similar) for p in group}
            decisions = await self._decide(pair, facts, {p: found for p, found in near.items() if found})
            for p in group:
                await self._apply(pair, facts[p], vectors[p], near[p], decisions.get(p))

    def _near(self, owner: str, vector: np.ndarray, k: int) -> list[Memory]:
        return [self.memories[id] for id, _ in self._indices[owner].search(vector, k)]

    async def _decide(
        self, pair: Pair, facts: Sequence[Fact], near: Mapping[int, list[Memory]]
    ) -> dict[int, Decision | None]:
        """One decision per fact that has neighbours, by the fact's place; no neighbours anywhere: no call. The farthest
        neighbours that the window cannot hold are taken off `near`. None, and so ADD, where the reply has no decision. Fallbacks: "decide_add" (no usable reply), "undecided_add" (a fact left out),
        "extra_decision", "unknown_fact" (both ignored)."""
        if not near:
            return {}
        shown = dict(enumerate(near, start=1))
        most = longest(self.config.similar, lambda n: self._fits(self._offer(pair, facts, near, shown, n)))
        self.counts["candidates_dropped"] += sum(max(0, len(found) - most) for found in near.values())
        for found in near.values():
            del found[most:]
        offer = self._offer(pair, facts, near, shown, most)
        value = await self.caller.ask(DECIDE, Decisions, self.services.meter, facts=offer)
        if value is None:
            self.services.meter.fallback("decide_add")
            return dict.fromkeys(near)
        decided: dict[int, Decision | None] = {}
        for decision in value.decisions:
            place = shown.get(decision.fact)
            if place is None or place in decided:
                self.services.meter.fallback("unknown_fact" if place is None else "extra_decision")
            else:
                decided[place] = decision
        for place in near:
            if place not in decided:
                self.services.meter.fallback("undecided_add")
        return decided

    def _offer(
        self,
        pair: Pair,
        facts: Sequence[Fact],
        near: Mapping[int, list[Memory]],
        shown: Mapping[int, int],
        most: int,
    ) -> list[dict[str, Any]]:
        """What the prompt shows: facts numbered as in `shown`, memories by their place among the fact's own, from 1."""
        room = self.caller.room(DECIDE) // (2 * len(shown))
        return [
            {
                "id": number,
                "date": day(pair.date),
                "text": self.caller.clip(facts[place].text, room),
                "memories": [
                    {"id": rank, "date": day(memory.updated), "text": memory.text}
                    for rank, memory in enumerate(near[place][:most], start=1)
                ],
            }
            for number, place in shown.items()
        ]

    def _fits(self, offer: Iterable[Mapping[str, Any]]) -> bool:
        lines = [f'<fact id="00" date="{f["date"]}">\n<new>{f["text"]}</new>\n</fact>' for f in offer]
        lines += [f'<memory id="00" date="{m["date"]}">{m["text"]}</memory>' for f in offer for m in f["memories"]]
        return self.caller.fits("\n".join(lines), self.caller.room(DECIDE))

    async def _apply(
        self, pair: Pair, fact: Fact, vector: np.ndarray, near: Sequence[Memory], decision: Decision | None
    ) -> None:
        """Carry a decision out. Fallbacks: "unknown_memory_add" (the memory was not offered, or is gone since),
        "empty_update" (the fact's own text)."""
        operation = decision.operation if decision else "ADD"
        if decision is None or operation == "ADD":
            self._add(pair, fact, vector)
            return
        if operation == "NOOP":
            self.counts["noops"] += 1
            return
        number = decision.memory or 0
        memory = near[number - 1] if 1 <= number <= len(near) else None
        if memory is None or memory.deleted:
            self.services.meter.fallback("unknown_memory_add")
            self._add(pair, fact, vector)
        elif operation == "DELETE":
            memory.deleted = True
            self._indices[memory.owner].remove(memory.id)
            self.counts["deletes"] += 1
        else:
            await self._update(memory, pair, fact, decision.text)

    def _add(self, pair: Pair, fact: Fact, vector: np.ndarray) -> None:
        memory = Memory(len(self.memories), fact.speaker, fact.text, list(pair.turns), pair.date)
        self.memories.append(memory)
        self._indices[memory.owner].add(memory.id, vector)
        self.counts["adds"] += 1

    async def _update(self, memory: Memory, pair: Pair, fact: Fact, text: str) -> None:
        text = " ".join(text.split())
        if not text:
            self.services.meter.fallback("empty_update")
            text = fact.text
        memory.rewrite(text, pair)
        self._indices[memory.owner].replace(memory.id, (await self.services.embedder.encode([text]))[0])
        self.counts["updates"] += 1

    async def search(self, text: str) -> list[Hit]:
        """The top_k memories of every store."""
        vector = (await self.services.embedder.encode([text]))[0]
        return [
            self.memories[id].hit(score, id)
            for index in self._indices.values()
            for id, score in index.search(vector, self.config.top_k)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Every memory ever stored, in the order of their making."""
        return [memory.row() for memory in self.memories]
