"""Tables of several runs: values by hand on five conversations of two questions."""

import csv
import io
import math
import subprocess
import sys
from pathlib import Path

import pytest
from run_folders import record, write_run

from eval.collection import load_runs
from eval.formats import csv_text, escape, latex_text
from eval.table import Grid, markdown_text
from eval.tables import build_reports, collect
from harness.errors import RecordError

ROOT = Path(__file__).resolve().parents[2]
FULL = (1.0, 0.5, 0.5, 0.0, 0.5)
"""f1 of category 1's question in each conversation; category 5's is 1 everywhere."""
CUT = (0.5, 0.5, 0.25, 0.0, 0.25)


def answers(values, **more):
    lines = []
    for number, value in enumerate(values):
        lines += [record(f"c{number}", 0, 1, f1=value, **more), record(f"c{number}", 1, 5, f1=1.0, **more)]
    return lines


@pytest.fixture
def two(tmp_path):
    write_run(tmp_path / "runs" / "a", answers(FULL))
    write_run(tmp_path / "runs" / "b", answers(CUT), ablation="no_link")
    return load_runs([tmp_path / "runs"])


def grid(report, head):
    (found,) = [b for b in report.blocks if isinstance(b, Grid) and b.columns[0] == head]
    return found


def rows(grid):
    return {row[0]: dict(zip(grid.columns[1:], row[1:], strict=True)) for row in grid.rows}


def test_categories_and_averages_stand_side_by_side(two):
    (report,) = build_reports(two, collect(two))
    table = rows(grid(report, "F1 (A-MEM)"))
    assert table["n"]["1 multi_hop"] == "5" and table["n"]["micro"] == "10" and table["n"]["micro4"] == "5"
    # 2.5 / 5 and 1.5 / 5; with five ones, 7.5 / 10 and 6.5 / 10
    assert table["memfly"] == {
        "1 multi_hop": "50.00", "5 adversarial": "100.00", "micro4": "50.00", "micro": "75.00", "macro4": "50.00",
        "macro": "75.00", "errors": "0",
    }  # fmt: skip
    assert table["memfly-no_link"]["micro"] == "65.00"


def test_a_categorys_interval_is_over_conversations(two):
    """One question a conversation: the ratio estimator is the mean with t(4) * s / sqrt(5); s^2 = 0.5 / 4."""
    cell = collect(two)[0].systems[0].scored.cell("f1_amem", "1")
    half = 2.7764451 * math.sqrt(0.5 / 4) / math.sqrt(5)
    assert (cell.low, cell.high) == (pytest.approx(0.5 - half), pytest.approx(0.5 + half))
    (report,) = build_reports(two, collect(two))
    assert grid(report, "F1 (A-MEM)").rows[2][:2] == ("  95%", "6.1–93.9")


def test_paired_differences_are_less_the_baseline(two):
    """CUT less FULL: -0.5, 0, -0.25, 0, -0.25 in category 1 and five zeros: -1 / 10. Three conversations differ:
    of the 8 sign patterns of those, 2 reach |sum| = 1."""
    (report,) = build_reports(two, collect(two))
    table = grid(report, "less memfly")
    assert [row[:3] + row[4:] for row in table.rows] == [
        ("memfly-no_link", metric, "-10.00", "0.2500", "0.2500", "10")
        for metric in ("F1 (A-MEM)", "F1 (LoCoMo)", "BLEU-1")
    ]
    (turned,) = build_reports(two, collect(two), baseline="memfly-no_link")
    assert grid(turned, "less memfly-no_link").rows[0][:3] == ("memfly", "F1 (A-MEM)", "+10.00")


def test_p_values_are_adjusted_over_the_systems(tmp_path):
    for name, values in (("a", FULL), ("b", CUT), ("c", (0.0,) * 5)):
        write_run(tmp_path / name, answers(values), ablation={"a": "none", "b": "no_link", "c": "no_merge"}[name])
    runs = load_runs([tmp_path])
    (report,) = build_reports(runs, collect(runs))
    found = {row[0]: row[4:6] for row in grid(report, "less memfly").rows if row[1] == "F1 (A-MEM)"}
    # no_merge differs in four conversations, all one way: 2 / 16; Holm: min(0.125 * 2, ...), then at least that
    assert found == {"memfly-no_link": ("0.2500", "0.2500"), "memfly-no_merge": ("0.1250", "0.2500")}


def test_errors_stay_in_n_and_out_of_the_mean(tmp_path):
    lines = answers(FULL)
    lines[0] = record("c0", 0, 1, error="timeout")
    write_run(tmp_path / "a", lines)
    runs = load_runs([tmp_path])
    (report,) = build_reports(runs, collect(runs))
    table = rows(grid(report, "F1 (A-MEM)"))
    assert table["memfly"]["1 multi_hop"] == "37.50"  # (0.5 + 0.5 + 0 + 0.5) / 4
    assert table["memfly"]["errors"] == "1" and table["n"]["1 multi_hop"] == "5"


