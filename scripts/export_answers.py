"""Answers of runs as a Hugging Face `datasets` table (docs/exports.md lists the columns).

    python scripts/export_answers.py results/runs --out results/answers
    python scripts/export_answers.py RUN RUN --out results/answers --format parquet

The table holds the data set's text: LoCoMo's (CC BY-NC 4.0) is not to be published.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from eval.collection import load_runs
from eval.export import answers
from eval.export.folder import new_folder
from eval.groups import copies
from harness.errors import RecordError, exit_status


def export(paths: list[Path], out: Path, form: str) -> None:
    found = load_runs(paths)
    for run in found:
        if not run.complete:
            print(f"left out, {run.state}: {run.path}", file=sys.stderr)
    complete = [run for run in found if run.complete]
    again = copies(complete)
    for copy, first in again:
        print(f"left out, a copy of {first.path}: {copy.path}", file=sys.stderr)
    left_out = {id(copy) for copy, _ in again}
    runs = [run for run in complete if id(run) not in left_out]
    if not runs:
        raise RecordError(f"no finished run in {', '.join(map(str, paths))}; give run folders, or a folder of them")
    with new_folder(out) as folder:
        table = answers.build(runs)
        written = answers.write(table, folder, disk=form != "parquet", parquet=form != "disk")
        names = [out / path.relative_to(folder) for path in written]
    print(f"{len(table)} answers of {len(runs)} runs")
    for name in names:
        opens = f"pandas.read_parquet({str(name)!r})" if name.suffix else f"datasets.load_from_disk({str(name)!r})"
        print(f"{name}: {opens}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Answers of runs as a Hugging Face `datasets` table.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder, or a folder of run folders")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument(
        "--format", choices=("disk", "parquet", "both"), default="disk", help="disk: for load_from_disk (default)"
    )
    options = parser.parse_args()
    return exit_status("export_answers.py", lambda: export(options.runs, options.out, options.format))


if __name__ == "__main__":
    sys.exit(main())
