"""Attempts whose stages write their records themselves: what is stored decides, and the pump waits for nobody."""

import logging
import sqlite3
from collections.abc import Sequence
from random import Random

import psycopg
import pytest
import sqlalchemy

from perdure.engine.attempt.captures import CaptureFactory
from perdure.engine.attempt.completion import BUSY_S, completions_of
from perdure.engine.attempt.context import AttemptNotes
from perdure.engine.gates.gatekeeper import Gatekeeper
from perdure.engine.gates.upstreams import Upstreams
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.worker.pump import Finished, Pump, WorkerIdentity
from perdure.model.errors import NotCompletable, StoreBusy, StoreReadOnly, StoreUnavailable
from perdure.model.events import EventName
from perdure.model.jobs import Claim
from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence, Interrupted, Outcome, Raised, Returned, TimedOut, Usage
from perdure.model.states import State
from perdure.rules.evidence import evidence_of
from perdure.testing import VirtualClock
from perdure.testing.store_contract.fresh_store import Place
from tests.engine.gating import VENDOR, failed, gate, line_of, stage, upstream
from tests.engine.kit import DONE, Notes, Played, Unreliable
from tests.stores.kit import cancellation
from tests.stores.reference import open_model
from tests.stores.reference.completing import Lent

FAILED = Raised(Evidence(("builtins.ConnectionError",), "reset"))


class Shop(Played):
    """A pump on the reference model, whose stages have transactions of their own."""

    def __init__(self, *names: str, concurrency: int = 2) -> None:
        super().__init__()
        clock = VirtualClock()
        self.model = open_model(clock)
        self.place = Place(self.model, clock)
        self.line = line_of(self.place, *(stage(name) for name in names))
        self.catalogue = Catalogue([self.line])
        self.worker = self.place.hire()
        self.store = Unreliable(self.model.store)
        self.notes = Notes()
        observers, known = Observers([self.notes]), Upstreams({VENDOR: upstream()})
        self.gates = Gatekeeper(
            self.store,
            self.model.control,
            known.all(self.catalogue.stages()),
            self.worker,
            catalogue=self.catalogue,
            clock=clock,
            chance=Random(7),
            observers=observers,
        )
        self.running: list[Claim] = []
        capture_factory = CaptureFactory(clock, Random(1), kept_s=None)
        self.completions = completions_of(
            self.store, self.catalogue, self.worker, capture_factory, clock
        )
        self.pump = Pump(
            self.store,
            self.catalogue,
            WorkerIdentity(self.worker, 0, concurrency),
            self,
            chance=Random(7),
            observers=observers,
            gates=self.gates,
            completions=self.completions,
        )

    def start(self, claims: Sequence[Claim]) -> None:
        self.running.extend(claims)

    def claimed(self, **changes: object) -> Claim:
        self.place.put(**changes)
        self.pump.once()
        return self.running[-1]

    def attempt_notes(self, claim: Claim) -> AttemptNotes:
        began_s = self.place.clock.monotonic()
        return AttemptNotes(completer=self.completions.of(claim, began_s))

    def completed(self, claim: Claim, value: object = "done") -> Lent:
        """The transaction in which its stage has called complete."""
        own = self.model.lend()
        self.attempt_notes(claim).complete(value, own)
        return own

    def ended(self, claim: Claim, outcome: Outcome = DONE) -> float | None:
        self.finished.append(Finished(claim, outcome, 0.5, Usage(1, 2, 0.0)))
        return self.pump.once()

    @property
    def calls(self) -> tuple[int, int]:
        """How many calls the gate knows the end of, and how many of them were bad."""
        found = self.gates._traffic[VENDOR].reading(self.place.clock.now())
        return found.known, found.failed

    def state(self, claim: Claim) -> State:
        return self.place.see(claim.id).state


@pytest.fixture
def shop() -> Shop:
    return Shop("one", "two")


@pytest.fixture
def single() -> Shop:
    return Shop("one")


@pytest.mark.parametrize("end", [Returned("null"), FAILED, TimedOut(1.0), Interrupted()])
def test_what_is_stored_is_complete_however_its_stage_ends(single, end):
    claim = single.claimed()
    single.completed(claim).commit()
    single.ended(claim, end)
    assert single.state(claim) is State.SUCCEEDED
    assert len(single.notes.of(EventName.JOB_SUCCEEDED)) == 1
    assert single.calls == (1, 0)  # a good one
    assert single.pump.empty
    single.place.clean()


