"""MemGPT: its functions and what a misuse is told, the loop, pages, memory pressure, independent questions."""

import asyncio
import itertools
import json
import re

import pytest
from baseline_fakes import UNUSABLE, FakeChat, TableEmbedder, ask, build, conversation, services

from baselines.memgpt import MemGPT, MemGPTConfig
from baselines.memgpt_agent import FunctionCall
from baselines.memgpt_memory import FUNCTIONS, AgentMemory, Passage
from harness.errors import EndpointError
from harness.llm.structured import parse_reply, wire_schema
from harness.llm.types import Meter
from harness.memory import DataShape, Query

CONFIG = MemGPTConfig()
LIVE = MemGPTConfig(preload=False)
AXES = TableEmbedder({"kiln": [1, 0, 0], "boat": [0, 1, 0], "tea": [0, 0, 1]}, dim=3)
TALK = conversation(
    ["I bought a KILN.", "Where?", "In Lisbon."], ["The kiln broke.", "Sorry!"], ["I drink tea."], days=[0, 1, 30]
)


def call(function, heartbeat=False, **arguments):
    return {"function": function, "request_heartbeat": heartbeat, **arguments}


def chat_of(*calls, **more):
    """Each step is answered by the next of these; then by silence: a message without a search."""
    left = list(calls)
    return FakeChat({"memgpt_step": lambda text: left.pop(0) if left else call("send_message", message="done"), **more})


def play(*calls, config=CONFIG, talk=TALK, embedder=AXES, **more):
    """A question's evidence when the agent makes these calls."""
    chat = chat_of(*calls)
    system = build(MemGPT, config, talk, chat, embedder, **more)
    evidence, meter = ask(system)
    return evidence, meter, chat, system


def memory(**core):
    made = AgentMemory({"persona": "p", "human": "", **core}, 40, 2, AXES)
    for turn in TALK.turns:
        made.remember(turn)
    asyncio.run(made.store(made.recall))
    return made


def execute(made, function, /, origin=None, **arguments):
    return asyncio.run(made.execute(function, arguments, origin))


def lines(outcome):
    return [line[line.index("] ") + 2 :] for line in outcome.text.splitlines()[1:]]


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("memory_search", {"query": "x"}, "there is no function 'memory_search'; there are: send_message, core_memory_append,"),
        ("", {}, "there is no function ''"),
        ("send_message", {}, "send_message needs 'message'; it takes: message"),
        ("send_message", {"message": "  "}, "send_message needs 'message'"),
        ("core_memory_append", {"name": "human"}, "core_memory_append needs 'content'; it takes: name, content"),
        ("core_memory_append", {"name": "notes", "content": "x"}, "core memory has no block 'notes'; it has: persona, human"),
        ("core_memory_append", {"name": "persona", "content": "x" * 39}, "block 'persona' would have 41 characters, 40 is the limit"),
        ("core_memory_replace", {"name": "persona", "old_content": "P", "new_content": "q"}, "block 'persona' does not contain 'P': old_content must match exactly"),
        ("core_memory_replace", {"name": "persona", "old_content": "p"}, "core_memory_replace needs 'new_content'"),
        ("core_memory_replace", {"name": "persona", "old_content": "p", "new_content": "x" * 41}, "would have 41 characters"),
        ("conversation_search", {"page": 0}, "conversation_search needs 'query'"),
        ("conversation_search", {"query": "kiln", "page": 1}, "there is no page 1: 2 results, pages 0 to 0"),
        ("conversation_search", {"query": "kiln", "page": -1}, "there is no page -1"),
        ("archival_memory_search", {"query": "kiln", "page": 3}, "there is no page 3: 6 results, pages 0 to 2"),
        ("conversation_search_date", {"start_date": "8 May", "end_date": "2023-05-09"}, "start_date='8 May' is no date; write it as YYYY-MM-DD"),
        ("conversation_search_date", {"start_date": "2023-05-09", "end_date": "2023-05-08"}, "start_date 2023-05-09 lies after end_date 2023-05-08"),
        ("archival_memory_insert", {"content": ""}, "archival_memory_insert needs 'content'"),
    ],
)  # fmt: skip
def test_each_misuse_is_told_and_changes_nothing(name, arguments, told):
    made = memory()
    outcome = execute(made, name, **arguments)
    assert outcome.failed and told in outcome.text and outcome.found == ()
    assert made.core == {"persona": "p", "human": ""} and len(made.archive) == len(made.recall) == 6


