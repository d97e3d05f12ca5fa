"""The qwen3 backbones against a real vLLM (make test-vllm): Qwen3 in miniature, weights filled in at random.

What it says is gibberish; what is tested is everything around it: start, arguments, schemas, thinking, tools, end.
"""

import asyncio
import dataclasses
import importlib
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from pydantic import BaseModel
from sockets import LOOPBACK, listening
from test_servers import is_gone, load
from tiny_qwen3 import build

from harness import hub
from harness.errors import EndpointError
from harness.llm import servers
from harness.llm.build import build_chat
from harness.llm.cache import ReplyCache
from harness.llm.types import Meter

ROOT = Path(__file__).resolve().parents[2]
VLLM = os.environ.get("MEMFLY_VLLM", "")
DUMMY = ["--load-format=dummy", "--enforce-eager"]
SAMPLING = {"frequency_penalty": 1.0}
"""Random weights repeat a token for ever; with this they reach the end of a text."""
BACKBONES = ("qwen3-8b", "qwen3-14b")

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not VLLM, reason="name a vllm program in MEMFLY_VLLM (make test-vllm does)"),
]


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A hub cache with both models in miniature, no network, few resources."""
    folder = tmp_path_factory.mktemp("hub")
    for backbone in map(load, BACKBONES):
        build(folder, backbone.model, backbone.revision)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "_found", {})
        patch.setenv("HF_HUB_CACHE", str(folder))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("VLLM_CACHE_ROOT", str(tmp_path_factory.mktemp("vllm")))
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("OMP_NUM_THREADS", "1")
        yield folder


def tiny(name="qwen3-8b", *more, **server):
    """The backbone as shipped, with dummy weights."""
    spec = load(name)
    args = [*spec.server.args, *DUMMY, *more]
    changed = dataclasses.replace(spec.server, **{"command": VLLM, "args": args, "startup_s": 300.0, **server})
    return dataclasses.replace(spec, server=changed, sampling=SAMPLING)


# --- what runs where ---------------------------------------------------------------------------------------------------


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    except OSError:
        return []


def processes():
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def group_at(port):
    """The ids of the processes of the server at `port`: its first process, and what that started."""
    first = next(pid for pid in processes() if "serve" in (words := command_of(pid)) and str(port) in words)

    def is_member(pid):
        try:
            return os.getpgid(pid) == first
        except ProcessLookupError:
            return False

    return first, [pid for pid in processes() if is_member(pid)]


def shared_memory(pids, name="psm"):
    """The files of shared memory that the processes hold (psm: Python's own)."""
    found = set()
    for pid in pids:
        found.update(re.findall(rf"/dev/shm/{name}_\S+", Path(f"/proc/{pid}/maps").read_text()))
    return found


@dataclasses.dataclass
class Served:
    spec: object
    endpoint: servers.Endpoint
    log: Path
    said: list[str]
    pids: list[int]

    @property
    def port(self):
        return int(self.endpoint.base_url.removesuffix("/v1").rpartition(":")[2])

    def chat(self, folder, **changes):
        spec = dataclasses.replace(self.spec, **changes)
        cache = ReplyCache(folder / "cache", "off", "test")
        return build_chat(spec, cache, base_url=self.endpoint.base_url, api_key=self.endpoint.api_key)

    async def ask(self, path, body=None, key=None):
        headers = {"Authorization": f"Bearer {key or self.endpoint.api_key}"}
        root = self.endpoint.base_url.removesuffix("/v1")
        async with aiohttp.ClientSession(headers=headers) as session:
            method = "GET" if body is None else "POST"
            async with session.request(method, root + path, json=body) as response:
                return response.status, await response.text()


@contextmanager
def serving(spec, folder):
    """A server kept in a loop of its own, so that one start serves many tests; after it nothing may be left."""
    loop, said = asyncio.new_event_loop(), []
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context = servers.serve(spec, folder, said.append)

    def wait_for(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    try:
        endpoint = wait_for(context.__aenter__())
        try:
            port = int(endpoint.base_url.removesuffix("/v1").rpartition(":")[2])
            _, pids = group_at(port)
            shared = shared_memory(pids)
            yield Served(spec, endpoint, folder / "vllm.log", said, pids)
        finally:
            wait_for(context.__aexit__(None, None, None))
        assert all(is_gone(pid) for pid in pids)
        assert not any(Path(file).exists() for file in shared)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def served(home, tmp_path_factory):
    with serving(tiny(), tmp_path_factory.mktemp("logs")) as server:
        yield server


def talk(served, folder, question, **changes):
    """What `question(chat)` returns; the chat is closed behind it."""

    async def go():
        chat = served.chat(folder, **changes)
        try:
            return await question(chat)
        finally:
            await chat.aclose()

    return asyncio.run(go())


def user(text):
    return [{"role": "user", "content": text}]


# --- one server --------------------------------------------------------------------------------------------------------


def test_it_serves_the_pinned_model_and_hides_its_key(served, home):
    revision = served.spec.revision
    status, text = asyncio.run(served.ask("/v1/models"))
    (model,) = json.loads(text)["data"]
    assert (status, model["id"], model["max_model_len"]) == (200, "Qwen/Qwen3-8B", 32768)
    assert asyncio.run(served.ask("/v1/models", key="guess"))[0] == 401
    log = served.log.read_text()
    assert f"model='{home}/models--Qwen--Qwen3-8B/snapshots/{revision}'" in log
    for told in ("seed=0", "dtype=torch.bfloat16", "enable_prefix_caching=True", "disable_any_whitespace=True"):
        assert told in log
    assert "sampling parameters have been overridden" not in log
    key = served.endpoint.api_key
    assert not any(key in " ".join(command_of(pid)) for pid in served.pids)
    assert key not in log + "".join(served.said)


def test_it_listens_on_loopback_alone(served):
    found = listening(served.pids)
    assert served.port in {port for _, port in found}
    assert {address for address, _ in found} <= LOOPBACK
    assert len(served.pids) >= 3  # front, engine, worker


def reply_models():
    """Every reply model of the systems and of the reader."""
    import baselines
    import harness.protocol
    import memfly.replies  # noqa: F401

    for module in pkgutil.iter_modules(baselines.__path__):
        importlib.import_module(f"baselines.{module.name}")
    found, todo = {}, [BaseModel]
    while todo:
        children = todo.pop().__subclasses__()
        todo += children
        found |= {f"{child.__module__}.{child.__name__}": child for child in children}
    ours = {name: model for name, model in found.items() if name.split(".")[0] in ("memfly", "baselines")}
    return {**ours, "answer": harness.protocol.Answer}


def test_every_reply_schema_is_taken_and_obeyed(served, tmp_path):
    models = reply_models()
    assert len(models) > 20

    async def all_at_once(chat):
        meter = Meter()
        asked = [
            chat.complete(user(f"Say something about {name}."), schema=model, max_tokens=2000, meter=meter)
            for name, model in models.items()
        ]
        return await asyncio.gather(*asked), chat.notices, meter

    replies, notices, meter = talk(served, tmp_path, all_at_once)
    assert notices == []  # response_format was neither refused nor ignored, for no schema
    assert meter.errors == 0
    for reply, model in zip(replies, models.values(), strict=True):
        assert isinstance(reply.value, model)
        # A text without a bound may reach the token limit; what ends by itself needs no repair.
        assert reply.repairs == () or reply.finish_reason == "length"
    assert sum(reply.finish_reason == "stop" for reply in replies) > len(replies) / 2


def test_thinking_is_off(served, home, tmp_path):
    from transformers import AutoTokenizer

    folder = home / "models--Qwen--Qwen3-8B" / "snapshots" / served.spec.revision
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    messages = [{"role": "system", "content": "Be brief."}, *user("Name a lake.")]

    def prompt(**options):
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False, **options)
        return ids, tokenizer.decode(ids)

    (off, off_text), (on, on_text) = prompt(enable_thinking=False), prompt()
    assert off_text == on_text + "<think>\n\n</think>\n\n"

    def tokens(chat):
        return chat.complete(messages, max_tokens=5)

    assert talk(served, tmp_path, tokens).usage.prompt_tokens == len(off)
    assert talk(served, tmp_path / "on", tokens, thinking="none").usage.prompt_tokens == len(on)
    body = {"model": served.spec.model, "messages": messages, "max_tokens": 1, "return_token_ids": True}
    body["chat_template_kwargs"] = {"enable_thinking": False}
    status, text = asyncio.run(served.ask("/v1/chat/completions", body))
    assert status == 200 and json.loads(text)["prompt_token_ids"] == off


class Rating(BaseModel):
    function: str
    colour: str | None = None
    stars: int | None = None


def test_a_tool_is_called_with_arguments_of_its_schema(served, tmp_path):
    colours, stars = ["red", "green"], [1, 2, 3]
    properties = {"colour": {"enum": colours}, "stars": {"enum": stars}}
    parameters = {"type": "object", "properties": properties, "required": ["colour", "stars"]}
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("rate", "grade")]

    def call(chat):
        return chat.complete(user("Rate the lake."), schema=Rating, tools=tools, max_tokens=1000)

    reply = talk(served, tmp_path, call)
    assert reply.value.function in ("rate", "grade") and reply.attempts == 1 and reply.repairs == ()
    assert reply.value.colour in colours and reply.value.stars in stars


