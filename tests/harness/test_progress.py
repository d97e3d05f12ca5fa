"""The line a person sees: counts, rate, what is left; with a clock of the test's."""

import pytest

from harness.llm.usage import Live
from harness.pace import Pace, span
from harness.progress import Progress


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def progress(live, clock, **options):
    return Progress(2, 10, live, clock=clock, turns=100, building=(300, 500), asking=(20, 40), **options)


def test_a_line_by_hand():
    clock, live = Clock(), Live()
    shown = progress(live, clock)
    live.in_flight, live.under_way = 4, 9
    shown.tick()
    clock.now += 10
    live.calls, live.received, live.cache_hits, live.usd = 60, 50, 10, 0.25
    live.prompt_tokens, live.completion_tokens = 6000, 400
    shown.took_in("a", 20)
    shown.finished("b", 30)
    assert shown.line() == (
        "   10 s | memories 1/2 | turns 50/100 | answers 0/10 | "
        "calls 60 (10 from the cache, 4 in flight, 5 waiting, 5.0/s) | tokens 6400 | $0.25 | "
        # half of 300 and all of 20 at 5 a second; half of 500 and all of 40
        "34 to 58 s left"
    )
    shown.answered, shown.errors = 5, 1
    shown.finished("a", 70)
    assert "memories 2/2 | turns 100/100 | answers 5/10 (1 errors)" in shown.line()
    assert shown.line().endswith("2 to 4 s left")  # half of 20 and of 40
    shown.answered = 10
    assert "left" not in shown.line()


def test_replies_from_the_cache_are_no_speed():
    clock, live = Clock(), Live()
    shown = progress(live, clock)
    for _ in range(30):  # replayed
        clock.now += 1
        live.calls += 10
        live.cache_hits += 10
        shown.tick()
    assert "/s" not in shown.line() and "left" not in shown.line()
    live.in_flight = live.under_way = 1
    shown.tick()
    clock.now += 20
    live.calls, live.received = live.calls + 40, 40
    assert "2.0/s" in shown.line()


def test_an_endpoint_that_is_down_is_said():
    clock, live = Clock(), Live()
    shown = progress(live, clock)
    live.in_flight = live.under_way = 8
    shown.tick()
    for _ in range(70):
        clock.now += 1
        live.received += clock.now <= 1005
        shown.tick()
    live.in_flight, live.failed_tries, live.last_failure = 0, 16, "rate_limited"
    line = shown.line()
    assert (
        "0 in flight, 8 waiting" in line
        and "16 tries failed in the last minute, the last: too many requests (429)" in line
    )
    assert line.endswith("no reply in the last minute")
    for _ in range(62):
        clock.now += 1
        shown.tick()
    assert "failed" not in shown.line()


def test_what_another_process_asks_is_said_and_its_replies_are_speed():
    clock, live, elsewhere = Clock(), Live(), [12]
    shown = progress(live, clock, elsewhere=lambda: elsewhere[0])
    live.in_flight = live.under_way = 1
    shown.tick()
    live.in_flight = live.under_way = 0
    clock.now += 10
    live.calls = live.received = 30
    assert "(0 from the cache, 0 in flight, 12 asked by another process, 3.0/s)" in shown.line()
    for _ in range(61):
        clock.now += 1
        shown.tick()
    assert shown.line().endswith("no reply in the last minute")
    elsewhere[0] = 0
    assert "another" not in shown.line() and "no reply" not in shown.line()


def test_plain_lines_come_now_and_then(capsys):
    clock = Clock()
    shown = progress(Live(), clock, every_s=10.0)
    for _ in range(25):
        clock.now += 1
        shown.tick()
    assert len(capsys.readouterr().err.splitlines()) == 3  # at once, after 10 s, after 20 s
    quiet = progress(Live(), clock, quiet=True)
    quiet.tick()
    assert capsys.readouterr().err == ""


def test_a_rate_is_that_of_the_last_minute():
    pace = Pace()
    pace.look(0.0, 0, 0, 0)
    assert pace.rate(100.0, 0) is None  # nothing has begun
    for second in range(0, 121):
        pace.look(float(second), 10 * min(second, 60), 0, 1)  # ten a second for a minute, then none
    assert pace.rate(120.0, 600) == pytest.approx(0.0)
    young = Pace()
    young.look(50.0, 0, 0, 1)
    assert young.rate(54.9, 40) is None
    assert young.rate(55.0, 40) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ((40.2, 90.0), "40 to 90 s"),
        ((7.0, 7.4), "7 s"),
        ((0.1, 0.3), "less than 1 s"),
        ((0.2, 30.0), "less than 30 s"),
        ((150.0, 300.0), "2 to 5 min"),
        ((3600.0, 7200.0), "1 to 2 h"),
    ],
)
def test_spans(seconds, text):
    assert span(seconds) == text
