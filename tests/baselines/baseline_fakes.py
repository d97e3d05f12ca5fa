"""Small stand-ins for the compared systems' tests: a chat model that is a function, vectors from a table, small talks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from harness.errors import ReplyError
from harness.llm.scripted import reply_for
from harness.llm.structured import wire_schema
from harness.llm.types import Meter, Reply, Usage
from harness.locomo.schema import Conversation, Session, Turn
from harness.memory import Evidence, MemorySystem, Query, Services

START = datetime(2023, 5, 8, 13, 56)
UNUSABLE = ReplyError("unparsable", "no usable reply")


def conversation(*sessions: Sequence[str], days: Sequence[int] | None = None) -> Conversation:
    """Sessions of texts; Ann and Ben speak in turn. days: of each session after START (default 0, 1, 2, ...)."""
    made = []
    for number, texts in enumerate(sessions, start=1):
        when = START + timedelta(days=number - 1 if days is None else days[number - 1])
        turns = tuple(
            Turn(f"D{number}:{place}", number, ("Ann", "Ben")[(place - 1) % 2], text, None, when)
            for place, text in enumerate(texts, start=1)
        )
        made.append(Session(number, when, "", turns))
    return Conversation("conv-x", "Ann", "Ben", tuple(made))


class FakeChat:
    """Replies by purpose: a value (dict), a function of the last message's text, or an exception; by default the
    scripted stand-in's. `latency` seeds random yields to the loop, so that replies arrive in another order.
    `sent`: (purpose, last message), in the order asked. A prompt that overflows `window` words fails the test."""

    name = "fake"
    can_judge = True
    takes_tools = False

    def __init__(
        self, replies: Mapping[str, Any] | None = None, *, window: int = 32768, latency: int | None = None
    ) -> None:
        self.replies = dict(replies or {})
        self.window = window
        self.sent: list[tuple[str, str]] = []
        self._random = None if latency is None else random.Random(latency)

    def asked(self, purpose: str) -> list[str]:
        return [text for sent, text in self.sent if sent == purpose]

    async def complete(self, messages, *, schema=None, purpose="", meter=None, max_tokens=256, **_):
        text = messages[-1]["content"]
        self.sent.append((purpose, text))
        whole = "\n".join(message["content"] for message in messages)
        assert self.count_tokens(whole) + max_tokens <= self.window, "window overflown"
        if self._random is not None:
            for _ in range(self._random.randrange(6)):
                await asyncio.sleep(0)
        if meter is not None:
            meter.calls += 1
        reply = self.replies.get(purpose)
        if callable(reply):
            reply = reply(text)
        if isinstance(reply, Exception):
            raise reply
        if reply is None:
            said = reply_for(messages, wire_schema(schema, rules=True) if schema else None)
            value = schema.model_validate_json(said) if schema else None
            return Reply(said, value, Usage(), False, 1, (), 0.0, "stop")
        value = schema.model_validate(reply) if schema else None
        return Reply("" if schema else reply, value, Usage(), False, 1, (), 0.0, "stop")

    def count_tokens(self, text: str) -> int:
        return len(text.split())


class TableEmbedder:
    """Vectors (normalised) of texts that hold a table's key (the first that matches), of others by hashing words.
    `encoded`: every text asked for, in order."""

    max_tokens = 256
    truncated = 0

    def __init__(self, table: Mapping[str, Sequence[float]] | None = None, dim: int = 64):
        self.dim = dim
        self.table = dict(table or {})
        self.encoded: list[str] = []

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.encoded.extend(texts)
        return np.stack([self._vector(text) for text in texts]) if texts else np.empty((0, self.dim), np.float32)

    def _vector(self, text: str) -> np.ndarray:
        vector = np.full(self.dim, 1e-3, dtype=np.float32)
        for key, values in self.table.items():
            if key in text:
                vector[:] = 0
                vector[: len(values)] = values
                return vector / np.linalg.norm(vector)
        for word in text.casefold().split():
            vector[sum(map(ord, word)) % self.dim] += 1.0
        return vector / np.linalg.norm(vector)


def services(
    chat: Any = None, embedder: Any = None, *, context_tokens: int = 10_000, seed: int = 0, meter: Meter | None = None
) -> Services:
    return Services(chat or FakeChat(), embedder or TableEmbedder(), meter or Meter(), seed, context_tokens)


def build(system: type[MemorySystem], config: Any, talk: Conversation, chat: Any = None, embedder: Any = None, **more):
    """A system with `talk` ingested."""
    made = system(config, services(chat, embedder, **more))
    asyncio.run(made.ingest(talk))
    return made


def ask(system: MemorySystem, text: str = "Who repaired the kiln?", category: int = 4) -> tuple[Evidence, Meter]:
    meter = Meter()
    return asyncio.run(system.recall(Query("conv-x/0", text, category), meter)), meter
