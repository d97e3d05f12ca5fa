"""Mem0 by its own package: opt-in, where mem0ai is installed (make setup-mem0)."""

import asyncio
import importlib.util
import re
import signal
import socket
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from baseline_fakes import UNUSABLE, FakeChat, TableEmbedder, ask, build, conversation, services

from baselines.mem0 import Mem0, Mem0Config
from harness.embed import build_embedder
from harness.errors import ConfigError, EndpointError
from harness.llm.build import build_chat
from harness.llm.cache import ReplyCache
from harness.llm.types import Meter
from harness.memory import Query
from harness.spec import BackboneSpec, EmbedderSpec

# Not importorskip: the package must not be imported before its telemetry is off.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mem0") is None, reason="mem0ai is not installed: make setup-mem0"
)

CONFIG = Mem0Config(impl="official")
AXES = TableEmbedder({"kiln": [1, 0, 0], "boat": [0, 1, 0], "tea": [0, 0, 1]}, dim=3)
TALK = conversation(["I have a kiln.", "Nice."], ["I sold the kiln.", "Good."])


class Guard:
    """Sees every connection and every address that is asked for, by the interpreter's own audit events, and refuses all
    but one port of the loopback address. What was tried is kept: the package may swallow the refusal."""

    def __init__(self):
        self.on, self.port, self.tried, self.let_through = False, None, [], 0
        sys.addaudithook(self.see)

    def see(self, event, args):
        if not self.on or event not in (
            "socket.connect",
            "socket.sendto",
            "socket.getaddrinfo",
            "socket.gethostbyname",
        ):
            return
        address = args[1] if event in ("socket.connect", "socket.sendto") else args[:2]
        if self.port is not None and tuple(address[:2]) == ("127.0.0.1", self.port):
            self.let_through += 1
            return
        self.tried.append((event, address))
        raise ConnectionRefusedError(f"{event} {address}: no connection in this test")


GUARD = Guard()


@pytest.fixture(autouse=True)
def no_network():
    GUARD.on, GUARD.port, GUARD.tried, GUARD.let_through = True, None, [], 0
    yield GUARD
    GUARD.on = False
    assert GUARD.tried == []


def by_extraction(**facts):
    """Facts of a batch by a word of the lines marked as the store's own."""

    def reply(text):
        own = " ".join(re.findall(r"<message[^>]*>(.*?)</message>", text))
        return {"facts": [one for word, given in facts.items() if word in own for one in given]}

    return reply


def actions(*replies):
    left = list(replies)
    return lambda text: {"memory": [{"old_memory": None, **one} for one in left.pop(0)]}


KILN = by_extraction(have=["Ann has a kiln"], sold=["Ann sold the kiln"])


def add(text):
    return {"id": "0", "text": text, "event": "ADD"}


def changed(event, text, id="0"):
    return [{"id": id, "text": text, "event": event}]


def texts(system):
    return [(row["owner"], row["text"], row["dia_ids"], row["deleted"]) for row in system.export()["memories"]]


def run(second, **more):
    chat = FakeChat({"mem0_official_facts": KILN, "mem0_official_update": actions([add("Ann has a kiln")], second)})
    return build(Mem0, CONFIG, TALK, chat, AXES, **more), chat


def test_update_keeps_provenance_and_delete_removes():
    system, chat = run(changed("UPDATE", "Ann sold her kiln"))
    assert texts(system) == [("Ann", "Ann sold her kiln", ["D1:1", "D1:2", "D2:1", "D2:2"], False)]
    evidence, meter = ask(system, "kiln")
    assert [item.dia_ids for item in evidence.items] == [("D1:1", "D1:2", "D2:1", "D2:2")] and meter.calls == 0
    assert evidence.context == "What is remembered of Ann:\n[13:56 on 9 May 2023] Ann sold her kiln"
    # two extractions per pair (one a store), updates where there are facts
    assert len(chat.asked("mem0_official_facts")) == 4 and len(chat.asked("mem0_official_update")) == 2
    system, _ = run(changed("DELETE", "Ann has a kiln"))
    assert texts(system) == [("Ann", "Ann has a kiln", ["D1:1", "D1:2"], True)]
    assert ask(system, "kiln")[0].items == () and system.stats().extra["deletes"] == 1


def test_none_changes_nothing_and_what_the_package_ignores_is_counted():
    system, _ = run(changed("NONE", "Ann has a kiln"))
    assert texts(system) == [("Ann", "Ann has a kiln", ["D1:1", "D1:2"], False)]
    meter = Meter()
    system, _ = run(changed("UPDATE", "x", id="9"), meter=meter)
    assert len(texts(system)) == 1 and meter.fallbacks == {"package_ignored": 1}


