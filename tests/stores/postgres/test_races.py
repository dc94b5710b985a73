"""Several hands at once, on real connections: one wins, the others are told, and no row is left between."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pytest

from perdure.model.errors import StoreBusy, WorkerDead
from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import ClaimOrder, IfFailed, Lane, Receipt, Stale
from perdure.model.outcomes import Death
from perdure.stores.postgres import record
from perdure.testing import VirtualClock
from tests.stores.kit import DEED, TTL_S, crash, release, retry, success
from tests.stores.postgres.kit import (
    SIGNAL_S_MAX,
    Place,
    at_once,
    blocked,
    meanwhile,
    other,
)

T = TypeVar("T")

THREADS = 16


@pytest.fixture
def crowd(furnished, open_place):
    """So many connections to one store, each with ids of its own."""
    return [open_place(furnished, series=n + 1, size_max=2) for n in range(THREADS)]


def audited(place: Place) -> None:
    place.clean()
    held = place.rows(
        "SELECT j.no FROM perdure_jobs j JOIN perdure_workers w ON w.no = j.worker "
        "WHERE w.settled_at IS NOT NULL"
    )
    assert held == [], "a job is held by a settled worker: nobody will ever find it"


# -- one key, one job ------------------------------------------------------------------------------


def test_the_same_key_from_sixteen_threads_is_one_job(crowd):
    for number in range(5):
        key = f"order-{number}"
        answers = at_once([partial(one.put, key=key) for one in crowd])
        assert len({answer.id for answer in answers}) == 1
        assert [answer.created for answer in answers].count(True) == 1
    assert crowd[0].reader.books().accepted == 5
    audited(crowd[0])


def test_batches_with_crossing_keys_all_get_through(crowd):
    """Each waits for a key that the other has just inserted: the server ends one, and it is sent again."""
    keys = [f"k{n}" for n in range(20)]

    def put(place: Place, names: list[str]) -> list[str]:
        return [one.id for one in place.store.enqueue([place.new(key=name) for name in names])]

    answers = at_once([partial(put, crowd[0], keys), partial(put, crowd[1], keys[::-1])])
    assert answers[0] == answers[1][::-1]
    assert crowd[0].reader.books().accepted == 20
    audited(crowd[0])


def test_a_dead_letter_that_sixteen_threads_want_again_gets_one_new_life(crowd):
    worker = crowd[0].hire()
    dead = crowd[0].dead_letter(worker, key="k")
    answers = at_once([partial(one.put, key="k", if_failed=IfFailed.RETRY) for one in crowd])
    assert {answer.id for answer in answers} == {dead.id}
    assert [answer.revived for answer in answers].count(True) == 1
    assert crowd[0].see(dead.id).life == 2
    audited(crowd[0])


def test_a_key_whose_first_owner_rolls_back_goes_to_the_next(place, postgres, open_place):
    near = open_place(place.url, series=1)
    with other(place.url) as cx:
        place.store.enqueue([place.new(key="k")], within=cx)
        with meanwhile(lambda: near.put(key="k")) as answer:
            blocked(postgres, place.url)
            cx.rollback()
            made = answer()
    assert made.created
    assert place.reader.books().accepted == 1
    audited(place)


def test_a_key_that_is_pruned_between_two_looks_is_free_again(place, far, proxy):
    """The insert finds the key taken; before the look for its owner, the owner is gone."""
    taken = place.put(key="k")
    trap = proxy.hold(b"found ORDER BY place")
    with meanwhile(lambda: far.put(key="k")) as answer:
        assert trap.sprung.wait(20)
        place.rows("DELETE FROM perdure_jobs WHERE id = %s RETURNING no", taken.id)
        trap.released.set()
        made = answer()
    assert made.created
    assert made.id != taken.id


# -- claims ------------------------------------------------------------------------------------------


def test_no_job_is_handed_out_twice(crowd):
    crowd[0].put_many(400)
    workers = [one.hire() for one in crowd]

    def drain(place: Place, worker: int) -> list[int]:
        got: list[int] = []
        while claims := place.take(worker, 7):
            got += [claim.no for claim in claims]
        return got

    taken = at_once([partial(drain, *pair) for pair in zip(crowd, workers, strict=True)])
    counted = Counter(no for one in taken for no in one)
    assert len(counted) == 400
    assert set(counted.values()) == {1}
    audited(crowd[0])


@pytest.fixture
def slow(furnished, open_place) -> Place:
    """On the server's own time."""
    return open_place(furnished, series=1)


