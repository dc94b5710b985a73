"""What the simulation found, each in its smallest form."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from perdure.engine.gates.caller_gates import CallerGates
from perdure.engine.gates.rows import GateRows
from perdure.engine.gates.traffic import CallEnd, Traffic
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.engine.upkeep.lost_workers import LostJobs
from perdure.model.errors import StoreUnavailable
from perdure.model.gates import GateState
from perdure.model.jobs import ClaimOrder, Lane, NewJob, OnLost
from perdure.model.kinds import Kind, Sign
from perdure.model.limits import LOST_BATCH_MAX
from perdure.model.operations import Deed, LaneScope
from perdure.model.outcomes import Death
from perdure.model.workers import NewWorker, Role
from perdure.rules.gate.gate import Gate, GateSettings, HoldCause
from perdure.rules.gate.hold import hint, hold
from perdure.rules.gate.probe import end_probe, lease
from perdure.rules.gate.signs import WELL, Word
from perdure.rules.gate.window import answered_at
from perdure.rules.presets import preset
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.stores.sqlite.control import SqliteControl
from perdure.stores.sqlite.schema import SqliteSchema
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import VirtualClock


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def store(clock):
    connection = SqliteConnection(":memory:", clock)
    SqliteSchema(connection, "sqlite:///:memory:").upgrade()
    yield SqliteStore(connection)
    connection.close()


def hired(store: SqliteStore, boot: str, ttl_s: float) -> int:
    return store.add_worker(NewWorker(boot, boot, Role.MAIN, ttl_s))


def test_a_store_that_was_away_makes_no_worker_with_a_shorter_lease_look_dead(clock, store):
    """A gap of 8 s is nothing to a judge with a lease of 20 s, and death with one of 3 s."""
    judge, quick = hired(store, "judge", 20.0), hired(store, "quick", 3.0)
    for _ in range(30):
        clock.push(1.0)
        assert store.beat([judge, quick]) == {judge, quick}
    clock.push(8.0)  # the store is away: nobody can beat
    store.beat([judge])
    assert store.mark_dead(by=judge) == ()


async def call(item: object) -> object:
    return item


def line(store: SqliteStore, name: str) -> LaidPipeline:
    lane = Lane("q", "c", name, "only")
    numbers = {"only": store.lanes([lane])[lane]}
    return LaidPipeline(name, "q", "c", (Stage("only", call, preset("standard"), 60.0),), numbers)


def test_lost_jobs_of_an_unknown_pipeline_do_not_keep_others_from_being_rescued(store):
    """The sweeper knows one of two pipelines; a full batch of the other's jobs lies before it."""
    known, unknown = line(store, "known"), line(store, "unknown")
    names = ["unknown"] * LOST_BATCH_MAX + ["known"]
    lane_nos = {"known": known.lane_nos["only"], "unknown": unknown.lane_nos["only"]}
    store.enqueue([NewJob(str(n), one, lane_nos[one], "only", "1") for n, one in enumerate(names)])
    dead, sweeper = hired(store, "dead", 15.0), hired(store, "sweeper", 15.0)
    order = ClaimOrder(dead, len(names), tuple(lane_nos.values()))
    claims = [store.turn([], order, by=dead).claims for _ in range(2)]  # more than one order gives
    assert sum(map(len, claims)) == len(names)
    store.end_worker(dead, Death("exited", signal="SIGKILL"))
    chore = LostJobs(store, Catalogue([known]), sweeper, chance=Random(1), observers=Observers())
    assert chore.once().jobs == 1


def test_a_worker_with_a_duty_is_not_forgotten_and_its_duty_is_free_as_soon_as_it_is_dead(
    clock, store
):
    """Its row was gone before its time was over, and it was taken for one that is alive."""
    control = SqliteControl(store._connection)
    first, second = hired(store, "first", 15.0), hired(store, "second", 15.0)
    assert control.take_duty("upkeep", worker=first, ttl_s=3.0)
    store.end_worker(first, Death("stopped"))
    with store._connection.write() as (cx, now):
        cx.execute("UPDATE perdure_workers SET settled_at = ? WHERE no = ?", (now, first))
    clock.push(0.1)
    assert control.prune_workers(0.0, limit=9) == 0
    assert control.take_duty("upkeep", worker=second, ttl_s=3.0)
    assert control.prune_workers(0.0, limit=9) == 1


