"""The smallest memory system there can be: the last k turns. For tests of what surrounds a memory."""

from dataclasses import dataclass
from typing import ClassVar

from harness.memory import CallPlan, Evidence, EvidenceItem, MemoryStats, MemorySystem
from harness.spec import identity


@dataclass(frozen=True, kw_only=True)
class StubConfig:
    k: int = identity(default=2)


class Stub(MemorySystem):
    Config: ClassVar[type] = StubConfig

    async def ingest(self, conversation):
        self.turns = conversation.turns

    async def recall(self, query, meter):
        items = tuple(
            EvidenceItem(text=turn.full_text, dia_ids=(turn.dia_id,), rank=rank, score=1.0, date=turn.date_time)
            for rank, turn in enumerate(self.turns[-self.config.k :], 1)
        )
        return Evidence("\n".join(item.text for item in items), items)

    def stats(self):
        return MemoryStats(notes=len(self.turns), appends=len(self.turns), largest=1)

    @classmethod
    def plan(cls, config, shape, *, can_judge):
        return CallPlan((0, 0), (0, 0), (0, 0), (0, 0))
