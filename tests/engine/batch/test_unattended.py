"""A run on which nobody works is told of, and one that is worked on or held is not."""

import pytest

from perdure.engine.batch.unattended import Attendance
from perdure.engine.observe import Observers
from perdure.model.events import EventName
from perdure.model.jobs import ClaimOrder
from perdure.model.operations import LaneScope
from perdure.model.workers import Role
from tests.engine.batch.test_feeding import counts, feeder, opened, worked_off
from tests.engine.kit import Notes, line_on
from tests.stores.kit import DEED


@pytest.fixture
def line(place):
    return line_on(place)


class Watched:
    """A run of five items, and who looks at it."""

    def __init__(self, place, line) -> None:
        self.place, self.notes = place, Notes()
        self.run = opened(place, line).run
        one = feeder(place, line, self.run, range(5))
        while one.once() and not one.over:
            pass
        self._attendance = Attendance(
            place.reader, Observers([self.notes]), monotonic=place.clock.monotonic
        )

    def look(self, *, after_s: float = 0.0):
        """What is told, after so long."""
        self.place.clock.push(after_s)
        self._attendance.look(self.place.reader.run(self.run.id))
        return [told["reason"] for told in self.notes.of(EventName.RUN_UNATTENDED)]


@pytest.fixture
def watched(place, line):
    return Watched(place, line)


def test_without_a_worker_it_is_told_after_ten_seconds_and_again_after_a_minute(watched):
    assert watched.look() == []
    assert watched.look(after_s=9) == []
    (reason,) = watched.look(after_s=1)
    assert reason.startswith("no worker is at work on this store; start one with `perdure worker ")
    assert len(watched.look(after_s=59)) == 1
    assert len(watched.look(after_s=1)) == 2


def test_a_caller_is_no_worker(watched):
    watched.place.hire(role=Role.CALLER, ttl_s=3_600.0)
    watched.look()
    assert len(watched.look(after_s=10)) == 1


def test_a_worker_that_takes_other_items_only_is_told_of(watched):
    watched.place.hire(ttl_s=3_600.0)
    watched.look()
    (reason,) = watched.look(after_s=10)
    assert reason.startswith(
        "workers are alive (1), and none takes its items; start one that has pipeline 'p'"
    )


def test_a_run_that_is_worked_on_is_not_told_of(watched):
    place = watched.place
    worker = place.hire(ttl_s=3_600.0)
    watched.look()
    place.store.turn([], ClaimOrder(worker, 1, tuple(place.store.run_lanes())), by=worker)
    assert watched.look(after_s=10) == []


def test_a_run_that_is_held_is_not_told_of(watched):
    watched.place.hire(ttl_s=3_600.0)
    watched.place.control.pause(LaneScope.RUN, str(watched.run.no), DEED)
    watched.look()
    assert watched.look(after_s=10) == []


def test_each_move_begins_the_wait_anew(watched):
    worker = watched.place.hire(ttl_s=5.0)
    watched.look()
    watched.place.clock.push(4)
    worked_off(watched.place, worker, 1)
    assert counts(watched.place, watched.run).open == 4
    assert watched.look(after_s=7) == []
    assert watched.look(after_s=9) == []
    assert len(watched.look(after_s=1)) == 1
