"""The tables of a collection: systems side by side, from the cells of their runs (eval/cells.py).

One report a backbone: F1 and BLEU-1 by category (Tables 1 and 2 of arXiv:2602.07885), retrieval with its budgets (Table 3), paired
differences to a baseline, cost. Renderers are eval.table's and eval.formats'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.cells import AVERAGES, Cell, Scored, row_name, scored
from eval.collection import Run
from eval.groups import Group, group
from eval.intervals import Comparison, compare, holm
from eval.table import BUDGETS, HEADERS, OPPOSITE, SCORERS, Grid, Line, Report, percent

BY_CATEGORY = ("f1_amem", "bleu1", "f1_locomo")
RETRIEVAL = ("f1_amem", "f1_locomo", "bleu1", "recall", "hit", "recall_20t", "recall_700w")
COMPARED = ("f1_amem", "f1_locomo", "bleu1", "recall_700w")
"""Metrics of the paired differences (our choice: both scorers, BLEU-1, and the recall that cannot be bought with length)."""
STACKED = "Below a row: its 95% interval over conversations, the published value, ours less the published one."
PAIRED = (
    "Questions both systems scored; 95% interval and exact sign-flip p over conversations (the units), p Holm-adjusted "
    "over the systems of a metric. Differences in percentage points."
)


@dataclass(frozen=True)
class Named:
    """A run's figures under the name it has in its tables."""

    name: str
    scored: Scored

    @property
    def run(self) -> Run:
        return self.scored.run


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


def build_reports(runs: Sequence[Run], made: Sequence[Block], *, baseline: str | None = None) -> list[Report]:
    """A report a block of `collect`. Runs that have not ended stand as lines under the first."""
    reports = [report(block, baseline=baseline) for block in made]
    waiting = tuple(
        Line(f"not in the tables: {run.label} on {run.backbone} is {run.state} ({run.path.name})", strong=True)
        for run in runs
        if not run.complete
    )
    if waiting and reports:
        reports[0] = Report(reports[0].title, (*reports[0].blocks, waiting))
    elif waiting:
        reports = [Report("no run has ended", (waiting,))]
    return reports


def report(block: Block, *, baseline: str | None = None) -> Report:
    """All tables of one block."""
    systems = sorted(block.systems, key=lambda one: one is not _baseline(block.systems, baseline))
    parts: list[tuple[Line, ...] | Grid] = [tuple(_head(block))]
    parts += [category_grid(systems, metric) for metric in BY_CATEGORY]
    if any("5" in s.scored.metrics["by_category"] for s in systems):
        parts += [abstention_grid(systems), (Line(OPPOSITE),)]
    parts += [retrieval_grid(systems), (Line(BUDGETS),)]
    if len(systems) > 1:
        parts += [paired_grid(systems, baseline), tuple(_paired_lines(systems, baseline))]
    parts.append(cost_grid(systems))
    if known := sources(systems):
        parts.append((Line("published: " + "; ".join(f"{name} ({how})" for name, how in known.items())),))
    return Report(f"{block.backbone}, protocol {block.group.facts['protocol']['name']}, {block.subset}", tuple(parts))


def _head(block: Block) -> list[Line]:
    first, facts = block.systems[0], block.group.facts
    cut = ", ".join(f"{key} {value}" for key, value in facts["slice"].items() if value is not None)
    asked = len({(r["sample_id"], r["qa_index"]) for r in first.scored.records})
    model = first.run.spec["backbone"]
    lines = [
        f"backbone {block.backbone} ({model['model']}, {model.get('revision') or 'revision not pinned'})",
        f"protocol {', '.join(f'{key} {value}' for key, value in facts['protocol'].items())}; scorer version "
        f"{facts['scorer']}; trials {facts['trials']}; embedder {facts['embedder']}",
        f"data sha256 {facts['data'][:12]} (content): {first.run.dataset}, {cut}; {asked} questions"
        + ("" if block.subset == "all" else f" left of {facts['questions'].split()[0]} (subset {block.subset})"),
        SCORERS,
        STACKED,
    ]
    codes = dict.fromkeys(one.run.manifest.get("versions", {}).get("bench", "unknown") for one in block.systems)
    if len(codes) > 1:
        lines.append(f"made by several versions of this program: {', '.join(codes)}")
    if model.get("kind") == "scripted":
        lines.insert(0, "NO LANGUAGE MODEL: a rule-based stand-in answers; these figures are no result")
    strong = []
    for one in block.systems:
        metrics = one.run.metrics
        if one.run.state == "failed":
            strong.append(f"FAILED {one.name}: {one.run.status.get('message', '')}")
        if metrics["memory"].get("collapsed"):
            strong.append(f"COLLAPSED {one.name}: recall and hit mean nothing, see the budgeted ones")
        if "ORACLE" in " ".join(metrics.get("table", {}).get("lines", [])):
            strong.append(f"ORACLE {one.name}: a bound, no memory")
    lines += _changes(block.systems)
    return [Line(text) for text in lines] + [Line(text, strong=True) for text in strong]


