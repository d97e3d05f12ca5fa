"""The grids of a collection's tables: systems down, figures across. What is unknown is an empty cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval.cells import AVERAGES, Cell, Named, row_name
from eval.groups import identity_part
from eval.report.naming import differing, flatten
from eval.table import HEADERS, Grid, percent

RETRIEVAL = ("f1_amem", "f1_locomo", "bleu1", "recall", "hit", "recall_20t", "recall_700w")
SWEPT = ("f1_amem", "f1_locomo", "bleu1", "recall", "recall_700w")
MEMORY = {
    "turns": "turns",
    "notes": "notes",
    "merges": "merges",
    "merged_turns": "turns merged",
    "largest": "largest note",
    "links": "links",
    "appends": "appends",
}
"""Counts of metrics.json's memory -> column."""


def category_grid(systems: Sequence[Named], metric: str) -> Grid:
    """Rows: systems. Columns: categories and averages of one metric; answers that are errors."""
    found = {row for one in systems for row in one.scored.metrics["by_category"]}
    across = [*sorted(found), *AVERAGES]
    table: list[tuple[str, ...]] = [("n", *(_n(systems, row) for row in across), "")]
    rules = set()
    for one in systems:
        rules.add(len(table))
        cells = [one.scored.cell(metric, row) for row in across]
        table.append((one.row(), *map(_figure, cells), f"{one.scored.metrics['n_error']:,}"))
        table += _stack(cells, 1)
    columns = (HEADERS.get(metric, metric), *map(row_name, across), "errors")
    return Grid(columns, tuple(table), frozenset(rules if len(table) > 1 + len(systems) else {1}))


def abstention_grid(systems: Sequence[Named]) -> Grid:
    """Category 5 alone: what the A-MEM scorer pays for, beside how often the system refused."""
    metrics = ("f1_amem", "f1_locomo", "abstained")
    rows = []
    for one in systems:
        cells = [one.scored.cell(metric, "5") for metric in metrics]
        rows.append((one.row(), f"{cells[0].n if cells[0] else 0:,}", *map(_figure, cells)))
    return Grid(("5 adversarial", "n", *(HEADERS[metric] for metric in metrics)), tuple(rows))


def retrieval_grid(systems: Sequence[Named]) -> Grid:
    """Rows: systems. Columns: micro averages with the evidence measures, and the budgets these were had for."""
    table: list[tuple[str, ...]] = []
    rules = set()
    for one in systems:
        rules.add(len(table))
        cells = [one.scored.cell(metric) for metric in RETRIEVAL]
        spent, n = one.scored.metrics["evidence"], one.scored.metrics["n_evidence"]
        table.append(
            (
                one.row(retrieval=True),
                *map(_figure, cells),
                f"{n:,}" if n else "",
                *("" if spent[key] is None else f"{spent[key]:,.1f}" for key in ("items", "dia_ids", "tokens")),
            )
        )
        table += _stack(cells, 4)
    columns = ("micro", *(HEADERS[metric] for metric in RETRIEVAL), "n evid.", "items", "dia_ids", "tokens")
    return Grid(columns, tuple(table), frozenset(rules - {0} if len(table) > len(systems) else ()))


def memory_grid(systems: Sequence[Named]) -> Grid:
    """Rows: systems. Columns: what their memories hold, over all conversations."""
    rows = []
    for one in systems:
        memory = one.run.metrics["memory"]
        rows.append((one.row(retrieval=True), *(_count(memory.get(key)) for key in MEMORY)))
    return Grid(("memory", *MEMORY.values()), tuple(rows))


def sweep_grids(systems: Sequence[Named]) -> list[Grid]:
    """A grid for each label that several runs share: a row a setting, a column for each field in which they differ."""
    labels = [one.run.label for one in systems]
    grids = []
    for label in dict.fromkeys(labels):
        members = [one for one in systems if one.run.label == label]
        fields = settings([one.run.spec for one in members])
        if len(members) > 1 and fields:
            grids.append(_sweep_grid(label, members, fields))
    return grids


