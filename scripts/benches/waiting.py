"""How long a run takes beside what it waits for: an endpoint of 0.2 s, each system, ingestion and answering apart.

Beside each run stands the same run if nothing but the model took time (scripts/benches/clock.py): with unlimited places
that is the longest chain of calls that depend on one another, with the backbone's places the best any client could do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.embed import Embedder
from harness.encoders import SentenceEncoder
from scripts.benches.endpoint import serving
from scripts.benches.trip import imagine, prepared, slice_of, travel

TITLE = "Waiting for the model, and for nothing else"
LATENCY_S = 0.2
UNLIMITED = 10**6
SLICE = ("dataset.max_sessions=3", "dataset.max_questions=50")
PAIRWISE = ("memory=memfly", "memory.scoring=pairwise")
LISTWISE = ("memory=memfly", "memory.scoring=listwise")
QUICK: dict[str, Sequence[str]] = {
    name: (f"memory={name}",) for name in ("locomo", "rag", "readagent", "memorybank", "memgpt")
}
SLOW: dict[str, Sequence[str]] = {"amem": ("memory=amem",), "mem0": ("memory=mem0",)}
"""Of a whole conversation these run at the same time: each waits for one call after another."""
WHOLE: dict[str, Sequence[str]] = {
    "memfly, pairwise": PAIRWISE,
    "memfly, pairwise, merging more": (*PAIRWISE, "memory.tau_merge=0.4", "memory.tau_link=0.4"),
    **QUICK,
}
ELSEWHERE = (
    "A-MEM's own harness, measured elsewhere on this slice with this endpoint, one call at a time on 2 cores: 26.2 s for 116"
    " ingestion calls and 11.2 s for 50 question calls, 25 ms of overhead and 46 ms of CPU a call (most of it MiniLM, one text"
    " at a time: 9 ms alone, 2.1 ms in batches of 64). Its retriever took 0.68 / 4.6 / 28.8 ms at 1,000 / 10,000 / 50,000 notes, FAISS"
    " flat with one thread 0.03 / 0.27 / 2.7 ms. These figures are no part of this run."
)


def measure(data: Path | None) -> dict[str, Any]:
    """Rows of the slice and of the whole conversation."""
    where = slice_of(data)
    encoder = SentenceEncoder(prepared(where).spec.embedder)
    list(encoder.batches(["The weights are loaded with the first text."]))
    with serving(LATENCY_S) as url:

        def rows(overrides: Sequence[str], systems: dict[str, Sequence[str]]) -> list[dict[str, Any]]:
            return _rows([*where, *overrides], systems, encoder, url)

        rows(["dataset.max_questions=1"], {"warm-up": ("memory=rag",)})  # imports, first connections
        return {
            "data": "conv-26 of LoCoMo-10" if data else "the first conversation of the shipped sample",
            "latency_s": LATENCY_S,
            "places": prepared(where).spec.backbone.concurrency_max,
            "together": list(SLOW),
            "slice": [
                row
                for one in {"memfly, pairwise": PAIRWISE, "memfly, listwise": LISTWISE, **QUICK, **SLOW}.items()
                for row in rows(SLICE, dict([one]))
            ],
            "whole": [*(row for one in WHOLE.items() for row in rows((), dict([one]))), *rows((), SLOW)],
        }


def _rows(
    where: Sequence[str], systems: dict[str, Sequence[str]], encoder: SentenceEncoder, url: str
) -> list[dict[str, Any]]:
    """Runs at the same time over HTTP, texts encoded on the way; MemFly's pairwise slice again when all vectors are known."""
    jobs = [prepared([*where, *asked]) for asked in systems.values()]
    pairs = [(job, Embedder(job.spec.embedder, encoder, None)) for job in jobs]
    runs = [(name, *pair, trip) for name, pair, trip in zip(systems, pairs, travel(pairs, url), strict=True)]
    if list(systems) == ["memfly, pairwise"] and SLICE[0] in where:
        runs.append(("memfly, pairwise, vectors known", *pairs[0], *travel(pairs, url)))
    rows = []
    for name, job, embedder, real in runs:
        print(f"  {name}: {real.ingest.seconds:.1f} s, {real.answer.seconds:.1f} s", flush=True)
        best = imagine(job, embedder, LATENCY_S, job.spec.backbone.concurrency_max)
        chain = imagine(job, embedder, LATENCY_S, UNLIMITED)
        phases = {
            phase: {
                **asdict(getattr(real, phase)),
                "best_s": getattr(best, phase).seconds,
                "chain_s": getattr(chain, phase).seconds,
            }
            for phase in ("ingest", "answer")
        }
        shape = {"turns": real.turns, "questions": real.questions, "merges": real.counts["merges"]}
        rows.append({"system": name, **shape, **phases})
    return rows


def page(figures: dict[str, Any]) -> str:
    """The Markdown page of these figures."""
    first, whole = figures["slice"][0], figures["whole"][0]
    amem = next(row for row in figures["slice"] if row["system"] == "amem")
    return f"""An endpoint that takes {figures["latency_s"]} s a call, {figures["places"]} calls at once. "Chain" is the longest chain of calls that depend
on one another (at memfly's speculation depth of 8), "best" the shortest time with that many calls at once, both if nothing but the model
took time. Wall times hold all our own work, encoding with MiniLM included. The stand-in gives the same short replies to all: real models
answer more slowly and merge and refine as they see fit, so seconds here are no forecast.

{figures["data"]}, 3 sessions: {first["turns"]} turns, {first["questions"]} questions.

{_table(figures["slice"])}

The whole conversation: {whole["turns"]} turns, {whole["questions"]} questions; {", ".join(figures["together"])} at the same time.

{_table(figures["whole"])}

`memory=amem` here: {amem["ingest"]["seconds"]:.1f} s for {amem["ingest"]["calls"]} ingestion calls, {amem["answer"]["seconds"]:.1f} s for {amem["answer"]["calls"]} question calls, \
{1e3 * (amem["ingest"]["cpu_s"] + amem["answer"]["cpu_s"]) / (amem["ingest"]["calls"] + amem["answer"]["calls"]):.0f} ms of CPU a call. {ELSEWHERE}"""


def _table(rows: Sequence[dict[str, Any]]) -> str:
    head = "calls | latencies, s | chain, s | best, s | wall, s | wall / chain | wall / best"
    lines = [
        f"| | merges | ingestion: {head} | answering: {head} |",
        "| --- |" + " ---: |" * 15,
    ]
    for row in rows:
        phases = " | ".join(_phase(row[phase]) for phase in ("ingest", "answer"))
        lines.append(f"| {row['system']} | {row['merges']} | {phases} |")
    return "\n".join(lines)


def _phase(one: dict[str, Any]) -> str:
    over = [f"{one['seconds'] / one[key]:.2f}" if one[key] > 0 else "-" for key in ("chain_s", "best_s")]
    times = (one["waited_s"], one["chain_s"], one["best_s"], one["seconds"])
    return " | ".join([f"{one['calls']:,}", *(f"{seconds:.1f}" for seconds in times), *over])