@pytest.fixture
def kept_waiting(slow, postgres):
    """Whatever that worker wants has to wait in the middle, until the block is left."""

    @contextmanager
    def keep(worker: int, work: Callable[[], T]) -> Iterator[Callable[[], T]]:
        with other(slow.url) as cx:
            cx.execute("SELECT 1 FROM perdure_workers WHERE no = %s FOR UPDATE", (worker,))
            with meanwhile(work) as answer:
                blocked(postgres, slow.url)
                yield answer
                cx.rollback()

    return keep


def test_a_claim_of_what_another_has_tried_meanwhile_is_not_older_than_that(
    slow, kept_waiting, open_place
):
    quick = open_place(slow.url, series=2)
    slow_one, quick_one = slow.hire(), quick.hire()
    slow.put()
    with kept_waiting(slow_one, lambda: slow.take(slow_one)) as answer:
        (claim,) = quick.take(quick_one)
        quick.settle(retry(claim, quick_one, delay_s=0.0), by=quick_one)
    (again,) = answer()
    assert again.id == claim.id
    slow.settle(success(again, slow_one), by=slow_one)
    audited(slow)


def test_a_probe_takes_no_job_that_fell_due_after_its_moment(slow, kept_waiting, open_place):
    quick = open_place(slow.url, series=2)
    slow.store.lanes([Lane("q", "c", "p", "one", upstream="vendor")])
    slow_one, quick_one = slow.hire(), quick.hire()
    slow.put()
    (claim,) = quick.take(quick_one)
    for generation, state in enumerate([GateState.FLOWING, GateState.HELD]):
        slow.control.change_gate(GateChange("vendor", generation, state), DEED)
    change = GateChange("vendor", 2, GateState.PROBING)
    order = slow.order(slow_one)
    with kept_waiting(slow_one, lambda: slow.store.probe(order, change, DEED)) as answer:
        quick.settle(retry(claim, quick_one, delay_s=0.0), by=quick_one)
    assert answer() is None
    probe = slow.store.probe(order, change, DEED)
    assert probe is not None
    assert probe.claim.id == claim.id
    slow.settle(success(probe.claim, slow_one), by=slow_one)
    audited(slow)


def test_a_claim_skips_what_another_transaction_has_locked(place, worker):
    jobs = place.put_many(5)
    with other(place.url) as cx:
        cx.execute(
            "SELECT 1 FROM perdure_jobs WHERE no = ANY (%s) FOR UPDATE", ([jobs[0].no, jobs[2].no],)
        )
        assert place.taken_ids(worker, 5) == [jobs[1].id, jobs[3].id, jobs[4].id]
        assert place.take(worker, 5) == []
    assert place.taken_ids(worker, 5) == [jobs[0].id, jobs[2].id]


def test_a_promotion_skips_what_another_transaction_has_locked(clocked):
    worker = clocked.hire()
    jobs = clocked.put_many(3)
    claims = clocked.take(worker, 3)
    clocked.settle(*(retry(claim, worker, delay_s=5) for claim in claims), by=worker)
    clocked.clock.push(6)
    with other(clocked.url) as cx:
        cx.execute("SELECT 1 FROM perdure_jobs WHERE no = %s FOR UPDATE", (jobs[1].no,))
        assert clocked.taken_ids(worker, 5) == [jobs[0].id, jobs[2].id]
    assert clocked.taken_ids(worker, 5) == [jobs[1].id]


# -- records -----------------------------------------------------------------------------------------


def test_of_many_who_settle_the_same_claim_one_is_right(crowd):
    workers = [one.hire() for one in crowd]
    for _ in range(5):
        crowd[0].put()
        (claim,) = crowd[0].take(workers[0])
        answers = at_once(
            [
                partial(one.settle, success(claim, w), by=w)
                for one, w in zip(crowd, workers, strict=True)
            ]
        )
        kinds = Counter(type(answer) for (answer,) in answers)
        assert kinds == {Receipt: 1, Stale: THREADS - 1}
    audited(crowd[0])