def _changes(systems: Sequence[Named]) -> list[str]:
    """What was set beside the groups' choices, as each run's own table says it; once where all say the same."""
    said = {}
    for one in systems:
        lines = one.run.metrics.get("table", {}).get("lines", [])
        said[one.name] = "; ".join(line for line in lines if line.startswith("set for this run"))
    if len(set(said.values())) == 1:
        return [text for text in list(said.values())[:1] if text]
    return [f"{name}: {text}" for name, text in said.items() if text]


def category_grid(systems: Sequence[Named], metric: str) -> Grid:
    """Rows: systems. Columns: categories and averages of one metric, then n and errors."""
    rows_of = _rows(systems)
    columns = [HEADERS[metric], *map(row_name, rows_of), "errors"]
    table: list[tuple[str, ...]] = [("n", *(_n(systems, row) for row in rows_of), "")]
    rules = set()
    for one in systems:
        rules.add(len(table))
        cells = [one.scored.cell(metric, row) for row in rows_of]
        errors = f"{one.scored.metrics['n_error']:,}"
        table.append((one.name, *(percent(cell.value) if cell else "" for cell in cells), errors))
        table += _stack(cells, 1)
    return Grid(tuple(columns), tuple(table), frozenset(rules if len(table) > 1 + len(systems) else {1}))


def abstention_grid(systems: Sequence[Named]) -> Grid:
    """Category 5 alone: what the A-MEM scorer pays for, beside how often the system refused."""
    metrics = ("f1_amem", "f1_locomo", "abstained")
    table = []
    for one in systems:
        cells = [one.scored.cell(metric, "5") for metric in metrics]
        n = cells[0].n if cells[0] else 0
        table.append((one.name, f"{n:,}", *(percent(cell.value) if cell else "" for cell in cells)))
    return Grid(("5 adversarial", "n", *(HEADERS[m] for m in metrics)), tuple(table))


def retrieval_grid(systems: Sequence[Named]) -> Grid:
    """Rows: systems. Columns: micro averages with the evidence measures and their budgets; memory counts."""
    columns = (
        "micro",
        *(HEADERS[m] for m in RETRIEVAL),
        "n evid.",
        "items",
        "turns",
        "tokens",
        "notes",
        "merged",
        "links",
    )
    table: list[tuple[str, ...]] = []
    rules = set()
    for one in systems:
        rules.add(len(table))
        cells = [one.scored.cell(metric) for metric in RETRIEVAL]
        budget, memory = one.scored.metrics["evidence"], one.run.metrics["memory"]
        spent = [budget["items"], budget["dia_ids"], budget["tokens"]]
        counts = [memory.get("notes"), memory.get("merged_turns"), memory.get("links")]
        table.append(
            (
                one.name,
                *(percent(cell.value) if cell else "" for cell in cells),
                f"{one.scored.metrics['n_evidence']:,}" if one.scored.metrics["n_evidence"] else "",
                *("" if value is None else f"{value:,.1f}" for value in spent),
                *("" if value is None else f"{value:,}" for value in counts),
            )
        )
        table += _stack(cells, 7)
    return Grid(columns, tuple(table), frozenset(rules - {0} if len(table) > len(systems) else ()))


Paired = tuple[str, str, Comparison, float | None]
"""(system, metric, the system less the baseline, Holm-adjusted p)"""


