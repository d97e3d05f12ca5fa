"""A disk that is full, folders that may not be written: one clear line, and what is recorded stays as it is."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from contract_bench import SMALL, STAND_INS
from fault_bench import comparable

from harness.errors import RecordError
from harness.records import RunFolder

ROOT = Path(__file__).resolve().parent.parent
OVERRIDES = ("memory=memfly", *STAND_INS, *SMALL)
RECORD = {"sample_id": "s", "qa_index": 0, "trial": 0}


def places(root):
    return [f"run.dir={root}/runs", f"cache.path={root}/cache"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    place = tmp_path_factory.mktemp("undisturbed")
    command = [sys.executable, "run.py", *OVERRIDES, *places(place)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return place


def folder_of(place):
    (folder,) = (place / "runs").glob("[!.]*")
    return folder


def outcome(place):
    """Metrics, answers and memories; the cache of the other run answers here, so nothing is said of who paid."""
    metrics, answers, memory = comparable(folder_of(place))
    for value in (metrics, metrics["memory"], *answers.values()):
        value.pop("usage", None)
    metrics["table"]["lines"] = [line for line in metrics["table"]["lines"] if not line.startswith("memory: shared")]
    return metrics, answers, memory


def one_line(done, *words):
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    *_, line = done.stderr.strip().split("\n")
    assert line.startswith("run.py: ") and all(word in line for word in words), line


def test_no_room_for_answers(undisturbed, run_door, tmp_path):
    options = (*OVERRIDES, "run.share_memory=false")
    limited = run_door("file_size=40000", *options, script=("tests/limited_driver.py",), cache=undisturbed / "cache")
    one_line(limited, "answers.jsonl: cannot be written (File too large); make room, then start again")
    folder = folder_of(tmp_path)
    *whole, half = (folder / "answers.jsonl").read_text().split("\n")
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "stopped" and status["answered"] == len(whole) > 0 and half
    resumed = run_door(*options, cache=undisturbed / "cache", check=0)
    assert "1 unreadable line(s) of answers.jsonl set aside in answers.damaged.jsonl; asked again" in resumed.stderr
    assert (folder / "answers.damaged.jsonl").read_text() == half + "\n"
    assert outcome(tmp_path) == outcome(undisturbed)


@pytest.mark.slow
def test_no_room_for_replies(undisturbed, run_door, tmp_path):
    limited = run_door("file_size=60000", *OVERRIDES, script=("tests/limited_driver.py",))
    one_line(limited, "replies.sqlite")
    assert json.loads((folder_of(tmp_path) / "status.json").read_text())["state"] == "stopped"
    run_door(*OVERRIDES, check=0)
    assert comparable(folder_of(tmp_path)) == comparable(folder_of(undisturbed))


FULL = """
set -e
mount -t tmpfs -o size="$1" tmpfs "$2"
cd "$3"
shift 3
"$@" run.dir="$DISK/runs" cache.path="$DISK/cache" >"$OUT/stdout" 2>"$OUT/stderr" && status=0 || status=$?
echo $status >"$OUT/status"
mount -o remount,size=20m "$DISK"
"$@" run.dir="$DISK/runs" cache.path="$DISK/cache" >/dev/null 2>"$OUT/again"
cp -r "$DISK/runs" "$OUT/runs"
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", ["60k", "320k"])
def test_a_full_disk(size, undisturbed, tmp_path):
    """A file system of that size in a namespace of its own, given room afterwards."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces here")
    disk, out = tmp_path / "disk", tmp_path / "out"
    disk.mkdir()
    out.mkdir()
    command = ["unshare", "-rm", "sh", "-c", FULL, "full", size, disk, ROOT, sys.executable, "run.py", *OVERRIDES]
    environment = {**os.environ, "DISK": str(disk), "OUT": str(out)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + (out / "again").read_text()
    first = subprocess.CompletedProcess([], int((out / "status").read_text()), "", (out / "stderr").read_text())
    one_line(first)
    assert "full" in first.stderr or "No space left" in first.stderr
    assert comparable(folder_of(out)) == comparable(folder_of(undisturbed))


@pytest.mark.parametrize("what", ["status.json", "metrics.json", "memory", "answers.jsonl"])
def test_every_record_says_what_had_no_room(what, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    write = {
        "status.json": lambda folder: folder.write_status("running"),
        "metrics.json": lambda folder: folder.write_results({}, "table"),
        "memory": lambda folder: folder.write_memory("s", {"notes": "{}\n"}, {}),
        "answers.jsonl": lambda folder: folder.append_answer(RECORD),
    }
    with RunFolder(tmp_path / "run", "id", {}) as folder:
        folder.write_status("running")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RecordError, match=rf"{what}.*: cannot be written \(No space left on device\); make room"):
            write[what](folder)
        folder.heartbeat()  # no reason to end a run
        assert folder.answers == {}
    assert not list(tmp_path.rglob("*.tmp")) and folder.read_built("s") is None
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "running"


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["runs", "folder", "cache"])
def test_folders_that_may_not_be_written(closed, undisturbed, run_door, tmp_path):
    """runs: there is no run yet; folder: one stands half-way; cache: nowhere to keep replies."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "cache").mkdir()
    if closed == "folder":
        run_door("answer appended", "4", *OVERRIDES, script=("tests/kill_driver.py",), env={"PYTHONPATH": "."})
        locked = folder_of(tmp_path)
    else:
        locked = tmp_path / closed
    held = {path: path.read_bytes() for path in locked.rglob("*") if path.is_file()}
    for path in (*locked.rglob("*"), locked):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        done = run_door("permissions", *OVERRIDES, script=("tests/limited_driver.py",))
        if "cannot be enforced" in done.stderr:
            pytest.skip("root here writes whatever it likes")
        one_line(done, str(locked), "ermission denied" if closed != "cache" else "unable to open database file")
        assert {path: path.read_bytes() for path in locked.rglob("*") if path.is_file()} == held
    finally:
        for path in (locked, *locked.rglob("*")):
            path.chmod(0o755)
    run_door(*OVERRIDES, check=0)
    assert comparable(folder_of(tmp_path)) == comparable(folder_of(undisturbed))
