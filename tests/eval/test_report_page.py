import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from report_fakes import ATTRIBUTE, HOSTILE, SCRIPT, hostile_collection, plain_collection
from run_folders import record, write_run

from eval.collection import load_runs
from eval.report import write_report
from eval.report.pack import Chunk, unpack
from eval.report.write import ASSETS, SCRIPTS
from harness.errors import RecordError


class Page(HTMLParser):
    """The page's elements as a browser's tokenizer finds them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.chunks = [], [], {}
        self._script = None
        self.script = self.style = ""
        self._in = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._in = (tag, dict(attrs))

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in and self._in[0] == "script":
            kind = self._in[1]["type"]
            if kind == "module":
                self.script += data
            else:
                self.chunks[self._in[1]["id"].removeprefix("chunk-")] = data
        elif self._in and self._in[0] == "style":
            self.style += data
        else:
            self.texts.append(data)

    def chunk(self, name):
        return unpack(Chunk(name, self.chunks[name], 0))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    root = tmp_path_factory.mktemp("plain")
    write_report(load_runs(plain_collection(root / "runs")), root / "report.html")
    return root


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    write_report(load_runs(hostile_collection(root / "runs")), root / "report.html")
    return (root / "report.html").read_text(encoding="utf-8")


def page_of(root):
    return (root / "report.html").read_text(encoding="utf-8")


def test_the_page_loads_nothing_and_runs_only_its_own_script(plain):
    text = page_of(plain)
    page = Page(text)
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    for kind, source in (("script-src", page.script), ("style-src", page.style)):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy
    assert "unsafe" not in policy and "connect-src" not in policy
    for tag, attributes in page.elements:
        assert "src" not in attributes, tag
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
        assert attributes.get("href", "#").startswith("#") or attributes["href"] == "data:,"
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)
    scripts = [a for tag, a in page.elements if tag == "script"]
    assert [a["type"] for a in scripts].count("module") == 1
    assert {a["type"] for a in scripts} == {"module", "application/octet-stream"}


def test_own_scripts_never_make_markup_of_text():
    for name in SCRIPTS:
        source = (ASSETS / name).read_text(encoding="utf-8")
        assert "</" not in source, name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in source, name


def test_the_same_runs_give_the_same_page(plain, tmp_path):
    write_report(load_runs([plain / "runs"]), tmp_path / "again.html")
    write_report(load_runs([plain / "runs"]), tmp_path / "third.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "third.html").read_bytes()


def test_tables_figures_and_data_are_all_there(plain):
    page = Page(page_of(plain))
    words = " ".join(page.texts)
    for said in ("memfly-no_link", "protocol amem", "sha256 dddddddddddd", "F1 (A-MEM) by category", "first k distinct turns",
                 "What became of each turn", "Growth of the memory: topics", "Settings that differ", "tau_merge"):  # fmt: skip
        assert said in words, said
    index = page.chunk("index")
    assert [run["name"] for run in index["runs"]] == ["memfly", "memfly-no_link", "rag"]
    assert [run["memories"] for run in index["runs"]] == [["s1", "s2"], ["s1", "s2"], []]
    assert [run["n"] for run in index["runs"]] == [120, 120, 120]
    assert len(index["questions"]["question"]) == 120
    assert page.chunk("pieces")["turns"]["s1"] == {"D1:1": "Ann: said D1:1"}  # the turn, not the evidence's text
    assert len(page.chunk("pieces")["text"]) == 2  # once for three runs
    memory = page.chunk("memory-1-0")
    assert page.chunk("texts-0")[memory["notes"]["text"][1]] == "Ben nodded"
    assert set(page.chunks) >= {f"{kind}-{run}" for kind in ("rows", "detail") for run in range(3)}


def test_hostile_text_is_text_everywhere(hostile):
    page = Page(hostile)
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object")]
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes), tag
    assert len([tag for tag, _ in page.elements if tag == "script"]) == len(page.chunks) + 1
    # What was given arrives unchanged where it is shown.
    questions = page.chunk("index")["questions"]
    assert set(HOSTILE) <= set(questions["question"]) and set(HOSTILE) <= set(questions["gold"])
    assert SCRIPT in questions["sample"]
    assert page.chunk("rows-0")["answer"].count(SCRIPT) >= 2
    assert SCRIPT in [error["message"] for error in page.chunk("detail-0")["error"] if error]
    assert any(ATTRIBUTE in text for text in page.texts)  # a system's name, in the tables


def test_an_unfinished_run_is_named_not_shown(tmp_path):
    write_run(tmp_path / "runs" / "done", [record("s1", 0, 1, f1=0.5)])
    write_run(tmp_path / "runs" / "going", [record("s1", 0, 1)], memory="rag", state="stopped", metrics=False)
    write_report(load_runs([tmp_path / "runs"]), tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert [run["name"] for run in page.chunk("index")["runs"]] == ["memfly"]
    assert any("rag" in text and "stopped" in text for text in page.texts)


def test_errors_are_one_line_and_leave_nothing(tmp_path):
    folder = write_run(tmp_path / "runs" / "going", [record("s1", 0, 1)], state="stopped", metrics=False)
    with pytest.raises(RecordError, match=r"no complete run to report on"):
        write_report(load_runs([folder]), tmp_path / "report.html")
    done = write_run(tmp_path / "runs" / "done", [record("s1", 0, 1)])
    (done / "answers.jsonl").write_text(json.dumps(record("s1", 0, 1)) + "\n{broken\n")
    with pytest.raises(RecordError, match=r"answers\.jsonl:2: not a record"):
        write_report(load_runs([done]), tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
