"""A run folder: manifest, status, answers, memory. Whole files are replaced atomically, answers are appended.

manifest.json   spec, identity hash, versions, data fingerprint, prompt hashes   (written once)
status.json     running | finished | failed | stopped, and why; what each process took (harness/status.py)
answers.jsonl   one line a question and trial, appended and flushed to the disk
memory/<sample_id>/{notes,keywords,topics,edges,...}.jsonl and built.json        (when a memory is complete)
metrics.json, table.md                                                          (when all is answered)
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.status import Status

_UMASK = os.umask(0o022)
os.umask(_UMASK)  # it cannot be read without being set

FORMAT = 1
"""Version of the folder's layout; another one refuses to resume."""

SWEEP_FILE = "runs.json"
"""In a sweep's folder: every job with its overrides, how it ended and its run folder."""

AnswerKey = tuple[str, int, int]
"""(sample_id, qa_index, trial)"""


def dumps(value: Any, *, indent: bool = False) -> str:
    """JSON as the records write it. NaN is refused: an unknown number is null or absent."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2 if indent else None)


def write_atomic(path: Path, text: str) -> None:
    """Replace a whole file: temporary file beside it, fsync, rename. A reader sees the old or the new one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            os.fchmod(descriptor, 0o666 & ~_UMASK)  # mkstemp's own files are for their maker alone
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def table_texts(tables: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, str]:
    """An exported memory as the JSON lines that stand in its files."""
    return {name: "".join(dumps(row) + "\n" for row in rows) for name, rows in tables.items()}


def safe_name(sample_id: str) -> str:
    """A folder name for a sample id; ids of other data sets may hold any character."""
    return "".join(c if c.isalnum() or c in "-_." else f"%{ord(c):x}" for c in sample_id).lstrip(".") or "%"


