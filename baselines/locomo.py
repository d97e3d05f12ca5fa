"""Full context: the reader gets the whole conversation, or what of it the window holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from baselines.common import TOKENS_PER_WORD, date_time, turn_line, word_count
from harness.calls import longest
from harness.llm.types import Meter
from harness.locomo.schema import Conversation, Session, Turn
from harness.memory import CallPlan, DataShape, Evidence, EvidenceItem, MemoryStats, MemorySystem, Query, Services
from harness.spec import REFUSE_UNKNOWN, identity

Overflow = Literal["drop_oldest", "drop_newest"]

LINE_TOKENS, DATE_TOKENS = 3, 12
"""For the plan: what a turn's speaker and line break take, and a session's date line (our choice)."""


@dataclass(frozen=True, kw_only=True)
class LocomoConfig:
    """Nothing but what goes when the window is too small."""

    __pydantic_config__ = REFUSE_UNKNOWN

    overflow: Overflow = identity(default="drop_oldest")
    """Which sessions go first. Our choice: the oldest, as a window that slides over a conversation would lose them.
    drop_newest is the official code's: it puts the newest session first and cuts at the front."""


@dataclass(frozen=True)
class _Block:
    """A session, or the part of it that fits, as text. ends: see EvidenceItem."""

    text: str
    dia_ids: tuple[str, ...]
    ends: tuple[int, ...]
    date: datetime


def _block(session: Session, turns: Sequence[Turn]) -> _Block:
    lines, ends = [f"[{date_time(session.date_time)}]"], []
    words = word_count(lines[0])
    for turn in turns:
        lines.append(turn_line(turn))
        words += word_count(lines[-1])
        ends.append(words)
    return _Block("\n".join(lines), tuple(turn.dia_id for turn in turns), tuple(ends), session.date_time)


class Locomo(MemorySystem):
    """Full context of arXiv:2402.17753 (its "base" models).

    State: the conversation as text: one sentence that names the speakers, then the sessions newest first, each a date
    line and its turns with their captions. Calls: none per turn and session, none per question beside the reader's.
    Evidence: exact, all turns shown, one item a session in the order shown.

    Deviations. Paper: what overflows is not said; ours drops the oldest sessions. Official code: drops the newest
    (`overflow: drop_newest`, a consequence of its order, hardly an intention). Both drop whole sessions; where not even
    one fits, ours keeps the turns of it that do, at the end that `overflow` keeps: an empty context measures nothing.
    The wording of the sentence and of the lines is ours. Tokens are counted by the backbone's own tokenizer.
    """

    Config = LocomoConfig
    evidence_kind = "exact"
    config: LocomoConfig

    def __init__(self, config: LocomoConfig, services: Services):
        super().__init__(config, services)
        self._evidence: Evidence | None = None
        self._turns = 0
        self._notice = ""

    async def ingest(self, conversation: Conversation) -> None:
        """Lay out what fits; every question gets the same."""
        services = self.services

        def fits(blocks: Sequence[_Block]) -> bool:
            text = _context(conversation, blocks)
            return len(text) <= services.context_tokens or services.chat.count_tokens(text) <= services.context_tokens

        sessions = [session for session in conversation.sessions if session.turns]
        blocks = _cut(sessions, self.config.overflow, fits)
        shown = sum(len(block.dia_ids) for block in blocks)
        dropped = {"sessions_dropped": len(sessions) - len(blocks), "turns_dropped": len(conversation.turns) - shown}
        items = tuple(
            EvidenceItem(
                text=block.text,
                dia_ids=block.dia_ids,
                rank=rank,
                score=1.0,
                date=block.date,
                paths=("all",),
                ends=block.ends,
            )
            for rank, block in enumerate(blocks, 1)
        )
        self._evidence = Evidence(_context(conversation, blocks), items, dropped)
        self._turns = len(conversation.turns)
        room = f"window {services.chat.window}, {services.context_tokens} tokens for the context"
        if dropped["turns_dropped"]:
            end = "oldest" if self.config.overflow == "drop_oldest" else "newest"
            self._notice = (
                f"{conversation.sample_id} does not fit ({room}): {dropped['sessions_dropped']} of {len(sessions)} "
                f"sessions, {dropped['turns_dropped']} of {self._turns} turns dropped, the {end} first"
            )
        else:
            self._notice = f"whole conversations shown, no session dropped ({room})"

    async def recall(self, query: Query, meter: Meter) -> Evidence:
        if self._evidence is None:
            raise RuntimeError("Locomo: nothing has been ingested")
        return self._evidence

    def stats(self) -> MemoryStats:
        """Notes are turns: sessions are the layout, not items that swallow them."""
        return MemoryStats(notes=self._turns, appends=self._turns, largest=min(1, self._turns), notices=(self._notice,))

    @classmethod
    def plan(cls, config: LocomoConfig, shape: DataShape, *, can_judge: bool) -> CallPlan:
        """Exact calls; the tokens are those of whole conversations (harness.plan cuts them at the window)."""
        total = TOKENS_PER_WORD * shape.words + LINE_TOKENS * shape.turns + DATE_TOKENS * shape.sessions
        each = round(total / max(1, shape.conversations))
        return CallPlan((0, 0), (0, 0), (0, 0), (0, 0), context_tokens=(each, each))


def _context(conversation: Conversation, blocks: Sequence[_Block]) -> str:
    if not blocks:
        return ""
    head = f"What {conversation.speaker_a} and {conversation.speaker_b} said to each other, the latest session first."
    return "\n\n".join([head, *(block.text for block in blocks)])


def _cut(sessions: Sequence[Session], overflow: Overflow, fits: Callable[[Sequence[_Block]], bool]) -> list[_Block]:
    """The most sessions that fit, newest first; of a single one that does not, the most turns."""

    def kept(whole: Sequence, n: int) -> Sequence:
        return whole[len(whole) - n :] if overflow == "drop_oldest" else whole[:n]

    def blocks(n: int) -> list[_Block]:
        return [_block(session, session.turns) for session in reversed(kept(sessions, n))]

    n = longest(len(sessions), lambda n: fits(blocks(n)))
    if n > 0 or not sessions:
        return blocks(n)
    (session,) = kept(sessions, 1)
    m = longest(len(session.turns), lambda m: fits([_block(session, kept(session.turns, m))]))
    return [_block(session, kept(session.turns, m))] if m else []
