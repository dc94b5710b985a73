"""New lives, steps of bulk operations and the end of runs, with several hands at once on real connections."""

from collections import Counter
from contextlib import contextmanager
from functools import partial

import pytest

from perdure.model.errors import StoreUnavailable
from perdure.model.jobs import Conflict, IfFailed, Receipt, Stale
from perdure.model.operations import (
    BulkChange,
    BulkStatus,
    BulkStep,
    BulkVerb,
    NewBulk,
    Revival,
)
from perdure.model.runs import RunChange, RunStatus, RunView
from perdure.model.states import State
from perdure.model.views import JobView
from perdure.stores.postgres.statements import SQL
from perdure.testing.store_contract.fresh_store import uuid_of
from tests.stores.kit import DEED, failure, success
from tests.stores.postgres.kit import SIGNAL_S_MAX, Place, at_once, blocked, meanwhile, until

REVIVING = b"'job_revived'"  # words that no other statement has
THREADS = 8


@pytest.fixture
def crowd(furnished, open_place):
    """So many connections to one store, each with ids of its own."""
    return [open_place(furnished, series=n + 1, size_max=2) for n in range(THREADS)]


def revival(job: JobView, **changes: object) -> Revival:
    parts = {"stage": job.stage, "lane": job.lane, "input_from": job.input_from, **changes}
    return Revival(job.no, job.id, job.token, **parts)


def dead_in_runs(place: Place, worker: int, count: int, key: str = "k") -> list[JobView]:
    """Dead letters of one key, each in a run of its own that has all of its items."""
    runs = [place.begin_run(f"{key}-{n}") for n in range(count)]
    return [place.dead_letter(worker, key=key, run=run.no) for run in runs]


def ended(place: Place, run: RunView, status: RunStatus = RunStatus.FAILED) -> RunView:
    """A run that is over."""
    place.control.seal_run(run.no)
    done = place.change_run(run, status)
    assert done is not None
    return done


# -- one key, one life -----------------------------------------------------------------------------


def test_of_dead_letters_with_one_key_that_many_revive_at_once_one_lives(crowd):
    worker = crowd[0].hire()
    for number in range(5):
        letters = dead_in_runs(crowd[0], worker, THREADS, key=f"k{number}")
        pairs = zip(crowd, letters, strict=True)
        answers = at_once([partial(place.revive, job) for place, job in pairs])
        kinds = Counter(type(one) for one in answers)
        assert kinds == {Receipt: 1, Conflict: THREADS - 1}
        (alive,) = [one.id for one in answers if isinstance(one, Receipt)]
        assert {one.with_id for one in answers if isinstance(one, Conflict)} == {alive}
        (claim,) = crowd[0].take(worker)
        crowd[0].settle(success(claim, worker), by=worker)
    crowd[0].clean()


@contextmanager
def both_revive(place: Place, far: Place, proxy, letters: list[JobView]):
    """The far one has asked who is alive and not yet begun a life when the near one begins its own."""
    trap = proxy.hold(REVIVING)
    with meanwhile(lambda: far.revive(letters[1])) as there:
        assert trap.sprung.wait(SIGNAL_S_MAX)
        with meanwhile(lambda: place.revive(letters[0])) as here:

            def answers() -> tuple[object, object]:
                trap.released.set()
                return here(), there()

            yield answers


def test_a_hand_that_has_asked_who_is_alive_is_waited_for(place, far, proxy, postgres, worker):
    letters = dead_in_runs(place, worker, 2)
    with both_revive(place, far, proxy, letters) as answers:
        blocked(postgres, place.url)
        here, there = answers()
    assert isinstance(there, Receipt)
    assert here == Conflict(letters[0].no, letters[0].id, letters[0].token, letters[1].id)
    place.clean()


def test_without_locks_on_the_others_of_a_key_two_would_live(
    place, far, proxy, worker, monkeypatch
):
    """The twin: each locks only what it was asked for."""
    named_only = SQL.revive_lock.replace("n.key IS NOT NULL", "false")
    assert named_only != SQL.revive_lock
    monkeypatch.setattr(SQL, "revive_lock", named_only)
    letters = dead_in_runs(place, worker, 2)
    with both_revive(place, far, proxy, letters) as answers:
        until(lambda: place.see(letters[0].id).state is State.QUEUED, "the near one lives")
        here, there = answers()
    assert isinstance(here, Receipt)
    assert isinstance(there, Receipt)


