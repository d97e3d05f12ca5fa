"""The whole client path against a real HTTP server on loopback that misbehaves as told."""

import asyncio
import contextlib
import json
import traceback

import pytest
from aiohttp import web
from llm_fakes import Clock, backbone, user
from pydantic import BaseModel, Field

from harness.errors import ConfigError, EndpointError
from harness.llm.cache import ReplyCache
from harness.llm.client import Chat
from harness.llm.limiter import Limiter
from harness.llm.retry import Failure, Retrier
from harness.llm.tokens import TokenCounter, estimate
from harness.llm.transport import OpenAITransport, Outgoing
from harness.llm.types import Meter
from harness.spec import PriceSpec

KEY = "secret-key-4711-do-not-tell"


class Score(BaseModel):
    score: float = Field(ge=0, le=1)


def completion(content, *, usage=True, finish_reason="stop", **message):
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
    }
    if usage:
        body["usage"] = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    return body


def error(status, message, headers=None, **fields):
    return web.json_response({"error": {"message": message, **fields}}, status=status, headers=headers)


class Endpoint:
    """Answers with the next of `script`: a completion, a response, or an async function of the request."""

    def __init__(self, script):
        self.script = list(script)
        self.bodies = []
        self.headers = []

    async def handle(self, request):
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        step = self.script.pop(0)
        if callable(step):
            step = await step(request)
        return web.json_response(step) if isinstance(step, dict) else step


@contextlib.asynccontextmanager
async def serving(script):
    endpoint = Endpoint(script)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield endpoint, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def reset(request):
    request.transport.abort()
    return web.Response()


def ask(script, tmp_path, *, schema=Score, tools=None, key=KEY, retries=3, clock=None, timeout_s=20.0, **options):
    """One complete() against a server with this script: (reply or error, endpoint, chat, meter)."""
    if "tools_taken" in options:
        options["tools"] = options.pop("tools_taken")
    spec = backbone(retries=retries, **options)
    clock = clock or Clock()

    async def main():
        async with serving(script) as (endpoint, url):
            chat = Chat(
                spec,
                ReplyCache(tmp_path, "use", "r"),
                OpenAITransport(spec.model, url, key, timeout_s=timeout_s),
                TokenCounter("estimate", estimate),
                limiter=Limiter(8, 8, clock=clock, sleep=clock.sleep),
                retrier=Retrier(spec.retries, clock=clock, sleep=clock.sleep, jitter=lambda: 0.0),
            )
            meter = Meter()
            try:
                result = await chat.complete(user("score it"), schema=schema, tools=tools, meter=meter, seed=3)
            except EndpointError as failure:
                result = failure
            finally:
                await chat.aclose()
            return result, endpoint, chat, meter

    return asyncio.run(main())


GOOD = completion('{"score": 0.5}')


def test_the_request_on_the_wire(tmp_path):
    reply, endpoint, chat, _ = ask([GOOD], tmp_path, thinking="qwen3")
    assert reply.value.score == 0.5
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (11, 5)
    assert reply.latency_s > 0 and chat.notices == []
    assert endpoint.bodies == [
        {
            "model": "m",
            "messages": user("score it"),
            "temperature": 0.0,
            "max_tokens": 256,
            "seed": 3,
            "chat_template_kwargs": {"enable_thinking": False},
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "reply",
                    "strict": True,
                    "schema": {
                        "type": "object",
                        "properties": {"score": {"type": "number", "minimum": 0, "maximum": 1}},
                        "required": ["score"],
                        "additionalProperties": False,
                    },
                },
            },
        }
    ]
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_429_500_and_a_reset_are_tried_again(tmp_path):
    clock = Clock()
    script = [error(429, "slow down", {"Retry-After": "0"}), error(500, "oops"), reset, GOOD]
    reply, endpoint, _, meter = ask(script, tmp_path, clock=clock)
    assert reply.value.score == 0.5 and reply.attempts == 1
    assert len(endpoint.bodies) == 4 and meter.calls == 1
    # no wait after the 429; half a second, and then half of one for all new requests, after the 500; one after the reset
    assert clock.slept == [0.0, 0.5, 0.5, 1.0]


