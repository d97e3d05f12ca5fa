"""ReadAgent: pages and their gists; a question chooses the pages to read again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Literal

from pydantic import BaseModel, Field

from baselines.common import TOKENS_PER_WORD, date_time, frame_tokens, turn_line, word_count
from harness.calls import Caller, abandon, longest, together
from harness.llm.types import Meter
from harness.locomo.schema import Conversation, Session, Turn
from harness.memory import CallPlan, DataShape, Evidence, EvidenceItem, MemoryStats, MemorySystem, Query, Services
from harness.spec import REFUSE_UNKNOWN, Positive, Temperature, identity

PAGINATE = "baselines/prompts/readagent_paginate.j2"
GIST = "baselines/prompts/readagent_gist.j2"
LOOKUP = "baselines/prompts/readagent_lookup.j2"
NEXT = "baselines/prompts/readagent_next.j2"
REPLY_TOKENS = {PAGINATE: 32, GIST: 320, LOOKUP: 64, NEXT: 32}
"""Longest reply of each prompt. Our choice: twice what a thorough reply takes."""
GIST_WORDS = 100
"""Of a page's beginning, where no gist could be had; of a typical gist, for the plan (our choice)."""


Fits = Callable[[Sequence["Page"], Sequence[int]], bool]


@dataclass(frozen=True, kw_only=True)
class ReadAgentConfig:
    """Pages, gists, look-up."""

    __pydantic_config__ = REFUSE_UNKNOWN

    page_words: Positive = identity(default=600)
    """A page is grown to at least so many words before the model names its end (the official code's value)."""
    label_words: Positive = identity(default=280)
    """A place between turns can be a page's end once so many words stand before it (the official code's value)."""
    rest_words: Positive = identity(default=350)
    """A rest of a session below so many words is its last page, without a call (the official code's value)."""
    lookup: Literal["parallel", "sequential"] = identity(default="parallel")
    """ReadAgent-P: one call names the pages. ReadAgent-S: a call names one page or stops, again and again."""
    max_pages: Positive = identity(default=6)
    """Pages looked up per question at most. Our choice: the largest number the paper tries."""
    temperature: Temperature = identity(default=0.0)
    """Of every call. Our choice: as MemFly's memory calls here."""


class Cut(BaseModel):
    cut: int = Field(json_schema_extra={"x-scripted": {"rule": "last", "tag": "cut"}})


class Gist(BaseModel):
    """maxLength and maxItems are bounds for runaways, which only servers that decode by grammar are sent."""

    gist: str = Field(json_schema_extra={"maxLength": 800, "x-scripted": {"rule": "lead", "tag": "page", "words": 60}})


class Lookup(BaseModel):
    pages: list[int] = Field(
        json_schema_extra={
            "maxItems": 12,
            "x-scripted": {"rule": "closest", "question": "question", "tag": "gist", "max": 6},
        }
    )


class Next(BaseModel):
    page: int | None = Field(
        json_schema_extra={"x-scripted": {"rule": "closest", "question": "question", "tag": "gist"}}
    )


@dataclass(frozen=True)
class Page:
    """A run of turns of one session. id: from 1 within the conversation; text: its turns, a line each."""

    id: int
    turns: tuple[Turn, ...]
    gist: str

    @property
    def date(self) -> datetime:
        return self.turns[0].date_time

    @property
    def text(self) -> str:
        return text_of(self.turns)


def text_of(turns: Sequence[Turn]) -> str:
    return "\n".join(turn_line(turn) for turn in turns)


