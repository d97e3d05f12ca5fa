"""Model calls as the method makes them: prompt, schema, length, window; and what runs at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel

from harness.errors import EndpointError, ReplyError
from harness.llm.types import ChatModel, Meter
from harness.prompts import ROOT, load_prompt

Value = TypeVar("Value", bound=BaseModel)
Result = TypeVar("Result")

EXTRACT = "memfly/prompts/extract.j2"
SCORE = "memfly/prompts/score.j2"
SCORE_LIST = "memfly/prompts/score_list.j2"
MERGE = "memfly/prompts/merge.j2"
PARSE = "memfly/prompts/parse.j2"
JUDGE = "memfly/prompts/judge.j2"
PROMPT_FILES = (EXTRACT, SCORE, SCORE_LIST, MERGE, PARSE, JUDGE)

REPLY_TOKENS = {EXTRACT: 384, SCORE: 48, SCORE_LIST: 480, MERGE: 320, PARSE: 160, JUDGE: 96}
"""Longest reply of each prompt. Our choice: twice what a thorough reply takes, so that only runaway text is cut."""


class Caller:
    """The chat model as one conversation's memory uses it."""

    def __init__(self, chat: ChatModel, temperature: float):
        self.chat = chat
        self.temperature = temperature
        self._rooms: dict[str, int] = {}

    async def ask(self, prompt: str, schema: type[Value], meter: Meter, **inputs: object) -> Value | None:
        """One call; None where no attempt gave a usable reply (the caller names and counts its fallback).

        A fatal EndpointError passes through; one request that fails alone is a call without a reply.
        """
        try:
            reply = await self.chat.complete(
                load_prompt(prompt).messages(**inputs),
                schema=schema,
                temperature=self.temperature,
                max_tokens=REPLY_TOKENS[prompt],
                purpose=prompt.rsplit("/", 1)[-1].removesuffix(".j2"),
                meter=meter,
            )
        except (ReplyError, EndpointError) as error:
            if getattr(error, "fatal", False):
                raise
            return None
        return reply.value  # type: ignore[return-value]

    def room(self, prompt: str) -> int:
        """Tokens the window leaves for a prompt's inputs, the longest reply set aside.

        The file's header is counted with it: a margin for the chat template.
        """
        if prompt not in self._rooms:
            used = self.chat.count_tokens((ROOT / prompt).read_text(encoding="utf-8"))
            self._rooms[prompt] = max(0, self.chat.window - REPLY_TOKENS[prompt] - used)
        return self._rooms[prompt]

    def fits(self, text: str, tokens: int) -> bool:
        """Whether `text` takes at most `tokens`; a token is at least one character, so short texts are not counted."""
        return len(text) <= tokens or self.chat.count_tokens(text) <= tokens

    def clip(self, text: str, tokens: int) -> str:
        """The longest beginning of `text`, in whole words, that takes at most `tokens`; `text` itself if it fits."""
        if self.fits(text, tokens):
            return text
        words = text.split()
        low, high = 0, len(words)
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits(" ".join(words[:middle]), tokens):
                low = middle
            else:
                high = middle - 1
        return " ".join(words[:low])


async def together(jobs: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Run all at once, results in order. The first error cancels the rest and is raised as itself."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await abandon(tasks)


async def abandon(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel what still runs and wait for it, so that nothing outlives its caller."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