def test_crossing_batches_of_records_never_stop_each_other(crowd):
    """Each hand settles the same claims in an order of its own; rows are locked in the order of numbers."""
    workers = [one.hire() for one in crowd]
    for _ in range(5):
        crowd[0].put_many(40)
        claims = crowd[0].take(workers[0], 40)

        def settle(place: Place, worker: int, step: int, held=claims) -> int:
            order = held[step:] + held[:step]
            answers = place.settle(
                *(release(one, worker) for one in order[:: (-1) ** step]), by=worker
            )
            return sum(isinstance(one, Receipt) for one in answers)

        wins = at_once(
            [
                partial(settle, one, w, n)
                for n, (one, w) in enumerate(zip(crowd, workers, strict=True))
            ]
        )
        assert sum(wins) == 40
        rest = crowd[0].take(workers[0], 40)
        crowd[0].settle(*(success(one, workers[0]) for one in rest), by=workers[0])
    audited(crowd[0])


def test_records_in_another_order_than_numbers_would_stop_each_other(
    place, open_place, monkeypatch
):
    """The twin: with the rows locked as they come, the server has to end one of two turns."""
    monkeypatch.setattr(record, "sorted", lambda rows, **_: list(rows), raising=False)
    near, worker = open_place(place.url, series=1), place.hire()
    place.put_many(200)
    stopped = 0
    for _ in range(20):
        claims = place.take(worker, 200)
        if not claims:
            break
        there = [release(one, worker) for one in claims]

        def settle(at: Place, records: list) -> bool:
            try:
                at.settle(*records, by=worker)
            except StoreBusy:
                return True
            return False

        stopped += sum(at_once([partial(settle, place, there), partial(settle, near, there[::-1])]))
        if stopped:
            break
    assert stopped


# -- the dead ----------------------------------------------------------------------------------------


@pytest.fixture
def court(furnished, open_place):
    """A worker that has gone silent while a turn of it is under way, and a judge who may say so."""
    clock = VirtualClock()
    return [open_place(furnished, clock, series=n) for n in range(3)]


def test_a_worker_is_not_declared_dead_while_a_turn_of_it_is_under_way(court, postgres):
    """The turn waits for a row that somebody else has; it holds its worker's row meanwhile."""
    place, judge_place, _ = court
    silent, judge = place.hire(), judge_place.hire()
    place.put_many(3)
    (claim,) = place.take(silent)
    place.live([judge], TTL_S * 2.5)
    with other(place.url) as cx:
        cx.execute("SELECT 1 FROM perdure_jobs WHERE no = %s FOR UPDATE", (claim.no,))
        with meanwhile(lambda: place.turn([success(claim, silent)], silent, 2)) as answer:
            blocked(postgres, place.url)
            assert judge_place.store.mark_dead(by=judge) == ()
            cx.rollback()
            turn = answer()
    assert isinstance(turn.settled[0], Receipt)
    assert len(turn.claims) == 2
    assert judge_place.store.mark_dead(by=judge) == (silent,)
    assert {one.claim.no for one in judge_place.store.lost_claims(limit=10)} == {
        one.no for one in turn.claims
    }
    audited(place)


def test_the_end_of_a_worker_waits_for_its_turn_and_then_nothing_more_is_claimed(court, postgres):
    place, near, _ = court
    worker = place.hire()
    place.put_many(3)
    (claim,) = place.take(worker)
    with other(place.url) as cx:
        cx.execute("SELECT 1 FROM perdure_jobs WHERE no = %s FOR UPDATE", (claim.no,))
        with meanwhile(lambda: place.turn([success(claim, worker)], worker, 1)) as turn:
            blocked(postgres, place.url)
            with meanwhile(lambda: near.store.end_worker(worker, Death("exited", 9))) as ended:
                blocked(postgres, place.url, 2)
                cx.rollback()
                assert ended()
                assert len(turn().claims) == 1
    with pytest.raises(WorkerDead):
        place.take(worker)
    assert len(near.store.lost_claims(limit=10)) == 1
    audited(place)