def test_core_memory_up_to_its_limit():
    made = memory()
    assert not execute(made, "core_memory_append", name="persona", content="x" * 38).failed  # 1 + line break + 38 = 40
    assert made.core["persona"] == "p\n" + "x" * 38
    execute(made, "core_memory_append", name="human", content="Ann has a kiln")
    execute(made, "core_memory_replace", name="human", old_content="has", new_content="had")
    assert made.core["human"] == "Ann had a kiln"
    execute(made, "core_memory_replace", name="human", old_content=" a kiln", new_content="")
    assert made.core["human"] == "Ann had"


def test_conversation_search_is_a_substring_whatever_the_case_oldest_first():
    outcome = execute(memory(), "conversation_search", query="Kiln")
    assert lines(outcome) == ["Ann: I bought a KILN.", "Ann: The kiln broke."]
    assert outcome.text.startswith("2 results, page 0 of 0 to 0\n[13:56 on 8 May 2023] Ann")
    assert lines(execute(memory(), "conversation_search", query="kiln broke bad")) == []


def test_pages_of_the_archive_nearest_first():
    made = memory()
    pages = [execute(made, "archival_memory_search", query="kiln", page=page) for page in (None, 1, 2)]
    assert pages[0].text.startswith("6 results, page 0 of 0 to 2\n")
    # "KILN" in capitals is no "kiln" to the table of vectors
    assert pages[0].found[0][0].dia_ids == ("D2:1",) and pages[0].found[0][1] == pytest.approx(1.0)
    ids = [passage.dia_ids[0] for page in pages for passage, _ in page.found]
    assert sorted(ids) == sorted(turn.dia_id for turn in TALK.turns)
    scores = [score for page in pages for _, score in page.found]
    assert scores == sorted(scores, reverse=True)


def test_dates_are_inclusive():
    found = execute(memory(), "conversation_search_date", start_date="2023-05-09", end_date="2023-06-07")
    assert lines(found) == ["Ann: The kiln broke.", "Ben: Sorry!"]
    second = execute(memory(), "conversation_search_date", start_date="2023-05-09", end_date="2023-06-07", page=1)
    assert lines(second) == ["Ann: I drink tea."]
    day = execute(memory(), "conversation_search_date", start_date="2023-05-09", end_date="2023-05-09")
    assert lines(day) == ["Ann: The kiln broke.", "Ben: Sorry!"]


def test_a_copy_of_the_memory_is_independent():
    made = memory()
    other = made.copy()
    execute(other, "archival_memory_insert", content="a boat")
    execute(other, "core_memory_append", name="human", content="x")
    assert (len(made.archive), made.core["human"], len(other.archive)) == (6, "", 7)
    assert other.archive[-1] == Passage("a boat", None, ())
    assert len(execute(other, "archival_memory_search", query="boat").found) == 2
    assert execute(other, "archival_memory_search", query="boat").found[0][0].text == "a boat"
    execute(made, "archival_memory_insert", origin=TALK.turns[3], content="kiln broke")
    assert made.archive[-1].dia_ids == ("D2:1",)


def test_a_heartbeat_goes_on_and_send_message_ends():
    evidence, meter, chat, _ = play(
        call("archival_memory_search", heartbeat=True, query="kiln"),
        call("conversation_search", heartbeat=True, query="lisbon"),
        call("send_message", heartbeat=True, message="In Lisbon."),
    )
    assert meter.calls == 3 and evidence.trace["stop"] == "sent" and evidence.trace["message"] == "In Lisbon."
    assert [step["function"] for step in evidence.trace["steps"]] == [
        "archival_memory_search", "conversation_search", "send_message",
    ]  # fmt: skip
    assert [step["found"] for step in evidence.trace["steps"]] == [5, 1, 0]
    lisbon = evidence.items[-1] if evidence.items[-1].dia_ids == ("D1:3",) else None
    first = [item for item in evidence.items if item.round == 0]
    assert [item.rank for item in first] == [1, 2, 3, 4, 5] and first[0].dia_ids == ("D2:1",)
    by_id = {item.dia_ids[0]: item for item in evidence.items}
    assert len(by_id) == len(evidence.items)  # found twice, shown once
    if lisbon is None:
        assert by_id["D1:3"].paths == ("archival_memory_search", "conversation_search")
    # the agent saw the results of its call
    assert "1 results, page 0 of 0 to 0" in chat.asked("memgpt_step")[2]


