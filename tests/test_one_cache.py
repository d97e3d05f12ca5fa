"""Whole runs at the same time on one cache: each has the numbers it has alone, and a request is asked once."""

import json
import sqlite3
import subprocess
import sys
import urllib.request
from itertools import chain
from pathlib import Path

import pytest
from fault_bench import comparable

from scripts.benches.endpoint import serving

ROOT = Path(__file__).resolve().parent.parent
QUICK = (
    "backbone=scripted",
    "embedder=minilm",
    "memory=memfly",
    "memory.scoring=pairwise",
    "memory.speculation=1",
    "dataset.max_sessions=2",
    "dataset.max_questions=5",
    "run.progress=false",
)


def start(place, cache, k, url):
    places = [f"run.dir={place}", f"cache.path={cache}", f"memory.k_final={k}"]
    command = [sys.executable, "run.py", *QUICK, *places, *([f"backbone.base_url={url}"] if url else [])]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process):
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "locked" not in said and "Traceback" not in said


def outcome(place):
    """Answers and memory; who paid for a reply is another matter."""
    (folder,) = place.glob("memfly-*")
    metrics, answers, memory = comparable(folder)
    for record in answers.values():
        del record["usage"]
    return metrics["micro"], answers, memory


def calls(url):
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats") as reply:
        return json.load(reply)["calls"]


def at_once(tmp_path, sizes, url=None):
    """Each size alone on a cache of its own, then all at once on one. Calls that the latter made."""
    for k in dict.fromkeys(sizes):
        end(start(tmp_path / f"alone{k}", tmp_path / f"cache{k}", k, url))
    before = calls(url) if url else 0
    running = [start(tmp_path / f"run{n}", tmp_path / "one", k, url) for n, k in enumerate(sizes)]
    for process in running:
        end(process)
    for n, k in enumerate(sizes):
        assert outcome(tmp_path / f"run{n}") == outcome(tmp_path / f"alone{k}")
    return calls(url) - before if url else 0


def requests(*caches):
    """How many distinct requests the caches hold replies to."""
    rows = (sqlite3.connect(cache / "replies.sqlite").execute("SELECT key FROM replies") for cache in caches)
    return len(set(chain(*rows)))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(10, 10), (10, 20), (10, 20, 20, 30)], ids=["equal", "two", "four"])
def test_runs_at_once_have_the_numbers_they_have_alone(tmp_path, sizes):
    with serving(0.02) as url:
        paid = at_once(tmp_path, sizes, url)
    assert paid == requests(tmp_path / "one") == requests(*(tmp_path / f"cache{k}" for k in sizes))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(10, 20), (10, 20, 20, 30)], ids=["two", "four"])
def test_runs_at_once_whose_replies_take_no_time(tmp_path, sizes):
    at_once(tmp_path, sizes)
