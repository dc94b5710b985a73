"""Schedules and duties: each moves on by one hand at a time."""

from datetime import datetime, timedelta
from typing import Any

from perdure.model.errors import StoreError
from perdure.model.jobs import Enqueued
from perdure.model.nouns import replace
from perdure.model.operations import NewSchedule, ScheduleView, Tick
from perdure.model.outcomes import Death
from perdure.testing.store_contract.fresh_store import OnAFreshStore, raises


class SchedulesContract(OnAFreshStore):
    """What is done once, whoever does it."""

    def _at(self, seconds: float) -> datetime:
        return self.clock.now() + timedelta(seconds=seconds)

    def _schedule(self, name: str = "nightly", spec: str = "every 60 s", in_s: float = 60) -> None:
        new = NewSchedule(name, "p", spec, '{"n":1}', self._at(in_s))
        self.place.control.put_schedule(new)

    def _tick(self, due_at: datetime, **changes: Any) -> Tick:
        return Tick("nightly", due_at, due_at + timedelta(seconds=60), self.place.new(**changes))

    # -- schedules ---------------------------------------------------------------------------

    def test_a_schedule_is_kept_as_it_was_told(self) -> None:
        next_at = self._at(60.000001)
        self.place.control.put_schedule(
            NewSchedule("nightly", "p", "every 60 s", '{"n":1}', next_at)
        )
        assert self.place.reader.schedules() == [
            ScheduleView("nightly", "p", "every 60 s", '{"n":1}', next_at, None, 0)
        ]

    def test_a_schedule_that_is_put_again_keeps_its_next_moment(self) -> None:
        self._schedule()
        next_at = self._at(60)
        self.clock.push(30)
        new = NewSchedule("nightly", "p2", "every 60 s", "[2]", self._at(60))
        self.place.control.put_schedule(new)
        (seen,) = self.place.reader.schedules()
        assert (seen.next_at, seen.pipeline, seen.payload_json) == (next_at, "p2", "[2]")

    def test_a_schedule_of_another_rule_takes_the_new_moment(self) -> None:
        self._schedule()
        self.place.control.tick(self._tick(self._at(60)))
        self._schedule(spec="every 5 s", in_s=5)
        (seen,) = self.place.reader.schedules()
        assert (seen.spec, seen.next_at, seen.ticks) == ("every 5 s", self._at(5), 1)

    def test_a_tick_enqueues_one_job_and_moves_the_schedule_on(self) -> None:
        self._schedule()
        due_at = self._at(60)
        self.clock.push(61)
        tick = self._tick(due_at)
        made = self.place.control.tick(tick)
        assert made is not None
        assert made == Enqueued(tick.job.id, made.no, created=True)
        assert self.place.see(made.id).payload_json == tick.job.payload_json
        (seen,) = self.place.reader.schedules()
        assert seen.next_at == due_at + timedelta(seconds=60)
        assert (seen.ticked_at, seen.ticks) == (self.clock.now(), 1)
        assert self.place.reader.books().accepted == 1

    def test_of_two_who_tick_the_same_moment_one_enqueues(self) -> None:
        self._schedule()
        due_at = self._at(60)
        assert self.place.control.tick(self._tick(due_at)) is not None
        before = self.place.everything()
        assert self.place.control.tick(self._tick(due_at)) is None
        assert self.place.everything() == before
        assert self.place.reader.books().accepted == 1

    def test_a_tick_whose_job_is_there_already_moves_the_schedule_on(self) -> None:
        self._schedule()
        known = self.place.put(key="k")
        again = self.place.control.tick(self._tick(self._at(60), key="k"))
        assert again == Enqueued(known.id, known.no, created=False)
        assert self.place.reader.schedules()[0].ticks == 1

    def test_a_tick_for_a_lane_that_does_not_exist_leaves_the_schedule_where_it_is(self) -> None:
        self._schedule()
        before = self.place.reader.schedules()
        tick = self._tick(self._at(60))
        with raises(StoreError):
            self.place.control.tick(replace(tick, job=replace(tick.job, lane=999)))
        assert self.place.reader.schedules() == before
        assert self.place.reader.books().accepted == 0

    def test_a_tick_whose_job_cannot_be_written_leaves_the_schedule_where_it_is(self) -> None:
        self._schedule()
        before = self.place.everything()
        with raises(StoreError):
            self.place.control.tick(self._tick(self._at(60), payload_json=None))
        assert self.place.everything() == before

    def test_nobody_ticks_a_schedule_that_is_not_there(self) -> None:
        assert self.place.control.tick(self._tick(self._at(60))) is None
        self._schedule()
        assert self.place.control.drop_schedule("nightly")
        assert not self.place.control.drop_schedule("nightly")
        assert self.place.control.tick(self._tick(self._at(60))) is None
        assert self.place.reader.schedules() == []
        assert self.place.reader.books().accepted == 0

    def test_the_store_tells_its_time(self) -> None:
        assert self.place.reader.now() == self.clock.now()
        self.clock.push(0.000001)
        assert self.place.reader.now() == self.clock.now()

    def test_schedules_come_by_their_next_moment_and_due_ones_alone(self) -> None:
        for name, in_s in (("b", 5), ("c", 1), ("a", 5), ("d", 9)):
            self._schedule(name, in_s=in_s)
        reader = self.place.reader
        assert [one.name for one in reader.schedules()] == ["c", "a", "b", "d"]
        assert reader.schedules(due=True) == []
        self.clock.push(4.999999)
        assert [one.name for one in reader.schedules(due=True)] == ["c"]
        self.clock.push(0.000001)
        assert [one.name for one in reader.schedules(due=True)] == ["c", "a", "b"]

    # -- duties ------------------------------------------------------------------------------

    def _take(self, worker: int, ttl_s: float = 10.0) -> bool:
        return self.place.control.take_duty("upkeep", worker=worker, ttl_s=ttl_s)

    def test_one_worker_at_a_time_has_a_duty(self) -> None:
        other = self.place.hire()
        assert self._take(self.worker)
        assert not self._take(other)
        assert self.place.control.take_duty("another", worker=other, ttl_s=10.0)

    def test_a_duty_is_free_when_its_time_is_over_and_not_before(self) -> None:
        other = self.place.hire()
        assert self._take(self.worker)
        self.clock.push(9.999999)
        assert not self._take(other)
        self.clock.push(0.000001)
        assert self._take(other)
        assert not self._take(self.worker)

    def test_who_has_a_duty_keeps_it_by_taking_it_again(self) -> None:
        other = self.place.hire()
        for _ in range(5):
            assert self._take(self.worker)
            self.clock.push(9)
            assert not self._take(other)

    def test_a_duty_is_renewed_when_less_than_half_of_its_time_is_left_and_not_before(self) -> None:
        other = self.place.hire()
        assert self._take(self.worker)
        self.clock.push(5)
        assert self._take(self.worker)
        self.clock.push(5)
        assert self._take(other)
        self.clock.push(5.000001)
        assert self._take(other)
        self.clock.push(5)
        assert not self._take(self.worker)
        self.clock.push(5)
        assert self._take(self.worker)

    def test_who_has_a_duty_and_dies_has_it_no_longer(self) -> None:
        assert self._take(self.worker)
        self.place.store.end_worker(self.worker, Death("exited", exit_status=1))
        assert not self._take(self.worker)

    def test_the_duty_of_a_dead_worker_is_free_at_once(self) -> None:
        other = self.place.hire()
        assert self._take(self.worker)
        self.place.store.end_worker(self.worker, Death("exited", exit_status=1))
        assert self._take(other)

    def test_a_dead_or_unknown_worker_takes_no_duty(self) -> None:
        self.place.store.end_worker(self.worker, Death("exited", exit_status=1))
        assert not self._take(self.worker)
        assert not self._take(999_999)
        assert self._take(self.place.hire())
