"""One server for the runs of a sweep: a model that takes minutes to load is loaded once, not once a run."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from harness.llm import servers
from harness.llm.servers import Endpoint
from harness.spec import BackboneSpec


class KeptServer:
    """Starts the server a run asks for and leaves it running for the next one that asks for the same.

    Each run has an event loop of its own, which ends with it, so the server is looked after in a thread of its own. At
    most one server runs: another spec, or one that answers no more, ends it first. Its log stays in the folder of the run
    that started it. Errors as in `servers.serve`.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kept-server", daemon=True)
        self._thread.start()
        self._spec: BackboneSpec | None = None
        self._endpoint = Endpoint(None, None)
        self._stack = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def serve(self, spec: BackboneSpec, log_dir: Path, say: Callable[[str], None]) -> AsyncIterator[Endpoint]:
        """As `servers.serve`, but leaving does not end the server."""
        started = asyncio.run_coroutine_threadsafe(self._endpoint_for(spec, log_dir, say), self._loop)
        yield await asyncio.wrap_future(started)

    def close(self) -> None:
        """End the server and the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _endpoint_for(self, spec: BackboneSpec, log_dir: Path, say: Callable[[str], None]) -> Endpoint:
        if spec == self._spec and await servers.healthy(self._endpoint):
            say(f"{spec.kind} goes on serving: the server of an earlier run of this sweep")
            return self._endpoint
        await self._end()
        self._endpoint = await self._stack.enter_async_context(servers.serve(spec, log_dir, say))
        self._spec = spec
        return self._endpoint

    async def _end(self) -> None:
        self._spec = None
        await self._stack.aclose()
        self._stack = contextlib.AsyncExitStack()


_current: KeptServer | None = None


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """While it is entered, the runs of this process share servers."""
    global _current
    _current = KeptServer()
    try:
        yield
    finally:
        kept, _current = _current, None
        kept.close()


def serve(
    spec: BackboneSpec, log_dir: Path, say: Callable[[str], None]
) -> contextlib.AbstractAsyncContextManager[Endpoint]:
    """The server of a run: the sweep's, or one of its own."""
    keeper = _current if servers.starts(spec) else None
    return servers.serve(spec, log_dir, say) if keeper is None else keeper.serve(spec, log_dir, say)
