"""scripts/endpoint.py: the stand-in over HTTP, sound and failing."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest
from fault_bench import served

from harness.llm.retry import retry_after_seconds
from harness.llm.scripted import reply_for
from harness.llm.tokens import estimate
from scripts.faults import KINDS, OF_FORM, Faults, Settings

ROOT = Path(__file__).resolve().parents[2]

SCHEMA = {
    "type": "object",
    "properties": {"names": {"type": "array", "x-scripted": {"rule": "keywords", "tag": "turn", "max": 4}}},
    "required": ["names"],
}


def body(text, schema=SCHEMA):
    shape = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], "response_format": shape}


@pytest.fixture
def endpoint():
    """Start the endpoint with a latency; its root URL."""
    started = []

    def start(latency, *options):
        process = subprocess.Popen(
            [sys.executable, "scripts/endpoint.py", "--latency", str(latency), *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        first = process.stdout.readline()
        assert first.startswith("listening on http://127.0.0.1:") and first.endswith("/v1\n")
        return first.split()[-1].removesuffix("/v1")

    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stdout.close()


async def send(session, root, content):
    async with session.post(f"{root}/v1/chat/completions", json=content) as response:
        return response.status, await response.json()


async def get(session, root, path):
    async with session.get(f"{root}{path}") as response:
        return await response.json()


def test_replies_usage_errors_and_counts(endpoint):
    text = "<turn>Ann swam in the lake with Bob</turn>"

    async def go():
        root = endpoint(0)
        async with aiohttp.ClientSession() as session:
            good = await send(session, root, body(text))
            plain = await send(session, root, {"messages": [{"role": "user", "content": "no tags"}]})
            bad = [await send(session, root, wrong) for wrong in ({}, [], {"messages": [{"role": "user"}]})]
            pages = [await get(session, root, path) for path in ("/health", "/v1/models", "/stats")]
            return good, plain, bad, pages

    (status, reply), (_, plain), bad, (health, models, stats) = asyncio.run(go())
    content = reply["choices"][0]["message"]["content"]
    assert status == 200 and reply["choices"][0]["finish_reason"] == "stop"
    assert json.loads(content) == {"names": ["Ann", "Bob", "swam", "lake"]}
    assert content == reply_for([{"role": "user", "content": text}], SCHEMA)
    prompt, completion = estimate(text), estimate(content)
    wanted = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    assert reply["usage"] == wanted
    assert plain["choices"][0]["message"]["content"] == reply_for([{"role": "user", "content": "no tags"}], None)
    assert [code for code, _ in bad] == [400, 400, 400]
    assert health == {"status": "ok"} and models["data"][0]["id"] == "scripted"
    assert (stats["calls"], stats["errors"], stats["in_flight"], stats["max_in_flight"]) == (2, 3, 0, 1)


def test_sixty_four_at_once(endpoint):
    async def go():
        root = endpoint(0.3)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            replies = await asyncio.gather(
                *(send(session, root, body(f"<turn>Ann met Guest{i}</turn>")) for i in range(64))
            )
            return replies, await get(session, root, "/stats")

    replies, stats = asyncio.run(go())
    names = [json.loads(reply["choices"][0]["message"]["content"])["names"] for _, reply in replies]
    assert names == [["Ann", f"Guest{i}", "met"] for i in range(64)]
    assert stats["calls"] == 64 and stats["max_in_flight"] > 1
    assert stats["latency_sum_s"] >= 64 * 0.3


FAULTS = ("--faults", "1", "--retry-after", "3", "--hang", "0.05", "--drip", "0.02", "--kinds")
TEXT = "<turn>Ann swam in the lake with Bob</turn>"
SOUND = reply_for([{"role": "user", "content": TEXT}], SCHEMA)


async def met(root, content):
    """What a client without any patience sees: status, headers, body; or the error of the connection."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.post(f"{root}/v1/chat/completions", json=content) as response:
                return response.status, response.headers, await response.text()
        except aiohttp.ClientError as error:
            return type(error).__name__, None, ""


