import asyncio
import json

import pytest
from llm_fakes import Clock, backbone, chat_of, user
from pydantic import BaseModel, Field

from harness.errors import EndpointError, ReplyError
from harness.llm.build import build_chat
from harness.llm.cache import ReplyCache, Row
from harness.llm.retry import Failure
from harness.llm.types import Meter, Usage
from harness.spec import PriceSpec


class Score(BaseModel):
    score: float = Field(ge=0, le=1)


GOOD = '{"score": 0.5}'
ASK = user("<a>x</a> score it")
REFUSED = Failure("refused", "permanent", "400 response_format is not supported", names_format=True)


def complete(chat, messages=ASK, schema=Score, **options):
    return asyncio.run(chat.complete(messages, schema=schema, **options))


def test_a_reply_is_computed_once_and_then_served(tmp_path):
    chat, told = chat_of([GOOD], tmp_path, price=PriceSpec(prompt=1.0, completion=2.0, date="2026-01-01"))
    meter = Meter()
    first = complete(chat, meter=meter, purpose="score")
    assert first.value == Score(score=0.5) and first.text == GOOD and first.repairs == ()
    assert (first.cached, first.attempts, first.latency_s, first.finish_reason) == (False, 1, 0.25, "stop")
    assert first.usage == Usage(10, 3, (10 * 1.0 + 3 * 2.0) / 1e6)
    second = complete(chat, meter=meter, purpose="score")
    assert second.cached and second.value == first.value and second.usage == Usage(10, 3, 0.0)
    assert len(told.sent) == 1
    assert (meter.calls, meter.computed, meter.cached, meter.errors, meter.repaired) == (2, 1, 1, 0, 0)
    assert meter.usage == Usage(20, 6, first.usage.usd) and meter.purposes == {"score": 2}
    assert meter.latency_s == 0.5
    live = chat.live
    assert (live.calls, live.received, live.cache_hits, live.in_flight) == (2, 1, 1, 0)
    assert (live.prompt_tokens, live.completion_tokens, live.usd) == (20, 6, first.usage.usd)


def test_another_run_is_served_without_paying_and_a_resumed_run_reports_what_it_paid(tmp_path):
    complete(chat_of([GOOD], tmp_path, run_id="a")[0])
    for run_id, computed in (("b", 0), ("a", 1)):
        chat, told = chat_of([], tmp_path, run_id=run_id)
        meter = Meter()
        reply = complete(chat, meter=meter)
        assert (meter.computed, meter.cached, reply.cached) == (computed, 1 - computed, not computed)
        assert told.sent == []
        assert (chat.live.received, chat.live.cache_hits) == (0, 1)  # whoever paid for it: no speed of this process


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"model": "m"}, {"model": "n"}),
        ({"revision": "1"}, {"revision": "2"}),
        ({"structured": "schema"}, {"structured": "prompt"}),
        ({"thinking": "none"}, {"thinking": "qwen3"}),
    ],
)
def test_what_changes_the_reply_is_in_the_key(tmp_path, one, other):
    complete(chat_of([GOOD], tmp_path, **one)[0])
    chat, told = chat_of([GOOD], tmp_path, **other)
    assert not complete(chat).cached and len(told.sent) == 1


@pytest.mark.parametrize(
    "options", [{"trial": 1}, {"temperature": 0.7}, {"max_tokens": 99}, {"seed": 3}, {"schema": None}]
)
def test_every_sampling_field_is_in_the_key(tmp_path, options):
    chat, told = chat_of([GOOD, GOOD], tmp_path)
    complete(chat)
    complete(chat, **options)
    assert len(told.sent) == 2


@pytest.mark.parametrize(
    "same", [{"name": "x"}, {"base_url": "http://127.0.0.1:9/v1"}, {"retries": 1}, {"timeout_s": 5.0}]
)
def test_what_does_not_change_the_reply_is_not_in_the_key(tmp_path, same):
    complete(chat_of([GOOD], tmp_path)[0], purpose="one")
    chat, told = chat_of([], tmp_path, **same)
    complete(chat, purpose="other", temperature=0)
    assert told.sent == []


