"""Who may start what is paid for."""

import pytest

from harness.approve import approve
from harness.errors import ConfigError
from harness.plan import Amount

PAID = Amount((1, 2), (10, 20), (0.1, 0.2), (1.0, 2.5))
FREE = Amount((1, 2), (10, 20), (0.1, 0.2), None)


def never():
    raise AssertionError("nobody is to be asked")


def test_what_costs_nothing_is_not_asked_about():
    approve(FREE, yes=False, max_usd=None, ask=never)


def test_yes_goes_on():
    approve(PAID, yes=True, max_usd=None, ask=never)


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
