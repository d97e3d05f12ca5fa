"""Whole runs at the same time on one cache: each has the numbers it has alone."""

import json
import subprocess
import sys
import urllib.request
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
    "dataset.max_sessions=2",
    "dataset.max_questions=5",
    "run.progress=false",
)


def start(url, place, cache, k):
    places = [f"run.dir={place}", f"cache.path={cache}", f"backbone.base_url={url}", f"memory.k_final={k}"]
    command = [sys.executable, "run.py", *QUICK, *places]
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


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(10, 20), (10, 20, 20, 30)], ids=["two", "four, two of them equal"])
def test_runs_at_once_have_the_numbers_they_have_alone(tmp_path, sizes):
    alone = {}
    with serving(0.02) as url:
        for k in dict.fromkeys(sizes):
            before = calls(url)
            end(start(url, tmp_path / f"alone{k}", tmp_path / f"cache{k}", k))
            alone[k] = calls(url) - before
        before = calls(url)
        running = [start(url, tmp_path / f"run{n}", tmp_path / "one", k) for n, k in enumerate(sizes)]
        for process in running:
            end(process)
        paid = calls(url) - before
    for n, k in enumerate(sizes):
        assert outcome(tmp_path / f"run{n}") == outcome(tmp_path / f"alone{k}")
    assert max(alone.values()) <= paid <= sum(alone[k] for k in sizes)