def test_the_same_question_at_once_is_one_call(tmp_path):
    chat, told = chat_of([GOOD], tmp_path)
    meter = Meter()

    async def main():
        return await asyncio.gather(*(chat.complete(ASK, schema=Score, meter=meter) for _ in range(10)))

    replies = asyncio.run(main())
    assert len(told.sent) == 1 and (meter.computed, meter.cached) == (1, 9)
    assert [reply.cached for reply in replies].count(False) == 1


def test_a_bad_reply_is_kept_and_the_next_attempt_is_another_request(tmp_path):
    chat, told = chat_of(["I cannot say.", "", GOOD], tmp_path)
    meter = Meter()
    reply = complete(chat, meter=meter)
    assert (reply.attempts, reply.value.score, reply.usage.prompt_tokens) == (3, 0.5, 30)
    assert (meter.calls, meter.computed, meter.errors) == (3, 3, 0)
    first, second, third = (sent.messages for sent in told.sent)
    assert first == ASK
    assert second[:-1] == ASK and second[-1]["role"] == "user"
    assert second[-1]["content"] == (
        "Your last reply cannot be used: it held no JSON object. Reply with the JSON object alone."
    )
    assert third[-1]["content"] == "Your last reply cannot be used: it was empty. Reply with the JSON object alone."
    again, silent = chat_of([], tmp_path, run_id="b")
    meter = Meter()
    assert complete(again, meter=meter).value.score == 0.5
    assert (meter.calls, meter.cached, silent.sent) == (3, 3, [])


def test_a_chain_that_broke_off_is_continued_not_repeated(tmp_path):
    chat, _ = chat_of(["no", Failure("server", "transient", "503")], tmp_path, retries=0)
    with pytest.raises(EndpointError):
        complete(chat)
    resumed, told = chat_of([GOOD], tmp_path)
    assert complete(resumed).attempts == 2
    assert len(told.sent) == 1 and len(told.sent[0].messages) == 2


def test_a_chain_that_fails_ends_in_an_error_and_costs_nothing_the_next_time(tmp_path):
    chat, _ = chat_of(["no", "nay", Row("{", finish_reason="length", prompt_tokens=7, completion_tokens=1)], tmp_path)
    meter = Meter()
    with pytest.raises(
        ReplyError, match="told: no usable reply to judge in 3 attempts; the last: it was cut off"
    ) as error:
        complete(chat, meter=meter, purpose="judge")
    assert (error.value.kind, error.value.text, error.value.attempts) == ("unparsable", "{", 3)
    assert error.value.usage == Usage(27, 7, 0.0)
    assert (meter.calls, meter.errors) == (3, 1)
    for mode in ("use", "replay"):
        again, silent = chat_of([], tmp_path, mode=mode, run_id="b")
        meter = Meter()
        with pytest.raises(ReplyError):
            complete(again, meter=meter)
        assert (meter.cached, meter.errors, silent.sent) == (3, 1, [])


def test_an_empty_plain_answer_is_asked_for_again(tmp_path):
    chat, told = chat_of([Row(None), "<think>hm</think>", "<think>hm</think> Oslo"], tmp_path)
    meter = Meter()
    reply = complete(chat, schema=None, meter=meter)
    assert (reply.text, reply.value, reply.repairs, reply.attempts) == ("Oslo", None, ("think",), 3)
    assert told.sent[1].messages[-1]["content"].endswith("it was empty. Reply with the answer alone.")
    assert told.sent[0].schema is None


def test_repairs_are_counted_by_kind(tmp_path):
    chat, _ = chat_of(["```json\n{'score': '80%'}\n```"], tmp_path)
    meter = Meter()
    reply = complete(chat, meter=meter)
    assert reply.value.score == 0.8 and set(reply.repairs) == {"fence", "quotes", "percent"}
    assert meter.repaired == 1 and meter.repairs == {"fence": 1, "quotes": 1, "percent": 1}


def test_failures_are_never_kept_and_are_tried_again(tmp_path):
    clock = Clock()
    limited = Failure("rate_limited", "rate_limited", "429", retry_after=2.0)
    chat, told = chat_of([Failure("server", "transient", "503"), limited, GOOD], tmp_path, clock=clock)
    assert complete(chat).attempts == 1
    assert clock.slept[0] == 0.5 and clock.slept[-1] == 2.0 + 0.25 and len(told.sent) == 3
    refusing, _ = chat_of([Failure("refused", "permanent", "400 too long")], tmp_path)
    meter = Meter()
    for _ in range(2):
        with pytest.raises(EndpointError):
            complete(refusing, user("other"), meter=meter)
        refusing._transport.replies.append(Failure("refused", "permanent", "400 too long"))
    assert len(refusing._transport.sent) == 2 and (meter.calls, meter.errors) == (0, 2)


