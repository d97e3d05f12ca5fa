"""Servers the bench starts by itself: on loopback, with a random key, ended with the run however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import hub
from harness.errors import ConfigError, EndpointError
from harness.llm import server_llamacpp, server_vllm
from harness.spec import BackboneSpec

GRACE_S = 15.0
"""Seconds a server has to end by itself before it is killed."""
_POLL_S = 0.5
_TAIL_BYTES = 1 << 18
"""Enough for the tracebacks of all processes of a server that failed."""
_CAUSE_SIGNS = 500
_RECENT_LINES = 100
"""Where the error that ended a running server stands; earlier ones may be of requests that it refused."""
_SAY_EVERY_S = 10.0


@dataclass(frozen=True)
class Endpoint:
    """Where the model answers. Both None: as the configuration says, nothing was started."""

    base_url: str | None
    api_key: str | None


def check(spec: BackboneSpec) -> None:
    """Raise ConfigError at once when the key, the program or the weights that `spec` needs are missing."""
    if spec.base_url is not None or spec.kind == "openai":
        if spec.base_url is None:
            raise ConfigError(f"backbone {spec.name!r} is of kind openai and has no base_url; give backbone.base_url")
        if spec.api_key_env and not os.environ.get(spec.api_key_env, "").strip():
            raise ConfigError(f"backbone {spec.name!r} needs its key: export {spec.api_key_env}=... and run again")
    elif spec.kind == "llamacpp":
        server_llamacpp.check(spec)
    elif spec.kind == "vllm":
        server_vllm.find_program(spec)


def download_note(spec: BackboneSpec) -> str | None:
    """One line on what `serve` would download, for the plan; None when that is nothing."""
    return server_vllm.download_note(spec) if spec.kind == "vllm" and spec.base_url is None else None


def starts(spec: BackboneSpec) -> bool:
    """Whether `serve` would start a server."""
    return spec.base_url is None and spec.kind in ("llamacpp", "vllm")


@contextlib.asynccontextmanager
async def serve(spec: BackboneSpec, log_dir: Path, say: Callable[[str], None]) -> AsyncIterator[Endpoint]:
    """Start the server that `spec` asks for, wait until it is healthy, end it on leaving.

    Nothing is started when a base URL is given or the kind needs no server. The server's own output is kept in
    `log_dir`/llamacpp.log or vllm.log. `say` receives lines for people: start, waiting, an unexpected end.
    EndpointError (fatal) with the log's last lines when it does not come up; ConfigError, DataError as in `check`.
    """
    check(spec)
    if not starts(spec):
        yield Endpoint(None, None)
        return
    key = secrets.token_urlsafe(24)
    log_dir.mkdir(parents=True, exist_ok=True)
    server = _Server(spec, log_dir / f"{spec.kind}.log", say)
    try:
        if spec.kind == "llamacpp":
            # Hashing the weights takes a while: not in the event loop.
            await server.start(*await asyncio.to_thread(server_llamacpp.command, spec, key), announces=True)
            root = await server.healthy(None)
        else:
            port = _free_port()
            await server.start(*server_vllm.command(spec, port, key), announces=False)
            root = await server.healthy(f"http://127.0.0.1:{port}")
        yield Endpoint(f"{root}/v1", key)
    finally:
        await server.stop()


class _Server:
    """One server under its keeper (see keeper.py)."""

    def __init__(self, spec: BackboneSpec, log: Path, say: Callable[[str], None]):
        self._spec = spec
        self._log = log
        self._say = say
        self._keeper: Any = None
        self._reader: asyncio.Task | None = None
        self._group: int | None = None
        self._url: str | None = None
        self._exit: int | None = None
        self._changed = asyncio.Event()
        self._stopping = False
        self._is_healthy = False

    async def start(self, argv: list[str], environment: dict[str, str], *, announces: bool) -> None:
        self._log.write_bytes(b"")
        self._keeper = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(Path(__file__).with_name("keeper.py")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal must not reach it
        )
        order: dict[str, Any] = {
            "argv": argv,
            "env": {**hub.environment(), **environment},
            "log": str(self._log),
            "grace_s": GRACE_S,
            "announces": announces,
        }
        self._keeper.stdin.write(json.dumps(order).encode() + b"\n")
        await self._keeper.stdin.drain()
        self._reader = asyncio.create_task(self._read())
        self._say(f"starting {self._spec.kind} with {self._spec.model}; its log: {self._log}")

    async def _read(self) -> None:
        """What the keeper says, until it is gone."""
        async for line in self._keeper.stdout:
            message = json.loads(line)
            self._group = message.get("pid", self._group)
            self._url = message.get("url", self._url)
            self._exit = message.get("exit", self._exit)
            self._changed.set()
        if self._exit is None:
            self._exit = -1  # the keeper died, and the server's first process with it; its workers are left
            self._end_group()
            self._changed.set()
        if self._is_healthy and not self._stopping:
            self._say(f"{self._spec.kind} ended by itself (status {self._exit}); {self._last_words()}")

    async def healthy(self, url: str | None) -> str:
        """Wait until the server answers /health with 200; its root URL (None: the one it announces)."""
        import aiohttp

        began = said = time.monotonic()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                if self._exit is not None:
                    raise EndpointError(
                        "server",
                        f"{self._spec.kind} ended while starting (status {self._exit}); {self._last_words()}",
                        fatal=True,
                    )
                if (root := url or self._url) and await _answers(session, f"{root}/health"):
                    self._is_healthy = True
                    self._say(f"{self._spec.kind} is ready after {time.monotonic() - began:.1f} s")
                    return root
                now = time.monotonic()
                if now - began > self._spec.server.startup_s:
                    raise EndpointError(
                        "server",
                        f"{self._spec.kind} was not ready after {self._spec.server.startup_s:.0f} s "
                        f"(backbone.server.startup_s); {self._last_words()}",
                        fatal=True,
                    )
                if now - said >= _SAY_EVERY_S:
                    said = now
                    self._say(f"waiting for {self._spec.kind}, {now - began:.0f} s: {self._now()}")
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), _POLL_S)

    async def stop(self) -> None:
        """Close the keeper's stdin: it ends the server, by force after GRACE_S."""
        self._stopping = True
        if self._keeper is None:
            return
        self._keeper.stdin.close()
        try:
            await asyncio.wait_for(self._keeper.wait(), GRACE_S + 5)
        except TimeoutError:
            self._keeper.kill()
            await self._keeper.wait()
            self._end_group()
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader

    def _end_group(self) -> None:
        """Without its keeper: end what the server started, which only its group knows."""
        if self._group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)

    def _last_words(self) -> str:
        """What the log says of the end, as one line: the error where one is found, else its last lines."""
        lines = self._tail()
        if not lines:
            return f"{self._log} is empty"
        recent = lines[-_RECENT_LINES:] if self._is_healthy else lines
        if self._spec.kind == "vllm" and (cause := server_vllm.cause(recent)):
            return f"{cause[:_CAUSE_SIGNS]}; its log: {self._log}"
        return f"{self._log} ends: {' | '.join(line[:200] for line in lines[-3:])}"

    def _now(self) -> str:
        """The log's last line, for somebody who waits."""
        lines = self._tail()
        return server_vllm.plain(lines[-1])[:120] if lines else "nothing in its log yet"

    def _tail(self) -> list[str]:
        """The lines at the end of the log that hold anything."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return []
        return [line.strip() for line in lines if line.strip()]


async def healthy(endpoint: Endpoint) -> bool:
    """Whether a server that was started still answers."""
    import aiohttp

    if endpoint.base_url is None:
        return False
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        return await _answers(session, f"{endpoint.base_url.removesuffix('/v1')}/health")


async def _answers(session: Any, url: str) -> bool:
    import aiohttp

    try:
        async with session.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