def test_published_values_stand_beside_a_comparable_run_alone(tmp_path):
    write_run(tmp_path / "a", answers(FULL), backbone="qwen3-8b", comparable=True)
    write_run(tmp_path / "b", answers(FULL), backbone="gpt-4o", comparable=False)
    runs = load_runs([tmp_path])
    blocks = collect(runs, split=True)
    by_backbone = {block.backbone: report for block, report in zip(blocks, build_reports(runs, blocks), strict=True)}
    table = grid(by_backbone["qwen3-8b"], "F1 (A-MEM)").rows
    published = next(row for row in table if row[0] == "  published")
    assert published[1] == "28.24" and published[4] == "38.62"  # 1 multi_hop; micro
    assert next(row for row in table if row[0] == "  difference")[1] == "+21.76"  # 50 - 28.24
    assert "  published" not in [row[0] for row in grid(by_backbone["gpt-4o"], "F1 (A-MEM)").rows]


def test_clean_leaves_out_what_the_audit_condemns(tmp_path):
    from harness.locomo.slices import LEFT_OUT, audit_verdicts

    (sample_id, index) = next(key for key, verdict in audit_verdicts().items() if verdict in LEFT_OUT)
    fine = max(i for s, i in audit_verdicts() if s == sample_id) + 1000
    lines = [record(sample_id, index, 1, f1=1.0), record(sample_id, fine, 1, f1=0.0)]
    write_run(tmp_path / "a", lines, comparable=True)
    write_run(tmp_path / "other", lines, data_sha="e" * 64)
    runs = load_runs([tmp_path])
    values = {
        (b.subset, b.group.facts["data"][0]): b.systems[0].scored.cell("f1_amem") for b in collect(runs, split=True)
    }
    assert values[("all", "d")].value == 0.5 and values[("clean", "d")].value == 0.0
    assert values[("clean", "d")].n == 1 and values[("clean", "d")].published is None
    assert ("clean", "e") not in values, "other data was not audited: clean is all"


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"protocol": "locomo"}, "protocol.name"),
        ({"protocol_options": {"temperature": 0.0}}, "protocol.temperature"),
        ({"data_sha": "e" * 64}, "data"),
    ],
)
def test_runs_of_two_kinds_are_refused_in_one_table(tmp_path, other, says):
    write_run(tmp_path / "first", answers(FULL))
    write_run(tmp_path / "second", answers(FULL), memory="rag", **other)
    runs = load_runs([tmp_path])
    with pytest.raises(RecordError) as refused:
        collect(runs)
    assert says in str(refused.value) and "first" in str(refused.value) and "--split" in str(refused.value)
    assert [len(block.systems) for block in collect(runs, split=True)] == [1, 1]


def test_other_questions_or_another_scorer_are_another_table(tmp_path):
    import json

    write_run(tmp_path / "a", answers(FULL))
    write_run(tmp_path / "b", answers(FULL[:4]), memory="rag")
    with pytest.raises(RecordError, match="differ in questions"):
        collect(load_runs([tmp_path]))
    folder = write_run(tmp_path / "c", answers(FULL), memory="amem")
    metrics = json.loads((folder / "metrics.json").read_text()) | {"scorer": "0"}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    with pytest.raises(RecordError, match="differ in scorer"):
        collect(load_runs([tmp_path / "a", folder]))


def test_a_prompt_in_two_versions_is_two_systems(tmp_path):
    import json

    write_run(tmp_path / "a", answers(FULL))
    folder = write_run(tmp_path / "b", answers(CUT), ablation="no_link")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["prompts"]["memfly/prompts/x.j2"] = "another"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RecordError, match=r"differ in prompts.memfly/prompts/x.j2"):
        collect(load_runs([tmp_path]))
    assert len(collect(load_runs([tmp_path]), split=True)) == 2


def test_two_seeds_are_two_rows(tmp_path):
    write_run(tmp_path / "a", answers(FULL), seed=0)
    write_run(tmp_path / "b", answers(CUT), seed=1)
    (block,) = collect(load_runs([tmp_path]))
    assert [one.name for one in block.systems] == ["memfly (seed 0)", "memfly (seed 1)"]


def test_a_sweeps_rows_are_told_apart_by_what_was_swept(tmp_path):
    for name, tau in (("a", 0.6), ("b", 0.7)):
        write_run(tmp_path / name, answers(FULL), memory_options={"tau_merge": tau, "k": 3})
    (block,) = collect(load_runs([tmp_path]))
    assert [one.name for one in block.systems] == ["memfly (tau_merge 0.6)", "memfly (tau_merge 0.7)"]


