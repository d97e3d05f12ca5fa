"""A fifth of all requests fail, in every way an endpoint can fail, and the numbers are those of a run without a fault."""

import json
import os
from functools import cache

import pytest
from contract_bench import NAMES, SMALL, STAND_INS, Bench
from fault_bench import OverHttp, comparable, served, settings, stats

from eval.aggregate import aggregate, memory_totals
from harness.run_facts import overall_usage
from scripts.faults import FINAL, KINDS, MENDABLE

SHARE = 0.2
ATTEMPTS = 8
"""Of both runs. Of the shipped three, all are unusable about once in a thousand calls at this share: what is done without
a reply is then counted under its name, and the numbers are others."""
STEPS = {"memgpt": "invalid_schema"}
"""An agent whose functions' arguments are all optional: an object of another form names no function, which is a step of
its own that fails, is told to the model and is counted in the trace."""
COSTS = {"usage", "wall_s", "calls", "errors_by_kind", "repaired_replies", "repairs", "purposes"}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """Runs without a fault, in this process."""
    return cache(lambda name: Bench(name, tmp_path_factory.mktemp("calm"), attempts=ATTEMPTS).run())


def metrics_of(bench):
    memory = memory_totals({one["sample_id"]: one for one in bench.built})
    metrics = aggregate(bench.records, memory=memory, usage=overall_usage(bench.built, bench.records), wall_s=1.0)
    return without_costs(metrics)


def without_costs(value):
    if isinstance(value, dict):
        return {key: without_costs(child) for key, child in value.items() if key not in COSTS}
    return value


def answers_of(bench):
    costs = ("reply", "usage", "latency_s")  # the reply as it came may hold the thinking that is cut off
    return [{key: value for key, value in record.items() if key not in costs} for record in bench.records]


def assert_equal(run, calm):
    assert [record["error"] for record in run.records] == [None] * len(calm.records)
    assert metrics_of(run) == metrics_of(calm)
    assert metrics_of(run)["n_error"] == 0
    assert answers_of(run) == answers_of(calm)
    assert run.outcome()[1] == calm.outcome()[1]  # every memory to the byte


@pytest.mark.parametrize("name", NAMES)
def test_a_fifth_of_the_requests_fail_and_nothing_changes(name, calm, tmp_path):
    kinds = tuple(kind for kind in MENDABLE if kind != STEPS.get(name))
    met = 0
    for seed in (1, 2):
        with served(settings(kinds, rate=SHARE, seed=seed)) as url:
            run = OverHttp(name, tmp_path / str(seed), attempts=ATTEMPTS, url=url).run()
            met += sum(stats(url)["faults"].values())
        assert_equal(run, calm(name))
    assert met >= SHARE * len(calm(name).transport.sent)  # of two runs: half of what is to be expected


@pytest.mark.parametrize("kind", MENDABLE)
def test_each_kind_alone_changes_nothing(kind, calm, tmp_path):
    with served(settings((kind,), rate=SHARE, seed=3)) as url:
        run = OverHttp("memfly", tmp_path, attempts=ATTEMPTS, url=url).run()
        assert stats(url)["faults"][kind] >= 5
    assert_equal(run, calm("memfly"))


def test_the_same_seed_meets_the_same_faults(tmp_path):
    counts = []
    for place, seed in (("a", 1), ("b", 1), ("c", 2)):
        # Without what takes time: a request that is slow on a busy machine would come a second time.
        kinds = tuple(kind for kind in MENDABLE if kind not in ("hang", "stall", "drip"))
        with served(settings(kinds, rate=SHARE, seed=seed)) as url:
            OverHttp("readagent", tmp_path / place, attempts=ATTEMPTS, url=url, timeout_s=60.0).run()
            counts.append(stats(url)["faults"])
    assert counts[0] == counts[1] != counts[2]


def test_what_cannot_be_undone_is_told():
    assert {"cut", "refused"} == FINAL == set(KINDS) - set(MENDABLE)


