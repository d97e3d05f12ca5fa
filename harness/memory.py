"""The MemorySystem seam: what a memory may see, what it must give back, and how one is found by name."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from harness.errors import ConfigError

if TYPE_CHECKING:
    from harness.embed import Embedder
    from harness.llm.types import ChatModel, Meter, Reply
    from harness.locomo.schema import Conversation

EvidenceKind = Literal["exact", "session", "page", "none"]


@dataclass(frozen=True)
class Query:
    """All that a memory system learns of a question. Never the gold, the evidence or the options."""

    id: str
    text: str
    category: int


@dataclass(frozen=True)
class EvidenceItem:
    """One piece of evidence.

    text: as the reader sees it. dia_ids: the turns it holds, oldest first. ends: for each dia_id the number
    of whitespace-separated words of `text` after which that turn is wholly shown (default: all of them), used by
    budgeted recall. paths: which retrieval pathways brought it. rank: from 1 within its round.
    round: 0 for the first retrieval. date: of its first turn.
    """

    text: str
    dia_ids: tuple[str, ...]
    rank: int
    score: float
    date: datetime | None = None
    paths: tuple[str, ...] = ()
    round: int = 0
    ends: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Evidence:
    """What a recall hands to the reader. `context` is the text of the answer prompt; `trace` is JSON-able and says
    how the items came about (sub-queries, stop reason, what was dropped); it is recorded, never scored."""

    context: str
    items: tuple[EvidenceItem, ...] = ()
    trace: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Services:
    """What a memory system is given to work with. One instance per conversation.

    context_tokens: how many tokens of context the answer prompt can take. took_in: a system may tell with it that so
    many further turns are in its memory, for the display alone.
    """

    chat: ChatModel
    embedder: Embedder
    meter: Meter
    seed: int
    context_tokens: int
    took_in: Callable[[int], None] = lambda turns: None


@dataclass(frozen=True)
class MemoryStats:
    """Counts of a built memory, for metrics.json. `largest` is the largest number of turns in one memory item;
    `merged_turns` how many turns share an item with another turn. `distributions` maps a score's name to values."""

    notes: int = 0
    merges: int = 0
    links: int = 0
    appends: int = 0
    largest: int = 0
    merged_turns: int = 0
    notices: tuple[str, ...] = ()
    distributions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CallPlan:
    """Predicted model calls and tokens, lowest and highest: memory_* over the whole data set, query_* for one
    question, context_tokens of the evidence handed to the reader (whose own calls are added by harness.plan).
    reader: whether there is one; False where the system answers by itself or an oracle does."""

    memory_calls: tuple[int, int]
    memory_tokens: tuple[int, int]
    query_calls: tuple[int, int]
    query_tokens: tuple[int, int]
    context_tokens: tuple[int, int] = (0, 0)
    reader: bool = True


@dataclass(frozen=True)
class DataShape:
    """Sizes a plan is made from. turn_words: words of each turn (captions included), by session, conversations one
    after another."""

    conversations: int
    sessions: int
    turns: int
    words: int
    questions: int
    turn_words: tuple[tuple[int, ...], ...] = ()


class MemorySystem(ABC):
    """One conversation's memory. The runner makes one instance per conversation, so nothing leaks between them.

    After `ingest` returns, `recall` is called from many coroutines at once and must not change the state
    (a system whose paper changes it on recall says so and keeps the questions independent).
    """

    Config: ClassVar[type]
    """A frozen dataclass; its fields are declared with spec.identity() or spec.runtime()."""
    evidence_kind: ClassVar[EvidenceKind] = "exact"
    prompt_files: ClassVar[tuple[str, ...]] = ()
    """Prompt files the system uses, relative to the repository root: their hash is part of the run's identity."""
    oracle: ClassVar[str | None] = None
    """Name of an answerer of eval.sanity that the door puts in the reader's place. It sees the gold, which the memory
    never does: such a system is a bound on the figures, and every table says ORACLE. None for every real system."""

    def __init__(self, config: Any, services: Services):
        self.config = config
        self.services = services

    @abstractmethod
    async def ingest(self, conversation: Conversation) -> None:
        """Build the memory of one conversation. Called once. EndpointError passes through."""

    async def restore(
        self, tables: Mapping[str, Sequence[Mapping[str, Any]]], stats: MemoryStats, conversation: Conversation
    ) -> None:
        """Instead of `ingest`: take over the memory of this conversation from its `export` and `stats`.

        Optional. A system that overrides it shares built memories between runs (harness/built.py), and promises that
        recall, stats and export are those of the memory that was exported. Options that touch recall alone are then
        declared with spec.identity(stage="recall"); services.context_tokens may not be used while building.
        """
        raise NotImplementedError

    @abstractmethod
    async def recall(self, query: Query, meter: Meter) -> Evidence:
        """Evidence for a query, its calls charged to `meter`. Recall before ingest is a RuntimeError."""

    async def answer(self, query: Query, evidence: Evidence, meter: Meter) -> Reply | None:
        """Override only in a system that must answer by itself; None lets the reader answer."""
        return None

    def stats(self) -> MemoryStats:
        return MemoryStats()

    def export(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        """The memory as named tables of JSON-able rows, written as <name>.jsonl in the run folder."""
        return {}

    @classmethod
    def evidence_of(cls, config: Any) -> EvidenceKind:
        """The kind of evidence under this config; override where an option changes it."""
        return cls.evidence_kind

    @classmethod
    def table_notices(cls, config: Any, *, can_judge: bool) -> tuple[str, ...]:
        """Lines that must stand above every table of this system under this config."""
        return ()

    @classmethod
    @abstractmethod
    def plan(cls, config: Any, shape: DataShape, *, can_judge: bool) -> CallPlan:
        """Predict calls and tokens for a data set of this shape."""


def load_system(path: str) -> type[MemorySystem]:
    """The class behind a lazy registry string such as "memfly.system:MemFly" (it stands in conf/memory/*.yaml)."""
    module_name, _, attribute = path.partition(":")
    try:
        system = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"memory.system={path!r} cannot be loaded ({error}); give it as 'module:Class'") from error
    if not (isinstance(system, type) and issubclass(system, MemorySystem)):
        raise ConfigError(f"memory.system={path!r} is not a MemorySystem class; give it as 'module:Class'")
    return system
