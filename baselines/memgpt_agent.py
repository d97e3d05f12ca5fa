"""MemGPT's agent: its message queue, its loop of function calls, memory pressure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from baselines.memgpt_memory import BLOCKS, FUNCTIONS, SEARCHES, TOOLS, AgentMemory, Passage
from harness.calls import Caller
from harness.errors import ReplyError
from harness.llm.types import Message, Meter
from harness.locomo.schema import Turn
from harness.memory import Services
from harness.prompts import load_prompt

if TYPE_CHECKING:
    from baselines.memgpt import MemGPTConfig

STEP = "baselines/prompts/memgpt_step.j2"
SUMMARY = "baselines/prompts/memgpt_summary.j2"
REPLY_TOKENS = {STEP: 400, SUMMARY: 250}
"""Longest reply of each prompt (our choice: all arguments at their longest; twice a thorough summary)."""
MARGIN_TOKENS = 48
"""Kept free in the window for a chat template's own tokens (our choice)."""
MESSAGE_TOKENS = 8
"""What a message takes in the window beside its text (our choice: ChatML's 5 to 7)."""

_ASKED = {"rule": "copy", "tag": "question"}
_FOUND = {"rule": "copy", "tag": "found"}


def _ruled(rule: Mapping[str, Any], default: Any, **extra: Any) -> Any:
    return Field(default=default, json_schema_extra={"x-scripted": dict(rule), **extra})


def _text(characters: int, **extra: Any) -> Any:
    """A text with a bound for runaways, which only servers that decode by grammar are sent."""
    return Annotated[str, Field(json_schema_extra={"maxLength": characters, **extra})]


class FunctionCall(BaseModel):
    """One function call, as a reply by JSON schema or as what a call of a tool becomes. The names
    of functions and blocks are offered as choices, which a grammar enforces; validation takes any text, because a name
    that does not exist is an error the model gets to see. The stand-in stores every turn, and searches the archive once
    for a question."""

    thought: _text(120) = ""
    function: str = _ruled(
        {
            "rule": "if",
            "of": _ASKED,
            "then": {"rule": "if", "of": _FOUND, "then": "send_message", "else": "archival_memory_search"},
            "else": "archival_memory_insert",
        },
        "",
        enum=list(FUNCTIONS),
    )
    message: _text(240) | None = _ruled({"rule": "answer", "question": "question", "context": "found"}, None)
    name: Annotated[str, Field(json_schema_extra={"enum": list(BLOCKS)})] | None = None
    content: _text(400) | None = _ruled({"rule": "last", "tag": "turn"}, None)
    old_content: _text(160) | None = None
    new_content: _text(160) | None = None
    query: _text(80) | None = _ruled(_ASKED, None)
    start_date: _text(10) | None = None
    end_date: _text(10) | None = None
    page: int | None = None
    request_heartbeat: bool = _ruled(
        {"rule": "if", "of": _ASKED, "then": {"rule": "if", "of": _FOUND, "then": False, "else": True}, "else": False},
        False,
    )

    def arguments(self) -> dict[str, Any]:
        """Those of the function named; of an unknown one all that were given."""
        given = self.model_dump(exclude={"thought", "function", "request_heartbeat"}, exclude_none=True)
        function = FUNCTIONS.get(self.function)
        known = (*function.arguments, *function.optional) if function else tuple(given)
        return {name: value for name, value in given.items() if name in known}


class Summary(BaseModel):
    summary: str = Field(
        json_schema_extra={"maxLength": 1000, "x-scripted": {"rule": "lead", "tag": "messages", "words": 60}}
    )


@dataclass(frozen=True)
class Entry:
    """A message of the queue."""

    role: str
    text: str
    tokens: int


