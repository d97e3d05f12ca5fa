"""Keys are planted in the environment, an endpoint sends back what it gets, and nothing that a run leaves holds one: no
record, cache, log, table, report or export, and not the screen. Addresses with a password are refused before anything is
written."""

import asyncio
import base64
import contextlib
import json
import sqlite3
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from urllib.parse import quote

import pandas
import pytest
from aiohttp import web

from harness import private
from scripts.endpoint import complete

ROOT = Path(__file__).resolve().parent.parent
KEY = "mf/planted+backbone=7f3ad91c"
PLANTED = {
    "MY_HOSTS_KEY": KEY,
    "OPENAI_API_KEY": "sk-planted-openai-55d0a7",
    "WANDB_API_KEY": "planted0wandb0" + "9e" * 13,
    "HF_TOKEN": "hf_plantedHuggingFace0b81",
    "VLLM_API_KEY": "planted-vllm-e41f22",
    "http_proxy": "http://proxyuser:planted-proxy-3c99@127.0.0.1:9",
    "https_proxy": "http://proxyuser:planted-proxy-3c99@127.0.0.1:9",
}
SECRETS = {value.removeprefix("http://proxyuser:").removesuffix("@127.0.0.1:9") for value in PLANTED.values()}
QUICK = ("embedder=hashing", "dataset.max_turns=14", "dataset.max_questions=5", "run.max_error_rate=1")
STAND_IN = ("backbone=scripted", "backbone.api_key_env=MY_HOSTS_KEY")


def forms(secret):
    """A secret as bytes: plain, in an address, and within base64 at each of the three places it can begin at."""
    inside = [base64.b64encode(b" " * at + secret.encode())[4 if at else 0 : -4] for at in range(3)]
    return {secret.encode(), quote(secret, safe="").encode(), *inside}


def told(file):
    """Everything a file says: its bytes, what a database says row by row, what a report or a table packs."""
    yield file.read_bytes()
    if file.suffix == ".sqlite":
        with contextlib.closing(sqlite3.connect(file)) as db:
            yield "\n".join(db.iterdump()).encode()
    if file.suffix == ".parquet":
        yield pandas.read_parquet(file).to_json().encode().replace(b"\\/", b"/")
    if file.suffix == ".html":
        for chunk in file.read_text().split('<script type="application/octet-stream"')[1:]:
            yield zlib.decompress(
                base64.b64decode(chunk.partition(">")[2].partition("<")[0]), wbits=zlib.MAX_WBITS | 32
            )


def holders(root, secrets=SECRETS):
    """Files that hold a secret."""
    wanted = set().union(*map(forms, secrets))
    found = []
    for file in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a temporary file that has got its name meanwhile
            if file.is_file() and any(form in text for text in told(file) for form in wanted):
                found.append(file)
    return found


def echoing(text, said):
    """A reply's text, or each text in its JSON object, with the echo behind it."""
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        return f"{text} ({said})"
    return json.dumps(
        {name: f"{value} ({said})" if isinstance(value, str) else value for name, value in fields.items()}
    )


class Echo:
    """The stand-in's endpoint, which says in every reply, header and error what it was sent. `seen`: the keys.
    `at`: called with each request's number; a response it returns is sent in place of the reply."""

    def __init__(self, at=lambda number, said: None):
        self.seen = []
        self.at = at

    async def chat(self, request):
        key = request.headers["Authorization"].removeprefix("Bearer ")
        self.seen.append(key)
        said = f"you sent Authorization: Bearer {key}, which is {key} or {quote(key, safe='')}"
        headers = {"X-Echo": said, "Set-Cookie": f"key={key}", "X-Request-Id": key}
        if (other := self.at(len(self.seen), said)) is not None:
            other.headers.update(headers)
            return other
        body = await request.json()
        reply = complete(body, number=1) | {"id": key, "model": key, "system_fingerprint": key, "echo": said}
        message = reply["choices"][0]["message"]
        message["reasoning_content"] = said
        message["content"] = echoing(message["content"], said)
        return web.json_response(reply, headers=headers)


