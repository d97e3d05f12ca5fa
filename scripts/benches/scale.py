"""Retrieval and ingestion of MemFly against the size of the memory, up to 100,000 notes.

A memory grows through the builder's own commit (candidates, gate by embeddings, merge, index), with drafts and vectors at
hand, so that only our own work is timed: CPU of the thread, or medians of interleaved repetitions.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml

from harness.embed import build_embedder
from harness.index import EXACT, DenseIndex
from harness.llm.types import Meter
from harness.locomo.loader import load_dataset
from harness.memory import Services
from harness.spec import DatasetSpec, EmbedderSpec
from memfly.builder import Builder
from memfly.config import MemFlyConfig
from memfly.hierarchy import Hierarchy
from memfly.note import Note
from memfly.pathways import Probe, retrieve
from memfly.replies import Merged
from memfly.topics import KeywordGraph, evolve, violations
from scripts.benches.world import World

TITLE = "Retrieval and ingestion against the size of the memory"
SIZES = (1_000, 10_000, 20_000, 50_000, 100_000)
WINDOW = 1_000
"""Notes over which the cost of one is averaged, up to each size."""
QUERIES = 60
ENTITIES = 4
NEVER = 10**9
CONFIG = MemFlyConfig(scoring="embedding")
CACHE = Path("results/cache")
EMBEDDER = Path(__file__).resolve().parent.parent.parent / "conf" / "embedder" / "minilm.yaml"


def measure(data: Path | None) -> dict[str, Any]:
    """Rows by size, the cost of topics, and the recall of the graph."""
    return asyncio.run(_measure(data))


async def _measure(data: Path | None) -> dict[str, Any]:
    spec = DatasetSpec(name="locomo10", path=str(data)) if data else DatasetSpec(name="sample")
    world = World(load_dataset(spec))
    embedder = build_embedder(EmbedderSpec(**yaml.safe_load(EMBEDDER.read_text(encoding="utf-8"))), CACHE)
    try:
        await world.embed(embedder)
        queries = await embedder.encode(list(dict.fromkeys(world.questions))[:QUERIES])
        on_texts = _recall_on_texts(world.vectors, queries)
    finally:
        await embedder.aclose()
    memory = Growing(world, queries.shape[1])
    rows: list[dict[str, Any]] = []
    beside: asyncio.Future[dict[str, Any]] | None = None
    for size in SIZES:
        await memory.grow(size - WINDOW)
        row = {"commit_ms": await memory.grow(size), "merges": memory.builder.counts.merges}
        if beside is not None:
            rows[-1] |= await beside
        if size < EXACT:
            row |= memory.evolve(KeywordGraph.of(memory.hierarchy))
        rows.append(row | _retrieval(memory.hierarchy, queries))
        if EXACT <= size < SIZES[-1]:
            graph = KeywordGraph.of(memory.hierarchy)
            beside = asyncio.get_running_loop().run_in_executor(None, memory.evolve, graph)
        print(f"  {size:,} notes", flush=True)
    return {
        "data": spec.name,
        "turns": len(world.turns),
        "window": WINDOW,
        "exact_index": EXACT,
        "sizes": rows,
        "recall_texts": on_texts,
        "recall_notes": _share(memory.hierarchy.note_index, queries),
        "recall_keywords": _share(memory.hierarchy.keyword_index, queries),
        "dead": memory.hierarchy.note_index.dead_share,
    }


class Growing:
    """A memory that grows by MemFly's own commits. A merged note keeps its context and takes the new draft's vector."""

    def __init__(self, world: World, dim: int):
        self._drafts = world.drafts()
        self._draft = next(self._drafts)
        self._note: Note | None = None
        embedder = SimpleNamespace(dim=dim, encode=self._encode, max_tokens=NEVER)
        chat = SimpleNamespace(can_judge=False)
        caller = SimpleNamespace(ask=self._ask, room=lambda prompt: NEVER, fits=lambda text, tokens: True)
        services = Services(chat, embedder, Meter(), 0, NEVER)  # type: ignore[arg-type]
        self.builder = Builder(replace(CONFIG, topic_every=NEVER), services, caller)  # type: ignore[arg-type]
        self.hierarchy = self.builder.hierarchy

    async def _ask(self, *args: Any, old: Any, **inputs: Any) -> Merged:
        return Merged(context=old.context)

    async def _encode(self, texts: list[str]) -> np.ndarray:
        return self._draft.vector[None]

    async def grow(self, size: int) -> float:
        """Commit drafts until there are `size` notes. Milliseconds of CPU a commit took on average."""
        spent, commits = 0.0, 0
        while len(self.hierarchy.notes) < size:
            began = time.thread_time()
            self._note = await self.builder.commit([self._draft], self._note)
            spent += time.thread_time() - began
            self._draft = next(self._drafts)
            commits += 1
        return 1e3 * spent / max(1, commits)

    def evolve(self, graph: KeywordGraph) -> dict[str, Any]:
        """Give the memory the topics of this graph, and say how many they are and how long it took."""
        began = time.perf_counter()
        topics = evolve(graph, smallest=CONFIG.topic_min, largest=CONFIG.topic_max, seed=0)
        took = time.perf_counter() - began
        self.hierarchy.topics = topics
        return {
            "topics": len(topics),
            "topics_outside": len(violations(topics, CONFIG.topic_min, CONFIG.topic_max)),
            "topics_s": took,
            "topics_ms_per_note": 1e3 * took / CONFIG.topic_interval(len(graph.notes)),
        }


def _retrieval(hierarchy: Hierarchy, queries: np.ndarray) -> dict[str, Any]:
    """Retrieval beside a bare flat search, in this memory."""
    import faiss

    flat = faiss.IndexFlatIP(queries.shape[1])
    flat.add(np.stack([note.vector for note in hierarchy.notes]))
    probes = [
        Probe(query, queries[place - 1], queries[place - 1 - ENTITIES : place - 1])
        for place, query in enumerate(queries)
        if place > ENTITIES
    ]
    ours, bare = [], []
    for probe in [probes[0], *probes]:  # the first once more, to warm up
        began = time.perf_counter()
        retrieve(hierarchy, probe, CONFIG)
        between = time.perf_counter()
        flat.search(probe.query[None], CONFIG.k_final)
        ours.append(1e3 * (between - began))
        bare.append(1e3 * (time.perf_counter() - between))
    return {
        "notes": len(hierarchy.notes),
        "keywords": len(hierarchy.keywords),
        "keywords_per_note": statistics.mean(len(note.keywords) for note in hierarchy.notes),
        "longest_postings": max(len(keyword.notes) for keyword in hierarchy.keywords),
        "edges": hierarchy.edge_count,
        "retrieve_ms": statistics.median(ours[1:]),
        "flat_ms": statistics.median(bare[1:]),
    }


def _recall_on_texts(rows: np.ndarray, queries: np.ndarray) -> dict[str, Any]:
    """The graph on nothing but text embeddings."""
    index = DenseIndex(rows.shape[1], exact=len(rows) // 2)
    for id, row in enumerate(rows):
        index.add(id, row)
    return {"texts": len(rows), "recall": _share(index, queries)}


def _share(index: DenseIndex, queries: np.ndarray) -> float:
    """Recall at 10: of the ten nearest, the share a search finds."""
    found = [
        len({id for id, _ in index.scan(query, 10)} & {id for id, _ in index.search(query, 10)}) / 10
        for query in queries
    ]
    return statistics.mean(found)


def page(figures: dict[str, Any]) -> str:
    """The Markdown page of these figures."""
    rows = figures["sizes"]
    exact = figures["exact_index"]
    first = next((row for row in rows if row["notes"] >= exact), rows[-1])
    largest = rows[-1]
    allowed = 2 * largest["flat_ms"] + 5
    grown = largest["commit_ms"] / first["commit_ms"]
    log = math.log(largest["notes"]) / math.log(first["notes"])
    table = [
        "| notes | keywords | longest postings | tri-pathway retrieval, ms | bare FAISS flat search, ms | commit of a turn, ms"
        " of CPU | topics | topic run, s | topic runs, ms per new note |",
        "| ---: " * 9 + "|",
        *(
            f"| {row['notes']:,} | {row['keywords']:,} | {row['longest_postings']:,} | {row['retrieve_ms']:.1f} |"
            f" {row['flat_ms']:.2f} | {row['commit_ms']:.2f} |"
            + (
                f" {row['topics']:,} | {row['topics_s']:.1f} | {row['topics_ms_per_note']:.1f} |"
                if "topics" in row
                else " - | - | - |"
            )
            for row in rows
        ),
    ]
    texts = figures["recall_texts"]
    data = "LoCoMo-10" if figures["data"] == "locomo10" else "the shipped sample"
    return f"""One memory grown by MemFly's own commit (candidates, the gate by embeddings, merges, indices; drafts and vectors at hand) with