def test_nothing_is_told_before_the_stage_has_ended(single):
    claim = single.claimed()
    single.completed(claim).commit()
    single.pump.once()
    assert (single.notes.of(EventName.JOB_SUCCEEDED), single.calls) == ([], (0, 0))


@pytest.mark.parametrize(
    ("end", "kind"), [(FAILED, "network"), (TimedOut(1.0), "timeout"), (Returned("1"), "internal")]
)
def test_what_is_not_stored_is_judged_by_how_its_stage_has_ended(single, end, kind):
    claim = single.claimed()
    single.completed(claim).rollback()
    single.ended(claim, end)
    (attempt,) = single.place.reader.attempts(claim.no)
    assert (attempt.kind, attempt.tokens_out) == (kind, 2)
    single.place.clean()


def test_a_transaction_that_is_open_is_waited_for_by_nobody_and_decides_in_the_end(single):
    first, second = single.claimed(), single.claimed()
    own = single.completed(first)
    single.ended(first, TimedOut(1.0))
    assert single.ended(second) == BUSY_S
    assert single.state(second) is State.SUCCEEDED
    assert single.state(first) is State.PROCESSING
    assert not single.pump.empty
    own.commit()
    single.pump.once()
    assert single.state(first) is State.SUCCEEDED
    assert single.pump.empty
    single.place.clean()


@pytest.mark.parametrize("end", [FAILED, TimedOut(1.0), Returned("1")])
def test_a_job_whose_transaction_is_open_when_its_stage_ends_is_a_good_call_once_it_is_committed(
    single, end
):
    claim = single.claimed()
    own = single.completed(claim)
    single.ended(claim, end)
    assert single.calls == (0, 0)  # nobody knows yet
    own.commit()
    single.pump.once()
    assert single.state(claim) is State.SUCCEEDED
    assert single.calls == (1, 0)


def test_a_job_whose_transaction_is_rolled_back_in_the_end_is_told_to_the_gate_once_as_it_ended(
    single,
):
    claim = single.claimed()
    own = single.completed(claim)
    for _ in range(3):
        single.ended(claim, TimedOut(1.0))
    assert single.calls == (0, 0)
    own.rollback()
    for _ in range(3):
        single.pump.once()
    assert single.calls == (1, 1)


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("the store is away"),
        StoreBusy("another transaction holds the job"),
        StoreReadOnly("the store does not accept writes"),
        psycopg.OperationalError("the connection is lost"),
        psycopg.errors.AdminShutdown("terminating connection due to administrator command"),
        sqlite3.OperationalError("database is locked"),
        sqlalchemy.exc.OperationalError("COMMIT", None, Exception("server closed the connection")),
    ],
    ids=lambda error: f"{type(error).__module__.partition('.')[0]} {type(error).__name__}",
)
def test_an_outage_of_our_own_store_says_nothing_about_the_upstream(single, error):
    """Whether complete raises it, or the stage's own commit does."""
    claim = single.claimed()
    single.completed(claim).rollback()
    single.ended(claim, Raised(evidence_of(error)))
    assert single.calls == (0, 0)
    (attempt,) = single.place.reader.attempts(claim.no)
    assert attempt.kind is not None  # the job has failed by it all the same
    single.place.clean()


def test_a_wait_that_the_upstream_asks_for_is_not_pushed_out_while_a_transaction_is_open(single):
    claim = single.claimed()
    own = single.completed(claim)
    for _ in range(3):
        single.ended(claim, failed(Kind.QUOTA_WINDOW, wait_s=60.0))
        single.place.clock.push(1.0)
    assert gate(single.place).state == "flowing"
    own.rollback()
    single.pump.once()
    held = gate(single.place)
    assert held.state == "held"
    single.place.clock.push(1.0)
    single.pump.once()
    assert gate(single.place).held_until == held.held_until


def test_the_gate_is_told_after_the_store_has_answered(single, monkeypatch):
    def broken(_records, *, by):
        raise StoreUnavailable("the line broke on the way there")

    claim = single.claimed()
    single.completed(claim).rollback()
    with monkeypatch.context() as line:
        line.setattr(single.store, "settle", broken)
        with pytest.raises(StoreUnavailable):
            single.ended(claim, TimedOut(1.0))
    assert single.calls == (0, 0)
    single.pump.once()
    assert single.calls == (1, 1)


def test_a_transaction_that_is_open_for_long_is_told_once(single, caplog):
    claim = single.claimed(request_id="req-7")
    own = single.completed(claim)
    with caplog.at_level(logging.WARNING, "perdure"):
        for _ in range(5):
            single.ended(claim)
            single.place.clock.push(3.0)
    (told,) = [one for one in caplog.messages if "still open" in one]
    assert f"job {claim.id} (request req-7) has ended" in told
    own.rollback()
    single.pump.once()
    assert single.state(claim) is State.FAILED


