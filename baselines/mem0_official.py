"""Mem0 by its own package, mem0ai 1.0.x: the last line with ADD, UPDATE and DELETE. An optional extra.

The package keeps its logic: extraction, search for similar memories (5 a fact), the update prompt, the carrying out. Its
language model and its embedder are ours: calls go through the run's chat client, so that they are cached, bounded,
retried, counted and resumed like all others, whatever the backbone, and vectors are the run's. So the package opens no
connection of its own. Telemetry is off, vectors lie in an in-process Qdrant, history in an in-memory SQLite.

Deviations from the package as shipped: replies are asked for by JSON schema and arrive mended (the package asks for any
JSON object and drops what it cannot read); temperature is the run's (the package: 0.1); extraction has our prompt,
because the package's own says that today is the day it is run, and takes the session's date with every message; a
reply that stays unusable is counted under a name, and so is every action the package ignores.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.metadata
import logging
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, Field, create_model

from baselines.common import date_time, turn_line
from baselines.mem0_paper import Hit, Memory, Pair, pairs_of
from harness.calls import together
from harness.errors import ConfigError, ReplyError
from harness.locomo.schema import Conversation
from harness.memory import Services
from harness.prompts import load_prompt

if TYPE_CHECKING:
    from baselines.mem0 import Mem0Config

FACTS = "baselines/prompts/mem0_official_facts.j2"
FACTS_TOKENS = 400
UPDATE_TOKENS = 1500
"""Longest replies. The update repeats every memory it was shown; the package allows 2,000 tokens for either."""
UPDATE_FRAME_TOKENS = 1900
"""Of the package's update prompt without memories and facts, for plans (counted in 1.0.11)."""
VERSION = "1.0."
_STORE = "memory"

Result = TypeVar("Result")


def require_package() -> str:
    """The installed version. ConfigError where it is missing or another line."""
    try:
        version = importlib.metadata.version("mem0ai")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            "memory.impl=official needs the package mem0ai 1.0.x, which is not installed; `make setup-mem0` installs it"
        ) from None
    if not version.startswith(VERSION):
        raise ConfigError(
            f"memory.impl=official needs mem0ai 1.0.x, found {version}, which no longer updates and deletes; "
            "`make setup-mem0` installs the pinned one"
        )
    return version


class PackageFacts(BaseModel):
    facts: list[str] = Field(
        json_schema_extra={"x-scripted": {"rule": "each", "tag": "message", "item": {"rule": "copy", "tag": "."}}}
    )


class Action(BaseModel):
    id: str
    text: str
    event: Literal["ADD", "UPDATE", "DELETE", "NONE"]
    old_memory: str | None


def actions_model(facts: Sequence[str]) -> type[BaseModel]:
    """The update's reply. The stand-in cannot read the package's prompt, which has no tags: it adds every fact."""
    added = [{"id": f"new{i}", "text": f, "event": "ADD", "old_memory": None} for i, f in enumerate(facts)]
    rule = {"x-scripted": {"rule": "const", "value": added}}
    return create_model("PackageActions", memory=(list[Action], Field(json_schema_extra=rule)))


