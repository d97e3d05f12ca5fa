"""Runs from anywhere as one set of tables and one report.

    python scripts/collect.py results/runs
    python scripts/collect.py results/sweeps/table1 /copied/from/another/machine --out tables --report report.html

A path is a run folder, a folder of run folders, or the folder of a sweep. Runs that differ in protocol, scorer, data, questions, embedder,
trials or a prompt's version are refused in one table; --split makes a table of each kind.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from eval.collection import absent_jobs, load_runs
from harness.errors import RecordError, exit_status

if TYPE_CHECKING:
    from eval.tables import Block

FORMATS = ("md", "csv", "tex")
LAYOUTS = ("auto", "1", "3")
WIDTH = 100
"""Columns taken for a terminal that does not tell its own."""


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    return exit_status("collect.py", lambda: collect(given))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="run folders, or folders of run folders")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"write tables.{', tables.'.join(FORMATS)} there")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS, help="of them (default: all)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write one self-contained HTML file")
    parser.add_argument(
        "--table", choices=LAYOUTS, default="auto", help="1: by category; 3: retrieval, settings (default: both)"
    )
    parser.add_argument("--baseline", metavar="NAME", help="whom the others are held against (default: memfly)")
    parser.add_argument(
        "--metric", action="append", default=[], metavar="NAME", help="by category and paired; may be repeated"
    )
    parser.add_argument("--subset", choices=("all", "clean", "both"), default="both", help="questions (default: both)")
    parser.add_argument("--split", action="store_true", help="a table of each kind of run")
    return parser


def collect(given: argparse.Namespace) -> None:
    """Read, check, print, write. BenchError: one line."""
    from rich.console import Console

    from eval.formats import csv_text, latex_text
    from eval.table import console, markdown_text, width
    from eval.tables import build_reports
    from eval.tables import collect as gather
    from eval.tables_grids import RETRIEVAL
    from harness.records import write_atomic

    runs = load_runs(given.runs)
    subsets = ("all", "clean") if given.subset == "both" else (given.subset,)
    blocks = gather(runs, split=given.split, subsets=subsets)
    check_names(given, blocks)
    absent = absent_jobs(given.runs)
    layout = {"layout": given.table, "metrics": given.metric}
    reports = build_reports(runs, blocks, baseline=given.baseline, absent=absent, **layout)
    for report in reports:
        shown = console(report)
        columns = max(width(shown), shutil.get_terminal_size((WIDTH, 24)).columns)
        Console(width=columns).print(shown)
    texts = {
        "md": lambda: "\n".join(markdown_text(report) for report in reports),
        "csv": lambda: csv_text(blocks, given.baseline, given.metric or RETRIEVAL),
        "tex": lambda: latex_text(reports),
    }
    try:
        if given.out:
            given.out.mkdir(parents=True, exist_ok=True)
            for ending in dict.fromkeys(given.formats):
                write_atomic(given.out / f"tables.{ending}", texts[ending]())
                print(f"written: {given.out / f'tables.{ending}'}")
        if given.report:
            from eval.report import write_report

            given.report.parent.mkdir(parents=True, exist_ok=True)
            write_report(runs, given.report, baseline=given.baseline, absent=absent)
            print(f"written: {given.report}")
    except OSError as error:
        raise RecordError(f"{error.filename}: cannot be written ({error.strerror}); give another place") from None


def check_names(given: argparse.Namespace, blocks: Sequence[Block]) -> None:
    """Names that the runs do not have are errors that list those they have."""
    systems = [one for block in blocks for one in block.systems]
    known = {name for one in systems for name in (one.name, one.run.label)}
    if given.baseline and given.baseline not in known:
        raise RecordError(f"--baseline {given.baseline} is none of the runs; they are {', '.join(sorted(known))}")
    scored = {metric for one in systems for metric in one.scored.by_question}
    for metric in given.metric:
        if metric not in scored:
            raise RecordError(f"--metric {metric} is no figure of these runs; they have {', '.join(sorted(scored))}")


if __name__ == "__main__":
    sys.exit(main())
