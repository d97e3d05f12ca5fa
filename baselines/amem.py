"""A-MEM (arXiv:2502.12110): a network of notes that link and rewrite one another as new ones come in."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from baselines.common import TOKENS_PER_WORD, date_time, frame_tokens, turn_line, word_count
from harness.calls import Caller, abandon, longest
from harness.index import DenseIndex
from harness.llm.types import Meter
from harness.llm.words import names_and_words
from harness.locomo.schema import Conversation, Turn
from harness.memory import CallPlan, DataShape, Evidence, EvidenceItem, MemoryStats, MemorySystem, Query, Services
from harness.spec import REFUSE_UNKNOWN, Positive, Temperature, identity

NOTE = "baselines/prompts/amem_note.j2"
EVOLVE = "baselines/prompts/amem_evolve.j2"
QUERY = "baselines/prompts/amem_query.j2"

MAX_TERMS = 12
"""A bound for runaway lists; the prompts ask for at most 8."""
PerCategory = Annotated[tuple[Positive, ...], Field(min_length=5, max_length=5)]


@dataclass(frozen=True, kw_only=True)
class AMemConfig:
    __pydantic_config__ = REFUSE_UNKNOWN

    temperature: Temperature = identity(default=0.0)
    """Of every memory and query call. Our choice: a memory is then a function of its replies (the official code: 0.7)."""
    neighbours: Positive = identity(default=5)
    """Nearest notes a new one is compared with (official code: 5)."""
    index_text: Literal["full", "paper"] = identity(default="full")
    """full: content, context, keywords and tags (arXiv:2502.12110, eq. 3, and official code). paper: context and keywords alone."""
    rebuild_every: Positive = identity(default=100)
    """Evolved notes between two re-embeddings of what neighbours' updates changed (official code: 100)."""
    always_fresh: bool = identity(default=False)
    """True: an updated neighbour is embedded anew at once. Our choice: measures what the stale index costs."""
    k: Positive = identity(default=10)
    """Hits a question gets, their linked notes not counted (arXiv:2502.12110, section 4)."""
    k_by_category: PerCategory | None = identity(default=None)
    """k for each of the categories 1 to 5 in its place; 40, 40, 50, 50, 40 with the GPT-4o models (Table 8)."""

    def k_for(self, category: int) -> int:
        if self.k_by_category and 1 <= category <= len(self.k_by_category):
            return self.k_by_category[category - 1]
        return self.k


def _rule(rule: str, **parts: Any) -> dict[str, Any]:
    return {"x-scripted": {"rule": rule, **parts}}


def _terms(tag: str, most: int, **extra: Any) -> Any:
    return Field(json_schema_extra={"maxItems": MAX_TERMS, **_rule("keywords", tag=tag, max=most), **extra})


_ALIKE = {"rule": "similar", "tag": "neighbour", "to": "new", "least": 0.25, "name": "id"}


class Constructed(BaseModel):
    """A turn as a note."""

    keywords: list[str] = _terms("turn", 8)
    context: str = Field(json_schema_extra=_rule("copy", tag="turn"))
    tags: list[str] = _terms("turn", 3)


class Evolution(BaseModel):
    """What a new note changes. connections: neighbours by number from 1; neighbour_*: by position."""

    should_evolve: bool = Field(json_schema_extra=_rule("any", of=_ALIKE))
    actions: list[Literal["strengthen", "update_neighbor"]] = Field(
        json_schema_extra=_rule("const", value=["strengthen", "update_neighbor"])
    )
    connections: list[int] = Field(json_schema_extra={"x-scripted": _ALIKE})
    new_tags: list[str] = _terms("own_tags", MAX_TERMS)
    neighbour_contexts: list[str] = Field(
        json_schema_extra=_rule("each", tag="old_context", item={"rule": "copy", "tag": "."})
    )
    neighbour_tags: list[list[str]] = Field(
        json_schema_extra=_rule("each", tag="old_tags", item={"rule": "keywords", "tag": ".", "max": MAX_TERMS})
    )


class Keywords(BaseModel):
    """A question as search words."""

    keywords: list[str] = Field(
        json_schema_extra={"maxItems": MAX_TERMS, **_rule("entities", tag="question", max=MAX_TERMS)}
    )