def test_dates_reach_extraction_and_today_does_not():
    _, chat = run(changed("NONE", ""))
    for prompt in chat.asked("mem0_official_facts"):
        assert re.search(r'date="13:56 on [89] May 2023"', prompt)
    assert not any(date.today().isoformat() in prompt for _, prompt in chat.sent)
    other = 'assistant: <other date="13:56 on 8 May 2023">Ben: Nice.</other>'
    assert sum(other in prompt for prompt in chat.asked("mem0_official_facts")) == 1


def test_errors_the_package_swallows_are_raised():
    broken = EndpointError("auth", "no key", fatal=True)
    for purpose in ("mem0_official_facts", "mem0_official_update"):
        replies = {"mem0_official_facts": KILN, purpose: broken}
        with pytest.raises(EndpointError, match="no key"):
            build(Mem0, CONFIG, TALK, FakeChat(replies), AXES)


def test_unusable_replies_are_counted():
    meter = Meter()
    build(Mem0, CONFIG, TALK, FakeChat({"mem0_official_facts": UNUSABLE}), AXES, meter=meter)
    assert meter.fallbacks == {"facts_none": 4}
    meter = Meter()
    replies = {"mem0_official_facts": KILN, "mem0_official_update": UNUSABLE}
    assert texts(build(Mem0, CONFIG, TALK, FakeChat(replies), AXES, meter=meter)) == []
    assert meter.fallbacks == {"update_none": 2}


def test_a_window_too_small_for_the_packages_prompts_is_one_line():
    with pytest.raises(ConfigError, match=r"backbone\.window is 600; give a backbone with a larger window"):
        build(Mem0, CONFIG, TALK, FakeChat({"mem0_official_facts": KILN}, window=600), AXES)


def test_the_stand_in_stores_every_message_once_in_its_speakers_store_or_in_one():
    system = build(Mem0, CONFIG, TALK, FakeChat(), AXES)
    assert [(owner, text) for owner, text, _, _ in texts(system)] == [
        ("Ann", "Ann: I have a kiln."), ("Ann", "Ann: I sold the kiln."), ("Ben", "Ben: Nice."), ("Ben", "Ben: Good."),
    ]  # fmt: skip
    one = build(Mem0, Mem0Config(impl="official", per_speaker=False), TALK, FakeChat(), AXES)
    assert [text for _, text, _, _ in texts(one)] == [
        "Ann: I have a kiln.", "Ben: Nice.", "Ann: I sold the kiln.", "Ben: Good.",
    ]  # fmt: skip


def test_a_run_that_is_interrupted_ends():
    async def main():
        chat = FakeChat({"mem0_official_facts": {"facts": []}})
        started = asyncio.Event()

        async def never(*args, **kwargs):
            started.set()
            await asyncio.Event().wait()

        chat.complete = never
        task = asyncio.create_task(Mem0(CONFIG, services(chat, AXES)).ingest(TALK))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(main(), 20))


def test_telemetry_is_off():
    build(Mem0, CONFIG, TALK, FakeChat(), AXES)
    from mem0.memory import telemetry

    assert telemetry.MEM0_TELEMETRY is False


def test_the_guard_sees_a_connection(no_network):
    with pytest.raises(ConnectionRefusedError), socket.socket() as one:
        one.connect(("192.0.2.1", 80))
    with pytest.raises(ConnectionRefusedError):
        socket.getaddrinfo("example.org", 443)
    assert [event for event, _ in no_network.tried] == ["socket.connect", "socket.getaddrinfo"]
    no_network.tried.clear()


@pytest.fixture
def endpoint():
    """The port of the stand-in's HTTP endpoint, in a process of its own."""
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen([sys.executable, "scripts/endpoint.py"], cwd=root, stdout=subprocess.PIPE, text=True)
    yield int(re.search(r"127\.0\.0\.1:(\d+)/v1", process.stdout.readline())[1])
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    process.stdout.close()


def test_a_whole_run_against_a_local_endpoint_opens_no_other_connection(no_network, endpoint, tmp_path):
    no_network.port = endpoint
    spec = BackboneSpec(
        name="scripted", kind="scripted", model="scripted", window=32768, base_url=f"http://127.0.0.1:{endpoint}/v1"
    )
    embedder = build_embedder(EmbedderSpec(name="h", kind="hashing", model="h", dim=64, max_tokens=256), tmp_path)
    meter = Meter()

    async def main():
        chat = build_chat(spec, ReplyCache(tmp_path, "use", "r"))
        system = Mem0(CONFIG, services(chat, embedder, meter=meter))
        await system.ingest(TALK)
        evidence = await system.recall(Query("q", "Who sold the kiln?", 4), Meter())
        await chat.aclose()
        await embedder.aclose()
        return evidence

    evidence = asyncio.run(main())
    assert len(evidence.items) == 4 and "Ann: I sold the kiln." in evidence.context
    # four extractions and four updates: every call went through the run's own client
    assert (meter.calls, meter.computed, meter.errors) == (8, 8, 0)
    assert no_network.let_through >= 1
