"""Answers of runs as one Hugging Face `datasets` table: a row an answer, with the run it belongs to.

The schema is fixed (`features`), so tables of different runs concatenate and a column that is null in one of them keeps
its type. Rows hold the data set's text (question, gold, evidence).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.aggregate import METRICS
from harness.errors import RecordError
from harness.locomo.schema import CATEGORIES

if TYPE_CHECKING:
    from datasets import Dataset, Features

    from eval.collection import Run

PARQUET = "answers.parquet"

RUN = {
    "run": "string",
    "run_id": "string",
    "identity": "string",
    "label": "string",
    "memory": "string",
    "ablation": "string",
    "backbone": "string",
    "dataset": "string",
    "data_sha256": "string",
    "protocol": "string",
    "seed": "int64",
    "run_state": "string",
}
ANSWER = {
    "sample_id": "string",
    "qa_index": "int32",
    "trial": "int32",
    "category": "int32",
    "category_name": "string",
    "question": "string",
    "gold": "string",
    "gold_evidence": ["string"],
    "reply": "string",
    "answer": "string",
    "options": ["string"],
}
EVIDENCE = {
    "dia_ids": ["string"],
    "paths": ["string"],
    "rank": "int32",
    "round": "int32",
    "score": "float64",
    "date": "string",
    "ends": ["int32"],
    "text": "string",
}
COST = {
    "context_tokens": "int64",
    "calls": "int64",
    "computed_calls": "int64",
    "cached_calls": "int64",
    "call_errors": "int64",
    "prompt_tokens": "int64",
    "completion_tokens": "int64",
    "usd": "float64",
    "latency_s": "float64",
}
SCORES = dict.fromkeys(METRICS, "float64")
SCHEMA: dict[str, Any] = {
    **RUN,
    **ANSWER,
    "evidence": [EVIDENCE],
    **SCORES,
    "other_scores": [{"metric": "string", "value": "float64"}],
    **COST,
    "fallbacks": [{"name": "string", "count": "int64"}],
    "trace": "string",
    "error_kind": "string",
    "error_message": "string",
}
"""Column -> type; a list stands for a list of what it holds, a mapping for a struct. Every value may be null."""

_ASKED = ("sample_id", "qa_index", "trial", "category", "question", "gold", "evidence", "scores", "error")
_USAGE = ("calls", "computed_calls", "cached_calls", "prompt_tokens", "completion_tokens", "usd")


def features() -> Features:
    """The schema as `datasets` knows it."""
    from datasets import Features

    return Features({name: _feature(kind) for name, kind in SCHEMA.items()})


def rows(run: Run) -> Iterator[dict[str, Any]]:
    """The rows of a run, in its answers' order. RecordError: a record without what every record has."""
    about = run_columns(run)
    for record in run.answers():
        missing = [key for key in _ASKED if key not in record]
        if missing:
            place = f"{record.get('sample_id')}/{record.get('qa_index')}"
            raise RecordError(f"{run.path / 'answers.jsonl'}: the answer of {place} has no {', '.join(missing)}")
        row = about | answer_columns(record)
        yield {name: row[name] for name in SCHEMA}


def run_columns(run: Run) -> dict[str, Any]:
    """The columns that say which run a row is of."""
    spec = run.manifest["spec"]
    return {
        "run": run.path.name,
        "run_id": run.manifest["run_id"],
        "identity": run.identity,
        "label": run.label,
        "memory": spec["memory_name"],
        "ablation": spec["ablation"],
        "backbone": run.backbone,
        "dataset": run.dataset,
        "data_sha256": run.data_sha,
        "protocol": run.protocol,
        "seed": run.seed,
        "run_state": run.state,
    }


def answer_columns(record: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of one record. An error is a row with its kind and null scores."""
    scores, error = record["scores"], record["error"] or {}
    usage = record.get("usage", {})
    return {
        **{name: record.get(name) for name in ANSWER if name != "category_name"},
        "category_name": CATEGORIES.get(record["category"]),
        "evidence": [{name: item.get(name) for name in EVIDENCE} for item in record["evidence"]],
        **{name: _number(scores.get(name)) for name in SCORES},
        "other_scores": [
            {"metric": name, "value": _number(value)} for name, value in sorted(scores.items()) if name not in SCORES
        ],
        **{name: (usage if name in _USAGE else record).get(name) for name in COST},
        "fallbacks": [{"name": k, "count": n} for k, n in sorted(record.get("fallbacks", {}).items())],
        "trace": json.dumps(record.get("trace", {}), ensure_ascii=False),
        "error_kind": error.get("kind"),
        "error_message": error.get("message"),
    }


def build(runs: Sequence[Run]) -> Dataset:
    """One table of all runs' answers, in the order given. Touches no network.

    RecordError: `datasets` is missing, or a record does not fit the schema (names the run).
    """
    _offline()
    try:
        import datasets
        import pyarrow
    except ImportError as error:
        raise RecordError(
            f"{error.name} is not installed; `make setup` installs what requirements.lock lists"
        ) from None
    datasets.disable_progress_bars()
    schema, parts = features(), []
    for run in runs:
        try:
            parts.append(datasets.Dataset.from_list(list(rows(run)), features=schema))
        except (ValueError, TypeError, pyarrow.ArrowException) as error:
            raise RecordError(f"{run.path / 'answers.jsonl'}: a value is not of its column's type: {error}") from None
    return datasets.concatenate_datasets(parts)


def write(table: Dataset, folder: Path, *, disk: bool, parquet: bool) -> list[Path]:
    """Write the table: into the folder itself (`datasets.load_from_disk(folder)`), and/or as one Parquet file in it."""
    written = []
    if disk:
        table.save_to_disk(folder)
        written.append(folder)
    if parquet:
        folder.mkdir(parents=True, exist_ok=True)
        table.to_parquet(folder / PARQUET)
        written.append(folder / PARQUET)
    return written


def _offline() -> None:
    """Before the import: nothing here needs a hub, and none is asked."""
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _feature(kind: Any) -> Any:
    from datasets import List, Value

    if isinstance(kind, str):
        return Value(kind)
    if isinstance(kind, list):
        return List(_feature(kind[0]))
    return {name: _feature(inner) for name, inner in kind.items()}
