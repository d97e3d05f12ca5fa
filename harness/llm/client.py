"""The one chat client: cache -> attempts -> limiter and retry -> transport -> a reply that fits its schema.

A reply that is empty or does not fit is kept under its attempt number; the next attempt is another request, with a
short message that says what was wrong. How a schema reaches the model (`BackboneSpec.structured`): "schema" sends
response_format and never anything else; "prompt" writes it into the prompt; "auto" asks the endpoint one small
question first, kept in the cache like every reply, and writes it into the prompt if response_format is refused or
ignored. Where a caller declares `tools` and the backbone takes them, they go in the schema's place. So which way is taken depends on the endpoint alone, not on which call happened to come first. A single
schema that is refused later goes into the prompt as well.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel

from harness.errors import ConfigError, EndpointError, ReplyError
from harness.llm import scripted
from harness.llm.budget import Budget
from harness.llm.cache import ReplyCache, Row
from harness.llm.limiter import Limiter
from harness.llm.retry import Failure, Retrier
from harness.llm.structured import Unusable, parse_reply, visible_text, wire_schema, with_schema_in_prompt
from harness.llm.tokens import TokenCounter
from harness.llm.transport import OpenAITransport, Outgoing, Transport
from harness.llm.types import Message, Meter, Reply, Usage
from harness.llm.usage import Live, charge, charge_failed, usage_of
from harness.spec import BackboneSpec

Way = Literal["schema", "prompt", "tools"]


class FormatRefused(Exception):
    """The endpoint takes no response_format, or not this schema in it. The message is its own."""


class _Colour(BaseModel):
    """The probe's reply: an endpoint that ignores response_format names a colour in words."""

    colour: str


_PROBE = [{"role": "user", "content": "Name a colour."}]
_PROBE_TOKENS = 32
_FRAME_TOKENS = 8
"""Tokens an endpoint adds around a message (our choice: OpenAI documents 3 to 4)."""


