import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import EndpointError, RecordError
from harness.llm.cache import ReplyCache, Row, request_key

ROOT = Path(__file__).resolve().parents[3]


class Source:
    """Counts how often it is asked; each reply is another text."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        await asyncio.sleep(0)
        outcome = self.outcomes.pop(0) if self.outcomes else f"reply {self.calls}"
        if isinstance(outcome, Exception):
            raise outcome
        return outcome if isinstance(outcome, Row) else Row(outcome)


def get(cache, request, source):
    return asyncio.run(cache.get(request, source))


def test_a_miss_computes_and_a_hit_gives_back_every_field(tmp_path):
    row = Row("täxt", "because", "length", 11, 7, True, 1.5)
    cache = ReplyCache(tmp_path, "use", "run-a")
    stored, hit = get(cache, {"model": "m", "attempt": 1}, Source(row))
    assert not hit and stored.run_id == "run-a" and stored.created > 0
    cache.close()
    never = Source()
    again, hit = get(ReplyCache(tmp_path, "use", "run-b"), {"attempt": 1, "model": "m"}, never)
    assert hit and never.calls == 0
    assert again == stored
    assert (again.text, again.reasoning, again.finish_reason, again.prompt_tokens) == ("täxt", "because", "length", 11)
    assert (again.completion_tokens, again.estimated, again.latency_s) == (7, True, 1.5)


def test_null_content_stays_null(tmp_path):
    cache = ReplyCache(tmp_path, "use", "r")
    get(cache, {"a": 1}, Source(Row(None)))
    assert get(cache, {"a": 1}, Source())[0].text is None


@pytest.mark.parametrize(
    "other", [{"model": "n"}, {"trial": 1}, {"attempt": 2}, {"sampling": {"temperature": 0.5}}, {"messages": []}]
)
def test_every_field_of_the_request_is_in_the_key(other):
    request = {"model": "m", "trial": 0, "attempt": 1, "sampling": {"temperature": 0.0}, "messages": [{"a": "b"}]}
    assert request_key(request) != request_key({**request, **other})
    assert request_key(request) == request_key(dict(reversed(request.items())))


def test_one_computation_serves_all_who_wait(tmp_path):
    async def main():
        cache, source = ReplyCache(tmp_path, "use", "r"), Source()
        return source, await asyncio.gather(*(cache.get({"k": 1}, source) for _ in range(20)))

    source, results = asyncio.run(main())
    assert source.calls == 1
    assert {row.text for row, _ in results} == {"reply 1"}


def test_a_failure_reaches_all_who_wait_and_is_not_kept(tmp_path):
    async def main():
        cache = ReplyCache(tmp_path, "use", "r")
        source = Source(EndpointError("server", "down", fatal=False))
        failed = await asyncio.gather(*(cache.get({"k": 1}, source) for _ in range(3)), return_exceptions=True)
        return source, failed, await cache.get({"k": 1}, source)

    source, failed, (row, hit) = asyncio.run(main())
    assert [type(error) for error in failed] == [EndpointError] * 3
    assert source.calls == 2 and not hit and row.text == "reply 2"


def test_a_waiter_that_leaves_does_not_take_the_computation_with_it(tmp_path):
    async def main():
        cache, gate, calls = ReplyCache(tmp_path, "use", "r"), asyncio.Event(), []

        async def slow():
            calls.append(1)
            await gate.wait()
            return Row("late")

        first, second = (asyncio.ensure_future(cache.get({"k": 1}, slow)) for _ in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        gate.set()
        row, _ = await second
        alone = asyncio.ensure_future(cache.get({"k": 2}, slow))
        gate.clear()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        alone.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return row, calls, cache._flights, first.cancelled()

    row, calls, flights, left = asyncio.run(main())
    assert row.text == "late" and left
    assert len(calls) == 2 and not flights


def test_replay_refuses_to_compute(tmp_path):
    get(ReplyCache(tmp_path, "use", "a"), {"model": "m", "attempt": 1}, Source("kept"))
    replay, never = ReplyCache(tmp_path, "replay", "b"), Source()
    assert get(replay, {"model": "m", "attempt": 1}, never)[0].text == "kept"
    with pytest.raises(EndpointError, match="holds no reply to a request of model 'm' \\(attempt 2\\)") as error:
        get(replay, {"model": "m", "attempt": 2}, never)
    assert error.value.kind == "replay_miss" and error.value.fatal
    assert never.calls == 0


def test_replay_without_a_file_is_refused(tmp_path):
    with pytest.raises(RecordError, match="is not there"):
        ReplyCache(tmp_path / "nowhere", "replay", "r")
    assert not (tmp_path / "nowhere").exists()


def test_refresh_serves_only_what_this_run_wrote(tmp_path):
    request = {"k": 1}
    get(ReplyCache(tmp_path, "use", "old"), request, Source("old reply"))
    refresh = ReplyCache(tmp_path, "refresh", "new")
    row, hit = get(refresh, request, Source("new reply"))
    assert (row.text, row.run_id, hit) == ("new reply", "new", False)
    resumed = ReplyCache(tmp_path, "refresh", "new")
    assert get(resumed, request, Source("third"))[0].text == "new reply"
    assert get(ReplyCache(tmp_path, "use", "x"), request, Source("fourth"))[0].text == "new reply"


def test_a_refreshed_run_goes_on_with_its_own_rows(tmp_path):
    """Two runs that refresh one cache, and one that only used it: each gets back what it wrote, and pays once."""
    request = {"k": 1}
    get(ReplyCache(tmp_path, "use", "user"), request, Source("of the user"))
    for run in ("a", "b"):
        assert get(ReplyCache(tmp_path, "refresh", run), request, Source(f"of {run}"))[0].text == f"of {run}"
    never = Source()
    for mode, run in (("refresh", "a"), ("refresh", "b"), ("use", "a"), ("use", "user")):
        row, hit = get(ReplyCache(tmp_path, mode, run), request, never)
        assert (row.text, row.run_id, hit) == (f"of the {run}" if run == "user" else f"of {run}", run, True)
    for mode in ("use", "replay"):
        assert get(ReplyCache(tmp_path, mode, "other"), request, never)[0].text == "of b"  # the latest
    assert never.calls == 0


def test_a_damaged_replaced_row_is_set_aside(tmp_path):
    for run in ("a", "b"):
        get(ReplyCache(tmp_path, "refresh", run), {"k": 1}, Source(f"of {run}"))
    with sqlite3.connect(tmp_path / "replies.sqlite") as db:
        assert db.execute("UPDATE replaced SET text = 'forged'").rowcount == 1
    resumed = ReplyCache(tmp_path, "refresh", "a")
    assert get(resumed, {"k": 1}, Source("anew"))[0].text == "anew"
    assert resumed.damaged == 1 and "1 damaged row of" in resumed.notices[0]
    assert get(ReplyCache(tmp_path, "refresh", "b"), {"k": 1}, Source())[0].text == "of b"


def test_off_behaves_like_use_in_its_own_file(tmp_path):
    get(ReplyCache(tmp_path, "off", "r"), {"k": 1}, Source("once"))
    never = Source()
    assert get(ReplyCache(tmp_path, "off", "r"), {"k": 1}, never)[0].text == "once"
    assert never.calls == 0


def test_the_second_writer_is_given_the_first_writers_row(tmp_path):
    ours, theirs = ReplyCache(tmp_path, "use", "ours"), ReplyCache(tmp_path, "use", "theirs")

    async def overtaken():
        await theirs.get({"k": 1}, Source("first"))
        return Row("second")

    row, hit = get(ours, {"k": 1}, overtaken)
    assert (row.text, row.run_id, hit) == ("first", "theirs", False)


def test_two_processes_write_at_once(tmp_path):
    program = """
