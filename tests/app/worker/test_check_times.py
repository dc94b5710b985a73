"""Times that do not fit together are refused before a worker starts, with both names and a remedy."""

import re

import pytest

from perdure import ConfigError
from perdure.app import check_times, settings_in_force
from perdure.config import AT_ODDS

APART = [
    ({"poll_s": 8.0, "lease_ttl_s": 15.0}, ("poll_s is 8", "lease_ttl_s is 15", "7.5", "16")),
    ({"poll_s": 1.0, "lease_ttl_s": 0.3}, ("poll_s is 1", "lease_ttl_s is 0.3", "0.15", "at least 2")),
    ({"tick_s": 2.0, "poll_s": 1.0}, ("tick_s is 2", "poll_s is 1", "at most 1", "at least 2")),
    ({"grace_s": 100_000.0}, ("grace_s is 100000", "timeout_s", "at most 86400")),
]  # fmt: skip
TOGETHER = [
    {},
    {"poll_s": 7.5, "lease_ttl_s": 15.0},
    {"poll_s": 0.15, "lease_ttl_s": 0.3},
    {"tick_s": 1.0, "poll_s": 1.0},
    {"grace_s": 86_400.0},
    {"grace_s": 0.0},
]


@pytest.mark.parametrize(("given", "words"), APART, ids=str)
def test_times_at_odds_are_named_with_what_to_change(given, words):
    with pytest.raises(ConfigError) as caught:
        check_times(settings_in_force(**given))
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("given", TOGETHER, ids=str)
def test_times_that_fit_are_let_pass(given):
    check_times(settings_in_force(**given))


@pytest.mark.parametrize(("given", "_words"), APART, ids=str)
def test_what_is_advised_helps(given, _words):
    with pytest.raises(ConfigError) as caught:
        check_times(settings_in_force(**given))
    for name, limit in re.findall(r"(\w+_s) to at (?:most|least) ([\d.]+)", str(caught.value)):
        check_times(settings_in_force(**{**given, name: float(limit)}))


def test_every_rule_has_a_row_that_breaks_it():
    broken = {
        number
        for given, _ in APART
        for number, (are_at_odds, _) in enumerate(AT_ODDS)
        if are_at_odds(settings_in_force(**given))
    }
    assert broken == set(range(len(AT_ODDS)))
