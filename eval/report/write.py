"""One self-contained HTML file for a collection of runs.

The page may load nothing: a Content-Security-Policy forbids every connection and runs only the script and the style
whose hashes it names. Data travels packed (pack.py); what the page makes of it is text, never markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from eval.collection import Run
from eval.report import memories, numbers, records
from eval.report.figures import Figure
from eval.report.naming import across_tables, flatten, told_apart
from eval.report.pack import Chunk, Pool, pack
from eval.report.plots import Measured, figures
from eval.table import HEADERS, Grid, Report
from eval.tables import Block, Named, build_reports, collect
from harness.errors import RecordError
from harness.locomo.schema import CATEGORIES

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("core.js", "list.js", "detail.js", "questions.js", "compare.js", "graph.js", "memory.js", "main.js")
APART = 4
"""Differences between groups that a heading names; the tables name all."""
STYLES = ("report.css", "figures.css")


@dataclass
class _Collection:
    """What is gathered over all runs."""

    questions: records.Questions = field(default_factory=records.Questions)
    pieces: records.Pieces = field(default_factory=records.Pieces)
    texts: dict[str, Pool] = field(default_factory=dict)
    """sample_id -> texts of its notes and turns"""
    chunks: list[Chunk] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Section:
    """Runs of one table: a heading, the figures, and what their specs differ in."""

    heading: str
    figures: list[Figure]
    settings: Grid


def render(runs: Sequence[Run], *, baseline: str | None = None, absent: Sequence[str] = ()) -> str:
    """The page's text: `eval.report.write_report` without the file."""
    made = collect(runs, split=True)
    if not made:
        raise RecordError("no complete run to report on; see each folder's status.json")
    kept = _Collection()
    whole = [block for block in made if block.subset == "all"]
    sections = [_section(block, f"g{place}", kept) for place, block in enumerate(whole)]
    places = [(one.name, block.backbone, place) for place, block in enumerate(whole, 1) for one in block.systems]
    for run, name in zip(kept.runs, across_tables(*zip(*places, strict=True)), strict=True):
        run["name"] = name
    return _page(kept, build_reports(runs, made, baseline=baseline, absent=absent), sections)


def _section(block: Block, name: str, kept: _Collection) -> Section:
    heading = _heading(block)
    measured = [_measure(system, heading, kept) for system in block.systems]
    specs = [system.run.spec for system in block.systems]
    settings = Grid(
        ("setting", *(system.name for system in block.systems)),
        tuple((key, *(_cell(flatten(spec), key) for spec in specs)) for key in told_apart(specs)),
    )
    return Section(heading, figures(measured, name), settings)


def _cell(flat: dict[str, Any], key: str) -> str:
    return str(flat[key]) if key in flat else ""


def _heading(block: Block) -> str:
    """Backbone, protocol, data and the part of it that was asked, and what sets the group apart from the others."""
    run = block.systems[0].run
    data = run.spec["dataset"]
    cut = [
        f"{key} {data[key]}" for key in ("conversations", "max_sessions", "max_questions", "max_turns") if data.get(key)
    ]
    cut += [f"subset {data['subset']}"] if data.get("subset", "all") != "all" else []
    said = [block.backbone, f"protocol {run.protocol}", run.dataset, *cut, *block.group.apart[:APART]]
    return " · ".join(said)


def _measure(system: Named, heading: str, kept: _Collection) -> Measured:
    """Read a run once: pack what the explorers need, return what the figures need."""
    run, place = system.run, len(kept.runs)
    answers = run.answers()
    memories_read, growths, samples = 0, [], []
    for sample_id, memory in run.memories():
        memories_read += 1
        tables = memory["tables"]
        for note in tables.get("notes", ()):
            for turn in note.get("turns", ()):
                kept.pieces.turn(sample_id, turn["dia_id"], memories.turn_text(turn))
        if grown := memories.growth(tables):
            growths.append(grown)
        if graph := memories.graph(tables, kept.texts.setdefault(sample_id, Pool())):
            kept.chunks.append(pack(f"memory-{place}-{len(samples)}", graph))
            samples.append(sample_id)
    kept.chunks.append(pack(f"rows-{place}", records.rows(answers, kept.questions)))
    kept.chunks.append(pack(f"detail-{place}", records.details(answers, kept.pieces)))
    kept.runs.append({"name": system.name, "group": heading, "memories": samples, "n": len(answers)})
    return Measured(
        name=system.name,
        run=run,
        cells=system.scored.cells,
        curve=numbers.recall_curve(answers),
        cost=numbers.cost(answers, run.metrics["usage"]),
        growth=numbers.mean_growth(growths) if len(growths) == memories_read else None,
        gate=numbers.gate(run.metrics, run.spec["memory"]),
    )


def _page(kept: _Collection, reports: Sequence[Report], sections: Sequence[Section]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    samples = list(kept.texts)
    index = {
        "runs": kept.runs,
        "categories": {str(key): name for key, name in CATEGORIES.items()},
        "metrics": HEADERS,
        "scorers": records.SCORERS,
        "outcomes": records.ANSWER_OUTCOMES,
        "found": records.EVIDENCE_OUTCOMES,
        "samples": samples,
        "questions": kept.questions.columns(),
    }
    chunks = [
        pack("index", index),
        *kept.chunks,
        pack("pieces", kept.pieces.columns(kept.questions.gold_turns())),
        *(pack(f"texts-{place}", kept.texts[sample_id].values) for place, sample_id in enumerate(samples)),
    ]
    script = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    style = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in STYLES)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title="memfly-bench report",
        policy=policy,
        script=Markup(script),  # noqa: S704 - our own files
        style=Markup(style),  # noqa: S704
        reports=reports,
        sections=sections,
        chunks=chunks,
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
