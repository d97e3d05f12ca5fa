"""Retrieval and ingestion of MemFly against the size of the memory, up to 100,000 notes.

A memory grows through the builder's own commit (candidates, gate by embeddings, merge, index), with drafts and vectors at
hand, so that only our own work is timed: CPU of the thread, or medians of interleaved repetitions.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml

from harness.embed import Embedder, build_embedder
from harness.index import EXACT, DenseIndex
from harness.llm.types import Meter
from harness.llm.words import sentences
from harness.locomo.loader import load_dataset
from harness.memory import Services
from harness.spec import DatasetSpec, EmbedderSpec
from memfly.builder import Builder
from memfly.config import MemFlyConfig
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
CONFIG = MemFlyConfig(scoring="embedding", topic_every=NEVER)
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
        on_texts = await _recall_on_texts(world, embedder, queries)
    finally:
        await embedder.aclose()
    builder = _builder(queries.shape[1])
    rows = []
    drafts = world.drafts()
    previous: Note | None = None
    for size in SIZES:
        spent = began = 0.0
        counted = 0
        while len(builder.hierarchy.notes) < size:
            draft = next(drafts)
            began = time.thread_time()
            previous = await builder.commit([draft], previous)
            if len(builder.hierarchy.notes) > size - WINDOW:
                spent += time.thread_time() - began
                counted += 1
        rows.append(_at(builder, queries) | {"commit_ms": 1e3 * spent / counted, "merges": builder.counts.merges})
        print(f"  {size} notes", flush=True)
    return {
        "data": spec.name,
        "turns": len(world.turns),
        "exact_index": EXACT,
        "sizes": rows,
        "recall_texts": on_texts,
        "recall_notes": _share(builder.hierarchy.note_index, queries),
        "dead": builder.hierarchy.note_index.dead_share,
    }


def _builder(dim: int) -> Builder:
    """A builder whose merged contexts are there at once and embed to the merged note's vector."""

    async def ask(*args: Any, old: Any, **inputs: Any) -> Merged:
        return Merged(context=old.context)

    async def encode(texts: list[str]) -> np.ndarray:
        return np.stack([builder.hierarchy.notes[-1].vector for _ in texts])

    embedder = SimpleNamespace(dim=dim, encode=encode, max_tokens=NEVER)
    chat = SimpleNamespace(can_judge=False)
    caller = SimpleNamespace(ask=ask, room=lambda prompt: NEVER, fits=lambda text, tokens: True)
    builder = Builder(CONFIG, Services(chat, embedder, Meter(), 0, NEVER), caller)  # type: ignore[arg-type]
    return builder


def _at(builder: Builder, queries: np.ndarray) -> dict[str, Any]:
    """Topics, then retrieval beside a bare flat search, in a memory of this size."""
    import faiss

    hierarchy = builder.hierarchy
    began, cpu = time.perf_counter(), time.process_time()
    graph = KeywordGraph.of(hierarchy)
    hierarchy.topics = evolve(graph, smallest=CONFIG.topic_min, largest=CONFIG.topic_max, seed=0)
    topics_s, own_s = time.perf_counter() - began, time.process_time() - cpu
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
        "topics": len(hierarchy.topics),
        "topics_outside": len(violations(hierarchy.topics, CONFIG.topic_min, CONFIG.topic_max)),
        "topics_s": topics_s,
        "topics_own_s": own_s,
        "retrieve_ms": statistics.median(ours[1:]),
        "flat_ms": statistics.median(bare[1:]),
    }


async def _recall_on_texts(world: World, embedder: Embedder, queries: np.ndarray) -> dict[str, Any]:
    """The graph on nothing but text embeddings: turns and their sentences."""
    texts = [text for turn in world.turns for text in (turn.full_text, *sentences(turn.text)) if text.strip()]
    rows = await embedder.encode(list(dict.fromkeys(texts)))
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
