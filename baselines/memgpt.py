"""MemGPT (arXiv:2310.08560): an agent that pages its memory in and out of its window by function calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from baselines.common import TOKENS_PER_WORD, date_time, frame_tokens, turn_line
from baselines.memgpt_agent import REPLY_TOKENS, STEP, SUMMARY, Agent, Run
from baselines.memgpt_memory import BLOCKS, AgentMemory, Passage
from harness.calls import longest
from harness.llm.types import Meter
from harness.locomo.schema import Conversation
from harness.memory import CallPlan, DataShape, Evidence, EvidenceItem, MemoryStats, MemorySystem, Query, Services
from harness.spec import REFUSE_UNKNOWN, Positive, Temperature, identity

Share = Annotated[float, Field(gt=0.0, le=1.0)]
LINE_TOKENS = 15
"""Of a turn's speaker, date and marks, for plans (our choice)."""


@dataclass(frozen=True, kw_only=True)
class MemGPTConfig:
    __pydantic_config__ = REFUSE_UNKNOWN

    preload: bool = identity(default=True)
    """True: turns enter recall and archive without calls, then the agent searches for each question. Our choice of the
    default: the paper's own document and deep-memory tasks start from filled stores. False: the agent lives through the
    conversation turn by turn, at least a call each."""
    temperature: Temperature = identity(default=0.0)
    """Of every call of the agent. Our choice: a run is then a function of its replies."""
    function_calls: Literal["auto", "schema"] = identity(default="auto")
    """auto: by the API's `tools` where the backbone takes them (backbone.tools), else by a JSON schema. schema: by a JSON
    schema everywhere. Our choice: the official code uses functions where it can; a schema is the same on all backbones."""
    max_steps: Positive = identity(default=10)
    """Calls the agent may make on one event. Our choice: the paper sets no bound, and a loop without one may not end."""
    page_size: Positive = identity(default=5)
    """Search results a page (official code: 5)."""
    core_limit: Positive = identity(default=2000)
    """Characters of each core memory block (official code: 2,000)."""
    alert_at: Share = identity(default=0.7)
    """Share of the window at which the agent is warned (paper, section 2.2: "e.g. 70%")."""
    flush_at: Share = identity(default=1.0)
    """Share at which the queue is flushed (paper, section 2.2: "e.g. 100%")."""
    flush_share: Share = identity(default=0.5)
    """Oldest part of the queue that leaves it (paper, section 2.2: "e.g. 50% of the context window"; ours: of the queue)."""
    summary_words: Positive = identity(default=100)
    """Most words of the recursive summary (official code: 100)."""


