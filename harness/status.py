"""status.json: how a run stands, and what each process that worked on it took and said.

{"state", "message", "updated", "answered", "total", "elapsed_s", "processes": [{"started", "code", "elapsed_s",
"notices", "too_long"}]}. It is written again while a process works, so that a killed one loses some seconds of its
account and nothing else; the next one carries it on.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Said:
    """What must stand above the table of a run. notices: in the order of processes, each once. too_long: the distinct
    texts of which the embedder saw only the beginning, by `digest`."""

    notices: tuple[str, ...] = ()
    too_long: frozenset[str] = frozenset()


class Status:
    """The file of one run, for the process that holds the run's lock. `code`: version of the code that runs.

    Thread-safe: the account may be written from a thread while the run goes on.
    """

    def __init__(self, path: Path, stored: Mapping[str, Any], write: Callable[[Path, Any], None], code: str):
        self.path = path
        self._write = write
        self._code = code
        self._begun = time.monotonic()
        self._started = _now()
        self._earlier: list[dict[str, Any]] = list(stored.get("processes", ()))
        if not self._earlier and stored.get("elapsed_s"):
            self._earlier = [{"elapsed_s": stored["elapsed_s"]}]  # written before processes kept their own account
        self._last: dict[str, Any] = dict(stored)
        self._look: Callable[[], Said] = Said
        self._lock = threading.Lock()
        self._working = False

    @property
    def elapsed_s(self) -> float:
        """Seconds that all processes worked on the run, this one included."""
        return round(sum(one.get("elapsed_s", 0.0) for one in self._earlier) + self._own_s(), 3)

    def watch(self, look: Callable[[], Said]) -> None:
        """Where to ask, at every write, what this process has said so far."""
        self._look = look

    def said(self) -> Said:
        """What all processes said."""
        own = self._look()
        notices = [text for one in self._earlier for text in one.get("notices", ())]
        too_long = [digest for one in self._earlier for digest in one.get("too_long", ())]
        return Said(tuple(dict.fromkeys([*notices, *own.notices])), frozenset([*too_long, *own.too_long]))

    def write(self, state: str, message: str = "", **facts: Any) -> None:
        """Say how the run stands; facts that are not given stay as they were."""
        with self._lock:
            self._working = True
            self._last |= {"state": state, "message": message, **facts}
            self._put()

    def beat(self, **facts: Any) -> None:
        """Bring the account up to date, the state unchanged. Nothing before the first `write` and after `close`."""
        with self._lock:
            if self._working:
                self._last |= facts
                self._put()

    def amend(self, state: str, message: str) -> None:
        """Another verdict on a run that has ended; this process did not work on it."""
        with self._lock:
            self._last |= {"state": state, "message": message}
            self._write(self.path, self._last)

    def close(self) -> None:
        with self._lock:
            self._working = False

    def _put(self) -> None:
        own = self._look()
        mine = {"started": self._started, "code": self._code, "elapsed_s": self._own_s()}
        mine |= {"notices": list(own.notices), "too_long": sorted(own.too_long)}
        account = {"updated": _now(), "elapsed_s": self.elapsed_s, "processes": [*self._earlier, mine]}
        self._last |= account
        self._write(self.path, self._last)

    def _own_s(self) -> float:
        return round(time.monotonic() - self._begun, 3)


def digests(texts: Iterable[str]) -> frozenset[str]:
    """Short names of texts, for an account that need not hold them. A set may grow meanwhile in another thread."""
    held = tuple(texts)
    return frozenset(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] for text in held)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
