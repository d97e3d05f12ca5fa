"""Collections as files: tidy CSV (a line a figure) and LaTeX; Markdown and the terminal are eval.table's."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from eval.cells import row_name
from eval.table import Grid, Line, Report
from eval.tables import Block, paired

CSV_COLUMNS = (
    "kind", "backbone", "system", "run", "identity", "protocol", "scorer", "data_sha256", "subset", "state",
    "metric", "row", "value", "low", "high", "n", "n_error", "published", "difference", "source", "source_status",
    "p", "p_holm",
)  # fmt: skip
"""kind: figure (value a fraction, published in percent, difference in points) or paired (value: the system less the baseline
named in `row`, a fraction). An unknown value is empty."""

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def csv_text(blocks: Sequence[Block], baseline: str | None = None) -> str:
    """Every figure of the blocks, one a line."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for block in blocks:
        facts = block.group.facts
        shared = {
            "backbone": block.backbone,
            "protocol": facts["protocol"]["name"],
            "scorer": facts["scorer"],
            "data_sha256": facts["data"],
            "subset": block.subset,
        }
        for one in block.systems:
            about = shared | {"system": one.name, "run": one.run.path.name, "identity": one.run.identity}
            for cell in one.scored.cells.values():
                if cell.value is not None or cell.published is not None:
                    writer.writerow(
                        about
                        | {"kind": "figure", "state": one.run.state, "metric": cell.metric, "row": row_name(cell.row)}
                        | {"value": _exact(cell.value), "low": _exact(cell.low), "high": _exact(cell.high)}
                        | {"n": cell.n, "n_error": cell.n_error, "published": _exact(cell.published)}
                        | {"difference": _exact(cell.difference), "source": cell.source, "source_status": cell.status}
                    )
        if len(block.systems) > 1:
            base, found = paired(block.systems, baseline)
            for name, metric, one, adjusted in found:
                low, high = one.interval or (None, None)
                writer.writerow(
                    shared
                    | {"kind": "paired", "system": name, "metric": metric, "row": f"less {base.name}"}
                    | {"value": _exact(one.difference), "low": _exact(low), "high": _exact(high), "n": one.questions}
                    | {"p": _exact(one.p), "p_holm": _exact(adjusted)}
                )
    return out.getvalue()


def latex_text(reports: Sequence[Report]) -> str:
    """Tables for a document with the package booktabs; each report's lines become the caption's notes."""
    parts = ["% Needs \\usepackage{booktabs}. A wide table fits with \\resizebox or the landscape environment."]
    for report in reports:
        parts.append(f"% {report.title}".replace("\n", " "))
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
    """Text as LaTeX prints it."""
    return "".join(_SPECIAL.get(character, character) for character in text)


def _exact(value: float | None) -> str:
    """A figure that reads back as itself."""
    return "" if value is None else repr(float(value))