class SlowAnswers:
    """A store whose answers are long on their way."""

    def __init__(self, store: SqliteStore, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock

    def look_at_gates(self, *args: Any, **kwargs: Any) -> Any:
        self._clock.push(0.5)
        answer = self._store.look_at_gates(*args, **kwargs)
        self._clock.push(2.5)
        return answer


def test_what_a_worker_takes_for_the_stores_clock_is_neither_ahead_of_it_nor_behind(clock, store):
    """A pause of 9 s ended after 6.5 s, where the answer with the time had been 2.5 s on its way."""
    rows = GateRows(
        SlowAnswers(store, clock),
        SqliteControl(store._connection),
        {"u": DeclaredUpstream("u")},
        1,
        clock=clock,
        observers=Observers([]),
        on_look=lambda _: None,
        on_change=lambda _: None,
        samples=dict,
    )
    rows.look()
    clock.push(1.0)
    assert rows.now() < clock.now() < rows.now_at_most()


class Away:
    """A store that cannot be reached."""

    def gate(self, name: str) -> None:
        raise StoreUnavailable("away")


def test_a_caller_that_cannot_see_its_gate_records_the_end_of_its_call_all_the_same():
    """The error left `Call.ended` before there was a record to send again."""
    gates = CallerGates(Away(), Away(), DeclaredUpstream("u", "key"), "caller")
    assert gates.end_call(None, None).state == "flowing"


def test_a_lost_probe_that_is_still_out_when_calls_start_again_takes_no_place_among_them(clock):
    """It was counted when the pace began anew, and never given back: the worker started nothing more."""
    passage = Traffic(DeclaredUpstream("u"), clock.now(), 1)
    passage.gate = Gate("u", GateState.PROBING, 1)
    passage.start((1, 1), clock.now(), tokens=None, probes="u")
    passage.gate = Gate("u", generation=2, counts_from=2)  # a later probe has let it flow
    passage.see(clock.now())
    passage.end_call((1, 1), CallEnd(WELL, clock.now()))
    assert passage.room(clock.now(), 1) == 1


def test_an_answer_is_as_old_as_it_is_however_late_its_worker_hears_of_it(clock):
    """A job that failed after it was taken for one that failed before: its probe's failure let the gate give up."""
    passage = Traffic(DeclaredUpstream("u"), clock.now(), 1)
    passage.start((1, 1), clock.now(), tokens=None, probes=None)
    came_at = clock.now() + timedelta(seconds=0.5)
    clock.push(9.0)
    passage.end_call((1, 1), CallEnd(WELL, clock.now(), took_s=0.5))
    assert answered_at(passage.window()) == came_at


def test_a_credential_that_a_person_held_for_a_while_is_still_freed_by_a_good_answer_only(clock):
    """The person's hold hid what it was held for, and three probes that said nothing let it flow."""
    settings, now = GateSettings(), clock.now()
    until = now + timedelta(seconds=5.0)
    gate = hint(Gate("key"), settings, kind=Kind.BILLING, generation=0, until=until, now=now).gate
    gate = hold(gate, reason="", until=until, now=now).gate
    for _ in range(4):
        now = gate.held_until
        gate = lease(gate, settings, now).gate
        said = Word(Sign.NEITHER, Kind.INTERNAL)
        gate = end_probe(
            gate, settings, word=said, generation=gate.generation, now=now, chance=0.5
        ).gate
        assert (gate.state, gate.probe_first) == (GateState.HELD, True)
    gate = lease(gate, settings, gate.held_until).gate
    answered = Word(Sign.GOOD, Kind.INVALID_OUTPUT)
    gate = end_probe(
        gate, settings, word=answered, generation=gate.generation, now=clock.now(), chance=0.5
    ).gate
    assert gate == Gate(
        "key",
        generation=gate.generation,
        since_at=clock.now(),
        gap=gate.gap,
        proved_at=clock.now(),
        counts_from=gate.generation,
        answered_at=clock.now(),
    )


def test_a_third_probe_that_is_told_of_its_credential_does_not_end_the_proving(clock):
    """It was the third in a row that says nothing of the upstream, and the gate flowed when the pause was over."""
    settings, now = GateSettings(), clock.now()
    gate = Gate("u", GateState.PROBING, 7, cause=HoldCause.TRIP, probe_first=True, undecided=2)
    until = now + timedelta(seconds=5.0)
    told = end_probe(
        gate,
        settings,
        word=Word(Sign.NEITHER, Kind.BILLING),
        generation=7,
        until=until,
        now=now,
        chance=0.5,
    ).gate
    assert (told.cause, told.held_until, told.probe_first) == (HoldCause.CREDENTIAL, until, True)


def test_a_call_that_is_set_aside_for_what_goes_on_is_not_given_to_another(clock):
    """The job went on to its next stage, and as many as before were claimed beside it."""
    passage = Traffic(DeclaredUpstream("u"), clock.now(), 1)
    assert passage.set_aside(clock.now())
    assert passage.room(clock.now(), 5) == 0
    assert not passage.set_aside(clock.now())


def test_a_call_that_was_queued_and_is_sent_again_is_not_given_what_a_worker_has(store):
    """The answer was lost, the gate opened, a worker claimed the job, and its claim was answered to the caller."""
    control, lane = SqliteControl(store._connection), Lane("q", "c", "p", "one")
    no = store.lanes([lane])[lane]
    worker = hired(store, "worker", 15.0)
    caller = store.add_worker(NewWorker("caller", "caller", Role.CALLER, 3600.0))
    job = NewJob("a", "p", no, "one", "{}")
    deed = Deed("ann", "because")
    control.pause(LaneScope.QUEUE, "q", deed)
    first = store.begin(job, worker=caller, hard_s=9.0, on_lost=OnLost.HAND_OVER)
    control.resume(LaneScope.QUEUE, "q", deed)
    (claim,) = store.turn((), ClaimOrder(worker, 1, (no,)), by=worker).claims
    again = store.begin(job, worker=caller, hard_s=9.0, on_lost=OnLost.HAND_OVER)
    assert (claim.id, again) == (job.id, first)


def test_an_answer_to_one_probe_of_several_tells_of_the_next_ones_job(clock):
    """Only the last of them told when it was answered, so an item that always fails held the gate between two probes."""
    settings, now = GateSettings(flow_after=2), clock.now()
    gate = Gate("u", GateState.PROBING, 7, cause=HoldCause.TRIP, probe_first=True)
    gate = end_probe(gate, settings, word=WELL, generation=7, now=now, chance=0.5).gate
    assert (gate.state, gate.passes, gate.answered_at) == (GateState.HELD, 1, now)
