"""Which figures a group of comparable runs gets, and what is said beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval.cells import Cell
from eval.collection import Run
from eval.report import figures_grid
from eval.report.figures import Figure, bars, cost_plot, curves
from eval.report.naming import differing, flatten
from eval.report.numbers import CURVE, THRESHOLDS, Cost
from eval.report.records import SCORERS
from eval.table import HEADERS

ROWS = ("1", "2", "3", "4", "5", "micro4", "micro")


@dataclass(frozen=True)
class Measured:
    """One complete run with the numbers of its figures. `name` tells it from every other run of the collection."""

    name: str
    run: Run
    cells: Mapping[tuple[str, str], Cell]
    """(metric, row) -> figure, as the tables have them"""
    curve: Sequence[float] | None
    cost: Cost
    growth: Mapping[str, Sequence[float]] | None
    gate: Mapping[str, int] | None

    @property
    def f1(self) -> float | None:
        """Mean over all questions by the first of SCORERS."""
        cell = self.cells.get((SCORERS[0], "micro"))
        return cell.value if cell else None


def figures(group: Sequence[Measured], name: str) -> list[Figure]:
    """The figures of one group; those without data are left out."""
    found: list[Figure] = []
    base = base_of(group)
    for scorer in SCORERS:
        found.append(
            bars(
                f"{name}-{scorer}",
                f"{HEADERS[scorer]} by category",
                _bars_about(scorer, base),
                {
                    one.name: {row: one.cells[scorer, row] for row in ROWS if (scorer, row) in one.cells}
                    for one in group
                },
                base,
            )
        )
    for number, (label, cells) in enumerate(thresholds(group)):
        found.append(
            figures_grid.heat(
                f"{name}-heat-{number}",
                f"{HEADERS[SCORERS[0]]} over the thresholds: {label}",
                "Mean over all questions in percent; darker is higher. What else the runs are made of is equal.",
                cells,
            )
        )
    if lines := {one.name: one.curve for one in group if one.curve is not None}:
        found.append(
            curves(
                f"{name}-recall",
                "Evidence recall over the first k distinct turns",
                f"Share of the gold turns among the first k distinct turns of the evidence (order: round, rank, date), "
                f"k = 1 to {CURVE}, mean over the questions whose evidence resolves. The dashed line is k = 20, the "
                f"recall_20t of the tables. A line is level where a system hands over no more turns.",
                lines,
                ("k, distinct turns", "recall, percent"),
                mark=20,
            )
        )
    found.append(
        cost_plot(
            f"{name}-cost",
            f"{HEADERS[SCORERS[0]]} against tokens",
            "Prompt and completion tokens a question: the dot counts recall and answer, the ring adds the building of "
            "the memory, spread over the questions. Cached replies count as if they had been computed.",
            {one.name: one.cost for one in group},
            {one.name: one.f1 for one in group if one.f1 is not None},
        )
    )
    if counts := {one.name: one.gate for one in group if one.gate is not None}:
        found.append(
            figures_grid.decisions(
                f"{name}-gate",
                "What became of each turn",
                "Decisions of the gate over all conversations: merged into a note, appended with at least one link, or "
                "appended alone.",
                counts,
            )
        )
    if tables := {one.name: one.growth for one in group if one.growth is not None}:
        found += figures_grid.growth(
            f"{name}-growth",
            "Growth of the memory",
            "Mean over the conversations after each turn, up to the end of the shortest one. Single conversations are "
            "under Memory.",
            tables,
        )
    return found


def _bars_about(scorer: str, base: str | None) -> str:
    lines = [
        "Mean over questions in percent; whiskers are 95% intervals with conversations as the units. Each panel "
        "has its own scale, from 0."
    ]
    if scorer == "f1_amem":
        lines.append("Category 5 pays for falling for the trap: no system is ranked by it.")
    if base:
        lines.append(f"The dashed line is {base}.")
    lines.append("Diamonds are published values, where a paper printed one for such a run.")
    return " ".join(lines)


def base_of(group: Sequence[Measured]) -> str | None:
    """The unablated run that most ablations of the group belong to, of several the one most like them; None where
    there is no such pair."""
    ablated = [one.run.spec for one in group if one.run.spec.get("ablation", "none") != "none"]
    best: tuple[tuple[int, int], str] | None = None
    for one in group:
        own = [spec for spec in ablated if spec["memory_name"] == one.run.spec["memory_name"]]
        if own and one.run.spec.get("ablation", "none") == "none":
            rank = (len(own), -sum(len(differing([one.run.spec, spec])) for spec in own))
            if best is None or rank > best[0]:
                best = (rank, one.name)
    return best[1] if best else None


def thresholds(group: Sequence[Measured]) -> list[tuple[str, dict[tuple[float, float], float]]]:
    """(label, (tau_merge, tau_link) -> mean F1) for each set of runs that differ in these two alone."""
    sets: dict[str, dict[tuple[float, float], float]] = {}
    labels: dict[str, str] = {}
    for one in group:
        memory = one.run.spec["memory"]
        if one.f1 is None or not all(name in memory for name in THRESHOLDS):
            continue
        rest = _without_thresholds(one.run.spec)
        sets.setdefault(rest, {})[memory[THRESHOLDS[0]], memory[THRESHOLDS[1]]] = one.f1
        labels[rest] = one.run.label
    return [(labels[rest], cells) for rest, cells in sets.items() if len(cells) > 1]


def _without_thresholds(spec: Mapping[str, Any]) -> str:
    flat = flatten({key: value for key, value in spec.items() if key not in ("run", "cache")})
    kept_out = {f"memory.{name}" for name in THRESHOLDS}
    return repr(sorted((k, repr(v)) for k, v in flat.items() if k not in kept_out))
