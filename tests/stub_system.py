"""The smallest memory system that keeps every contract: the last k turns. For tests of what surrounds a memory, and to
begin a new one from (README, "How to add")."""

from dataclasses import dataclass
from typing import ClassVar

from harness.memory import CallPlan, Evidence, EvidenceItem, MemoryStats, MemorySystem
from harness.spec import identity


@dataclass(frozen=True, kw_only=True)
class StubConfig:
    k: int = identity(default=2)


class Stub(MemorySystem):
    Config: ClassVar[type] = StubConfig
    turns = None

    async def ingest(self, conversation):
        self.turns = conversation.turns

    async def recall(self, query, meter):
        if self.turns is None:
            raise RuntimeError("recall before ingest")
        items = tuple(
            EvidenceItem(turn.full_text, (turn.dia_id,), rank, score=1.0, date=turn.date_time, paths=("recent",))
            for rank, turn in enumerate(self.turns[-self.config.k :], 1)
        )
        return Evidence("\n".join(item.text for item in items), items)

    def stats(self):
        return MemoryStats(notes=len(self.turns), appends=len(self.turns), largest=1)

    @classmethod
    def plan(cls, config, shape, *, can_judge):
        return CallPlan((0, 0), (0, 0), (0, 0), (0, 0))
