"""Retrieval over units of the conversation: turns, observations or session summaries."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field

from baselines.common import TOKENS_PER_WORD, date_time, turn_line
from harness.calls import longest
from harness.errors import ConfigError
from harness.index import DenseIndex
from harness.llm.types import Meter
from harness.locomo.schema import Conversation
from harness.memory import (
    CallPlan,
    DataShape,
    Evidence,
    EvidenceItem,
    EvidenceKind,
    MemoryStats,
    MemorySystem,
    Query,
    Services,
)
from harness.spec import REFUSE_UNKNOWN, Positive, identity

Units = Literal["turns", "observations", "summaries"]
Retriever = Literal["dense", "bm25", "hybrid"]

UNIT_WORDS = {"turns": None, "observations": 20, "summaries": 150}
"""Typical words of a unit, for the plan (our choice; a turn's are known)."""
DATE_TOKENS = 12
"""Of a line's date, for the plan."""


@dataclass(frozen=True, kw_only=True)
class RagConfig:
    """What is retrieved, how, and how much of it."""

    __pydantic_config__ = REFUSE_UNKNOWN

    units: Units = identity(default="turns")
    """arXiv:2402.17753 Table 3: dialog turns, observations, session summaries (both as they stand in the data set)."""
    retriever: Retriever = identity(default="dense")
    """dense: cosine of the run's embedder (the paper's is DRAGON). bm25: exact words. hybrid: both, fused by reciprocal
    ranks. Our choice of the last two: the cheap baselines that every memory system should beat."""
    k: Positive = identity(default=20)
    """Units handed to the reader. The paper: 5, 10, 25, 50 (summaries 2, 5, 10). Our choice of the default: as many turns
    as MemFly's pool has notes."""
    rrf_k: Annotated[float, Field(ge=0)] = identity(default=60.0)
    """hybrid: constant of the fusion. 60 is the cited method's; 10 measured better."""
    adjacent: bool = identity(default=False)
    """turns: each hit is followed by the turns before and after it in its session, all within k. Our choice: answers
    stand beside their questions."""
    index_date: bool = identity(default=True)
    """Whether the date stands in front of the text that is indexed; the reader sees it either way. Our choice: it measures
    2 to 3 points of recall better with every retriever."""
    index_speaker: bool = identity(default=True)
    """Whether the speaker's name stands in front of a turn's indexed text. Our choice: most questions name one, and
    without it dense recall falls by 8 points."""

    def __post_init__(self) -> None:
        if self.adjacent and self.units != "turns":
            raise ConfigError(f"memory.adjacent=True needs memory.units=turns: {self.units} have no neighbours")


@dataclass(frozen=True)
class Unit:
    """indexed: what the retrievers see. text: what the reader sees. A unit's id is its place in the conversation."""

    indexed: str
    text: str
    dia_ids: tuple[str, ...]
    date: datetime
    session: int


class Rag(MemorySystem):
    """RAG of arXiv:2402.17753 (section 5): retrieve k units, read them.

    State: the units, a flat exact index of their vectors and a BM25 index. A turn's indexed text is
    `date: speaker: text [image: caption]`, an observation's or summary's `date: text`; date and speaker can be left out.
    BM25: Lucene's formula, k1 1.5, b 0.75, over Porter stems of lower-cased runs of letters and digits, single letters
    left out (without stems recall falls by 5 points); units that share no word with the question are no hits.
    Calls: none per turn, session and question
    beside the reader's. Evidence: exact for turns and observations (the turns they cite), `session` for summaries.

    Deviations. The retriever is the run's embedder and not DRAGON, as in every other system here. The context is in
    chronological order (our choice, as in MemFly, so that layout is no difference between systems), a line
    `date: text` each; what exceeds the reader's budget is dropped from the lowest rank and counted.
    """

    Config = RagConfig
    evidence_kind = "exact"
    config: RagConfig

    def __init__(self, config: RagConfig, services: Services):
        super().__init__(config, services)
        self._units: list[Unit] | None = None
        self._dense: DenseIndex | None = None
        self._lexical: Lexical | None = None
        self._notices: tuple[str, ...] = ()

    async def ingest(self, conversation: Conversation) -> None:
        """Index every unit."""
        units = units_of(conversation, self.config)
        if units and self.config.retriever != "bm25":
            self._dense = DenseIndex(self.services.embedder.dim)
            for id, vector in enumerate(await self.services.embedder.encode([unit.indexed for unit in units])):
                self._dense.add(id, vector)
        if units and self.config.retriever != "dense":
            self._lexical = await asyncio.to_thread(Lexical, [unit.indexed for unit in units])
        if conversation.turns and not units:
            self._notices = (f"{conversation.sample_id} has no {self.config.units}: nothing to retrieve",)
        self._units = units

    async def recall(self, query: Query, meter: Meter) -> Evidence:
        """The k best units; in chronological order in `context`, by rank in `items`."""
        if self._units is None:
            raise RuntimeError("Rag: nothing has been ingested")
        picked = self._pick(await self._rank(query.text))
        kept = longest(len(picked), lambda n: self._fits(self._context(picked[:n])))
        items = [
            EvidenceItem(
                text=self._units[id].text,
                dia_ids=self._units[id].dia_ids,
                rank=rank,
                score=score,
                date=self._units[id].date,
                paths=(path,),
            )
            for rank, (id, score, path) in enumerate(picked[:kept], 1)
        ]
        return Evidence(self._context(picked[:kept]), tuple(items), {"dropped_units": len(picked) - kept})

    async def _rank(self, question: str) -> list[tuple[int, float]]:
        """All hits as (unit, score), best first, ties by the older unit."""
        lists = []
        if self._dense is not None:
            (vector,) = await self.services.embedder.encode([question])
            lists.append(self._dense.search(vector, len(self._dense)))
        if self._lexical is not None:
            lists.append(self._lexical.search(question))
        return fuse(lists, self.config.rrf_k) if len(lists) > 1 else lists[0] if lists else []

    def _pick(self, hits: Sequence[tuple[int, float]]) -> list[tuple[int, float, str]]:
        """(unit, score, path) of at most k units in rank order; a neighbour has the score of the hit that brought it."""
        units = self._units or []
        picked: dict[int, tuple[int, float, str]] = {}
        for hit, score in hits:
            if len(picked) >= self.config.k:
                break
            for id in (hit, hit - 1, hit + 1) if self.config.adjacent else (hit,):
                if 0 <= id < len(units) and units[id].session == units[hit].session:
                    picked.setdefault(id, (id, score, self.config.retriever if id == hit else "adjacent"))
        return list(picked.values())[: self.config.k]

    def _context(self, picked: Sequence[tuple[int, float, str]]) -> str:
        units = self._units or []
        return "\n".join(units[id].text for id in sorted(id for id, _, _ in picked))

    def _fits(self, text: str) -> bool:
        room = self.services.context_tokens
        return len(text) <= room or self.services.chat.count_tokens(text) <= room

    def stats(self) -> MemoryStats:
        units = self._units or []
        exact = self.config.units != "summaries"  # a summary holds no turn, it only speaks of them
        largest = max((len(unit.dia_ids) for unit in units), default=0) if exact else 0
        return MemoryStats(notes=len(units), appends=len(units), largest=largest, notices=self._notices)

    def export(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        rows = [
            {"id": id, "indexed": u.indexed, "text": u.text, "dia_ids": u.dia_ids, "date": u.date.isoformat()}
            for id, u in enumerate(self._units or [])
        ]
        return {"units": rows}

    @classmethod
    def evidence_of(cls, config: RagConfig) -> EvidenceKind:
        return "session" if config.units == "summaries" else "exact"

    @classmethod
    def plan(cls, config: RagConfig, shape: DataShape, *, can_judge: bool) -> CallPlan:
        """No call but the reader's, exactly."""
        words = UNIT_WORDS[config.units] or shape.words / max(1, shape.turns)
        context = round(config.k * (TOKENS_PER_WORD * words + DATE_TOKENS))
        return CallPlan((0, 0), (0, 0), (0, 0), (0, 0), context_tokens=(context, context))


def units_of(conversation: Conversation, config: RagConfig) -> list[Unit]:
    """The units of a conversation in its order."""
    units = []
    for session in conversation.sessions:
        when = date_time(session.date_time)
        if config.units == "turns":
            found = [
                (turn_line(turn), turn_line(turn) if config.index_speaker else turn.full_text, (turn.dia_id,))
                for turn in session.turns
            ]
        elif config.units == "observations":
            found = [(seen.text, seen.text, seen.dia_ids) for seen in session.observations]
        else:
            dia_ids = tuple(turn.dia_id for turn in session.turns)
            found = [(session.summary, session.summary, dia_ids)] if session.summary else []
        units += [
            Unit(
                f"{when}: {bare}" if config.index_date else bare,
                f"{when}: {text}",
                ids,
                session.date_time,
                session.number,
            )
            for text, bare, ids in found
        ]
    return units


def fuse(lists: Sequence[Sequence[tuple[int, float]]], rrf_k: float) -> list[tuple[int, float]]:
    """Reciprocal rank fusion: score = sum over lists of 1 / (rrf_k + rank), ranks from 1; ties by the older unit."""
    scores: dict[int, float] = {}
    for ranked in lists:
        for rank, (id, _) in enumerate(ranked, 1):
            scores[id] = scores.get(id, 0.0) + 1.0 / (rrf_k + rank)
    # Rounded, so that the order of summation cannot decide a tie.
    return sorted(((id, round(score, 12)) for id, score in scores.items()), key=lambda hit: (-hit[1], hit[0]))


class Lexical:
    """BM25 over texts. What it counts as a word: see Rag."""

    def __init__(self, texts: Sequence[str]):
        import bm25s

        corpus = [terms(text) for text in texts]
        self._known = {term for document in corpus for term in document}
        self._index: Any = None
        if self._known:
            self._index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
            self._index.index(corpus, show_progress=False)

    def search(self, question: str) -> list[tuple[int, float]]:
        """(place, score) of the texts that share a word with the question, best first, ties by the lower place."""
        asked = [term for term in terms(question) if term in self._known]
        if not asked:
            return []
        scores = self._index.get_scores(asked).tolist()
        return sorted(((id, score) for id, score in enumerate(scores) if score > 0), key=lambda hit: (-hit[1], hit[0]))


_WORD = re.compile(r"[^\W_]{2,}|\d")


def terms(text: str) -> list[str]:
    """The words of a text as BM25 counts them, repeats kept."""
    return [_stem(word) for word in _WORD.findall(text.lower())]


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    return _stemmer().stem(word)