def paired(systems: Sequence[Named], baseline: str | None = None) -> tuple[Named, list[Paired]]:
    """The baseline, and every other system held against it in every metric both have."""
    base = _baseline(systems, baseline)
    found: list[Paired] = []
    for metric in COMPARED:
        compared = {
            one.name: compare(one.scored.by_question[metric], base.scored.by_question[metric])
            for one in systems
            if one is not base and metric in one.scored.by_question and metric in base.scored.by_question
        }
        adjusted = holm({name: comparison.p for name, comparison in compared.items()})
        found += [(name, metric, comparison, adjusted[name]) for name, comparison in compared.items()]
    return base, found


def paired_grid(systems: Sequence[Named], baseline: str | None = None) -> Grid:
    """Rows: systems and metrics."""
    base, found = paired(systems, baseline)
    rows = [
        (
            name,
            HEADERS[metric],
            _signed(one.difference),
            "" if one.interval is None else f"{_signed(one.interval[0])} to {_signed(one.interval[1])}",
            "" if one.p is None else f"{one.p:.4f}",
            "" if adjusted is None else f"{adjusted:.4f}",
            f"{one.questions:,}",
        )
        for name, metric, one, adjusted in found
    ]
    return Grid((f"less {base.name}", "metric", "difference", "95%", "p", "p Holm", "questions"), tuple(rows))


def _paired_lines(systems: Sequence[Named], baseline: str | None) -> list[Line]:
    reasons = dict.fromkeys(one.reason for _, _, one, _ in paired(systems, baseline)[1] if one.reason)
    return [Line(PAIRED), *(Line(reason) for reason in reasons)]


def cost_grid(systems: Sequence[Named]) -> Grid:
    """What each run took: calls, tokens, dollars, time; per turn replayed and per answer."""
    rows = []
    for one in systems:
        metrics = one.run.metrics
        usage, memory = metrics["usage"], metrics["memory"]
        asked = sum(r["usage"]["prompt_tokens"] + r["usage"]["completion_tokens"] for r in one.run.outcomes)
        whole = usage["prompt_tokens"] + usage["completion_tokens"]
        turns, n = memory.get("turns") or 0, metrics["n_total"]
        errors = memory.get("errors", 0) + metrics.get("asking", {}).get("errors", 0)
        rows.append(
            (
                one.name,
                f"{usage['calls']:,}",
                f"{usage['computed_calls']:,}",
                f"{errors:,}",
                f"{usage['prompt_tokens']:,}",
                f"{usage['completion_tokens']:,}",
                f"{(whole - asked) / turns:,.0f}" if turns else "",
                f"{asked / n:,.0f}" if n else "",
                f"{usage['usd']:.2f}",
                f"{metrics['wall_s']:,.0f}",
            )
        )
    columns = (
        "cost",
        "calls",
        "computed",
        "no reply",
        "prompt tok.",
        "reply tok.",
        "tok./turn",
        "tok./answer",
        "USD",
        "wall s",
    )
    return Grid(columns, tuple(rows))


def _rows(systems: Sequence[Named]) -> list[str]:
    found = {row for one in systems for row in one.scored.metrics["by_category"]}
    return [*sorted(found), *AVERAGES]


def _n(systems: Sequence[Named], row: str) -> str:
    """Answers of a category or average: the same for all systems of a group."""
    cell = next(filter(None, (one.scored.cell("f1_amem", row) for one in systems)), None)
    return f"{cell.n:,}" if cell else ""


def _stack(cells: Sequence[Cell | None], blanks: int) -> list[tuple[str, ...]]:
    """The rows below a system's: interval, published, difference; those that say something."""
    spans = ["" if c is None or c.low is None else f"{100 * c.low:.1f}–{100 * c.high:.1f}" for c in cells]
    known = ["" if c is None or c.published is None else f"{c.published:.2f}" for c in cells]
    apart = ["" if c is None or c.difference is None else f"{c.difference:+.2f}" for c in cells]
    named = (("  95%", spans), ("  published", known), ("  difference", apart))
    return [(name, *texts, *[""] * blanks) for name, texts in named if any(texts)]


def _baseline(systems: Sequence[Named], name: str | None) -> Named:
    """The named system, else full MemFly, else the first."""
    for wanted in (name, "memfly"):
        for one in systems:
            if wanted in (one.name, one.run.label):
                return one
    return systems[0]


def _signed(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.2f}"


def sources(systems: Sequence[Named]) -> Mapping[str, str]:
    """Source of published values -> how it was read."""
    return {c.source: c.status for one in systems for c in one.scored.cells.values() if c.published is not None}
