"""Mem0 by its own package: opt-in, where mem0ai is installed (make setup-mem0)."""

import asyncio
import importlib.util
import re
import socket
from datetime import date

import pytest
from baseline_fakes import UNUSABLE, FakeChat, TableEmbedder, ask, build, conversation, services

from baselines.mem0 import Mem0, Mem0Config
from harness.errors import ConfigError, EndpointError
from harness.llm.types import Meter

# Not importorskip: the package must not be imported before its telemetry is off.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mem0") is None, reason="mem0ai is not installed: make setup-mem0"
)

CONFIG = Mem0Config(impl="official")
AXES = TableEmbedder({"kiln": [1, 0, 0], "boat": [0, 1, 0], "tea": [0, 0, 1]}, dim=3)
TALK = conversation(["I have a kiln.", "Nice."], ["I sold the kiln.", "Good."])


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Whatever opens a connection, or asks for an address, fails the test."""

    def refused(*args, **kwargs):
        raise AssertionError(f"a connection was tried: {args[1:]}")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)


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
    assert '<other date="13:56 on 8 May 2023">Ben: Nice.</other>' in chat.asked("mem0_official_facts")[0]


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
