"""The table of one run: one model of lines and grids, two renderers (terminal, table.md), so that both say the same.

Figures are percent with two decimals; what is unknown is an empty cell, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eval.published import METRIC_FIELDS, Reference
from harness.visible import visible

if TYPE_CHECKING:
    from rich.console import Group

HEADERS = {
    "f1_amem": "F1 (A-MEM)",
    "f1_locomo": "F1 (LoCoMo)",
    "bleu1": "BLEU-1",
    "abstained": "abstained",
    "recall": "recall",
    "hit": "hit",
    "recall_20t": "recall_20t",
    "recall_700w": "recall_700w",
}
ANSWER_COLUMNS = ("f1_amem", "f1_locomo", "bleu1", "abstained")
EVIDENCE_COLUMNS = ("recall", "hit", "recall_20t", "recall_700w")
PUBLISHED_HEADERS = {"f1_amem": "F1 publ.", "bleu1": "BLEU publ.", "recall": "recall publ.", "hit": "hit publ."}

SCORERS = (
    "Scorers: F1 (A-MEM) over token sets, F1 (LoCoMo) over stemmed multisets, BLEU-1 over NLTK word tokens; "
    "every reply is scored by all of them. Figures in percent."
)
OPPOSITE = (
    "Category 5: F1 (A-MEM) pays for falling for the trap, abstained and F1 (LoCoMo) for refusing it: "
    "they point in opposite directions, so no system is ranked by the first."
)
BUDGETS = (
    "recall_20t: the first 20 distinct turns; recall_700w: the first 700 words; both by round, rank, date. "
    "n: answers whose evidence resolves."
)


@dataclass(frozen=True)
class Line:
    text: str
    strong: bool = False


@dataclass(frozen=True)
class Grid:
    """`columns` are headers, the first one a label; `rules`: row numbers that a rule is drawn above."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    rules: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Report:
    title: str
    blocks: tuple[tuple[Line, ...] | Grid, ...]


def build(
    metrics: Mapping[str, Any],
    header_lines: Sequence[str],
    title: str,
    *,
    reference: Reference | None = None,
    failures: Sequence[str] = (),
) -> Report:
    """The report of one run's metrics.json.

    header_lines: protocol, data with fingerprint and slice, system, backbone, notices; they stand first.
    reference: the published counterpart (`eval.published.reference_for`). failures: why the run fails, in bold.
    """
    head = [Line(text) for text in header_lines] + [Line(SCORERS)]
    if "5" in metrics["by_category"]:
        head.append(Line(OPPOSITE))
    head += [Line(text, strong=True) for text in failures]
    if metrics["memory"].get("collapsed"):
        names = ", ".join(metrics["memory"].get("collapsed_conversations", ()))
        head.append(
            Line(f"COLLAPSED memory ({names}): recall and hit mean nothing, see the budgeted ones", strong=True)
        )
    blocks: list[tuple[Line, ...] | Grid] = [tuple(head), _grid(metrics, ANSWER_COLUMNS, reference)]
    if any(metrics["micro"].get(metric) is not None for metric in EVIDENCE_COLUMNS):
        blocks += [_grid(metrics, EVIDENCE_COLUMNS, reference), (Line(BUDGETS),)]
    else:
        blocks.append((Line("No evidence measures: no answer carries resolvable gold and exact evidence."),))
    blocks.append(tuple(_foot(metrics, reference)))
    if spread := metrics["memory"].get("distributions"):
        blocks.append(_spread_grid(spread))
    return Report(title, tuple(blocks))


def render(metrics: Mapping[str, Any], header_lines: Sequence[str], title: str, **options: Any) -> Group:
    """The report for a rich console, at home in 100 columns. Options as in `build`."""
    return console(build(metrics, header_lines, title, **options))


