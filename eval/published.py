"""What papers printed for LoCoMo, in percent, with its source. A cell nobody printed is None, never a guess."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.locomo.schema import CATEGORIES

METRIC_FIELDS = {"f1_amem": "f1", "bleu1": "bleu1", "recall": "recall", "hit": "hit_rate"}
"""Our metric -> field of published.json. The published F1 is taken for A-MEM's scorer (see its note_protocol)."""

BACKBONES = {"gpt-4o": "GPT-4o", "gpt-4o-mini": "GPT-4o-mini", "qwen3-8b": "Qwen3-8B", "qwen3-14b": "Qwen3-14B"}
"""conf/backbone name -> published name."""

SYSTEMS: dict[str, tuple[str, ...]] = {
    "memfly": ("MemFly", "MemFly full"),
    "memfly-no_update": ("w/o Update",),
    "memfly-no_denoise": ("w/o Denoise",),
    "memfly-no_merge": ("w/o Merge",),
    "memfly-no_link": ("w/o Link",),
    "memfly-no_topic": ("w/o Topic",),
    "memfly-no_keyword": ("w/o Keyword",),
    "memfly-no_neighbor": ("w/o Neighbor",),
    "memfly-no_ier": ("w/o IER",),
    "locomo": ("LoCoMo",),
    "readagent": ("ReadAgent",),
    "memorybank": ("MemoryBank",),
    "memgpt": ("MemGPT",),
    "amem": ("A-MEM",),
    "mem0": ("Mem0",),
}
"""RunSpec.label -> published names, the first that has the cell."""

OTHER = "another protocol"
OTHER_SOURCES = {"arXiv:2504.19413": "its own prompts asked, and no category 5"}
"""Papers whose figures are no `amem` ones: their values are printed, marked, and nothing is subtracted from them."""


@dataclass(frozen=True)
class Cell:
    """A published value in percent. `status`: verified (read in the cited table), derived, second-hand, unofficial; with
    OTHER behind it where the protocol is not `amem`. `note`: what is odd about the cell."""

    value: float
    source: str
    status: str
    note: str = ""


@cache
def _cells() -> dict[tuple[str, str, str, str], Cell]:
    records = json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))["records"]
    cells: dict[tuple[str, str, str, str], Cell] = {}
    for record in records:  # where two sources quote one cell, the first stands: the paper itself
        for metric, field in METRIC_FIELDS.items():
            if record.get(field) is not None:
                key = (record["backbone"], record["system"], record["category"], metric)
                cells.setdefault(key, _cell(record, record[field]))
    return cells


def _cell(record: Mapping[str, Any], value: float) -> Cell:
    source, note = record["source"], record.get("note", "")
    other = next((why for paper, why in OTHER_SOURCES.items() if source.startswith(paper)), None)
    if other is None:
        return Cell(value, source, record["status"], note)
    return Cell(value, source, f"{record['status']}, {OTHER}", "; ".join(filter(None, (other, note))))


def lookup(backbone: str, system: str, category: str, metric: str) -> Cell | None:
    """The published cell, or None. Names as papers print them ("Qwen3-8B", "MemFly"); `category` is a name of
    CATEGORIES, "average" or "average_question_weighted"; `metric` a key of METRIC_FIELDS."""
    return _cells().get((backbone, system, category, metric))


@dataclass(frozen=True)
class Reference:
    """The published counterpart of one run, by our own row names: category ids "1".."5" and "micro"."""

    backbone: str
    systems: tuple[str, ...]

    def cells(self, row: str, metric: str) -> list[Cell]:
        """Every published cell for our row, the one to print first. The papers' averages weigh questions, so they
        stand beside `micro`; nothing is printed for micro4, macro and macro4."""
        names: tuple[str, ...] = ("average", "average_question_weighted") if row == "micro" else ()
        if row.isdigit():
            names = (CATEGORIES[int(row)],)
        found = (lookup(self.backbone, system, name, metric) for system in self.systems for name in names)
        return [cell for cell in found if cell is not None]

    def cell(self, row: str, metric: str) -> Cell | None:
        """The cell to print beside ours, or None."""
        return next(iter(self.cells(row, metric)), None)

    def sources(self, rows: Iterable[str], headers: Mapping[str, str]) -> list[str]:
        """Where the printed cells of these rows come from, what is odd about them, and which cells papers print twice
        with different values. `headers`: metric -> its name in a table."""
        said: dict[str, None] = {}
        for row in rows:
            for metric in METRIC_FIELDS:
                cells = self.cells(row, metric)
                for cell in cells[:1]:
                    said[f"{cell.source} ({cell.status}{': ' if cell.note else ''}{cell.note})"] = None
                said |= dict.fromkeys(
                    f"{headers[metric]} of {row} also printed as {cell.value:.2f} in {cell.source} ({cell.status})"
                    for cell in cells[1:]
                    if cell.value != cells[0].value
                )
        return list(said)


def reference_for(backbone: str, label: str, *, protocol: str, full_locomo10: bool) -> Reference | None:
    """The published counterpart of a run (config names), or None where the two may not be held side by side:
    another protocol, a slice or subset, other data, or a system and backbone no paper printed."""
    if protocol != "amem" or not full_locomo10 or backbone not in BACKBONES or label not in SYSTEMS:
        return None
    return Reference(BACKBONES[backbone], SYSTEMS[label])
