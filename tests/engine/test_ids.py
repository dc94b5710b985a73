"""Ids: UUIDs of version 7 that only go up, whatever the clock and the threads do."""

import itertools
import sys
import threading
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from hypothesis import given, strategies as st

from perdure.engine.ids import Ids
from perdure.testing import VirtualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


class WildClock:
    """A wall clock that jumps as it is told."""

    def __init__(self, offsets_ms):
        self._offsets_ms = iter(offsets_ms)

    def now(self):
        return START + timedelta(milliseconds=next(self._offsets_ms))

    def monotonic(self):
        raise AssertionError("ids are made from the wall clock")


def test_an_id_is_a_uuid_of_version_seven_with_the_time_in_front():
    made = Ids(VirtualClock(START), Random(1)).next()
    assert made == str(UUID(made))
    assert UUID(made).version == 7
    assert UUID(made).variant == "specified in RFC 4122"
    assert UUID(made).int >> 80 == int(START.timestamp() * 1000)


def test_ids_of_different_processes_differ():
    clock = VirtualClock(START)
    assert Ids(clock, Random(1)).next() != Ids(clock, Random(2)).next()


@given(st.lists(st.integers(-(10**9), 10**9), min_size=2, max_size=50), st.integers())
def test_ids_go_up_even_when_the_clock_goes_back(offsets_ms, seed):
    ids = Ids(WildClock(offsets_ms), Random(seed))
    made = [ids.next() for _ in offsets_ms]
    assert all(earlier < later for earlier, later in itertools.pairwise(made))
    assert {UUID(one).version for one in made} == {7}


def test_many_ids_of_one_millisecond_go_up():
    ids = Ids(VirtualClock(START), Random(3))
    made = [ids.next() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_threads_never_get_the_same_id():
    """The clock stands still, so that all of them count on from one number."""
    ids = Ids(VirtualClock(START), Random(4))
    made: list[list[str]] = [[] for _ in range(4)]
    start = threading.Barrier(len(made))

    def make(mine: list[str]) -> None:
        start.wait(20)
        mine.extend(ids.next() for _ in range(5_000))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    everyone = [one for mine in made for one in mine]
    assert len(everyone) == 20_000
    assert len(set(everyone)) == 20_000
    assert all(mine == sorted(mine) for mine in made)