@dataclass
class Note:
    """A note. `id` is the turn's place in the conversation. links: older notes, in the order they were linked."""

    id: int
    turn: Turn
    context: str
    keywords: tuple[str, ...]
    tags: tuple[str, ...]
    links: list[int] = field(default_factory=list)

    def index_text(self, kind: str) -> str:
        if kind == "paper":
            return f"{self.context} keywords: {', '.join(self.keywords)}"
        return (
            f"{turn_line(self.turn)} context: {self.context} keywords: {', '.join(self.keywords)} "
            f"tags: {', '.join(self.tags)}"
        )

    def shown(self) -> tuple[str, int]:
        """As the reader sees it, and the words of it after which the turn is wholly shown. A context that repeats
        the turn word by word is not shown twice."""
        line = f"[{date_time(self.turn.date_time)}] {turn_line(self.turn)}"
        parts = [] if self.context == turn_line(self.turn) else [f"context: {self.context}"]
        parts.append(f"keywords: {', '.join(self.keywords)}")
        parts.append(f"tags: {', '.join(self.tags)}")
        return f"{line} ({'; '.join(parts)})", word_count(line)

    def prompt_fields(self) -> dict[str, str]:
        return {
            "date": date_time(self.turn.date_time),
            "line": turn_line(self.turn),
            "context": self.context,
            "keywords": ", ".join(self.keywords),
            "tags": ", ".join(self.tags),
        }


