"""One upstream as one worker sees it: what others are told of its calls, and when the next may start."""

from datetime import UTC, datetime, timedelta
from math import inf

from perdure.engine.gates.traffic import CallEnd, Traffic
from perdure.model.gates import GateState
from perdure.model.kinds import Kind, Sign
from perdure.model.nouns import replace
from perdure.rules.gate.gate import Gate
from perdure.rules.gate.limit_allowance import UpstreamLimits
from perdure.rules.gate.limit_slices import Slice
from perdure.rules.gate.signs import WELL
from perdure.rules.gate.window import LEFT_OUT_MAX, Sample, Window, reading
from tests.engine.gating import QUICK, upstream
from tests.rules.gate.gate_kit import said

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ME = 7


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def passage(**more) -> Traffic:
    return Traffic(upstream(**more), NOW, ME)


def called(way: Traffic, count: int, kind: Kind | None, *, first: int = 1) -> None:
    for no in range(first, first + count):
        way.start((no, 1), later(no / 1_000), tokens=None, probes=None)
    for no in range(first, first + count):
        way.end_call((no, 1), CallEnd(said(kind), later(1.0)))


def found(way: Traffic):
    return reading(way.window(), QUICK.window, counts_from=0, now=later(2.0))


def test_a_call_counts_from_the_moment_it_is_sent_and_is_filled_in_by_its_end():
    way = passage()
    way.start((1, 1), NOW, tokens=None, probes=None)
    assert (way.out, found(way).known) == (1, 0)
    way.end_call((1, 1), CallEnd(said(Kind.TIMEOUT), later(1.0)))
    assert (way.out, found(way).known, found(way).failed) == (0, 1, 1)


def test_kinds_that_say_nothing_about_the_upstream_do_not_count_and_are_told_of():
    way = passage()
    kinds = (Kind.RATE_LIMITED, Kind.INVALID_REQUEST, Kind.CANCELLED)
    for first, kind in enumerate(kinds):
        called(way, 1, kind, first=first + 1)
    assert found(way).known == 0
    assert dict(found(way).left_out) == dict.fromkeys(kinds, 1)
    assert way.unshared  # others count them when they ask whether refusals are isolated


def test_a_call_that_is_not_ours_changes_nothing():
    way = passage()
    assert way.end_call((1, 1), CallEnd(WELL, NOW)) is None
    assert way.ticket((1, 1)) is None


def test_a_probe_is_no_sample():
    way = passage()
    way.start((1, 1), NOW, tokens=None, probes="vendor")
    assert way.window() == Window()
    assert way.end_call((1, 1), CallEnd(said(Kind.TIMEOUT), later(1.0))).probes == "vendor"
    assert way.window() == Window()


def test_only_the_last_calls_are_kept():
    way = passage()
    called(way, 50, None)
    assert len(way.shared_window().samples) <= QUICK.window.calls + LEFT_OUT_MAX
    called(way, 500, None, first=51)
    assert len(way.shared_window().samples) <= QUICK.window.calls + LEFT_OUT_MAX
    assert found(way).known == QUICK.window.calls


def test_what_others_know_is_merged_with_what_we_know():
    way = passage()
    called(way, 2, Kind.TIMEOUT)
    others = tuple(Sample(0, later(0.5), f"8.{n}", Sign.BAD, 0.1) for n in range(3))
    way.heed((Window(others),))
    assert found(way).failed == 5


def test_a_gate_that_is_held_opens_when_its_hold_or_its_lease_ends():
    way = passage(credential="key-1")
    assert way.opens_in_s(NOW) == 0.0
    way.gate = Gate("vendor", GateState.HELD, 1, held_until=later(30))
    assert (way.room(NOW, 8), way.opens_in_s(NOW)) == (0, 30.0)
    way.credential = Gate("key-1", GateState.PROBING, 1, lease_until=later(10))
    assert way.opens_in_s(NOW) == 10.0
    way.gate = Gate("vendor", GateState.HELD, 1)
    way.credential = Gate("key-1")
    assert way.opens_in_s(NOW) == inf


def test_a_flow_after_a_rate_limit_goes_on_at_its_speed_and_one_after_an_outage_starts_slowly():
    slow = replace(QUICK, pace=replace(QUICK.pace, start_calls=1))
    way = passage(gate=slow)
    called(way, 20, None)
    fast = way.room(later(2.0), 100)
    assert fast == 21
    way.gate = Gate("vendor", generation=2, counts_from=0)  # held by a hint, and resumed
    way.see(later(2.0))
    assert way.room(later(2.0), 100) == fast
    way.gate = Gate("vendor", generation=4, counts_from=4)
    way.see(later(2.0))
    assert way.room(later(2.0), 100) == 1


def test_without_a_slice_nothing_starts_and_one_that_is_over_counts_for_nothing():
    way = passage(limits=UpstreamLimits(calls_per_s=10.0, concurrency=5))
    assert (way.room(later(5), 8), way.bound) == (0, True)
    way.slices = {ME: Slice(later(20), share=1.0, calls=3)}
    assert way.room(later(10), 8) == 3
    assert way.room(later(21), 8) == 0


def test_other_slices_are_not_ours():
    way = passage(limits=UpstreamLimits(concurrency=5))
    way.slices = {ME + 1: Slice(later(20), share=1.0, calls=5)}
    assert way.room(later(1), 8) == 0