import asyncio, sys
from pathlib import Path
from harness.llm.cache import ReplyCache, Row
async def main(path, name):
    cache = ReplyCache(Path(path), "use", name)
    async def compute():
        return Row(name)
    for number in range(300):
        await cache.get({"k": number}, compute)
asyncio.run(main(*sys.argv[1:]))
"""
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name], cwd=ROOT, stderr=subprocess.PIPE)
        for name in ("p", "q")
    ]
    for child in children:
        _, complaint = child.communicate(timeout=60)
        assert child.returncode == 0, complaint.decode()
    kept = sqlite3.connect(tmp_path / "replies.sqlite").execute("SELECT text, run_id FROM replies").fetchall()
    assert len(kept) == 300
    assert all(text == run_id for text, run_id in kept)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE replies SET text = 'forged'",
        "UPDATE replies SET completion_tokens = 0",
        "UPDATE replies SET text = CAST(x'ff80' AS TEXT)",
        "UPDATE replies SET text = x'00ff'",
        "UPDATE replies SET checksum = x''",
    ],
)
def test_a_damaged_row_is_set_aside_counted_and_said(tmp_path, damage):
    request = {"k": 1}
    first = ReplyCache(tmp_path, "use", "a")
    get(first, request, Source(Row("true", completion_tokens=5)))
    first.close()
    with sqlite3.connect(tmp_path / "replies.sqlite") as db:
        db.execute(damage)
    db.close()
    cache = ReplyCache(tmp_path, "use", "b")
    row, hit = get(cache, request, Source("computed again"))
    assert (row.text, hit, cache.damaged) == ("computed again", False, 1)
    assert "1 damaged row of" in cache.notices[0] and "set aside" in cache.notices[0]
    assert cache._db.execute("SELECT count(*) FROM damaged").fetchone() == (1,)


def test_a_damaged_row_is_a_miss_in_a_replay(tmp_path):
    get(ReplyCache(tmp_path, "use", "a"), {"k": 1}, Source("true"))
    with sqlite3.connect(tmp_path / "replies.sqlite") as db:
        db.execute("UPDATE replies SET text = 'forged'")
    with pytest.raises(EndpointError, match="replay"):
        get(ReplyCache(tmp_path, "replay", "b"), {"k": 1}, Source())


def test_a_file_of_another_version_is_refused(tmp_path):
    ReplyCache(tmp_path, "use", "a").close()
    with sqlite3.connect(tmp_path / "replies.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(RecordError, match="has cache version 99, this program reads version 1; move the file away"):
        ReplyCache(tmp_path, "use", "a")


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "replies.sqlite").write_text("this is not a database, by any means" * 100)
    with pytest.raises(RecordError, match="cannot be used as a reply cache"):
        ReplyCache(tmp_path, "use", "a")


def test_a_row_is_claimed_once_by_the_run_that_paid_for_it(tmp_path):
    ours = ReplyCache(tmp_path, "use", "ours")
    row, _ = get(ours, {"k": 1}, Source())
    assert [ours.claim(row), ours.claim(row)] == [True, False]
    resumed = ReplyCache(tmp_path, "use", "ours")
    assert resumed.claim(get(resumed, {"k": 1}, Source())[0])
    other = ReplyCache(tmp_path, "use", "other")
    assert not other.claim(get(other, {"k": 1}, Source())[0])
    replay = ReplyCache(tmp_path, "replay", "ours")
    assert not replay.claim(get(replay, {"k": 1}, Source())[0])
