"""Which requests the processes of this machine ask right now, so that of several runs on one cache one asks.

A claim is a lock on one byte of a file, far behind its end, at a place that the request's hash names. The lock is the
operating system's: it costs a microsecond, leaves nothing on the disk, and ends with the process that holds it.
Locks are a process's, so two caches of one process do not keep each other out: the request is asked twice, no more.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 300.0
"""Seconds that another process is waited for before this one asks too (our choice): longer than most calls with their
retries, and an end where that process was halted."""
_LOOK_S = 0.05
"""Seconds between two looks whether it is done (our choice: a quarter of a fast endpoint's latency)."""
_TAKEN = (errno.EACCES, errno.EAGAIN)


class Claims:
    """Claims of the requests of one cache. `file` is made where it is missing and stays empty.

    Where a file system has no locks, or the file is another user's, every claim is granted. `awaited`: how many calls of
    `turn` wait now.
    """

    def __init__(self, file: Path):
        self.awaited = 0
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    async def turn(self, key: bytes) -> None:
        """Take a claim; first wait, for PATIENCE_S at most, until no other process has it. Its reply may be there then."""
        if self.take(key):
            return
        until = time.monotonic() + PATIENCE_S
        self.awaited += 1
        try:
            while time.monotonic() < until:
                await asyncio.sleep(_LOOK_S)
                if self.take(key):
                    return
        finally:
            self.awaited -= 1

    def take(self, key: bytes) -> bool:
        """False: another process is asking. key: sha256 of a request."""
        try:
            self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, key)
        except OSError as error:
            return error.errno not in _TAKEN
        return True

    def give_back(self, key: bytes) -> None:
        """After the reply is stored, or there is none. Nothing happens to another process's claim."""
        with suppress(OSError):
            self._lock(fcntl.LOCK_UN, key)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lock(self, how: int, key: bytes) -> None:
        if self._file is not None:
            fcntl.lockf(self._file, how, 1, int.from_bytes(key[:7]))  # an offset has 63 bits
