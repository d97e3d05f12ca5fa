"""Model calls as a memory makes them: prompt, schema, length, window; and what runs at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from harness.errors import EndpointError, ReplyError
from harness.llm.types import ChatModel, Meter
from harness.prompts import ROOT, load_prompt

Value = TypeVar("Value", bound=BaseModel)
Result = TypeVar("Result")


class Caller:
    """The chat model as one conversation's memory uses it. reply_tokens: the longest reply of each prompt file."""

    def __init__(self, chat: ChatModel, temperature: float, reply_tokens: Mapping[str, int]):
        self.chat = chat
        self.temperature = temperature
        self.reply_tokens = reply_tokens
        self._rooms: dict[str, int] = {}

    async def ask(self, prompt: str, schema: type[Value], meter: Meter, **inputs: object) -> Value | None:
        """One call, its purpose the prompt's file name; None where no attempt gave a usable reply (the caller names
        and counts its fallback). A fatal EndpointError passes through; one request that fails alone is a call without a reply."""
        try:
            reply = await self.chat.complete(
                load_prompt(prompt).messages(**inputs),
                schema=schema,
                temperature=self.temperature,
                max_tokens=self.reply_tokens[prompt],
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
            self._rooms[prompt] = max(0, self.chat.window - self.reply_tokens[prompt] - used)
        return self._rooms[prompt]

    def fits(self, text: str, tokens: int) -> bool:
        """Whether `text` takes at most `tokens`; a token is at least one character, so short texts are not counted."""
        return len(text) <= tokens or self.chat.count_tokens(text) <= tokens

    def clip(self, text: str, tokens: int) -> str:
        """The longest beginning of `text`, in whole words, that takes at most `tokens`; `text` itself if it fits."""
        if self.fits(text, tokens):
            return text
        words = text.split()
        kept = longest(len(words), lambda n: self.fits(" ".join(words[:n]), tokens))
        return " ".join(words[:kept])

    def latest(self, lines: Sequence[str], tokens: int) -> list[str]:
        """As many of the last lines as take at most `tokens` together."""
        kept = longest(len(lines), lambda n: self.fits("\n".join(lines[len(lines) - n :]), tokens))
        return list(lines[len(lines) - kept :])


def longest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest n in 0..most for which fits(n), given that whatever fits goes on fitting when it is shorter."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


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
