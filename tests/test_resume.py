"""A run killed at any moment goes on where it stopped, loses nothing and pays for nothing twice."""

import json
import sqlite3
from pathlib import Path

import pytest

OVERRIDES = (
    "backbone=scripted",
    "embedder=hashing",
    "memory.scoring=pairwise",
    "memory.tau_merge=0.1",  # the stand-in's scores are low: these make merges and links happen
    "memory.tau_link=0.1",
    "dataset.max_sessions=2",
    "dataset.max_questions=6",
    "trials=2",
)
MOMENTS = [
    ("manifest written", 1),
    ("reply computed, not stored", 1),
    ("reply stored", 30),
    ("reply computed, not stored", 150),
    ("memory built, not written", 2),
    ("memory written", 1),
    ("half an answer", 1),
    ("answer appended", 7),
    ("half an answer", 20),
    ("all answered, no results", 1),
    ("results written, status not", 1),
]


def outcome(folder: Path):
    """What must be equal: the metrics and the answers without times, and the memory to the byte."""
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics.pop("wall_s")
    answers = {}
    for line in (folder / "answers.jsonl").read_text().split("\n"):
        if line:
            record = json.loads(line)
            del record["latency_s"], record["crc"]
            key = (record["sample_id"], record["qa_index"], record["trial"])
            assert key not in answers
            answers[key] = record
    memory = {str(path.relative_to(folder)): path.read_bytes() for path in (folder / "memory").rglob("*.jsonl")}
    return metrics, answers, memory


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    import subprocess
    import sys

    place = tmp_path_factory.mktemp("undisturbed")
    subprocess.run(
        [sys.executable, "run.py", *OVERRIDES, f"run.dir={place}/runs", f"cache.path={place}/cache"],
        check=True,
        capture_output=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    (folder,) = (place / "runs").glob("[!.]*")
    with sqlite3.connect(place / "cache" / "replies.sqlite") as db:
        (replies,) = db.execute("SELECT count(*) FROM replies").fetchone()
    return outcome(folder), replies


def test_there_is_something_to_lose(undisturbed):
    (metrics, answers, memory), replies = undisturbed
    assert len(answers) == metrics["n_total"] == 24  # 2 conversations x 6 questions x 2 trials
    assert metrics["usage"]["computed_calls"] == replies > 200
    assert len(memory) == 10 and all(memory.values())
    assert metrics["memory"]["merges"] > 0 and metrics["memory"]["links"] > 0


@pytest.mark.parametrize(("kind", "number"), MOMENTS, ids=lambda value: str(value))
def test_killed_and_resumed_is_undisturbed(undisturbed, run_door, tmp_path, kind, number):
    killed = run_door(kind, str(number), *OVERRIDES, script=("tests/kill_driver.py",), env={"PYTHONPATH": "."})
    assert killed.returncode == -9, killed.stderr
    run_door(*OVERRIDES, check=0)
    (folder,) = (tmp_path / "runs").glob("[!.]*")
    expected, replies = undisturbed
    metrics, answers, memory = outcome(folder)
    assert metrics == expected[0]
    assert answers == expected[1]
    assert memory == expected[2]
    with sqlite3.connect(tmp_path / "cache" / "replies.sqlite") as db:
        assert db.execute("SELECT count(*) FROM replies").fetchone() == (replies,)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_run_without_the_shared_cache_pays_nothing_twice(undisturbed, run_door, tmp_path):
    overrides = (*OVERRIDES, "cache.mode=off")
    killed = run_door("reply stored", "100", *overrides, script=("tests/kill_driver.py",), env={"PYTHONPATH": "."})
    assert killed.returncode == -9, killed.stderr
    run_door(*overrides, check=0)
    (folder,) = (tmp_path / "runs").glob("[!.]*")
    assert outcome(folder)[0] == undisturbed[0][0]
    assert not (tmp_path / "cache" / "replies.sqlite").exists()
