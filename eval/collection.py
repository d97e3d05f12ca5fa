"""Run folders, from wherever they were copied, as a list of runs to be held side by side.

A path may be a run folder, a folder of run folders (two levels deep at most), or the folder of a sweep (its runs.json
names the folders). Everything is read from the folders' records; nothing is scored again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.records import SWEEP_FILE, parse_record

_COUNTED = ("sample_id", "qa_index", "trial", "category", "scores", "error", "usage")


@dataclass(frozen=True)
class Run:
    """One run folder. `metrics` is {} for a run that has not ended; answers and memories are read when asked for."""

    path: Path
    manifest: dict[str, Any]
    status: dict[str, Any]
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> dict[str, Any]:
        return self.manifest["spec"]

    @property
    def label(self) -> str:
        """memory name, with the ablation behind it: "memfly-no_link"."""
        ablation = self.spec.get("ablation", "none")
        return self.spec["memory_name"] if ablation == "none" else f"{self.spec['memory_name']}-{ablation}"

    @property
    def backbone(self) -> str:
        return self.spec["backbone"]["name"]

    @property
    def dataset(self) -> str:
        return self.spec["dataset"]["name"]

    @property
    def protocol(self) -> str:
        return self.spec["protocol"]["name"]

    @property
    def identity(self) -> str:
        return self.manifest["identity"]

    @property
    def data_sha(self) -> str:
        return self.manifest["data"]["content_sha256"]

    @property
    def seed(self) -> int:
        return self.spec["seed"]

    @property
    def trials(self) -> int:
        return self.spec["trials"]

    @property
    def state(self) -> str:
        """finished, failed (above its error threshold; complete), stopped, running, or unknown."""
        return self.status.get("state", "unknown")

    @property
    def complete(self) -> bool:
        """All is answered and scored: it can stand in a table."""
        return bool(self.metrics) and self.state in ("finished", "failed")

    @cached_property
    def outcomes(self) -> list[dict[str, Any]]:
        """The records without their texts, kept in memory: what aggregates are made of. Order as in `answers`.

        RecordError also where a run's figures are of another number of answers than the folder holds.
        """
        outcomes = self._read(_outcome)
        if self.metrics and self.metrics.get("n_total") != len(outcomes):
            raise RecordError(
                f"{self.path}: answers.jsonl holds {len(outcomes)} answers, metrics.json is of "
                f"{self.metrics.get('n_total')}; copy the whole folder, or start the run again"
            )
        return outcomes

    def answers(self) -> list[dict[str, Any]]:
        """The records of answers.jsonl by (sample_id, qa_index, trial), read anew. RecordError names a damaged line."""
        return self._read(lambda record: record)

    def _read(self, pick: Callable[[dict[str, Any]], dict[str, Any]]) -> list[dict[str, Any]]:
        file = self.path / "answers.jsonl"
        records = {}
        try:
            with file.open("rb") as lines:  # in bytes a line ends at the newline alone
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        try:
                            key, record = parse_record(line)
                            # A question asked again after an outage has two lines: the later one counts.
                            records[key] = pick(record)
                        except (ValueError, KeyError, TypeError):
                            raise RecordError(
                                f"{file}:{number}: not a record; start the run again to mend it"
                            ) from None
        except FileNotFoundError:
            pass
        except OSError as error:
            raise RecordError(f"{file}: cannot be read ({error.strerror})") from None
        return [records[key] for key in sorted(records)]

    def sample_ids(self) -> list[str]:
        """The conversations whose memory is in the folder, in the order of their folders' names."""
        return sorted(_built(file)["sample_id"] for file in self.path.glob("memory/*/built.json"))

    def memories(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(sample_id, {"built": built.json, "tables": {name: rows}}) of each complete memory."""
        for file in sorted(self.path.glob("memory/*/built.json")):
            built = _built(file)
            tables = {table.stem: _rows(table) for table in sorted(file.parent.glob("*.jsonl"))}
            yield built["sample_id"], {"built": built, "tables": tables}

    def memory(self, sample_id: str) -> dict[str, Any]:
        """One conversation's memory as in `memories`. KeyError where there is none."""
        for name, memory in self.memories():
            if name == sample_id:
                return memory
        raise KeyError(sample_id)


def load_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs under the paths, each once, in the order found; unfinished ones too (see `Run.complete`).

    RecordError: a path that holds no run, or a damaged manifest, status or metrics file.
    """
    runs: dict[Path, Run] = {}
    for path in paths:
        folders = _folders(Path(path))
        if not folders:
            raise RecordError(
                f"{path}: no run folder here (one holds manifest.json); give results/runs or a run folder"
            )
        for folder in folders:
            runs.setdefault(folder.resolve(), load_run(folder))
    return list(runs.values())


def load_run(folder: Path) -> Run:
    """One run folder. RecordError names the damaged file."""
    manifest = _json(folder / "manifest.json")
    missing = [key for key in ("spec", "identity", "data", "prompts") if key not in manifest]
    if missing:
        raise RecordError(f"{folder / 'manifest.json'}: no manifest of a run (without {', '.join(missing)})")
    if not _fits(manifest, _MANIFEST):
        raise RecordError(f"{folder / 'manifest.json'}: damaged (no manifest of a run)")
    status, metrics = folder / "status.json", folder / "metrics.json"
    stands = _json(status) if status.is_file() else {}
    if not isinstance(stands.get("state", ""), str):
        raise RecordError(f"{status}: damaged (no state of a run)")
    figures = _json(metrics) if metrics.is_file() else {}
    if metrics.is_file() and not _fits(figures, _METRICS):
        raise RecordError(f"{metrics}: damaged (figures are missing); delete it and start the run again")
    return Run(folder, manifest, stands, figures)


_NUMBER = (int, float)
_METRICS = {
    "n_total": int,
    "n_error": int,
    "micro": dict,
    "by_category": dict,
    "memory": dict,
    "usage": {
        "calls": int,
        "computed_calls": int,
        "cached_calls": int,
        "prompt_tokens": int,
        "completion_tokens": int,
        "usd": _NUMBER,
    },
    "wall_s": _NUMBER,
}
_MANIFEST = {
    "identity": str,
    "data": {"content_sha256": str},
    "prompts": dict,
    "spec": {
        "memory_name": str,
        "seed": int,
        "trials": int,
        **{group: {"name": str} for group in ("backbone", "dataset", "protocol")},
    },
}


def _fits(value: Any, form: dict[str, Any] | type | tuple[type, ...]) -> bool:
    """Whether plain values have a form: a type or one of several, or an object that holds what is named."""
    if isinstance(form, type | tuple):
        return isinstance(value, form)
    return isinstance(value, dict) and all(name in value and _fits(value[name], inner) for name, inner in form.items())


def _outcome(record: dict[str, Any]) -> dict[str, Any]:
    """A record without its texts. An answer's evidence is some twenty texts, a run's is ten megabytes."""
    return (
        {key: record[key] for key in _COUNTED}
        | {key: record[key] for key in ("context_tokens", "call_errors", "fallbacks", "code") if key in record}
        | {"evidence": [{"dia_ids": item["dia_ids"]} for item in record["evidence"]]}
    )


def _folders(path: Path) -> list[Path]:
    if (path / "manifest.json").is_file():
        return [path]
    if (path / SWEEP_FILE).is_file():
        return _of_sweep(path / SWEEP_FILE)
    found = {*path.glob("*/manifest.json"), *path.glob("*/*/manifest.json")}
    return sorted(file.parent for file in found if ".old-" not in file.parent.name)


def absent_jobs(paths: Sequence[Path]) -> list[str]:
    """One line for each job of a sweep among the paths that left no run folder there: refused, not started, or moved."""
    lines = []
    for file in (Path(path) / SWEEP_FILE for path in paths if not (Path(path) / "manifest.json").is_file()):
        if not file.is_file():
            continue
        for number, job in enumerate(_jobs(file)):
            if _place(file, job) is None:
                name = " ".join(map(str, job.get("overrides", [])))
                lines.append(f"not in the tables: job #{number} of {file.parent} ({name}): {job.get('outcome')}")
    return lines


def _of_sweep(file: Path) -> list[Path]:
    """The sweep's run folders that are there, in its order; looked for beside the sweep too, where it was copied."""
    return list(dict.fromkeys(place for job in _jobs(file) if (place := _place(file, job)) is not None))


def _jobs(file: Path) -> list[dict[str, Any]]:
    jobs = _json(file).get("jobs", [])
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise RecordError(f"{file}: damaged (no list of jobs)")
    return jobs


def _place(file: Path, job: dict[str, Any]) -> Path | None:
    """The job's run folder, if it is there."""
    if not isinstance(job.get("folder"), str):
        return None
    named = Path(job["folder"])
    places = (named, file.parent / named.name, file.parent / "runs" / named.name)
    return next((place for place in places if (place / "manifest.json").is_file()), None)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{file}: cannot be read ({type(error).__name__})") from None


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(file))
    except (ValueError, RecursionError):
        raise RecordError(f"{file}: damaged (not JSON)") from None
    if not isinstance(value, dict):
        raise RecordError(f"{file}: damaged (not an object)")
    return value


def _built(file: Path) -> dict[str, Any]:
    built = _json(file)
    if not isinstance(built.get("sample_id"), str):
        raise RecordError(f"{file}: damaged (without sample_id)")
    return built


def _rows(file: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(_text(file).split("\n"), 1):
        if line:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise RecordError(f"{file}:{number}: damaged (no row)")
            rows.append(row)
    return rows
