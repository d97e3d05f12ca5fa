"""Faults for scripts/endpoint.py: what endpoints, proxies and networks do to a client, by rule and without luck.

Which request meets which fault is a hash of the seed, the request's body and how often that body came before: the same
run meets the same faults, whatever its timing, and a request that is sent again is another draw.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

from aiohttp import web

Completion = dict[str, Any]

_PIECES = 8
_FILTERED = "The prompt was filtered by the content management policy"


@dataclass(frozen=True)
class Settings:
    """rate: share of requests that meet a fault, [0, 1]. retry_after_s: what a 429 asks for. hang_s: seconds until a
    request that hangs or stalls is dropped. drip_s: seconds a dripping reply takes. down_after: replies after which
    every request gets a 500."""

    rate: float = 0.0
    seed: int = 0
    kinds: tuple[str, ...] = ()
    retry_after_s: float = 1.0
    hang_s: float = 600.0
    drip_s: float = 2.0
    down_after: int | None = None


class Faults:
    """Chooses, counts (`counts`: kind -> times) and commits the faults of one endpoint."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self._seen: Counter[bytes] = Counter()
        self._replies = 0

    async def answer(self, request: web.Request, body: bytes, reply: Completion) -> web.StreamResponse:
        """The response to a request whose sound reply would be `reply`."""
        kind = self._pick(body)
        if kind is None:
            self._replies += 1
            return web.json_response(reply)
        self.counts[kind] += 1
        return await KINDS[kind](request, reply, self.settings)

    def _pick(self, body: bytes) -> str | None:
        settings = self.settings
        if settings.down_after is not None and self._replies >= settings.down_after:
            return "500"
        if not settings.rate:
            return None
        times = self._seen[digest := hashlib.blake2b(body, digest_size=16).digest()]
        self._seen[digest] += 1
        drawn = hashlib.blake2b(b"%d %d " % (settings.seed, times) + digest, digest_size=16).digest()
        if int.from_bytes(drawn[:8], "big") >= settings.rate * 2**64:
            return None
        possible = settings.kinds
        if not _has_schema(body):  # any text is a usable answer where no form is asked for
            possible = tuple(kind for kind in possible if kind not in OF_FORM)
        return possible[int.from_bytes(drawn[8:], "big") % len(possible)] if possible else None


def _has_schema(body: bytes) -> bool:
    return "response_format" in json.loads(body)


async def _error(status: int, message: str, headers: dict[str, str] | None = None, code: str = "") -> web.Response:
    return web.json_response({"error": {"message": message, "code": code}}, status=status, headers=headers)


async def _rate_limited(request: web.Request, reply: Completion, settings: Settings) -> web.Response:
    return await _error(429, "slow down", {"Retry-After": f"{settings.retry_after_s:g}"})


async def _rate_limited_until(request: web.Request, reply: Completion, settings: Settings) -> web.Response:
    when = formatdate(time.time() + settings.retry_after_s, usegmt=True)
    return await _error(429, "slow down", {"Retry-After": when})


async def _internal(request: web.Request, reply: Completion, settings: Settings) -> web.Response:
    return await _error(500, "internal error")


async def _gateway(request: web.Request, reply: Completion, settings: Settings) -> web.Response:
    return web.Response(status=502, text="<html><h1>502 Bad Gateway</h1></html>", content_type="text/html")


async def _unavailable(request: web.Request, reply: Completion, settings: Settings) -> web.Response:
    return await _error(503, "no worker is free")


