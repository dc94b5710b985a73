"""The window of calls that a gate judges by: counted at send, only what blames the upstream."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import example, given, strategies as st

from perdure.model.errors import ConfigError
from perdure.model.kinds import KINDS, Kind, Sign
from perdure.model.nouns import replace
from perdure.rules.gate.gate import basic_gate
from perdure.rules.gate.window import (
    IN_FLIGHT_MAX,
    LEFT_OUT_MAX,
    Reading,
    Sample,
    Window,
    WindowSettings,
    add_call,
    answered_at,
    fill_call,
    is_isolated,
    merge,
    reading,
    sickness,
)
from tests.rules.gate.gate_kit import DOWN, at, said, window_of

STANDARD = WindowSettings()
BAD = [kind for kind in Kind if KINDS[kind].sign is Sign.BAD]
GOOD = [kind for kind in Kind if KINDS[kind].sign is Sign.GOOD]
NEITHER = [kind for kind in Kind if KINDS[kind].sign is Sign.NEITHER]


def is_sick(window, settings=STANDARD, *, counts_from=0, t=100.0):
    found = reading(window, settings, counts_from=counts_from, now=at(t))
    return sickness(found, settings) is not None


def sent_and_ended(results, settings=STANDARD, *, generation=0):
    """Calls one after the other, each ended before the next is sent."""
    window = Window()
    for number, kind in enumerate(results):
        name = f"{number:04}"
        window = add_call(window, settings, name=name, generation=generation, now=at(number))
        window = fill_call(window, settings, name=name, word=said(kind), took_s=0.5)
    return window


# results, oldest first: failed, ok (K), in flight (P); whether the standard window is sick.
F, K, P = True, False, None
TABLE = {
    "nothing": ([], False),
    "nine failures are too few": ([F] * 9, False),
    "the tenth makes ten of ten": ([F] * 10, True),
    "half of ten is weak, not down": ([K, F] * 5, False),
    "nine of ten are nearly all": ([K] + [F] * 9, True),
    "eight of ten are not": ([K] * 2 + [F] * 8, False),
    "ten of twenty are weak, not down": ([K, F] * 10, False),
    "eighteen of twenty are nearly all": ([K] * 2 + [F] * 18, True),
    "seventeen of twenty are not": ([K] * 3 + [F] * 17, False),
    "only the last twenty count": ([F] * 100 + [K] * 3 + [F] * 17, False),
    "older failures have left": ([F] * 20 + [K] * 20, False),
    "older successes have left": ([K] * 100 + [F] * 18 + [K] * 2, True),
    "calls in flight are not failures": ([K] * 10 + [P] * 10, False),
    "calls in flight are no part of the sample": ([F] * 9 + [P] * 11, False),
}


@pytest.mark.parametrize("name", TABLE)
def test_nearly_all_of_the_last_twenty_and_at_least_ten(name):
    results, expected = TABLE[name]
    assert is_sick(window_of(results)) is expected


def test_calls_in_flight_dilute_only_where_they_outlast_the_failures():
    window = window_of([F] * 10 + [P] * 10, took_s=30.0)
    assert is_sick(window, t=40.0)
    assert not is_sick(window, t=60.0)  # all of them would have failed by now


HALF = basic_gate().window  # as the converter's document has it
HALVES = {
    "nothing": ([], False),
    "nine failures are too few": ([F] * 9, False),
    "the tenth makes ten of ten": ([F] * 10, True),
    "five of ten are half": ([K, F] * 5, True),
    "four of ten are not": ([K] * 6 + [F] * 4, False),
    "ten of twenty are half": ([K, F] * 10, True),
    "nine of twenty are not": ([K] * 11 + [F] * 9, False),
    "only the last twenty count": ([F] * 100 + [K] * 11 + [F] * 9, False),
    "older failures have left": ([F] * 20 + [K] * 20, False),
    "older successes have left": ([K] * 100 + [F] * 10 + [K] * 10, True),
    "calls in flight are not failures": ([K] * 10 + [P] * 10, False),
    "calls in flight are no part of the sample": ([F] * 9 + [P] * 11, False),
    "calls in flight do not dilute": ([F] * 10 + [P] * 10, True),
}


@pytest.mark.parametrize("name", HALVES)
def test_half_of_the_last_twenty_and_at_least_ten(name):
    results, expected = HALVES[name]
    assert is_sick(window_of(results), HALF) is expected


@pytest.mark.parametrize("kind", BAD)
def test_a_kind_that_blames_the_upstream_counts_as_a_failure(kind):
    window = sent_and_ended([kind] * 10)
    assert reading(window, STANDARD, counts_from=0, now=at(0)) == Reading(10, 10, 0)


@pytest.mark.parametrize("kind", GOOD)
def test_a_kind_that_proves_an_answer_counts_as_one(kind):
    found = reading(sent_and_ended([DOWN, kind] * 5), STANDARD, counts_from=0, now=at(0))
    assert found == Reading(10, 5, 0)


@pytest.mark.parametrize("kind", NEITHER)
def test_every_other_kind_is_left_out_and_told_of(kind):
    nothing = reading(sent_and_ended([kind] * 20), STANDARD, counts_from=0, now=at(0))
    assert nothing == Reading(0, 0, 0, ((kind, 20),))
    mixed = [DOWN, kind, None, kind] * 5
    found = reading(sent_and_ended(mixed), STANDARD, counts_from=0, now=at(0))
    assert found == Reading(10, 5, 0, ((kind, 10),))


def test_the_kinds_that_must_not_count_do_not():
    assert {Kind.RATE_LIMITED, Kind.INVALID_REQUEST, Kind.CANCELLED, Kind.AUTH} <= set(NEITHER)
    assert {Kind.INVALID_OUTPUT, Kind.TRUNCATED_OUTPUT, Kind.CONTENT_REFUSED} == set(GOOD)


def test_what_is_left_out_stands_in_the_words_with_its_kinds_the_most_first():
    mixed = [Kind.CANCELLED, *([Kind.INTERNAL] * 3), *([DOWN] * 4)] * 3
    found = reading(sent_and_ended(mixed), STANDARD, counts_from=0, now=at(0))
    assert sickness(found, STANDARD) == (
        "12 of the last 12 calls that count failed (8 left out: 6 internal, 2 cancelled)"
    )  # the first four were sent before any call that counts


def test_a_few_failures_among_answers_that_do_not_fit_are_not_all_of_the_calls():
    mixed = [DOWN if n % 12 == 0 else Kind.INVALID_OUTPUT for n in range(100)]
    found = reading(sent_and_ended(mixed), STANDARD, counts_from=0, now=at(0))
    assert (found.known, found.failed) == (20, 2)


def test_left_out_calls_are_remembered_up_to_a_limit_and_push_nothing_out():
    window = sent_and_ended([DOWN] * 20 + [Kind.CANCELLED] * (LEFT_OUT_MAX + 5))
    found = reading(window, STANDARD, counts_from=0, now=at(0))
    assert found == Reading(20, 20, 0, ((Kind.CANCELLED, LEFT_OUT_MAX),))


# Whether refusals are isolated.

LIMIT = Kind.RATE_LIMITED
REFUSALS = {
    "one of twenty": ([None] * 19 + [LIMIT], True),
    "four of twenty": (([None] * 4 + [LIMIT]) * 4, True),
    "five of twenty are a quarter": (([None] * 3 + [LIMIT]) * 5, False),
    "half": ([None, LIMIT] * 10, False),
    "a failed call was turned away too": (
        ([None] * 3 + [DOWN]) * 4 + [None, None, None, LIMIT],
        False,
    ),
    "an answer that does not fit was admitted": ([Kind.INVALID_OUTPUT] * 19 + [LIMIT], True),
    "what is neither is no call of the upstream's": ([Kind.CANCELLED] * 19 + [LIMIT], False),
    "nor one that was turned away": ([None] * 9 + [Kind.CANCELLED] * 10 + [LIMIT], True),
    "a call that was taken on and failed was admitted": (
        [Kind.UPSTREAM_ERROR] * 19 + [LIMIT],
        True,
    ),
    "too few to tell": ([None] * 8 + [LIMIT], False),
    "ten are enough": ([None] * 9 + [LIMIT], True),
    "older refusals have left": ([LIMIT] * 40 + [None] * 19 + [LIMIT], True),
    "older answers have left": ([None] * 40 + [LIMIT] * 5 + [None] * 14 + [LIMIT], False),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_are_isolated_while_less_than_a_quarter_of_the_calls_is_turned_away(name):
    results, expected = REFUSALS[name]
    window = sent_and_ended(results)
    assert is_isolated(window, STANDARD, 0.25, counts_from=0, now=at(100)) is expected


def test_one_error_that_names_a_pause_among_good_answers_is_isolated():
    """A 500 is no refusal, but its hint would hold everybody all the same."""
    samples = [Sample(0, at(n), str(n), Sign.GOOD, 1.0) for n in range(19)]
    samples.append(Sample(0, at(19), "19", Sign.BAD, 1.0, Kind.UPSTREAM_ERROR))
    assert is_isolated(Window(tuple(samples)), STANDARD, 0.3, counts_from=0, now=at(20))


def test_with_a_share_of_nothing_no_refusal_is_isolated():
    window = sent_and_ended([None] * 19 + [LIMIT])
    assert not is_isolated(window, STANDARD, 0.0, counts_from=0, now=at(100))


def test_calls_of_an_earlier_generation_do_not_make_a_refusal_isolated():
    window = sent_and_ended([None] * 19 + [LIMIT])
    assert not is_isolated(window, STANDARD, 0.25, counts_from=1, now=at(100))


def test_a_call_that_outlasts_the_refusals_was_admitted():
    """Answers of 30 s and refusals of half a second: the answers are still to come."""
    window = Window(
        tuple(
            Sample(0, at(n), f"{n:02}")
            if n % 5
            else Sample(0, at(n), f"{n:02}", Sign.NEITHER, 0.5, LIMIT)
            for n in range(20)
        )
    )
    assert is_isolated(window, STANDARD, 0.25, counts_from=0, now=at(20))
    assert not is_isolated(window, STANDARD, 0.25, counts_from=0, now=at(0))


def test_bad_requests_cannot_hide_an_outage():
    assert is_sick(sent_and_ended([DOWN] * 10 + [Kind.INVALID_REQUEST] * 90))


def test_bad_requests_and_rate_limits_cannot_hold_a_healthy_upstream():
    assert not is_sick(sent_and_ended([Kind.INVALID_REQUEST, Kind.RATE_LIMITED] * 50 + [None]))


def test_a_place_is_taken_at_send_so_a_late_success_is_old_news():
    """Ten slow calls from before an outage answer well after ten newer ones have failed."""
    settings = WindowSettings(calls=10)
    window = Window()
    for number in range(20):
        window = add_call(window, settings, name=f"{number:02}", generation=0, now=at(number))
    for number in range(10, 20):
        window = fill_call(window, settings, name=f"{number:02}", word=said(DOWN), took_s=1.0)
    for number in range(10):
        window = fill_call(window, settings, name=f"{number:02}", word=said(None), took_s=60.0)
    assert reading(window, settings, counts_from=0, now=at(60)) == Reading(10, 10, 0)


def hundred_in_flight(settings, note_sent, note_ended):
    """Calls that hang and time out in the order in which they were sent, each replaced by another."""
    window = Window()
    for number in range(100):
        window = note_sent(window, settings, name=f"{number:04}", generation=0, now=at(number))
    for number in range(30):
        window = note_ended(
            window, settings, name=f"{number:04}", word=said(Kind.TIMEOUT), took_s=100.0
        )
        name = f"{number + 100:04}"
        window = note_sent(window, settings, name=name, generation=0, now=at(number + 100))
    return window


def test_a_hundred_calls_in_flight_do_not_push_results_out_of_a_window_of_twenty():
    assert is_sick(hundred_in_flight(STANDARD, add_call, fill_call))


def test_a_window_of_the_last_twenty_sent_would_never_see_those_timeouts():
    """The broken twin: places in flight count, so every result finds its place gone."""

    def last_sent(window, settings, **call):
        after = add_call(window, settings, **call)
        return Window(after.samples[-settings.calls :])

    assert not is_sick(hundred_in_flight(STANDARD, last_sent, fill_call))


def test_results_of_an_earlier_generation_are_history():
    window = merge(
        STANDARD, window_of([F] * 20, generation=3), window_of([K] * 3 + [F] * 3, generation=4)
    )
    assert reading(window, STANDARD, counts_from=4, now=at(0)) == Reading(6, 3, 0)
    assert reading(window, STANDARD, counts_from=3, now=at(0)) == Reading(20, 17, 0)
    assert reading(window, STANDARD, counts_from=5, now=at(0)) == Reading(0, 0, 0)


def test_a_late_sender_of_an_old_generation_cannot_push_newer_results_out():
    """A worker with an old copy of the gate sends last; its calls still stand before the others."""
    old = Window(tuple(Sample(1, at(50 + n), f"old{n:02}", Sign.GOOD) for n in range(20)))
    window = merge(STANDARD, old, window_of([F] * 20, generation=2))
    assert reading(window, STANDARD, counts_from=2, now=at(90)) == Reading(20, 20, 0)


def test_a_result_for_an_unknown_or_ended_call_changes_nothing():
    window = window_of([F, K, P])
    for name in ("0000", "0001", "nobody"):
        for kind in (None, DOWN, Kind.CANCELLED):
            assert fill_call(window, STANDARD, name=name, word=said(kind), took_s=9.0) == window


def test_slow_calls_count_where_a_limit_is_set():
    settings = WindowSettings(slow_s=5.0, slow_share=0.8)
    slow, quick = window_of([K] * 10, took_s=5.0), window_of([K] * 10, took_s=4.9)
    assert is_sick(slow, settings)
    assert not is_sick(quick, settings)
    assert not is_sick(slow, STANDARD)
    found = reading(slow, settings, counts_from=0, now=at(0))
    assert sickness(found, settings) == "10 of the last 10 calls that count took 5 s or more"


@pytest.mark.parametrize(("slow", "expected"), [(15, False), (16, True)])
def test_the_share_of_slow_calls_is_reached_exactly(slow, expected):
    settings = WindowSettings(slow_s=5.0, slow_share=0.8)
    samples = tuple(
        Sample(0, at(n), f"{n:02}", sign=Sign.GOOD, took_s=9.0 if n < slow else 1.0)
        for n in range(20)
    )
    assert is_sick(Window(samples), settings) is expected


def test_with_a_time_window_old_results_fall_out():
    settings = WindowSettings(window_s=60.0)
    window = window_of([F] * 10)  # sent at 0…9 s, and answered at once
    assert is_sick(window, settings, t=60.0)
    assert not is_sick(window, settings, t=60.001)
    assert is_sick(window, STANDARD, t=1e6)


def test_a_time_window_shorter_than_the_timeout_still_sees_timeouts():
    settings = WindowSettings(window_s=60.0)
    assert is_sick(window_of([F] * 10, took_s=180.0), settings, t=190.0)


def test_calls_in_flight_are_remembered_up_to_a_limit():
    window = window_of([P] * (IN_FLIGHT_MAX + 5))
    names = [sample.name for sample in merge(STANDARD, window).samples]
    assert names == [f"{n:04}" for n in range(5, IN_FLIGHT_MAX + 5)]


BAD_SETTINGS = [
    ({"calls": 0}, "window.calls is 0; it must be a whole number between 1 and 1000"),
    ({"calls": 1001}, "window.calls is 1001; it must be a whole number between 1 and 1000"),
    ({"calls_min": 0}, "window.calls_min is 0; it must be a whole number between 1 and 20"),
    ({"calls_min": 21}, "window.calls_min is 21; it must be a whole number between 1 and 20"),
    ({"fail_share": 1.1}, "window.fail_share is 1.1; it must be a number between 0 and 1"),
    ({"fail_share": float("nan")}, "window.fail_share is nan; it must be a number"),
    ({"fail_share": 0.0}, "window.fail_share is 0.0; a share of nothing would hold"),
    ({"slow_share": 0}, "window.slow_share is 0; a share of nothing would hold"),
    ({"slow_share": "most"}, "window.slow_share is 'most'; it must be a number between 0 and 1"),
    ({"window_s": 0.5}, "window.window_s is 0.5; it must be a number between 1 and"),
    ({"slow_s": 0.0}, "window.slow_s is 0.0; it must be a number between 0.001 and"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_SETTINGS)
def test_a_bad_setting_is_named_with_its_value_and_range(changes, message):
    with pytest.raises(ConfigError) as told:
        WindowSettings(**changes)
    assert str(told.value).startswith(message)


def test_settings_at_their_limits_pass():
    WindowSettings(calls=1, calls_min=1, fail_share=1.0, window_s=1.0, slow_s=0.001, slow_share=1)
    WindowSettings(calls=1000, calls_min=1000)


def in_flight_behind(quick, out_s):
    """Ten answers, then so many results of one second each that failed among calls still in flight."""
    calls = [Sample(0, at(n), f"{n:03}", sign=Sign.GOOD, took_s=30.0) for n in range(10)]
    calls += [
        Sample(0, at(40 + n), f"{40 + n:03}", sign=Sign.BAD if n in quick else None, took_s=1.0)
        for n in range(40)
    ]
    return reading(Window(tuple(calls)), WindowSettings(), counts_from=0, now=at(80 + out_s))


def test_quick_failures_do_not_outrun_slow_answers():
    found = in_flight_behind(quick=range(0, 40, 4), out_s=1.5)
    assert (found.known, found.failed) == (20, 5)
    assert sickness(found, WindowSettings()) is None


def test_calls_that_all_fail_are_an_outage_however_many_older_ones_are_in_flight():
    found = in_flight_behind(quick=range(10, 40), out_s=1.5)
    assert (found.known, found.failed) == (20, 20)


def test_a_call_in_flight_counts_once_it_outlasts_the_middle_one_of_the_failures():
    took_s = (1.0, 1.0, 5.0, 5.0, 5.0)
    failed = [Sample(0, at(n), f"{n}", Sign.BAD, s, DOWN) for n, s in enumerate(took_s)]
    window = Window((*failed, Sample(0, at(10), "out")))
    known = [reading(window, STANDARD, counts_from=0, now=at(t)).known for t in (13, 15, 15.1)]
    assert known == [5, 5, 6]


# The reference: a plain list.


@dataclass
class Plain:
    """The window as a list of everything that ever happened, read from the end."""

    settings: WindowSettings
    calls: list = field(default_factory=list)

    def reading(self, counts_from, now):
        kept = []
        for generation, sent_at, _, result, took_s in self.judged(now):
            ended_at = sent_at + timedelta(seconds=took_s)
            age_s = (now - ended_at).total_seconds()
            limit_s = self.settings.window_s
            recent = limit_s is None or result == "out" or age_s <= limit_s
            if generation >= counts_from and recent:
                kept.append((result, 0.0 if result == "out" else took_s))
        slow_s = self.settings.slow_s
        slow = [took_s for _, took_s in kept if slow_s is not None and took_s >= slow_s]
        return Reading(len(kept), sum(r == "failed" for r, _ in kept), len(slow))

    def judged(self, now):
        """The last that ended, or are in flight for longer than the middle one of those took to fail."""
        heard = [call for call in sorted(self.calls, key=lambda c: c[:3]) if call[3] != "silent"]
        ended_calls = [call for call in heard if call[3] != "out"][-self.settings.calls :]
        failing_s = sorted(call[4] for call in ended_calls if call[3] == "failed")
        if not failing_s:
            return ended_calls
        quick_s = failing_s[len(failing_s) // 2]
        known = [
            call for call in heard if call[3] != "out" or (now - call[1]).total_seconds() > quick_s
        ]
        return known[-self.settings.calls :]


KIND_OF = {"ok": None, "failed": DOWN, "silent": Kind.RATE_LIMITED}

settings_of = st.builds(
    lambda calls, window_s, slow_s: WindowSettings(
        calls=calls, calls_min=1, window_s=window_s, slow_s=slow_s
    ),
    st.integers(1, 6),
    st.sampled_from([None, 1.0, 10.0, 60.0]),
    st.sampled_from([None, 0.5, 5.0]),
)
# generation, sent at, worker, result, seconds taken; whole seconds, so that both sums are exact
calls_of = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 30),
        st.integers(0, 2),
        st.sampled_from(["ok", "failed", "silent", "out"]),
        st.integers(0, 20).map(float),
    ),
    max_size=25,
)


def histories(calls, settings):
    """The reference, and one window for each worker, given the same calls."""
    plain = Plain(settings)
    windows = {worker: Window() for worker in range(3)}
    for number, (generation, t, worker, result, took_s) in enumerate(calls):
        name = f"{worker}-{number:02}"
        plain.calls.append((generation, at(t), name, result, took_s))
        windows[worker] = add_call(
            windows[worker], settings, name=name, generation=generation, now=at(t)
        )
    for number, (_, _, worker, result, took_s) in reversed(list(enumerate(calls))):
        if result != "out":
            windows[worker] = fill_call(
                windows[worker],
                settings,
                name=f"{worker}-{number:02}",
                word=said(KIND_OF[result]),
                took_s=took_s,
            )
    return plain, list(windows.values())


@given(calls_of, settings_of, st.integers(0, 3), st.integers(0, 60))
@example([(0, 0, 0, "failed", 0.0)] * 7, WindowSettings(calls=6, calls_min=1), 0, 0)
def test_windows_of_several_workers_merge_to_what_a_plain_list_says(
    calls, settings, counts_from, t
):
    plain, windows = histories(calls, settings)
    found = reading(merge(settings, *windows), settings, counts_from=counts_from, now=at(t))
    assert replace(found, left_out=()) == plain.reading(counts_from, at(t))


@given(calls_of, settings_of)
def test_the_order_and_repetition_of_merging_do_not_matter(calls, settings):
    _, (a, b, c) = histories(calls, settings)
    whole = merge(settings, a, b, c)
    assert merge(settings, merge(settings, c, a), b) == whole
    assert merge(settings, a, merge(settings, b, c)) == whole
    assert merge(settings, whole, whole, b) == whole


@given(calls_of, settings_of)
def test_a_copy_from_before_the_result_does_not_undo_it(calls, settings):
    _, windows = histories(calls, settings)
    ended_ones = merge(settings, *windows)
    earlier = Window(tuple(Sample(s.generation, s.sent_at, s.name) for s in ended_ones.samples))
    assert merge(settings, earlier, ended_ones) == ended_ones
    assert merge(settings, ended_ones, earlier) == ended_ones


@given(calls_of, settings_of)
def test_a_window_keeps_the_latest_answer_and_judges_as_before(calls, settings):
    _, windows = histories(calls, settings)
    good = [sample for sample in merge(settings, *windows).samples if sample.sign is Sign.GOOD]
    ever = [sample for window in windows for sample in window.samples if sample.sign is Sign.GOOD]
    assert bool(good) == bool(ever)
    assert (answered_at(merge(settings, *windows)) is None) == (not ever)


@given(calls_of, settings_of)
def test_a_window_stays_small(calls, settings):
    _, windows = histories(calls, settings)
    for window in windows:
        kept = [sample for sample in window.samples if sample.counts]
        assert len(kept) <= settings.calls + 1
        if len(kept) > settings.calls:  # the latest answer, where all after it failed
            assert [sample.sign for sample in kept] == [Sign.GOOD] + [Sign.BAD] * settings.calls
