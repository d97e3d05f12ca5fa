"""A memory as a graph file: counts, ids, texts as they were; what cannot be a graph is refused in one line."""

import csv
import re

import networkx
import pytest
from export_fakes import CLEAN, COUNTS, HOSTILE, note, tables, turn

from eval.export import graphml, neo4j
from eval.export.folder import new_folder
from eval.export.graph import MemoryGraph
from harness.errors import RecordError


def graph(*conversations):
    made = MemoryGraph()
    for name in conversations or ("conv-1",):
        made.add(name, tables(), f"run, {name}")
    return made


def test_counts_and_weights_by_hand():
    made = graph("conv-1", "conv-2")
    assert made.counts() == {name: 2 * count for name, count in COUNTS.items()}
    assert made.edges["RELATED"][0] == ("conv-1/note/0", "conv-1/note/2", 0.625)
    assert made.edges["CO_OCCURS"][:3] == [
        ("conv-1/keyword/0", "conv-1/keyword/1", 2.0),
        ("conv-1/keyword/0", "conv-1/keyword/2", 2.0),
        ("conv-1/keyword/1", "conv-1/keyword/2", 1.0),
    ]
    assert made.edges["IN_TOPIC"][2] == ("conv-1/keyword/2", "conv-1/topic/1", None)
    assert made.nodes["Keyword"][1]["notes"] == 2 and made.nodes["Topic"][0]["keywords"] == 2
    assert made.nodes["Note"][0]["raw"] == f"Ann: I have a kiln.\nBo: {CLEAN} [image: a kiln]"


def test_ids_do_not_collide_whatever_a_conversation_is_called():
    names = ["a", "a/note", "a%", "a%a;", "a\n", "a\x01f", "a\x1f", "ä", "\ud800"]
    made = graph(*names)
    ids = [row["id"] for rows in made.nodes.values() for row in rows]
    assert len(set(ids)) == len(ids) == 8 * len(names)
    assert all(re.fullmatch("[^\x00-\x1f\ud800-\udfff]+", id) for id in ids)


def test_characters_no_file_holds_are_replaced_and_counted():
    made = MemoryGraph()
    assert made.text(HOSTILE) == CLEAN and made.replaced == 2
    assert made.text("\ud83d \uffff \ufffe \x7f\x85\t\r") == "\ufffd \ufffd \ufffd \x7f\x85\t\n" and made.replaced == 5


def test_graphml_opens_again_with_all_it_had(tmp_path):
    made = graph("conv-1", "conv-2")
    read = networkx.read_graphml(graphml.write(made, tmp_path))
    assert not read.is_directed()
    found = [label for _, label in read.nodes(data="label")] + [kind for *_, kind in read.edges(data="type")]
    assert {name: found.count(name) for name in COUNTS} == made.counts()
    assert read.nodes["conv-2/note/0"] == {
        "label": "Note",
        "conversation": "conv-2",
        "number": 0,
        "date": "2023-05-08T13:56:00",
        "context": CLEAN,
        "raw": f"Ann: I have a kiln.\nBo: {CLEAN} [image: a kiln]",
        "dia_ids": "D1:1 D1:2",
        "speakers": "Ann; Bo",
        "turns": 2,
    }
    assert "context" not in read.nodes["conv-1/note/1"]
    assert read.edges["conv-1/note/2", "conv-1/note/0"] == {"type": "RELATED", "weight": 0.625}
    assert read.edges["conv-1/note/0", "conv-1/keyword/1"] == {"type": "HAS_KEYWORD"}
    written = graphml.build(made)
    assert dict(read.nodes(data=True)) == dict(written.nodes(data=True)) and read.adj == written.adj


def read_csv(folder, name):
    """Header fields and rows, as an RFC 4180 reader sees them."""
    with (folder / f"{name}_header.csv").open(newline="") as handle:
        (header,) = csv.reader(handle)
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as handle:
        return header, list(csv.reader(handle, strict=True))


