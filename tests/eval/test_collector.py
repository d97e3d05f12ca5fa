"""What stands beside the figures of a collection: marks, settings, memories, cost, layouts, sources."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from run_folders import record, write_run

from eval.collection import load_runs
from eval.formats import csv_text, escape
from eval.table import Grid, console, markdown_text, width
from eval.tables import build_reports, collect
from harness.errors import RecordError
from harness.sources import code_version

ROOT = Path(__file__).resolve().parents[2]
LINES = [record(f"c{number}", 0, 1, f1=0.5) for number in range(5)]


def change_metrics(folder, change):
    values = json.loads((folder / "metrics.json").read_text())
    change(values)
    (folder / "metrics.json").write_text(json.dumps(values))
    return folder


def reports(path, **options):
    runs = load_runs([path])
    return build_reports(runs, collect(runs), **options)


def heads(report):
    return [block.columns[0] for block in report.blocks if isinstance(block, Grid)]


def grid(report, head):
    (found,) = [b for b in report.blocks if isinstance(b, Grid) and b.columns[0] == head]
    return found


def test_a_row_says_what_is_wrong_with_it(tmp_path):
    write_run(tmp_path / "a", LINES)
    folder = write_run(tmp_path / "b", LINES, memory="rag", state="failed")
    change_metrics(folder, lambda m: m["memory"].update(collapsed=True))
    (report,) = reports(tmp_path)
    assert [row[0] for row in grid(report, "F1 (A-MEM)").rows if "rag" in row[0]] == ["rag FAILED"]
    assert [row[0] for row in grid(report, "micro").rows if "rag" in row[0]] == ["rag FAILED COLLAPSED"]
    assert [row[0] for row in grid(report, "cost").rows] == ["memfly", "rag FAILED"]
    assert "**COLLAPSED rag: recall and hit mean nothing" in markdown_text(report)


def test_a_bound_is_marked_and_compared_with_nobody(tmp_path):
    folder = write_run(tmp_path / "a", LINES, memory="a_bound")
    change_metrics(folder, lambda m: m["table"]["lines"].append("ORACLE (copy): answers are made from the gold"))
    write_run(tmp_path / "b", LINES, memory="rag")
    (report,) = reports(tmp_path)
    assert "a_bound ORACLE" in [row[0] for row in grid(report, "F1 (A-MEM)").rows]
    assert not [head for head in heads(report) if head.startswith("less ")]
    write_run(tmp_path / "c", LINES, memory="amem")
    (report,) = reports(tmp_path)
    assert {row[0] for row in grid(report, "less rag").rows} == {"amem"}


def test_a_sweep_is_a_row_a_setting_and_a_column_a_field(tmp_path):
    for name, tau, k in (("a", 0.9, 3), ("b", 0.7, 3), ("c", 0.7, 10)):
        lines = [record(f"c{number}", 0, 1, f1=tau) for number in range(5)]
        write_run(tmp_path / name, lines, memory_options={"tau_merge": tau, "k_topic": k, "alike": 1}, seed=7)
    write_run(tmp_path / "d", LINES, memory="rag")
    (report,) = reports(tmp_path)
    swept = grid(report, "memfly: tau_merge")
    assert swept.columns[:4] == ("memfly: tau_merge", "k_topic", "F1 (A-MEM)", "95%")
    assert [row[:4] for row in swept.rows] == [
        ("0.7", "3", "70.00", "70.0–70.0"),
        ("0.7", "10", "70.00", "70.0–70.0"),
        ("0.9", "3", "90.00", "90.0–90.0"),
    ]
    assert [row[-3:] for row in swept.rows] == [("5", "0", "")] * 3
    assert not [head for head in heads(report) if head.startswith("rag:")]
    assert "memfly is 3 runs, of which the first is the baseline" in markdown_text(report)


def test_a_label_that_several_runs_have_is_no_baseline(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / str(seed), LINES, seed=seed)
    with pytest.raises(RecordError, match=r"memfly is 2 runs: memfly \(seed 0\), memfly \(seed 1\); name one"):
        reports(tmp_path, baseline="memfly")
    (report,) = reports(tmp_path, baseline="memfly (seed 1)")
    assert {row[0] for row in grid(report, "less memfly (seed 1)").rows} == {"memfly (seed 0)"}


def test_cost_is_per_turn_for_building_and_per_answer_for_asking(tmp_path):
    """900 + 100 tokens, 5 x (90 + 10) of them for questions: 500 over 50 turns, 500 over 5 answers."""
    write_run(tmp_path / "a", LINES)
    (report,) = reports(tmp_path)
    assert grid(report, "cost").columns[1:5] == ("calls", "computed", "cached", "no reply")
    assert grid(report, "cost").rows == (("memfly", "9", "6", "3", "0", "900", "100", "10", "100", "0.50", "2"),)


def test_memories_are_counted_and_what_is_unknown_is_empty(tmp_path):
    folder = write_run(tmp_path / "a", LINES)
    change_metrics(folder, lambda m: m["memory"].update(merged_turns=7, appends=1234))
    (report,) = reports(tmp_path)
    assert grid(report, "memory").columns == (
        "memory", "turns", "notes", "merges", "turns merged", "largest note", "links", "appends",
    )  # fmt: skip
    assert grid(report, "memory").rows == (("memfly", "50", "40", "", "7", "", "", "1,234"),)


def test_retrieval_stands_beside_its_budget(tmp_path):
    scores = {"f1_amem": 0.5, "f1_locomo": 0.5, "bleu1": 0.5, "abstained": 0.0, "recall": 1.0, "hit": 1.0}
    items = [{"dia_ids": ["D1:1", "D1:2"]}, {"dia_ids": ["D1:2"]}]
    lines = [record(f"c{n}", 0, 1, scores=scores, evidence=items, context_tokens=n) for n in range(4)]
    lines += [record("c4", 0, 1, f1=0.5, context_tokens=4)]
    write_run(tmp_path / "a", lines)
    (report,) = reports(tmp_path)
    row = dict(zip(grid(report, "micro").columns, grid(report, "micro").rows[0], strict=True))
    # 4 answers with resolvable evidence; 4 x 2 items, 4 x 2 turns over 5 answers; (0 + 1 + 2 + 3 + 4) / 5
    assert (row["recall"], row["n evid."], row["items"], row["dia_ids"], row["tokens"]) == (
        "100.00", "4", "1.6", "1.6", "2.0",
    )  # fmt: skip
    assert row["recall_700w"] == ""


def test_layouts_and_metrics_choose_the_tables(tmp_path):
    write_run(tmp_path / "a", LINES)
    write_run(tmp_path / "b", LINES, memory="rag")
    category, retrieval = ["F1 (A-MEM)", "BLEU-1", "F1 (LoCoMo)"], ["micro", "memory"]
    assert heads(reports(tmp_path)[0]) == [*category, *retrieval, "less memfly", "cost"]
    assert heads(reports(tmp_path, layout="1")[0]) == [*category, "less memfly", "cost"]
    assert heads(reports(tmp_path, layout="3")[0]) == [*retrieval, "less memfly", "cost"]
    (report,) = reports(tmp_path, layout="1", metrics=["abstained"])
    assert heads(report) == ["abstained", "less memfly", "cost"]
    assert [row[:2] for row in grid(report, "less memfly").rows] == [("rag", "abstained")]


def test_tables_say_what_sets_them_apart_and_why_there_is_no_interval(tmp_path):
    write_run(tmp_path / "a", LINES[:4], protocol="amem")
    write_run(tmp_path / "b", LINES[:4], protocol="locomo")
    runs = load_runs([tmp_path])
    first, second = map(markdown_text, build_reports(runs, collect(runs, split=True)))
    assert "apart from the other tables here: protocol.name amem" in first
    assert "apart from the other tables here: protocol.name locomo" in second
    assert "no 95% interval: 4 conversations, at least 5 are needed" in first


def test_a_value_of_another_protocol_has_no_difference(tmp_path):
    write_run(tmp_path / "a", LINES, memory="mem0", backbone="gpt-4o-mini", comparable=True)
    write_run(tmp_path / "b", LINES, memory="amem", backbone="gpt-4o-mini", comparable=True)
    (report,) = reports(tmp_path)
    rows = grid(report, "F1 (A-MEM)").rows
    stacks, name = {}, ""
    for row in rows:
        name = name if row[0].startswith("  ") else row[0]
        stacks.setdefault(name, []).append(row[:2])
    assert stacks["mem0"] == [("mem0", "50.00"), ("  95%", "50.0–50.0"), ("  published", "38.72")]
    assert stacks["amem"][2:] == [("  published", "27.02"), ("  difference", "+22.98")]
    text = markdown_text(report)
    assert (
        "published (mem0): arXiv:2504.19413 Table 1" in text and "verified, another protocol: its own prompts" in text
    )
    lines = csv.DictReader(io.StringIO(csv_text(collect(load_runs([tmp_path])))))
    (cell,) = [x for x in lines if (x["system"], x["metric"], x["row"]) == ("mem0", "f1_amem", "1 multi_hop")]
    assert (cell["published"], cell["difference"]) == ("38.72", "")


def test_what_papers_print_twice_is_said(tmp_path):
    write_run(tmp_path / "a", LINES, backbone="qwen3-8b", comparable=True)
    assert "BLEU-1 of micro also printed as 36.85 in arXiv:2602.07885 Table 3" in markdown_text(reports(tmp_path)[0])


def test_csv_holds_budgets_memories_cost_and_settings(tmp_path):
    for name, tau in (("a", 0.6), ("b", 0.7)):
        write_run(tmp_path / name, LINES, memory_options={"tau_merge": tau})
    lines = list(csv.DictReader(io.StringIO(csv_text(collect(load_runs([tmp_path]))))))
    found = {(x["kind"], x["metric"]): x for x in lines if x["system"] == "memfly (tau_merge 0.7)"}
    assert float(found[("budget", "tokens")]["value"]) == 10
    assert float(found[("memory", "notes")]["value"]) == 40
    assert float(found[("cost", "usd")]["value"]) == 0.5 and float(found[("cost", "tokens_a_turn")]["value"]) == 10
    assert json.loads(found[("figure", "f1_amem")]["settings"]) == {"memory.tau_merge": 0.7}
    assert json.loads(found[("figure", "f1_amem")]["protocol_options"]) == {"temperature": 0.7}
    assert found[("paired", "bleu1")]["row"] == "less memfly (tau_merge 0.6)"
    assert {x["seed"] for x in lines} == {"0"} and {x["label"] for x in lines} == {"memfly"}


def test_a_console_as_wide_as_the_tables_cuts_no_figure(tmp_path):
    lines = [record(f"c{n}", q, q + 1, f1=(n + q) / 10) for n in range(5) for q in range(5)]
    write_run(tmp_path / "a", lines, memory="a_system_with_quite_a_long_name_for_a_table")
    (report,) = reports(tmp_path)
    shown = console(report)
    out = io.StringIO()
    Console(width=width(shown), file=out).print(shown)
    assert "…" not in out.getvalue() and "5 adversarial" in out.getvalue()
    narrow = io.StringIO()
    Console(width=width(shown) - 1, file=narrow).print(shown)
    assert "…" in narrow.getvalue()


def test_latex_reads_no_cell_as_an_option():
    assert escape('[a]* | "q" … é 漢\n') == r"{[}a]{*} \textbar{} ''q'' \ldots{} é ? "


def test_the_command_chooses_formats_and_refuses_unknown_metrics(tmp_path):
    write_run(tmp_path / "runs" / "a", LINES)

    def command(*arguments):
        script = [sys.executable, str(ROOT / "scripts" / "collect.py"), str(tmp_path / "runs"), *arguments]
        return subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = command("--out", "t", "--formats", "csv", "--table", "3", "--metric", "abstained")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["tables.csv"]
    assert "memory" in done.stdout and "1 multi_hop" not in done.stdout
    done = command("--metric", "bleu7")
    assert done.returncode == 2
    assert (
        done.stderr
        == "collect.py: --metric bleu7 is no figure of these runs; they have abstained, bleu1, f1_amem, f1_locomo\n"
    )


def test_no_published_value_stands_beside_the_clean_subset(tmp_path):
    lines = [record("conv-26", 5, 1, f1=1.0), record("conv-26", 0, 1, f1=0.0)]  # the first gold is wrong
    write_run(tmp_path / "a", lines, backbone="qwen3-8b", comparable=True)
    all_, clean = (block.systems[0].scored.cell("f1_amem", "1") for block in collect(load_runs([tmp_path])))
    assert (all_.value, all_.n, all_.published) == (0.5, 2, 28.24)
    assert (clean.value, clean.n, clean.published, clean.source) == (0.0, 1, None, "")


def test_versions_of_the_code_are_said_where_one_package_has_several(tmp_path):
    for name, code, memory in (("a", "aaa", "memfly"), ("b", "bbb", "memfly_plus"), ("c", "ccc", "rag")):
        folder = write_run(tmp_path / name, [one | {"code": code} for one in LINES], memory=memory)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["spec"]["system"] = "baselines.rag:RAG" if memory == "rag" else "memfly.system:MemFly"
        (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "made by several versions of this program: memfly aaa, bbb\n" in markdown_text(reports(tmp_path)[0])
    runs = load_runs([tmp_path / "a", tmp_path / "c"])
    assert "several versions" not in markdown_text(build_reports(runs, collect(runs))[0])


def test_answers_of_other_code_than_the_present_are_said(tmp_path):
    now = code_version("baselines.rag:RAG")
    for name, code, memory in (("a", "aaa", "rag"), ("b", now, "locomo")):
        folder = write_run(tmp_path / name, [one | {"code": code} for one in LINES], memory=memory)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["spec"]["system"] = "baselines.rag:RAG"
        (folder / "manifest.json").write_text(json.dumps(manifest))
    text = markdown_text(reports(tmp_path)[0])
    (line,) = [line for line in text.splitlines() if "than the present one" in line]
    assert line.endswith("made by another version of this program than the present one: rag")
