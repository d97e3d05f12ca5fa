"""What carries one request to a model and brings one reply back: HTTP through the openai package, or the stand-in.

A transport tries once. What fails is raised as retry.Failure with a decision; secrets are scrubbed from its message.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from harness.llm.address import OPENAI_URL, is_loopback
from harness.llm.cache import Row
from harness.llm.retry import Failure, retry_after_seconds
from harness.llm.scripted import reply_for
from harness.llm.tokens import estimate
from harness.llm.types import Message

NO_KEY = "none"
"""Sent to local servers that want no key: the openai package insists on one."""
LOOK_S = 10.0
"""Seconds that a list of models is waited for (our choice)."""
_MAX_BODY = 300
_SECRETS = re.compile(
    r"(?i)\b(?:authorization\W{1,4}\w+\s+\S+|bearer\s+\S+|(?:sk|key|hf|gsk|xai)-[\w-]{8,}|(?:hf|gsk)_\w{8,})"
)
_SHORT_KEY = 8
"""Signs below which a key is a placeholder ("none", "EMPTY", "test") that texts may hold as a word: replies keep it."""
_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "credit_balance_too_low"}
_FORMAT_WORDS = (
    "response_format",
    "response format",
    "json_schema",
    "guided",
    "grammar",
    "tool_choice",
    "tool-call",
    "tools",
)
"""A 4xx that speaks of one of these refuses the format, or the schema or the tools in it, and not the request."""
_TRANSIENT_STATUS = {408, 409, 425}
_ENDPOINT_WIDE_STATUS = {404, 405, 410, 501}


@dataclass(frozen=True)
class Outgoing:
    """One request as the transport sends it. `schema` is the wire schema for response_format, or None.
    `fields`: temperature, max_tokens and what else goes into the body as it is. `tools`: function declarations, of
    which the reply must call one."""

    messages: list[Message]
    schema: dict[str, Any] | None
    fields: dict[str, Any] = field(default_factory=dict)
    tools: list[dict[str, Any]] | None = None


class Transport(Protocol):
    async def send(self, request: Outgoing) -> Row:
        """One try. Raises Failure."""
        ...

    async def aclose(self) -> None: ...


class ScriptedTransport:
    """The rule-based stand-in in this process: no language model. A reply takes `latency_s` seconds."""

    def __init__(self, latency_s: float = 0.0):
        self.latency_s = latency_s

    async def send(self, request: Outgoing) -> Row:
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        text = reply_for(request.messages, request.schema)
        prompt_tokens = sum(estimate(message["content"]) for message in request.messages)
        return Row(
            text,
            prompt_tokens=prompt_tokens,
            completion_tokens=estimate(text),
            estimated=True,
            latency_s=self.latency_s,
        )

    async def aclose(self) -> None:
        return None


class OpenAITransport:
    """Any OpenAI-compatible endpoint. The SDK's own retries are off; proxies of the environment are not used for
    loopback addresses. The client is made with the first request, inside the running event loop."""

    def __init__(self, model: str, base_url: str | None, api_key: str | None, *, timeout_s: float = 120.0):
        self.model = model
        self.base_url = base_url
        self.timeout_s = timeout_s
        self._key = api_key
        self._forms = _forms(api_key) if api_key and api_key != NO_KEY else ()
        self._client: Any = None

    @property
    def where(self) -> str:
        """The endpoint for messages: host and path, without user names or passwords."""
        parts = urlsplit(self.base_url or OPENAI_URL)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{host}{port}{parts.path}"

    def _connect(self) -> Any:
        from openai import AsyncOpenAI, DefaultAioHttpClient

        loopback = is_loopback(self.base_url or OPENAI_URL)
        return AsyncOpenAI(
            api_key=self._key or NO_KEY,
            base_url=self.base_url,
            timeout=self.timeout_s,
            max_retries=0,
            http_client=DefaultAioHttpClient(trust_env=not loopback, timeout=self.timeout_s),
        )

    async def served(self) -> list[str] | None:
        """Names of the models that the endpoint lists; None where it lists none, for whatever reason."""
        import openai

        if self._client is None:
            self._client = self._connect()
        try:
            async with asyncio.timeout(min(LOOK_S, self.timeout_s)):
                page = await self._client.models.list()
        except (openai.OpenAIError, TimeoutError, ValueError, AttributeError, TypeError):
            return None
        models = getattr(page, "data", None)
        names = [getattr(model, "id", None) for model in models] if isinstance(models, list) else []
        return [self.scrub(name) for name in names if isinstance(name, str)] or None

    async def send(self, request: Outgoing) -> Row:
        import openai

        if self._client is None:
            self._client = self._connect()
        # Beside the SDK's own parameters, whose types it would walk through: a third of a call's CPU, for the same body.
        body = {"messages": request.messages, **request.fields}
        if request.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": request.schema},
            }
        if request.tools is not None:
            body |= {"tools": request.tools, "tool_choice": "required", "parallel_tool_calls": False}
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self.timeout_s):
                completion = await self._client.chat.completions.create(model=self.model, messages=[], extra_body=body)
        except (openai.OpenAIError, TimeoutError, ValueError) as error:
            failure = self._failure(error)
        else:
            return self._row(completion, time.perf_counter() - started)
        raise failure  # outside the handler: the SDK's error, which may quote a key, does not become its context

    def _row(self, completion: Any, latency_s: float) -> Row:
        usage = getattr(completion, "usage", None)
        prompt_tokens, completion_tokens = (_tokens(usage, f"{part}_tokens") for part in ("prompt", "completion"))
        content = _content(completion)
        if content is None:
            problem = f"{self.where} sent what is no chat completion"
            raise Failure("server", "transient", problem, billed=(prompt_tokens, completion_tokens))
        text, reasoning, finish_reason = map(self._clean, content)
        return Row(
            text,
            reasoning=reasoning,
            finish_reason=finish_reason or "",
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            estimated=not prompt_tokens,
            latency_s=latency_s,
        )

    def _clean(self, text: str | None) -> str | None:
        """Text as it can be kept: no halves of surrogate pairs, and not our key, should an endpoint echo it."""
        if text is None or (text.isascii() and not self._forms):
            return text
        text = text.encode("utf-8", "replace").decode()
        return text if len(self._key or "") < _SHORT_KEY else self._without_key(text)

    def _without_key(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, "[key]")
        return text

    def scrub(self, text: str) -> str:
        """One line, at most 300 signs, without the key and what looks like one."""
        return " ".join(_SECRETS.sub("[key]", self._without_key(text)).split())[:_MAX_BODY]

    def _failure(self, error: Exception) -> Failure:
        import openai

        if isinstance(error, openai.APIStatusError):
            return self._refusal(error)
        if isinstance(error, TimeoutError):
            return Failure("timeout", "transient", f"{self.where} gave no reply in {self.timeout_s:g} s")
        if isinstance(error, openai.APIConnectionError):
            return self._connection(error)
        return Failure("server", "transient", f"{self.where} sent what is no chat completion: {self.scrub(str(error))}")

    def _connection(self, error: Exception) -> Failure:
        """The SDK's aiohttp backend reports a refused connection as a timeout: the cause tells."""
        import aiohttp

        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, aiohttp.ClientConnectorError):
                reason = self.scrub(str(cause.os_error or cause))
                return Failure("unreachable", "transient", f"{self.where} cannot be reached: {reason}")
            if isinstance(cause, aiohttp.ServerTimeoutError | TimeoutError):
                return Failure("timeout", "transient", f"{self.where} gave no reply in {self.timeout_s:g} s")
            if isinstance(cause, aiohttp.ClientError):
                reason = self.scrub(f"{type(cause).__name__} {cause}")
                return Failure("server", "transient", f"{self.where} broke the connection: {reason}")
            cause = cause.__cause__ or cause.__context__
        return Failure("unreachable", "transient", f"{self.where} cannot be reached: {self.scrub(str(error))}")

    def _refusal(self, error: Any) -> Failure:
        status = error.status_code
        headers = error.response.headers
        wait = retry_after_seconds(headers.get("retry-after"), time.time())
        said = _said(error)
        message = f"{self.where} answered {status} to model {self.model!r}: {self.scrub(said)}"
        if status in (401, 403):
            return Failure("auth", "permanent", f"{message}; check the key", fatal=True)
        if status == 402 or (status == 429 and str(error.code) in _QUOTA_CODES):
            return Failure("budget", "permanent", f"{message}; the account's budget is used up", fatal=True)
        if status == 429:
            return Failure("rate_limited", "rate_limited", message, retry_after=wait)
        if status in _ENDPOINT_WIDE_STATUS:
            return Failure("refused", "permanent", f"{message}; check backbone.base_url and backbone.model", fatal=True)
        if status in _TRANSIENT_STATUS or status >= 500:
            return Failure("server", "transient", message, retry_after=wait)
        names_format = status in (400, 415, 422) and any(word in said.lower() for word in _FORMAT_WORDS)
        return Failure("refused", "permanent", message, names_format=names_format)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()


