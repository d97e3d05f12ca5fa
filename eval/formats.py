"""Collections as files: tidy CSV (a line a figure) and LaTeX; Markdown and the terminal are eval.table's."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from eval.cells import Named, row_name
from eval.comparison import paired
from eval.report.naming import flatten
from eval.table import Grid, Line, Report
from eval.tables import Block
from eval.tables_grids import MEMORY, RETRIEVAL, costs, settings
from harness.records import dumps
from harness.visible import visible

CSV_COLUMNS = (
    "kind", "backbone", "model", "revision", "label", "system", "run", "identity", "state", "seed", "trials", "protocol",
    "protocol_options", "scorer", "data_sha256", "slice", "embedder", "subset", "settings", "metric", "row", "value", "low", "high", "n",
    "n_error", "published", "difference", "source", "source_status", "p", "p_holm",
)  # fmt: skip
"""kind: figure (value a fraction, published in percent, difference in points); paired (value: the system less the baseline
named in `row`, a fraction); budget (means a question), memory (counts over all conversations) and cost (of the whole run).
`settings`: JSON of the fields in which the runs of a label differ. An unknown value is empty."""

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "[": "{[}", "*": "{*}", "…": r"\ldots{}", "\n": " ", "\xa0": "~", "\xad": r"\-",
}  # fmt: skip


_LAST_LATIN = "\u017f"


def csv_text(blocks: Sequence[Block], baseline: str | None = None, metrics: Sequence[str] = RETRIEVAL) -> str:
    """Every figure of the blocks, one a line; paired differences in `metrics`."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()

    def write(values: dict[str, Any]) -> None:
        writer.writerow({name: _inert(value) for name, value in values.items()})

    for block in blocks:
        about = {one.name: _about(block, one) for one in block.systems}
        for one in block.systems:
            for values in (*_figures(one), *_counts(one)):
                write(about[one.name] | values)
        base, found = paired(block.systems, metrics, baseline)
        for name, metric, comparison, adjusted in found:
            low, high = comparison.interval or (None, None)
            write(
                about[name]
                | {"kind": "paired", "metric": metric, "row": f"less {base.name}", "n": comparison.questions}
                | {"value": _exact(comparison.difference), "low": _exact(low), "high": _exact(high)}
                | {"p": _exact(comparison.p), "p_holm": _exact(adjusted)}
            )
    return out.getvalue()


def _about(block: Block, one: Named) -> dict[str, Any]:
    """What belongs to every figure of a run."""
    facts, run = block.group.facts, one.run
    fields = settings([other.run.spec for other in block.systems if other.run.label == run.label])
    flat = flatten(run.spec)
    return {
        "backbone": block.backbone,
        "model": run.spec["backbone"].get("model"),
        "revision": run.spec["backbone"].get("revision") or "",
        "label": run.label,
        "system": one.name,
        "run": run.path.name,
        "identity": run.identity,
        "state": run.state,
        "seed": run.seed,
        "trials": run.trials,
        "protocol": run.protocol,
        "protocol_options": dumps({key: value for key, value in facts["protocol"].items() if key != "name"}),
        "scorer": facts["scorer"],
        "data_sha256": facts["data"],
        "slice": dumps(facts["slice"]),
        "embedder": facts["embedder"].get("model", ""),
        "subset": block.subset,
        "settings": dumps({field: flat.get(field) for field in fields}) if fields else "",
    }


def _figures(one: Named) -> Iterator[dict[str, Any]]:
    for cell in one.scored.cells.values():
        if cell.value is not None or cell.published is not None:
            yield {
                "kind": "figure",
                "metric": cell.metric,
                "row": row_name(cell.row),
                "value": _exact(cell.value),
                "low": _exact(cell.low),
                "high": _exact(cell.high),
                "n": cell.n,
                "n_error": cell.n_error,
                "published": _exact(cell.published),
                "difference": _exact(cell.difference),
                "source": cell.source,
                "source_status": cell.status,
            }


def _counts(one: Named) -> Iterator[dict[str, Any]]:
    memory = one.run.metrics["memory"]
    kinds = {
        "budget": one.scored.metrics["evidence"],
        "memory": {key: memory.get(key) for key in (*MEMORY, "collapsed")},
        "cost": costs(one),
    }
    for kind, values in kinds.items():
        for name, value in values.items():
            if value is not None:
                yield {"kind": kind, "metric": name, "value": _exact(value)}


def latex_text(reports: Sequence[Report]) -> str:
    """Tables for a document with the package booktabs; each report's lines become the caption's notes."""
    parts = ["% Needs \\usepackage{booktabs}. A wide table fits with \\resizebox or the landscape environment."]
    for report in reports:
        parts.append(_note(Line(report.title, strong=True)))
        for block in report.blocks:
            if isinstance(block, Grid):
                parts.append(_tabular(block))
            else:
                parts.append("\n".join(_note(line) for line in block))
    return "\n\n".join(parts) + "\n"


def _tabular(grid: Grid) -> str:
    lines = [r"\begin{tabular}{l" + "r" * (len(grid.columns) - 1) + "}", r"\toprule", _row(grid.columns), r"\midrule"]
    for place, row in enumerate(grid.rows):
        if place in grid.rules and place:
            lines.append(r"\midrule")
        lines.append(_row(row))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _row(cells: Sequence[str]) -> str:
    shown = [escape(cell) for cell in cells]
    if cells[0].startswith("  "):
        shown[0] = r"\quad " + shown[0].strip()
    return " & ".join(shown) + r" \\"


def _note(line: Line) -> str:
    text = escape(line.text)
    return f"\\par\\noindent\\textbf{{{text}}}" if line.strong else f"\\par\\noindent {text}"


def escape(text: str) -> str:
    """Text as LaTeX prints it, "?" for a character outside the Latin alphabets (its fonts lack most of them). Brackets and
    stars are wrapped: after a row's end they would be read as its options."""
    return "".join(_SPECIAL.get(c, c if " " <= c <= _LAST_LATIN and c.isprintable() else "?") for c in text)


def _inert(value: Any) -> Any:
    """A value as a field of one line, which no spreadsheet takes for a formula: a text that begins like one gets an
    apostrophe before it."""
    if not isinstance(value, str):
        return value
    text = visible(value)
    if not text.startswith(("=", "+", "-", "@")):
        return text
    try:
        float(text)
    except ValueError:
        return "'" + text
    return text


def _exact(value: float | None) -> str:
    """A figure that reads back as itself."""
    return "" if value is None else repr(float(value))
