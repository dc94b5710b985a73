"""Upkeep: one worker at a time has a duty, it passes on, and one chore's trouble is not the others'."""

from collections import Counter

import pytest

from perdure.engine.clock import SystemClock
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.overrun_attempts import LOOK_S
from perdure.engine.upkeep.rounds import DUTY_TTL_S
from perdure.engine.upkeep.schedules import declare
from perdure.model.errors import StoreBusy, StoreDamaged, StoreError, StoreUnavailable
from perdure.model.events import EventName
from perdure.model.states import State
from perdure.stores.opening import open_store
from perdure.testing.store_contract.fresh_store import TTL_S, Place
from tests.engine.kit import Notes, line_on, until
from tests.engine.upkeep.upkeeping import KILLED, live, upkeep


class Asked:
    """A side of a store that counts what is asked of it, and fails where a test says so."""

    def __init__(self, side: object) -> None:
        self._side = side
        self.calls: Counter[str] = Counter()
        self.errors: dict[str, StoreError] = {}

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls[name] += 1
            if name in self.errors:
                raise self.errors[name]
            return getattr(self._side, name)(*arguments, **options)

        return call


class Watched:
    """A place seen through such sides."""

    def __init__(self, place) -> None:
        self.store, self.control, self.reader = map(
            Asked, (place.store, place.control, place.reader)
        )
        self.clock, self.lanes = place.clock, place.lanes
        self.pipeline, self.stages = place.pipeline, place.stages


def lose_one(place):
    """A job whose worker has died with it."""
    dead = place.hire()
    id = place.put().id
    assert place.take(dead)[0].id == id
    place.store.end_worker(dead, KILLED)
    return id


def test_of_two_workers_one_has_the_duty(either):
    first, second = upkeep(either, either.hire()), upkeep(either, either.hire())
    assert first.once() == 0
    lose_one(either)
    assert second.once() == 0
    assert first.once() == 1


def test_the_duty_passes_on_within_its_time_when_its_holder_is_heard_of_no_more(either):
    holder, other = either.hire(), either.hire()
    upkeep(either, holder).once()
    heir = upkeep(either, other)
    id = lose_one(either)
    either.clock.push(DUTY_TTL_S - 0.001)
    assert heir.once() == 0
    assert either.see(id).state is State.PROCESSING
    either.clock.push(0.001)
    assert heir.once() == 1
    assert either.see(id).state is State.QUEUED


def test_the_duty_passes_on_at_once_when_its_holder_is_known_to_be_dead(either):
    holder, other = either.hire(), either.hire()
    upkeep(either, holder).once()
    lose_one(either)
    either.store.end_worker(holder, KILLED)
    assert upkeep(either, other).once() == 1


def test_who_has_the_duty_keeps_it_by_coming_back_every_second(either):
    first, second = upkeep(either, either.hire()), upkeep(either, either.hire())
    for _ in range(12):
        first.once()
        either.clock.push(1.0)
        lose_one(either)
        assert second.once() == 0
        assert first.once() == 1


def test_a_server_whose_clock_is_its_own_is_kept_up_like_any_other(database):
    """The other tests bring the time; here the server's decides who has the duty and what is due."""
    opened = open_store(database, SystemClock(), create=True, wait_s_max=10.0)
    place = Place(opened, SystemClock())
    schedule = declare("1s", line_on(place), None)
    first, second = (upkeep(place, place.hire(), schedules=[schedule]) for _ in range(2))
    moved = [first.once()]  # a second of the server's may just have begun
    assert second.once() == 0
    until(lambda: moved.append(first.once()) or sum(moved) >= 2, "two ticks by who has the duty")
    assert second.once() == 0
    place.clean()
    place.close()


def test_a_round_with_nothing_to_do_writes_the_duties_every_other_second_at_most(place):
    """On SQLite every write waits for the disk, and stands in line."""
    sweeper = upkeep(place, place.hire())
    sweeper.once()
    before = place.connection.raw.total_changes
    for _ in range(20):
        place.clock.push(1.0)
        sweeper.once()
    assert place.connection.raw.total_changes - before <= 2 * 10


def test_whoever_may_say_so_declares_the_silent_dead_duty_or_not(either):
    """A worker that has just started has the duty, and may not say yet who is dead."""
    old, silent = either.hire(), either.hire()
    live(either, [old], TTL_S - TTL_S / 3)
    fresh = either.hire()
    assert upkeep(either, fresh).once() == 0
    either.clock.push(TTL_S / 3)
    either.store.beat([old, fresh])
    notes = Notes()
    upkeep(either, old, notes=notes).once()
    assert [fields["worker"] for fields in notes.of(EventName.WORKER_LOST)] == [silent]


def test_workers_that_know_different_stages_have_different_duties(either):
    """Else a worker of another app on the same store would keep ours from being swept."""
    stranger = upkeep(either, either.hire(), catalogue=Catalogue([]))
    stranger.once()
    lose_one(either)
    assert upkeep(either, either.hire()).once() == 1


def test_a_worker_of_another_queue_does_not_sweep_ours(either):
    known = Catalogue([line_on(either)])
    lose_one(either)
    assert upkeep(either, either.hire(), catalogue=known.only(queues=["other"])).once() == 0
    assert upkeep(either, either.hire(), catalogue=known.only(queues=["q"])).once() == 1


@pytest.mark.parametrize("error", [StoreDamaged("torn page"), StoreBusy("a lock is held")])
def test_a_chore_that_fails_does_not_keep_the_others_from_their_turn(place, error):
    watched, notes = Watched(place), Notes()
    sweeper = upkeep(watched, place.hire(), notes=notes)
    watched.store.errors["lost_claims"] = error
    id = place.put(deadline_s=5).id
    place.clock.push(6)
    assert sweeper.once() == 1
    assert place.see(id).state is State.FAILED
    assert notes.of(EventName.CHORE_FAILED) == [{"chore": "lost jobs", "reason": str(error)}]


def test_a_chore_that_fails_is_told_once_and_again_after_it_was_well(place):
    watched, notes = Watched(place), Notes()
    sweeper = upkeep(watched, place.hire(), notes=notes)
    for _ in range(3):
        watched.store.errors["expired_jobs"] = StoreDamaged("torn page")
        for _ in range(5):
            sweeper.once()
        watched.store.errors.clear()
        sweeper.once()
    assert notes.names() == [EventName.CHORE_FAILED] * 3


def test_a_store_that_is_away_ends_the_round_and_the_next_one_begins_behind(place):
    watched = Watched(place)
    sweeper = upkeep(watched, place.hire())
    watched.store.errors["lost_claims"] = StoreUnavailable("the line broke")
    id = place.put(deadline_s=5).id
    place.clock.push(6)
    with pytest.raises(StoreUnavailable):
        sweeper.once()
    assert watched.store.calls["expired_jobs"] == 0
    with pytest.raises(StoreUnavailable):
        sweeper.once()
    assert place.see(id).state is State.FAILED
    watched.store.errors.clear()
    sweeper.once()
    watched.store.calls.clear()
    place.clock.push(LOOK_S)
    sweeper.once()
    assert list(watched.store.calls) == ["mark_dead", "lost_claims", "expired_jobs", "overrun"]
