"""Pruning: what ended long ago is let go a little at a time, and the books keep count."""

import threading

import pytest

from perdure.engine.upkeep import prune
from perdure.engine.upkeep.prune import Prune
from perdure.model.errors import CursorTooOld
from perdure.model.operations import Retention
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.testing.store_contract.attempt_ends import cancellation, failure, success
from tests.engine.upkeep.upkeeping import upkeep

DAY_S = 86_400.0
MONTH = Retention(succeeded_s=30 * DAY_S, cancelled_s=20 * DAY_S, discarded_s=10 * DAY_S)


def finish(place, count=1, end=success):
    """Jobs that have just ended."""
    worker = place.hire()
    made = place.put_many(count)
    place.settle(*(end(claim, worker) for claim in place.take(worker, count)), by=worker)
    return [one.id for one in made]


def kept(place, ids):
    return [id for id in ids if place.reader.job(id) is not None]


def test_each_kind_is_kept_for_its_own_time_and_dead_letters_for_ever(either):
    (done,), (dropped,) = finish(either), finish(either, end=cancellation)
    dead, discarded = finish(either, end=failure), finish(either, end=failure)
    either.discard(either.see(discarded[0]))
    waiting = either.put(run_at=either.clock.now().replace(year=2040)).id
    everybody = [done, dropped, *dead, *discarded, waiting]
    left = {
        5: everybody,
        10: [done, dropped, *dead, waiting],
        20: [done, *dead, waiting],
        30: [*dead, waiting],
        400: [*dead, waiting],
    }
    day = 0
    for until, expected in left.items():
        either.clock.push((until - day) * DAY_S + 1)
        day = until
        upkeep(either, either.hire(), retention=MONTH).once()
        assert kept(either, everybody) == [id for id in everybody if id in expected], until
        either.clean()
    books = either.reader.books()
    assert (books.accepted, books.pruned) == (5, 3)


def test_nothing_is_let_go_where_everything_is_kept(place):
    ids = finish(place, 3)
    place.clock.push(9999 * DAY_S)
    upkeep(place, place.hire(), retention=Retention()).once()
    assert kept(place, ids) == ids


def test_a_round_takes_bounded_steps_and_the_next_one_goes_on_where_it_stopped(place, monkeypatch):
    monkeypatch.setattr(prune, "STEP_ROWS", 3)
    monkeypatch.setattr(prune, "STEPS_MAX", 2)
    ids = finish(place, 20)
    place.clock.push(31 * DAY_S)
    chore = Prune(place.control, MONTH, clock=place.clock)
    left = []
    for _ in range(5):
        chore.once()
        left.append(len(kept(place, ids)))
    assert left == [14, 8, 2, 0, 0]
    place.clean()
    assert place.reader.books().pruned == 20


def test_a_pass_steps_over_what_is_kept(place, monkeypatch):
    """Dead letters at the head of the table are looked at, not stumbled over."""
    monkeypatch.setattr(prune, "STEP_ROWS", 2)
    dead, done = finish(place, 7, end=failure), finish(place, 3)
    place.clock.push(31 * DAY_S)
    Prune(place.control, MONTH, clock=place.clock).once()
    assert kept(place, dead + done) == dead


def test_after_a_pass_it_rests_and_then_begins_again(place):
    chore = Prune(place.control, MONTH, clock=place.clock)
    chore.once()
    ids = finish(place, 3)
    place.clock.push(prune.REST_S - 1)
    chore.once()
    assert kept(place, ids) == ids
    place.clock.push(31 * DAY_S)
    chore.once()
    assert kept(place, ids) == []


def test_a_round_ends_when_it_has_taken_its_time(place, monkeypatch):
    """A slow store: each step takes more than half of what a round may take."""
    monkeypatch.setattr(prune, "STEP_ROWS", 1)
    finish(place, 9)
    place.clock.push(31 * DAY_S)

    class Slow:
        steps = 0

        def prune_captures(self, **where):
            return place.control.prune_captures(**where)

        def prune_changes(self, kept_s, **where):
            return place.control.prune_changes(kept_s, **where)

        def prune_workers(self, kept_s, **where):
            return place.control.prune_workers(kept_s, **where)

        def prune(self, retention, **where):
            place.clock.push(prune.SPEND_S * 0.6)
            self.steps += 1
            return place.control.prune(retention, **where)

    slow = Slow()
    Prune(slow, MONTH, clock=place.clock).once()
    assert slow.steps == 2


