"""The table of a run: cells, notices and blanks, and that terminal and table.md say the same."""

import io
import re

import pytest
from rich.console import Console

from eval.aggregate import METRICS, memory_totals
from eval.published import reference_for
from eval.table import OPPOSITE, Grid, build, markdown, percent, render

HEAD = [
    "protocol: amem",
    "dataset.conversations=[red] or [conv-26]",
    "data: LoCoMo-10, content 1234abcd",
    "backbone: rule-based stand-in, no language model",
]


def metrics(**changes):
    def values(base):
        return {metric: base + place / 1000 for place, metric in enumerate(METRICS)}

    category = {"1": ("multi_hop", 282), "2": ("temporal", 321), "3": ("open_domain", 96), "4": ("single_hop", 841)}
    category["5"] = ("adversarial", 446)
    good = {
        "calls": 1234,
        "errors": 0,
        "repaired_replies": 3,
        "notes": 5800,
        "merges": 12,
        "links": 345,
        "appends": 5500,
        "largest": 3,
        "merged_turns": 24,
        "turns": 5882,
        "repairs": {"fence": 3},
        "distributions": {"s_red": [0.1, 0.2, 0.9]},
    }
    return {
        "n_total": 1986,
        "n_scored": 1984,
        "n_error": 2,
        "n_evidence": 1970,
        "n_questions": 1986,
        "n_conversations": 10,
        "errors_by_kind": {"timeout": 1, "unparsable": 1},
        "micro": values(0.40),
        "micro4": values(0.41),
        "macro": values(0.42),
        "macro4": values(0.43),
        "by_category": {
            key: {"name": name, "n": n, "n_error": 2 * (key == "5"), "n_evidence": n - 1, **values(int(key) / 10)}
            for key, (name, n) in category.items()
        },
        "intervals": {metric: [0.3512, 0.4567] for metric in METRICS},
        "interval_reason": None,
        "evidence": {"items": 19.94, "dia_ids": 20.5, "tokens": 1023.4},
        "memory": memory_totals({"conv-26": good}),
        "usage": {
            "calls": 9999,
            "computed_calls": 9000,
            "cached_calls": 999,
            "prompt_tokens": 1234567,
            "completion_tokens": 7654,
            "usd": 1.5,
        },
        "wall_s": 754.2,
    } | changes


def terminal(found, width=100, **options):
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=False)
    console.print(render(found, HEAD, "A run", **options))
    return console.export_text()


def grids(found, **options):
    return [block for block in build(found, HEAD, "A run", **options).blocks if isinstance(block, Grid)]


def rows(grid):
    return {row[0]: row[1:] for row in grid.rows}


QWEN = reference_for("qwen3-8b", "memfly", protocol="amem", full_locomo10=True)


def test_answer_grid():
    grid = grids(metrics())[0]
    assert grid.columns == ("category", "n", "errors", "F1 (A-MEM)", "F1 (LoCoMo)", "BLEU-1", "abstained")
    assert [row[0] for row in grid.rows] == [
        "1 multi_hop",
        "2 temporal",
        "3 open_domain",
        "4 single_hop",
        "5 adversarial",
        "micro4",
        "micro",
        "micro, 95%",
        "macro4",
        "macro",
    ]
    found = rows(grid)
    assert found["1 multi_hop"] == ("282", "0", "10.00", "10.10", "10.20", "10.30")
    assert found["5 adversarial"] == ("446", "2", "50.00", "50.10", "50.20", "50.30")
    assert found["micro4"] == ("1,540", "0", "41.00", "41.10", "41.20", "41.30")
    assert found["micro"] == ("1,986", "2", "40.00", "40.10", "40.20", "40.30")
    assert found["micro, 95%"] == ("", "", *["35.12–45.67"] * 4)
    assert found["macro"] == ("1,986", "2", "42.00", "42.10", "42.20", "42.30")


def test_evidence_grid_counts_questions_with_evidence():
    grid = grids(metrics())[1]
    assert grid.columns == ("category", "n", "recall", "hit", "recall_20t", "recall_700w")
    assert rows(grid)["micro"] == ("1,981", "40.40", "40.50", "40.60", "40.70")
    assert rows(grid)["micro4"][0] == "1,536"


def test_published_values_stand_beside_ours():
    answers, evidence = grids(metrics(), reference=QWEN)[:2]
    assert answers.columns[-2:] == ("F1 publ.", "BLEU publ.")
    assert {name: row[-2:] for name, row in rows(answers).items()} == {
        "1 multi_hop": ("28.24", ""),
        "2 temporal": ("38.39", ""),
        "3 open_domain": ("15.43", ""),
        "4 single_hop": ("42.09", ""),
        "5 adversarial": ("43.79", ""),
        "micro4": ("", ""),
        "micro": ("38.62", "34.51"),
        "micro, 95%": ("", ""),
        "macro4": ("", ""),
        "macro": ("", ""),
    }
    assert rows(evidence)["micro"][-2:] == ("62.22", "67.12")
    text = markdown(metrics(), HEAD, "A run", reference=QWEN)
    assert "Published, Qwen3-8B: arXiv:2602.07885 Tables 1-2 (second-hand)" in text
    assert "BLEU-1 of micro also printed as 36.85 in arXiv:2602.07885 Table 3" in text
    ablated = reference_for("qwen3-8b", "memfly-no_link", protocol="amem", full_locomo10=True)
    assert grids(metrics(), reference=ablated)[0].columns[-1] == "F1 publ."