def test_replay_never_reaches_the_transport(tmp_path):
    complete(chat_of([GOOD], tmp_path)[0])
    chat, told = chat_of([GOOD], tmp_path, mode="replay", run_id="b")
    meter = Meter()
    assert complete(chat, meter=meter).cached
    with pytest.raises(EndpointError) as error:
        complete(chat, user("never asked"), meter=meter)
    assert (error.value.kind, error.value.fatal, told.sent, meter.errors) == ("replay_miss", True, [], 1)


def answering(honours):
    """An endpoint that follows a schema only where `honours(request)`: else it talks, unless the prompt holds one."""

    def reply(request):
        in_prompt = "JSON schema" in request.messages[0]["content"]
        if request.schema is not None:
            honoured = honours(request)
            if isinstance(honoured, Exception):
                return honoured
            if honoured:
                return json.dumps({name: 0.5 if name == "score" else "blue" for name in request.schema["properties"]})
        return GOOD if in_prompt else "Blue, I would say."

    return reply


def run_of(chat, n=5):
    async def main():
        return await asyncio.gather(*(chat.complete(user(f"<a>{i}</a>"), schema=Score) for i in range(n)))

    return asyncio.run(main())


def test_an_endpoint_that_honours_response_format_is_asked_so(tmp_path):
    chat, told = chat_of(answering(lambda request: True), tmp_path, structured="auto")
    assert [reply.value.score for reply in run_of(chat)] == [0.5] * 5
    assert len(told.sent) == 6 and all(sent.schema for sent in told.sent) and chat.notices == []
    schema = told.sent[-1].schema
    assert schema["required"] == ["score"] and schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("honours", "word"), [(lambda request: False, "ignored"), (lambda request: REFUSED, "refused")]
)
def test_response_format_ignored_or_refused_puts_the_schema_into_the_prompt(tmp_path, honours, word):
    chat, told = chat_of(answering(honours), tmp_path, structured="auto")
    replies = run_of(chat)
    assert [(reply.value.score, reply.attempts) for reply in replies] == [(0.5, 1)] * 5
    assert [sent.schema is None for sent in told.sent] == [False] + [True] * 5  # one question found it out
    assert len(chat.notices) == 1 and f"response_format {word}" in chat.notices[0]
    for mode in ("use", "replay"):
        again, silent = chat_of(answering(honours), tmp_path, structured="auto", mode=mode, run_id="b")
        assert all(reply.cached for reply in run_of(again))
        asked_again = 1 if (word, mode) == ("refused", "use") else 0  # a refusal is not kept, and costs nothing
        assert len(silent.sent) == asked_again


def test_one_schema_refused_later_goes_into_the_prompt_alone(tmp_path):
    def honours(request):
        return REFUSED if "score" in request.schema["properties"] else True

    chat, told = chat_of(answering(honours), tmp_path, structured="auto")
    assert [reply.value.score for reply in run_of(chat, 3)] == [0.5] * 3
    assert complete(chat).value.score == 0.5
    assert [notice for notice in chat.notices if "refused for Score" in notice] == chat.notices
    assert len(chat.notices) == 1 and told.sent[-1].schema is None
    replay, silent = chat_of([], tmp_path, structured="auto", mode="replay", run_id="b")
    assert all(reply.cached for reply in run_of(replay, 3)) and silent.sent == []


def test_structured_schema_does_not_give_way(tmp_path):
    chat, _ = chat_of([REFUSED], tmp_path, structured="schema")
    with pytest.raises(EndpointError, match="structured=prompt") as error:
        complete(chat)
    assert (error.value.kind, error.value.fatal) == ("refused", True)


def test_structured_prompt_never_sends_response_format(tmp_path):
    chat, told = chat_of(answering(lambda request: True), tmp_path, structured="prompt")
    run_of(chat, 2)
    assert [sent.schema for sent in told.sent] == [None, None] and chat.notices == []


