"""scripts/endpoint.py: the stand-in over HTTP."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from harness.llm.scripted import reply_for
from harness.llm.tokens import estimate

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

    def start(latency):
        process = subprocess.Popen(
            [sys.executable, "scripts/endpoint.py", "--latency", str(latency)],
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "not a loopback address"),
        (["--host", "example.org"], "not a loopback address"),
        (["--latency", "-1"], "between 0 and 3600"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    done = subprocess.run(
        [sys.executable, "scripts/endpoint.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""