def test_crossing_batches_of_revivals_never_stop_each_other(crowd):
    """All want the same dead letters, each in an order of its own; rows are locked in the order of numbers."""
    worker = crowd[0].hire()
    runs = [crowd[0].begin_run(f"run-{n}") for n in range(4)]
    for turn in range(3):
        for n in range(40):
            crowd[0].put(run=runs[n % 4].no, key=f"k{turn}-{n // 2}")  # two runs share a key
        claims = crowd[0].take(worker, 40)
        crowd[0].settle(*(failure(one, worker) for one in claims), by=worker)
        letters = [crowd[0].see(one.id) for one in claims]

        def revive(place: Place, step: int, held: list[JobView] = letters) -> Counter[type]:
            order = held[step * 5 :] + held[: step * 5]
            some = [revival(job) for job in order[:: (-1) ** step]]
            return Counter(type(one) for one in place.control.revive(some, DEED))

        answers = at_once([partial(revive, place, n) for n, place in enumerate(crowd)])
        total = sum(answers, Counter())
        assert total[Receipt] == 20
        assert total[Conflict] >= 20
        rest = crowd[0].take(worker, 40)
        assert len(rest) == 20
        crowd[0].settle(*(success(one, worker) for one in rest), by=worker)
    counts = [crowd[0].see_run(run).counts for run in runs]
    assert [one.open for one in counts] == [0] * 4
    assert sum(one.failed for one in counts) == 60
    crowd[0].clean()


# -- the end of a run and a new life in it -----------------------------------------------------------


@pytest.fixture
def letter(place, worker) -> tuple[RunView, JobView]:
    """A sealed run whose only job has failed."""
    run = place.begin_run()
    job = place.dead_letter(worker, run=run.no)
    place.control.seal_run(run.no)
    return run, job


def end_of(place: Place, run: RunView) -> RunView | None:
    return place.control.change_run(RunChange(run.no, RunStatus.RUNNING, RunStatus.FAILED), DEED)


def test_a_run_is_not_finished_past_a_job_that_is_being_revived(
    place, far, proxy, postgres, letter
):
    run, job = letter
    trap = proxy.hold(b"COMMIT")
    with meanwhile(lambda: far.revive(job)) as revived:
        assert trap.sprung.wait(SIGNAL_S_MAX)
        with meanwhile(lambda: end_of(place, run)) as done:
            blocked(postgres, place.url)
            trap.released.set()
            assert isinstance(revived(), Receipt)
            assert done() is None
    assert place.see_run(run).status is RunStatus.RUNNING
    place.clean()


def test_a_job_that_is_revived_while_its_run_is_being_finished_opens_it_again(
    place, far, proxy, postgres, letter
):
    run, job = letter
    trap = proxy.hold(b"COMMIT")
    with meanwhile(lambda: end_of(far, run)) as done:
        assert trap.sprung.wait(SIGNAL_S_MAX)
        with meanwhile(lambda: place.revive(job)) as revived:
            blocked(postgres, place.url)
            trap.released.set()
            assert done().status is RunStatus.FAILED
            assert isinstance(revived(), Receipt)
    seen = place.see_run(run)
    assert (seen.status, seen.ended_at, seen.counts.open) == (RunStatus.RUNNING, None, 1)
    place.clean()


def test_without_a_lock_on_the_run_it_would_be_finished_with_an_open_job(
    place, far, proxy, letter, monkeypatch
):
    """The twin."""
    monkeypatch.setattr(SQL, "runs_lock", SQL.runs_lock.replace("FOR UPDATE", ""))
    run, job = letter
    trap = proxy.hold(b"COMMIT")
    with meanwhile(lambda: far.revive(job)) as revived:
        assert trap.sprung.wait(SIGNAL_S_MAX)
        assert end_of(place, run) is not None
        trap.released.set()
        assert isinstance(revived(), Receipt)
    seen = place.see_run(run)
    assert (seen.status, seen.counts.open) == (RunStatus.FAILED, 1)


def test_a_run_that_many_end_and_many_revive_is_never_over_with_an_open_job(crowd):
    worker = crowd[0].hire()
    run = crowd[0].begin_run()
    crowd[0].control.seal_run(run.no)
    job = crowd[0].dead_letter(worker, run=run.no)
    for _ in range(10):
        hands = [partial(end_of, one, run) for one in crowd[:4]]
        hands += [partial(one.revive, job) for one in crowd[4:]]
        answers = at_once(hands)
        assert [type(one) for one in answers].count(Receipt) == 1
        seen = crowd[0].see_run(run)
        assert (seen.status, seen.ended_at, seen.counts.open) == (RunStatus.RUNNING, None, 1)
        (claim,) = crowd[0].take(worker)
        crowd[0].settle(failure(claim, worker), by=worker)
        job = crowd[0].see(job.id)
    assert crowd[0].see_run(run).kinds == {job.error_kind: 1}
    crowd[0].clean()


def test_an_enqueue_that_revives_a_job_opens_its_run_in_one_transaction(place, far, proxy, letter):
    """Before its commit neither is to be seen."""
    run, job = letter
    place.rows("UPDATE perdure_jobs SET key = 'k' WHERE no = %s RETURNING no", job.no)
    over = ended(place, run)
    trap = proxy.hold(b"COMMIT")
    again = far.new(key="k", run=run.no, if_failed=IfFailed.RETRY)
    with meanwhile(lambda: far.store.enqueue([again])) as found:
        assert trap.sprung.wait(SIGNAL_S_MAX)
        assert place.see_run(run) == over
        assert place.see(job.id).state is State.FAILED
        trap.released.set()
        assert found()[0].revived
    assert place.see_run(run).status is RunStatus.RUNNING
    assert place.see(job.id).state is State.QUEUED
    place.clean()


