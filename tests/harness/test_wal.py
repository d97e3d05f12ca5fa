"""A new file that two processes open at once: neither is told that it is locked."""

import sqlite3

import pytest

from harness import wal


def test_who_comes_while_the_mode_changes_tries_again(tmp_path, monkeypatch):
    one = sqlite3.connect(tmp_path / "new", isolation_level=None)
    other = sqlite3.connect(tmp_path / "new", timeout=0, isolation_level=None)
    one.execute("CREATE TABLE t (x)")
    one.execute("BEGIN EXCLUSIVE")
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            one.execute("COMMIT")

    monkeypatch.setattr(wal.time, "sleep", sleep)
    wal.write_ahead(other)
    assert len(slept) == 2
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_it_is_not_tried_for_ever_nor_for_another_reason(tmp_path, monkeypatch):
    one = sqlite3.connect(tmp_path / "new", isolation_level=None)
    one.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(wal, "BUSY_S", -1.0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        wal.write_ahead(sqlite3.connect(tmp_path / "new", timeout=0))
    (tmp_path / "none").write_bytes(b"this is not a database" * 100)
    monkeypatch.setattr(wal, "BUSY_S", 60.0)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        wal.write_ahead(sqlite3.connect(tmp_path / "none"))