def test_retry_after_in_seconds_reaches_the_wait(tmp_path):
    clock = Clock()
    ask([error(429, "slow down", {"Retry-After": "17"}), GOOD], tmp_path, clock=clock)
    assert clock.slept == [17.0]


def test_null_content_with_reasoning_content(tmp_path):
    body = completion(None, reasoning_content='So it is {"score": 0.25}')
    reply, *_ = ask([body], tmp_path)
    assert reply.value.score == 0.25 and "reasoning_field" in reply.repairs


def test_a_reply_cut_off_at_the_limit_is_mended_or_asked_again(tmp_path):
    cut = completion('{"score": 0.75, "because": "it ', finish_reason="length")
    reply, *_ = ask([cut], tmp_path)
    assert reply.value.score == 0.75 and reply.finish_reason == "length"
    assert set(reply.repairs) == {"truncated", "extra_key"}
    reply, endpoint, *_ = ask([completion('{"sc', finish_reason="length"), GOOD], tmp_path / "b")
    assert reply.attempts == 2 and "cut off at the token limit" in endpoint.bodies[1]["messages"][-1]["content"]


def test_a_refusal_of_the_model_counts_as_its_text(tmp_path):
    reply, *_ = ask([completion(None, refusal="I will not."), GOOD], tmp_path)
    assert reply.attempts == 2


def test_no_usage_is_estimated(tmp_path):
    reply, _, chat, _ = ask([completion('{"score": 0.5}', usage=False)], tmp_path)
    assert reply.usage.prompt_tokens == 2 and "reports no usage" in chat.notices[0]


@pytest.mark.parametrize(
    ("response", "kind", "fatal"),
    [
        (lambda: error(401, "bad key"), "auth", True),
        (lambda: error(403, "not you"), "auth", True),
        (lambda: error(402, "pay"), "budget", True),
        (lambda: error(429, "quota", code="insufficient_quota"), "budget", True),
        (lambda: error(404, "no such model"), "refused", True),
        (lambda: error(400, "maximum context length is 4096 tokens"), "refused", False),
        (lambda: web.json_response({"detail": "bad field"}, status=422), "refused", False),
    ],
)
def test_what_waiting_does_not_mend_is_asked_once(tmp_path, response, kind, fatal):
    failure, endpoint, _, meter = ask([response()], tmp_path)
    assert (failure.kind, failure.fatal, len(endpoint.bodies)) == (kind, fatal, 1)
    assert "model 'm'" in str(failure) and "\n" not in str(failure) and meter.errors == 1


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (lambda: error(503, "busy"), "server"),
        (lambda: reset, "server"),
        (lambda: error(429, "slow down"), "rate_limited"),
        (lambda: web.Response(text="<html>gateway</html>", content_type="text/html"), "server"),
        (lambda: {"object": "chat.completion", "choices": []}, "server"),
    ],
)
def test_what_stays_broken_is_an_error_of_its_kind(tmp_path, step, kind):
    failure, endpoint, *_ = ask([step(), step()], tmp_path, retries=1)
    assert (failure.kind, failure.fatal, len(endpoint.bodies)) == (kind, False, 2)


def test_no_answer_in_time(tmp_path):
    async def hang(request):
        await asyncio.sleep(30)

    failure, *_ = ask([hang], tmp_path, retries=0, timeout_s=0.05)
    assert failure.kind == "timeout" and "gave no reply in 0.05 s" in str(failure)


def test_nobody_there(tmp_path):
    async def main():
        async with serving([]) as (_, url):
            pass
        transport = OpenAITransport("m", url, None)
        try:
            await transport.send(Outgoing(user("x"), None, {}))
        except Failure as failure:
            return failure
        finally:
            await transport.aclose()

    failure = asyncio.run(main())
    assert (failure.kind, failure.decision) == ("unreachable", "transient") and "cannot be reached" in str(failure)