# -- steps -------------------------------------------------------------------------------------------


def begun(place: Place, verb: BulkVerb = BulkVerb.REDRIVE) -> int:
    return place.control.add_bulk(NewBulk(uuid_of(1), verb, "{}", DEED)).no


@pytest.mark.parametrize("verb", BulkVerb)
def test_of_many_who_take_the_same_step_one_does_it(crowd, verb):
    worker = crowd[0].hire()
    bulk = begun(crowd[0], verb)
    cursor = None
    for number in range(5):
        crowd[0].put_many(6)
        claims = crowd[0].take(worker, 6)
        crowd[0].settle(*(failure(one, worker) for one in claims), by=worker)
        letters = [crowd[0].see(one.id) for one in claims]
        step = BulkStep(bulk, cursor, 1000 - number)

        def take(place: Place, step: BulkStep = step, some: list[JobView] = letters) -> list:
            if verb is BulkVerb.DISCARD:
                return place.control.discard(some, DEED, step=step)
            return place.control.revive([revival(job) for job in some], DEED, step=step)

        answers = at_once([partial(take, one) for one in crowd])
        done = [one for one in answers if all(isinstance(each, Receipt) for each in one)]
        assert len(done) == 1
        assert all(isinstance(each, Stale) for one in answers if one not in done for each in one)
        cursor = step.cursor
        crowd[0].settle(*(success(one, worker) for one in crowd[0].take(worker, 6)), by=worker)
    (seen,) = crowd[0].reader.bulks()
    assert (seen.done, seen.refused, seen.cursor) == (30, 0, cursor)
    assert crowd[0].reader.refusals(bulk) == []
    crowd[0].clean()


def test_a_step_that_dies_before_its_commit_has_done_nothing(place, far, proxy, worker):
    job = place.dead_letter(worker)
    bulk = begun(place)
    trap = proxy.hold(b"COMMIT")
    step = BulkStep(bulk, None, 1)
    with meanwhile(lambda: far.control.revive([revival(job)], DEED, step=step)) as answer:
        assert trap.sprung.wait(SIGNAL_S_MAX)
        proxy.reset()
        trap.released.set()
        with pytest.raises(StoreUnavailable):
            answer()
    assert place.see(job.id) == job
    assert place.reader.bulks()[0].done == 0
    assert isinstance(place.control.revive([revival(job)], DEED, step=step)[0], Receipt)
    assert place.reader.bulks()[0].done == 1


def test_a_bulk_operation_that_is_stopped_while_a_step_is_under_way_stops_after_it(
    place, far, proxy, postgres, worker
):
    job = place.dead_letter(worker)
    bulk = begun(place)
    stop = BulkChange(bulk, BulkStatus.RUNNING, BulkStatus.STOPPED, "enough")
    trap = proxy.hold(b"COMMIT")
    step = BulkStep(bulk, None, 1)
    with meanwhile(lambda: far.control.revive([revival(job)], DEED, step=step)) as answer:
        assert trap.sprung.wait(SIGNAL_S_MAX)
        with meanwhile(lambda: place.control.change_bulk(stop, DEED)) as stopping:
            blocked(postgres, place.url)
            trap.released.set()
            assert isinstance(answer()[0], Receipt)
            view = stopping()
    assert (view.status, view.done, view.why) == (BulkStatus.STOPPED, 1, "enough")
    late = BulkStep(bulk, 1, 0)
    assert place.control.step_bulk(late) is None


# -- sums --------------------------------------------------------------------------------------------


KEEP_S = 86_400.0


def test_what_is_folded_is_the_same_sum(crowd):
    """Callers count in rows of their backends; while they do, others fold these into one."""
    worker = crowd[0].hire()
    run = crowd[0].begin_run()
    letters = [crowd[0].dead_letter(worker, run=run.no) for _ in range(THREADS)]

    def lives(place: Place, job: JobView) -> None:
        for _ in range(5):
            place.put(run=run.no)
            if place.see(job.id).state is State.FAILED:
                place.revive(place.see(job.id))
            place.control.prune_workers(KEEP_S, limit=1000)

    at_once([partial(lives, *pair) for pair in zip(crowd, letters, strict=True)])
    before = crowd[0].see_run(run)
    crowd[0].control.prune_workers(KEEP_S, limit=1000)
    assert crowd[0].see_run(run) == before
    assert (before.counts.total, before.counts.failed, before.kinds) == (6 * THREADS, 0, {})
    for table in ("run_counts", "run_kinds", "depths", "flows", "deaths", "owners"):
        left = crowd[0].rows(f"SELECT count(*) FROM perdure_{table} WHERE writer < 0")
        assert left == [(0,)], table
    crowd[0].clean()
