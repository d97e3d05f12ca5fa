"""ReadAgent: where pages end, what a look-up shows, every fallback by name, the plan's bounds."""

import asyncio
import re
from dataclasses import replace

import pytest
from baseline_fakes import UNUSABLE, FakeChat, ask, build, conversation, services

from baselines.readagent import ReadAgent, ReadAgentConfig, predict, reach
from harness.errors import EndpointError
from harness.memory import DataShape

SMALL = ReadAgentConfig(page_words=12, label_words=6, rest_words=7)
"""Turns of three words: a page grows to four turns, may end before the third, and two turns are a rest."""


def session(n, name="a"):
    """n turns of three words."""
    return [f"{name}{i} and so" for i in range(1, n + 1)]


def page_ids(system):
    return [[turn.dia_id for turn in page.turns] for page in system._pages]


def built(*sessions, config=SMALL, replies=None, **more):
    chat = FakeChat(
        {"readagent_gist": lambda text: {"gist": "gist of " + re.search(r": (\S+)", text)[1]}, **(replies or {})}
    )
    return build(ReadAgent, config, conversation(*sessions), chat, **more), chat


@pytest.mark.parametrize(
    ("words", "start", "end", "cuts", "last"),
    [
        # 600 are reached with the third turn; a cut stands where at least 280 words lie before it
        ([300, 200, 100, 50], 0, 3, (1, 2), False),
        ([279, 1, 320, 50], 0, 3, (2,), False),
        ([599, 1, 1], 0, 2, (1,), False),
        ([600, 1], 0, 1, (), False),
        ([5, 349], 1, 2, (), True),  # a rest below 350 is the last page and nobody is asked
        ([5, 350], 1, 2, (), False),
        ([200, 149], 0, 2, (), True),
        ([290, 60], 0, 2, (1,), False),
    ],
)
def test_how_far_a_page_may_go(words, start, end, cuts, last):
    got = reach(words, start, ReadAgentConfig())
    assert (got.end, got.cuts, got.last) == (end, cuts, last)


def test_the_model_names_the_break_among_numbered_marks():
    system, chat = built(session(7), replies={"readagent_paginate": {"cut": 1}})
    # From D1:1 four turns make 12 words; marks before the third and fourth turn and at the end. Mark 1: two turns.
    # From D1:3 four turns again (D1:3..6), mark 1: two turns. From D1:5 nine words: a mark before D1:7 and the end.
    # Mark 1 leaves D1:7 alone: three words, a rest below seven.
    assert page_ids(system) == [["D1:1", "D1:2"], ["D1:3", "D1:4"], ["D1:5", "D1:6"], ["D1:7"]]
    first = chat.asked("readagent_paginate")[0]
    assert re.findall(r"<cut>(\d)</cut>|(\w\d) and", first) == [
        ("", "a1"), ("", "a2"), ("1", ""), ("", "a3"), ("2", ""), ("", "a4"), ("3", ""),
    ]  # fmt: skip
    assert 'date="13:56 on 8 May 2023"' in first
    assert "a5" not in first
    assert len(chat.asked("readagent_paginate")) == 3
    assert len(chat.asked("readagent_gist")) == 4
    assert system.services.meter.calls == 7


def test_a_page_is_shortened_while_the_next_is_cut():
    chat = FakeChat({"readagent_paginate": {"cut": 1}, "readagent_gist": {"gist": "g"}}, latency=1)
    system = build(ReadAgent, SMALL, conversation(session(7)), chat)
    purposes = [purpose for purpose, _ in chat.sent]
    assert purposes.index("readagent_gist") < len(purposes) - 1 - purposes[::-1].index("readagent_paginate")
    assert [page.id for page in system._pages] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("reply", "fallback"),
    [({"cut": 0}, "cut_invalid"), ({"cut": 4}, "cut_invalid"), (UNUSABLE, "cut_last"), ({"cut": 3}, None)],
)
def test_an_invalid_break_means_the_last_one(reply, fallback):
    system, _ = built(session(6), replies={"readagent_paginate": reply})
    assert page_ids(system) == [["D1:1", "D1:2", "D1:3", "D1:4"], ["D1:5", "D1:6"]]
    assert system.services.meter.fallbacks == ({fallback: 1} if fallback else {})


def test_pages_do_not_cross_sessions_and_carry_their_date():
    system, chat = built(session(2), session(2, "b"))
    assert page_ids(system) == [["D1:1", "D1:2"], ["D2:1", "D2:2"]]
    assert chat.asked("readagent_paginate") == []
    evidence, _ = ask(system)
    assert "[13:56 on 8 May 2023] gist of a1" in evidence.context
    assert "[13:56 on 9 May 2023] gist of b1" in evidence.context


