"""Several connections to one store: what one has written the others see, and of two that race one wins."""

import select
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

from perdure.model.gates import GateChange, GateState, Slices
from perdure.model.jobs import Lane, Receipt, Stale
from perdure.model.nouns import replace
from perdure.model.operations import (
    BulkVerb,
    LaneScope,
    NewBulk,
    NewSchedule,
    Retention,
    Revival,
    Tick,
)
from perdure.model.runs import NewRun, RunChange, RunStatus
from perdure.model.states import State
from perdure.testing.clock import VirtualClock
from perdure.testing.store_contract.attempt_ends import advance, failure, release, retry, success
from perdure.testing.store_contract.fresh_store import (
    DEED,
    OnAFreshStore,
    OpenedStore,
    Place,
    target,
    uuid_of,
)

_ROUNDS = 12


def at_once(*calls: Callable[[], Any], within_s: float = 60.0) -> list[Any]:
    """Make these calls on threads that start together; their answers, in order."""
    start = threading.Barrier(len(calls))

    def make(call: Callable[[], Any]) -> Any:
        start.wait(within_s)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        made = [threads.submit(make, call) for call in calls]
        return [one.result(within_s) for one in made]


class SharingContract(OnAFreshStore):
    """Two connections, ``place`` and ``other``, to one store."""

    def open_again(self, clock: VirtualClock) -> OpenedStore:
        """Another connection to the store that ``open`` has opened; an author writes this."""
        raise NotImplementedError

    def setup_method(self) -> None:
        """Open the store; the second connection is made by who needs it."""
        super().setup_method()
        self._other: Place | None = None

    def teardown_method(self) -> None:
        """Close both."""
        if self._other is not None:
            self._other.close()
        super().teardown_method()

    @property
    def other(self) -> Place:
        """The second connection."""
        if self._other is None:
            self._other = Place(self.open_again(self.clock), self.clock, series=1)
        return self._other

    def test_a_wake_fd_if_there_is_one_is_readable_when_there_is_news(self) -> None:
        self.other.store.has_changed()  # begins to listen
        self.other.store.has_changed()
        wake_fd = self.other.store.wake_fd()
        self.place.put()
        if wake_fd is None:
            assert self.other.store.has_changed()
            return
        readable, _, _ = select.select([wake_fd], [], [], 10.0)
        assert readable == [wake_fd]
        assert self.other.store.has_changed()
        assert not self.other.store.has_changed()
        assert select.select([wake_fd], [], [], 0.0)[0] == []

    # -- what is written is seen -----------------------------------------------------------------

    def test_what_one_connection_has_written_the_other_sees(self) -> None:
        self.place.put(key="k", owner="ann", priority=2, deadline_s=50)
        (claim,) = self.place.take(self.worker)
        self.place.settle(advance(claim, self.worker, self.place.lanes["two"]), by=self.worker)
        (second,) = self.place.take(self.worker)
        self.place.settle(retry(second, self.worker), by=self.worker)
        assert self.other.everything() == self.place.everything()
        assert self.other.lanes == self.place.lanes
        self.other.clean()

    def test_a_claim_of_one_connection_may_be_settled_through_another(self) -> None:
        claim = self.one_claim()
        (receipt,) = self.other.settle(success(claim, self.worker), by=self.worker)
        assert isinstance(receipt, Receipt)
        (again,) = self.place.settle(success(claim, self.worker), by=self.worker)
        assert again == replace(receipt, repeated=True)

    def test_a_pause_counts_for_all_connections_at_once(self) -> None:
        self.place.put()
        self.other.control.pause(LaneScope.QUEUE, "q", DEED)
        assert self.place.take(self.worker) == []
        self.other.control.resume(LaneScope.QUEUE, "q", DEED)
        assert len(self.place.take(self.worker)) == 1

    def test_a_death_counts_for_all_connections_at_once(self) -> None:
        claim = self.one_claim()
        judge = self.other.hire()
        self.clock.push(8)
        self.other.store.beat([judge])
        self.other.live([judge], 16)
        assert self.worker in self.other.store.mark_dead(by=judge)
        assert self.place.store.beat([self.worker]) == frozenset()
        assert [one.claim for one in self.place.store.lost_claims(limit=9)] == [claim]

    # -- of two that race, one wins ----------------------------------------------------------------

    def test_the_same_key_from_two_at_once_is_one_job(self) -> None:
        for n in range(_ROUNDS):
            one, two = (where.new(key=f"k{n}") for where in (self.place, self.other))
            (mine,), (theirs,) = at_once(
                partial(self.place.store.enqueue, [one]), partial(self.other.store.enqueue, [two])
            )
            assert (mine.id, mine.no) == (theirs.id, theirs.no)
            assert mine.created != theirs.created
        assert self.place.reader.books().accepted == _ROUNDS
        self.place.clean()

    def test_batches_with_the_same_keys_in_another_order_do_not_hinder_each_other(self) -> None:
        for n in range(_ROUNDS):
            keys = [f"{n}-{key}" for key in range(20)]
            mine = [self.place.new(key=key) for key in keys]
            theirs = [self.other.new(key=key) for key in reversed(keys)]
            one, two = at_once(
                partial(self.place.store.enqueue, mine), partial(self.other.store.enqueue, theirs)
            )
            assert [made.id for made in one] == [made.id for made in reversed(two)]
        assert self.place.reader.books().accepted == 20 * _ROUNDS
        self.place.clean()

    def test_the_same_call_sent_twice_at_once_is_one_job(self) -> None:
        for _ in range(_ROUNDS):
            job = self.place.new()
            one, two = at_once(
                partial(self.place.store.enqueue, [job]), partial(self.other.store.enqueue, [job])
            )
            assert one == two
        assert self.place.reader.books().accepted == _ROUNDS

    def test_of_two_that_probe_a_gate_one_claims_its_job(self) -> None:
        workers = (self.worker, self.other.hire())
        self.place.store.lanes([Lane("q", "c", "p", "one", upstream="vendor")])
        self.place.put_many(2 * _ROUNDS)
        for generation in range(0, 2 * _ROUNDS, 2):
            held = GateChange("vendor", generation, GateState.HELD)
            assert self.place.control.change_gate(held, DEED) is not None
            change = GateChange("vendor", generation + 1, GateState.PROBING)
            answers = at_once(
                *(
                    partial(where.store.probe, where.order(worker), change, DEED)
                    for where, worker in zip((self.place, self.other), workers, strict=True)
                )
            )
            assert sum(one is not None for one in answers) == 1
        held_by = [len(self.place.store.tokens_held(worker)) for worker in workers]
        assert sum(held_by) == _ROUNDS
        self.place.clean()

    def test_of_two_that_part_a_limit_one_does(self) -> None:
        for generation in range(_ROUNDS):
            slices = Slices("vendor", generation, f"[{generation}]")
            answers = at_once(
                partial(self.place.store.change_slices, slices),
                partial(self.other.store.change_slices, slices),
            )
            assert sorted(answers) == [False, True]

    def test_what_is_noted_at_once_is_all_kept(self) -> None:
        workers = (self.worker, self.other.hire())
        third = self.place.hire()
        for n in range(_ROUNDS):
            at_once(
                *(
                    partial(
                        where.store.look_at_gates,
                        ["vendor", "account"],
                        worker=worker,
                        samples={"vendor": f"[{n}]", "account": f"[{n}]"},
                    )
                    for where, worker in zip((self.place, self.other), workers, strict=True)
                )
            )
            look = self.place.store.look_at_gates(["vendor", "account"], worker=third, samples={})
            assert [(one.gate, one.worker) for one in look.samples] == [
                (gate, worker) for gate in ("account", "vendor") for worker in workers
            ]
            assert {one.samples_json for one in look.samples} == {f"[{n}]"}

    def test_fair_jobs_that_come_at_once_take_turns_all_the_same(self) -> None:
        def come(where: Place, owner: str) -> None:
            for _ in range(_ROUNDS):
                where.put_many(3, owner=owner, fair=True)

        at_once(partial(come, self.place, "a"), partial(come, self.other, "b"))
        owners = "".join(claim.owner for claim in self.place.take(self.worker, 6 * _ROUNDS))
        assert (owners.count("a"), owners.count("b")) == (3 * _ROUNDS, 3 * _ROUNDS)
        assert all(abs(owners[:n].count("a") - n / 2) <= 3 for n in range(len(owners)))
        self.place.clean()

    def test_no_job_is_handed_out_twice(self) -> None:
        self.place.put_many(120)
        workers = (self.worker, self.other.hire())

        def drain(where: Place, worker: int) -> list[int]:
            taken: list[int] = []
            while some := where.take(worker, 3):
                taken += [claim.no for claim in some]
            return taken

        mine, theirs = at_once(
            partial(drain, self.place, workers[0]), partial(drain, self.other, workers[1])
        )
        assert len(set(mine) | set(theirs)) == len(mine) + len(theirs) == 120
        assert self.place.store.tokens_held(workers[0]).keys() == set(mine)
        assert self.place.store.tokens_held(workers[1]).keys() == set(theirs)
        self.place.clean()

    def test_of_two_words_about_one_claim_one_is_written(self) -> None:
        other = self.other.hire()
        for _ in range(_ROUNDS):
            claim = self.one_claim()
            mine, theirs = success(claim, self.worker), failure(claim, self.worker)
            (one,), (two,) = at_once(
                partial(self.place.settle, mine, by=self.worker),
                partial(self.other.settle, theirs, by=other),
            )
            answers = [one, two]
            assert sorted(type(one).__name__ for one in answers) == ["Receipt", "Stale"]
            won = State.SUCCEEDED if isinstance(answers[0], Receipt) else State.FAILED
            assert self.place.see(claim.id).state is won
            assert len(self.place.reader.attempts(claim.no)) == 1
        self.place.clean()

    def test_a_cancel_and_a_claim_at_once_do_not_both_happen(self) -> None:
        for _ in range(_ROUNDS):
            claim = self.one_claim()
            self.place.settle(release(claim, self.worker), by=self.worker)
            job = self.place.see(claim.id)
            plain = replace(success(claim, None), token=job.token, attempt=None)
            record = replace(plain, state=State.CANCELLED, result_json=None)
            taken, (answer,) = at_once(
                partial(self.place.take, self.worker),
                partial(self.other.settle, record, by=None),
            )
            assert len(taken) == (1 if isinstance(answer, Stale) else 0)
            self._settle_held()
        self.place.clean()

    def _settle_held(self) -> None:
        for claim in self.place.store.claims_held(self.worker):
            self.place.settle(success(claim, self.worker), by=self.worker)

    def test_of_two_revivals_of_one_job_one_happens(self) -> None:
        for _ in range(_ROUNDS):
            job = self.place.dead_letter(self.worker)
            again = Revival(job.no, job.id, job.token, job.stage, job.lane, job.input_from)
            (one,), (two,) = at_once(
                partial(self.place.control.revive, [again], DEED),
                partial(self.other.control.discard, [target(job)], DEED),
            )
            answers = [one, two]
            assert sorted(type(one).__name__ for one in answers) == ["Receipt", "Stale"]
            seen = self.place.see(job.id)
            assert (seen.life == 2) == isinstance(answers[0], Receipt)
            for claim in self.place.take(self.worker):
                self.place.settle(success(claim, self.worker), by=self.worker)
        assert len(self.place.reader.deeds()) == _ROUNDS
        self.place.clean()

    def test_of_two_changes_of_one_gate_one_happens(self) -> None:
        for generation in range(_ROUNDS):
            change = GateChange("vendor", generation, GateState.HELD)
            answers = at_once(
                partial(self.place.control.change_gate, change, DEED),
                partial(self.other.control.change_gate, change, DEED),
            )
            assert sum(one is not None for one in answers) == 1
        gate = self.place.reader.gate("vendor")
        assert gate is not None
        assert gate.generation == len(self.place.reader.deeds()) == _ROUNDS

    def test_two_who_make_one_run_make_one(self) -> None:
        for n in range(_ROUNDS):
            one, two = (NewRun(uuid_of(n, side), "", "p", f"name {n}") for side in (1, 2))
            mine, theirs = at_once(
                partial(self.place.control.add_run, one), partial(self.other.control.add_run, two)
            )
            assert mine == theirs
        assert len(self.place.reader.runs()) == _ROUNDS

    def test_of_two_changes_of_one_run_one_happens(self) -> None:
        run = self.place.begin_run()
        seen, status = RunStatus.RUNNING, RunStatus.PAUSED
        for _ in range(_ROUNDS):
            change = RunChange(run.no, seen, status)
            answers = at_once(
                partial(self.place.control.change_run, change, DEED),
                partial(self.other.control.change_run, change, DEED),
            )
            assert sum(one is not None for one in answers) == 1
            seen, status = status, seen
        assert len(self.place.reader.deeds()) == _ROUNDS

    def test_of_two_ticks_of_one_moment_one_enqueues(self) -> None:
        due_at = self.clock.now()
        self.place.control.put_schedule(NewSchedule("s", "p", "every second", "1", due_at))
        for _ in range(_ROUNDS):
            next_at = due_at + timedelta(seconds=1)
            one, two = (Tick("s", due_at, next_at, w.new()) for w in (self.place, self.other))
            answers = at_once(
                partial(self.place.control.tick, one), partial(self.other.control.tick, two)
            )
            assert sum(made is not None for made in answers) == 1
            due_at = next_at
        assert self.place.reader.books().accepted == _ROUNDS
        assert self.place.reader.schedules()[0].ticks == _ROUNDS
        self.place.clean()

    def test_of_two_who_want_a_duty_one_gets_it(self) -> None:
        other = self.other.hire()
        for n in range(_ROUNDS):
            answers = at_once(
                partial(self.place.control.take_duty, f"d{n}", worker=self.worker, ttl_s=9),
                partial(self.other.control.take_duty, f"d{n}", worker=other, ttl_s=9),
            )
            assert sum(answers) == 1

    def test_of_two_pauses_of_one_queue_one_is_the_first(self) -> None:
        for n in range(_ROUNDS):
            answers = at_once(
                partial(self.place.control.pause, LaneScope.QUEUE, f"q{n}", DEED),
                partial(self.other.control.pause, LaneScope.QUEUE, f"q{n}", DEED),
            )
            assert sum(answers) == 1
        assert len(self.place.reader.deeds()) == _ROUNDS

    def test_two_who_begin_one_bulk_operation_begin_one(self) -> None:
        for n in range(_ROUNDS):
            bulk = NewBulk(uuid_of(n), BulkVerb.DISCARD, "{}", DEED)
            one, two = at_once(
                partial(self.place.control.add_bulk, bulk),
                partial(self.other.control.add_bulk, bulk),
            )
            assert one == two
        assert len(self.place.reader.deeds()) == _ROUNDS

    def test_two_who_make_the_same_lanes_make_them_once(self) -> None:
        for n in range(_ROUNDS):
            one, two = at_once(
                partial(self.place.lanes_of, f"p{n}"), partial(self.other.lanes_of, f"p{n}")
            )
            assert one == two

    def test_a_job_that_is_pruned_while_it_is_revived_is_either_gone_or_alive(self) -> None:
        keep_nothing = Retention(failed_s=0.0)
        for _ in range(_ROUNDS):
            job = self.place.dead_letter(self.worker)
            self.clock.push(1)
            again = Revival(job.no, job.id, job.token, job.stage, job.lane, job.input_from)
            (answer,), pruned = at_once(
                partial(self.place.control.revive, [again], DEED),
                partial(self.other.control.prune, keep_nothing, limit=100),
            )
            alive = isinstance(answer, Receipt)
            assert (alive, pruned.jobs) in ((True, 0), (False, 1))
            assert (self.place.reader.job(job.id) is not None) == alive
            for claim in self.place.take(self.worker):
                self.place.settle(success(claim, self.worker), by=self.worker)
        self.place.clean()