def test_what_has_not_ended_or_has_failed_is_said(tmp_path):
    write_run(tmp_path / "a", answers(FULL), state="failed")
    write_run(tmp_path / "b", answers(FULL), ablation="no_link", state="stopped", metrics=False)
    runs = load_runs([tmp_path])
    (report,) = build_reports(runs, collect(runs))
    text = markdown_text(report)
    assert "**FAILED memfly: why**" in text
    assert "**not in the tables: memfly-no_link on scripted is stopped (b)**" in text


def test_csv_holds_every_figure_exactly(two):
    lines = list(csv.DictReader(io.StringIO(csv_text(collect(two)))))
    picked = {(x["system"], x["metric"], x["row"]): x for x in lines if x["kind"] == "figure"}
    one = picked[("memfly", "f1_amem", "micro")]
    assert (float(one["value"]), one["n"], one["n_error"], one["published"]) == (0.75, "10", "0", "")
    blocks = collect(two)
    for (system, metric, _), line in picked.items():
        cells = next(s.scored.cells for s in blocks[0].systems if s.name == system)
        row = line["row"].split()[0]
        assert float(line["value"]) == cells[(metric, row)].value
        assert line["low"] == ("" if cells[(metric, row)].low is None else repr(cells[(metric, row)].low))
    (paired,) = [x for x in lines if x["kind"] == "paired" and x["metric"] == "f1_amem"]
    assert (float(paired["value"]), paired["row"], float(paired["p"])) == (pytest.approx(-0.1), "less memfly", 0.25)


def test_latex_escapes_what_it_would_read_as_commands(two):
    assert escape("50% of a_b & {c} \\d ~^ #$") == (
        r"50\% of a\_b \& \{c\} \textbackslash{}d \textasciitilde{}\textasciicircum{} \#\$"
    )
    text = latex_text(build_reports(two, collect(two)))
    assert r"memfly-no\_link & 30.00 & 100.00 & 30.00 & 65.00" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == text.count(r"\toprule") > 4


def collect_command(*arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "collect.py"), *map(str, arguments)],
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_command_prints_and_writes(tmp_path):
    write_run(tmp_path / "runs" / "a", answers(FULL))
    write_run(tmp_path / "runs" / "b", answers(CUT), ablation="no_link")
    done = collect_command(tmp_path / "runs", "--out", tmp_path / "tables")
    assert done.returncode == 0, done.stderr
    assert "less memfly" in done.stdout and "75.00" in done.stdout
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == ["tables.csv", "tables.md", "tables.tex"]
    assert "| memfly | 50.00 | 100.00 |" in (tmp_path / "tables" / "tables.md").read_text()


def test_the_command_refuses_in_one_line(tmp_path):
    write_run(tmp_path / "runs" / "a", answers(FULL))
    for arguments, says in (
        ((tmp_path / "nowhere",), "no run folder here"),
        ((tmp_path / "runs", "--baseline", "rag"), "they are memfly"),
    ):
        done = collect_command(*arguments)
        assert done.returncode == 2 and says in done.stderr
        assert len(done.stderr.strip().split("\n")) == 1 and "Traceback" not in done.stderr


def test_what_stands_above_a_runs_own_table_stands_above_the_collection(tmp_path):
    import json

    own = {
        "a": ["my.json is not LoCoMo-10", "gate scored by embeddings", "memory: memfly, evidence exact"],
        "b": ["my.json is not LoCoMo-10"],
    }
    for name, lines in own.items():
        folder = write_run(tmp_path / name, answers(FULL), memory={"a": "memfly", "b": "rag"}[name])
        metrics = json.loads((folder / "metrics.json").read_text())
        metrics["table"]["lines"] = lines
        (folder / "metrics.json").write_text(json.dumps(metrics))
    runs = load_runs([tmp_path])
    text = markdown_text(build_reports(runs, collect(runs))[0])
    assert text.count("my.json is not LoCoMo-10") == 1
    assert "- memfly: gate scored by embeddings" in text and "evidence exact" not in text


def test_a_cost_that_nobody_knows_is_an_empty_cell(tmp_path):
    import json

    folder = write_run(tmp_path / "a", answers(FULL))
    write_run(tmp_path / "b", answers(FULL), memory="rag")
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["table"]["unpriced"] = "big-1"
    (folder / "metrics.json").write_text(json.dumps(metrics))
    runs = load_runs([tmp_path])
    costs = grid(build_reports(runs, collect(runs))[0], "cost")
    assert [row[costs.columns.index("USD")] for row in costs.rows] == ["", "0.50"]