def _forms(key: str) -> tuple[str, ...]:
    """A key as it is, and as it stands in an address, in JSON or in HTML."""
    return tuple(dict.fromkeys((key, quote(key, safe=""), quote(key), json.dumps(key)[1:-1], html.escape(key))))


def _content(completion: Any) -> tuple[str | None, str | None, str | None] | None:
    """Text, reasoning and finish reason of a reply; None where it is of another form (the SDK checks no types)."""
    try:
        choice = completion.choices[0]
        message = choice.message
        text = message.content if message.content is not None else getattr(message, "refusal", None)
        if message.tool_calls:
            text = _as_json(message.tool_calls[0].function)
        extra = message.model_extra or {}
    except (AttributeError, IndexError, KeyError, TypeError):
        return None
    if not isinstance(text, str | None):
        return None
    reasoning = extra.get("reasoning_content") or extra.get("reasoning")
    return text, *(one if isinstance(one, str) else None for one in (reasoning, choice.finish_reason))


def _tokens(usage: Any, name: str) -> int:
    """A count out of a reply's usage; 0 where it tells none (the SDK checks no types)."""
    count = getattr(usage, name, None)
    return count if type(count) is int and 0 < count < 2**31 else 0


def _as_json(call: Any) -> str:
    """A function call as the reply's text: the function's name beside its arguments. Arguments that are no object stay
    as they are, under their own name: whoever asked sees what is missing."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    beside = arguments if isinstance(arguments, dict) else {"arguments": call.arguments}
    return json.dumps({**beside, "function": call.name}, ensure_ascii=False)


def _said(error: Any) -> str:
    """What the endpoint said in its refusal: the message where there is one, else the body."""
    body = error.body
    if isinstance(body, dict):
        text = body.get("message") or body.get("detail") or body
        return f"{text} (parameter {body['param']})" if body.get("param") else str(text)
    return str(body or error.message)
