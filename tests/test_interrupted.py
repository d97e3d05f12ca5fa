"""A run that is killed, ended or interrupted at random moments, again and again, ends as one that never was."""

import random
import sqlite3
from pathlib import Path

import pytest
from contract_bench import SMALL, STAND_INS
from fault_bench import comparable

OVERRIDES = ("memory=memfly", *STAND_INS, *SMALL, "memory.scoring=pairwise", "memory.tau_merge=0.1", "trials=2")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGINT+SIGINT", "SIGTERM+SIGINT")
STATUS = {"SIGKILL": {-9}, "SIGTERM": {130, -15}, "SIGINT": {130}}
"""After its work is done, SIGTERM ends a process as it ends any other."""


def result(place):
    """What must be equal, the replies that were paid for, and every file that is left."""
    (folder,) = (place / "runs").glob("[!.]*")
    with sqlite3.connect(place / "cache" / "replies.sqlite") as db:
        (replies,) = db.execute("SELECT count(*) FROM replies").fetchone()
    db.close()
    files = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    return comparable(folder), replies, files


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
    return result(place)


def processes_of(place):
    """Command lines of the processes that were told of a folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(place) in words:
            found.append(words)
    return found


def disturb(seed, run_door, tmp_path, expected):
    drawn = random.Random(seed)
    events = expected[1] + len(expected[0][1])
    for _ in range(3):
        names = drawn.choice(SIGNALS)
        moment = (names, str(drawn.randint(1, events)), f"{drawn.random() * 0.03:.4f}")
        done = run_door(*moment, *OVERRIDES, script=("tests/signal_driver.py",), env={"PYTHONPATH": "."})
        assert done.returncode in {0}.union(*(STATUS[name] for name in names.split("+"))), (moment, done.stderr)
        assert "Traceback" not in done.stderr and "Exception" not in done.stderr, (moment, done.stderr)
        assert not processes_of(tmp_path)
    run_door(*OVERRIDES, check=0)
    assert result(tmp_path) == expected, seed


def test_there_is_something_to_lose(undisturbed):
    (metrics, answers, memory), replies, files = undisturbed
    assert len(answers) == metrics["n_total"] == 20 and replies > 100 and len(memory) == 10
    assert metrics["memory"]["merges"] > 0
    assert not [name for name in files if name.endswith((".tmp", "-wal", "-shm", "-journal"))]


def test_interrupted_three_times_and_resumed(undisturbed, run_door, tmp_path):
    disturb(1, run_door, tmp_path, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 19))
def test_interrupted_at_fifty_more_moments_and_resumed(seed, undisturbed, run_door, tmp_path):
    disturb(seed, run_door, tmp_path, undisturbed)
