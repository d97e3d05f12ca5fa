"""The export commands on run folders made by hand: files that open again, one line for what cannot be exported."""

import csv
import subprocess
import sys
from pathlib import Path

import networkx
import pytest
from export_fakes import CLEAN, COUNTS, record, run_folder, tables

ROOT = Path(__file__).resolve().parents[2]


def command(name, *arguments, check=0):
    done = subprocess.run(
        [sys.executable, f"scripts/{name}.py", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == check, done.stderr
    return done


def test_graphml_of_all_conversations_or_of_one(tmp_path):
    run = run_folder(tmp_path / "runs" / "memfly-x")
    done = command("export_graph", run, "--format", "graphml", "--out", tmp_path / "all")
    assert done.stdout.startswith("6 Note, 6 Keyword, 4 Topic, 2 RELATED, 14 HAS_KEYWORD, 6 IN_TOPIC, 6 CO_OCCURS\n")
    assert "8 characters that no such file can hold" in done.stderr
    assert len(networkx.read_graphml(tmp_path / "all" / "memory.graphml")) == 16
    command("export_graph", run, "--format", "graphml", "--out", tmp_path / "one", "--conversation", "conv-2")
    graph = networkx.read_graphml(tmp_path / "one" / "memory.graphml")
    assert len(graph) == 8 and graph.number_of_edges() == sum(COUNTS.values()) - 8
    assert graph.nodes["conv-2/note/0"]["context"] == CLEAN


def test_neo4j_prints_the_commands_for_the_files_it_wrote(tmp_path):
    out = tmp_path / "graph 1"
    done = command("export_graph", run_folder(tmp_path / "r"), "--format", "neo4j", "--out", out)
    *_, change, load, make = done.stdout.splitlines()
    assert change == f"cd '{out}'" and make.startswith("cypher-shell ")
    assert load.startswith("neo4j-admin database import full memfly ")
    assert len(list(out.iterdir())) == 14
    with (out / "nodes_note.csv").open(newline="", encoding="utf-8") as handle:
        assert [row[4] for row in csv.reader(handle)] == [CLEAN, "", "Ann has a boat."] * 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--conversation", "conv-9"), "no memory of conv-9; it has: conv-1, conv-2"),
        (("--out", "."), "holds something already; give --out a new folder"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, given, message):
    run = run_folder(tmp_path / "r")
    done = command("export_graph", run, "--format", "graphml", "--out", tmp_path / "out", *given, check=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("export_graph.py: ") and message in line
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_another_system_and_no_run_are_one_line(tmp_path):
    rag = run_folder(tmp_path / "rag-x", memories={"conv-1": {"units": [{"id": 0}]}})
    out = ("--format", "neo4j", "--out", tmp_path / "out")
    done = command("export_graph", rag, *out, check=2)
    (line,) = done.stderr.splitlines()
    assert "rag-x, conv-1: this memory is no graph: its tables are units; a graph needs notes, keywords" in line
    run_folder(tmp_path / "memfly-x", run_id="2f" * 16, memories={"conv-1": tables()})
    (line,) = command("export_graph", tmp_path, *out, check=2).stderr.splitlines()
    assert "holds 2 runs; give one run folder" in line
    assert command("export_graph", tmp_path / "nowhere", *out, check=2).stderr.startswith("export_graph.py: ")


def test_answers_of_several_runs(tmp_path):
    datasets = pytest.importorskip("datasets")
    runs = tmp_path / "runs"
    run_folder(runs / "a")
    run_folder(runs / "b", run_id="2f" * 16, state="failed", answers=[record(0)])
    run_folder(runs / "c", run_id="3f" * 16, state="running", answers=[record(0)])
    copy = run_folder(tmp_path / "copy")
    done = command("export_answers", runs, copy, "--out", tmp_path / "out", "--format", "both")
    assert done.stdout.splitlines()[0] == "3 answers of 2 runs"
    assert f"left out, running: {runs / 'c'}" in done.stderr
    assert f"left out, a copy of {runs / 'a'}: {copy}" in done.stderr
    table = datasets.load_from_disk(tmp_path / "out")
    assert table["run"][:] == ["a", "a", "b"] and table["run_state"][:] == ["finished", "finished", "failed"]
    assert table["error_kind"][:] == [None, "unparsable", None]
    done = command("export_answers", runs / "c", "--out", tmp_path / "none", check=2)
    assert f"export_answers.py: no finished run in {runs / 'c'}; give run folders, or a folder of them" in done.stderr
    assert not (tmp_path / "none").exists()
