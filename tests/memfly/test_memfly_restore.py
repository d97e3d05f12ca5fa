"""A memory restored from its export is the memory that was exported; options of recall touch no building."""

import asyncio
import dataclasses
import json
from dataclasses import replace

import pytest
from memfly_fakes import FakeChat, conversation, services

from harness.embed import build_embedder
from harness.llm.types import Meter
from harness.locomo.loader import load_dataset
from harness.memory import MemoryStats, Query
from harness.spec import DatasetSpec, EmbedderSpec, build_values, identity_values
from memfly.builder import Builder
from memfly.config import MemFlyConfig
from memfly.system import MemFly

EMBEDDER = EmbedderSpec(name="hashing", kind="hashing", model="hashing", dim=256, max_tokens=256)
BUSY = MemFlyConfig(scoring="pairwise", tau_merge=0.1, tau_link=0.1, topic_every=20)
"""The stand-in's scores are low: these make merges and links happen."""
CONFIGS = {
    "busy": BUSY,
    "plus": replace(BUSY, embed_raw=True, bm25_weight=1.0, adjacent_edges=True, anchor_neighbours=True, anchors=12),
    "listwise": replace(BUSY, scoring="listwise", neighbour_mode="list", k_total=None),
    "no_update": replace(BUSY, update=False),
    "no_denoise": replace(BUSY, denoise=False, link=False),
}
OTHER = {
    "topic": False, "keyword": False, "neighbor": False, "k_topic": 1, "k_key": 2, "k_final": 4, "anchors": 2,
    "neighbour_mode": "list", "neighbour_quota": 1, "anchor_neighbours": True, "bm25_weight": 1.0, "i_max": 1,
    "round_weight": 1.0, "k_total": None, "render": "raw",
}  # fmt: skip
"""Every option declared to touch recall alone, with another value than the default."""


@pytest.fixture(scope="module")
def samples():
    return load_dataset(DatasetSpec(name="sample", max_sessions=3, max_questions=12)).samples


def fresh(config, embedder):
    return MemFly(config, services(FakeChat(), embedder, seed=3))


def stored(system):
    """What a file holds of it: tables and counts, through JSON."""
    tables = {name: list(rows) for name, rows in system.export().items()}
    text = json.dumps([tables, dataclasses.asdict(system.stats())])
    tables, facts = json.loads(text)
    facts["notices"] = tuple(facts["notices"])
    facts["distributions"] = {name: tuple(values) for name, values in facts["distributions"].items()}
    return tables, MemoryStats(**facts)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_restored_memory_answers_as_the_built_one(samples, name):
    config = CONFIGS[name]

    async def both(sample):
        embedder = build_embedder(EMBEDDER, None)
        built = fresh(config, embedder)
        await built.ingest(sample.conversation)
        again = fresh(config, build_embedder(EMBEDDER, None))
        await again.restore(*stored(built), sample.conversation)
        assert again.services.meter.calls == 0
        queries = [Query(f"q/{q.qa_index}", q.question, q.category) for q in sample.questions]
        return built, again, [[await s.recall(q, Meter()) for q in queries] for s in (built, again)]

    for sample in samples:
        built, again, (first, second) = asyncio.run(both(sample))
        assert first == second and any(evidence.items for evidence in first)
        assert json.dumps(stored(again)[0]) == json.dumps(stored(built)[0])
        assert again.stats() == built.stats()
        for a, b in zip(built.hierarchy.topics, again.hierarchy.topics, strict=True):
            assert a.centroid.tobytes() == b.centroid.tobytes()
        for a, b in zip(built.hierarchy.notes, again.hierarchy.notes, strict=True):
            assert a.vector.tobytes() == b.vector.tobytes() and a.turns == b.turns
    if name == "busy":
        assert built.stats().merges > 3 and built.stats().links > 3 and len(built.hierarchy.topics) > 1


def test_an_empty_memory_is_restored():
    async def once():
        built = fresh(BUSY, build_embedder(EMBEDDER, None))
        await built.ingest(conversation())
        again = fresh(BUSY, build_embedder(EMBEDDER, None))
        await again.restore(*stored(built), conversation())
        return await again.recall(Query("q", "Who?", 4), Meter())

    assert asyncio.run(once()).trace["stop"] == "empty_memory"


def test_every_option_of_recall_is_tried_here():
    assert set(OTHER) == set(identity_values(MemFlyConfig())) - set(build_values(MemFlyConfig()))


class Unread:
    """A config in which a read of an option of recall fails."""

    def __init__(self, config):
        self._config = config

    def __getattr__(self, name):
        assert name not in OTHER, f"the building of a memory reads {name}"
        return getattr(self._config, name)


@pytest.mark.parametrize("scoring", ["pairwise", "listwise", "embedding"])
def test_options_of_recall_are_not_read_while_building(samples, scoring):
    system = fresh(BUSY, build_embedder(EMBEDDER, None))
    builder = Builder(Unread(replace(BUSY, scoring=scoring, adjacent_edges=True)), system.services, system._caller)
    asyncio.run(builder.build(samples[0].conversation))
    assert builder.hierarchy.notes


def test_memories_that_differ_in_recall_alone_are_equal(samples):
    def export(config):
        system = fresh(config, build_embedder(EMBEDDER, None))
        asyncio.run(system.ingest(samples[0].conversation))
        return stored(system)

    assert export(BUSY) == export(replace(BUSY, **OTHER))


def test_the_constant_of_fusion_touches_the_building():
    """Retrieval's and the candidates' lists are fused with the same one."""
    assert "rrf_k" in build_values(BUSY)
