"""MemGPT's memory and the functions on it: core blocks, recall, archive; what a wrong call is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np

from baselines.common import date_time, turn_line
from harness.embed import Embedder
from harness.locomo.schema import Turn


class Misuse(Exception):
    """A call that cannot be carried out. The message is for the model: what was wrong and what is possible."""


@dataclass(frozen=True)
class Function:
    """What the model is told of a function, in a prompt or as a tool."""

    name: str
    what: str
    arguments: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def tool(self) -> dict[str, Any]:
        """As an endpoint's `tools` want it."""
        properties: dict[str, Any] = {name: {"type": "string"} for name in self.arguments}
        properties |= {name: {"type": "integer"} for name in self.optional}
        if self.name != "send_message":
            properties["request_heartbeat"] = {"type": "boolean"}
        parameters = {"type": "object", "properties": properties, "required": list(self.arguments)}
        return {"type": "function", "function": {"name": self.name, "description": self.what, "parameters": parameters}}


FUNCTIONS = {
    f.name: f
    for f in (
        Function("send_message", "say something to the user; ends your turn.", ("message",)),
        Function("core_memory_append", "add a line to a block of core memory, given by its name.", ("name", "content")),
        Function(
            "core_memory_replace",
            "put new_content in place of old_content in a block; old_content must stand there exactly so; an empty new_content deletes it.",
            ("name", "old_content", "new_content"),
        ),
        Function("conversation_search", "messages that contain a word or phrase.", ("query",), ("page",)),
        Function(
            "conversation_search_date",
            "messages of the days from start_date to end_date, both as YYYY-MM-DD.",
            ("start_date", "end_date"),
            ("page",),
        ),
        Function("archival_memory_insert", "store a passage that can be understood by itself.", ("content",)),
        Function("archival_memory_search", "passages near in meaning to a text.", ("query",), ("page",)),
    )
}
TOOLS = [function.tool() for function in FUNCTIONS.values()]
SEARCHES = ("conversation_search", "conversation_search_date", "archival_memory_search")
BLOCKS = ("persona", "human")


@dataclass(frozen=True)
class Passage:
    """An entry of recall or archive. text: without its date; dia_ids: the turns it is, or was written on."""

    text: str
    date: datetime | None
    dia_ids: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"[{date_time(self.date)}] {self.text}" if self.date else self.text


@dataclass(frozen=True)
class Outcome:
    """What a call did. text: as the model sees it; found: passages and scores of a search's page, best first."""

    text: str
    failed: bool = False
    found: tuple[tuple[Passage, float], ...] = ()


class AgentMemory:
    """Core blocks, recall in the order of the conversation, archive in the order of insertion."""

    def __init__(self, core: Mapping[str, str], core_limit: int, page_size: int, embedder: Embedder):
        self.core = dict(core)
        self.core_limit = core_limit
        self.page_size = page_size
        self.recall: list[Passage] = []
        self.archive: list[Passage] = []
        self._vectors = np.empty((0, embedder.dim), dtype=np.float32)
        self._embedder = embedder

    def copy(self) -> AgentMemory:
        """Another memory with the same content: what is done to one, the other does not see."""
        other = AgentMemory(self.core, self.core_limit, self.page_size, self._embedder)
        other.recall, other.archive, other._vectors = list(self.recall), list(self.archive), self._vectors
        return other

    def remember(self, turn: Turn) -> None:
        """A message of the conversation enters recall."""
        self.recall.append(Passage(turn_line(turn), turn.date_time, (turn.dia_id,)))

    async def store(self, passages: Sequence[Passage]) -> None:
        """Passages enter the archive."""
        vectors = await self._embedder.encode([passage.text for passage in passages])
        self.archive += passages
        self._vectors = np.concatenate([self._vectors, vectors])

    async def execute(self, name: str, arguments: Mapping[str, Any], origin: Turn | None) -> Outcome:
        """Carry a call out. A misuse is an outcome that failed. origin: the message the agent is at."""
        try:
            function = FUNCTIONS.get(name)
            if function is None:
                raise Misuse(f"there is no function {name!r}; there are: {', '.join(FUNCTIONS)}")
            given = {key: value for key, value in arguments.items() if value is not None}
            for needed in function.arguments:
                # An empty new_content deletes; nothing else may be empty.
                if needed not in given or (needed != "new_content" and not str(given[needed]).strip()):
                    raise Misuse(f"{name} needs {needed!r}; it takes: {', '.join(function.arguments)}")
            if name in SEARCHES:
                return await self._search(name, given)
            return Outcome(await self._change(name, given, origin))
        except Misuse as misuse:
            return Outcome(str(misuse), failed=True)

    async def _change(self, name: str, given: Mapping[str, Any], origin: Turn | None) -> str:
        if name == "send_message":
            return "sent"
        if name == "archival_memory_insert":
            when, ids = (origin.date_time, (origin.dia_id,)) if origin else (None, ())
            await self.store([Passage(given["content"], when, ids)])
            return f"stored; the archive has {len(self.archive)} entries"
        block = given["name"].strip()
        if block not in self.core:
            raise Misuse(f"core memory has no block {block!r}; it has: {', '.join(self.core)}")
        old = self.core[block]
        if name == "core_memory_append":
            new = f"{old}\n{given['content']}" if old else given["content"]
        elif given["old_content"] in old:
            new = old.replace(given["old_content"], given["new_content"])
        else:
            raise Misuse(f"block {block!r} does not contain {given['old_content']!r}: old_content must match exactly")
        if len(new) > self.core_limit:
            raise Misuse(
                f"block {block!r} would have {len(new)} characters, {self.core_limit} is the limit; shorten it first "
                "with core_memory_replace, or use archival_memory_insert"
            )
        self.core[block] = new
        return f"block {block!r} has {len(new)} of {self.core_limit} characters"

    async def _search(self, name: str, given: Mapping[str, Any]) -> Outcome:
        if name == "archival_memory_search":
            hits = await self._nearest(given["query"])
        else:
            wanted = _contains(given["query"]) if name == "conversation_search" else _between(given)
            hits = [(passage, 1.0) for passage in self.recall if wanted(passage)]
        page = int(given.get("page") or 0)
        pages = max(1, -(-len(hits) // self.page_size))
        if not 0 <= page < pages:
            raise Misuse(f"there is no page {page}: {len(hits)} results, pages 0 to {pages - 1}")
        shown = hits[page * self.page_size : (page + 1) * self.page_size]
        head = f"{len(hits)} results, page {page} of 0 to {pages - 1}"
        return Outcome("\n".join([head, *(passage.line for passage, _ in shown)]), found=tuple(shown))

    async def _nearest(self, query: str) -> list[tuple[Passage, float]]:
        """The whole archive, nearest first; the older of two alike."""
        if not self.archive:
            return []
        scores = self._vectors @ (await self._embedder.encode([query]))[0]
        return [(self.archive[place], float(scores[place])) for place in np.argsort(-scores, kind="stable")]


def _contains(query: str) -> Callable[[Passage], bool]:
    wanted = query.strip().casefold()
    return lambda passage: wanted in passage.text.casefold()


def _between(given: Mapping[str, Any]) -> Callable[[Passage], bool]:
    start, end = (_day(name, given[name]) for name in ("start_date", "end_date"))
    if start > end:
        raise Misuse(f"start_date {start} lies after end_date {end}")
    return lambda passage: passage.date is not None and start <= passage.date.date() <= end


def _day(name: str, value: str) -> date:
    try:
        return date.fromisoformat(value.strip())
    except ValueError:
        raise Misuse(f"{name}={value!r} is no date; write it as YYYY-MM-DD") from None
