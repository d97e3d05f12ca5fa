import asyncio

import pytest
from llm_fakes import Clock

from harness.errors import EndpointError
from harness.llm.retry import Failure, Retrier, backoff, retry_after_seconds

SERVER = Failure("server", "transient", "503")
TIMEOUT = Failure("timeout", "transient", "slow")
UNREACHABLE = Failure("unreachable", "transient", "refused connection")


def limited(retry_after=None):
    return Failure("rate_limited", "rate_limited", "429", retry_after=retry_after)


def tries(*outcomes):
    left = list(outcomes)

    async def attempt():
        await asyncio.sleep(0)
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    attempt.left = left
    return attempt


def retrier(clock, retries=3, jitter=1.0):
    return Retrier(retries, clock=clock, sleep=clock.sleep, jitter=lambda: jitter)


def test_transient_failures_are_tried_again_with_growing_waits():
    clock = Clock()
    assert asyncio.run(retrier(clock).run(tries(SERVER, TIMEOUT, UNREACHABLE, "ok"))) == "ok"
    assert clock.slept == [0.5, 1.0, 2.0]


def test_waits_are_jittered_and_capped():
    assert [backoff(n, None, 0.0) for n in range(8)] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    assert backoff(20, None, 1.0) == 30.0
    assert backoff(0, 7.0, 0.0) == 7.0
    assert backoff(2, 7.0, 1.0) == 7.5


def test_retry_after_is_waited_out():
    clock = Clock()
    assert asyncio.run(retrier(clock, jitter=0.0).run(tries(limited(12.0), limited(0.0), "ok"))) == "ok"
    assert clock.slept == [12.0, 0.0]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        ("0", 0.0),
        ("2.5", 2.5),
        ("-4", 0.0),
        ("Wed, 21 Oct 2015 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(header, seconds):
    assert retry_after_seconds(header, now=1445412480.0) == seconds  # 2015-10-21 07:28:00 UTC


def test_a_very_long_retry_after_stops_the_run():
    clock = Clock()
    with pytest.raises(EndpointError, match="asks to wait 3600 s: start the run again then") as error:
        asyncio.run(retrier(clock).run(tries(limited(3600.0))))
    assert error.value.kind == "rate_limited" and error.value.fatal and clock.slept == []


@pytest.mark.parametrize("fatal", [True, False])
def test_permanent_failures_are_tried_once(fatal):
    clock = Clock()
    with pytest.raises(EndpointError) as error:
        asyncio.run(retrier(clock).run(tries(Failure("auth", "permanent", "401", fatal=fatal))))
    assert (error.value.kind, error.value.fatal, clock.slept) == ("auth", fatal, [])


def test_retries_are_bounded_and_a_request_that_fails_alone_is_not_fatal():
    clock = Clock()
    attempt = tries(SERVER, SERVER, SERVER, SERVER, "never asked")
    with pytest.raises(EndpointError, match=r"503 \(after 4 tries\)$") as error:
        asyncio.run(retrier(clock).run(attempt))
    assert error.value.kind == "server" and not error.value.fatal
    assert attempt.left == ["never asked"]


def test_an_endpoint_never_reached_is_fatal():
    with pytest.raises(EndpointError, match="is the endpoint up") as error:
        asyncio.run(retrier(Clock(), retries=1).run(tries(UNREACHABLE, UNREACHABLE)))
    assert error.value.kind == "unreachable" and error.value.fatal


def test_the_third_in_a_row_to_run_out_is_fatal_and_a_success_breaks_the_row():
    layer = retrier(Clock(), retries=0)

    def fatal(*outcomes):
        try:
            asyncio.run(layer.run(tries(*outcomes)))
        except EndpointError as error:
            return error.fatal
        return None

    assert [fatal(SERVER), fatal(SERVER), fatal("ok"), fatal(SERVER), fatal(SERVER), fatal(SERVER)] == [
        False, False, None, False, False, True,
    ]  # fmt: skip


def test_all_requests_failing_together_is_fatal_at_once():
    async def main():
        layer = retrier(Clock(), retries=2)
        return await asyncio.gather(*(layer.run(tries(*[SERVER] * 3)) for _ in range(4)), return_exceptions=True)

    assert [error.fatal for error in asyncio.run(main())] == [True] * 4


def test_the_last_requests_of_a_run_are_no_errors_of_their_own_when_the_endpoint_goes():
    """They began while others still succeeded: that says nothing of the time since they failed."""

    async def main():
        layer, gone = retrier(Clock(), retries=2), asyncio.Event()

        async def fails():
            await gone.wait()
            raise SERVER

        last = [asyncio.ensure_future(layer.run(fails)) for _ in range(2)]
        await layer.run(tries("ok"))
        gone.set()
        return await asyncio.gather(*last, return_exceptions=True)

    assert [error.fatal for error in asyncio.run(main())] == [True, True]


def test_a_failing_request_among_succeeding_ones_is_not_fatal():
    async def main():
        layer = retrier(Clock(), retries=2)
        poison = layer.run(tries(*[SERVER] * 3))
        return await asyncio.gather(poison, layer.run(tries(SERVER, "ok")), return_exceptions=True)

    error, ok = asyncio.run(main())
    assert (error.fatal, ok) == (False, "ok")


def test_a_refused_format_is_handed_back_as_it_is():
    refused = Failure("refused", "permanent", "400 response_format", names_format=True)
    with pytest.raises(Failure) as error:
        asyncio.run(retrier(Clock()).run(tries(refused)))
    assert error.value is refused
