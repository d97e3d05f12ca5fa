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

from eval.cells import scored
from eval.collection import Run
from eval.groups import group
from eval.report import memories, numbers, records
from eval.report.figures import Figure
from eval.report.pack import Chunk, Pool, pack
from eval.report.plots import Measured, figures
from eval.table import HEADERS
from harness.errors import RecordError
from harness.locomo.schema import CATEGORIES
from harness.records import write_atomic

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("core.js", "list.js", "detail.js", "questions.js", "compare.js", "graph.js", "memory.js", "main.js")
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
    """Runs that may be compared, on one backbone: a heading, and the figures."""

    heading: str
    figures: list[Figure]


def write_report(runs: Sequence[Run], path: Path) -> None:
    """Write the report of a collection; runs that have not ended are listed, not shown.

    The same runs give the same bytes. RecordError: no complete run, or a damaged record (it names file and line).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, render(runs))
    path.chmod(0o644)


def render(runs: Sequence[Run]) -> str:
    """The page's text."""
    complete = [run for run in runs if run.complete]
    if not complete:
        raise RecordError("no complete run to report on; see each folder's status.json")
    kept = _Collection()
    sections = []
    groups = group(complete, split=True)
    for place, one in enumerate(groups):
        for backbone in dict.fromkeys(run.backbone for run in one.runs):
            members = [(run, name) for run, name in zip(one.runs, one.names, strict=True) if run.backbone == backbone]
            heading = _heading(members[0][0])
            measured = [_measure(run, name, heading, kept) for run, name in members]
            sections.append(Section(heading, figures(measured, f"g{place}-{backbone}")))
    return _page(kept, sections, [run for run in runs if not run.complete])


def _heading(run: Run) -> str:
    data = run.spec["dataset"]
    cut = [
        f"{key} {data[key]}" for key in ("conversations", "max_sessions", "max_questions", "max_turns") if data.get(key)
    ]
    cut += [f"subset {data['subset']}"] if data.get("subset", "all") != "all" else []
    trials = [f"{run.trials} trials"] if run.trials > 1 else []
    return " · ".join([run.backbone, f"protocol {run.protocol}", run.dataset, *cut, *trials])


def _measure(run: Run, name: str, heading: str, kept: _Collection) -> Measured:
    """Read a run once: pack what the explorers need, return what the figures need."""
    place = len(kept.runs)
    answers = run.answers()
    built, growths, samples = [], [], []
    for sample_id, memory in run.memories():
        built.append(memory["built"].get("usage", {}))
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
    kept.runs.append({"name": name, "group": heading, "memories": samples, "n": len(answers)})
    return Measured(
        name=name,
        run=run,
        cells=scored(run).cells,
        curve=numbers.recall_curve(answers),
        cost=numbers.cost(answers, built),
        growth=numbers.mean_growth(growths) if len(growths) == len(built) else None,
        gate=numbers.gate(run.metrics),
    )


def _page(kept: _Collection, sections: Sequence[Section], unfinished: Sequence[Run]) -> str:
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
        sections=sections,
        runs=kept.runs,
        unfinished=unfinished,
        chunks=chunks,
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