async def _started(request: web.Request, reply: Completion) -> tuple[web.StreamResponse, bytes]:
    """A response whose headers, with the whole body's length, are sent; and the body."""
    body = json.dumps(reply).encode()
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
    await response.prepare(request)
    return response, body


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _reset(request: web.Request, reply: Completion, settings: Settings) -> web.StreamResponse:
    response, body = await _started(request, reply)
    await response.write(body[: len(body) // 2])
    _abort(request)
    return response


async def _hang(request: web.Request, reply: Completion, settings: Settings) -> web.StreamResponse:
    await asyncio.sleep(settings.hang_s)
    _abort(request)
    return web.Response()


async def _stall(request: web.Request, reply: Completion, settings: Settings) -> web.StreamResponse:
    response, body = await _started(request, reply)
    await response.write(body[: len(body) // 2])
    await asyncio.sleep(settings.hang_s)
    _abort(request)
    return response


async def _drip(request: web.Request, reply: Completion, settings: Settings) -> web.StreamResponse:
    response, body = await _started(request, reply)
    step = -(-len(body) // _PIECES)
    for start in range(0, len(body), step):
        await asyncio.sleep(settings.drip_s / _PIECES)
        await response.write(body[start : start + step])
    await response.write_eof()
    return response


async def _empty_choices(request: web.Request, reply: Completion, settings: Settings) -> web.Response:
    return web.json_response({**reply, "choices": []})


async def _content_type(request: web.Request, reply: Completion, settings: Settings) -> web.Response:
    return web.Response(text=json.dumps(reply), content_type="text/plain")


async def _invalid_json(request: web.Request, reply: Completion, settings: Settings) -> web.Response:
    text = json.dumps(reply)
    return web.Response(text=text[: len(text) // 2], content_type="application/json")


async def _refused(request: web.Request, reply: Completion, settings: Settings) -> web.Response:
    return await _error(400, _FILTERED, code="content_filter")


def _saying(
    content: str | Callable[[str], str] | None, finish_reason: str = "stop", **beside: Any
) -> Callable[[web.Request, Completion, Settings], Awaitable[web.StreamResponse]]:
    """A sound completion whose message says something else; a function makes it of the true content."""

    async def answer(request: web.Request, reply: Completion, settings: Settings) -> web.Response:
        (choice,) = reply["choices"]
        said = content(choice["message"]["content"]) if callable(content) else content
        message = {**choice["message"], "content": said, **beside}
        return web.json_response({**reply, "choices": [{**choice, "message": message, "finish_reason": finish_reason}]})

    return answer


KINDS: dict[str, Callable[[web.Request, Completion, Settings], Awaitable[web.StreamResponse]]] = {
    "429": _rate_limited,
    "429_date": _rate_limited_until,
    "500": _internal,
    "502": _gateway,
    "503": _unavailable,
    "reset": _reset,
    "hang": _hang,
    "stall": _stall,
    "drip": _drip,
    "empty_choices": _empty_choices,
    "content_type": _content_type,
    "invalid_json": _invalid_json,
    "null_content": _saying(None),
    "length": _saying("<think>First I look at", "length"),
    "think": _saying(lambda text: f'<think>Perhaps {{"a": 1}}? No.</think>\n{text}'),
    "invalid_reply": _saying("Sure, here it comes:"),
    "invalid_schema": _saying('{"unexpected": {"form": null}}'),
    "refusal": _saying(None, refusal="I cannot help with that."),
    "cut": _saying(lambda text: text[: len(text) // 2], "length"),
    "refused": _refused,
}
OF_FORM = frozenset({"invalid_reply", "invalid_schema", "refusal", "cut"})
"""Met only by requests that ask for a form."""
FINAL = frozenset({"cut", "refused"})
"""What a client has no way to undo: a reply that is shorter than it was meant and readable all the same, and the word
that this very request gets no reply."""
MENDABLE = tuple(kind for kind in KINDS if kind not in FINAL)


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("faults")
    group.add_argument("--faults", type=share, default=0.0, help="share of requests that meet one (default 0)")
    group.add_argument("--seed", type=int, default=0, help="another seed, other requests (default 0)")
    group.add_argument(
        "--kinds",
        nargs="+",
        choices=KINDS,
        default=list(MENDABLE),
        metavar="KIND",
        help=f"{', '.join(MENDABLE)} (the default: all of these), {', '.join(sorted(FINAL))}",
    )
    group.add_argument("--retry-after", type=seconds, default=1.0, help="seconds a 429 asks for (default 1)")
    group.add_argument("--hang", type=seconds, default=600.0, help="seconds until a hanging request is dropped (600)")
    group.add_argument("--drip", type=seconds, default=2.0, help="seconds a dripping reply takes (default 2)")
    group.add_argument("--down-after", type=int, metavar="N", help="every request after N replies gets a 500")


def settings_of(options: argparse.Namespace) -> Settings:
    return Settings(
        rate=options.faults,
        seed=options.seed,
        kinds=tuple(dict.fromkeys(options.kinds)),
        retry_after_s=options.retry_after,
        hang_s=options.hang,
        drip_s=options.drip,
        down_after=options.down_after,
    )


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 3600 seconds")
    return value