def test_without_a_heartbeat_the_agent_rests():
    evidence, meter, _, _ = play(call("conversation_search", query="tea"))
    assert meter.calls == 1 and evidence.trace["stop"] == "no_heartbeat" and evidence.trace["message"] is None
    assert [item.dia_ids for item in evidence.items] == [("D3:1",)]


def test_a_failed_call_goes_on_and_the_agent_sees_why():
    evidence, meter, chat, _ = play(
        call("look_up", query="x"), call("send_message"), call("send_message", message="ok")
    )
    assert meter.calls == 3 and evidence.trace["stop"] == "sent"
    assert [step.get("error", "")[:23] for step in evidence.trace["steps"]] == [
        "there is no function 'l", "send_message needs 'mes", "",
    ]  # fmt: skip
    prompts = chat.asked("memgpt_step")
    assert '<error function="look_up">\nthere is no function' in prompts[1]
    assert "<error" not in prompts[0]


def test_steps_are_capped():
    again = [call("conversation_search", heartbeat=True, query="kiln")] * 9
    evidence, meter, _, _ = play(*again, config=MemGPTConfig(max_steps=4))
    assert meter.calls == 4 and evidence.trace["stop"] == "max_steps"
    assert [item.dia_ids for item in evidence.items] == [("D1:1",), ("D2:1",)]


def test_no_usable_call_is_counted():
    evidence, meter, _, _ = play(UNUSABLE)
    assert meter.fallbacks == {"no_call": 1} and evidence.trace["stop"] == "no_call" and evidence.items == ()
    with pytest.raises(EndpointError):
        play(EndpointError("auth", "no", fatal=True))


def test_the_reader_gets_core_memory_and_what_was_found_by_date():
    evidence, *_ = play(
        call("core_memory_append", heartbeat=True, name="human", content="Ann is a potter."),
        call("conversation_search", heartbeat=True, query="tea"),
        call("conversation_search", query="kiln"),
    )
    assert evidence.context == (
        "I follow the conversation, remember it, and answer questions about it.\n"
        "Ann and Ben talk with each other.\nAnn is a potter.\n"
        "[13:56 on 8 May 2023] Ann: I bought a KILN.\n[13:56 on 9 May 2023] Ann: The kiln broke.\n"
        "[13:56 on 7 June 2023] Ann: I drink tea."
    )
    assert [(item.dia_ids, item.round, item.rank) for item in evidence.items] == [
        (("D3:1",), 0, 1), (("D1:1",), 1, 1), (("D2:1",), 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "core", "items"),
    [(37, True, 2), (36, True, 1), (28, True, 1), (27, False, 2), (18, False, 1), (9, False, 0)],
)
def test_what_does_not_fit_the_reader_is_dropped_last_found_first(tokens, core, items):
    # core memory: 11 + 7 words; "[13:56 on 8 May 2023] Ann: I bought a KILN." 10, the other 9
    evidence, *_ = play(call("conversation_search", query="kiln"), context_tokens=tokens)
    assert (evidence.trace["core_shown"], len(evidence.items)) == (core, items)
    assert evidence.trace["dropped"] == 2 - items
    assert len(evidence.context.split()) <= tokens


def test_questions_are_independent_of_one_another():
    calls = {
        "first": call("archival_memory_insert", content="a boat for sale"),
        "second": call("archival_memory_search", query="boat"),
    }
    chat = FakeChat({"memgpt_step": lambda text: calls[re.search(r"<question>(\w+)", text)[1]]})
    system = build(MemGPT, CONFIG, TALK, chat, AXES)
    ask(system, "first")
    evidence, _ = ask(system, "second")
    assert "a boat for sale" not in evidence.context and len(evidence.items) == 5
    assert "first" not in chat.asked("memgpt_step")[-1]
    assert system.stats().notes == 6


def test_preload_costs_nothing_and_leaves_the_queue_empty():
    system = build(MemGPT, CONFIG, TALK, FakeChat(), AXES)
    assert system.services.meter.calls == 0 and list(system.export()["queue"]) == []
    stats = system.stats()
    assert (stats.notes, stats.largest, stats.extra["recall"]) == (6, 1, 6)
    assert [row["dia_ids"] for row in system.export()["archive"]][:2] == [["D1:1"], ["D1:2"]]