the {figures["turns"]:,} turns of {data}, then with turns like them: a vector made of three turns', new keywords for ever, the speakers'
names on half of all notes. {largest["merges"]:,} merges at {largest["notes"]:,} notes. Retrieval: {QUERIES - ENTITIES} questions with {ENTITIES} entities each, median, each
followed by the flat search. Commit: mean of the {figures["window"]:,} notes up to that size. Up to {exact:,} vectors search is exact, beyond it an HNSW graph.

{chr(10).join(table)}

* Retrieval at {largest["notes"]:,} notes: {largest["retrieve_ms"]:.1f} ms; twice the flat search plus 5 ms is {allowed:.1f} ms.
* A commit at {largest["notes"]:,} notes costs {grown:.2f} times one at {first["notes"]:,}; the logarithm of the size grew {log:.2f}-fold.
* Topic runs come every {CONFIG.topic_every} new notes, or every twentieth of the memory where that is more, and work in a process of their own.
  From {exact:,} notes on the run of a row goes on while the next row's memory grows, and retrieval is with the topics before it.
* Recall at 10 of the graph against the exact search: {texts["recall"]:.3f} on {texts["texts"]:,} text embeddings (turns and keywords),
  {figures["recall_notes"]:.3f} on the notes and {figures["recall_keywords"]:.3f} on the keywords at the end, where {figures["dead"]:.1%} of the graph's nodes are dead."""