def test_response_format_refused_by_a_real_endpoint(tmp_path):
    refusal = error(400, "Unsupported parameter: 'response_format'", param="response_format")
    reply, endpoint, chat, _ = ask([refusal, GOOD], tmp_path, structured="auto")
    assert reply.value.score == 0.5
    assert "response_format" in endpoint.bodies[0] and "response_format" not in endpoint.bodies[1]
    assert "JSON schema" in endpoint.bodies[1]["messages"][0]["content"]
    assert len(chat.notices) == 1 and "response_format refused" in chat.notices[0]


@pytest.mark.parametrize(
    "response",
    [
        lambda: error(401, f"Incorrect API key provided: {KEY}. Header was Authorization: Bearer {KEY}"),
        lambda: error(400, f"key={KEY}", {"X-Echo": KEY}),
        lambda: web.Response(status=500, text=f"Traceback: {KEY}", headers={"X-Key": KEY}),
        lambda: error(401, "Incorrect API key provided: sk-abcdefgh12345678"),
    ],
)
def test_the_key_is_in_no_error(tmp_path, response):
    failure, _, chat, _ = ask([response()], tmp_path, retries=0)
    told = "".join(traceback.format_exception(failure)) + repr(failure) + repr(chat.notices)
    assert KEY not in told and "sk-abcdefgh12345678" not in told and "[key]" in told
    cause = failure
    while cause is not None:
        assert KEY not in f"{cause!r} {vars(cause)}"
        cause = cause.__cause__ or cause.__context__
    assert KEY.encode() not in (tmp_path / "replies.sqlite").read_bytes()


def test_a_local_server_without_a_key_is_sent_a_dummy(tmp_path):
    _, endpoint, *_ = ask([GOOD], tmp_path, key=None)
    assert endpoint.headers[0]["Authorization"] == "Bearer none"