def test_a_missing_gist_is_the_beginning_of_the_page():
    system, _ = built([" ".join(f"w{i}" for i in range(150))], replies={"readagent_gist": UNUSABLE})
    assert system._pages[0].gist == "Ann: " + " ".join(f"w{i}" for i in range(99))
    assert system.services.meter.fallbacks == {"gist_raw": 1}
    system, _ = built(session(1), replies={"readagent_gist": {"gist": "  "}})
    assert system._pages[0].gist == "Ann: a1 and so"


THREE = (session(2), session(2, "b"), session(2, "c"))
CONTEXT = """[13:56 on 8 May 2023] gist of a1
[13:56 on 9 May 2023]
Ann: b1 and so
Ben: b2 and so
[13:56 on 10 May 2023] gist of c1"""


def test_parallel_look_up_puts_pages_in_the_place_of_their_gists():
    system, chat = built(*THREE, replies={"readagent_lookup": {"pages": [2]}})
    evidence, meter = ask(system)
    assert evidence.context == CONTEXT
    assert meter.calls == 1
    (prompt,) = chat.asked("readagent_lookup")
    assert re.findall(r'<gist id="(\d)" date="([^"]+)">([^<]+)</gist>', prompt) == [
        ("1", "13:56 on 8 May 2023", "gist of a1"),
        ("2", "13:56 on 9 May 2023", "gist of b1"),
        ("3", "13:56 on 10 May 2023", "gist of c1"),
    ]
    assert [(item.dia_ids, item.paths, item.rank) for item in evidence.items] == [
        (("D2:1", "D2:2"), ("lookup",), 1),
        ((), ("gist",), 2),
        ((), ("gist",), 3),
    ]
    assert evidence.items[0].ends == (9, 13)  # "[13:56 on 9 May 2023]" is 5 words, a turn 4
    assert len(evidence.items[0].text.split()) == evidence.items[0].ends[-1]


def test_pages_are_ranked_as_named_and_numbers_outside_are_ignored_and_counted():
    system, _ = built(*THREE, replies={"readagent_lookup": {"pages": [3, 0, 3, 7, 1]}})
    evidence, meter = ask(system)
    assert [item.dia_ids for item in evidence.items] == [("D3:1", "D3:2"), ("D1:1", "D1:2"), ()]
    assert meter.fallbacks == {"lookup_invalid": 3}
    assert evidence.trace["pages"] == [3, 1]
    one, _ = built(*THREE, config=replace(SMALL, max_pages=1), replies={"readagent_lookup": {"pages": [3, 1]}})
    assert ask(one)[0].trace["pages"] == [3]


@pytest.mark.parametrize("lookup", ["parallel", "sequential"])
def test_without_a_usable_reply_the_gists_are_read(lookup):
    replies = {"readagent_lookup": UNUSABLE, "readagent_next": UNUSABLE}
    system, _ = built(*THREE, config=replace(SMALL, lookup=lookup), replies=replies)
    evidence, meter = ask(system)
    assert evidence.trace["pages"] == []
    assert meter.fallbacks == {"lookup_none": 1}
    assert "gist of a1" in evidence.context and "gist of c1" in evidence.context


def sequence(*pages):
    left = list(pages)
    return lambda text: {"page": left.pop(0)}


@pytest.mark.parametrize(
    ("named", "chosen", "stop", "calls", "fallbacks"),
    [
        ((2, None), [2], "stop", 2, {}),
        ((None,), [], "stop", 1, {}),
        ((3, 1), [3, 1], "most", 2, {}),
        ((2, 2), [2], "invalid", 2, {"lookup_invalid": 1}),
        ((9,), [], "invalid", 1, {"lookup_invalid": 1}),
    ],
)
def test_sequential_look_up(named, chosen, stop, calls, fallbacks):
    config = replace(SMALL, lookup="sequential", max_pages=2)
    system, chat = built(*THREE, config=config, replies={"readagent_next": sequence(*named)})
    evidence, meter = ask(system)
    assert (evidence.trace["pages"], evidence.trace["stop"], meter.calls) == (chosen, stop, calls)
    assert meter.fallbacks == fallbacks
    if named == (2, None):
        assert evidence.context == CONTEXT
        second = chat.asked("readagent_next")[1]
        assert '<read id="2" date="13:56 on 9 May 2023">\nAnn: b1 and so\nBen: b2 and so\n</read>' in second
        assert "gist of b1" not in second and "gist of a1" in second


