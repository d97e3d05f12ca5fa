"""SQLite's write-ahead log, for the files that several processes use at once."""

from __future__ import annotations

import sqlite3
import time

BUSY_S = 60.0
"""Seconds that a connection waits for another one's lock (our choice)."""


def write_ahead(db: sqlite3.Connection) -> None:
    """Give a file its write-ahead log. Of two processes that do so to a new file at once, SQLite tells one "locked" without
    waiting (its change of the mode asks no busy handler), so it is tried again."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
