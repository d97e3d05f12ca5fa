"""Every column of the tables is explained in docs/tables.md."""

import itertools
import re
from pathlib import Path

from eval.table import HEADERS, PUBLISHED_HEADERS
from eval.tables_grids import MEMORY

ROOT = Path(__file__).resolve().parent.parent.parent


def columns(markdown):
    """The header cells of every table."""
    lines = markdown.splitlines()
    heads = [above for above, below in itertools.pairwise(lines) if below.startswith("| :--")]
    return {cell.strip() for head in heads for cell in head.strip("|").split("|")}


def test_every_column_is_explained():
    explained = set(re.findall(r"`([^`]+)`", (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")))
    archived = [path.read_text(encoding="utf-8") for path in (ROOT / "results" / "smollm2-sample").glob("*.md")]
    shown = set().union(*map(columns, archived))
    assert len(shown) > 40
    assert shown | {*HEADERS.values(), *PUBLISHED_HEADERS.values(), *MEMORY.values()} <= explained


def test_columns_are_found():
    assert columns("| a | b |\n| :-- | --: |\n| 1 | 2 |\n") == {"a", "b"}
