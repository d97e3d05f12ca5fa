"""Systems that remember nothing. Their rows bound what a figure of a real system can mean.

Abstaining needs no gold, so AlwaysAbstain answers by itself. The trap and the copy do need it, and no memory system may
see it: they name an answerer of eval.sanity (`oracle`), which the door puts in the reader's place and announces above
the table. What reaches these classes is what reaches every other system.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.llm.types import Meter, Reply, Usage
from harness.locomo.schema import Conversation
from harness.memory import CallPlan, DataShape, Evidence, EvidenceKind, MemorySystem, Query
from harness.protocol import ABSTAIN
from harness.spec import REFUSE_UNKNOWN


@dataclass(frozen=True, kw_only=True)
class NoConfig:
    """There is nothing to choose."""

    __pydantic_config__ = REFUSE_UNKNOWN


class RemembersNothing(MemorySystem):
    """No state, no evidence, no calls: neither per turn, session nor question."""

    Config: ClassVar[type] = NoConfig
    evidence_kind: ClassVar[EvidenceKind] = "none"
    _ingested = False

    async def ingest(self, conversation: Conversation) -> None:
        self._ingested = True

    async def recall(self, query: Query, meter: Meter) -> Evidence:
        if not self._ingested:
            raise RuntimeError(f"{type(self).__name__}: nothing has been ingested")
        return Evidence(context="")

    @classmethod
    def table_notices(cls, config: NoConfig, *, can_judge: bool) -> tuple[str, ...]:
        return ("no memory: this row bounds what a figure can mean",)

    @classmethod
    def plan(cls, config: NoConfig, shape: DataShape, *, can_judge: bool) -> CallPlan:
        return CallPlan((0, 0), (0, 0), (0, 0), (0, 0), reader=False)


class AlwaysAbstain(RemembersNothing):
    """Says that it was not mentioned, whatever is asked: what f1_locomo pays for silence."""

    async def answer(self, query: Query, evidence: Evidence, meter: Meter) -> Reply:
        return Reply(ABSTAIN, None, Usage(), cached=False, attempts=0, repairs=(), latency_s=0.0, finish_reason="stop")


class AlwaysTrap(RemembersNothing):
    """The trap in category 5, nothing elsewhere: what f1_amem pays for being fooled."""

    oracle: ClassVar[str] = "trap_only"


class PerfectCopy(RemembersNothing):
    """The reference itself: how far each scorer lies from 1 at its best."""

    oracle: ClassVar[str] = "perfect_copy"