class RunFolder:
    """One run's folder, locked for this process while it is open.

    Opening an existing folder resumes it: the identity hash must agree, half-written lines are set aside, and
    `answers` holds what is already answered. RecordError names the folder and says what to do.
    """

    def __init__(self, path: Path, identity: str, manifest: Mapping[str, Any], *, fresh: bool = False):
        self.path = path
        self.code: str = manifest.get("code", "")
        """Version of the code that runs now; manifest.json names the one the run was begun with."""
        self.notices: list[str] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = self._acquire(path)
            try:
                self._open(identity, manifest, fresh)
            except BaseException:
                self._lock.release()
                raise
        except OSError as error:
            raise RecordError(f"{path}: cannot be used ({error.strerror}); set run.dir to a writable folder") from error

    def _open(self, identity: str, manifest: Mapping[str, Any], fresh: bool) -> None:
        if fresh and self.path.exists():
            self._set_aside()
        self.path.mkdir(exist_ok=True)
        for leftover in self.path.rglob(".*.tmp"):
            leftover.unlink()
        self.manifest = self._load_or_create_manifest(identity, manifest)
        self.answers: dict[AnswerKey, dict[str, Any]] = self._load_answers()
        self.status = self._open_status(self.path / "status.json")
        self._answers_file = (self.path / "answers.jsonl").open("a", encoding="utf-8")

    @property
    def run_id(self) -> str:
        """Who paid for a cached reply: unique to this folder's life, kept over resumptions."""
        return self.manifest["run_id"]

    def close(self) -> None:
        if hasattr(self, "status"):
            self.status.close()
        if hasattr(self, "_answers_file"):
            with suppress(OSError):  # what found no room was said when it was to be written
                self._answers_file.close()
        self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append_answer(self, record: dict[str, Any]) -> None:
        """Append one answer and flush it to the disk, so that a kill loses no finished question."""
        with _writing(self.path / "answers.jsonl"):
            self._answers_file.write(_signed(dumps(record)) + "\n")
            self._answers_file.flush()
            os.fsync(self._answers_file.fileno())
        self.answers[_key(record)] = record

    def write_memory(self, sample_id: str, tables: Mapping[str, str], built: dict) -> None:
        """Write a complete memory, its tables as `table_texts` gives them; built.json comes last and marks it complete."""
        folder = self.path / "memory" / safe_name(sample_id)
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in tables.items():
                write_atomic(folder / f"{name}.jsonl", text)
            write_atomic(folder / "built.json", dumps(built, indent=True))

    def changed_tables(self, sample_id: str, tables: Mapping[str, str]) -> list[str]:
        """Names of the tables that differ from those of the complete memory that is here; none where there is none."""
        folder = self.path / "memory" / safe_name(sample_id)
        if not (folder / "built.json").exists():
            return []
        here = {file.stem: file.read_bytes() for file in folder.glob("*.jsonl")}
        new = {name: text.encode() for name, text in tables.items()}
        return sorted(name for name in {*here, *new} if here.get(name) != new.get(name))

    def read_built(self, sample_id: str) -> dict[str, Any] | None:
        """The built.json of a complete memory, else None."""
        return _read_json(self.path / "memory" / safe_name(sample_id) / "built.json")

    def write_status(self, state: str, message: str = "", **facts: Any) -> None:
        with _writing(self.status.path):
            self.status.write(state, message, answered=len(self.answers), **facts)

    def heartbeat(self) -> None:
        """Bring status.json up to date. An account that cannot be written is no reason to end a run."""
        with suppress(OSError):
            self.status.beat(answered=len(self.answers))

    def read_status(self) -> dict[str, Any]:
        return _read_json(self.path / "status.json") or {}

    def read_metrics(self) -> dict[str, Any] | None:
        return _read_json(self.path / "metrics.json")

    def write_results(self, metrics: dict[str, Any], table: str) -> None:
        with _writing(self.path / "metrics.json"):
            write_atomic(self.path / "metrics.json", dumps(metrics, indent=True) + "\n")
            write_atomic(self.path / "table.md", table)

    @staticmethod
    def _acquire(path: Path):
        from filelock import FileLock, Timeout

        # The lock stands beside the folder, so that `fresh` can move the folder while holding it. It is the
        # operating system's: a killed process leaves none behind.
        lock = FileLock(path.parent / f".{path.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RecordError(f"{path}: another process is working on this run; wait for it or end it") from None
        return lock

    def _set_aside(self) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        target = self.path.with_name(f"{self.path.name}.old-{stamp}-{uuid.uuid4().hex[:4]}")
        shutil.move(self.path, target)
        self.notices.append(f"the earlier run was set aside as {target}")

    def _open_status(self, file: Path) -> Status:
        stored = self.read_status()
        try:
            status = Status(file, stored, _write_json, self.code)
            said = status.said()
            dumps([stored, status.elapsed_s, *said.notices, *said.too_long]).encode()
        except (TypeError, ValueError, AttributeError):
            raise RecordError(f"{file}: damaged (no account of processes); delete it or use run.fresh=true") from None
        return status

    def _load_or_create_manifest(self, identity: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        stored = _read_json(self.path / "manifest.json")
        if stored is None:
            if (self.path / "answers.jsonl").exists():
                raise RecordError(
                    f"{self.path}: answers without a manifest; move the folder away or use run.fresh=true"
                )
            created = {"format": FORMAT, "identity": identity, "run_id": uuid.uuid4().hex, **manifest}
            write_atomic(self.path / "manifest.json", dumps(created, indent=True) + "\n")
            return created
        if not isinstance(stored.get("run_id"), str):
            raise RecordError(f"{self.path / 'manifest.json'}: damaged (no run_id); use run.fresh=true")
        if stored.get("format") != FORMAT or stored.get("identity") != identity:
            raise RecordError(
                f"{self.path}: holds another run (identity {str(stored.get('identity'))[:12]}, this one is "
                f"{identity[:12]}); use run.fresh=true to set it aside"
            )
        return stored

    def _load_answers(self) -> dict[AnswerKey, dict[str, Any]]:
        path = self.path / "answers.jsonl"
        if not path.exists():
            return {}
        content = path.read_bytes()
        good, bad = [], []
        answers = {}
        for line in content.split(b"\n"):  # in bytes a line ends at the newline alone
            if line:
                try:
                    key, record = parse_record(line)
                except ValueError:
                    bad.append(line)
                else:
                    answers[key] = record
                    good.append(line)
        complete = content.endswith(b"\n") or not good
        if bad or not complete:
            damaged = self.path / "answers.damaged.jsonl"
            if bad:
                with damaged.open("ab") as handle:
                    handle.writelines(line + b"\n" for line in bad)
                self.notices.append(
                    f"{len(bad)} unreadable line(s) of answers.jsonl set aside in {damaged.name}; asked again"
                )
            write_atomic(path, b"".join(line + b"\n" for line in good).decode())
        return answers


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path}: cannot be written ({error.strerror}); make room, then start again") from error


_SUM = re.compile(rb', "crc": "([0-9a-f]{8})"}$')


def _signed(record: str) -> str:
    """A record's JSON with the checksum of what it is without it, as its last member."""
    return f'{record[:-1]}, "crc": "{zlib.crc32(record.encode()):08x}"}}'


def parse_record(line: bytes) -> tuple[AnswerKey, dict[str, Any]]:
    """A line of answers.jsonl. ValueError: it is damaged, that is no JSON, not what was written, or without what every
    record holds. (A line without a checksum is one of an earlier version, or was edited by hand.)"""
    if (found := _SUM.search(line)) and zlib.crc32(line[: found.start()] + b"}") != int(found[1], 16):
        raise ValueError("not what was written")
    try:
        record = _DECODER.decode((line[: found.start()] + b"}" if found else line).decode())
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(record, dict):
        raise ValueError("no object")
    for name, kinds in _RECORD.items():
        if not isinstance(record.get(name, ...), kinds):
            raise ValueError(f"{name} is missing or of another type")
    error = record["error"]
    if error is not None and not isinstance(error.get("kind"), str):
        raise ValueError("an error without its kind")
    return _key(record), record


def _finite(digits: str) -> float:
    """NaN, Infinity and what is too large for a number; the records hold none."""
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is no number")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)

_RECORD: dict[str, type | tuple[type, ...]] = {
    "sample_id": str,
    "qa_index": int,
    "trial": int,
    "category": int,
    "evidence": list,
    "scores": dict,
    "usage": dict,
    "error": (dict, type(None)),
}


def _key(record: Mapping[str, Any]) -> AnswerKey:
    return record["sample_id"], record["qa_index"], record["trial"]


def _write_json(path: Path, value: Any) -> None:
    write_atomic(path, dumps(value, indent=True))


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise RecordError(f"{path}: damaged (not JSON); delete it or use run.fresh=true") from None
    if not isinstance(value, dict):
        raise RecordError(f"{path}: damaged (not an object); delete it or use run.fresh=true")
    return value
