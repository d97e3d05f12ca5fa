"""The published tables of the shipped archive, made again from its replies without a network or a model."""

import csv
import sqlite3
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = ROOT / "results" / "smollm2-sample"
COMMON = ("backbone=smollm2", "limits=small", "dataset=sample", "cache.mode=replay")
NO_NETWORK = """
import socket


def refuse(*args, **kwargs):
    raise OSError("a replay reached for the network")


socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
"""


NUMBERS = ("value", "low", "high", "n", "n_error", "p", "p_holm", "published", "difference")


def figures(path):
    """(kind, system, metric, row) -> every number a table's CSV gives there. (With one conversation there are no intervals
    and no p, and nobody published these: those columns are compared as empty.)"""
    with path.open(encoding="utf-8") as handle:
        # What a run cost is another matter: a replay takes other time, and all its calls are cached.
        rows = [row for row in csv.DictReader(handle) if row["subset"] == "all" and row["kind"] != "cost"]
    return {(r["kind"], r["system"], r["metric"], r["row"]): {name: r[name] for name in NUMBERS} for r in rows}


@pytest.mark.parametrize("table", ["table1", "table3"])
def test_a_replay_gives_every_number_of_the_published_table(run_door, tmp_path, table):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_NETWORK)
    env = {"PYTHONPATH": str(tmp_path / "site"), "HF_HUB_OFFLINE": "1"}
    before = {path.name: path.read_bytes() for path in ARCHIVE.iterdir() if path.is_file()}
    done = run_door("-m", f"experiment={table}", *COMMON, env=env, cache=ARCHIVE, check=0)
    assert done.stderr.count(": finished, ") == {"table1": 8, "table3": 9}[table]

    made = run_door(
        str(tmp_path / "sweep"), "--out", str(tmp_path / "tables"), script=("scripts/collect.py",), bare=True, check=0
    )
    assert "F1 (A-MEM)" in made.stdout
    published, found = figures(ARCHIVE / f"{table}.csv"), figures(tmp_path / "tables" / "tables.csv")
    assert len(published) > 300
    assert found == published
    assert {path.name: path.read_bytes() for path in ARCHIVE.iterdir() if path.is_file()} == before


def test_a_request_the_archive_does_not_hold_is_an_error(run_door, tmp_path):
    done = run_door("memory=rag", *COMMON, "seed=7", cache=ARCHIVE, check=2)
    assert "holds no reply" in done.stderr.strip().split("\n")[-1]


def test_packed_vectors_take_little_more_than_their_bytes(run_door, tmp_path):
    (tmp_path / "cache").mkdir()
    for name, table in (("vectors", "key TEXT PRIMARY KEY, vector BLOB) WITHOUT ROWID"), ("replies", "key, vector)")):
        with sqlite3.connect(tmp_path / "cache" / f"{name}.sqlite") as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"CREATE TABLE {name} ({table}")
            rows = [(f"{number:064x}", bytes([number % 251]) * 1536) for number in range(300)]
            db.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)
    archive = tmp_path / "packed"
    run_door(str(tmp_path / "cache"), str(archive), script=("scripts/archive.py",), bare=True, check=0)
    with sqlite3.connect(archive / "vectors.sqlite") as db:
        assert db.execute("SELECT * FROM vectors ORDER BY key").fetchall() == rows
    assert (archive / "vectors.sqlite").stat().st_size < 1.2 * 300 * (64 + 1536)  # 4096 bytes a page: 2.9 times
    assert sorted(path.name for path in archive.iterdir()) == ["replies.sqlite", "vectors.sqlite"]
