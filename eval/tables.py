"""The tables of a collection: systems side by side, from the cells of their runs (eval/cells.py).

One report a backbone and subset: F1 and BLEU-1 by category (Tables 1 and 2 of arXiv:2602.07885), retrieval with its budgets (Table 3),
a row a setting where one system was run in several, paired differences to a baseline, cost. Renderers are eval.table's
and eval.formats'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval.cells import Named, scored
from eval.collection import Run
from eval.comparison import baseline_of, paired_parts
from eval.groups import Group, copies, group
from eval.intervals import MIN_CONVERSATIONS, too_few
from eval.table import BUDGETS, HEADERS, OPPOSITE, SCORERS, Grid, Line, Report
from eval.tables_grids import (
    RETRIEVAL,
    abstention_grid,
    category_grid,
    cost_grid,
    memory_grid,
    retrieval_grid,
    sweep_grids,
)
from harness.sources import code_version, package_of

BY_CATEGORY = ("f1_amem", "bleu1", "f1_locomo")
STACKED = "Below a row: its 95% interval over conversations, the published value, ours less the published one."


@dataclass(frozen=True)
class Block:
    """The systems of one backbone within a group, on one subset."""

    group: Group
    backbone: str
    subset: str
    systems: tuple[Named, ...]


def blocks(groups: Sequence[Group], subsets: Sequence[str] = ("all", "clean")) -> list[Block]:
    """A block a group, backbone and subset; `clean` only where it differs from `all`."""
    made = []
    for one in groups:
        for backbone in dict.fromkeys(run.backbone for run in one.runs):
            members = [(n, r) for n, r in zip(one.names, one.runs, strict=True) if r.backbone == backbone]
            for subset in subsets:
                systems = tuple(Named(name, scored(run, subset)) for name, run in members)
                same = subset != "all" and all(len(s.scored.records) == len(s.run.outcomes) for s in systems)
                if not same:
                    made.append(Block(one, backbone, subset, systems))
    return made


def collect(runs: Sequence[Run], *, split: bool = False, subsets: Sequence[str] = ("all", "clean")) -> list[Block]:
    """The blocks of the runs that have ended. RecordError: runs of several kinds without `split`."""
    return blocks(group([run for run in runs if run.complete], split=split), subsets)


def build_reports(
    runs: Sequence[Run],
    made: Sequence[Block],
    *,
    baseline: str | None = None,
    layout: str = "auto",
    metrics: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> list[Report]:
    """A report a block of `collect`. Runs that are in none of them stand as lines under the first, and so do `absent`
    ones (`eval.collection.absent_jobs`)."""
    reports = [report(block, baseline=baseline, layout=layout, metrics=metrics) for block in made]
    waiting = [
        f"not in the tables: {run.label} on {run.backbone} is {run.state} ({run.path.name})"
        for run in runs
        if not run.complete
    ]
    waiting += [
        f"not in the tables: {copy.path} is a copy of {of.path}"
        for copy, of in copies([run for run in runs if run.complete])
    ]
    lines = tuple(Line(text, strong=True) for text in (*waiting, *absent))
    if lines and reports:
        reports[0] = Report(reports[0].title, (*reports[0].blocks, lines))
    elif lines:
        reports = [Report("no run has ended", (lines,))]
    return reports


def report(block: Block, *, baseline: str | None = None, layout: str = "auto", metrics: Sequence[str] = ()) -> Report:
    """The tables of one block. layout: "1" by category, "3" retrieval, settings and memory, "auto" both; each with paired
    differences and cost. metrics: those of the categories and the paired differences, else the layout's own."""
    base = baseline_of(block.systems, baseline)
    systems = sorted(block.systems, key=lambda one: one is not base)
    parts: list[tuple[Line, ...] | Grid] = [tuple(_head(block))]
    if layout != "3":
        parts += [category_grid(systems, metric) for metric in metrics or BY_CATEGORY]
        if any("5" in one.scored.metrics["by_category"] for one in systems):
            parts += [abstention_grid(systems), (Line(OPPOSITE),)]
    if layout != "1":
        parts += [retrieval_grid(systems), (Line(BUDGETS),), *sweep_grids(systems), memory_grid(systems)]
    compared = metrics or (BY_CATEGORY if layout == "1" else RETRIEVAL)
    parts += [*paired_parts(systems, compared, baseline), cost_grid(systems)]
    if lines := _published(systems):
        parts.append(lines)
    facts = block.group.facts
    title = f"{block.backbone}, {block.systems[0].run.dataset}, protocol {facts['protocol']['name']}, {block.subset}"
    return Report(title, tuple(parts))