def settings(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields in which specs differ, as "memory.tau_merge"; those that cannot change results left out."""
    return differing([identity_part(spec) for spec in specs])


def _sweep_grid(label: str, members: Sequence[Named], fields: Sequence[str]) -> Grid:
    values = {one.name: [flatten(one.run.spec).get(field) for field in fields] for one in members}
    rows = []
    for one in sorted(members, key=lambda one: [_order(value) for value in values[one.name]]):
        cells = [one.scored.cell(metric) for metric in SWEPT]
        figures = [text for cell in cells for text in (_figure(cell), _span(cell))]
        scored = one.scored.metrics
        mark = one.row(retrieval=True).removeprefix(one.name).strip()
        counts = (f"{scored['n_total']:,}", f"{scored['n_error']:,}", mark)
        rows.append((*map(_setting, values[one.name]), *figures, *counts))
    across = [text for metric in SWEPT for text in (HEADERS[metric], "95%")]
    first, *rest = [field.removeprefix("memory.") for field in fields]
    return Grid((f"{label}: {first}", *rest, *across, "n", "errors", "marks"), tuple(rows))


def cost_grid(systems: Sequence[Named]) -> Grid:
    """What each run took: calls, tokens, dollars, time; tokens a turn replayed and an answer given."""
    rows = []
    for one in systems:
        cost = costs(one)
        per = ("tokens_a_turn", "tokens_an_answer")
        rows.append(
            (
                one.row(),
                *(_count(cost[key]) for key in ("calls", "computed_calls", "cached_calls", "no_reply")),
                *(_count(cost[key]) for key in ("prompt_tokens", "completion_tokens")),
                *("" if cost[key] is None else f"{cost[key]:,.0f}" for key in per),
                "" if cost["usd"] is None else f"{cost['usd']:.2f}",
                f"{cost['wall_s']:,.0f}",
            )
        )
    columns = ("cost", "calls", "computed", "cached", "no reply", "prompt tok.", "reply tok.", "tok./turn")
    return Grid((*columns, "tok./answer", "USD", "wall s"), tuple(rows))


def costs(one: Named) -> dict[str, float | None]:
    """What a run took, of all its questions whatever the subset; no dollars where no price was known."""
    metrics = one.run.metrics
    usage, memory = metrics["usage"], metrics["memory"]
    asked = sum(r["usage"]["prompt_tokens"] + r["usage"]["completion_tokens"] for r in one.run.outcomes)
    whole = usage["prompt_tokens"] + usage["completion_tokens"]
    turns, n = memory.get("turns"), metrics["n_total"]
    return dict(usage) | {
        "no_reply": memory.get("errors", 0) + metrics.get("asking", {}).get("errors", 0),
        "tokens_a_turn": (whole - asked) / turns if turns else None,
        "tokens_an_answer": asked / n if n else None,
        "usd": None if metrics.get("table", {}).get("unpriced") else usage["usd"],
        "wall_s": metrics["wall_s"],
    }


def _n(systems: Sequence[Named], row: str) -> str:
    """Answers of a category or average: the same for all systems of a group."""
    cell = next(filter(None, (one.scored.cell("f1_amem", row) for one in systems)), None)
    return f"{cell.n:,}" if cell else ""


def _stack(cells: Sequence[Cell | None], blanks: int) -> list[tuple[str, ...]]:
    """The rows below a system's: interval, published, difference; those that say something."""
    known = ["" if c is None or c.published is None else f"{c.published:.2f}" for c in cells]
    apart = ["" if c is None or c.difference is None else f"{c.difference:+.2f}" for c in cells]
    named = (("  95%", [_span(cell) for cell in cells]), ("  published", known), ("  difference", apart))
    return [(name, *texts, *[""] * blanks) for name, texts in named if any(texts)]


def _figure(cell: Cell | None) -> str:
    return "" if cell is None else percent(cell.value)


def _span(cell: Cell | None) -> str:
    return "" if cell is None or cell.low is None else f"{100 * cell.low:.1f}–{100 * cell.high:.1f}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def _order(value: Any) -> tuple[int, float, str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value), "") if number else (1, 0.0, str(value))
