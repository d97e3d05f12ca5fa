"""Phase 1, F_ingest: one call per turn gives a self-contained context and keywords [P]."""

from __future__ import annotations

from collections.abc import Sequence

from harness.calls import Caller
from harness.embed import Embedder
from harness.llm.types import Meter
from harness.llm.words import names_and_words
from harness.locomo.schema import Turn
from memfly.calls import EXTRACT
from memfly.config import MemFlyConfig
from memfly.keywords import note_keywords
from memfly.note import Draft, date_time, embedding_text, turn_line
from memfly.replies import MAX_KEYWORDS, Extraction


def raw_context(turn: Turn) -> str:
    """The context of ablation no_denoise and of the fallback: "speaker (date-time): text [image: caption]"."""
    return f"{turn.speaker} ({date_time(turn.date_time)}): {turn.full_text}"


async def draft(
    turn: Turn, history: Sequence[Turn], config: MemFlyConfig, caller: Caller, embedder: Embedder, meter: Meter
) -> Draft:
    """A turn's draft: extraction, then h = Embed(c) and the keywords' embeddings.

    history: the turns before it in its session, oldest first. It reads no memory state, so many turns may be drafted
    at once.
    """
    context, extracted = await extract(turn, history, config, caller, meter)
    keywords = note_keywords(extracted, turn.speaker)
    text = embedding_text(context, [turn]) if config.embed_raw else context
    vectors = await embedder.encode([text, *keywords])
    return Draft(turn, context, keywords, vectors[0], vectors[1:])


async def extract(
    turn: Turn, history: Sequence[Turn], config: MemFlyConfig, caller: Caller, meter: Meter
) -> tuple[str, Sequence[str]]:
    """Context and keywords of a turn. Fallback "extract_raw": the raw turn, its names and content words.

    EndpointError passes through.
    """
    room = caller.room(EXTRACT)
    shown = caller.clip(turn_line(turn), room)
    earlier = _latest([turn_line(t) for t in history], shown, room, caller)
    value = await caller.ask(EXTRACT, Extraction, meter, history=earlier, date=date_time(turn.date_time), turn=shown)
    context = " ".join(value.context.split()) if value else ""
    if not context:
        meter.fallback("extract_raw")
    keywords = value.keywords if value else names_and_words(turn.full_text)[:MAX_KEYWORDS]
    return context if context and config.denoise else raw_context(turn), keywords


def _latest(lines: Sequence[str], shown: str, tokens: int, caller: Caller) -> str:
    """As many of the latest lines as fit into `tokens` together with `shown`."""
    while lines and not caller.fits("\n".join([*lines, shown]), tokens):
        lines = lines[1:]
    return "\n".join(lines)
