"""The reply cache: what the endpoint said to a request, kept in SQLite (WAL), so that nothing is paid for twice.

A reply is stored as it came, usable or not: an empty or unparsable one belongs to its attempt, and the next attempt
is another request. What is no reply (a transport failure, a server's refusal) never gets here, because `compute`
raises. Several processes may use the same file. A request that one of them is asking the others wait for
(claims.py); should two have asked all the same, the first row stays, and the second writer is given it.

Modes: "use" serves any row; "refresh" serves a row only if this run wrote it, and replaces the others; "off" is
"use" on a file that the runner puts inside the run folder, so that a killed run still pays for nothing twice;
"replay" never computes: a miss is an error. A row that a refresh replaces is kept for the run that wrote it, which
goes on with its own replies when it is resumed, whoever refreshed the cache meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from harness.errors import EndpointError, RecordError
from harness.llm.claims import Claims
from harness.wal import BUSY_S, write_ahead

Mode = Literal["use", "refresh", "off", "replay"]

KEY_VERSION = 1
"""Raise it when the same request fields come to mean another request."""
SCHEMA_VERSION = 1

_COLUMNS = "text, reasoning, finish_reason, prompt_tokens, completion_tokens, estimated, latency_s, run_id, created"
_CREATE = """
CREATE TABLE replies (
    key BLOB PRIMARY KEY, text TEXT, reasoning TEXT, finish_reason TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, estimated INTEGER NOT NULL,
    latency_s REAL NOT NULL, run_id TEXT NOT NULL, created REAL NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE damaged AS SELECT * FROM replies WHERE 0;
"""
_CREATE_REPLACED = """
CREATE TABLE IF NOT EXISTS replaced (
    key BLOB NOT NULL, text TEXT, reasoning TEXT, finish_reason TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, estimated INTEGER NOT NULL,
    latency_s REAL NOT NULL, run_id TEXT NOT NULL, created REAL NOT NULL, checksum BLOB NOT NULL,
    PRIMARY KEY (key, run_id));
"""
"""Made by the first refresh; a file without it is of the same version."""


@dataclass(frozen=True, slots=True)
class Row:
    """One reply as the endpoint gave it. `text` and `reasoning` are None where the endpoint sent null.

    `estimated`: the endpoint reported no usage and the tokens are our estimate. `latency_s`: seconds the endpoint
    took. `run_id`: the run that paid for it. `created`: Unix time. `key`: sha256 of the request; b"" before storing.
    """

    text: str | None
    reasoning: str | None = None
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False
    latency_s: float = 0.0
    run_id: str = ""
    created: float = 0.0
    key: bytes = b""

    def _values(self) -> tuple[Any, ...]:
        return (
            self.text,
            self.reasoning,
            self.finish_reason,
            self.prompt_tokens,
            self.completion_tokens,
            int(self.estimated),
            float(self.latency_s),
            self.run_id,
            float(self.created),
        )


def request_key(request: dict[str, Any]) -> bytes:
    """sha256 of the canonical JSON of a request and the key version."""
    canonical = orjson.dumps({"v": KEY_VERSION, **request}, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).digest()


def _checksum(key: bytes, values: tuple[Any, ...]) -> bytes:
    return hashlib.blake2b(key + orjson.dumps(values), digest_size=8).digest()


class _Flight:
    """A computation that several callers wait for; it is cancelled when the last of them leaves."""

    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[Row]):
        self.task = task
        self.waiting = 0


class ReplyCache:
    """`<path>/replies.sqlite`. One instance per run and event loop.

    `damaged` counts rows whose checksum failed: they are set aside in the table of that name, said in `notices`, and
    computed again. RecordError: the file is no cache, of another version, or cannot be read or written.
    """

    def __init__(self, path: Path, mode: Mode, run_id: str):
        self.mode = mode
        self.run_id = run_id
        self.file = Path(path) / "replies.sqlite"
        self.hits = 0
        self.misses = 0
        self.damaged = 0
        self.notices: list[str] = []
        self._flights: dict[bytes, _Flight] = {}
        self._claimed: set[bytes] = set()
        if mode == "replay" and not self.file.is_file():
            raise RecordError(f"cache.mode=replay, but {self.file} is not there; give cache.path of a finished run")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._open()
        except (sqlite3.Error, OSError) as error:
            raise self._broken(error) from None
        # The other modes' rows are a run's own: nobody else asks for them.
        self._claims = Claims(self.file.with_suffix(".asked")) if mode == "use" else None

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.file, timeout=BUSY_S, isolation_level=None)
        try:
            if self.mode != "replay":
                write_ahead(db)
                db.execute("PRAGMA wal_autocheckpoint=8000")  # pages: fewer of the syncs that hold up the event loop
                db.execute("BEGIN IMMEDIATE")  # two processes that open a new file: one makes the tables
            version = db.execute("PRAGMA user_version").fetchone()[0]
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if version == 0 and tables == 0 and self.mode != "replay":
                for statement in filter(str.strip, _CREATE.split(";")):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            elif version != SCHEMA_VERSION:
                raise RecordError(
                    f"{self.file} has cache version {version}, this program reads version {SCHEMA_VERSION}; "
                    "move the file away or give another cache.path"
                )
            if self.mode == "refresh":
                db.execute(_CREATE_REPLACED)
            if db.in_transaction:
                db.execute("COMMIT")
            named = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'replaced'").fetchone()
            self._keeps_replaced = self.mode != "replay" and bool(named[0])
        except BaseException:
            db.close()
            raise
        return db

    def _broken(self, error: Exception) -> RecordError:
        return RecordError(
            f"{self.file} cannot be used as a reply cache ({error}); move it away or give another cache.path"
        )

    async def get(self, request: dict[str, Any], compute: Callable[[], Awaitable[Row]]) -> tuple[Row, bool]:
        """The reply to a request, and whether it was there already.

        `compute` runs once for all callers that ask for the same key at the same time; what it raises, all of them
        get, and nothing is stored. EndpointError("replay_miss"): the mode is replay and the row is not there.
        """
        key = request_key(request)
        row = self._read(key)
        if row is not None:
            self.hits += 1
            return row, True
        if self.mode == "replay":
            raise EndpointError(
                "replay_miss",
                f"cache.mode=replay, but {self.file} holds no reply to a request of model {request.get('model')!r} "
                f"(attempt {request.get('attempt', 1)}); run it with cache.mode=use first",
                fatal=True,
            )
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(self._compute(key, compute)))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task), False
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done():
                flight.task.cancel()
                self._flights.pop(key, None)

    @property
    def awaited(self) -> int:
        """How many requests another process is asking now while this one waits."""
        return self._claims.awaited if self._claims is not None else 0

    def claim(self, row: Row) -> bool:
        """True the first time this process meets a row that this run paid for: whoever gets True counts it as
        computed. A resumed run so reports what the run paid, and a row is paid for once. In a replay nothing is."""
        if self.mode == "replay" or row.run_id != self.run_id or row.key in self._claimed:
            return False
        self._claimed.add(row.key)
        return True

    async def _compute(self, key: bytes, compute: Callable[[], Awaitable[Row]]) -> Row:
        flight = self._flights[key]
        try:
            if self._claims is not None:
                await self._claims.turn(key)
                if (theirs := self._read(key)) is not None:
                    return theirs
            self.misses += 1
            row = await compute()
            return self._write(replace(row, key=key, run_id=self.run_id, created=time.time()))
        finally:
            if self._claims is not None:
                self._claims.give_back(key)
            if self._flights.get(key) is flight:
                del self._flights[key]

    def _read(self, key: bytes) -> Row | None:
        """The row served in this mode, or None."""
        row = self._fetch("replies", key)
        if row is not None and row.run_id == self.run_id:
            return row
        own = self._fetch("replaced", key) if self._keeps_replaced else None
        return own or (None if self.mode == "refresh" else row)

    def _fetch(self, table: Literal["replies", "replaced"], key: bytes) -> Row | None:
        """A key's row, of `replaced` this run's. A damaged one is set aside."""
        where, values = ("key = ?", (key,)) if table == "replies" else ("key = ? AND run_id = ?", (key, self.run_id))
        try:
            found = self._db.execute(f"SELECT {_COLUMNS}, checksum FROM {table} WHERE {where}", values).fetchone()  # noqa: S608 - constant text
        except sqlite3.OperationalError as error:
            if "decode" not in str(error).lower():
                raise self._broken(error) from None
            return self._set_aside(table, where, values)
        except sqlite3.Error as error:
            raise self._broken(error) from None
        if found is None:
            return None
        *fields, checksum = found
        try:
            sound = _checksum(key, tuple(fields)) == checksum
        except TypeError:
            sound = False
        if not sound:
            return self._set_aside(table, where, values)
        return Row(*fields[:5], bool(fields[5]), *fields[6:], key)

    def _set_aside(self, table: str, where: str, values: tuple[Any, ...]) -> None:
        self.damaged += 1
        self.notices[:] = [
            f"{self.damaged} damaged {'row' if self.damaged == 1 else 'rows'} of {self.file} set aside and not used"
        ]
        if self.mode != "replay":
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute(f"INSERT INTO damaged SELECT * FROM {table} WHERE {where}", values)  # noqa: S608 - constant text
                self._db.execute(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608 - constant text
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise self._broken(error) from None

    def _write(self, row: Row) -> Row:
        """Store a row and return the one that stands: the first writer's, except that refresh replaces other runs'."""
        values = row._values()
        refresh = self.mode == "refresh"
        try:
            if refresh:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute("INSERT OR IGNORE INTO replaced SELECT * FROM replies WHERE key = ?", (row.key,))
            stored = self._db.execute(
                f"INSERT OR {'REPLACE' if refresh else 'IGNORE'} INTO replies (key, {_COLUMNS}, checksum) "  # noqa: S608 - constant text
                "VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                (row.key, *values, _checksum(row.key, values)),
            )
            if refresh:
                self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise RecordError(
                f"{self.file}: a reply cannot be stored ({error}); make room on its disk, or give another cache.path"
            ) from None
        except sqlite3.Error as error:
            raise self._broken(error) from None
        return row if stored.rowcount == 1 else self._read(row.key) or row

    def close(self) -> None:
        if self._claims is not None:
            self._claims.close()
        with suppress(sqlite3.Error):
            self._db.close()