def test_unknown_is_an_empty_cell():
    found = metrics()
    found["by_category"]["3"] |= {"recall": None, "f1_amem": None}
    found["by_category"]["4"]["f1_amem"] = 0.0
    answers, evidence = grids(found)[:2]
    assert rows(answers)["3 open_domain"][2] == "" and rows(answers)["4 single_hop"][2] == "0.00"
    assert rows(evidence)["3 open_domain"][1] == ""
    assert (percent(None), percent(0.0), percent(1.0), percent(0.386249)) == ("", "0.00", "100.00", "38.62")


def test_no_interval_and_its_reason():
    found = metrics(intervals=dict.fromkeys(METRICS), interval_reason="no 95% interval: 2 conversations, and so on")
    assert "micro, 95%" not in rows(grids(found)[0])
    assert "- no 95% interval: 2 conversations, and so on\n" in markdown(found, HEAD, "A run")
    assert "Student's t" not in markdown(found, HEAD, "A run")


def test_header_lines_come_first_then_scorers_and_the_warning():
    text = markdown(metrics(), HEAD, "A run")
    assert text.startswith("# A run\n\n- protocol: amem\n- dataset.conversations=[red] or [conv-26]\n")
    places = [text.index(part) for part in (*HEAD, "Scorers:", OPPOSITE, "| category |")]
    assert places == sorted(places)
    found = metrics()
    del found["by_category"]["5"]
    assert OPPOSITE not in markdown(found, HEAD, "A run")


def test_memory_usage_and_errors_are_told():
    text = markdown(metrics(), HEAD, "A run")
    for line in (
        "- **errors by kind: timeout 1, unparsable 1**",
        "- evidence, mean a question: 19.9 items, 20.5 dia_ids, 1,023.4 context tokens",
        "- memory: notes 5,800, merges 12, links 345, appends 5,500, turns in the largest note 3, turns merged 24 of 5,882",
        "- memory building: calls 1,234, errors 0, repaired replies 3",
        "- repairs: fence 3",
        "- all calls: 9,999 (9,000 computed, 999 cached); 1,234,567 prompt and 7,654 completion tokens; 1.5000 USD; "
        "wall time 12 min 34 s",
        "| s_red | 3 | 0.400 | 0.100 | 0.110 | 0.150 | 0.200 | 0.550 | 0.830 | 0.900 |",
    ):
        assert line + "\n" in text
    assert "COLLAPSED" not in text and "FAILED" not in text


def test_a_cost_that_nobody_knows_is_no_nought():
    text = markdown(metrics(table={"unpriced": "big-1"}), HEAD, "A run")
    assert "; cost unknown: no price for big-1; wall time 12 min 34 s\n" in text and "USD" not in text


def test_collapsed_and_failed_are_bold_and_above_the_figures():
    one_note = memory_totals({"conv-26": {"notes": 1, "largest": 400, "merged_turns": 400, "turns": 400}})
    failed = ["FAILED: 2 of 8 answers ended in an error"]
    text = markdown(metrics(memory=one_note), HEAD, "A run", failures=failed)
    assert "- **COLLAPSED memory (conv-26)" in text and "- **FAILED: 2 of 8" in text
    assert text.index("FAILED") < text.index("COLLAPSED") < text.index("| category |")
    console = Console(width=100, force_terminal=True, color_system="standard", file=io.StringIO(), record=True)
    console.print(render(metrics(memory=one_note), HEAD, "A run", failures=failed))
    assert re.search(r"\x1b\[1mCOLLAPSED memory", console.export_text(styles=True))


def test_a_system_without_exact_evidence_has_no_evidence_grid():
    found = metrics(memory={}, evidence={"items": 1.0, "dia_ids": None, "tokens": None})
    for metric in ("recall", "hit", "recall_20t", "recall_700w"):
        found["micro"][metric] = None
    assert len(grids(found)) == 1
    text = markdown(found, HEAD, "A run")
    assert "No evidence measures" in text and "evidence, mean a question: 1.0 items\n" in text


@pytest.mark.parametrize("reference", [None, QWEN])
def test_terminal_and_markdown_say_the_same_words(reference):
    def words(text):
        return [w for w in re.sub(r"[│─━|*#]|(?<!\S)-(?!\S)|:?--:?", " ", text).split() if w]

    options = {"reference": reference, "failures": ["FAILED: for a test"]}
    assert words(terminal(metrics(), width=400, **options)) == words(markdown(metrics(), HEAD, "A run", **options))


def test_it_fits_100_columns_with_every_figure_whole():
    text = terminal(metrics(), reference=QWEN)
    assert max(map(len, text.splitlines())) <= 100
    for label in ("1 multi_hop", "3 open_domain", "5 adversarial", "micro, 95%"):
        assert text.count(label) == 2  # once in each grid
    assert text.count("35.12–45.67") == 8
    assert "…" not in text