class ReadAgent(MemorySystem):
    """ReadAgent (arXiv:2402.09727), with turns as its paragraphs.

    State: pages (turns of one session, its date) and a gist of each. Calls: per turn and session none by themselves;
    one per page to choose its end (none for a rest under `rest_words`), one per page for its gist; per question one
    (parallel) or up to `max_pages` (sequential), beside the reader's. Evidence: `page`: the pages looked up, with their
    turns, by order of choice; then the gists, which hold no turn. Context: gists in order, looked-up pages in the place
    of theirs.

    Deviations. Pages do not cross sessions and carry the session's date (our choice: a page of two dates could not be
    dated). A label stands where `label_words` lie before it (the official code counts the paragraph behind it as well);
    the passage shows what may become the page and nothing before or after it (the official code adds the page before
    and the paragraph after). An invalid label means the last one, as in the official code.
    Look-up: page numbers that do not exist or were already chosen are ignored and counted ("lookup_invalid"; in
    sequential look-up the first of them ends it). Without a usable reply: the last label ("cut_last"), the beginning of
    the page ("gist_raw"), no further page ("lookup_none"). What a window cannot hold is left out, oldest gists first.
    """

    Config = ReadAgentConfig
    evidence_kind = "page"
    prompt_files = (PAGINATE, GIST, LOOKUP, NEXT)
    config: ReadAgentConfig

    def __init__(self, config: ReadAgentConfig, services: Services):
        super().__init__(config, services)
        self._caller = Caller(services.chat, config.temperature, REPLY_TOKENS)
        self._pages: list[Page] | None = None

    async def ingest(self, conversation: Conversation) -> None:
        """Cut every session into pages and shorten each as soon as its end is known."""
        parts = await together(self._read(session) for session in conversation.sessions)
        self._pages = [Page(id, turns, gist) for id, (turns, gist) in enumerate(chain.from_iterable(parts), 1)]

    async def _read(self, session: Session) -> list[tuple[tuple[Turn, ...], str]]:
        """The session's pages, turns and gist. Each end depends on the one before it, so the calls for them follow one
        another; a gist depends on its page alone."""
        turns = session.turns
        words = [word_count(turn.full_text) for turn in turns]
        pages: list[tuple[Turn, ...]] = []
        gists: list[asyncio.Future[str]] = []
        try:
            start = 0
            while start < len(turns):
                reached = reach(words, start, self.config)
                end = reached.end if reached.last else await self._choose_end(turns, start, reached)
                pages.append(turns[start:end])
                gists.append(asyncio.ensure_future(self._gist(pages[-1])))
                start = end
            return list(zip(pages, await asyncio.gather(*gists), strict=True))
        finally:
            await abandon(gists)

    async def _choose_end(self, turns: Sequence[Turn], start: int, reached: Reach) -> int:
        ends = [*reached.cuts, reached.end]
        number = {place: n for n, place in enumerate(ends, 1)}
        pieces = [{"cut": number.get(i), "line": turn_line(turns[i])} for i in range(start, reached.end)]
        meter = self.services.meter
        if not self._caller.fits("\n".join(str(piece) for piece in pieces), self._caller.room(PAGINATE)):
            meter.fallback("cut_window")
            return reached.end
        date = date_time(turns[start].date_time)
        value = await self._caller.ask(PAGINATE, Cut, meter, date=date, pieces=pieces, end=len(ends))
        if value is None:
            meter.fallback("cut_last")
            return reached.end
        if not 1 <= value.cut <= len(ends):
            meter.fallback("cut_invalid")
            return reached.end
        return ends[value.cut - 1]

    async def _gist(self, turns: Sequence[Turn]) -> str:
        page = text_of(turns)
        text = self._caller.clip(page, self._caller.room(GIST))
        value = await self._caller.ask(GIST, Gist, self.services.meter, date=date_time(turns[0].date_time), page=text)
        self.services.took_in(len(turns))
        gist = " ".join(value.gist.split()) if value else ""
        if not gist:
            self.services.meter.fallback("gist_raw")
            gist = " ".join(page.split()[:GIST_WORDS])
        return gist

    async def recall(self, query: Query, meter: Meter) -> Evidence:
        """Gists in order, with the pages that the model chose in the place of theirs."""
        if self._pages is None:
            raise RuntimeError("ReadAgent: nothing has been ingested")
        if not self._pages:
            return Evidence(context="", trace={"pages": [], "stop": "empty_memory"})
        look_up = self._parallel if self.config.lookup == "parallel" else self._sequential
        chosen, trace = await look_up(query.text, self._pages, meter)
        return self._evidence([self._pages[id - 1] for id in chosen], self._pages, trace)

    async def _parallel(self, question: str, pages: list[Page], meter: Meter) -> tuple[list[int], dict[str, Any]]:
        question, shown = self._window(LOOKUP, question, pages, ())
        most = self.config.max_pages
        value = await self._caller.ask(LOOKUP, Lookup, meter, gists=shown, most=most, question=question)
        if value is None:
            meter.fallback("lookup_none")
        named = value.pages if value else []
        chosen: list[int] = []
        for id in named:
            if 1 <= id <= len(pages) and id not in chosen:
                chosen.append(id)
            else:
                meter.fallback("lookup_invalid")
        return chosen[:most], {"named": named, "gists_hidden": len(pages) - len(shown)}

    async def _sequential(self, question: str, pages: list[Page], meter: Meter) -> tuple[list[int], dict[str, Any]]:
        chosen: list[int] = []
        stop, hidden = "most", 0
        while len(chosen) < min(self.config.max_pages, len(pages)):
            question, shown = self._window(NEXT, question, pages, chosen)
            hidden = len(pages) - len(shown)
            if sum(page["full"] for page in shown) < len(chosen):
                stop = "window"
                break
            value = await self._caller.ask(NEXT, Next, meter, pages=shown, question=question)
            if value is None or value.page is None:
                stop = "stop" if value else "unusable"
                if value is None:
                    meter.fallback("lookup_none")
                break
            if value.page in chosen or not 1 <= value.page <= len(pages):
                meter.fallback("lookup_invalid")
                stop = "invalid"
                break
            chosen.append(value.page)
        return chosen, {"stop": stop, "gists_hidden": hidden}

    def _window(
        self, prompt: str, question: str, pages: Sequence[Page], full: Sequence[int]
    ) -> tuple[str, list[dict[str, Any]]]:
        """Question and pages as `prompt` shows them, within the window: pages in `full` whole, of the others the gist.
        The oldest gists go first, then (never without a trace, see `_sequential`) the pages chosen last."""
        caller = self._caller
        question = caller.clip(question, caller.room(prompt) // 2)
        room = caller.room(prompt) - caller.chat.count_tokens(question)

        def shown(kept: Sequence[Page], whole: Sequence[int]) -> list[dict[str, Any]]:
            return [
                {
                    "id": p.id,
                    "date": date_time(p.date),
                    "text": p.text if p.id in whole else p.gist,
                    "full": p.id in whole,
                }
                for p in sorted(kept, key=lambda page: page.id)
            ]

        def fits(kept: Sequence[Page], whole: Sequence[int]) -> bool:
            # As dictionaries print, which is a little longer than the prompt's own tags.
            return caller.fits("\n".join(f"<{page}></gist>" for page in shown(kept, whole)), room)

        kept, whole = _cut([pages[id - 1] for id in full], pages, fits)
        return question, shown(kept, whole)

    def _evidence(self, chosen: list[Page], pages: list[Page], trace: dict[str, Any]) -> Evidence:
        """What of it fits the reader's budget: the chosen pages in their order of choice first, then the latest gists."""

        def render(kept: Sequence[Page], whole: Sequence[int]) -> str:
            return "\n".join(_shown(page, page.id in whole) for page in sorted(kept, key=lambda page: page.id))

        budget = self.services.context_tokens
        kept, whole = _cut(chosen, pages, lambda kept, whole: self._caller.fits(render(kept, whole), budget))
        items = []
        for rank, page in enumerate(kept, 1):
            looked_up = page.id in whole
            items.append(
                EvidenceItem(
                    text=_shown(page, looked_up),
                    dia_ids=tuple(turn.dia_id for turn in page.turns) if looked_up else (),
                    rank=rank,
                    score=1.0 / rank if looked_up else 0.0,
                    date=page.date,
                    paths=("lookup" if looked_up else "gist",),
                    ends=_ends(page) if looked_up else (),
                )
            )
        trace |= {
            "pages": [page.id for page in chosen],
            "pages_not_shown": len(chosen) - len(whole),
            "gists_dropped": len(pages) - len(kept),
        }
        return Evidence(render(kept, whole), tuple(items), trace)

    def stats(self) -> MemoryStats:
        """Notes are pages. They are parts of the text and swallow nothing, so no turn counts as merged."""
        pages = self._pages or []
        return MemoryStats(
            notes=len(pages), appends=len(pages), extra={"gist_words": sum(word_count(p.gist) for p in pages)}
        )

    def export(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        return {
            "pages": [
                {
                    "id": p.id,
                    "date": p.date.isoformat(),
                    "dia_ids": [t.dia_id for t in p.turns],
                    "gist": p.gist,
                    "text": p.text,
                }
                for p in self._pages or []
            ]
        }

    @classmethod
    def plan(cls, config: ReadAgentConfig, shape: DataShape, *, can_judge: bool) -> CallPlan:
        return predict(config, shape)


def _shown(page: Page, full: bool) -> str:
    """A page as the reader sees it."""
    return f"[{date_time(page.date)}]\n{page.text}" if full else f"[{date_time(page.date)}] {page.gist}"


def _ends(page: Page) -> tuple[int, ...]:
    ends, words = [], word_count(f"[{date_time(page.date)}]")
    for turn in page.turns:
        words += word_count(turn_line(turn))
        ends.append(words)
    return tuple(ends)


def _cut(chosen: Sequence[Page], pages: Sequence[Page], fits: Fits) -> tuple[list[Page], tuple[int, ...]]:
    """(pages kept, ids of those shown whole) within a budget, fits(pages, whole ids) given.

    As many of the chosen pages as fit, the first chosen first, then as many of the other gists, the latest first.
    Kept are the whole pages in their order of choice, then the others in order.
    """
    ids = [page.id for page in chosen]
    n = longest(len(chosen), lambda n: fits(chosen[:n], ids[:n]))
    others = [page for page in pages if page.id not in ids[:n]]
    m = longest(len(others), lambda m: fits([*chosen[:n], *others[len(others) - m :]], ids[:n]))
    return [*chosen[:n], *others[len(others) - m :]], tuple(ids[:n])


@dataclass(frozen=True)
class Reach:
    """How far a page may go. end: the place behind its last turn; cuts: places between its turns where it may end
    earlier; last: it is the session's last page, and nobody is asked."""

    end: int
    cuts: tuple[int, ...]
    last: bool


def reach(words: Sequence[int], start: int, config: ReadAgentConfig) -> Reach:
    """Grow a page from turn `start` on, `words` being those of each turn of the session."""
    total, end, cuts = words[start], start + 1, []
    while total < config.page_words and end < len(words):
        if total >= config.label_words:
            cuts.append(end)
        total += words[end]
        end += 1
    return Reach(end, tuple(cuts), last=end == len(words) and total < config.rest_words)


def predict(config: ReadAgentConfig, shape: DataShape) -> CallPlan:
    """Calls: the fewest and the most that any choice of labels can lead to. Tokens: estimates."""
    turns = max(1, round(shape.turns / max(1, shape.sessions)))
    even = ((round(shape.words / max(1, shape.turns)),) * turns,) * shape.sessions
    bounds = [_bounds(words, config) for words in shape.turn_words or even]
    calls = sum(low for low, _ in bounds), sum(high for _, high in bounds)
    words = shape.words / max(1, shape.sessions)
    passage = TOKENS_PER_WORD * min(config.page_words, words)
    page = frame_tokens(GIST) + TOKENS_PER_WORD * GIST_WORDS + frame_tokens(PAGINATE) + 10 + passage
    tokens = [int(TOKENS_PER_WORD * shape.words + n / 2 * page) for n in calls]
    pages = [n / 2 / max(1, shape.conversations) for n in calls]
    gists = [TOKENS_PER_WORD * GIST_WORDS * n for n in pages]
    most = 1 if config.lookup == "parallel" else config.max_pages
    read = config.max_pages * passage
    looked = frame_tokens(LOOKUP) + gists[0], most * (frame_tokens(NEXT) + gists[1] + (read / 2 if most > 1 else 0))
    return CallPlan(
        memory_calls=calls,
        memory_tokens=(tokens[0], tokens[1]),
        query_calls=(1, most),
        query_tokens=(int(looked[0]), int(looked[1])),
        context_tokens=(int(gists[0]), int(gists[1] + read)),
    )


def _bounds(words: Sequence[int], config: ReadAgentConfig) -> tuple[int, int]:
    """Fewest and most write calls of a session, over all choices of labels."""
    calls = [(0, 0)] * (len(words) + 1)
    for start in reversed(range(len(words))):
        reached = reach(words, start, config)
        after = [calls[end] for end in (*reached.cuts, reached.end)]
        gist_alone = (1, 1)
        calls[start] = gist_alone if reached.last else (2 + min(a for a, _ in after), 2 + max(b for _, b in after))
    return calls[0]
