"""Pack a cache into an archive that `cache.mode=replay` reads: python scripts/archive.py results/cache results/NAME

Writes replies.sqlite and vectors.sqlite into the second folder, each as one file without a log beside it. A cache holds
text made from the data: one of LoCoMo may not be published.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.errors import RecordError, exit_status

FILES = {"replies.sqlite": "replies", "vectors.sqlite": "vectors"}
"""File -> the table that must not be empty."""


PAGE = 16384
"""Bytes a page: of SQLite's usual 4096 a row with its vector of 1.5 kB leaves more than half empty."""


def pack(cache: Path, archive: Path) -> None:
    """Copy the two caches and print what was written. RecordError: a file is missing, empty or already there."""
    for name in FILES:
        source, target = cache / name, archive / name
        if not source.is_file():
            raise RecordError(f"{source} is not there; give the cache.path of finished runs")
        if target.exists():
            raise RecordError(f"{target} is there already; give another folder or delete it")
    archive.mkdir(parents=True, exist_ok=True)
    for name, table in FILES.items():
        made = archive / f".{name}.tmp"
        made.unlink(missing_ok=True)
        count = _copy(cache / name, made, table)
        os.replace(made, archive / name)
        print(f"{archive / name}: {count:,} rows, {(archive / name).stat().st_size:,} bytes")


def _copy(source: Path, target: Path, table: str) -> int:
    db = sqlite3.connect(source, timeout=60.0)
    try:
        count = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - a name of FILES
        if count == 0:
            raise RecordError(f"{source} is empty; give the cache.path of finished runs")
        db.execute("VACUUM INTO ?", (str(target),))
        with closing(sqlite3.connect(target)) as packed:
            packed.execute(f"PRAGMA page_size = {PAGE}")
            packed.execute("VACUUM")
    except sqlite3.Error as error:
        raise RecordError(f"{source} cannot be packed: {error}") from None
    finally:
        db.close()
    return count


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("archive", type=Path)
    given = parser.parse_args(arguments)
    return exit_status("archive.py", lambda: pack(given.cache, given.archive))


if __name__ == "__main__":
    sys.exit(main())
