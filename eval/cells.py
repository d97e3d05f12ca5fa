"""Every figure of a run with all that belongs to it: n, errors, interval, the published value. Tables only lay them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eval.aggregate import ADVERSARIAL, METRICS, aggregate, question_scores
from eval.collection import Run
from eval.intervals import QuestionKey, mean_interval
from eval.published import METRIC_FIELDS, OTHER, Reference, reference_for
from harness.locomo.schema import CATEGORIES
from harness.locomo.slices import LEFT_OUT, audit_verdicts

AVERAGES = ("micro4", "micro", "macro4", "macro")


@dataclass(frozen=True)
class Cell:
    """One figure, a fraction in [0, 1]; None is unknown. `row` is a category id ("1".."5") or an average's name.

    n: answers it is of (those whose evidence resolves for recall and hit), errors among all of them not counted in.
    low, high: the 95% interval over conversations, of micro and the categories. published: percent, as printed.
    """

    metric: str
    row: str
    value: float | None
    n: int
    n_error: int
    low: float | None = None
    high: float | None = None
    published: float | None = None
    source: str = ""
    status: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less the published value, in percentage points; None where that is of another protocol."""
        if self.value is None or self.published is None or self.status.endswith(OTHER):
            return None
        return 100 * self.value - self.published


@dataclass(frozen=True)
class Scored:
    """A run on a subset of its questions: its records, their aggregate and every figure by (metric, row)."""

    run: Run
    subset: str
    records: list[dict[str, Any]]
    metrics: dict[str, Any]
    by_question: dict[str, dict[QuestionKey, float]]
    cells: dict[tuple[str, str], Cell]
    reference: Reference | None = None

    def cell(self, metric: str, row: str = "micro") -> Cell | None:
        return self.cells.get((metric, row))


@dataclass(frozen=True)
class Named:
    """A run's figures under the name it has in its tables."""

    name: str
    scored: Scored

    @property
    def run(self) -> Run:
        return self.scored.run

    @property
    def oracle(self) -> bool:
        """It answers from the gold: a bound on the figures, no system."""
        return any(line.startswith("ORACLE") for line in self.run.metrics.get("table", {}).get("lines", []))

    @property
    def collapsed(self) -> bool:
        return bool(self.run.metrics["memory"].get("collapsed"))

    def row(self, *, retrieval: bool = False) -> str:
        """The name with what a reader must know beside it: FAILED, ORACLE; beside retrieval figures COLLAPSED."""
        marks = (
            ("FAILED", self.run.state == "failed"),
            ("ORACLE", self.oracle),
            ("COLLAPSED", retrieval and self.collapsed),
        )
        return " ".join([self.name, *(mark for mark, holds in marks if holds)])


def kept_in(run: Run, subset: str) -> Callable[[Mapping[str, Any]], bool]:
    """Which records of a run belong to "all" or "clean". Only LoCoMo-10 has been audited: elsewhere both are equal."""
    if subset == "all" or not run.manifest["data"].get("is_locomo10"):
        return lambda record: True
    verdicts = audit_verdicts()
    return lambda record: verdicts.get((record["sample_id"], record["qa_index"]), "") not in LEFT_OUT


def scored(run: Run, subset: str = "all") -> Scored:
    """Figures of a complete run. Published values stand beside the subset "all" alone."""
    kept = kept_in(run, subset)
    records = [record for record in run.outcomes if kept(record)]
    metrics = aggregate(records, memory=run.metrics["memory"], usage=run.metrics["usage"], wall_s=run.metrics["wall_s"])
    comparable = run.metrics.get("table", {}).get("comparable")
    reference = reference_for(**comparable) if comparable and subset == "all" else None
    by_question = question_scores(records)
    cells = {(cell.metric, cell.row): cell for cell in _cells(metrics, records, by_question, reference)}
    return Scored(run, subset, records, metrics, by_question, cells, reference)


def _cells(
    metrics: Mapping[str, Any],
    records: list[dict[str, Any]],
    by_question: Mapping[str, Mapping[QuestionKey, float]],
    reference: Reference | None,
) -> Iterator[Cell]:
    category_of = {(r["sample_id"], r["qa_index"]): str(r["category"]) for r in records}
    categories = metrics["by_category"]
    extra = sorted(set(by_question) - set(METRICS))
    for metric in (*METRICS, *extra):
        evidence = metric in ("recall", "hit", "recall_20t", "recall_700w")
        for row in (*categories, *AVERAGES):
            of = [row] if row in categories else [c for c in categories if row[-1] != "4" or c != str(ADVERSARIAL)]
            value = categories[row][metric] if row in categories else metrics[row][metric]
            span = None
            if row in categories or row == "micro":
                values = by_question.get(metric, {})
                span = _interval({key: v for key, v in values.items() if category_of[key] in of})
            printed = reference.cell(row, metric) if reference and metric in METRIC_FIELDS else None
            yield Cell(
                metric,
                row,
                value,
                sum(categories[c]["n_evidence"] if evidence else categories[c]["n"] for c in of),
                sum(categories[c]["n_error"] for c in of),
                *(span or (None, None)),
                *((printed.value, printed.source, printed.status) if printed else ()),
            )


def _interval(values: Mapping[QuestionKey, float]) -> tuple[float, float] | None:
    clusters: dict[str, list[float]] = {}
    for (sample_id, _), value in values.items():
        clusters.setdefault(sample_id, []).append(value)
    span = mean_interval(clusters)
    return None if span is None else (max(0.0, span[0]), min(1.0, span[1]))


def row_name(row: str) -> str:
    """ "2" -> "2 temporal"; averages as they are."""
    return f"{row} {CATEGORIES.get(int(row), '')}".strip() if row.isdigit() else row
