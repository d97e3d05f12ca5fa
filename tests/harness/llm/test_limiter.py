import asyncio

import pytest
from llm_fakes import Clock

from harness.llm.limiter import Limiter


def limiter(start=2, maximum=8, clock=None):
    clock = clock or Clock()
    return Limiter(start, maximum, clock=clock, sleep=clock.sleep)


async def fill(limit):
    return [await limit.acquire() for _ in range(int(limit.limit))]


def test_the_limit_holds():
    async def main():
        limit, high = limiter(start=3, maximum=3), 0

        async def work():
            nonlocal high
            slot = await limit.acquire()
            high = max(high, limit.in_flight)
            await asyncio.sleep(0)
            limit.release(slot, "other")

        await asyncio.gather(*(work() for _ in range(50)))
        return high, limit.in_flight

    assert asyncio.run(main()) == (3, 0)


def test_it_doubles_a_round_while_saturated_and_stops_at_the_maximum():
    async def main():
        limit, seen = limiter(start=2, maximum=8), []
        for _ in range(4):
            waiting = [asyncio.ensure_future(limit.acquire()) for _ in range(20)]
            await asyncio.sleep(0)
            under_way = [task.result() for task in waiting if task.done()]
            for slot in under_way:
                limit.release(slot, "ok")
            seen.append(limit.limit)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            limit.in_flight = 0
        return seen

    assert asyncio.run(main()) == [4.0, 8.0, 8.0, 8.0]


def test_it_does_not_rise_while_there_is_room():
    async def main():
        limit = limiter(start=4)
        for _ in range(10):
            limit.release(await limit.acquire(), "ok")
        return limit.limit

    assert asyncio.run(main()) == 4.0


def test_a_429_halves_once_for_all_that_were_under_way_and_growth_is_slow_after_it():
    async def main():
        limit = limiter(start=8, maximum=64)
        slots = await fill(limit)
        for slot in slots[:4]:
            limit.release(slot, "rate_limited")
        after_429 = limit.limit
        for slot in slots[4:]:
            limit.release(slot, "ok")
        after_old_successes = limit.limit
        slots = await fill(limit)
        for slot in reversed(slots):
            limit.release(slot, "ok")
        return after_429, after_old_successes, limit.limit

    after_429, after_old, grown = asyncio.run(main())
    assert (after_429, after_old) == (4.0, 4.0)
    assert grown == 4.25  # the one slot that filled the limit: one more per round, not one per success


def test_it_never_falls_below_one():
    async def main():
        limit = limiter(start=1)
        for _ in range(3):
            limit.release(await limit.acquire(), "rate_limited")
        return limit.limit

    assert asyncio.run(main()) == 1.0


def test_a_timeout_lowers_the_limit_without_a_pause():
    clock = Clock()

    async def main():
        limit = limiter(start=8, clock=clock)
        limit.release(await limit.acquire(), "timeout")
        await limit.acquire()
        return limit.limit

    assert asyncio.run(main()) == 4.0 and clock.slept == []


@pytest.mark.parametrize(("outcome", "retry_after", "pause"), [("server", None, 1.0), ("rate_limited", 7.0, 7.0)])
def test_a_pause_holds_back_new_requests_and_no_place_is_held_meanwhile(outcome, retry_after, pause):
    clock = Clock()

    async def main():
        limit, held = limiter(start=4, clock=clock), []
        slept = clock.sleep

        async def sleep(seconds):
            held.append(limit.in_flight)
            await slept(seconds)

        limit._sleep = sleep
        limit.release(await limit.acquire(), outcome, retry_after)
        await limit.acquire()
        return held, limit.in_flight

    held, in_flight = asyncio.run(main())
    assert clock.slept == [pause] and held == [0] and in_flight == 1


def test_a_5xx_leaves_the_limit():
    async def main():
        limit = limiter(start=4)
        limit.release(await limit.acquire(), "server")
        return limit.limit

    assert asyncio.run(main()) == 4.0


def test_a_waiter_that_leaves_passes_its_place_on():
    async def main():
        limit = limiter(start=1, maximum=1)
        slot = await limit.acquire()
        first, second, third = (asyncio.ensure_future(limit.acquire()) for _ in range(3))
        await asyncio.sleep(0)
        second.cancel()  # still in line
        limit.release(slot, "ok")  # grants first
        first.cancel()  # granted, but not yet resumed
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.wait_for(third, 1)
        return first.cancelled(), second.cancelled(), limit.in_flight

    assert asyncio.run(main()) == (True, True, 1)


def test_places_are_given_in_the_order_asked():
    async def main():
        limit, order = limiter(start=1, maximum=1), []

        async def work(name):
            slot = await limit.acquire()
            order.append(name)
            await asyncio.sleep(0)
            limit.release(slot, "ok")

        await asyncio.gather(*(work(name) for name in range(6)))
        return order

    assert asyncio.run(main()) == [0, 1, 2, 3, 4, 5]