@contextlib.contextmanager
def serving(echo):
    """The endpoint in a thread of its own; its base URL."""
    started, ready = threading.Event(), []

    async def serve():
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/v1/chat/completions", echo.chat)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        stop = asyncio.Event()
        ready.extend((runner.addresses[0][1], asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(30)
    port, loop, stop = ready
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def on_screen(*done):
    text = "".join(one.stdout + one.stderr for one in done).encode()
    return [form for secret in SECRETS for form in forms(secret) if form in text]


def refusal(status, said, **headers):
    return web.json_response({"error": {"message": said, "code": said, "param": said}}, status=status, headers=headers)


def test_the_search_finds_what_it_looks_for(tmp_path):
    places = {
        "plain.jsonl": KEY.encode(),
        "address.log": b"/v1?key=mf%2Fplanted%2Bbackbone%3D7f3ad91c",
        "header.txt": base64.b64encode(b"user:" + KEY.encode()),
        "page.html": b'<script type="application/octet-stream" id="a">'
        + base64.b64encode(zlib.compress(KEY.encode()))
        + b"</script>",
    }
    for name, content in places.items():
        (tmp_path / name).write_bytes(content)
    with contextlib.closing(sqlite3.connect(tmp_path / "cache.sqlite")) as db:
        db.execute("CREATE TABLE t (a TEXT)")
        db.execute("INSERT INTO t VALUES (?)", ("x" * 4000 + KEY + "x" * 4000,))
        db.commit()
    pandas.DataFrame({"a": [KEY] * 9}).to_parquet(tmp_path / "table.parquet")
    (tmp_path / "clean.txt").write_text("[key]")
    assert {file.name for file in holders(tmp_path, {KEY})} == {*places, "cache.sqlite", "table.parquet"}


def test_nothing_a_run_leaves_holds_a_key(run_door, tmp_path):
    """Some requests are refused at first, some for good; while the run goes on its files are looked at as well."""
    meanwhile = []

    def at(number, said):
        if number == 40:
            meanwhile.extend(holders(tmp_path))
            meanwhile.append(sorted(file.name for file in (tmp_path / "cache").iterdir()))
        if number in (2, 45):
            return refusal(500, said)
        if number == 3:
            return refusal(429, said, **{"Retry-After": KEY})
        return refusal(400, said) if number % 9 == 4 else None

    echo = Echo(at)
    with serving(echo) as url:
        done = run_door("memory=memfly", *STAND_IN, *QUICK, f"backbone.base_url={url}", env=PLANTED, check=0)
    assert set(echo.seen) == {KEY} and len(echo.seen) > 60
    (files,) = meanwhile
    assert "replies.sqlite-wal" in files

    (folder,) = (tmp_path / "runs").glob("[!.]*")
    records = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert any("[key]" in (record["reply"] or "") for record in records)  # the echo reached the records
    refused = [record["error"]["message"] for record in records if record["error"]]
    assert refused and all("answered 400" in message and "[key]" in message for message in refused)

    def script(*arguments):
        bare = [sys.executable, *arguments]
        return subprocess.run(bare, cwd=ROOT, env=None, capture_output=True, text=True, check=True)

    out = tmp_path / "out"
    made = [
        script("scripts/collect.py", str(folder), "--out", f"{out}/tables", "--report", f"{out}/report.html"),
        script("scripts/export_answers.py", str(folder), "--out", f"{out}/answers", "--format", "both"),
        script("scripts/export_graph.py", str(folder), "--format", "graphml", "--out", f"{out}/graph"),
        script("scripts/export_graph.py", str(folder), "--format", "neo4j", "--out", f"{out}/neo4j"),
    ]
    names = {
        "tables.md",
        "tables.csv",
        "tables.tex",
        "report.html",
        "answers.parquet",
        "memory.graphml",
        "nodes_note.csv",
    }
    assert names <= {file.name for file in out.rglob("*")}
    assert holders(tmp_path) == [] and on_screen(done, *made) == []


def test_a_hosted_backbones_own_variable_and_a_sweep(run_door, tmp_path):
    echo = Echo()
    hosted = ("backbone=gpt-4o-mini", "memory=rag,locomo", "run.assume_yes=true")
    with serving(echo) as url:
        done = run_door("-m", *hosted, *QUICK, f"backbone.base_url={url}", env=PLANTED, check=0)
    assert set(echo.seen) == {PLANTED["OPENAI_API_KEY"]}
    assert len(list(tmp_path.glob("runs/*/metrics.json"))) == 2 and (tmp_path / "sweep" / "runs.json").is_file()
    assert holders(tmp_path) == [] and on_screen(done) == []


@pytest.mark.parametrize("how", ["refused", "broken", "redirected", "no_http"])
def test_a_run_that_an_endpoint_stops_tells_no_key(run_door, tmp_path, how):
    def at(number, said):
        if how == "refused":
            return refusal(401, said)
        if how == "redirected":
            return web.Response(
                status=307, headers={"Location": f"http://user:{quote(KEY, safe='')}@127.0.0.1:1/{KEY}"}
            )
        if how == "no_http":
            return web.Response(status=500, reason=said)
        return web.Response(text=said, content_type="application/json")

    once = ("backbone.retries=0", "backbone.timeout_s=20", f"cache.path={tmp_path}/cache")
    with serving(Echo(at)) as url:
        done = run_door("memory=rag", *STAND_IN, *QUICK, *once, f"backbone.base_url={url}", env=PLANTED)
    assert "Traceback" not in done.stderr
    assert holders(tmp_path) == [] and on_screen(done) == []
    (status,) = tmp_path.glob("runs/*/status.json")
    assert json.loads(status.read_text())["state"] in ("stopped", "failed", "finished")


@pytest.mark.parametrize("sweep", [(), ("-m", "seed=0,1")], ids=["run", "sweep"])
def test_a_key_on_the_command_line_is_refused_and_reaches_no_file(run_door, tmp_path, sweep):
    done = run_door(*sweep, *QUICK, f"backbone.base_url=http://user:{KEY}@127.0.0.1:1/v1", check=2)
    assert done.stderr == f"run.py: {private.ADDRESS}\n" and done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_the_environment_puts_into_an_address_is_refused(run_door, tmp_path):
    env = {"ADDRESS": f"http://user:{KEY}@127.0.0.1:1/v1"}
    for sweep in ((), ("-m",)):
        done = run_door(*sweep, *STAND_IN, *QUICK, "backbone.base_url=${oc.env:ADDRESS}", env=env | PLANTED, check=2)
        assert private.ADDRESS in done.stderr and "Traceback" not in done.stderr
        assert on_screen(done) == [] and holders(tmp_path) == []
        assert not list(tmp_path.glob("runs/*"))
