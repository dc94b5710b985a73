"""Settings of the upkeep: how long jobs are kept, and when an attempt hangs."""

import pytest

from perdure import ConfigError
from perdure.config import load
from perdure.model.errors import UnknownName

KEPT = ("retain_succeeded_s", "retain_cancelled_s", "retain_discarded_s")


def test_what_has_ended_is_kept_for_a_month_unless_told_otherwise():
    config = load({})
    assert [getattr(config, name) for name in KEPT] == [30 * 86_400.0] * 3
    assert config.overrun_s >= config.grace_s + config.lease_ttl_s


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize(
    ("text", "value"), [("3600", 3600.0), ("0", 0.0), ("forever", None), ("Forever", None)]
)
def test_a_kind_is_kept_as_long_as_the_environment_says(name, text, value):
    assert getattr(load({f"PERDURE_{name.upper()}": text}), name) == value


@pytest.mark.parametrize("text", ["never", "-1", "inf", "nan", "", "30d"])
def test_what_is_no_length_of_time_is_refused(text):
    with pytest.raises(ConfigError, match="PERDURE_RETAIN_SUCCEEDED_S is "):
        load({"PERDURE_RETAIN_SUCCEEDED_S": text})


def test_a_setting_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(UnknownName, match=r"no setting 'grace'; there are: store, .*grace_s"):
        load({}, grace=3)


def test_only_settings_that_may_have_no_value_know_the_word():
    with pytest.raises(ConfigError, match=r"must be a number$"):
        load({"PERDURE_OVERRUN_S": "forever"})
    with pytest.raises(ConfigError, match="must be a number, or forever"):
        load({"PERDURE_RETAIN_CANCELLED_S": "long"})
