"""Who may start what is paid for."""

import pytest

from harness.approve import approve
from harness.errors import ConfigError
from harness.plan import NOTHING, Amount
from harness.prepare import Bill

FREE = Bill(NOTHING, NOTHING, ())
PAID = Bill(Amount((1, 2), (10, 20), (0.1, 0.2), (1.0, 2.5)), NOTHING, ())
UNKNOWN = Bill(NOTHING, Amount((1, 2), (1000, 2000), (0.1, 0.2), None), ("big-1", "big-2"))
BOTH = Bill(PAID.paid, UNKNOWN.unknown, UNKNOWN.models)


def never():
    raise AssertionError("nobody is to be asked")


def test_what_costs_nothing_is_not_asked_about():
    approve(FREE, yes=False, max_usd=None, ask=never)


def test_yes_goes_on():
    approve(PAID, yes=True, max_usd=None, ask=never)
    approve(UNKNOWN, yes=True, max_usd=None, ask=None)


@pytest.mark.parametrize("typed", ["y\n", "YES\n"])
def test_a_person_says_yes(typed, capsys):
    approve(PAID, yes=False, max_usd=None, ask=lambda: typed)
    assert "$1.00 to $2.50" in capsys.readouterr().out


@pytest.mark.parametrize("typed", ["\n", "n\n", "", "yess\n"])
def test_anything_else_is_a_no(typed):
    with pytest.raises(ConfigError, match="nothing was spent"):
        approve(PAID, yes=False, max_usd=1.0, ask=lambda: typed)


def test_without_a_terminal_a_limit_must_stand():
    approve(PAID, yes=False, max_usd=3.0, ask=None)
    with pytest.raises(ConfigError, match=r"may cost \$2.50"):
        approve(PAID, yes=False, max_usd=None, ask=None)


def test_what_has_no_price_is_asked_about(capsys):
    approve(UNKNOWN, yes=False, max_usd=None, ask=lambda: "y")
    asked = "Cost unknown: no price for big-1, big-2; 1 to 2 calls, 1,000 to 2,000 tokens. Go on? [y/N] "
    assert capsys.readouterr().out == asked
    approve(BOTH, yes=False, max_usd=2.0, ask=lambda: "y")
    assert capsys.readouterr().out == f"This is paid for: $1.00 to $2.50, at most $2.00. {asked}"
    with pytest.raises(ConfigError, match="nothing was spent"):
        approve(UNKNOWN, yes=False, max_usd=None, ask=lambda: "")


@pytest.mark.parametrize("bill", [UNKNOWN, BOTH])
def test_without_a_terminal_no_limit_keeps_what_has_no_price(bill):
    for limit in (None, 3.0):
        with pytest.raises(
            ConfigError, match=r"cost unknown: no price for big-1, big-2; .* give backbone.price.prompt"
        ):
            approve(bill, yes=False, max_usd=limit, ask=None)