class MemGPT(MemorySystem):
    """MemGPT of arXiv:2310.08560, as an agent asked about a conversation between two people.

    State: core memory (blocks persona and human), recall (every turn, searched by substring or date), archive (passages,
    searched by embedding), the message queue and the recursive summary of what left it. With `preload` every turn lies
    in recall and archive and the queue is empty; without, the agent gets the turns one by one and decides what to keep.
    A question is put to a copy of the agent: questions stay independent, whatever the agent does on them.

    Calls: per turn none with preload, else 1 to max_steps; a flush adds 1 (its summary). Per question 1 to max_steps
    beside the reader's. Evidence: exact for what a search showed; a passage the agent wrote stands for the turn it was
    written on. Context of the reader: core memory and what was found, by date. What the agent itself sends as its
    answer is in the trace, with every step.

    Deviations. From paper and official code: the answer is given by the run's reader from the agent's evidence, as
    everywhere here; earlier calls and their results stand in the queue as text, also where the endpoint takes `tools`;
    without `tools` a call is a reply by JSON schema {thought, function, arguments, request_heartbeat}; a reply that is no
    call is asked for again, and ends the event if it stays unusable (counted as "no_call"). The window that 70% and
    100% are shares of is what a prompt may fill: the backbone's less the longest reply. Recall holds the conversation
    alone, not the agent's own words, and not the question, which would find itself. The wording of all prompts is ours.
    """

    Config = MemGPTConfig
    evidence_kind = "exact"
    prompt_files = (STEP, SUMMARY)
    config: MemGPTConfig

    def __init__(self, config: MemGPTConfig, services: Services):
        super().__init__(config, services)
        self._agent: Agent | None = None

    async def ingest(self, conversation: Conversation) -> None:
        """Fill the stores, or let the agent live through the conversation. EndpointError passes through."""
        a, b = conversation.speaker_a, conversation.speaker_b
        core = {
            "persona": "I follow the conversation, remember it, and answer questions about it.",
            "human": f"{a} and {b} talk with each other.",
        }
        memory = AgentMemory(core, self.config.core_limit, self.config.page_size, self.services.embedder)
        agent = Agent(self.config, self.services, memory, (a, b))
        if self.config.preload:
            for turn in conversation.turns:
                memory.remember(turn)
            await memory.store(memory.recall)
        else:
            for turn in conversation.turns:
                memory.remember(turn)
                event = f'<turn date="{date_time(turn.date_time)}">{turn_line(turn)}</turn>'
                await agent.run(event, self.services.meter, turn)
                self.services.took_in(1)
        self._agent = agent

    async def recall(self, query: Query, meter: Meter) -> Evidence:
        """What a copy of the agent finds for the question, in the order found; chronological in `context`."""
        agent = self._built().copy()
        run = await agent.run(f"<question>{query.text}</question>", meter)
        items = _items(run)
        core = agent.memory.core
        kept = longest(len(items), lambda n: self._fits(_context(core, items[:n])))
        if kept == 0:  # what was found comes before what is always there
            kept = longest(len(items), lambda n: self._fits(_context({}, items[:n])))
            core = core if kept == 0 and self._fits(_context(core, ())) else {}
        trace = {
            "steps": run.steps,
            "stop": run.stop,
            "message": run.message,
            "dropped": len(items) - kept,
            "core_shown": bool(core),
            **{name: agent.counts[name] for name in ("alerts", "flushes")},
        }
        return Evidence(_context(core, items[:kept]), tuple(items[:kept]), trace)

    def _fits(self, text: str) -> bool:
        tokens = self.services.context_tokens
        return len(text) <= tokens or self.services.chat.count_tokens(text) <= tokens

    def _built(self) -> Agent:
        if self._agent is None:
            raise RuntimeError("MemGPT: nothing has been ingested")
        return self._agent

    def stats(self) -> MemoryStats:
        """Notes are the archive's passages."""
        agent = self._built()
        archive = agent.memory.archive
        return MemoryStats(
            notes=len(archive),
            appends=len(archive),
            largest=max((len(passage.dia_ids) for passage in archive), default=0),
            extra={"recall": len(agent.memory.recall), **dict(sorted(agent.counts.items()))},
        )

    def export(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        """core: the blocks; archive: its passages; queue: summary and messages as the next question finds them."""
        agent = self._built()
        queue = [{"role": "summary", "text": agent.summary}] if agent.summary else []
        return {
            "core": [{"block": name, "text": agent.memory.core[name]} for name in BLOCKS],
            "archive": [_row(passage) for passage in agent.memory.archive],
            "queue": [*queue, *({"role": entry.role, "text": entry.text} for entry in agent.queue)],
        }

    @classmethod
    def plan(cls, config: MemGPTConfig, shape: DataShape, *, can_judge: bool) -> CallPlan:
        """Per event 1 to max_steps calls; without preload a flush at most every other turn. Tokens: an empty
        queue, or, without preload, on average one that half of the turns have filled, each with its call and result."""
        turn = TOKENS_PER_WORD * shape.words / max(1, shape.turns) + LINE_TOKENS
        page = config.page_size * turn
        each = frame_tokens(STEP) + REPLY_TOKENS[STEP] / 3
        most = config.max_steps
        queue = 0 if config.preload else turn * shape.turns / max(1, shape.conversations)
        questions = (1, most)
        query_tokens = (int(each), int(most * (each + queue + most * page / 2)))
        context = (0, int(most * page))
        if config.preload:
            return CallPlan((0, 0), (0, 0), questions, query_tokens, context)
        calls = (shape.turns, shape.turns * most + shape.turns // 2)
        tokens = (int(shape.turns * each), int(calls[1] * (each + queue)))
        return CallPlan(calls, tokens, questions, query_tokens, context)


def _items(run: Run) -> list[EvidenceItem]:
    """What was found, each passage once, where it was found first; the searches that showed it are its paths."""
    paths: dict[Passage, Counter[str]] = {}
    for passage, _, function, _, _ in run.found:
        paths.setdefault(passage, Counter())[function] += 1
    items = []
    for passage, score, _, search, place in run.found:
        if passage in paths:
            by = tuple(paths.pop(passage))
            items.append(EvidenceItem(passage.line, passage.dia_ids, place, score, passage.date, by, search))
    return items


def _context(core: Mapping[str, str], items: Sequence[EvidenceItem]) -> str:
    lines = [text for text in core.values() if text]
    dated = sorted(items, key=lambda item: item.date or datetime.max)
    return "\n".join([*lines, *(item.text for item in dated)])


def _row(passage: Passage) -> dict[str, Any]:
    when = passage.date.isoformat() if passage.date else None
    return {"text": passage.text, "date": when, "dia_ids": list(passage.dia_ids)}