def test_concurrent_requests_share_their_beginning(served, tmp_path):
    beginning = "The lake lies in the north. " * 60

    async def at_once(chat):
        asked = [chat.complete(user(f"{beginning} Question {n}."), max_tokens=20) for n in range(24)]
        return await asyncio.gather(*asked)

    def hits():
        _, text = asyncio.run(served.ask("/metrics"))
        return sum(map(float, re.findall(r"^vllm:prefix_cache_hits_total\{.*\} (\S+)$", text, re.MULTILINE)))

    before = hits()
    replies = talk(served, tmp_path, at_once, concurrency_start=24)
    assert len(replies) == 24 and all(reply.text for reply in replies)
    assert hits() - before > 1000
    assert "The lake lies" not in served.log.read_text()


# --- other starts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"args": ["--no-such-argument"]}, "error: unrecognized arguments: --no-such-argument"),
        ({"args": ["--enforce-eager"]}, "RuntimeError: Cannot find any model weights"),
    ],
    ids=["argument", "engine"],
)
def test_a_failed_start_is_one_line_with_its_cause(tmp_path, change, said):
    async def go():
        async with servers.serve(tiny(**change), tmp_path, lambda line: None):
            pytest.fail("it never came up")

    with pytest.raises(EndpointError, match=re.escape(said)) as caught:
        asyncio.run(go())
    text = str(caught.value)
    assert caught.value.fatal and "\n" not in text and text.endswith(f"its log: {tmp_path / 'vllm.log'}")