def test_living_through_the_conversation_turn_by_turn():
    chat = chat_of(
        call("archival_memory_insert", content="Ann has a kiln."),
        call("core_memory_append", heartbeat=True, name="human", content="Ben asks."),
        call("send_message", message="noted"),
    )
    system = build(MemGPT, LIVE, TALK, chat, AXES)
    prompts = chat.asked("memgpt_step")
    assert len(prompts) == 7  # six turns, one of them with a heartbeat
    assert '<turn date="13:56 on 8 May 2023">Ann: I bought a KILN.</turn>' in prompts[0]
    assert '<done function="archival_memory_insert">\nstored; the archive has 1 entries' in prompts[1]
    (row,) = system.export()["archive"]
    assert (row["text"], row["dia_ids"]) == ("Ann has a kiln.", ["D1:1"])
    assert system.export()["core"][1]["text"] == "Ann and Ben talk with each other.\nBen asks."
    evidence, _ = ask(system)
    assert evidence.items == () and "Ben asks." in evidence.context
    # the queue is still before the agent's eyes when it is asked
    whole = "\n".join(m["content"] for m in system._agent.copy().prompt())
    assert "I drink tea." in whole and "recall: 6" in whole


class Windowed(FakeChat):
    """Keeps the whole prompts of the agent."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.prompts = []

    async def complete(self, messages, *, purpose="", **more):
        if purpose == "memgpt_step":
            self.prompts.append(messages)
        return await super().complete(messages, purpose=purpose, **more)


def test_the_alert_comes_once_at_its_share_and_again_after_a_flush():
    talk = conversation(["word " * 40] * 120)
    chat = Windowed({"memgpt_step": call("send_message", message="ok")}, window=3000)
    system = build(MemGPT, LIVE, talk, chat, AXES)
    counts = system._agent.counts
    capacity, alerts, shares = system._agent.capacity, [], []
    for messages in chat.prompts:
        text = "\n".join(message["content"] for message in messages[1:])
        alerts.append(text.count("70% full"))
        shares.append(sum(len(m["content"].split()) for m in messages) / capacity)
    first = alerts.index(1)
    assert max(shares[:first]) <= 0.7 and max(shares) <= 1.0
    assert alerts[first : first + 4] == [1] * 4 and counts["flushes"] >= 2
    assert counts["flushes"] <= counts["alerts"] <= counts["flushes"] + 1
    assert all(a["role"] != b["role"] for m in chat.prompts for a, b in itertools.pairwise(m))


def test_a_flush_sums_up_the_oldest_half_recursively_and_it_stays_searchable():
    talk = conversation([f"fact{number} " + "word " * 40 for number in range(30)])
    sums = iter(f"sum{number} " + "long " * 200 for number in range(99))
    chat = Windowed(
        {"memgpt_step": call("send_message", message="ok"), "memgpt_summary": lambda text: {"summary": next(sums)}},
        window=1500,
    )
    system = build(MemGPT, LIVE, talk, chat, AXES)
    asked = chat.asked("memgpt_summary")
    assert len(asked) == system._agent.counts["flushes"] >= 2
    assert "At most 100 words." in asked[0] and "<summary></summary>" in asked[0] and "fact0" in asked[0]
    assert "<summary>sum0 long" in asked[1] and "fact0" not in asked[1]
    agent = system._agent
    assert len(agent.summary.split()) == 100 and agent.summary.startswith(f"sum{len(asked) - 1} ")
    for messages in chat.prompts:  # the queue goes on with an event or a result, not with a call
        assert re.match(r"(<before>.*?</before>\n)?<(turn|done|alert)", messages[1]["content"], re.DOTALL)
    last = "\n".join(m["content"] for m in chat.prompts[-1])
    assert "<before>sum" in last and "fact0" not in last and "fact29" in last
    found = asyncio.run(agent.memory.execute("conversation_search", {"query": "fact0"}, None))
    assert [passage.dia_ids for passage, _ in found.found] == [("D1:1",)]
    # half of what the queue held: event, call and result of each turn
    gone = [len(re.findall(r"^(?:user|assistant): ", text.split("<messages>")[1], re.MULTILINE)) for text in asked]
    assert gone[0] == agent.counts["evicted"] - sum(gone[1:])


def test_a_summary_that_fails_leaves_the_old_one():
    talk = conversation(["word " * 40] * 30)
    chat = FakeChat({"memgpt_step": call("send_message", message="ok"), "memgpt_summary": UNUSABLE}, window=1500)
    meter = Meter()
    system = build(MemGPT, LIVE, talk, chat, AXES, meter=meter)
    assert system._agent.summary == "" and meter.fallbacks["summary_kept"] == system._agent.counts["flushes"] > 0


def test_one_enormous_message_does_not_overflow_a_small_window():
    chat = FakeChat({"memgpt_step": call("send_message", message="ok")}, window=1000)
    build(MemGPT, LIVE, conversation(["word " * 3000, "x", "word " * 3000]), chat, AXES)


def test_the_stand_in_stores_every_turn_and_searches_once():
    for config, calls in ((CONFIG, 0), (LIVE, 6)):
        meter = Meter()
        system = build(MemGPT, config, TALK, FakeChat(), meter=meter)
        evidence, asked = ask(system, "What did Ann buy?")
        assert (meter.calls, asked.calls, len(evidence.items)) == (calls, 2, 5)
        assert [row["dia_ids"] for row in system.export()["archive"]] == [[turn.dia_id] for turn in TALK.turns]
        assert evidence.trace["stop"] == "sent"


def test_tools_are_sent_where_the_backbone_takes_them():
    class Tooled(FakeChat):
        takes_tools = True

        async def complete(self, messages, *, tools=None, **more):
            self.tools, self.system = tools, messages[0]["content"]
            return await super().complete(messages, **more)

    seen = {}
    for choice in ("auto", "schema"):
        chat = Tooled({"memgpt_step": call("conversation_search", query="tea")})
        evidence, _ = ask(build(MemGPT, MemGPTConfig(function_calls=choice), TALK, chat, AXES))
        assert [item.dia_ids for item in evidence.items] == [("D3:1",)]
        seen[choice] = chat
    assert [tool["function"]["name"] for tool in seen["auto"].tools] == list(FUNCTIONS)
    search = seen["auto"].tools[3]["function"]
    assert search["parameters"]["properties"] == {
        "query": {"type": "string"}, "page": {"type": "integer"}, "request_heartbeat": {"type": "boolean"},
    }  # fmt: skip
    assert search["parameters"]["required"] == ["query"]
    assert seen["schema"].tools is None
    assert "- conversation_search(query, optional: page)" in seen["schema"].system
    assert "conversation_search(query" not in seen["auto"].system


def test_arguments_of_other_functions_are_left_out():
    given = FunctionCall(function="conversation_search", query="tea", message="hello", page=1, name=None)
    assert given.arguments() == {"query": "tea", "page": 1}
    assert FunctionCall(function="nope", query="tea", message="x").arguments() == {"query": "tea", "message": "x"}


def test_nothing_ingested_and_nothing_said():
    with pytest.raises(RuntimeError):
        asyncio.run(MemGPT(CONFIG, services()).recall(Query("q", "kiln", 4), Meter()))
    evidence, _ = ask(build(MemGPT, CONFIG, conversation()))
    assert evidence.items == () and json.dumps(dict(evidence.trace))


@pytest.mark.parametrize(
    ("preload", "memory_calls", "query_calls"), [(True, (0, 0), (1, 10)), (False, (7, 73), (1, 10))]
)
def test_the_plan_by_hand(preload, memory_calls, query_calls):
    plan = MemGPT.plan(MemGPTConfig(preload=preload), DataShape(1, 2, 7, 70, 5), can_judge=True)
    assert (plan.memory_calls, plan.query_calls) == (memory_calls, query_calls)


def test_names_are_offered_as_choices_and_any_text_is_taken():
    wire = wire_schema(FunctionCall)["properties"]
    assert wire["function"]["enum"] == list(FUNCTIONS)
    assert {"type": "string", "enum": ["persona", "human"]} in [
        {key: option.get(key) for key in ("type", "enum")} for option in wire["name"]["anyOf"]
    ]
    parsed = parse_reply('{"function": "look_up", "name": "notes", "page": "1"}', None, FunctionCall)
    assert (parsed.value.function, parsed.value.name, parsed.value.page) == ("look_up", "notes", 1)
