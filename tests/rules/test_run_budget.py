"""The failure budget over cumulative counts, and the name of a run that is over."""

import pytest
from hypothesis import given, strategies as st

from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind
from perdure.model.runs import RunStatus
from perdure.rules.run_budget import (
    Budget,
    Tally,
    check_due,
    first_look_due,
    has_sample,
    overspent,
    run_status,
)

ERROR, AUTH = Kind.UPSTREAM_ERROR, Kind.AUTH
STANDARD = Budget()


def tally(succeeded, failed=0, **kinds):
    counts = {Kind(kind): count for kind, count in kinds.items()}
    return Tally(succeeded, {ERROR: failed, **counts} if failed else counts)


# The budget.

SPENT = {
    "nothing happened": (STANDARD, tally(0), False),
    "exactly a tenth": (STANDARD, tally(900, 100), False),
    "one more than a tenth": (STANDARD, tally(899, 101), True),
    "all fail, but too few to say": (STANDARD, tally(0, 99), False),
    "all fail": (STANDARD, tally(0, 100), True),
    "a large run at its budget": (STANDARD, tally(9_000_000, 1_000_000), False),
    "a large run over it": (STANDARD, tally(8_999_999, 1_000_001), True),
    "no failure is allowed": (Budget(failure_budget=0.0), tally(999, 1), True),
    "all may fail": (Budget(failure_budget=1.0), tally(0, 1_000), False),
    "a third": (Budget(failure_budget=1 / 3, sample_min=3), tally(2, 1), False),
}


@pytest.mark.parametrize("name", SPENT)
def test_more_than_the_budget_of_all_items_so_far_aborts(name):
    budget, counts, expected = SPENT[name]
    assert (overspent(budget, counts) is not None) is expected


def test_the_message_names_the_rate_the_budget_and_both_counts():
    assert overspent(STANDARD, tally(877, 123)) == (
        "aborted: the rate of failures is 12.3 %, the budget is 10 % (1000 processed, 123 failed)"
    )


def test_the_message_does_not_round_the_rate_to_the_budget():
    assert "10.0001 %" in overspent(STANDARD, tally(899_999, 100_001))


def test_rate_limits_count_unless_they_are_excluded():
    counts = tally(800, 50, rate_limited=100, quota_window=50)
    assert overspent(STANDARD, counts) is not None
    assert overspent(Budget(rate_limits=False), counts) is None


def test_excluded_rate_limits_leave_both_counts_so_that_they_cannot_hide_failures():
    counts = tally(80, 20, rate_limited=900)
    assert overspent(Budget(failure_budget=0.95), counts) is None
    told = overspent(Budget(failure_budget=0.1, rate_limits=False), counts)
    assert told == (
        "aborted: the rate of failures is 20 %, the budget is 10 % "
        "(100 processed, 20 failed; 900 rate limited are left out)"
    )
    assert overspent(Budget(rate_limits=False), tally(79, 20, rate_limited=900)) is None


def test_a_kind_can_have_a_budget_of_its_own():
    budget = Budget(kinds={AUTH: 0.01})
    assert overspent(budget, tally(950, 40, auth=10)) is None
    assert overspent(budget, tally(989, auth=11)) == (
        "aborted: the rate of auth failures is 1.1 %, the budget is 1 % (1000 processed, 11 failed)"
    )
    assert overspent(Budget(kinds={AUTH: 0.0}), tally(1000)) is None


@pytest.mark.parametrize(
    ("checked", "processed", "due"),
    [
        (0, 0, False),
        (0, 99, False),
        (0, 100, True),
        (0, 103, True),  # a batch jumped over the end of the sample
        (100, 999, False),
        (103, 1000, True),
        (998, 1003, True),  # a batch jumped over the multiple
        (1000, 1000, False),
        (1000, 1999, False),
        (1003, 2000, True),
        (1003, 9999, True),
    ],
)
def test_a_check_is_due_at_the_end_of_the_sample_and_at_every_thousandth_item(
    checked, processed, due
):
    assert check_due(STANDARD, checked=checked, processed=processed) is due


