"""The event loop is never held up: no step of it takes more than 20 ms of its thread's CPU, over whole runs.

CPU of the thread and no time of a wall: what other processes do does not matter here.
"""

import asyncio.events
import time

import pytest

from harness.embed import build_embedder
from scripts.benches.trip import prepared, travel

ALLOWED_S = 0.020
MERGING = ("memory=memfly", "memory.scoring=pairwise", "memory.tau_merge=0.4", "memory.tau_link=0.3")


@pytest.fixture
def steps(monkeypatch):
    """The longest steps so far: (seconds, what ran), and how many there were."""
    found = {"count": 0, "long": []}
    original = asyncio.events.Handle._run

    def timed(handle):
        what = repr(handle)[:200] if found["count"] % 1000 == 0 else None
        began = time.thread_time()
        original(handle)
        took = time.thread_time() - began
        found["count"] += 1
        if took > ALLOWED_S:
            found["long"].append((round(took, 4), what or repr(handle)[:200]))

    monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [
        MERGING,
        ("memory=memfly_plus",),
        ("memory=amem",),
        ("memory=rag", "memory.retriever=hybrid"),
        ("memory=readagent",),
    ],
    ids=lambda system: system[0],
)
def test_no_step_of_a_run_holds_up_the_loop(steps, tmp_path, system):
    job = prepared(["dataset=sample", "dataset.conversations=[sample-1]", *system])
    (trip,) = travel([(job, build_embedder(job.spec.embedder, tmp_path))])
    assert steps["count"] > 300 and trip.answer.calls > 0
    assert steps["long"] == []


def test_a_long_step_is_seen(steps):
    async def go():
        end = time.thread_time() + 2 * ALLOWED_S
        while time.thread_time() < end:
            pass

    asyncio.run(go())
    assert len(steps["long"]) == 1 and steps["long"][0][0] >= 2 * ALLOWED_S
