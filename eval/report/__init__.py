"""The report: one self-contained HTML file for a collection of run folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eval.collection import Run


def write_report(runs: Sequence[Run], path: Path, *, baseline: str | None = None, absent: Sequence[str] = ()) -> None:
    """Write the report of a collection; runs that have not ended are listed, not shown.

    baseline, absent: as in `eval.tables.build_reports`. The same runs give the same bytes. RecordError: no complete run, a
    damaged record (it names file and line), or a place that cannot be written.
    """
    from eval.report.write import render
    from harness.errors import RecordError
    from harness.records import write_atomic

    page = render(runs, baseline=baseline, absent=absent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, page)
        path.chmod(0o644)
    except OSError as error:
        raise RecordError(f"{path}: cannot be written ({error.strerror}); name another place") from error
