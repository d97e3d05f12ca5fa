"""MemoryBank (arXiv:2305.10250): dialogue, daily summaries and portraits, and a forgetting curve over all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from baselines.common import TOKENS_PER_WORD, date_time, day, frame_tokens, turn_line, word_count
from baselines.memorybank_store import Day, Document, Forgetting, Pair, document_lines, documents_of, extend, load
from harness.calls import Caller, longest, together
from harness.index import DenseIndex
from harness.llm.types import Meter
from harness.locomo.schema import Conversation, Session
from harness.memory import CallPlan, DataShape, Evidence, EvidenceItem, MemoryStats, MemorySystem, Query, Services
from harness.spec import REFUSE_UNKNOWN, Count, Positive, Temperature, identity

DAY_EVENTS = "baselines/prompts/memorybank_day_events.j2"
DAY_PORTRAIT = "baselines/prompts/memorybank_day_portrait.j2"
ALL_EVENTS = "baselines/prompts/memorybank_all_events.j2"
ALL_PORTRAITS = "baselines/prompts/memorybank_all_portraits.j2"
REPLY_TOKENS = {DAY_EVENTS: 256, DAY_PORTRAIT: 256, ALL_EVENTS: 384, ALL_PORTRAITS: 320}
"""Longest reply of each prompt. Our choice: twice what a thorough one takes, so that only runaway text is cut."""

NOTICES = {
    "paper": "memorybank forgets by its paper's curve, R = exp(-t/S): with S = 1 about 3.5% of LoCoMo-10's turns survive "
    "to the last session date (memory.forgetting=off keeps all)",
    "official_code": "memorybank forgets as its official code computes, R = exp(-t S/5): about 7% of LoCoMo-10's turns "
    "survive to the last session date (the code has forgetting off by default)",
    "off": "memorybank: forgetting off (the official code's default, not the paper's method)",
}


@dataclass(frozen=True, kw_only=True)
class MemoryBankConfig:
    __pydantic_config__ = REFUSE_UNKNOWN

    temperature: Temperature = identity(default=0.0)
    """Of every memory call. Our choice: a memory is then a function of its replies (the official code: 0.7)."""
    forgetting: Forgetting = identity(default="paper")
    """paper: R = exp(-t/S), its forgetting curve. official_code: R = exp(-t S/5), by which strong memories fade faster. off: R = 1, the official code's default."""
    k: Positive = identity(default=3)
    """Documents a question is answered from (default of the official module; 2 on its command line)."""
    extend_chars: Count = identity(default=200)
    """A hit grows by adjacent documents of its date up to this many characters together (official code: 200)."""


def _rule(rule: str, **parts: Any) -> Any:
    return Field(json_schema_extra={"x-scripted": {"rule": rule, **parts}})


class DayEvents(BaseModel):
    summary: str = _rule("lead", tag="session", words=60)


class DayPortrait(BaseModel):
    personality: str = _rule("lead", tag="session", words=30)
    strategy: str = _rule("const", value="Be attentive.")


class AllEvents(BaseModel):
    summary: str = _rule("lead", tag="summaries", words=100)


class AllPortraits(BaseModel):
    personality: str = _rule("lead", tag="portraits", words=60)
    strategy: str = _rule("const", value="Be attentive.")