def _head(block: Block) -> list[Line]:
    first, facts = block.systems[0], block.group.facts
    cut = ", ".join(f"{key} {value}" for key, value in facts["slice"].items())
    asked = len({(r["sample_id"], r["qa_index"]) for r in first.scored.records})
    model = first.run.spec["backbone"]
    lines = [
        f"backbone {block.backbone} ({model['model']}, {model.get('revision') or 'revision not pinned'})",
        f"protocol {', '.join(f'{key} {value}' for key, value in facts['protocol'].items())}; scorer version "
        f"{facts['scorer']}; trials {facts['trials']}; embedder {facts['embedder'].get('model')}",
        f"data sha256 {facts['data'][:12]} (content): {first.run.dataset}, {cut}; {asked} questions"
        + ("" if block.subset == "all" else f" left of {facts['questions'].split()[0]} (subset {block.subset})"),
        SCORERS,
        STACKED,
    ]
    conversations = first.scored.metrics["n_conversations"]
    if conversations < MIN_CONVERSATIONS:
        lines.append(too_few(conversations))
    if several := _codes(block.systems):
        lines.append(f"made by several versions of this program: {several}")
    if stale := _stale(block.systems):
        lines.append(f"made by another version of this program than the present one: {stale}")
    if model.get("kind") == "scripted":
        lines.insert(0, "NO LANGUAGE MODEL: a rule-based stand-in answers; these figures are no result")
    if block.group.apart:
        lines.insert(0, f"apart from the other tables here: {', '.join(block.group.apart)}")
    lines += _changes(block.systems)
    lines += _notices(block.systems)
    strong = []
    for one in block.systems:
        if one.run.state == "failed":
            strong.append(f"FAILED {one.name}: {one.run.status.get('message', '')}")
        if one.collapsed:
            strong.append(f"COLLAPSED {one.name}: recall and hit mean nothing, see the budgeted ones")
        if one.oracle:
            strong.append(f"ORACLE {one.name}: answers are made from the gold; a bound, no system")
    return [Line(text) for text in lines] + [Line(text, strong=True) for text in strong]


_SAID = ("backbone: ", "memory: ", "data: ", "protocol: ", "context tokens counted", "set for this run", "ORACLE ",
         "answers made by code")  # fmt: skip
"""Beginnings of a run's own lines that the head of a collection says in its way."""


def _notices(systems: Sequence[Named]) -> list[str]:
    """What else stands above a run's own table (data that is not LoCoMo-10, the cut, another gate, stand-ins): once where all
    say it, else with the names of those that do."""
    by_line: dict[str, list[str]] = {}
    for one in systems:
        model = f"embedder: {one.run.spec['embedder'].get('model')}"
        for line in one.run.metrics.get("table", {}).get("lines", []):
            if not line.startswith(_SAID) and line != model:
                by_line.setdefault(line, []).append(one.name)
    return [line if len(names) == len(systems) else f"{', '.join(names)}: {line}" for line, names in by_line.items()]


def _codes(systems: Sequence[Named]) -> str:
    """The versions of the code where systems of one package were made by several; a run begun before records named
    theirs counts by its commit."""
    made: dict[str, dict[str, None]] = {}
    for one in systems:
        commit = one.run.manifest.get("versions", {}).get("bench", "unknown")
        package = package_of(one.run.spec["system"])
        made.setdefault(package, {}).update(dict.fromkeys(r.get("code") or commit for r in one.run.outcomes))
    return "; ".join(f"{package} {', '.join(codes)}" for package, codes in made.items() if len(codes) > 1)


def _stale(systems: Sequence[Named]) -> str:
    """The systems with answers that other code made than the present; runs begun before records named theirs say nothing."""
    return ", ".join(
        one.name
        for one in systems
        if {r["code"] for r in one.run.outcomes if r.get("code")} - {code_version(one.run.spec["system"])}
    )


def _changes(systems: Sequence[Named]) -> list[str]:
    """What was set beside the groups' choices, as each run's own table says it; once where all say the same."""
    said = {}
    for one in systems:
        lines = one.run.metrics.get("table", {}).get("lines", [])
        said[one.name] = "; ".join(line for line in lines if line.startswith("set for this run"))
    if len(set(said.values())) == 1:
        return [text for text in list(said.values())[:1] if text]
    return [f"{name}: {text}" for name, text in said.items() if text]


def _published(systems: Sequence[Named]) -> tuple[Line, ...]:
    """Where the published values come from, a line for all systems of which the same is to be said."""
    said: dict[str, list[str]] = {}
    for one in systems:
        if one.scored.reference:
            rows = (*one.scored.metrics["by_category"], "micro")
            text = "; ".join(one.scored.reference.sources(rows, HEADERS))
            said.setdefault(text, []).append(one.name)
    return tuple(Line(f"published ({', '.join(names)}): {text}") for text, names in said.items() if text)