def test_a_worker_that_leaves_does_not_wait_for_it_either(single):
    claim = single.claimed()
    own = single.completed(claim)
    single.pump.drain()
    single.pump.once()
    assert not single.pump.empty  # its stage still has its grace
    single.pump.give_back()
    single.pump.once()
    assert single.pump.empty
    own.commit()
    assert single.state(claim) is State.SUCCEEDED


def test_what_a_leaving_worker_leaves_in_an_open_transaction_is_not_taken_up_again(single):
    """The store says that it is ours, and it is: its one run has ended, and whoever settles lost jobs has the rest."""
    claim = single.claimed()
    single.completed(claim)
    single.pump.drain()
    single.ended(claim, Interrupted())
    assert single.pump.check_held() == ()
    single.pump.once()
    assert (len(single.running), single.pump.empty) == (1, True)


def test_a_stage_that_is_complete_is_not_stopped_for_a_job_that_is_gone(shop):
    done, taken = shop.claimed(), shop.claimed()
    shop.completed(done).commit()
    other = shop.completed(taken)
    other.rollback()
    shop.place.settle(cancellation(taken, None), by=None)
    shop.pump.check_held()
    assert shop.stopped == [taken.no]


def test_a_next_stage_that_begins_before_the_first_is_back_takes_a_slot_of_its_own():
    shop = Shop("one", "two", concurrency=2)
    first = shop.claimed()
    shop.completed(first).commit()
    shop.place.put_many(3)
    shop.pump.once()
    assert [one.stage for one in shop.running[1:]] == ["two"]  # two slots: both are taken
    shop.pump.once()
    assert len(shop.running) == 2
    assert len(shop.notes.of(EventName.JOB_ADVANCED)) == 1
    shop.ended(first)
    shop.pump.once()
    assert len(shop.running) == 3
    assert len(shop.notes.of(EventName.JOB_ADVANCED)) == 1
    assert shop.calls == (1, 0)


def test_a_store_that_is_away_is_asked_again(single):
    claim = single.claimed()
    single.completed(claim).commit()
    single.store.away = True
    with pytest.raises(StoreUnavailable):
        single.ended(claim)
    single.store.away = False
    single.pump.once()
    assert len(single.notes.of(EventName.JOB_SUCCEEDED)) == 1
    assert single.pump.empty


def test_an_end_whose_answer_was_lost_is_not_another_one_when_the_worker_leaves(single):
    """The job has failed, though nobody heard of it here: to say then that it was given back would be a lie."""
    claim = single.claimed()
    single.completed(claim).rollback()
    settle = single.model.store.settle

    def answer_lost(records, *, by):
        settle(records, by=by)
        raise StoreUnavailable("the line broke on the way back")

    single.store.settle = answer_lost
    with pytest.raises(StoreUnavailable):
        single.ended(claim, Returned("1"))
    del single.store.settle
    single.pump.drain()
    single.pump.give_back()
    single.pump.once()
    assert single.state(claim) is State.FAILED
    assert len(single.notes.of(EventName.JOB_FAILED)) == 1
    assert single.notes.of(EventName.JOB_RELEASED) == []
    assert single.pump.empty


def test_an_attempt_that_has_ended_in_an_open_transaction_does_not_keep_a_leaving_worker(single):
    claim = single.claimed()
    own = single.completed(claim)
    single.ended(claim, TimedOut(1.0))
    single.pump.drain()
    single.pump.once()
    assert not single.pump.empty
    single.pump.give_back()
    single.pump.once()
    assert single.pump.empty
    own.commit()
    assert single.state(claim) is State.SUCCEEDED


def test_an_attempt_that_is_over_cannot_be_completed(single):
    attempt_notes = single.attempt_notes(single.claimed())
    attempt_notes.end()
    with pytest.raises(NotCompletable, match="the attempt is over"):
        attempt_notes.complete("done", single.model.lend())


def test_an_attempt_may_be_completed_again_after_a_rollback_and_the_last_word_is_told(shop):
    claim = shop.claimed()
    attempt_notes = shop.attempt_notes(claim)
    first, second = shop.model.lend(), shop.model.lend()
    attempt_notes.complete("first", first)
    first.rollback()
    attempt_notes.complete("second", second)
    second.commit()
    shop.ended(claim)
    assert shop.running[-1].input_json == '"second"'
    assert len(shop.notes.of(EventName.JOB_ADVANCED)) == 1