class MemoryBank(MemorySystem):
    """MemoryBank, arXiv:2305.10250.

    State: turns in pairs by session date, each with strength S = 1 and last recall = its date; per date an event
    summary, a portrait of the speakers and a strategy for replying; one overall summary and portrait; an index of the
    pairs (the date in front) and one summary document a date.
    Calls: 0 a turn, 2 a session date, 2 a conversation, 0 a question beside the reader's. Evidence: exact for pairs;
    a summary document and the overall texts hold no turns (the latter stand in the context, not among the items).

    Similarity: the official code ranks by L2 distance; with unit vectors that ranks as the cosine does
    (|a - b|^2 = 2 - 2 cos), which is what is searched and reported.

    Forgetting: at the end of ingestion the memory is loaded as of the last session's date. A pair is deleted unless
    a number drawn from a hash of (seed, conversation, its first dia_id) is below its retention R; a date's summary
    goes with its last pair; the overall texts, made before, stay. Paper and official code differ (see `forgetting`).

    Deviations. Recall strengthens (`Pair.recalled`: S += 1, t = 0), but every question sees the memory as of the end
    of ingestion: what a recall strengthens is reported in its trace and not carried to the next question, so that
    questions neither depend on one another nor on timing. As no recall lies between writing and loading, S is 1 at
    load. LoCoMo has two equal speakers and no assistant: a pair is any two turns in a row of a session, and the
    portraits are of both. A session is a date of its own, even where two fall on one day. The strategy is kept and
    exported but not shown to the reader, whom the protocol tells how to reply. Overall texts take at most a quarter
    of the reader's budget each. A document is shown once, with the best hit that brings it; hits stand in order of
    time. Hits are not merged across the gap between two hits' extensions.
    """

    Config = MemoryBankConfig
    evidence_kind = "exact"
    prompt_files = (DAY_EVENTS, DAY_PORTRAIT, ALL_EVENTS, ALL_PORTRAITS)
    config: MemoryBankConfig

    def __init__(self, config: MemoryBankConfig, services: Services):
        super().__init__(config, services)
        self._caller = Caller(services.chat, config.temperature, REPLY_TOKENS)
        self._index: DenseIndex | None = None
        self.counts: Counter[str] = Counter()
        self.written: list[Day] = []
        """Every date, before forgetting."""
        self.days: list[Day] = []
        """What is left of them."""
        self.summary = ""
        self.personality = ""
        self.strategy = ""
        self._documents: list[Document] = []
        self._now = datetime.min

    async def ingest(self, conversation: Conversation) -> None:
        speakers = f"{conversation.speaker_a}, {conversation.speaker_b}"
        self.written = await together(self._write(session, speakers) for session in conversation.sessions)
        index = DenseIndex(self.services.embedder.dim)
        if self.written:
            self._now = self.written[-1].date
            self.days = load(
                self.written,
                self.config.forgetting,
                self._now,
                seed=self.services.seed,
                sample_id=conversation.sample_id,
            )
            self._documents = [document for one in self.days for document in documents_of(one)]
            await together([self._overall_events(speakers), self._overall_portrait(speakers), self._fill(index)])
        self._index = index

    async def _fill(self, index: DenseIndex) -> None:
        vectors = await self.services.embedder.encode([document.text for document in self._documents])
        for place, vector in enumerate(vectors):
            index.add(place, vector)

    async def _write(self, session: Session, speakers: str) -> Day:
        """One date. Fallbacks "day_events_missing", "day_portrait_missing": it has none."""
        text = "\n".join(turn_line(turn) for turn in session.turns)
        events, portrait = await together(
            self._ask(
                prompt, schema, session=self._clipped(text, prompt), date=day(session.date_time), speakers=speakers
            )
            for prompt, schema in ((DAY_EVENTS, DayEvents), (DAY_PORTRAIT, DayPortrait))
        )
        self.services.took_in(len(session.turns))
        pairs = [session.turns[start : start + 2] for start in range(0, len(session.turns), 2)]
        return Day(
            session.number,
            session.date_time,
            tuple(Pair(turns, session.date_time) for turns in pairs),
            self._text(events, "summary", "day_events_missing"),
            self._text(portrait, "personality", "day_portrait_missing"),
            _flat(portrait.strategy) if portrait else None,
        )

    async def _overall_events(self, speakers: str) -> None:
        """Fallback "all_events_missing": no overall summary."""
        lines = [f"{day(one.date)}: {one.summary}" for one in self.written if one.summary]
        summaries = self._latest(lines, ALL_EVENTS)
        value = await self._ask(ALL_EVENTS, AllEvents, summaries=summaries, speakers=speakers) if lines else None
        self.summary = self._text(value, "summary", "all_events_missing") or ""

    async def _overall_portrait(self, speakers: str) -> None:
        """Fallback "all_portraits_missing": no overall portrait."""
        lines = [f"{day(one.date)}: {one.personality} {one.strategy}" for one in self.written if one.personality]
        portraits = self._latest(lines, ALL_PORTRAITS)
        value = await self._ask(ALL_PORTRAITS, AllPortraits, portraits=portraits, speakers=speakers) if lines else None
        self.personality = self._text(value, "personality", "all_portraits_missing") or ""
        self.strategy = _flat(value.strategy) if value else ""

    async def _ask(self, prompt: str, schema: type[BaseModel], **inputs: str) -> Any:
        return await self._caller.ask(prompt, schema, self.services.meter, **inputs)

    def _text(self, value: Any, name: str, fallback: str) -> str | None:
        text = _flat(getattr(value, name)) if value else ""
        if not text:
            self.services.meter.fallback(fallback)
        return text or None

    def _clipped(self, text: str, prompt: str) -> str:
        shown = self._caller.clip(text, self._caller.room(prompt))
        self.counts["texts_cut"] += shown != text
        return shown

    def _latest(self, lines: Sequence[str], prompt: str) -> str:
        kept = self._caller.latest(lines, self._caller.room(prompt))
        self.counts["texts_cut"] += len(kept) < len(lines)
        return "\n".join(kept)

    async def recall(self, query: Query, meter: Meter) -> Evidence:
        """The k nearest documents, extended, behind the overall texts. No call; changes nothing."""
        if self._index is None:
            raise RuntimeError("MemoryBank: nothing has been ingested")
        shown: set[int] = set()
        found: list[tuple[list[int], float]] = []
        if self._documents:
            (vector,) = await self.services.embedder.encode([query.text])
            for hit, score in self._index.search(vector, self.config.k):
                places = [p for p in extend(self._documents, hit, self.config.extend_chars) if p not in shown]
                if hit not in shown:
                    found.append((places, score))
                    shown.update(places)
        items = [self._item(rank, places, score) for rank, (places, score) in enumerate(found, start=1)]
        budget, head = self.services.context_tokens, self._head()

        def context(n: int) -> str:
            order = sorted(range(n), key=lambda rank: found[rank][0])
            return "\n".join([*head, *(items[rank].text for rank in order)])

        kept = longest(len(items), lambda n: self._caller.fits(context(n), budget))
        recalled = [
            pair.recalled(self._now)
            for places, _ in found[:kept]
            for place in places
            if (pair := self._documents[place].pair) is not None
        ]
        trace = {
            "strengthened": [{"dia_ids": [t.dia_id for t in p.turns], "strength": p.strength} for p in recalled],
            "dropped": len(items) - kept,
        }
        return Evidence(context(kept), tuple(items[:kept]), trace)

    def _head(self) -> list[str]:
        share = self.services.context_tokens // 4
        parts = (("About the speakers", self.personality), ("What happened, in short", self.summary))
        return [self._caller.clip(f"{name}: {text}", share) for name, text in parts if text]

    def _item(self, rank: int, places: Sequence[int], score: float) -> EvidenceItem:
        """Documents of one date as one piece of evidence: the date-time, then their lines in order."""
        documents = [self._documents[place] for place in places]
        date = documents[0].day.date
        text, dia_ids, ends = f"[{date_time(date)}]", [], []
        for number, document in enumerate(documents):
            gap = " " if number == 0 else "\n"
            for line, turn in document_lines(document):
                text, gap = f"{text}{gap}{line}", "\n"
                if turn is not None:
                    dia_ids.append(turn.dia_id)
                    ends.append(word_count(text))
        paths = tuple(dict.fromkeys("pair" if document.pair else "summary" for document in documents))
        return EvidenceItem(text, tuple(dia_ids), rank, score, date, paths, ends=tuple(ends))

    def stats(self) -> MemoryStats:
        """notes: pairs left. A pair is the unit of the method, no merge: merged_turns is 0, largest 2."""
        left = [pair for one in self.days for pair in one.pairs]
        turns = sum(len(pair.turns) for pair in left)
        return MemoryStats(
            notes=len(left),
            appends=sum(len(one.pairs) for one in self.written),
            largest=max((len(pair.turns) for pair in left), default=0),
            extra={
                "turns_left": turns,
                "dates": len(self.written),
                "dates_left": len(self.days),
                "texts_cut": self.counts["texts_cut"],
            },
        )

    def export(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        """pairs, dates, overall; `left` says what forgetting spared."""
        left = {pair.turns[0].dia_id for one in self.days for pair in one.pairs}
        mode = self.config.forgetting
        pairs = [
            {
                "dia_ids": [turn.dia_id for turn in pair.turns],
                "text": pair.body,
                "strength": pair.strength,
                "last_recall": pair.last_recall.isoformat(),
                "retention": round(pair.retention(mode, self._now), 6),
                "left": pair.turns[0].dia_id in left,
            }
            for one in self.written
            for pair in one.pairs
        ]
        sessions_left = {one.session for one in self.days}
        dates = [
            {
                "session": one.session,
                "date": one.date.isoformat(),
                "summary": one.summary,
                "personality": one.personality,
                "strategy": one.strategy,
                "left": one.session in sessions_left,
            }
            for one in self.written
        ]
        overall = {"summary": self.summary, "personality": self.personality, "strategy": self.strategy}
        return {"pairs": pairs, "dates": dates, "overall": [overall]}

    @classmethod
    def table_notices(cls, config: MemoryBankConfig, *, can_judge: bool) -> tuple[str, ...]:
        return (NOTICES[config.forgetting],)

    @classmethod
    def plan(cls, config: MemoryBankConfig, shape: DataShape, *, can_judge: bool) -> CallPlan:
        """Exactly 2 calls a session and 2 a conversation. Tokens: typical replies (our choice)."""
        calls = 2 * (shape.sessions + shape.conversations)
        text = TOKENS_PER_WORD * shape.words
        memory, context = [], []
        for reply, overall in ((40, 80), (140, 260)):
            days = 2 * text + shape.sessions * (frame_tokens(DAY_EVENTS) + frame_tokens(DAY_PORTRAIT) + 2 * reply)
            frames = frame_tokens(ALL_EVENTS) + frame_tokens(ALL_PORTRAITS)
            memory.append(int(days + 2 * shape.sessions * reply + shape.conversations * (frames + 2 * overall)))
            context.append(int(2 * overall + config.k * (2 * text / max(1, shape.turns) + 12)))
        return CallPlan((calls, calls), (memory[0], memory[1]), (0, 0), (0, 0), (context[0], context[1]))


def _flat(text: str) -> str:
    return " ".join(text.split())