def test_proxies_of_the_environment_are_not_used_on_loopback(tmp_path, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    reply, *_ = ask([GOOD], tmp_path)
    assert reply.value.score == 0.5


def test_an_address_in_a_message_holds_no_password():
    assert OpenAITransport("m", "https://u:pw@host:8443/v1", None).where == "https://host:8443/v1"
    assert OpenAITransport("m", "http://[::1]:80/v1", None).where == "http://[::1]:80/v1"


def test_half_a_surrogate_pair_does_not_break_the_cache(tmp_path):
    body = json.loads('{"content": "caf\\u00e9 \\ud83d"}')["content"]
    reply, *_ = ask([completion(body)], tmp_path, schema=None)
    assert reply.text == "café ?"


class Call(BaseModel):
    function: str
    score: float | None = None


TOOLS = [{"type": "function", "function": {"name": "rate", "parameters": {"type": "object", "properties": {}}}}]


def called(name, arguments):
    call = {"id": "t1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return completion(None, finish_reason="tool_calls", tool_calls=[call])


@pytest.mark.parametrize(
    ("arguments", "score"),
    [
        ('{"score": 0.5}', 0.5),
        ('{"score": 0.5, "function": "other"}', 0.5),
        ("", None),
        ("[1]", None),
        ("{broken", None),
    ],
)
def test_a_call_of_a_tool_becomes_an_instance_of_the_schema(tmp_path, arguments, score):
    reply, endpoint, chat, meter = ask(
        [called("rate", arguments)], tmp_path, schema=Call, tools=TOOLS, tools_taken=True
    )
    assert reply.value == Call(function="rate", score=score)
    assert endpoint.bodies[0]["tools"] == TOOLS and endpoint.bodies[0]["tool_choice"] == "required"
    assert "response_format" not in endpoint.bodies[0]
    assert meter.calls == 1 and chat.takes_tools


def test_tools_are_not_sent_to_a_backbone_that_takes_none(tmp_path):
    reply, endpoint, chat, _ = ask([completion('{"function": "rate", "score": 1}')], tmp_path, schema=Call, tools=TOOLS)
    assert reply.value == Call(function="rate", score=1.0)
    assert "tools" not in endpoint.bodies[0] and "response_format" in endpoint.bodies[0]
    assert not chat.takes_tools


def test_refused_tools_say_what_to_do(tmp_path):
    refusal = error(
        400, "auto tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set; tool_choice"
    )
    failure, *_ = ask([refusal], tmp_path, schema=Call, tools=TOOLS, tools_taken=True)
    assert failure.kind == "refused" and failure.fatal
    assert str(failure).endswith("backbone.tools=false asks for function calls by a schema instead")


@pytest.mark.parametrize("choices", [[], None, [{"index": 0, "finish_reason": "stop"}]])
def test_a_reply_without_a_message_is_paid_for_once_a_try(tmp_path, choices):
    """Two such tries of 11 and 5 tokens, then a reply of as many: at 2 and 8 dollars a million, 3 x 62 millionths."""
    empty = {**GOOD, "choices": choices}
    reply, _, chat, meter = ask([empty, empty, GOOD], tmp_path, price=PriceSpec(prompt=2.0, completion=8.0))
    assert reply.value.score == 0.5 and (reply.usage.prompt_tokens, reply.attempts) == (11, 1)
    for counted in (meter.usage, chat.live):
        assert (counted.prompt_tokens, counted.completion_tokens) == (33, 15)
        assert counted.usd == pytest.approx(186e-6)
    assert chat.budget.spent == pytest.approx(186e-6)
    assert (meter.calls, meter.computed, chat.live.calls) == (1, 1, 1)


def test_null_content_is_paid_for_once_an_attempt(tmp_path):
    reply, _, chat, meter = ask([completion(None), GOOD], tmp_path, price=PriceSpec(prompt=2.0, completion=8.0))
    assert (reply.attempts, meter.calls, meter.usage.prompt_tokens) == (2, 2, 22)
    assert chat.budget.spent == meter.usage.usd == pytest.approx(124e-6)


@pytest.mark.parametrize(
    "usage", [None, "many", {"prompt_tokens": "11"}, {"prompt_tokens": -3}, {"prompt_tokens": 2**80}]
)
def test_a_usage_that_is_none_is_not_counted(tmp_path, usage):
    _, _, chat, meter = ask([{**GOOD, "choices": [], "usage": usage}, GOOD], tmp_path)
    assert (meter.usage.prompt_tokens, chat.live.prompt_tokens) == (11, 11)


# --- a server that somebody else started ------------------------------------------------------------------------------


async def meet(tmp_path, answer, **spec):
    """What a chat client says of a server whose GET /v1/models gives `answer`."""

    async def models(request):
        return answer

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    cache = ReplyCache(tmp_path, "use", "run")
    chosen = backbone(**({"kind": "vllm", "model": "Qwen/Qwen3-8B", "base_url": url} | spec))
    chat = Chat(chosen, cache, OpenAITransport(chosen.model, url, KEY), TokenCounter("estimate", estimate))
    try:
        await chat.meet()
    finally:
        await chat.aclose()
        cache.close()
        await runner.cleanup()
    return [notice.replace(url, "URL") for notice in chat.notices]


def listing(*names):
    return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


FOREIGN = ["served by URL, which the bench did not start: revision, quantisation and arguments not verified"]


@pytest.mark.parametrize(
    "answer",
    [
        listing("other", "Qwen/Qwen3-8B"),
        web.json_response({"error": "no"}, status=404),
        web.Response(text="<html>", content_type="text/html"),
        web.json_response({"data": 7}),
        web.json_response([]),
    ],
    ids=["lists it", "404", "html", "no list", "no object"],
)
def test_a_server_of_somebody_else_is_named_as_such(tmp_path, answer):
    assert asyncio.run(meet(tmp_path, answer)) == FOREIGN


def test_a_server_of_other_models_is_refused_before_any_work(tmp_path):
    with pytest.raises(ConfigError, match=r"serves a, b, not 'Qwen/Qwen3-8B'; start it with that model, or give"):
        asyncio.run(meet(tmp_path, listing("a", "b")))


@pytest.mark.parametrize("spec", [{"base_url": None}, {"kind": "openai"}], ids=["our own", "hosted"])
def test_others_are_not_looked_at(tmp_path, spec):
    assert asyncio.run(meet(tmp_path, listing("a"), **spec)) == []