@pytest.mark.parametrize("name", ["amem", "mem0", "memfly", "memorybank", "rag", "readagent"])
def test_a_refused_request_is_an_error_or_a_named_fallback(name, calm, tmp_path):
    with served(settings(("refused",), rate=SHARE, seed=1)) as url:
        run = OverHttp(name, tmp_path, attempts=ATTEMPTS, url=url).run()
        met = stats(url)["faults"]["refused"]
    failed = [record for record in run.records if record["error"]]
    assert all(record["error"]["kind"] == "refused" and record["scores"] == {} for record in failed)
    assert all("content management policy" in record["error"]["message"] for record in failed)
    while_asked = sum(sum(record["fallbacks"].values()) for record in run.records)
    while_built = sum(sum(one["fallbacks"].values()) for one in run.built)
    assert sum(one["errors"] for one in run.built) <= while_built
    assert met <= len(failed) + while_asked + while_built
    for record, sound in zip(answers_of(run), answers_of(calm(name)), strict=True):
        assert record["error"] or name != "rag" or record == sound


def test_a_reply_that_was_cut_and_can_be_read_is_counted(calm, tmp_path):
    with served(settings(("cut",), rate=SHARE, seed=1)) as url:
        run = OverHttp("mem0", tmp_path, attempts=ATTEMPTS, url=url).run()
        met = stats(url)["faults"]["cut"]
    used = sum(one["repairs"].get("truncated", 0) for one in run.built)
    assert 0 < used < met
    assert answers_of(run) != answers_of(calm("mem0"))


def test_a_step_of_another_form_is_told_in_the_trace(tmp_path):
    name, kind = next(iter(STEPS.items()))
    with served(settings((kind,), rate=SHARE, seed=1)) as url:
        run = OverHttp(name, tmp_path, attempts=ATTEMPTS, url=url).run()
        met = stats(url)["faults"][kind]
    assert 0 < sum(step["failed"] for record in run.records for step in record["trace"]["steps"]) <= met


DOOR = ("memory=memfly", *STAND_INS, *SMALL, "backbone.concurrency_start=4", "backbone.concurrency_max=4")
QUICK = ("backbone.retries=1", "backbone.timeout_s=1")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    import subprocess
    import sys
    from pathlib import Path

    place = tmp_path_factory.mktemp("undisturbed")
    with served(settings()) as url:
        command = [sys.executable, "run.py", *DOOR, f"backbone.base_url={url}", f"run.dir={place}/runs"]
        root = Path(__file__).resolve().parent.parent
        subprocess.run([*command, f"cache.path={place}/cache"], check=True, capture_output=True, cwd=root)
        (folder,) = (place / "runs").glob("[!.]*")
        return comparable(folder), stats(url)["calls"]


def stopped(done, folder, *words):
    assert done.returncode == 2, done.stderr
    *_, line = done.stderr.strip().split("\n")
    assert line.startswith("run.py: ") and "goes on where it stopped" in line and "Traceback" not in done.stderr
    assert all(word in line for word in words), line
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "stopped" and line == f"run.py: {status['message']}"
    assert not (folder / "metrics.json").exists()
    return status["answered"]


@pytest.mark.parametrize(
    ("moment", "ways"),
    [
        ("while questions are asked", 1),
        pytest.param("while questions are asked", 3, marks=pytest.mark.slow),
        pytest.param("while memories are built", 3, marks=pytest.mark.slow),
    ],
)
def test_an_endpoint_that_is_gone_stops_the_run_and_loses_nothing(moment, ways, undisturbed, run_door, tmp_path):
    """Gone in one way, or in three, one after another: it answers 500, nobody listens, it is silent."""
    expected, calls = undisturbed
    replies = calls // 3 if "built" in moment else calls - 4
    with served(settings(down_after=replies)) as url:
        done = run_door(*DOOR, *QUICK, f"backbone.base_url={url}")
    (folder,) = (tmp_path / "runs").glob("[!.]*")
    answered = stopped(done, folder, "500", "internal error")
    assert answered == 0 if "built" in moment else 0 < answered < 10
    held = (folder / "answers.jsonl").read_bytes()
    assert held.count(b"\n") == answered

    if ways > 1:
        gone = run_door(*DOOR, *QUICK, f"backbone.base_url={url}")  # nobody listens there any more
        assert stopped(gone, folder, "cannot be reached") == answered
        with served(settings(("hang",), rate=1.0)) as silent:
            done = run_door(*DOOR, "backbone.retries=1", "backbone.timeout_s=0.3", f"backbone.base_url={silent}")
        assert stopped(done, folder, "no reply in 0.3 s") == answered
    assert (folder / "answers.jsonl").read_bytes() == held

    with served(settings()) as back:
        run_door(*DOOR, f"backbone.base_url={back}", check=0)
        # Nothing is asked twice but what was under way, at most four, when the run stopped.
        assert calls - replies <= stats(back)["calls"] <= calls - replies + 4
    assert comparable(folder) == expected