class AMem(MemorySystem):
    """A-MEM, arXiv:2502.12110.

    State: one note a turn (content, context, keywords, tags, links to older notes) and an index of their embeddings.
    Calls: 2 a turn (note construction; evolution against the nearest notes, asked for the first note too, which has
    none); 0 a session; 1 a question (its keywords), and the reader's. Evidence: exact, one turn a note; an item's
    paths say "hit", "link" or, for a hit that a better hit links to as well, both.

    Construction reads its turn alone, so all of a conversation's run at once; evolution reads what stands and runs
    in order. The result depends on the replies, never on their timing.

    The index is stale as in the official code: a new note is embedded as it is after its own evolution, but a
    neighbour whose context or tags were overwritten keeps its old vector until the rebuild after every
    `rebuild_every` evolved notes (notes whose reply said should_evolve); there is none at the end.

    Deviations from the paper, all as in the official code: links and evolution are one call over all neighbours (the
    paper prompts for links and for each neighbour apart); the search is by keywords that a call draws from the
    question (the paper embeds the question); the index goes stale. From the official code: the nearest notes are
    searched with the new note's index text (section 3.2), there with its content alone; neighbours are numbered from
    1 as offered, not by their place in the whole memory, and a number or position outside is ignored and counted
    where the code fails or rewrites another note; an empty context or list of tags in a reply leaves the old one
    standing; contexts are applied also where the list of tags is shorter; the message's date is part of note
    construction (eq. 2); a linked note is shown once, behind its best hit, and not again if it is a hit itself;
    search words are a list, joined by commas; temperature 0.
    """

    Config = AMemConfig
    evidence_kind = "exact"
    prompt_files = (NOTE, EVOLVE, QUERY)
    config: AMemConfig

    def __init__(self, config: AMemConfig, services: Services):
        super().__init__(config, services)
        # Longest replies, our choice: twice what a thorough one takes, so that only runaway text is cut.
        lengths = {NOTE: 256, EVOLVE: 160 + 96 * config.neighbours, QUERY: 128}
        self._caller = Caller(services.chat, config.temperature, lengths)
        self._index: DenseIndex | None = None
        self.notes: list[Note] = []
        self.counts: Counter[str] = Counter()
        self._stale: dict[int, None] = {}

    async def ingest(self, conversation: Conversation) -> None:
        index = DenseIndex(self.services.embedder.dim)
        jobs = [asyncio.ensure_future(self._construct(id, turn)) for id, turn in enumerate(conversation.turns)]
        try:
            for job in jobs:
                note, vector = await job
                await self._commit(note, vector, index)
                self.services.took_in(1)
        finally:
            await abandon(jobs)
        self._index = index

    async def _construct(self, id: int, turn: Turn) -> tuple[Note, np.ndarray]:
        """Call 1. Fallback "note_raw": the turn as its own context, its names and content words as keywords."""
        line = self._caller.clip(turn_line(turn), self._caller.room(NOTE))
        value = await self._caller.ask(
            NOTE, Constructed, self.services.meter, date=date_time(turn.date_time), turn=line
        )
        if value is None:
            self.services.meter.fallback("note_raw")
            note = Note(id, turn, turn_line(turn), names_and_words(turn.full_text)[:MAX_TERMS], ())
        else:
            context = " ".join(value.context.split()) or turn_line(turn)
            note = Note(id, turn, context, _clean(value.keywords), _clean(value.tags))
        return note, await self._embed(note)

    async def _commit(self, note: Note, vector: np.ndarray, index: DenseIndex) -> None:
        """Call 2, what it changes, and the note's place in the index. Fallback "evolve_none": nothing changes."""
        near = [self.notes[id] for id, _ in index.search(vector, self.config.neighbours)]
        near, inputs = self._offered(note, near)
        value = await self._caller.ask(EVOLVE, Evolution, self.services.meter, **inputs)
        if value is None:
            self.services.meter.fallback("evolve_none")
        evolved = value is not None and value.should_evolve
        if evolved and "strengthen" in value.actions and self._strengthen(note, near, value):
            vector = await self._embed(note)
        if evolved and "update_neighbor" in value.actions:
            self._update(near, value)
        self.notes.append(note)
        index.add(note.id, vector)
        self.counts["evolved"] += evolved
        due = evolved and self.counts["evolved"] % self.config.rebuild_every == 0
        if due or self.config.always_fresh:
            await self._refresh(index)
            self.counts["rebuilds"] += due and not self.config.always_fresh

    def _offered(self, note: Note, near: Sequence[Note]) -> tuple[list[Note], dict[str, Any]]:
        """The neighbours that fit into the window, nearest first, and the prompt's inputs."""
        caller, room = self._caller, self._caller.room(EVOLVE)
        new = note.prompt_fields()
        fields = [neighbour.prompt_fields() for neighbour in near]

        def size(n: int) -> bool:
            texts = [text for values in [new, *fields[:n]] for text in values.values()]
            # 40 tokens frame a neighbour: its tags and the names of its fields
            return caller.fits("\n".join(texts), room - 40 * n)

        kept = longest(len(near), size)
        self.counts["neighbours_dropped"] += len(near) - kept
        if kept == 0 and not size(0):
            new = {
                **new,
                "context": caller.clip(new["context"], room // 4),
                "line": caller.clip(new["line"], room // 4),
            }
        return list(near[:kept]), {"new": new, "neighbours": fields[:kept]}

    def _strengthen(self, note: Note, near: Sequence[Note], value: Evolution) -> bool:
        """Links to neighbours and the note's own tags. Returns whether the tags changed."""
        for number in dict.fromkeys(value.connections):
            if 1 <= number <= len(near):
                note.links.append(near[number - 1].id)
            else:
                self.counts["indices_ignored"] += 1
        tags = _clean(value.new_tags) or note.tags
        changed = tags != note.tags
        note.tags = tags
        return changed

    def _update(self, near: Sequence[Note], value: Evolution) -> None:
        """The neighbours' context and tags by position; their vectors are stale from now on."""
        contexts, tags = value.neighbour_contexts, value.neighbour_tags
        self.counts["indices_ignored"] += max(0, len(contexts) - len(near)) + max(0, len(tags) - len(near))
        for place, neighbour in enumerate(near):
            before = neighbour.context, neighbour.tags
            if place < len(contexts):
                neighbour.context = " ".join(contexts[place].split()) or neighbour.context
            if place < len(tags):
                neighbour.tags = _clean(tags[place]) or neighbour.tags
            if (neighbour.context, neighbour.tags) != before:
                self.counts["neighbours_updated"] += 1
                self._stale[neighbour.id] = None

    async def _refresh(self, index: DenseIndex) -> None:
        """Embed anew what updates changed since the last time: equal to embedding every note anew."""
        stale, self._stale = list(self._stale), {}
        texts = [self.notes[id].index_text(self.config.index_text) for id in stale]
        for id, vector in zip(stale, await self.services.embedder.encode(texts), strict=True):
            index.replace(id, vector)

    async def _embed(self, note: Note) -> np.ndarray:
        return (await self.services.embedder.encode([note.index_text(self.config.index_text)]))[0]

    async def recall(self, query: Query, meter: Meter) -> Evidence:
        """Call 1, then the hits of its keywords, each followed by its linked notes. Changes nothing.

        Fallback "query_raw": the question itself is searched with.
        """
        if self._index is None:
            raise RuntimeError("A-MEM: nothing has been ingested")
        if not self.notes:
            return Evidence(context="", trace={"keywords": [], "hits": 0, "links": 0, "dropped": 0})
        question = self._caller.clip(query.text, self._caller.room(QUERY))
        value = await self._caller.ask(QUERY, Keywords, meter, question=question)
        keywords = _clean(value.keywords) if value else ()
        if not keywords:
            meter.fallback("query_raw")
        (vector,) = await self.services.embedder.encode([", ".join(keywords) or query.text])
        found = self._with_links(self._index.search(vector, self.config.k_for(query.category)))
        texts = [self.notes[id].shown()[0] for id, _, _ in found]
        kept = longest(len(texts), lambda n: self._caller.fits("\n".join(texts[:n]), self.services.context_tokens))
        items = tuple(self._item(rank, *one) for rank, one in enumerate(found[:kept], start=1))
        hits = sum("hit" in item.paths for item in items)
        trace = {
            "keywords": list(keywords),
            "hits": hits,
            "links": len(items) - hits,
            "dropped": len(found) - kept,
        }
        return Evidence(context="\n".join(texts[:kept]), items=items, trace=trace)

    def _with_links(self, hits: Sequence[tuple[int, float]]) -> list[tuple[int, float, tuple[str, ...]]]:
        """(note, score, paths) as shown: a linked note has the score of the hit it follows."""
        direct = {id for id, _ in hits}
        linked = {other for id, _ in hits for other in self.notes[id].links}
        shown: dict[int, tuple[float, tuple[str, ...]]] = {}
        for id, score in hits:
            shown[id] = (score, ("hit", "link") if id in linked else ("hit",))
            for other in self.notes[id].links:
                if other not in direct:
                    shown.setdefault(other, (score, ("link",)))
        return [(id, score, paths) for id, (score, paths) in shown.items()]

    def _item(self, rank: int, id: int, score: float, paths: tuple[str, ...]) -> EvidenceItem:
        turn = self.notes[id].turn
        text, end = self.notes[id].shown()
        return EvidenceItem(text, (turn.dia_id,), rank, score, turn.date_time, paths, ends=(end,))

    def stats(self) -> MemoryStats:
        links = sum(len(note.links) for note in self.notes)
        names = ("evolved", "neighbours_updated", "rebuilds", "indices_ignored", "neighbours_dropped")
        return MemoryStats(
            notes=len(self.notes),
            links=links,
            appends=len(self.notes),
            largest=min(1, len(self.notes)),
            extra={name: self.counts[name] for name in names} | {"stale": len(self._stale)},
        )

    def export(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        """notes; links are ids of older notes; stale says that the index still holds an older text."""
        return {
            "notes": [
                {
                    "id": note.id,
                    "dia_ids": [note.turn.dia_id],
                    "date": note.turn.date_time.isoformat(),
                    "content": turn_line(note.turn),
                    "context": note.context,
                    "keywords": list(note.keywords),
                    "tags": list(note.tags),
                    "links": list(note.links),
                    "stale": note.id in self._stale,
                }
                for note in self.notes
            ]
        }

    @classmethod
    def plan(cls, config: AMemConfig, shape: DataShape, *, can_judge: bool) -> CallPlan:
        """Exactly 2 calls a turn and 1 a question. Tokens: typical replies (our choice), notes of the turn's own
        length beside what construction adds."""
        turn = TOKENS_PER_WORD * shape.words / max(1, shape.turns)
        ks = config.k_by_category or (config.k,)
        memory, query, context = [], [], []
        for added, evolution, links in ((50, 25, 0), (110, 420, config.neighbours)):
            note = turn + added
            each = frame_tokens(NOTE) + turn + added + frame_tokens(EVOLVE) + (1 + config.neighbours) * note + evolution
            memory.append(int(shape.turns * each))
            query.append(int(frame_tokens(QUERY) + (20, 50)[links > 0]))
            context.append(int(min((max(ks) if links else min(ks)) * (1 + links), shape.turns) * note))
        calls = 2 * shape.turns
        return CallPlan((calls, calls), _pair(memory), (1, 1), _pair(query), _pair(context))


def _clean(terms: Iterable[str]) -> tuple[str, ...]:
    """Terms with white space collapsed, empty and repeated ones left out, MAX_TERMS at most."""
    return tuple(dict.fromkeys(text for term in terms if (text := " ".join(term.split()))))[:MAX_TERMS]


def _pair(values: Sequence[int]) -> tuple[int, int]:
    return values[0], values[1]