def console(report: Report) -> Group:
    """Any report for a rich console."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = [Text(visible(report.title), style="bold underline")]
    for block in report.blocks:
        if isinstance(block, Grid):
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
            for place, column in enumerate(block.columns):
                # Only headers of published columns may wrap, so that no figure is ever folded.
                wraps = column in PUBLISHED_HEADERS.values()
                table.add_column(Text(visible(column)), justify="right" if place else "left", no_wrap=not wraps)
            for place, row in enumerate(block.rows):
                if place in block.rules:
                    table.add_section()
                table.add_row(*(Text(visible(cell)) for cell in row))
            parts += [Text(), table, Text()]
        else:
            parts += [Text(visible(line.text), style="bold" if line.strong else "") for line in block]
    return Group(*parts)


def width(shown: Group) -> int:
    """Columns a console needs so that no figure of its grids is cut."""
    from rich.console import Console
    from rich.table import Table

    measure = Console(width=10_000).measure
    return max((measure(part).maximum for part in shown.renderables if isinstance(part, Table)), default=0)


def markdown(metrics: Mapping[str, Any], header_lines: Sequence[str], title: str, **options: Any) -> str:
    """The same report as Markdown, for table.md. Options as in `build`."""
    return markdown_text(build(metrics, header_lines, title, **options))


def markdown_text(report: Report) -> str:
    """Any report as Markdown."""
    parts = [f"# {_escape(report.title)}"]
    for block in report.blocks:
        if isinstance(block, Grid):
            rule = [":--", *["--:"] * (len(block.columns) - 1)]
            parts.append(
                "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in (block.columns, rule, *block.rows))
            )
        else:
            texts = [(_escape(line.text), line.strong) for line in block]
            parts.append("\n".join(f"- **{text}**" if strong else f"- {text}" for text, strong in texts))
    return "\n\n".join(parts) + "\n"


def _escape(text: str) -> str:
    """Text in which no element, link or picture begins."""
    return visible(text).replace("<", "\\<").replace("](", "]\\(")


def _cell(text: str) -> str:
    """The same within a table, whose columns no bar ends, escaped or not."""
    return re.sub(r"[\\|]", r"\\\g<0>", visible(text)).replace("<", "\\<").replace("](", "]\\(")


def percent(value: float | None) -> str:
    """A fraction as percent with two decimals; None is an empty cell."""
    return "" if value is None else f"{100 * value:.2f}"


def _grid(metrics: Mapping[str, Any], columns: Sequence[str], reference: Reference | None) -> Grid:
    """Categories, then micro4, micro with its interval, macro4, macro; published columns where any is known."""
    evidence = columns is EVIDENCE_COLUMNS
    categories = metrics["by_category"]
    published = [
        metric
        for metric in columns
        if reference and metric in METRIC_FIELDS
        if any(reference.cell(row, metric) for row in (*categories, "micro"))
    ]

    def counts(picked: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        if evidence:
            return (f"{sum(row['n_evidence'] for row in picked):,}",)
        return f"{sum(row['n'] for row in picked):,}", f"{sum(row['n_error'] for row in picked):,}"

    def cells(row: str, values: Mapping[str, float | None]) -> tuple[str, ...]:
        found = [reference.cell(row, metric) if reference else None for metric in published]
        return (
            *(percent(values.get(metric)) for metric in columns),
            *("" if cell is None else f"{cell.value:.2f}" for cell in found),
        )

    rows = [(f"{key} {row['name']}", *counts([row]), *cells(key, row)) for key, row in categories.items()]
    every = list(categories.values())
    four = [row for key, row in categories.items() if key != "5"]
    rules = {len(rows)}
    for name, picked in (("micro4", four), ("micro", every), ("macro4", four), ("macro", every)):
        rows.append((name, *counts(picked), *cells(name, metrics[name])))
        known = [metrics["intervals"].get(metric) for metric in columns]
        if name == "micro" and any(known):
            blank = [""] * (1 if evidence else 2)
            spans = ["" if span is None else f"{percent(span[0])}–{percent(span[1])}" for span in known]
            rows.append(("micro, 95%", *blank, *spans, *[""] * len(published)))
    labels = ("category", "n") if evidence else ("category", "n", "errors")
    headers = [HEADERS[metric] for metric in columns] + [PUBLISHED_HEADERS[metric] for metric in published]
    return Grid((*labels, *headers), tuple(rows), frozenset(rules))


def _foot(metrics: Mapping[str, Any], reference: Reference | None) -> list[Line]:
    memory, usage, evidence = metrics["memory"], metrics["usage"], metrics["evidence"]
    lines = []
    if metrics.get("interval_reason"):
        lines.append(Line(metrics["interval_reason"]))
    else:
        lines.append(
            Line(f"95%: cluster-robust over {metrics['n_conversations']} conversations, Student's t; errors excluded.")
        )
    if reference and (sources := reference.sources((*metrics["by_category"], "micro"), HEADERS)):
        lines.append(Line(f"Published, {reference.backbone}: {'; '.join(sources)}"))
    if metrics["n_error"]:
        lines.append(Line(f"errors by kind: {_listed(metrics['errors_by_kind'])}", strong=True))
    budget = [
        f"{evidence[key]:,.1f} {name}"
        for key, name in (("items", "items"), ("dia_ids", "dia_ids"), ("tokens", "context tokens"))
        if evidence.get(key) is not None
    ]
    if budget:
        lines.append(Line(f"evidence, mean a question: {', '.join(budget)}"))
    built = [f"{key} {memory[key]:,}" for key in ("notes", "merges", "links", "appends") if key in memory]
    if "largest" in memory:
        built.append(f"turns in the largest note {memory['largest']:,}")
    if "merged_turns" in memory:
        built.append(f"turns merged {memory['merged_turns']:,} of {memory['turns']:,}")
    if built:
        lines.append(Line(f"memory: {', '.join(built)}"))
    calls = [
        f"{name} {memory[key]:,}"
        for key, name in (("calls", "calls"), ("errors", "errors"), ("repaired_replies", "repaired replies"))
        if key in memory
    ]
    if calls:
        lines.append(Line(f"memory building: {', '.join(calls)}", strong=bool(memory.get("errors"))))
    for key in ("fallbacks", "repairs"):
        if memory.get(key):
            lines.append(Line(f"{key}: {_listed(memory[key])}"))
    asking = metrics.get("asking", {})
    if asking.get("errors") or asking.get("fallbacks"):
        lines.append(
            Line(
                f"asking: {asking['errors']} of {asking['calls']:,} calls gave no usable reply; "
                f"fallbacks: {_listed(asking['fallbacks']) if asking['fallbacks'] else 'none'}",
                strong=True,
            )
        )
    lines.append(
        Line(
            f"all calls: {usage['calls']:,} ({usage['computed_calls']:,} computed, {usage['cached_calls']:,} cached); "
            f"{usage['prompt_tokens']:,} prompt and {usage['completion_tokens']:,} completion tokens; "
            f"{_cost(metrics)}; wall time {_duration(metrics['wall_s'])}"
        )
    )
    return lines


def _spread_grid(spread: Mapping[str, Mapping[str, float]]) -> Grid:
    names = {
        "mean": "mean",
        "min": "min",
        "q05": "5%",
        "q25": "25%",
        "q50": "50%",
        "q75": "75%",
        "q95": "95%",
        "max": "max",
    }
    rows = [
        (name, f"{values['n']:,}", *(f"{values[key]:.3f}" if key in values else "" for key in names))
        for name, values in spread.items()
    ]
    return Grid(("score", "n", *names.values()), tuple(rows))


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _cost(metrics: Mapping[str, Any]) -> str:
    model = metrics.get("table", {}).get("unpriced")
    return f"cost unknown: no price for {model}" if model else f"{metrics['usage']['usd']:.4f} USD"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)} min {rest:.0f} s" if minutes else f"{rest:.1f} s"
