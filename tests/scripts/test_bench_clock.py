"""The jumping clock: what takes time is the longest chain of waits, by hand."""

import asyncio
import time
from dataclasses import replace

import pytest

from harness.embed import build_embedder
from harness.llm.limiter import Limiter
from scripts.benches import clock
from scripts.benches.trip import imagine, prepared

SMALL = ("embedder=hashing", "dataset.conversations=[sample-1]", "dataset.max_turns=6", "dataset.max_questions=2")


def test_waits_side_by_side_take_as_long_as_the_longest_chain():
    async def chain(*waits):
        for wait in waits:
            await asyncio.sleep(wait)
        return asyncio.get_running_loop().time()

    async def go():
        return await asyncio.gather(chain(1.0, 2.0), chain(2.5), chain(0.5, 0.5, 0.5))

    assert clock.run(go()) == [3.0, 2.5, 1.5]


def test_work_in_threads_takes_no_time():
    async def go():
        loop = asyncio.get_running_loop()
        late = loop.create_task(asyncio.sleep(1.0))
        await asyncio.to_thread(time.sleep, 0.01)
        assert loop.time() == 0.0
        await late
        return loop.time()

    assert clock.run(go()) == 1.0


def test_few_places_make_rounds():
    """Ten waits of a second, four at once: 3 seconds."""

    async def one(limiter):
        slot = await limiter.acquire()
        await asyncio.sleep(1.0)
        limiter.release(slot, "ok")

    async def go():
        limiter = Limiter(4, 4)
        await asyncio.gather(*(one(limiter) for _ in range(10)))
        return asyncio.get_running_loop().time()

    assert clock.run(go()) == 3.0


@pytest.mark.parametrize(
    ("asked", "ingestion", "answering"),
    [
        (["memory=locomo"], 0, 1),  # the reader alone
        # Six notes are made at once, then linked one by one, the first included. Keywords of the question, the reader.
        (["memory=amem"], 1 + 6, 2),
        # Six extractions at once, then one list a turn, the first excepted.
        (["memory=memfly", "memory.scoring=listwise"], 1 + 5, None),
        # Six extractions at once, then every pair: nothing is merged, and eight turns are looked ahead.
        (["memory=memfly", "memory.scoring=pairwise"], 1 + 1, None),
        # None looked ahead: the pairs of each turn but the first.
        (["memory=memfly", "memory.scoring=pairwise", "memory.speculation=1"], 1 + 5, None),
    ],
)
def test_chains_of_calls(asked, ingestion, answering):
    job = prepared([*SMALL, *asked])
    trip = imagine(job, build_embedder(job.spec.embedder, None), 1.0, 10**6)
    assert trip.counts["merges"] == 0
    assert trip.ingest.seconds == pytest.approx(ingestion)
    if answering is not None:
        assert trip.answer.seconds == pytest.approx(answering)


def test_one_place_is_one_call_after_another():
    job = prepared([*SMALL, "memory=amem"])
    one = replace(job.spec.run, questions_at_once=1)
    trip = imagine(replace(job, spec=replace(job.spec, run=one)), build_embedder(job.spec.embedder, None), 1.0, 1)
    assert trip.ingest.seconds == trip.ingest.calls == 6 + 6
    assert trip.answer.seconds == pytest.approx(trip.answer.calls)
