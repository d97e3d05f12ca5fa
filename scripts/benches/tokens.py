"""Tokens that a turn and a question cost, by system and by MemFly's ways of scoring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.embed import Embedder
from harness.encoders import SentenceEncoder
from scripts.benches.trip import prepared, slice_of, travel

TITLE = "Tokens of a turn and of a question"
SLICE = ("dataset.max_sessions=3",)
SYSTEMS: dict[str, Sequence[str]] = {
    **{f"memfly, {way}": ("memory=memfly", f"memory.scoring={way}") for way in ("pairwise", "listwise", "embedding")},
    **{name: (f"memory={name}",) for name in ("locomo", "rag", "readagent", "memorybank", "memgpt", "amem", "mem0")},
}


def measure(data: Path | None) -> dict[str, Any]:
    """Rows by system: calls and tokens of ingestion and of answering."""
    where = [*slice_of(data), *SLICE]
    spec = prepared(where).spec.embedder
    embedder = Embedder(spec, SentenceEncoder(spec), None)
    rows = []
    for name, asked in SYSTEMS.items():
        (trip,) = travel([(prepared([*where, *asked]), embedder)])
        phases = {"turn": (trip.ingest, trip.turns), "question": (trip.answer, trip.questions)}
        rows.append(
            {
                "system": name,
                **{
                    per: {
                        "calls": phase.calls / count,
                        "prompt_tokens": phase.prompt_tokens / count,
                        "completion_tokens": phase.completion_tokens / count,
                    }
                    for per, (phase, count) in phases.items()
                },
            }
        )
    return {
        "data": "conv-26 of LoCoMo-10" if data else "the first conversation of the shipped sample",
        "turns": trip.turns,
        "questions": trip.questions,
        "rows": rows,
    }


def page(figures: dict[str, Any]) -> str:
    """The Markdown page of these figures."""
    lines = [f"| {row['system']} | {_three(row['turn'])} | {_three(row['question'])} |" for row in figures["rows"]]
    pairwise, listwise = (
        next(row["turn"] for row in figures["rows"] if row["system"] == f"memfly, {way}")
        for way in ("pairwise", "listwise")
    )
    share = listwise["prompt_tokens"] / pairwise["prompt_tokens"]
    return f"""{figures["data"]}, 3 sessions: {figures["turns"]} turns, {figures["questions"]} questions. Prompts are the real ones, replies the stand-in's, which are short; tokens
are the bench's estimate, as in plans. Means.

| | calls a turn | prompt tokens a turn | completion tokens a turn | calls a question | prompt tokens a question | completion tokens a question |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
{chr(10).join(lines)}

Listwise scoring sends {share:.0%} of the prompt tokens that pairwise scoring sends for a turn; it is not scored ahead."""


def _three(per: dict[str, float]) -> str:
    return f"{per['calls']:.2f} | {per['prompt_tokens']:,.0f} | {per['completion_tokens']:,.0f}"
