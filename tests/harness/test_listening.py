"""Whatever the bench starts listens on loopback alone, and the bench itself not at all: as the kernel has it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import test_servers
from sockets import LOOPBACK, family, listening
from test_servers import ONE_THREAD, facts, needs_weights

from harness.llm import servers

ROOT = Path(__file__).resolve().parents[2]
vllm = test_servers.vllm

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").is_file(), reason="reads /proc/net (Linux)")


@contextlib.contextmanager
def endpoint(*options):
    """scripts/endpoint.py: its process and its port."""
    command = [sys.executable, "scripts/endpoint.py", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process, int(process.stdout.readline().rpartition(":")[2].removesuffix("/v1\n"))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


def test_the_kernels_tables_are_read():
    before = listening([os.getpid()])
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.2", 0)) as two:
        found = listening([os.getpid()]) - before
        assert found == {("0100007F", one.getsockname()[1]), ("0200007F", two.getsockname()[1])}
    assert listening([os.getpid()]) == before
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.pid in family(os.getpid()) and os.getpid() not in family(child.pid)
    child.communicate(b"\n")


@pytest.mark.parametrize("options", [(), ("--faults", "0.2"), ("--host", "127.0.0.1")])
def test_the_stand_ins_endpoint(options):
    with endpoint(*options) as (process, port):
        assert listening(family(process.pid)) == {("0100007F", port)}


def test_vllm(vllm, tmp_path):
    async def go():
        async with servers.serve(vllm(), tmp_path, lambda line: None) as started:
            (pid, _) = facts(tmp_path)["pids"]
            port = int(started.base_url.rpartition(":")[2].removesuffix("/v1"))
            return port, listening(family(os.getpid()) - {os.getpid()}), listening(family(pid))

    port, started, own = asyncio.run(go())
    assert own == started == {("0100007F", port)}


@needs_weights
def test_llamacpp(tmp_path):
    async def go():
        async with servers.serve(ONE_THREAD, tmp_path, lambda line: None) as started:
            port = int(started.base_url.rpartition(":")[2].removesuffix("/v1"))
            return port, listening(family(os.getpid()) - {os.getpid()})

    port, found = asyncio.run(go())
    assert ("0100007F", port) in found and {address for address, _ in found} <= LOOPBACK


def test_a_run_listens_nowhere(tmp_path):
    """Looked at in the middle of it, with whatever it has started."""
    options = (
        "memory=memfly",
        "backbone=scripted",
        "embedder=hashing",
        "dataset.max_turns=60",
        "dataset.max_questions=5",
    )
    with endpoint("--latency", "0.05") as (_, port):
        command = [sys.executable, "run.py", *options, f"backbone.base_url=http://127.0.0.1:{port}/v1"]
        places = [f"run.dir={tmp_path}/runs", f"cache.path={tmp_path}/cache"]
        run = subprocess.Popen([*command, *places], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        calls = 0
        while calls < 100:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats") as response:
                calls = json.load(response)["calls"]
            assert run.poll() is None
        assert listening(family(run.pid)) == set()
        run.send_signal(signal.SIGINT)
        assert run.wait(30) == 130