@pytest.mark.parametrize("kind", ["data_parallel", "tensor_parallel"])
def test_parallel_servers_answer_on_loopback(tmp_path, monkeypatch, kind):
    if kind == "tensor_parallel":
        if (os.cpu_count() or 1) < 2:
            pytest.skip("tensor parallel needs a core for each rank")
        monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    with serving(tiny("qwen3-14b", **{kind: 2}), tmp_path) as server:
        assert {address for address, _ in listening(server.pids)} <= LOOPBACK
        names = [" ".join(command_of(pid)) for pid in server.pids]
        assert sum("Worker" in name for name in names) == 2
        reply = talk(server, tmp_path, lambda chat: chat.complete(user("Name a lake."), max_tokens=5))
        assert reply.usage.completion_tokens == 5
        between_ranks = shared_memory(server.pids, "vllm_dist")
    for file in between_ranks:  # vLLM for the CPU leaves it behind whoever ends it
        Path(file).unlink(missing_ok=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_survives_a_killed_bench(tmp_path, number):
    code = f"""
import asyncio, json
from pathlib import Path
from harness.llm import servers
from harness.spec import BackboneSpec, validate
spec = validate(BackboneSpec, json.loads({json.dumps(dataclasses.asdict(tiny()))!r}), "backbone")
async def main():
    async with servers.serve(spec, Path({str(tmp_path)!r}), lambda line: None) as endpoint:
        print(endpoint.base_url, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as bench:
        port = int(bench.stdout.readline().strip().removesuffix("/v1").rpartition(":")[2])
        _, pids = group_at(port)
        shared = shared_memory(pids)
        bench.send_signal(number)
        bench.wait(60)
    assert len(pids) >= 3 and all(is_gone(pid, 60) for pid in pids)
    assert shared and not any(Path(file).exists() for file in shared)


def test_a_run_from_start_to_table(tmp_path, run_door):
    args = ",".join(f"'{arg}'" for arg in tiny().server.args)
    slice_ = ("dataset=sample", "dataset.max_turns=12", "dataset.max_questions=2")
    start = (f"backbone.server.command={VLLM}", f"backbone.server.args=[{args}]", "backbone.server.startup_s=300")
    done = run_door(
        "backbone=qwen3-8b", "embedder=hashing", "+backbone.sampling={frequency_penalty: 1.0}", *slice_, *start, check=0
    )
    (folder,) = (tmp_path / "runs").glob("memfly-*/")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert (metrics["n_total"], metrics["n_scored"], metrics["n_error"]) == (4, 4, 0)
    assert metrics["asking"]["errors"] == 0 and metrics["memory"]["errors"] == 0
    assert f"records: {folder}" in done.stdout
    log = (folder / "logs" / "vllm.log").read_text()
    port = re.search(r"'port': (\d+)", log)[1]
    assert not any("serve" in (words := command_of(pid)) and port in words for pid in processes())
