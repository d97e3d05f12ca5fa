"""run.max_usd: prices by hand, 2 dollars a million prompt tokens and 8 a million completion tokens."""

import asyncio

import pytest
from llm_fakes import chat_of, user

from harness.errors import EndpointError
from harness.llm.budget import Budget
from harness.llm.retry import Failure
from harness.spec import PriceSpec

PRICE = PriceSpec(prompt=2.0, completion=8.0, date="2026-01-01")


def test_a_call_costs_its_tokens_times_their_price():
    assert Budget(PRICE, None).cost(1_000_000, 500_000) == pytest.approx(2.0 + 4.0)


def test_without_a_limit_everything_passes_and_is_added_up():
    async def calls():
        budget, before = Budget(PRICE, None), Budget.total
        await budget.settle(await budget.reserve(1000, 100), 1000, 100)
        assert not budget.limited
        assert budget.spent == pytest.approx(0.0028)
        assert Budget.total - before == pytest.approx(0.0028)

    asyncio.run(calls())


def test_the_call_that_would_pass_the_limit_is_not_made():
    async def calls():
        budget = Budget(PRICE, 0.005)
        await budget.settle(await budget.reserve(1000, 100), 1000, 100)  # 0.0028 of 0.005
        with pytest.raises(EndpointError, match=r"run.max_usd=0.005: \$0.0028 spent") as refused:
            await budget.reserve(1000, 100)
        assert refused.value.fatal and refused.value.kind == "budget"
        assert await budget.reserve(1000, 25) == pytest.approx(0.0022)  # exactly what is left

    asyncio.run(calls())


def test_near_the_limit_a_call_waits_for_the_real_price_of_those_before_it():
    async def calls():
        budget = Budget(PRICE, 0.01)
        first = await budget.reserve(1000, 1000)  # may cost 0.010: all there is
        second = asyncio.create_task(budget.reserve(1000, 100))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not second.done()
        await budget.settle(first, 1000, 10)  # it cost 0.00208
        assert await second == pytest.approx(0.0028)
        assert budget.spent == pytest.approx(0.00208)

    asyncio.run(calls())


def test_a_call_that_failed_costs_nothing_and_makes_room():
    async def calls():
        budget = Budget(PRICE, 0.003)
        await budget.settle(await budget.reserve(1000, 100))
        await budget.settle(await budget.reserve(1000, 100), 1000, 100)
        assert budget.spent == pytest.approx(0.0028)

    asyncio.run(calls())


def paid_chat(tmp_path, replies, max_usd, **fields):
    chat, told = chat_of(replies, tmp_path, price=PRICE, **fields)
    chat.budget = Budget(PRICE, max_usd)
    return chat, told


def test_a_call_that_is_given_up_before_it_had_a_slot_costs_nothing(tmp_path):
    """One slot: the first call holds it, the second waits for it; both are given up."""

    async def calls():
        chat, told = paid_chat(tmp_path, [], 1.0, concurrency_start=1, concurrency_max=1)
        sending, never = asyncio.Event(), asyncio.Event()

        async def send(request):
            told.sent.append(request)
            sending.set()
            await never.wait()

        told.send = send
        tasks = [asyncio.create_task(chat.complete(user(text), max_tokens=100)) for text in ("one", "two")]
        await sending.wait()
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(told.sent) == 1
        # "one" or "two" is a token, 8 are its frame: 9 at 2 dollars, 100 at 8 dollars a million
        assert chat.budget.spent == pytest.approx((9 * 2 + 100 * 8) / 1e6)

    asyncio.run(calls())


def test_a_try_that_timed_out_counts_and_one_that_was_refused_does_not(tmp_path):
    failures = [Failure("timeout", "transient", "late"), Failure("server", "transient", "500")]
    chat, _ = paid_chat(tmp_path, [*failures, "yes"], 1.0)
    asyncio.run(chat.complete(user("one"), max_tokens=100))
    assert chat.budget.spent == pytest.approx((9 * 2 + 100 * 8 + 10 * 2 + 3 * 8) / 1e6)  # the reply: 10 and 3 tokens
