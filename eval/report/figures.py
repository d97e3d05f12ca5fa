"""The figures: each an SVG with its title, what it shows, and its numbers as a table for those who read rather than
look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from xml.etree.ElementTree import Element

from markupsafe import Markup

from eval.cells import Cell, row_name
from eval.report.numbers import Cost
from eval.report.svg import CHAR, drawing, log_ticks, markup, put, series, short, spread, text, ticks
from eval.table import Grid, percent


@dataclass(frozen=True)
class Figure:
    """`pictures`: the panels, side by side where there is room; `wide`: over the page's whole width. `grid`: the
    numbers."""

    name: str
    title: str
    about: str
    pictures: tuple[Markup, ...]
    grid: Grid
    wide: bool = False


Cells = Mapping[str, Mapping[str, Cell]]
"""system -> row ("1" .. "5", "micro4", "micro") -> figure; all of one metric"""

LONG = 20
"""Characters of a name beyond which it stands above its bar."""


def bars(name: str, title: str, about: str, cells: Cells, base: str | None) -> Figure:
    """One panel a row, one bar a system, with its interval and the published value as a diamond; a dashed line
    continues the value of `base`."""
    rows = list(dict.fromkeys(row for of in cells.values() for row in of))
    pictures = tuple(_bar_panel(f"{name}-{row}", row, about, cells, base) for row in rows)
    lines = tuple((system, *(_said(of.get(row)) for row in rows)) for system, of in cells.items())
    return Figure(name, title, about, pictures, Grid(("system", *map(row_name, rows)), lines), wide=True)


def _said(cell: Cell | None) -> str:
    if cell is None:
        return ""
    span = "" if cell.low is None else f" ({percent(cell.low)}–{percent(cell.high)})"
    return percent(cell.value) + span + ("" if cell.published is None else f"; publ. {cell.published:.2f}")


def _bar_panel(name: str, row: str, about: str, cells: Cells, base: str | None) -> Markup:
    drawn = [of[row] for of in cells.values() if row in of]
    marks = ticks(max([0.01, *(max(c.high or 0, c.value or 0, (c.published or 0) / 100) for c in drawn)]), 4)
    longest = max(map(len, cells))
    # Long names stand above their bars: beside them they would take a phone's whole width.
    above = longest > LONG
    left = 2.0 if above else 12 + CHAR * longest
    step, head, foot = (34 if above else 20), 34, 22
    width, height = left + 236, head + step * len(cells) + foot
    n = drawn[0].n if drawn else 0
    root = drawing(width, height, f"{row_name(row)}, n = {n:,}", about, name)
    text(root, 0, 14, row_name(row), "strong")
    text(root, width, 14, f"n = {n:,}", "faint", "end")

    def x(value: float) -> float:
        return left + 180 * value / marks[-1]

    for mark in marks:
        put(root, "line", "rule", x1=x(mark), x2=x(mark), y1=head - 6, y2=height - foot)
        text(root, x(mark), height - 8, f"{100 * mark:g}", "faint", "middle" if mark or not above else "start")
    whole = cells.get(base or "", {}).get(row)
    if whole is not None and whole.value is not None:
        put(root, "line", "reference", x1=x(whole.value), x2=x(whole.value), y1=head - 6, y2=height - foot)
    for place, (system, of) in enumerate(cells.items()):
        y, cell = head + step * place, of.get(row)
        kind = "name base" if system == base else "name"
        if above:
            text(root, left, y + 10, clipped(system, 40), kind)
            y += 13
        else:
            text(root, left - 8, y + 11, system, kind, "end")
        if cell is not None and cell.value is not None:
            _bar(root, x, left, y, cell, system, system == base)
    return markup(root)


def _bar(
    root: Element, x: Callable[[float], float], left: float, y: float, cell: Cell, system: str, is_base: bool
) -> None:
    """The bar from `left` with its top at y + 2, its whisker, the published diamond, and the figure behind all."""
    end = x(cell.value or 0)
    tip = f"{system}, {row_name(cell.row)}: {_said(cell)}, n = {cell.n:,}"
    put(root, "rect", "bar base" if is_base else "bar", x=left, y=y + 2, width=max(0.5, end - left), height=12, tip=tip)
    if cell.low is not None and cell.high is not None:
        low, high = x(cell.low), x(cell.high)
        put(root, "path", "whisker", d=f"M{low:.1f} {y + 8}H{high:.1f}M{low:.1f} {y + 5}v6M{high:.1f} {y + 5}v6")
        end = max(end, high)
    if cell.published is not None:
        at = x(cell.published / 100)
        put(root, "path", "published", d=f"M{at:.1f} {y + 3}l5 5l-5 5l-5 -5z", tip=f"published: {cell.published:.2f}")
        end = max(end, at + 5)
    text(root, end + 5, y + 12, percent(cell.value), "number")


def curves(name: str, title: str, about: str, lines: Mapping[str, Sequence[float]], axes: tuple[str, str],
           mark: int | None = None, as_percent: bool = True) -> Figure:  # fmt: skip
    """Lines over 1, 2, ..., named at their ends. `mark`: a place on the first axis that a dashed line shows."""
    longest = max(map(len, lines.values()))
    labels = list(lines)
    right = 16 + CHAR * min(40, max(map(len, labels)))
    width, height, left, head, foot = max(556, 286 + right), max(280, 60 + 15 * len(lines)), 46, 14, 40
    scale = 100 if as_percent else 1
    marks = ticks(max(max(line) for line in lines.values()) * scale, 5)
    root = drawing(width, height, title, about, name)
    inner, low = width - left - right, height - foot

    def x(place: float) -> float:
        return left + inner * (place - 1) / max(1, longest - 1)

    def y(value: float) -> float:
        return low - (low - head) * value / (marks[-1] or 1)  # a layer that never grows is a line at 0

    for value in marks:
        put(root, "line", "rule", x1=left, x2=left + inner, y1=y(value), y2=y(value))
        text(root, left - 6, y(value) + 4, short(value), "faint", "end")
    for place in [1, *(int(t) for t in ticks(longest, 5)[1:] if t <= longest)]:
        text(root, x(place), low + 16, f"{place}", "faint", "middle")
    text(root, left + inner / 2, height - 6, axes[0], "faint", "middle")
    text(root, left, head - 4, axes[1], "faint")
    if mark and mark <= longest:
        put(root, "line", "reference", x1=x(mark), x2=x(mark), y1=head, y2=low)
    ends = spread([y(line[-1] * scale) for line in lines.values()], 13, head, low)
    for place, (label, line) in enumerate(lines.items()):
        points = _thinned([(x(at), y(value * scale)) for at, value in enumerate(line, 1)])
        put(root, "path", f"line {series(place)}", d=_path(points), tip=label)
        last = points[-1]
        put(
            root,
            "path",
            f"lead {series(place)}",
            d=f"M{last[0]:.1f} {last[1]:.1f}L{left + inner + 10:.1f} {ends[place]:.1f}",
        )
        text(root, left + inner + 13, ends[place] + 4, clipped(label, 40), f"label {series(place)}")
    at = sorted({1, longest, *(t for t in (2, 5, 10, 20, 30, 50, 100, 200, 300, 400, 500) if t <= longest)})
    rows = tuple(
        (label, *(f"{line[t - 1] * scale:.2f}" if t <= len(line) else "" for t in at)) for label, line in lines.items()
    )
    return Figure(name, title, about, (markup(root),), Grid(("system", *map(str, at)), rows))


def cost_plot(name: str, title: str, about: str, costs: Mapping[str, Cost], values: Mapping[str, float]) -> Figure:
    """F1 against tokens a question on a logarithmic axis: a dot for asking, a ring with the memory's building added."""
    shown = [label for label in costs if costs[label].asking > 0 and label in values]
    grid = Grid(
        ("system", "F1", "tokens a question, asking", "building, a question", "together"),
        tuple(
            (label, percent(values[label]), f"{costs[label].asking:,.0f}", f"{costs[label].building:,.0f}",
             f"{costs[label].asking + costs[label].building:,.0f}")
            for label in costs if label in values
        ),
    )  # fmt: skip
    if not shown:
        return Figure(name, title, about, (), grid)
    right = 16 + CHAR * min(40, max(map(len, shown)))
    width, height, left, head, foot = max(556, 286 + right), max(300, 60 + 15 * len(shown)), 46, 14, 40
    inner, low = width - left - right, height - foot
    lowest = min(costs[label].asking for label in shown)
    highest = max(costs[label].asking + costs[label].building for label in shown)
    across = log_ticks(lowest, highest)
    up = ticks(100 * max(values[label] for label in shown), 5)
    root = drawing(width, height, title, about, name)

    def x(value: float) -> float:
        span = log(across[-1] / across[0]) or 1.0
        return left + 8 + (inner - 16) * log(value / across[0]) / span

    def y(value: float) -> float:
        return low - (low - head) * 100 * value / up[-1]

    for value in up:
        put(root, "line", "rule", x1=left, x2=left + inner, y1=y(value / 100), y2=y(value / 100))
        text(root, left - 6, y(value / 100) + 4, short(value), "faint", "end")
    for value in across:
        put(root, "line", "rule", x1=x(value), x2=x(value), y1=head, y2=low)
        text(root, x(value), low + 16, short(value), "faint", "middle")
    text(root, left + inner / 2, height - 6, "tokens a question (logarithmic)", "faint", "middle")
    text(root, left, head - 4, "F1, percent", "faint")
    ends = spread([y(values[label]) for label in shown], 13, head, low)
    for place, label in enumerate(shown):
        cost, at = costs[label], y(values[label])
        total = x(cost.asking + cost.building)
        tip = f"{label}: F1 {percent(values[label])}, {cost.asking:,.0f} + {cost.building:,.0f} tokens"
        put(root, "path", f"lead {series(place)}", d=f"M{x(cost.asking):.1f} {at:.1f}H{total:.1f}")
        put(root, "path", f"lead {series(place)}", d=f"M{total:.1f} {at:.1f}L{left + inner + 10:.1f} {ends[place]:.1f}")
        put(root, "circle", f"dot {series(place)}", cx=x(cost.asking), cy=at, r=4.5, tip=tip)
        if cost.building > 0:
            put(root, "circle", f"ring {series(place)}", cx=total, cy=at, r=4.5, tip=tip)
        text(root, left + inner + 13, ends[place] + 4, clipped(label, 40), f"label {series(place)}")
    return Figure(name, title, about, (markup(root),), grid)


def clipped(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def _thinned(points: list[tuple[float, float]], most: int = 240) -> list[tuple[float, float]]:
    """At most about `most` points, the last one always among them."""
    step = max(1, len(points) // most)
    kept = points[::step]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