def test_thinking_is_switched_off_in_the_request_and_stripped(tmp_path):
    chat, told = chat_of([f"<think>hm</think>{GOOD}"], tmp_path, thinking="qwen3")
    assert complete(chat).repairs == ("think",)
    assert told.sent[0].fields["chat_template_kwargs"] == {"enable_thinking": False}
    plain, told = chat_of([GOOD], tmp_path)
    complete(plain, seed=7)
    assert told.sent[0].fields == {"temperature": 0.0, "max_tokens": 256, "seed": 7}


def test_usage_the_endpoint_does_not_report_is_estimated_and_said(tmp_path):
    chat, _ = chat_of([Row("Oslo is it.", estimated=True)], tmp_path)
    reply = complete(chat, user("Where is Ann?"), schema=None)
    assert reply.usage == Usage(4, 4, 0.0)  # four words or signs each, none above five letters
    assert chat.notices == ["the endpoint reports no usage: tokens are counted by estimate"]


class Pair(BaseModel):
    s: float = Field(ge=0, le=1, json_schema_extra={"x-scripted": {"rule": "overlap", "tags": ["a", "b"]}})


def test_the_stand_in_goes_through_the_whole_path(tmp_path):
    spec = backbone(kind="scripted", name="scripted", structured="auto")
    chat = build_chat(spec, ReplyCache(tmp_path, "use", "r"))
    meter = Meter()
    ask = user("<a>Ann likes pottery</a><b>Ann likes Oslo</b>")
    reply = asyncio.run(chat.complete(ask, schema=Pair, meter=meter))
    assert reply.value.s == 0.5 and not reply.cached
    assert asyncio.run(chat.complete(ask, schema=Pair, meter=meter)).cached
    assert meter.usage.prompt_tokens > 0 and chat.notices == [] and meter.calls == 2


def test_a_rule_is_part_of_the_stand_ins_request_and_of_no_other(tmp_path):
    class Other(Pair):
        s: float = Field(ge=0, le=1, json_schema_extra={"x-scripted": {"rule": "const", "value": 0.9}})

    ask = user("<a>Ann likes pottery</a><b>Ann likes Oslo</b>")
    chat = build_chat(backbone(kind="scripted"), ReplyCache(tmp_path / "s", "use", "r"))
    assert [asyncio.run(chat.complete(ask, schema=schema)).value.s for schema in (Pair, Other)] == [0.5, 0.9]
    told_chat, told = chat_of(['{"s": 0.1}'], tmp_path / "t")
    assert [complete(told_chat, ask, schema).value.s for schema in (Pair, Other)] == [0.1, 0.1]
    assert "x-scripted" not in json.dumps(told.sent[0].schema)


def test_latency_of_the_stand_in_is_slept_by_all_at_once(tmp_path, monkeypatch):
    slept = []
    real = asyncio.sleep

    async def sleep(seconds):
        slept.append(seconds)
        await real(0)

    monkeypatch.setattr("harness.llm.transport.asyncio.sleep", sleep)
    chat = build_chat(backbone(kind="scripted", latency_s=0.2), ReplyCache(tmp_path, "use", "r"))
    replies = [asyncio.run(chat.complete(user(f"<a>{n}</a><b>x</b>"), schema=Pair)) for n in range(3)]
    assert slept == [0.2] * 3 and [reply.latency_s for reply in replies] == [0.2] * 3


def test_closing_closes_the_transport(tmp_path):
    chat, told = chat_of([], tmp_path)
    asyncio.run(chat.aclose())
    assert told.closed


def test_tools_are_in_the_key_and_leave_the_keys_of_other_calls_as_they_are(tmp_path):
    tools = [{"type": "function", "function": {"name": "rate"}}]
    complete(chat_of([GOOD], tmp_path, tools=True)[0])
    chat, told = chat_of([GOOD, GOOD], tmp_path, tools=True)
    for declared in (None, tools, [*tools, *tools], tools, None):
        complete(chat, tools=declared)
    assert [request.tools for request in told.sent] == [tools, [*tools, *tools]]
    with pytest.raises(ValueError, match="come with a schema"):
        complete(chat, schema=None, tools=tools)
