"""Workers: who is alive, who may say that another is not, and what the dead leave behind."""

import msgspec
import pytest

from perdure.model.errors import WorkerDead
from perdure.model.outcomes import Death
from perdure.model.workers import Role
from tests.stores.kit import TTL_S, crash, release, success

EXITED = Death("exited", exit_status=1)


def row(place, worker):
    (found,) = [one for one in place.reader.workers() if one.no == worker]
    return found


def live(place, workers, seconds, *, every=TTL_S / 3):
    """Let time pass while these workers are beaten for, as a supervisor would."""
    passed = 0.0
    while passed < seconds - 1e-9:
        step = min(every, seconds - passed)
        place.clock.push(step)
        passed += step
        assert place.store.beat(workers) == frozenset(workers)


def test_a_new_worker_is_alive_and_steady_from_now(place):
    place.clock.push(7)
    worker = place.hire(role=Role.SUSPECTS, ttl_s=4.5)
    seen = row(place, worker)
    now = place.clock.now()
    assert (seen.role, seen.ttl_s, seen.name) == (Role.SUSPECTS, 4.5, "host:1")
    assert (seen.started_at, seen.beat_at, seen.steady_at) == (now, now, now)
    assert seen.dead_at is None


def test_workers_have_numbers_that_are_never_given_again(place):
    first = place.hire()
    place.store.end_worker(first, EXITED)
    assert place.hire() > first


# -- beats -------------------------------------------------------------------------------


def test_a_beat_renews_the_lease(place, worker):
    place.clock.push(5)
    assert place.store.beat([worker]) == {worker}
    assert row(place, worker).beat_at == place.clock.now()


def test_a_late_beat_is_accepted_as_long_as_nobody_has_declared_death(place, worker):
    place.clock.push(100 * TTL_S)
    assert place.store.beat([worker]) == {worker}


def test_a_beat_of_a_dead_worker_is_refused_and_changes_nothing(place, worker):
    other = place.hire()
    place.store.end_worker(worker, EXITED)
    before = row(place, worker)
    place.clock.push(1)
    assert place.store.beat([worker, other]) == {other}
    assert row(place, worker) == before


def test_a_beat_for_nobody_is_nothing(place, worker):
    assert place.store.beat([]) == frozenset()
    assert place.store.beat([999]) == frozenset()


def test_a_gap_of_half_a_lease_is_none_and_a_longer_one_is(place, worker):
    place.clock.push(TTL_S / 2)
    place.store.beat([worker])
    steady_at = row(place, worker).steady_at
    assert steady_at == row(place, worker).started_at
    place.clock.push(TTL_S / 2 + 0.000001)
    place.store.beat([worker])
    assert row(place, worker).steady_at == place.clock.now()


# -- deaths ------------------------------------------------------------------------------


def test_a_silent_worker_is_declared_dead_after_its_lease_and_not_before(place):
    judge, silent = place.hire(), place.hire()
    live(place, [judge], TTL_S)
    assert place.store.mark_dead(by=judge) == ()
    live(place, [judge], 0.001)
    assert place.store.mark_dead(by=judge) == (silent,)
    assert row(place, silent).dead_at == place.clock.now()
    assert msgspec.json.decode(row(place, silent).death_json)["why"] == "silent"


def test_a_death_is_declared_once(place):
    judge, silent = place.hire(), place.hire()
    live(place, [judge], TTL_S + 1)
    assert place.store.mark_dead(by=judge) == (silent,)
    dead_at = row(place, silent).dead_at
    live(place, [judge], 5)
    assert place.store.mark_dead(by=judge) == ()
    assert row(place, silent).dead_at == dead_at


def test_nobody_declares_himself_dead(place):
    judge = place.hire()
    place.clock.push(10 * TTL_S)
    assert place.store.mark_dead(by=judge) == ()


def test_a_judge_that_has_just_started_waits_a_whole_lease(place):
    silent = place.hire()
    place.clock.push(TTL_S + 1)
    judge = place.hire()
    assert place.store.mark_dead(by=judge) == ()
    live(place, [judge], TTL_S - 0.001)
    assert place.store.mark_dead(by=judge) == ()
    live(place, [judge], 0.001)
    assert place.store.mark_dead(by=judge) == (silent,)


def test_after_the_store_was_away_nobody_is_declared_dead_at_once(place):
    """Every beat failed for a minute; the first two to come back must not bury the rest."""
    workers = [place.hire() for _ in range(4)]
    live(place, workers, TTL_S * 2)
    place.clock.push(60)
    for judge in workers[:2]:
        place.store.beat([judge])
        assert place.store.mark_dead(by=judge) == ()
    live(place, workers[:3], TTL_S - 0.001)
    assert place.store.mark_dead(by=workers[0]) == ()
    live(place, workers[:3], 0.002)
    assert place.store.mark_dead(by=workers[0]) == (workers[3],)


def test_a_judge_that_has_itself_gone_quiet_may_not_judge(place):
    judge, silent = place.hire(), place.hire()
    live(place, [judge], TTL_S + 1)
    place.clock.push(TTL_S / 2 + 0.001)
    assert place.store.mark_dead(by=judge) == ()
    place.store.beat([judge])
    assert place.store.mark_dead(by=judge) == ()
    live(place, [judge], TTL_S)
    assert place.store.mark_dead(by=judge) == (silent,)