def test_a_dead_worker_never_claims_however_close_it_came(court):
    """Workers claim and settle in a hurry while they are declared dead one after the other."""
    place, near, judge_place = court
    judge = judge_place.hire()
    place.put_many(300)
    for _ in range(8):
        silent = place.hire()
        place.live([judge], TTL_S * 2.5)
        started = threading.Event()

        def hurry(worker: int = silent, started: threading.Event = started) -> int:
            records: list = []
            turns = 0
            try:
                while True:
                    started.set()
                    turn = place.turn(records, worker, 3)
                    records = [release(claim, worker) for claim in turn.claims]
                    turns += 1
            except WorkerDead:
                return turns

        with meanwhile(hurry) as turns:
            assert started.wait(20)
            while silent not in judge_place.store.mark_dead(by=judge):
                pass
            held = {
                one.claim.no for one in near.store.lost_claims(limit=100) if one.worker == silent
            }
            assert turns() >= 0
        after = {one.claim.no for one in near.store.lost_claims(limit=100) if one.worker == silent}
        assert after == held, "a dead worker claimed or gave back a job"
        lost = [one for one in near.store.lost_claims(limit=100) if one.worker == silent]
        near.settle(*(crash(one.claim, silent) for one in lost), by=judge)
        judge_place.store.mark_dead(by=judge)
        audited(place)


def test_many_sweepers_settle_a_dead_workers_jobs_once(crowd):
    silent, sweepers = crowd[0].hire(), [one.hire() for one in crowd]
    crowd[0].put_many(30)
    crowd[0].take(silent, 30)
    crowd[0].store.end_worker(silent, Death("exited", 9))

    def sweep(place: Place, worker: int) -> int:
        lost = place.store.lost_claims(limit=100)
        answers = place.settle(*(crash(one.claim, silent) for one in lost), by=worker)
        return sum(isinstance(one, Receipt) for one in answers)

    settled = at_once([partial(sweep, *pair) for pair in zip(crowd, sweepers, strict=True)])
    assert sum(settled) == 30
    assert crowd[0].store.lost_claims(limit=100) == []
    attempts = crowd[0].rows("SELECT job, count(*) FROM perdure_attempts GROUP BY job")
    assert {count for _, count in attempts} == {1}
    audited(crowd[0])


def test_two_judges_at_once_declare_each_dead_worker_once(court):
    place, near, far = court
    judges = [near.hire(), far.hire()]
    silent = [place.hire() for _ in range(10)]
    place.live(judges, TTL_S * 2.5)
    found = at_once(
        [partial(near.store.mark_dead, by=judges[0]), partial(far.store.mark_dead, by=judges[1])]
    )
    named = Counter(no for one in found for no in one)
    assert set(named) == set(silent)
    assert set(named.values()) == {1}


# -- lanes -------------------------------------------------------------------------------------------


def test_lanes_that_many_ask_for_at_once_have_one_number_each(crowd):
    wanted = [Lane("q", "c", "many", f"stage-{n}") for n in range(30)]

    def ask(place: Place, turn: int) -> dict[Lane, int]:
        return place.store.lanes(wanted[turn:] + wanted[:turn])

    answers = at_once([partial(ask, one, n) for n, one in enumerate(crowd)])
    assert all(answer == answers[0] for answer in answers)
    assert len(set(answers[0].values())) == 30


def test_two_versions_of_an_app_that_name_other_upstreams_both_get_their_lane(place, far, proxy):
    """While one replaces the other: what one has just written is overwritten before it looks again."""
    old, new = (Lane("q", "c", "changing", "one", upstream=name) for name in ("old", "new"))
    written = proxy.hold(b"COMMIT")
    with meanwhile(lambda: far.store.lanes([old])) as answer:
        assert written.sprung.wait(SIGNAL_S_MAX)
        looked = proxy.hold(b"perdure_lanes")
        written.released.set()
        if looked.sprung.wait(
            1.0
        ):  # who takes the number from what was written need not look again
            assert new in place.store.lanes([new])
            looked.released.set()
        assert list(answer()) == [old]


def test_a_run_whose_counts_many_write_at_once_adds_up(crowd):
    run = crowd[0].begin_run()
    lane = Lane("q", "c", "p", "one", run.no)
    (no,) = crowd[0].store.lanes([lane]).values()
    workers = [one.hire() for one in crowd]

    def work(place: Place, worker: int) -> int:
        place.put_many(5, run=run.no, lane=no)
        done = 0
        while claims := place.store.turn([], ClaimOrder(worker, 3, (no,)), by=worker).claims:
            answers = place.settle(*(success(claim, worker) for claim in claims), by=worker)
            done += len(answers)
        return done

    at_once([partial(work, *pair) for pair in zip(crowd, workers, strict=True)])
    counts = crowd[0].see_run(run).counts
    assert (counts.total, counts.succeeded) == (5 * THREADS, 5 * THREADS)
    audited(crowd[0])