def test_neo4j_files_hold_all_rows_and_texts(tmp_path):
    made = graph("conv-1", "conv-2")
    neo4j.write(made, tmp_path)
    for name, count in made.counts().items():
        stem = f"{'nodes' if name in made.nodes else 'relationships'}_{name.lower()}"
        header, rows = read_csv(tmp_path, stem)
        assert len(rows) == count and {len(row) for row in rows} == {len(header)}
        assert {row[-1] for row in rows} == {name}
    header, rows = read_csv(tmp_path, "nodes_note")
    assert header == [
        "id:ID(Note)", "conversation:string", "number:int", "date:localdatetime", "context:string", "raw:string",
        "dia_ids:string[]", "speakers:string[]", "turns:int", ":LABEL",
    ]  # fmt: skip
    first = dict(zip(header, rows[0], strict=True))
    assert first["context:string"] == CLEAN
    assert first["dia_ids:string[]"].split("\x1f") == ["D1:1", "D1:2"]
    assert first["speakers:string[]"] == "Ann\x1fBo"
    header, rows = read_csv(tmp_path, "relationships_related")
    assert header == [":START_ID(Note)", "weight:double", ":END_ID(Note)", ":TYPE"]
    assert rows[0] == ["conv-1/note/0", "0.625", "conv-1/note/2", "RELATED"]
    header, _ = read_csv(tmp_path, "relationships_in_topic")
    assert header == [":START_ID(Keyword)", ":END_ID(Topic)", ":TYPE"]


def test_neo4j_relationships_start_and_end_at_nodes_of_their_groups(tmp_path):
    neo4j.write(graph("conv-1", "conv-2"), tmp_path)
    ids = {}
    for path in tmp_path.glob("nodes_*_header.csv"):
        header, rows = read_csv(tmp_path, path.name.removesuffix("_header.csv"))
        group = re.fullmatch(r"id:ID\((\w+)\)", header[0])[1]
        ids[group] = {row[0] for row in rows}
        assert len(ids[group]) == len(rows)
    for path in tmp_path.glob("relationships_*_header.csv"):
        header, rows = read_csv(tmp_path, path.name.removesuffix("_header.csv"))
        for place, field in enumerate(header):
            if ends := re.fullmatch(r":(?:START|END)_ID\((\w+)\)", field):
                assert {row[place] for row in rows} <= ids[ends[1]]


def test_neo4j_quoting_to_the_letter(tmp_path):
    """Inner quotes doubled, backslashes plain, an empty text quoted, an empty array nothing, numbers bare."""
    made = MemoryGraph()
    made.add("c", tables() | {"notes": [note(0, [], 'a "b"\\\n', []), *tables()["notes"][1:]]}, "run")
    neo4j.write(made, tmp_path)
    text = (tmp_path / "nodes_note.csv").read_bytes().decode()
    assert text.startswith('"c/note/0","c",0,"2023-05-08T13:56:00","a ""b""\\\n","",,,0,"Note"\n"c/note/1"')
    assert "\r" not in text


def test_the_two_commands(tmp_path):
    load, make = neo4j.commands(neo4j.write(graph(), tmp_path))
    words = load.split()
    assert words[:5] == ["neo4j-admin", "database", "import", "full", "memfly"]
    assert "--multiline-fields=true" in words and "--array-delimiter=U+001F" in words
    assert "--nodes=nodes_note_header.csv,nodes_note.csv" in words
    named = [name for word in words if word.startswith(("--nodes=", "--relationships=")) for name in word.partition("=")[2].split(",")]  # fmt: skip
    assert sorted(named) == sorted(path.name for path in tmp_path.iterdir())
    assert make == 'cypher-shell -d system "CREATE DATABASE memfly"'


def test_an_empty_memory_is_an_empty_graph(tmp_path):
    made = MemoryGraph()
    made.add("c", {"notes": [], "keywords": [], "topics": [], "edges": []}, "run")
    assert set(made.counts().values()) == {0}
    assert len(networkx.read_graphml(graphml.write(made, tmp_path))) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edges": [{"source": 0, "target": 9, "weight": 1.0}]}, r"^rag, c: tables that do not fit together \(KeyError\(9\)\)"),
        ({"topics": [{"id": 0, "keywords": ["sea"]}]}, r"fit together \(KeyError\('sea'\)\)"),
        ({"notes": [note(0, [turn("D1:1", "A", "x")], "x", [])] * 2}, "two note rows have one id"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_are_one_line(changes, message):
    with pytest.raises(RecordError, match=message):
        MemoryGraph().add("c", tables() | changes, "rag, c")


def test_another_systems_tables_are_named():
    with pytest.raises(
        RecordError, match=r"^r, c: .* its tables are units; a graph needs notes, keywords, topics, edges"
    ):
        MemoryGraph().add("c", {"units": []}, "r, c")


def test_a_folder_is_whole_or_absent(tmp_path):
    target = tmp_path / "deep" / "out"
    with pytest.raises(RuntimeError), new_folder(target) as folder:
        (folder / "x").write_text("half")
        raise RuntimeError
    assert list(target.parent.iterdir()) == []
    with new_folder(target) as folder:
        (folder / "x").write_text("whole")
    assert [path.name for path in target.parent.rglob("*")] == ["out", "x"]
    with pytest.raises(RecordError, match="holds something already"), new_folder(target):
        pass