@given(st.integers(1, 50), st.integers(1, 50))
def test_checks_fall_to_the_sample_and_then_to_multiples_of_the_interval(sample_min, every):
    budget, checked, found = Budget(sample_min=sample_min, check_every=every), 0, []
    for processed in range(200):
        if check_due(budget, checked=checked, processed=processed):
            found.append(processed)
            checked = processed
    later = [n for n in range(200) if n % every == 0 and n > sample_min]
    assert found == [sample_min, *later]


def test_nothing_is_checked_where_no_failure_ends_a_run():
    assert not check_due(Budget(failure_budget=None), checked=0, processed=10_000)
    assert check_due(Budget(failure_budget=None, kinds={AUTH: 0.1}), checked=0, processed=10_000)


FIRST = {
    "too few": (STANDARD, tally(0, 19), 0, False),
    "all of the first": (STANDARD, tally(0, 20), 0, True),
    "looked at before": (STANDARD, tally(0, 21), 20, False),
    "one has succeeded": (STANDARD, tally(1, 40), 0, False),
    "the sample is whole": (STANDARD, tally(0, 100), 0, False),
    "a smaller sample": (Budget(sample_min=20), tally(0, 20), 0, False),
    "all may fail": (Budget(failure_budget=1.0), tally(0, 20), 0, False),
    "failures never end it": (Budget(failure_budget=None), tally(0, 20), 0, False),
}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_items_are_looked_at_once_if_all_of_them_have_failed(name):
    budget, counts, checked, expected = FIRST[name]
    assert first_look_due(budget, counts, checked=checked) is expected


def test_a_sample_is_whole_without_the_rate_limits_that_are_left_out():
    counts = tally(50, 49, rate_limited=50)
    assert has_sample(STANDARD, counts)
    assert not has_sample(Budget(rate_limits=False), counts)
    assert has_sample(Budget(rate_limits=False), tally(50, 50, rate_limited=50))


def chunks(length, failing_from, *, size=1000):
    """Failures in each chunk of a run whose upstream breaks for good after so many items."""
    items = [n >= failing_from for n in range(length)]
    return [sum(items[start : start + size]) for start in range(0, length, size)]


def aborted_at(failed_by_chunk, is_over):
    """How many items were processed when the run was given up; None if it never was."""
    for number in range(1, len(failed_by_chunk) + 1):
        if is_over(failed_by_chunk[:number], number * 1000):
            return number * 1000
    return None


def ours(failed_so_far, processed):
    failed = sum(failed_so_far)
    return overspent(STANDARD, tally(processed - failed, failed)) is not None


def of_the_last_chunk(failed_so_far, processed):
    """The broken twin (D2): failures of this chunk over everything processed."""
    return failed_so_far[-1] / processed > 0.10


def test_a_run_that_breaks_half_way_is_aborted_and_the_arithmetic_per_chunk_would_not():
    broken = chunks(40_000, failing_from=20_000)
    assert aborted_at(broken, ours) == 23_000
    assert aborted_at(broken, of_the_last_chunk) is None


def test_a_run_of_which_every_fifth_item_fails_is_aborted_and_per_chunk_only_by_luck_of_the_first():
    steady = [90] + [200] * 39
    assert aborted_at(steady, ours) == 2000
    assert aborted_at(steady, of_the_last_chunk) is None


# Tallies.


def test_a_tally_does_not_change_with_the_mapping_it_was_made_from():
    kinds = {ERROR: 1}
    counts = Tally(0, kinds)
    kinds[ERROR] = 99
    assert counts.failed == 1


# Status.