def test_the_dead_may_not_judge(place):
    judge, _ = place.hire(), place.hire()
    live(place, [judge], TTL_S + 1)
    place.store.end_worker(judge, EXITED)
    assert place.store.mark_dead(by=judge) == ()


def test_a_worker_is_judged_by_the_longer_lease_of_the_two(place):
    judge = place.hire(ttl_s=10)
    short, long = place.hire(ttl_s=1), place.hire(ttl_s=100)
    live(place, [judge], 9.5, every=0.5)
    assert place.store.mark_dead(by=judge) == ()
    live(place, [judge], 1, every=0.5)
    assert place.store.mark_dead(by=judge) == (short,)
    live(place, [judge], 90, every=3)
    assert place.store.mark_dead(by=judge) == (long,)


def test_the_end_of_a_worker_is_told_once(place, worker):
    assert place.store.end_worker(worker, Death("exited", signal="SIGKILL"))
    dead_at = row(place, worker).dead_at
    place.clock.push(5)
    assert not place.store.end_worker(worker, EXITED)
    assert not place.store.end_worker(999, EXITED)
    assert row(place, worker).dead_at == dead_at
    assert msgspec.json.decode(row(place, worker).death_json)["signal"] == "SIGKILL"


def test_a_worker_that_was_declared_dead_stays_dead(place):
    judge, silent = place.hire(), place.hire()
    live(place, [judge], TTL_S + 1)
    place.store.mark_dead(by=judge)
    assert place.store.beat([silent]) == frozenset()
    assert not place.store.end_worker(silent, EXITED)
    with pytest.raises(WorkerDead):
        place.take(silent)


# -- what they leave ---------------------------------------------------------------------


def test_only_claims_of_dead_workers_are_lost(place):
    dead, alive = place.hire(), place.hire()
    place.put_many(4)
    theirs = place.take(dead, 2)
    place.take(alive, 1)
    assert place.store.lost(limit=10) == []
    place.store.end_worker(dead, Death("exited", signal="SIGSEGV"))
    place.clock.push(3)
    lost = place.store.lost(limit=10)
    assert [one.claim for one in lost] == theirs
    assert {(one.worker, one.death, one.seen_at) for one in lost} == {
        (dead, Death("exited", signal="SIGSEGV"), place.clock.now())
    }


def test_lost_claims_come_in_bounded_batches(place, worker):
    place.put_many(5)
    place.take(worker, 5)
    place.store.end_worker(worker, EXITED)
    seen = set()
    while lost := place.store.lost(limit=2):
        assert len(lost) <= 2
        seen |= {one.claim.no for one in lost}
        place.settle(*(crash(one.claim, worker) for one in lost), by=None)
    assert len(seen) == 5
    place.clean()


def test_what_was_settled_is_no_longer_lost(place, worker):
    place.put()
    (claim,) = place.take(worker)
    place.store.end_worker(worker, EXITED)
    place.settle(crash(claim, worker), by=None)
    assert place.store.lost(limit=10) == []


def test_a_dead_worker_is_done_with_when_all_it_held_is_settled(place):
    judge, dead = place.hire(), place.hire()
    place.put_many(2)
    first, second = place.take(dead, 2)
    place.store.end_worker(dead, EXITED)
    settled_at = "SELECT settled_at IS NOT NULL FROM perdure_workers WHERE no = ?"
    for claim in (first, second):
        place.store.mark_dead(by=judge)
        assert place.rows(settled_at, dead) == [(0,)]
        place.settle(crash(claim, dead), by=judge)
    place.store.mark_dead(by=judge)
    assert place.rows(settled_at, dead) == [(1,)]
    assert place.store.lost(limit=9) == []
    place.clean()


def test_a_worker_that_held_nothing_is_done_with_at_once(place):
    judge, dead = place.hire(), place.hire()
    place.store.end_worker(dead, Death("exited", exit_status=0))
    place.store.mark_dead(by=judge)
    assert place.rows("SELECT no FROM perdure_workers WHERE settled_at IS NOT NULL") == [(dead,)]


def test_a_sweep_with_nothing_to_do_writes_nothing(file_place):
    from perdure.stores.sqlite.connection import Connection

    judge = file_place.hire()
    watching = Connection(file_place.path, file_place.clock)
    before = watching.write_mark()
    file_place.store.mark_dead(by=judge)
    assert file_place.store.lost(limit=10) == []
    assert watching.write_mark() == before
    watching.close()


def test_what_a_worker_holds_is_told_by_number_and_token(place):
    mine, other = place.hire(), place.hire()
    place.put_many(3)
    claims = place.take(mine, 2)
    place.take(other, 1)
    assert place.store.held(mine) == {claim.no: claim.token for claim in claims}
    assert place.store.claims_held(mine) == claims
    place.settle(success(claims[0], mine), release(claims[1], mine), by=mine)
    assert place.store.held(mine) == {}
    assert place.store.claims_held(mine) == []


def test_the_living_are_listed_first(place):
    first, second, third = (place.hire() for _ in range(3))
    place.store.end_worker(second, EXITED)
    assert [one.no for one in place.reader.workers()] == [third, first, second]
