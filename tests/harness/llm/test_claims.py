"""One of several processes on one cache asks a request; the others wait for its reply, and for nothing else."""

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.llm import claims as claims_module
from harness.llm.cache import ReplyCache, Row, request_key
from harness.llm.claims import Claims

ROOT = Path(__file__).resolve().parents[3]
REQUEST = {"k": 1}

ANOTHER = """
import asyncio, sys
from pathlib import Path
from harness.llm.cache import ReplyCache, Row
async def main():
    cache = ReplyCache(Path(sys.argv[1]), "use", "theirs")
    async def asked():
        print("asking", flush=True)
        if (await asyncio.to_thread(sys.stdin.readline)).strip() == "fail":
            raise ConnectionError
        return Row("their reply")
    try:
        await cache.get({"k": 1}, asked)
    except ConnectionError:
        print("failed", flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # alive, and no longer asking
asyncio.run(main())
"""


@contextmanager
def another(folder):
    """A process that asks REQUEST and gets its reply when a line is written to it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    child = subprocess.Popen([sys.executable, "-c", ANOTHER, str(folder)], cwd=ROOT, **pipes)
    try:
        assert child.stdout.readline() == "asking\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def tell(child, line):
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


async def ours():
    return Row("our reply")


async def waited(cache, then, request=REQUEST):
    """Ask while another process does; `then` once this one waits. (text, hit, whose)"""
    asked = asyncio.create_task(cache.get(request, ours))
    while not cache.awaited:
        assert not asked.done(), "nobody was waited for"
        await asyncio.sleep(0)
    then()
    row, hit = await asked
    assert cache.awaited == 0
    return row.text, hit, row.run_id


def test_a_reply_that_another_process_asks_is_waited_for(tmp_path):
    with another(tmp_path) as child:
        cache = ReplyCache(tmp_path, "use", "ours")
        got = asyncio.run(waited(cache, lambda: tell(child, "go")))
    assert got == ("their reply", False, "theirs")  # it came while it was waited for: no hit, and not paid for here
    assert (cache.misses, cache.hits) == (0, 0)


def test_who_fails_or_dies_is_not_waited_for(tmp_path):
    for number, end in enumerate((lambda child: tell(child, "fail"), lambda child: child.kill())):
        with another(tmp_path / str(number)) as child:
            cache = ReplyCache(tmp_path / str(number), "use", "ours")
            assert asyncio.run(waited(cache, lambda c=child, e=end: e(c))) == ("our reply", False, "ours")


def test_another_request_is_asked_at_once(tmp_path):
    with another(tmp_path):
        row, hit = asyncio.run(ReplyCache(tmp_path, "use", "ours").get({"k": 2}, ours))
    assert (row.text, hit) == ("our reply", False)


def test_a_halted_process_is_not_waited_for_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(claims_module, "PATIENCE_S", 0.0)
    with another(tmp_path) as child:
        row, _ = asyncio.run(ReplyCache(tmp_path, "use", "ours").get(REQUEST, ours))
        assert row.text == "our reply"
        tell(child, "go")
        assert child.wait(60) == 0
    kept = ReplyCache(tmp_path, "use", "later")
    assert asyncio.run(kept.get(REQUEST, ours))[0].run_id == "ours"  # the first row stays


def test_a_caller_that_leaves_while_it_waits_leaves_nothing(tmp_path):
    async def leave():
        cache = ReplyCache(tmp_path, "use", "ours")
        asked = asyncio.create_task(cache.get(REQUEST, ours))
        while not cache.awaited:
            assert not asked.done(), "nobody was waited for"
            await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await asyncio.sleep(0)
        return cache.awaited, cache._flights

    with another(tmp_path):
        assert asyncio.run(leave()) == (0, {})


@pytest.mark.parametrize("mode", ["refresh", "off"])
def test_rows_of_a_runs_own_wait_for_nobody(tmp_path, mode):
    with another(tmp_path):
        row, _ = asyncio.run(ReplyCache(tmp_path, mode, "ours").get(REQUEST, ours))
    assert row.text == "our reply"


def test_without_a_lock_file_every_claim_is_granted(tmp_path):
    claims = Claims(tmp_path / "no folder" / "file")
    assert claims.take(request_key(REQUEST))
    claims.give_back(request_key(REQUEST))
    claims.close()