def test_workers_that_ended_before_the_oldest_of_what_is_kept_go(either):
    old, young = either.hire(), either.hire()
    for worker in (old, young):
        either.store.end_worker(worker, Death("exited", exit_status=0))
        upkeep(either, either.hire(), retention=MONTH).once()
        either.clock.push(29 * DAY_S)
    upkeep(either, either.hire(), retention=MONTH).once()
    left = {one.no for one in either.reader.workers()}
    assert old not in left
    assert young in left
    either.clean()


def test_what_is_given_a_new_life_meanwhile_stays(either):
    (id,) = finish(either, end=failure)
    either.discard(either.see(id))
    either.revive(either.see(id))
    either.clock.push(31 * DAY_S)
    upkeep(either, either.hire(), retention=MONTH).once()
    assert either.see(id).state is State.QUEUED


@pytest.mark.parametrize("count", [1, 450])
def test_two_who_prune_at_once_keep_the_books(anywhere, count):
    places = [anywhere() for _ in range(2)]
    finish(places[0], count)
    places[0].clock.push(31 * DAY_S)
    start = threading.Barrier(2)

    def work(place):
        start.wait(20)
        Prune(place.control, MONTH, clock=place.clock).once()

    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    books = places[0].reader.books()
    assert (books.accepted, books.pruned, books.balanced) == (count, count, True)
    places[0].clean()


def test_workers_go_even_where_every_job_is_kept(either):
    ids = finish(either)
    old, young = either.hire(), either.hire()
    either.store.end_worker(old, Death("exited", exit_status=0))
    either.clock.push(prune.WORKER_S_MIN + 1)
    either.store.end_worker(young, Death("exited", exit_status=0))
    upkeep(either, either.hire(), retention=Retention()).once()
    left = {one.no for one in either.reader.workers()}
    assert old not in left
    assert young in left
    assert kept(either, ids) == ids
    either.clean()


def test_where_every_job_is_kept_no_job_is_looked_at_and_workers_seldom(place):
    calls = []

    class Noted:
        def prune(self, *how, **where):
            raise AssertionError("nothing is to be let go")

        def prune_captures(self, **where):
            calls.append("captures")
            return 0

        def prune_changes(self, kept_s, **where):
            calls.append("changes")
            return 0

        def prune_workers(self, *how, **where):
            calls.append("workers")

    chore = Prune(Noted(), Retention(), clock=place.clock)
    for _ in range(3):
        chore.once()
    assert calls == ["captures", "changes", "workers"]
    place.clock.push(prune.REST_S)
    chore.once()
    assert calls == ["captures", "changes", "workers"] * 2


def test_the_change_feed_is_kept_for_its_time_and_a_little_longer(place):
    # On a server that others use, their transactions may hold a mark up: the contract has a server of its own for that.
    chore = Prune(place.control, Retention(), changes_s=600.0, clock=place.clock)
    chore.once()
    old = place.reader.changes().cursor
    place.put()
    for _ in range(10):
        place.clock.push(prune.REST_S)
        chore.once()
    assert len(place.reader.changes(old).entries) == 1
    young = place.reader.changes().cursor
    id = place.put().id
    for _ in range(3):
        place.clock.push(prune.REST_S)
        chore.once()
    with pytest.raises(CursorTooOld):
        place.reader.changes(old)
    assert [one.id for one in place.reader.changes(young).entries] == [id]


def test_a_long_feed_goes_in_rounds_without_a_rest_between_them(place, monkeypatch):
    monkeypatch.setattr(prune, "CHANGE_ROWS", 2)
    monkeypatch.setattr(prune, "STEPS_MAX", 2)
    chore = Prune(place.control, Retention(), changes_s=600.0, clock=place.clock)
    chore.once()
    for _ in range(9):
        place.put()
    place.clock.push(prune.REST_S)
    chore.once()
    place.clock.push(600.0)
    left = []
    for _ in range(4):
        chore.once()
        left.append(place.rows("SELECT count(*) FROM perdure_changes")[0][0])
    assert left == [5, 1, 0, 0]