class Chat:
    """Implements ChatModel for one backbone. One instance per event loop; `await aclose()` when done.

    `live`: running totals. `notices`: things said once, for the lines above a table. `tokenizer_name`: who counts
    tokens. `limiter` and `retrier` are made from the spec unless given (tests give a clock).
    """

    def __init__(
        self,
        spec: BackboneSpec,
        cache: ReplyCache,
        transport: Transport,
        counter: TokenCounter,
        *,
        limiter: Limiter | None = None,
        retrier: Retrier | None = None,
        seed: int = 0,
        max_usd: float | None = None,
    ):
        self._seed = seed
        self.budget = Budget(spec.price, max_usd)
        self.name = spec.name
        self.window = spec.window
        self.can_judge = spec.can_judge
        self.takes_tools = spec.tools
        self.live = Live()
        self.notices: list[str] = []
        self.tokenizer_name = counter.name
        self._spec = spec
        self._cache = cache
        self._transport = transport
        self._count = counter
        self._limiter = limiter or Limiter(spec.concurrency_start, spec.concurrency_max)
        self._retrier = retrier or Retrier(spec.retries)
        self._grammar = spec.kind in ("llamacpp", "vllm")  # these decode by grammar and so enforce maxLength
        self._scripted = spec.kind == "scripted"  # its rules stand in the schema: there is no other way
        self._way: Way | None = "schema" if self._scripted else None if spec.structured == "auto" else spec.structured
        self._probing = asyncio.Lock()
        self._prompted: set[type[BaseModel]] = set()
        thinking_off = {"chat_template_kwargs": {"enable_thinking": False}} if spec.thinking == "qwen3" else {}
        self._extra = {**thinking_off, **spec.sampling}
        self._identity = {
            **({"backbone_sampling": spec.sampling} if spec.sampling else {}),
            **({"server_args": spec.server.args} if spec.server.args else {}),
            "model": spec.model,
            "revision": spec.revision or (scripted.VERSION if self._scripted else None),
            "dtype": spec.server.dtype if spec.kind == "vllm" else None,
            "thinking": spec.thinking,
        }

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` by the backbone's tokenizer, or by the estimate that `tokenizer_name` names."""
        return self._count(text)

    async def meet(self) -> None:
        """Look at a server that the bench would have started itself, had it not been given an address: say that it was
        not, and that nobody checks what it serves. ConfigError where it lists models and not this one."""
        if self._spec.base_url is None or not self._grammar or not isinstance(self._transport, OpenAITransport):
            return
        served, where = await self._transport.served(), self._transport.where
        if served is not None and self._spec.model not in served:
            known = ", ".join(served[:5])
            raise ConfigError(
                f"{where} serves {known}, not {self._spec.model!r}; start it with that model, or give the name it serves as "
                "backbone.model, which makes it another run"
            )
        self._say(
            f"served by {where}, which the bench did not start: revision, quantisation and arguments not verified"
        )

    async def aclose(self) -> None:
        """Close the connections. The cache belongs to whoever made it."""
        await self._transport.aclose()

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: type[BaseModel] | None = None,
        tools: list[dict[str, Any]] | None = None,
        temperature: float = 0.0,
        max_tokens: int = 256,
        purpose: str = "",
        meter: Meter | None = None,
        trial: int = 0,
        **sampling: Any,
    ) -> Reply:
        """See ChatModel.complete. `sampling` goes into the request's body as it is (seed, top_p, stop, ...)."""
        if tools is not None and schema is None:
            raise ValueError("tools come with a schema, whose instance a call becomes")
        settings = {"temperature": float(temperature), "max_tokens": max_tokens, **sampling}
        try:
            return await self._attempts(messages, schema, tools, settings, purpose, meter, trial)
        except (ReplyError, EndpointError) as error:
            if meter is not None:
                meter.errors += 1
                meter.unanswered += isinstance(error, EndpointError)
            raise

    async def _attempts(
        self,
        messages: list[Message],
        schema: type[BaseModel] | None,
        tools: list[dict[str, Any]] | None,
        settings: dict[str, Any],
        purpose: str,
        meter: Meter | None,
        trial: int,
    ) -> Reply:
        total = Usage()
        latency = 0.0
        any_computed = False
        asked = messages
        for attempt in range(1, self._spec.attempts + 1):
            row = await self._reply(asked, schema, tools, settings, trial, attempt, meter)
            usage, computed = self._charge(row, purpose, meter)
            total += usage
            latency += row.latency_s
            any_computed |= computed
            try:
                value, text, repairs = _read(row, schema)
            except Unusable as problem:
                kind = problem.kind
                wrong = "it was cut off at the token limit" if row.finish_reason == "length" else str(problem)
                asked = [*messages, _correction(wrong, schema)]
                continue
            if meter is not None and repairs:
                meter.repaired += 1
                meter.repairs.update(repairs)
            return Reply(text, value, total, not any_computed, attempt, repairs, latency, row.finish_reason)
        raise ReplyError(
            kind,
            f"{self.name}: no usable reply to {purpose or 'a call'} in {self._spec.attempts} attempts; the last: {wrong}",
            text=row.text or row.reasoning or "",
            usage=total,
            attempts=self._spec.attempts,
        )

    async def _reply(
        self,
        messages: list[Message],
        schema: type[BaseModel] | None,
        tools: list[dict[str, Any]] | None,
        settings: dict[str, Any],
        trial: int,
        attempt: int,
        meter: Meter | None,
    ) -> Row:
        """One reply, whatever it is worth; a schema that response_format cannot carry goes into the prompt."""
        if schema is None:
            return await self._ask(messages, None, None, settings, trial, attempt, meter)
        if tools and self.takes_tools:
            return await self._ask(messages, schema, "tools", settings, trial, attempt, meter, tools)
        way = await self._way_for(schema, meter)
        try:
            return await self._ask(messages, schema, way, settings, trial, attempt, meter)
        except FormatRefused as refusal:
            if schema not in self._prompted:
                self._prompted.add(schema)
                self._say(f"response_format refused for {schema.__name__}: its schema goes into the prompt ({refusal})")
        except EndpointError as error:  # in a replay nobody refuses: what was refused then is not there now
            if error.kind != "replay_miss" or way != "schema" or self._spec.structured != "auto":
                raise
        return await self._ask(messages, schema, "prompt", settings, trial, attempt, meter)

    async def settle(self, meter: Meter | None = None) -> None:
        """See ChatModel.settle: whether the endpoint heeds response_format."""
        await self._settled(meter)

    async def _settled(self, meter: Meter | None) -> Way:
        if self._way is None:
            async with self._probing:
                if self._way is None:
                    self._way = await self._probe(meter)
        return self._way

    async def _way_for(self, schema: type[BaseModel], meter: Meter | None) -> Way:
        way = await self._settled(meter)
        return "prompt" if schema in self._prompted else way

    async def _probe(self, meter: Meter | None) -> Way:
        """Ask for a colour under a schema of which the prompt says nothing: does a JSON object come back?"""
        settings = {"temperature": 0.0, "max_tokens": _PROBE_TOKENS}
        try:
            row = await self._ask(_PROBE, _Colour, "schema", settings, 0, 1, meter)
        except FormatRefused as refusal:
            self._say(f"response_format refused: the schema goes into the prompt ({refusal})")
            return "prompt"
        except EndpointError as error:
            if error.kind != "replay_miss":
                raise
            return "prompt"
        self._charge(row, "probe", meter)
        try:
            parsed = parse_reply(row.text, row.reasoning, _Colour)
        except Unusable:
            parsed = None
        if parsed is not None and "bare_value" not in parsed.repairs:
            return "schema"
        self._say("response_format ignored: the schema goes into the prompt")
        return "prompt"

    async def _ask(
        self,
        messages: list[Message],
        schema: type[BaseModel] | None,
        way: Way | None,
        settings: dict[str, Any],
        trial: int,
        attempt: int,
        meter: Meter | None,
        tools: list[dict[str, Any]] | None = None,
    ) -> Row:
        """The reply to one request, from the cache or computed. Raises FormatRefused where the way is "schema"."""
        wire = None if schema is None else wire_schema(schema, rules=self._scripted, lengths=self._grammar)
        sent = with_schema_in_prompt(messages, schema) if way == "prompt" and schema is not None else messages
        request = {
            **self._identity,
            "messages": sent,
            "schema": wire,
            "structured": way,
            "sampling": settings,
            "trial": trial,
            "attempt": attempt,
        }
        if self._seed and settings.get("temperature"):
            request["seed"] = self._seed  # another seed is another draw, never the first one's from the cache
        if tools is not None:
            tools = [_strict(tool) for tool in tools] if self._spec.kind == "vllm" else tools
            request["tools"] = tools
        outgoing = Outgoing(sent, wire if way == "schema" else None, {**settings, **self._extra}, tools)
        try:
            row, hit = await self._cache.get(request, partial(self._compute, outgoing, meter))
        except Failure as refusal:
            if way == "schema" and self._spec.structured == "auto":
                raise FormatRefused(refusal.message) from None
            instead = "structured=prompt puts the schema into the prompt instead"
            if way == "tools":
                instead = "tools=false asks for function calls by a schema instead"
            raise EndpointError(
                refusal.kind, f"{refusal.message}; backbone.{instead}", fatal=way in ("schema", "tools")
            ) from None
        if hit:
            self.live.cache_hits += 1
        else:
            self.live.received += 1
        return row

    async def _compute(self, outgoing: Outgoing, meter: Meter | None) -> Row:
        self.live.under_way += 1
        try:
            return await self._retrier.run(partial(self._try, outgoing, meter))
        finally:
            self.live.under_way -= 1

    def _most(self, outgoing: Outgoing) -> tuple[int, int]:
        """Prompt and completion tokens that a request may cost at most; nothing is counted where nothing is paid."""
        if not self.budget.limited:
            return 0, 0
        words = [str(message["content"]) for message in outgoing.messages]
        words += [str(part) for part in (outgoing.schema, outgoing.tools) if part]
        framed = sum(self._count(text) + _FRAME_TOKENS for text in words)
        return framed, int(outgoing.fields.get("max_tokens", 0))

    async def _try(self, outgoing: Outgoing, meter: Meter | None) -> Row:
        slot = await self._limiter.acquire()
        outcome, wait = "other", None
        try:
            row = await self._send(outgoing)
            outcome = "ok"
            return row
        except Failure as failure:
            outcome, wait = failure.kind, failure.retry_after
            self.live.failed_tries += 1
            self.live.last_failure = failure.kind
            charge_failed(failure.billed, self._spec.price, live=self.live, meter=meter)
            raise
        finally:
            self._limiter.release(slot, outcome, wait)

    async def _send(self, outgoing: Outgoing) -> Row:
        """One request. What it may cost is set aside before; a request that nobody saw the end of (timed out, cancelled) is
        taken to have cost that much, because the endpoint may bill it. One that still waits for a slot has cost nothing."""
        most = self._most(outgoing)
        reserved = await self.budget.reserve(*most)
        used = most
        self.live.in_flight += 1
        try:
            row = await self._transport.send(outgoing)
            if not row.prompt_tokens and row.estimated:
                row = replace(
                    row,
                    prompt_tokens=sum(self._count(message["content"]) for message in outgoing.messages),
                    completion_tokens=self._count((row.reasoning or "") + (row.text or "")),
                )
            used = row.prompt_tokens, row.completion_tokens
            return row
        except Failure as failure:
            if failure.kind != "timeout":
                used = failure.billed
            raise
        finally:
            self.live.in_flight -= 1
            await self.budget.settle(reserved, *used)

    def _charge(self, row: Row, purpose: str, meter: Meter | None) -> tuple[Usage, bool]:
        if row.estimated and not self._scripted:
            self._say(f"the endpoint reports no usage: tokens are counted by {self.tokenizer_name}")
        computed = self._cache.claim(row)
        usage = usage_of(row, self._spec.price, computed=computed)
        charge(row, usage, computed=computed, purpose=purpose, live=self.live, meter=meter)
        return usage, computed

    def _say(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)


def _strict(tool: dict[str, Any]) -> dict[str, Any]:
    """A function declaration whose arguments vLLM enforces by grammar; without the mark it takes any JSON for them.
    OpenAI knows the mark too, but refuses it where an argument is optional."""
    return {**tool, "function": {**tool["function"], "strict": True}}


def _read(row: Row, schema: type[BaseModel] | None) -> tuple[BaseModel | None, str, tuple[str, ...]]:
    """Value, text and repairs of a reply. Raises Unusable."""
    if schema is not None:
        parsed = parse_reply(row.text, row.reasoning, schema)
        return parsed.value, row.text or row.reasoning or "", parsed.repairs
    text, repairs = visible_text(row.text, row.reasoning)
    if not text:
        raise Unusable("empty", "it was empty")
    return None, text, repairs


def _correction(wrong: str, schema: type[BaseModel] | None) -> Message:
    wanted = "the answer" if schema is None else "the JSON object"
    return {"role": "user", "content": f"Your last reply cannot be used: {wrong}. Reply with {wanted} alone."}