@dataclass
class Run:
    """What came of an event. stop: "sent", "no_heartbeat", "max_steps" or "no_call" (no usable reply). found: every
    passage in the order found, with its score, its function, its search (from 0) and its place on the page (from 1)."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    message: str | None = None
    stop: str = "max_steps"
    found: list[tuple[Passage, float, str, int, int]] = field(default_factory=list)


class Agent:
    """One agent: memory, queue, summary of what left the queue. `counts`: alerts, flushes, evicted, steps, failed_calls."""

    def __init__(self, config: MemGPTConfig, services: Services, memory: AgentMemory, names: tuple[str, ...]):
        self.config = config
        self.services = services
        self.memory = memory
        self.names = names
        self.queue: list[Entry] = []
        self.summary = ""
        self.warned = False
        self.counts: Counter[str] = Counter()
        self.caller = Caller(services.chat, config.temperature, REPLY_TOKENS)
        self.tools = TOOLS if config.function_calls == "auto" and services.chat.takes_tools else None
        self.capacity = services.chat.window - REPLY_TOKENS[STEP] - MARGIN_TOKENS

    def copy(self) -> Agent:
        """The same agent in the same state: what it does from now on, this one does not know."""
        other = Agent(self.config, self.services, self.memory.copy(), self.names)
        other.queue, other.summary, other.warned = list(self.queue), self.summary, self.warned
        return other

    async def run(self, event: str, meter: Meter, origin: Turn | None = None) -> Run:
        """Put an event into the queue and let the agent act on it: one call, and another while it asks for a heartbeat
        or a call failed, `max_steps` at most. Fallback "no_call": no usable reply, the agent rests."""
        self._append("user", event)
        run = Run()
        searches = 0
        for _ in range(self.config.max_steps):
            await self._make_room(meter)
            call = await self._call(meter)
            if call is None:
                meter.fallback("no_call")
                run.stop = "no_call"
                break
            arguments = call.arguments()
            outcome = await self.memory.execute(call.function, arguments, origin)
            self.counts["steps"] += 1
            self.counts["failed_calls"] += outcome.failed
            said = {"thought": call.thought} if call.thought else {}
            said |= {"function": call.function, **arguments, "request_heartbeat": call.request_heartbeat}
            self._append("assistant", json.dumps(said, ensure_ascii=False))
            tag = "error" if outcome.failed else "found" if call.function in SEARCHES else "done"
            self._append("user", f'<{tag} function="{call.function}">\n{outcome.text}\n</{tag}>')
            step = {"function": call.function, "arguments": arguments, "failed": outcome.failed}
            run.steps.append(step | ({"error": outcome.text} if outcome.failed else {"found": len(outcome.found)}))
            for place, (passage, score) in enumerate(outcome.found, start=1):
                run.found.append((passage, score, call.function, searches, place))
            searches += tag == "found"
            if outcome.failed:
                continue
            if call.function == "send_message":
                run.message, run.stop = arguments["message"], "sent"
                break
            if not call.request_heartbeat:
                run.stop = "no_heartbeat"
                break
        return run

    async def _call(self, meter: Meter) -> FunctionCall | None:
        try:
            reply = await self.services.chat.complete(
                self.prompt(),
                schema=FunctionCall,
                tools=self.tools,
                temperature=self.config.temperature,
                max_tokens=REPLY_TOKENS[STEP],
                purpose="memgpt_step",
                meter=meter,
            )
        except ReplyError:
            return None
        return reply.value  # type: ignore[return-value]

    def prompt(self) -> list[Message]:
        """Instructions and core memory, then the queue; neighbours of one role are one message, as endpoints want it."""
        system = self._system()
        messages: list[Message] = [{"role": "system", "content": system}]
        for entry in [*self._summary_entry(), *self.queue]:
            if messages[-1]["role"] == entry.role:
                messages[-1] = {"role": entry.role, "content": f"{messages[-1]['content']}\n{entry.text}"}
            else:
                messages.append({"role": entry.role, "content": entry.text})
        return messages

    def _system(self) -> str:
        memory = self.memory
        parts = load_prompt(STEP).messages(
            names=self.names,
            tools=self.tools is not None,
            functions=FUNCTIONS.values(),
            page_size=memory.page_size,
            core_limit=memory.core_limit,
            blocks=[{"name": name, "text": text} for name, text in memory.core.items()],
            recall=len(memory.recall),
            archival=len(memory.archive),
        )
        return parts[0]["content"]

    def _summary_entry(self) -> list[Entry]:
        return [self._entry("user", f"<before>{self.summary}</before>")] if self.summary else []

    def _entry(self, role: str, text: str) -> Entry:
        return Entry(role, text, self.services.chat.count_tokens(text) + MESSAGE_TOKENS)

    def _append(self, role: str, text: str) -> None:
        # One message alone must never fill the window: a third of it at most.
        self.queue.append(self._entry(role, self.caller.clip(text, self.capacity // 3)))

    def used(self) -> int:
        """Tokens of the next prompt."""
        queue = sum(entry.tokens for entry in [*self._summary_entry(), *self.queue])
        tools = self.services.chat.count_tokens(json.dumps(self.tools)) if self.tools else 0
        return tools + self.services.chat.count_tokens(self._system()) + MESSAGE_TOKENS + queue

    async def _make_room(self, meter: Meter) -> None:
        """The pressure alert, once between two flushes; the flush."""
        if not self.warned and self.used() > self.config.alert_at * self.capacity:
            self.warned = True
            self.counts["alerts"] += 1
            self._append("user", f"<alert>The window is {self.config.alert_at:.0%} full. Store what you need.</alert>")
        while self.used() > self.config.flush_at * self.capacity and len(self.queue) > 1:
            await self._flush(meter)

    async def _flush(self, meter: Meter) -> None:
        """The oldest part of the queue leaves it and is summed up, together with the old summary. The queue goes on with
        an event or a result, never with half an exchange. Fallback "summary_kept": the old summary stands."""
        cut = max(1, int(len(self.queue) * self.config.flush_share))
        while cut < len(self.queue) - 1 and self.queue[cut].role != "user":
            cut += 1
        gone, self.queue = self.queue[:cut], self.queue[cut:]
        self.warned = False
        self.counts["flushes"] += 1
        self.counts["evicted"] += len(gone)
        room = self.caller.room(SUMMARY) - self.services.chat.count_tokens(self.summary) - MARGIN_TOKENS
        lines = self.caller.latest([f"{entry.role}: {entry.text}" for entry in gone], room)
        words = self.config.summary_words
        value = await self.caller.ask(
            SUMMARY, Summary, meter, words=words, summary=self.summary, messages="\n".join(lines)
        )
        if value is None or not value.summary.strip():
            meter.fallback("summary_kept")
        else:
            self.summary = " ".join(value.summary.split()[:words])
