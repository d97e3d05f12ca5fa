"""The values that cross the language-model seam."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

Message = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": str}"""


@dataclass(frozen=True)
class Usage:
    """Tokens as the endpoint counted them, and dollars by the price table (0 where no price is known)."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.usd + other.usd,
        )


@dataclass(frozen=True)
class Reply:
    """A usable reply. `value` is the validated schema instance, None when no schema was asked for.

    `cached`: every attempt came from a reply paid for earlier or by another run. `attempts`: how many replies
    it took, from 1. `repairs`: the kinds of damage mended ("fence", "truncated", ...), empty for a clean reply.
    `latency_s`: seconds the endpoint took when the reply was computed (kept in the cache).
    """

    text: str
    value: BaseModel | None
    usage: Usage
    cached: bool
    attempts: int
    repairs: tuple[str, ...]
    latency_s: float
    finish_reason: str


@dataclass
class Meter:
    """What a scope (one conversation's memory, one question) spent. Not thread-safe: one event loop.

    `calls` counts replies used (cached or not, each attempt once); `computed` those this run paid for.
    `errors` counts calls that ended in ReplyError or EndpointError, `unanswered` those of them that ended in the latter:
    asked again, they may get a reply. `repaired` counts replies that needed repair;
    `fallbacks` decisions taken without a usable reply, by name.
    """

    calls: int = 0
    computed: int = 0
    cached: int = 0
    errors: int = 0
    unanswered: int = 0
    repaired: int = 0
    usage: Usage = field(default_factory=Usage)
    latency_s: float = 0.0
    purposes: Counter = field(default_factory=Counter)
    repairs: Counter = field(default_factory=Counter)
    fallbacks: Counter = field(default_factory=Counter)

    def fallback(self, name: str) -> None:
        """Count a decision that was taken without the model's word, under its name."""
        self.fallbacks[name] += 1


class ChatModel(Protocol):
    """The only thing that reaches a language model. Backbones differ in YAML alone."""

    name: str
    window: int
    """Context window in tokens, prompt and reply together."""
    takes_tools: bool
    """Whether `tools` reach the endpoint."""
    can_judge: bool
    """False for models too small to score redundancy (spec: a small model as the judge) and for the stand-in."""

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
        """One usable reply, or ReplyError (the model's fault, after all attempts) or EndpointError.

        `tools` are function declarations as the endpoint takes them, beside a schema with a field `function` and the
        functions' arguments: where `takes_tools`, they are sent in the schema's place and the reply's first call comes
        back as an instance of the schema; elsewhere they are not used, and the prompt must describe the functions.
        `purpose` labels the call in the meter only; it is no part of the cache key. `trial` is.
        """
        ...

    async def settle(self, meter: Meter | None = None) -> None:
        """Ask now, charged to `meter`, what must be known of the endpoint before the first call with a schema; a call that
        comes before asks by itself. Nothing where it is known. EndpointError."""
        ...

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` by the backbone's tokenizer, or by the estimate the manifest names."""
        ...
