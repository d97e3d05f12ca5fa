"""Small stand-ins for the method's tests: a chat model that is a function, vectors from a table, hand-made memories."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from harness.errors import ReplyError
from harness.llm.scripted import reply_for
from harness.llm.types import Meter, Reply, Usage
from harness.locomo.schema import Conversation, Session, Turn
from harness.memory import Services
from memfly.hierarchy import Hierarchy, Topic
from memfly.note import Draft

START = datetime(2023, 5, 8, 13, 56)


def turn(
    dia_id: str, text: str, speaker: str = "Ann", caption: str | None = None, when: datetime | None = None
) -> Turn:
    session = int(dia_id[1:].split(":")[0])
    return Turn(dia_id, session, speaker, text, caption, when or START + timedelta(days=session - 1))


def conversation(*sessions: Sequence[str]) -> Conversation:
    """Sessions of texts; Ann and Ben speak in turn."""
    made = []
    for number, texts in enumerate(sessions, start=1):
        when = START + timedelta(days=number - 1)
        turns = tuple(
            turn(f"D{number}:{place}", text, ("Ann", "Ben")[(place - 1) % 2], when=when)
            for place, text in enumerate(texts, start=1)
        )
        made.append(Session(number, when, "", turns))
    return Conversation("conv-x", "Ann", "Ben", tuple(made))


class FakeChat:
    """Replies by purpose: a value (dict), a function of the messages' text, or an exception; by default the scripted
    stand-in's. `latency` seeds random yields to the loop, so that replies arrive in another order."""

    name = "fake"

    def __init__(
        self,
        replies: Mapping[str, Any] | None = None,
        *,
        can_judge: bool = True,
        window: int = 32768,
        latency: int | None = None,
    ):
        self.replies = dict(replies or {})
        self.can_judge = can_judge
        self.window = window
        self.sent: list[tuple[str, str]] = []
        self._random = None if latency is None else random.Random(latency)

    def count(self, purpose: str) -> int:
        return sum(1 for sent, _ in self.sent if sent == purpose)

    async def complete(self, messages, *, schema=None, purpose="", meter=None, temperature=0.0, max_tokens=256, **_):
        text = messages[-1]["content"]
        self.sent.append((purpose, text))
        assert self.count_tokens("".join(m["content"] for m in messages)) + max_tokens <= self.window, (
            "window overflown"
        )
        if self._random is not None:
            for _ in range(self._random.randrange(6)):
                await asyncio.sleep(0)
        if meter is not None:
            meter.calls += 1
        reply = self.replies.get(purpose)
        if callable(reply) and not isinstance(reply, type):
            reply = reply(text)
        if isinstance(reply, Exception):
            raise reply
        value = (
            schema.model_validate_json(reply_for(messages, schema.model_json_schema()))
            if reply is None
            else schema.model_validate(reply)
        )
        return Reply("", value, Usage(), False, 1, (), 0.0, "stop")

    def count_tokens(self, text: str) -> int:
        return len(text.split())


UNUSABLE = ReplyError("unparsable", "no usable reply")


class TableEmbedder:
    """Vectors of known texts from a table (normalised), of others by hashing words; `dim` as in the table or 64."""

    max_tokens = 256

    def __init__(self, table: Mapping[str, Sequence[float]] | None = None, dim: int = 64):
        self.dim = dim
        self.table = {text: unit(vector, dim) for text, vector in (table or {}).items()}
        self.truncated = 0

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self.table[text] if text in self.table else hashed(text, self.dim) for text in texts])


def unit(vector: Sequence[float], dim: int) -> np.ndarray:
    full = np.zeros(dim, dtype=np.float32)
    full[: len(vector)] = vector
    return full / np.linalg.norm(full)


def hashed(text: str, dim: int) -> np.ndarray:
    vector = np.full(dim, 1e-3, dtype=np.float32)
    for word in text.casefold().split():
        vector[sum(map(ord, word)) % dim] += 1.0
    return vector / np.linalg.norm(vector)


def services(
    chat: FakeChat | None = None, embedder: Any = None, *, context_tokens: int = 10_000, seed: int = 0
) -> Services:
    return Services(chat or FakeChat(), embedder or TableEmbedder(), Meter(), seed, context_tokens)


def memory(
    notes: Sequence[tuple[Sequence[float], Sequence[str]]],
    *,
    keywords: Mapping[str, Sequence[float]],
    topics: Sequence[tuple[Sequence[str], Sequence[float]]] = (),
    edges: Sequence[tuple[int, int, float]] = (),
    dim: int = 4,
) -> Hierarchy:
    """A hand-made memory: notes as (vector, keywords), keyword vectors, topics as (keywords, centroid), edges."""
    hierarchy = Hierarchy(dim)
    for place, (vector, held) in enumerate(notes, start=1):
        vectors = np.stack([unit(keywords[form], dim) for form in held]) if held else np.zeros((0, dim))
        text = turn(f"D1:{place}", f"note {place - 1}")
        hierarchy.add(Draft(text, f"note {place - 1}", tuple(held), unit(vector, dim), vectors))
    for forms, centroid in topics:
        held = tuple(hierarchy.keyword(form).id for form in forms)
        hierarchy.topics.append(Topic(held, unit(centroid, dim)))
    for a, b, weight in edges:
        hierarchy.link(a, b, weight)
    return hierarchy


Rule = Callable[[str], Any]
