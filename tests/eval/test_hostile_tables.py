"""Names and messages out of a run folder that somebody else made, in every form of a table: terminal, Markdown, CSV, LaTeX."""

import csv
import io
import re

import pytest
from markdown_it import MarkdownIt
from report_fakes import HOSTILE
from rich.console import Console
from run_folders import record, write_run

from eval.collection import load_runs
from eval.formats import csv_text, escape, latex_text
from eval.table import Grid, Line, Report, console, markdown_text, width
from eval.tables import build_reports, collect
from harness.visible import visible, visible_lines

NAMES = (*HOSTILE, "@SUM(1)", "+cmd|' /C calc'!A0", "-2+3", "\t=1", "\r=1", "a\\|b", "a\\")
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def blocks_and_reports(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    answers = [record(f"c{n}", q, q + 1, f1=(n + q) / 10) for n in range(5) for q in range(5)]
    for number, name in enumerate(NAMES):
        folder = write_run(root / f"r{number}", answers, memory=name, state="failed")
        status = (folder / "status.json").read_text()
        (folder / "status.json").write_text(status.replace('"why"', r'"why\n\u001b[2J<script>alert(1)</script>"'))
    runs = load_runs([root])
    blocks = collect(runs)
    return blocks, build_reports(runs, blocks)


def test_what_steers_is_written_as_python_writes_it():
    assert visible("a\x1b[31mb\x9bc\x7f\r\n\t\u2028\u202e\ud800é漢 🎉") == (
        "a\\x1b[31mb\\x9bc\\x7f\\r\\n\\t\\u2028\\u202e\\ud800é漢 🎉"
    )
    assert visible_lines("a\nb\r") == "a\nb\\r"


def test_a_terminal_is_not_steered(blocks_and_reports):
    for report in blocks_and_reports[1]:
        out = io.StringIO()
        shown = console(report)
        Console(width=width(shown), file=out, force_terminal=False).print(shown)
        text = out.getvalue()
        assert STEERING.findall(text) == []
        assert "\\x1b]0;owned\\x07" in text and "\\u202e" in text and "why\\n\\x1b[2J" in text
        assert "\nwhy" not in text and "\n\\x1b[2J" not in text


def test_markdown_tables_keep_their_columns_and_begin_no_markup(blocks_and_reports):
    for report in blocks_and_reports[1]:
        text = markdown_text(report)
        assert STEERING.findall(text) == []
        tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
        inner = [child for token in tokens for child in token.children or []]
        assert {t.type for t in tokens} & {"html_block", "heading_open", "code_block", "fence"} == {"heading_open"}
        assert {t.type for t in inner} & {"html_inline", "link_open", "image"} == set()
        wanted = [len(row) for grid in report.blocks if isinstance(grid, Grid) for row in (grid.columns, *grid.rows)]
        found = []
        for token in tokens:
            if token.type == "tr_open":
                found.append(0)
            elif token.type in ("td_open", "th_open"):
                found[-1] += 1
        assert found == wanted


def test_a_markdown_cell_reads_back_as_its_text():
    texts = ("a|b", "a\\|b", "a\\\\|b\\", "\\", "|", "<b>", "[x](y)")
    report = Report("t", (Grid(("name", "n"), tuple((text, "1") for text in texts)), (Line("x"),)))
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown_text(report))
    cells = ["".join(child.content for child in token.children) for token in tokens if token.type == "inline"]
    assert cells[1:-1] == ["name", "n", *(cell for text in texts for cell in (text, "1"))]


def test_no_csv_cell_is_a_formula(blocks_and_reports):
    rows = list(csv.reader(io.StringIO(csv_text(blocks_and_reports[0]))))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert STEERING.findall(csv_text(blocks_and_reports[0])) == []
    cells = {cell for row in rows for cell in row}
    begun = {cell for cell in cells if cell.startswith(("=", "+", "-", "@"))}
    for cell in begun:
        float(cell)  # a figure
    assert (
        "'@SUM(1)" in cells
        and "'+cmd|' /C calc'!A0" in cells
        and any(cell.startswith("'=HYPERLINK(") for cell in cells)
    )
    assert "'-2+3" in cells and any(float(cell) < 0 for cell in begun)


def test_latex_holds_no_command_of_others(blocks_and_reports):
    text = latex_text(blocks_and_reports[1])
    assert STEERING.findall(text) == []
    own = {"usepackage", "resizebox", "par", "noindent", "textbf", "begin", "end", "toprule", "midrule", "bottomrule", "quad",
           "textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar", "ldots"}  # fmt: skip
    assert set(re.findall(r"\\([A-Za-z]+)", text)) <= own
    body = text.partition("\n")[2]  # the first line is our comment
    assert not re.search(r"(?<!\\)[%$#_]", body)
    for line in body.split("\n"):
        bare = re.sub(r"\\[{}]", "", line)
        assert bare.count("{") == bare.count("}")


def test_latex_escapes_by_hand():
    assert escape("\\input{/etc/passwd} 5%") == r"\textbackslash{}input\{/etc/passwd\} 5\%"
    assert escape("a\x1bb\x85c\xa0d\xade\u202ef") == r"a?b?c~d\-e?f"