def test_sequential_look_up_ends_when_every_page_is_read():
    config = replace(SMALL, lookup="sequential", max_pages=6)
    system, _ = built(session(2), session(2, "b"), config=config, replies={"readagent_next": sequence(1, 2)})
    evidence, meter = ask(system)
    assert (evidence.trace["pages"], meter.calls) == ([1, 2], 2)


def test_the_readers_budget_takes_the_oldest_gists_then_the_last_choices():
    # words: a gist line 8, a page 5 + 2 x 4 = 13
    replies = {"readagent_lookup": {"pages": [3, 1]}}
    for budget, shown in (
        (34, ["D1", "gist b", "D3"]),
        (33, ["D1", "D3"]),
        (25, ["gist b", "D3"]),
        (20, ["D3"]),
        (12, ["gist c"]),
        (3, []),
    ):
        system, _ = built(*THREE, replies=replies, context_tokens=budget)
        evidence, _ = ask(system)
        found = re.findall(r"gist of (\w)1|(\w)1 and", evidence.context)
        assert [f"gist {g}" if g else f"D{'abc'.index(p) + 1}" for g, p in found] == shown, budget
        assert evidence.trace["pages_not_shown"] == 2 - sum(s.startswith("D") for s in shown)
        assert evidence.trace["gists_dropped"] == 3 - len(shown)
        assert len(evidence.context.split()) <= budget


@pytest.mark.parametrize("lookup", ["parallel", "sequential"])
def test_small_windows_are_never_overflown(lookup):
    """FakeChat refuses a prompt that overflows its window of 560 words. A page of 300 words, gists of 100."""
    long = [" ".join(f"w{i}" for i in range(100))] * 4
    config = ReadAgentConfig(page_words=300, label_words=100, rest_words=50, lookup=lookup)
    gist = {"gist": " ".join(["word"] * 100)}
    chat = FakeChat({"readagent_gist": gist, "readagent_next": sequence(1, 2, 3)}, window=560)
    system = build(ReadAgent, config, conversation(long, long, long), chat)
    evidence, _ = ask(system)
    assert evidence.trace["gists_hidden"] > 0
    if lookup == "sequential":
        assert (evidence.trace["pages"], evidence.trace["stop"]) == ([1, 2], "window")


@pytest.mark.parametrize("purpose", ["readagent_paginate", "readagent_gist"])
def test_an_endpoint_error_passes_through(purpose):
    chat = FakeChat({purpose: EndpointError("unreachable", "gone", fatal=True)}, latency=1)

    async def scenario():
        with pytest.raises(EndpointError, match="gone"):
            await ReadAgent(SMALL, services(chat)).ingest(conversation(session(6), session(6, "b")))
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


def test_plan_bounds_are_reached_by_the_extreme_choices():
    sessions = (session(7), session(9, "b"), session(2, "c"))
    words = tuple((3,) * len(texts) for texts in sessions)
    shape = DataShape(conversations=1, sessions=3, turns=18, words=54, questions=5, turn_words=words)
    plan = predict(SMALL, shape)
    calls = []
    for cut in (99, 1):  # an invalid number is the last mark
        system, _ = built(*sessions, replies={"readagent_paginate": {"cut": cut}})
        calls.append(system.services.meter.calls)
    # By hand, last marks: 7 turns = a page of 4, then 3 turns of 9 words, asked: 2 + 2; 9 = 4 + 4 + a rest: 2 + 2 + 1;
    # 2 turns are a rest: 1. First marks: pages of 2 while more than a rest is left: 7 = 3 x 2 + 1, 9 = 4 x 2 + 1.
    assert calls == [10, 17]
    assert plan.memory_calls == (10, 17)
    assert plan.query_calls == (1, 1)
    assert predict(replace(SMALL, lookup="sequential"), shape).query_calls == (1, 6)
    assert plan.memory_tokens[0] < plan.memory_tokens[1]


def test_stats_and_export():
    system, _ = built(*THREE)
    assert (system.stats().notes, system.stats().largest, system.stats().merged_turns) == (3, 0, 0)
    (pages,) = system.export().values()
    assert pages[1] == {
        "id": 2,
        "date": "2023-05-09T13:56:00",
        "dia_ids": ["D2:1", "D2:2"],
        "gist": "gist of b1",
        "text": "Ann: b1 and so\nBen: b2 and so",
    }
