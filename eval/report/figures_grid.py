"""Figures that are grids of cells or of small panels: thresholds, the gate's decisions, growth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eval.report.figures import Figure, clipped, curves
from eval.report.numbers import THRESHOLDS
from eval.report.svg import CHAR, drawing, markup, put, text
from eval.table import Grid, percent


def heat(name: str, title: str, about: str, cells: Mapping[tuple[float, float], float]) -> Figure:
    """cells: (tau_merge, tau_link) -> a fraction. The darker, the higher within the lowest and highest that occur."""
    downs, acrosses = sorted({key[0] for key in cells}), sorted({key[1] for key in cells})
    low, high = min(cells.values()), max(cells.values())
    size, left, head = (64, 34), 76, 46
    width, height = left + size[0] * len(acrosses) + 4, head + size[1] * len(downs) + 4
    root = drawing(max(width, 240), height, title, about, name)
    text(root, left, 14, f"{THRESHOLDS[1]} →", "faint")
    text(root, 0, head - 8, f"{THRESHOLDS[0]} ↓", "faint")
    for place, across in enumerate(acrosses):
        text(root, left + size[0] * (place + 0.5), head - 8, f"{across:g}", "", "middle")
    for row, down in enumerate(downs):
        y = head + size[1] * row
        text(root, left - 10, y + 21, f"{down:g}", "", "end")
        for place, across in enumerate(acrosses):
            value = cells.get((down, across))
            x = left + size[0] * place
            if value is None:
                put(root, "rect", "empty", x=x + 1, y=y + 1, width=size[0] - 2, height=size[1] - 2)
                continue
            share = (value - low) / (high - low) if high > low else 1.0
            put(root, "rect", "heat", x=x + 1, y=y + 1, width=size[0] - 2, height=size[1] - 2,
                fill_opacity=0.08 + 0.82 * share,
                tip=f"tau_merge {down:g}, tau_link {across:g}: {percent(value)}")  # fmt: skip
            text(root, x + size[0] / 2, y + 21, percent(value), "on-heat" if share > 0.55 else "", "middle")
    rows = tuple(
        (f"{down:g}", *(percent(cells[down, a]) if (down, a) in cells else "" for a in acrosses)) for down in downs
    )
    grid = Grid(("tau_merge \\ tau_link", *(f"{across:g}" for across in acrosses)), rows)
    return Figure(name, title, about, (markup(root),), grid)


DECISIONS = (
    ("merges", "merged"),
    ("linked", "appended with links"),
    ("appends", "appended alone"),
)


def decisions(name: str, title: str, about: str, counts: Mapping[str, Mapping[str, int]]) -> Figure:
    """What became of each turn: one bar of the whole a system, split by the gate's decision."""
    left = 12 + CHAR * min(40, max(map(len, counts)))
    bar = min(370, max(240, 546 - left))
    width, row, head = max(left + bar + 4, 440), 24, 30
    root = drawing(width, head + row * len(counts) + 8, title, about, name)
    x = 0.0
    for place, (_, said) in enumerate(DECISIONS):
        put(root, "rect", f"part part-{place}", x=x, y=4, width=11, height=11)
        text(root, x + 16, 14, said)
        x += 30 + CHAR * len(said)
    rows = []
    for place, (label, count) in enumerate(counts.items()):
        parts = split(count)
        total = max(1, sum(parts.values()))
        y, x = head + row * place, left
        text(root, left - 8, y + 12, clipped(label, 40), "", "end")
        for kind, (key, said) in enumerate(DECISIONS):
            wide = bar * parts[key] / total
            if parts[key]:
                put(
                    root,
                    "rect",
                    f"part part-{kind}",
                    x=x,
                    y=y,
                    width=wide,
                    height=16,
                    tip=f"{label}, {said}: {parts[key]:,}",
                )
            if wide > CHAR * len(f"{parts[key]:,}") + 8:
                text(root, x + 5, y + 12, f"{parts[key]:,}", f"on-part-{kind}")
            x += wide
        rows.append((label, *(f"{parts[key]:,}" for key, _ in DECISIONS), f"{count['links']:,}", f"{count['notes']:,}"))
    grid = Grid(("system", *(said for _, said in DECISIONS), "edges made", "notes"), tuple(rows))
    return Figure(name, title, about, (markup(root),), grid)


def split(count: Mapping[str, int]) -> dict[str, int]:
    """A turn is merged, or becomes a note with at least one link, or a note alone (an append)."""
    return {
        "merges": count["merges"],
        "linked": max(0, count["notes"] - count["appends"]),
        "appends": count["appends"],
    }


def growth(name: str, title: str, about: str, tables: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Figure]:
    """One figure a layer (notes, keywords, edges, topics), one line a system."""
    return [
        curves(
            f"{name}-{layer}",
            f"{title}: {layer}",
            about,
            {label: table[layer] for label, table in tables.items() if layer in table},
            ("turns replayed", layer),
            as_percent=False,
        )
        for layer in ("notes", "keywords", "edges", "topics")
        if any(layer in table for table in tables.values())
    ]