NAMED = {
    "completed at 95 %": (tally(95, 5), RunStatus.COMPLETED),
    "partial below it": (tally(9_499, 501), RunStatus.PARTIAL_SUCCESS),
    "partial at 50 %": (tally(50, 50), RunStatus.PARTIAL_SUCCESS),
    "failed below it": (tally(49, 51), RunStatus.FAILED),
    "all failed": (tally(0, 1), RunStatus.FAILED),
    "all well": (tally(1), RunStatus.COMPLETED),
    "nothing asked for, nothing missing": (tally(0), RunStatus.COMPLETED),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_run_is_named_by_its_share_of_success(name):
    counts, expected = NAMED[name]
    assert run_status(counts) is expected


@pytest.mark.parametrize("counts", [tally(0), tally(99, 1), tally(0, 100)])
def test_an_aborted_run_is_aborted_however_its_items_look(counts):
    assert run_status(counts, aborted=True) is RunStatus.ABORTED


def test_thresholds_can_be_set():
    strict = Budget(completed_at=1.0, partial_at=0.99)
    assert run_status(tally(999, 1), strict) is RunStatus.PARTIAL_SUCCESS
    assert run_status(tally(98, 2), strict) is RunStatus.FAILED
    assert run_status(tally(0, 9), Budget(completed_at=0.0, partial_at=0.0)) is RunStatus.COMPLETED


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_every_run_has_a_status_and_more_success_is_never_worse(succeeded, failed):
    rank = [RunStatus.FAILED, RunStatus.PARTIAL_SUCCESS, RunStatus.COMPLETED]
    now = rank.index(run_status(tally(succeeded, failed)))
    better = rank.index(run_status(tally(succeeded + 1, failed)))
    assert succeeded + failed == 0 or better >= now


@given(st.integers(0, 5000), st.integers(0, 5000), st.floats(0.0, 1.0))
def test_a_run_within_its_budget_stays_within_a_larger_one(succeeded, failed, share):
    counts = tally(succeeded, failed)
    larger = Budget(failure_budget=min(share + 0.1, 1.0))
    if overspent(Budget(failure_budget=share), counts) is None:
        assert overspent(larger, counts) is None


BAD = [
    ({"failure_budget": 1.1}, "failure_budget is 1.1; it must be a number between 0 and 1"),
    ({"check_every": 10**9 + 1}, "check_every is 1000000001; it must be a whole number between 1"),
    ({"sample_min": 10**9 + 1}, "sample_min is 1000000001; it must be a whole number between 1"),
    ({"completed_at": 1.1}, "completed_at is 1.1; it must be a number between 0 and 1"),
    ({"partial_at": 1.1}, "partial_at is 1.1; it must be a number between 0 and 0.95"),
    ({"check_every": 0}, "check_every is 0; it must be a whole number between 1 and 1000000000"),
    ({"sample_min": 0}, "sample_min is 0; it must be a whole number between 1 and 1000000000"),
    ({"rate_limits": "no"}, "count_rate_limits is 'no'; it must be true or false"),
    (
        {"kinds": {"quota": 0.1}},
        "failure_budgets names 'quota', which is no kind of failure; did you mean 'quota_window'? One of: ",
    ),
    ({"kinds": {"auth": 2}}, "failure_budgets['auth'] is 2; it must be a number between 0 and 1"),
    ({"partial_at": -0.5}, "partial_at is -0.5; it must be a number between 0 and 0.95"),
    ({"completed_at": 0.4}, "partial_at is 0.5; it must be a number between 0 and 0.4"),
    ({"cost_max_usd": -1}, "cost_max_usd is -1; it must be a number between 0 and 1,000,000,000"),
]


def test_settings_at_their_limits_pass():
    Budget(failure_budget=1.0, check_every=10**9, sample_min=10**9, kinds={AUTH: 1.0})
    Budget(failure_budget=0.0, check_every=1, sample_min=1, kinds={AUTH: 0.0})


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_a_bad_setting_is_named_with_its_value_and_range(changes, message):
    with pytest.raises(ConfigError) as told:
        Budget(**changes)
    assert str(told.value).startswith(message)