class Bridge:
    """What the package takes for its language model and its embedder: called in worker threads, answered by the run's
    chat client and embedder on the event loop. One per store.

    failure: an error the package would swallow. wanted: changes the last update asked for.
    """

    def __init__(self, services: Services, temperature: float, loop: asyncio.AbstractEventLoop):
        self.services = services
        self.temperature = temperature
        self.failure: BaseException | None = None
        self.wanted = 0
        self.facts: list[str] = []
        self.loop = loop
        self._pending: set[Future[Any]] = set()
        self._closed = False

    def generate_response(self, messages: list[dict[str, str]], **_: Any) -> str:
        """The package's two calls: extraction has a system part, the update has none. "" where no reply was usable
        (fallbacks "facts_none", "update_none"): the package then changes nothing."""
        extracts = messages[0]["role"] == "system"
        schema = PackageFacts if extracts else actions_model(self.facts)
        try:
            value = self._wait(self._complete(messages, schema, extracts))
        except ReplyError:
            self.services.meter.fallback("facts_none" if extracts else "update_none")
            return ""
        except BaseException as error:
            self.failure = error
            raise
        if extracts:
            self.facts = [fact for fact in value.facts if fact.strip()]
            self.wanted = 0
        else:
            self.wanted = sum(action.event != "NONE" for action in value.memory)
        return value.model_dump_json()

    async def _complete(self, messages: list[dict[str, str]], schema: type[BaseModel], extracts: bool) -> Any:
        chat = self.services.chat
        most = FACTS_TOKENS if extracts else min(UPDATE_TOKENS, chat.window // 4)
        prompt = sum(chat.count_tokens(message["content"]) for message in messages)
        if prompt + most > chat.window:
            raise ConfigError(
                f"memory.impl=official: a prompt of the package takes {prompt} tokens and its reply {most}, "
                f"backbone.window is {chat.window}; give a backbone with a larger window"
            )
        reply = await chat.complete(
            messages,
            schema=schema,
            temperature=self.temperature,
            max_tokens=most,
            purpose="mem0_official_facts" if extracts else "mem0_official_update",
            meter=self.services.meter,
        )
        return reply.value

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._wait(self.services.embedder.encode([text]))[0].tolist()

    def _wait(self, job: Coroutine[Any, Any, Result]) -> Result:
        """Run on the event loop, wait in this thread. After `close` nothing is started any more."""
        if self._closed:
            job.close()
            raise RuntimeError("the run has ended")
        future = asyncio.run_coroutine_threadsafe(job, self.loop)
        self._pending.add(future)
        try:
            return future.result()
        finally:
            self._pending.discard(future)

    def close(self) -> None:
        self._closed = True
        for future in list(self._pending):
            future.cancel()


class OfficialMem0:
    """One conversation in the package's hands: one of its Memory objects per store. Provenance is kept here, by the
    ids and events that `add` returns."""

    def __init__(self, config: Mem0Config, services: Services):
        require_package()
        self.config = config
        self.services = services
        self.counts: Counter[str] = Counter()
        self._stores: dict[str, Any] = {}
        self._bridges: dict[str, Bridge] = {}
        self._kept: dict[str, dict[str, Memory]] = {}
        self._searching = asyncio.Lock()

    async def build(self, conversation: Conversation) -> None:
        owners = (conversation.speaker_a, conversation.speaker_b) if self.config.per_speaker else ("",)
        pairs = pairs_of(conversation, 0)
        for owner in owners:
            self._bridges[owner] = Bridge(self.services, self.config.temperature, asyncio.get_running_loop())
            self._stores[owner] = package_memory(self._bridges[owner], self.services.embedder.dim)
            self._kept[owner] = {}
        workers = ThreadPoolExecutor(max_workers=len(owners), thread_name_prefix="mem0")
        try:
            await together(self._fill(owner, pairs, workers) for owner in owners)
        except BaseException:
            for bridge in self._bridges.values():
                bridge.close()
            raise
        finally:
            workers.shutdown(wait=False)

    async def _fill(self, owner: str, pairs: Sequence[Pair], workers: ThreadPoolExecutor) -> None:
        store, bridge = self._stores[owner], self._bridges[owner]
        for pair in pairs:
            messages = [
                {"role": "user" if own else "assistant", "content": _marked(turn, own)}
                for turn in pair.turns
                for own in [owner in ("", turn.speaker)]
            ]
            add = partial(store.add, messages, user_id=_STORE)
            done = await asyncio.get_running_loop().run_in_executor(workers, add)
            if bridge.failure is not None:
                raise bridge.failure
            self.counts["facts"] += len(bridge.facts)
            for _ in range(bridge.wanted - len(done["results"])):
                self.services.meter.fallback("package_ignored")
            bridge.wanted = 0
            for result in done["results"]:
                self._note(owner, pair, result)

    def _note(self, owner: str, pair: Pair, result: dict[str, str]) -> None:
        kept = self._kept[owner]
        memory = kept.get(result["id"])
        if memory is None:
            kept[result["id"]] = Memory(len(kept), owner, result["memory"], list(pair.turns), pair.date)
            self.counts["adds"] += 1
        elif result["event"] == "DELETE":
            memory.deleted = True
            self.counts["deletes"] += 1
        else:
            memory.rewrite(result["memory"], pair)
            self.counts["updates"] += 1

    async def search(self, text: str) -> list[Hit]:
        """The top_k memories of every store, by the package's own search."""
        hits = []
        async with self._searching:  # the in-process store promises nothing about threads
            for place, (owner, store) in enumerate(self._stores.items()):
                self._bridges[owner].loop = asyncio.get_running_loop()
                find = partial(store.search, text, user_id=_STORE, limit=self.config.top_k)
                for result in (await asyncio.to_thread(find))["results"]:
                    memory = self._kept[owner][result["id"]]
                    hits.append(memory.hit(float(result["score"]), memory.id * len(self._stores) + place))
        return hits

    def rows(self) -> list[dict[str, Any]]:
        return [memory.row() for kept in self._kept.values() for memory in kept.values()]


def _marked(turn: Any, own: bool) -> str:
    tag = "message" if own else "other"
    return f'<{tag} date="{date_time(turn.date_time)}">{turn_line(turn)}</{tag}>'


def package_memory(bridge: Bridge, dim: int) -> Any:
    """A Memory of the package with our model and embedder in place of those its factories make (which never speak)."""
    # Both are read when the package is imported: it would make a folder in the home directory, and send events.
    os.environ["MEM0_TELEMETRY"] = "False"
    if "MEM0_DIR" not in os.environ:
        os.environ["MEM0_DIR"] = tempfile.mkdtemp(prefix="mem0-")
        atexit.register(shutil.rmtree, os.environ["MEM0_DIR"], ignore_errors=True)
    from mem0 import Memory as PackageMemory
    from mem0.configs.base import MemoryConfig
    from mem0.memory import telemetry
    from qdrant_client import QdrantClient

    if telemetry.MEM0_TELEMETRY:
        raise ConfigError("mem0 was imported with telemetry on; set MEM0_TELEMETRY=False")
    vectors = {"client": QdrantClient(":memory:"), "embedding_model_dims": dim, "collection_name": _STORE}
    silent = {"api_key": "none", "openai_base_url": "http://127.0.0.1:9"}
    config = MemoryConfig(
        vector_store={"provider": "qdrant", "config": vectors},
        llm={"provider": "openai", "config": dict(silent)},
        embedder={"provider": "openai", "config": dict(silent)},
        history_db_path=":memory:",
        custom_fact_extraction_prompt=load_prompt(FACTS).messages()[0]["content"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # payload indices mean nothing to an in-process store, and it says so
        memory = PackageMemory(config)
    logging.getLogger("mem0").setLevel(logging.CRITICAL)  # what it would say is raised or counted here
    memory.llm = bridge
    memory.embedding_model = bridge
    return memory
