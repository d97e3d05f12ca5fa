"""The vector cache on disk: text's key -> (tokens, float32 vector), checked row by row."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.errors import RecordError
from harness.wal import BUSY_S, write_ahead

VERSION = 1
"""Of the file. In one of version 0 a row's checksum covers its vector alone; such a file is used as it is."""


@dataclass(frozen=True)
class Row:
    """tokens: length of the text before truncation. vector: (dim,) float32."""

    tokens: int
    vector: np.ndarray


class VectorStore:
    """`<folder>/vectors.sqlite` (WAL: several runs may share it). Used from one thread.

    `readonly`: an archive. The file is never changed, made or set aside; what it lacks is computed and not kept.

    What cannot be read back (a row of the wrong size or checksum, a file that is no database) is counted in `damaged`,
    said in `notices` and computed again: a cache never stops a run. What cannot be written does, and a file of another
    version: RecordError.
    """

    def __init__(self, folder: Path, identity: str, dim: int, notices: list[str], *, readonly: bool = False):
        self.path = folder / "vectors.sqlite"
        self.damaged = 0
        self.notices = notices
        self._dropped = 0
        self._rows_said: str | None = None
        self._identity = identity.encode()
        self._dim = dim
        self._readonly = readonly
        if not readonly:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._open()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise RecordError(f"the vector cache {self.path} cannot be opened: {error}") from error
            self._set_aside()
            self._db = self._open()

    def key(self, text: str) -> str:
        """sha256 over what a vector depends on: weights, shapes, text."""
        return hashlib.sha256(self._identity + b"\0" + text.encode("utf-8", "surrogatepass")).hexdigest()

    def read(self, texts: Sequence[str]) -> dict[str, Row]:
        """The rows there are; texts without a sound row are left out."""
        by_key = {self.key(text): text for text in texts}
        query = "SELECT key, tokens, crc, vector FROM vectors WHERE key IN (SELECT value FROM json_each(?))"
        try:
            rows = self._db.execute(query, [json.dumps(list(by_key))]).fetchall()
        except sqlite3.OperationalError as error:
            raise RecordError(f"the vector cache {self.path} cannot be read: {error}") from error
        except sqlite3.DatabaseError:
            self._db.close()
            self._set_aside()
            self._db = self._open()
            return {}
        found: dict[str, Row] = {}
        for key, tokens, crc, blob in rows:
            whole = isinstance(tokens, int) and isinstance(blob, bytes) and len(blob) == 4 * self._dim
            if whole and crc == self._checksum(tokens, blob):
                found[by_key[key]] = Row(tokens, np.frombuffer(blob, dtype="<f4"))
            else:
                self._drop_row()
        return found

    def _checksum(self, tokens: int, blob: bytes) -> int:
        return zlib.crc32(blob, zlib.crc32(b"%d" % tokens) if self._version else 0)

    def _drop_row(self) -> None:
        self.damaged += 1
        self._dropped += 1
        said = (
            f"{self._dropped} damaged {'row' if self._dropped == 1 else 'rows'} of {self.path} not used: computed again"
        )
        if self._rows_said in self.notices:
            self.notices.remove(self._rows_said)
        self._rows_said = said
        self.notices.append(said)

    def write(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Add or replace rows, in one transaction."""
        if self._readonly:
            return
        values = []
        for text, row in rows:
            blob = row.vector.astype("<f4").tobytes()
            values.append((self.key(text), row.tokens, self._checksum(row.tokens, blob), blob))
        try:
            with self._db:
                self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", values)
        except sqlite3.Error as error:
            raise RecordError(
                f"the vector cache {self.path} cannot be written: {error}; free its disk or set cache.path"
            ) from error

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    def _open(self) -> sqlite3.Connection:
        archive = self._readonly and self.path.is_file()
        if archive:
            # A file that another run writes still has its log beside it, which a connection must be let to read.
            db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
        else:
            db = sqlite3.connect(":memory:" if self._readonly else self.path, timeout=BUSY_S)
        try:
            if not self._readonly:
                write_ahead(db)
            if not archive:
                _create(db)
            self._version = db.execute("PRAGMA user_version").fetchone()[0]
            if self._version not in (0, VERSION):
                raise RecordError(
                    f"the vector cache {self.path} has version {self._version}, this program reads version {VERSION}; "
                    "move the file away or give another cache.path"
                )
        except BaseException:
            db.close()
            raise
        return db

    def _set_aside(self) -> None:
        self.damaged += 1
        if self._readonly:
            raise RecordError(f"{self.path} is damaged (no vector cache); take the archive anew")
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        aside = self.path.with_suffix(".damaged")
        self.path.replace(aside)
        self.notices.append(f"{self.path} could not be read: set aside as {aside.name}, its vectors computed again")


def _create(db: sqlite3.Connection) -> None:
    """The table, in a new file."""
    db.execute("BEGIN IMMEDIATE")  # two processes that open a new file: one makes it
    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        db.execute(
            "CREATE TABLE vectors (key TEXT PRIMARY KEY, tokens INTEGER, crc INTEGER, vector BLOB) WITHOUT ROWID"
        )
        db.execute(f"PRAGMA user_version={VERSION}")
    db.execute("COMMIT")
