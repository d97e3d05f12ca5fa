"""Every system held against one of them, question by question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eval.cells import Named
from eval.intervals import Comparison, compare, holm
from eval.table import HEADERS, Grid, Line
from harness.errors import RecordError

DEFAULT_BASELINE = "memfly"
PAIRED = (
    "Questions both systems scored; 95% interval and exact sign-flip p over conversations (the units), p Holm-adjusted "
    "over the systems of a metric. Differences in percentage points."
)


class Paired(NamedTuple):
    """The system less the baseline in a metric; `p_holm` is adjusted over the metric's systems."""

    system: str
    metric: str
    comparison: Comparison
    p_holm: float | None


def baseline_of(systems: Sequence[Named], name: str | None = None) -> Named:
    """The named system (its name in the table, or its label), else full MemFly, else the first that is no oracle.

    RecordError: the name asked for is the label of several of them.
    """
    for wanted in filter(None, (name, DEFAULT_BASELINE)):
        exact = [one for one in systems if one.name == wanted]
        found = exact or [one for one in systems if one.run.label == wanted]
        if wanted == name and len(found) > 1:
            raise RecordError(f"{name} is {len(found)} runs: {', '.join(one.name for one in found)}; name one of them")
        if found:
            return found[0]
    return next((one for one in systems if not one.oracle), systems[0])


def paired(systems: Sequence[Named], metrics: Sequence[str], baseline: str | None = None) -> tuple[Named, list[Paired]]:
    """The baseline, and every other system against it in every metric both have. Oracles are no systems to compare."""
    base = baseline_of(systems, baseline)
    found: list[Paired] = []
    for metric in metrics:
        compared = {
            one.name: compare(one.scored.by_question[metric], base.scored.by_question[metric])
            for one in systems
            if one is not base and not one.oracle
            if metric in one.scored.by_question and metric in base.scored.by_question
        }
        adjusted = holm({name: comparison.p for name, comparison in compared.items()})
        found += [Paired(name, metric, comparison, adjusted[name]) for name, comparison in compared.items()]
    return base, found


def paired_parts(
    systems: Sequence[Named], metrics: Sequence[str], baseline: str | None = None
) -> list[tuple[Line, ...] | Grid]:
    """The grid (rows: metrics, in each the systems) and what must be known to read it; empty without a comparison."""
    base, found = paired(systems, metrics, baseline)
    if not found:
        return []
    rules = {place for place in range(1, len(found)) if found[place].metric != found[place - 1].metric}
    columns = ("less " + base.name, "metric", "difference", "95%", "p", "p Holm", "questions")
    lines = [PAIRED, *dict.fromkeys(one.comparison.reason for one in found if one.comparison.reason)]
    namesakes = sum(one.run.label == base.run.label for one in systems)
    if baseline is None and namesakes > 1:
        lines.append(
            f"{base.run.label} is {namesakes} runs, of which the first is the baseline; --baseline names another."
        )
    return [Grid(columns, tuple(map(_row, found)), frozenset(rules)), tuple(map(Line, lines))]


def _row(one: Paired) -> tuple[str, ...]:
    found = one.comparison
    return (
        one.system,
        HEADERS.get(one.metric, one.metric),
        _signed(found.difference),
        "" if found.interval is None else f"{_signed(found.interval[0])} to {_signed(found.interval[1])}",
        "" if found.p is None else f"{found.p:.4f}",
        "" if one.p_holm is None else f"{one.p_holm:.4f}",
        f"{found.questions:,}",
    )


def _signed(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.2f}"