def said(text):
    (choice,) = json.loads(text)["choices"]
    return choice["message"]["content"], choice["finish_reason"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("429", lambda s, h, t: s == 429 and h["Retry-After"] == "3"),
        ("429_date", lambda s, h, t: s == 429 and 0 < retry_after_seconds(h["Retry-After"], time.time()) <= 3),
        ("500", lambda s, h, t: s == 500 and "internal" in t),
        ("502", lambda s, h, t: s == 502 and h["Content-Type"].startswith("text/html")),
        ("503", lambda s, h, t: s == 503),
        ("reset", lambda s, h, t: s == "ClientPayloadError"),
        ("hang", lambda s, h, t: s == "ServerDisconnectedError"),
        ("stall", lambda s, h, t: s == "ClientPayloadError"),
        ("drip", lambda s, h, t: said(t) == (SOUND, "stop")),
        ("empty_choices", lambda s, h, t: s == 200 and json.loads(t)["choices"] == []),
        ("content_type", lambda s, h, t: h["Content-Type"].startswith("text/plain") and said(t) == (SOUND, "stop")),
        ("invalid_json", lambda s, h, t: s == 200 and t.startswith('{"id": "chatcmpl') and not t.endswith("}")),
        ("null_content", lambda s, h, t: said(t) == (None, "stop")),
        ("length", lambda s, h, t: said(t) == ("<think>First I look at", "length")),
        ("think", lambda s, h, t: said(t)[0].startswith("<think>") and said(t)[0].endswith(f"</think>\n{SOUND}")),
        ("invalid_reply", lambda s, h, t: said(t) == ("Sure, here it comes:", "stop")),
        ("invalid_schema", lambda s, h, t: json.loads(said(t)[0]) == {"unexpected": {"form": None}}),
        ("refusal", lambda s, h, t: said(t)[0] is None and "cannot help" in t),
        ("cut", lambda s, h, t: said(t) == (SOUND[: len(SOUND) // 2], "length")),
        ("refused", lambda s, h, t: s == 400 and json.loads(t)["error"]["code"] == "content_filter"),
    ],
)
def test_every_kind_of_fault(kind, expected, faulty):
    status, headers, text = asyncio.run(met(faulty(kind), body(TEXT)))
    assert expected(status, headers, text), (status, headers, text)


@pytest.fixture
def faulty():
    with contextlib.ExitStack() as stack:
        yield lambda kind: stack.enter_context(
            served(Settings(1.0, 0, (kind,), retry_after_s=3, hang_s=0.05, drip_s=0.02))
        ).removesuffix("/v1")


def test_every_kind_is_tried_here():
    (mark,) = test_every_kind_of_fault.pytestmark
    assert {kind for kind, _ in mark.args[1]} == set(KINDS)


def test_faults_of_form_spare_requests_without_one(faulty):
    plain = {"model": "scripted", "messages": [{"role": "user", "content": TEXT}]}
    for kind in OF_FORM:
        status, _, text = asyncio.run(met(faulty(kind), plain))
        assert status == 200 and said(text) == (reply_for(plain["messages"], None), "stop")


def test_a_request_meets_its_own_faults_whatever_came_between():
    def drawn(bodies, seed=4):
        faults = Faults(Settings(0.5, seed, ("500", "503")))
        return [(one, faults._pick(one)) for one in bodies]

    one, two = b'{"a": 1}', b'{"a": 2}'
    apart = drawn([one] * 40), drawn([two] * 40)
    mixed = drawn([one, two] * 40)
    assert [pair for pair in mixed if pair[0] == one] == apart[0]
    assert [pair for pair in mixed if pair[0] == two] == apart[1]
    assert [kind for _, kind in apart[0]] != [kind for _, kind in apart[1]]
    assert drawn([one] * 40, seed=5) != apart[0]
    many = [kind for _, kind in drawn([b'{"n": %d}' % number for number in range(4000)])]
    assert 1800 < 4000 - many.count(None) < 2200 and 800 < many.count("503") < 1200


def test_the_options_reach_the_endpoint(endpoint):
    async def go():
        root = endpoint(0, *FAULTS, "429")
        status, headers, _ = await met(root, body(TEXT))
        down = endpoint(0, "--down-after", "1")
        statuses = [(await met(down, body(TEXT)))[0] for _ in range(3)]
        async with aiohttp.ClientSession() as session:
            return status, headers["Retry-After"], await get(session, root, "/stats"), statuses

    status, wait, stats, statuses = asyncio.run(go())
    assert (status, wait, stats["faults"]) == (429, "3", {"429": 1})
    assert statuses == [200, 500, 500]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "not a loopback address"),
        (["--host", "example.org"], "not a loopback address"),
        (["--latency", "-1"], "between 0 and 3600"),
        (["--faults", "1.5"], "between 0 and 1"),
        (["--kinds", "meteorite"], "invalid choice"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    done = subprocess.run(
        [sys.executable, "scripts/endpoint.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""
