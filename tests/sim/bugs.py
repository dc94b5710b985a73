"""More bugs put back on purpose: of drains, cancels, checkpoints, clocks, hints, lanes, schedules, pruning.

Those of the stores' own tests are here too, planted by the same patches: what is wrong in one statement
has to show in a whole world as well.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from perdure.engine import record as record_module
from perdure.engine.attempt import completion as completion_module
from perdure.engine.attempt.completion import Completions
from perdure.engine.operate import bulk_cancel as bulk_cancel_module, single_jobs as deeds_module
from perdure.engine.record import Ending
from perdure.engine.stages import LaidPipeline, Stage
from perdure.engine.supervise.supervisor import Supervisor
from perdure.engine.upkeep import lost_workers as lost_module, overrun_attempts as overrun_module
from perdure.engine.upkeep.schedules import Ticking
from perdure.engine.worker import loop as loop_module, worker as worker_module
from perdure.engine.worker.loop import Loop
from perdure.engine.worker.pump import Finished, Pump
from perdure.engine.worker.worker import Worker
from perdure.model.decisions import Counted
from perdure.model.jobs import Busy, Claim, OnLost, Record, Settled
from perdure.model.nouns import replace
from perdure.model.operations import ScheduleView, Tick
from perdure.rules import decide as decide_module
from perdure.stores import control as control_module
from perdure.stores.pruning import Ends
from perdure.stores.sqlite import record as settling_module
from perdure.stores.sqlite.control import SqliteControl
from perdure.stores.sqlite.statements import SQL
from perdure.stores.sqlite.store import SqliteStore
from tests.sim import harvests, storms, swarm
from tests.sim.mutants import Mutant, Patch, both, reworded
from tests.stores.mutants import MUTANTS as STORE_MUTANTS

_AS_BEFORE = "UPDATE perdure_jobs SET token = :token WHERE no = :no AND token = :token + 1"
_NO_ATTEMPT = "DELETE FROM perdure_attempts WHERE job = :no AND token = :token"


def release_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    """What is given back at a shutdown has cost an attempt."""
    for name in ("_raise_counters", "_counted_words"):
        right = getattr(record_module, name)
        place = {"_raise_counters": 1, "_counted_words": 0}[name]

        def counted(*args: Any, right: Callable[..., Any] = right, place: int = place) -> Any:
            given = list(args)
            if given[place] is Counted.RELEASES:
                given[place] = Counted.FAILURES
            return right(*given)

        patch.setattr(record_module, name, counted)


def beats_end_with_the_order(patch: pytest.MonkeyPatch) -> None:
    """A supervisor that is told to stop no longer beats for those who are finishing."""
    right = Supervisor._beat

    def beat(supervisor: Supervisor) -> None:
        if not supervisor._orders:
            right(supervisor)

    patch.setattr(Supervisor, "_beat", beat)


def cancel_keeps_the_token(patch: pytest.MonkeyPatch) -> None:
    """A cancelled job looks to its worker as if nothing had happened, and the result lands."""
    right = SqliteControl.cancel

    def cancel(control: SqliteControl, records: Sequence[Record], *words: Any, **more: Any) -> Any:
        answers = right(control, records, *words, **more)
        for one in records:
            if one.attempt is not None:
                with control._connection.write() as (cx, _):
                    claim = {"no": one.no, "token": one.token}
                    cx.execute(_AS_BEFORE, claim)
                    cx.execute(_NO_ATTEMPT, claim)  # it would stand in the way of the result's own
        return answers

    patch.setattr(SqliteControl, "cancel", cancel)


def hints_are_overruled(patch: pytest.MonkeyPatch) -> None:
    """Whoever is in a hurry does not ask what the server has said."""
    patch.setattr(deeds_module, "_ordered_until", lambda job, reader: None)


def unfenced_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """The result of a stage is kept, whoever's claim it is by now."""
    right = settling_module._write
    add = SQL.checkpoints_add.replace("INSERT INTO", "INSERT OR REPLACE INTO")
    patch.setattr(SQL, "checkpoints_add", add)

    def write(cx: Any, records: Sequence[Record], by: int | None, now: int) -> Any:
        answers = right(cx, records, by, now)
        for one in records:
            if one.checkpoint_stage is not None:
                cx.execute(add, (one.no, one.checkpoint_stage, one.token, now, one.checkpoint_json))
        return answers

    patch.setattr(settling_module, "_write", write)


def hint_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """The server's Retry-After is written down, and our own curve is waited for."""
    right = decide_module._delay

    def delay(case: Any, n: int) -> Any:
        heard, case.hint_s = case.hint_s, None
        try:
            return right(case, n)
        finally:
            case.hint_s = heard

    patch.setattr(decide_module, "_delay", delay)


def waits_by_the_workers_clock(patch: pytest.MonkeyPatch) -> None:
    """A retry is due at a moment that its worker has reckoned by its own wall clock."""
    right_init, right = Worker.__init__, Pump._record_of

    def init(worker: Worker, *args: Any, **kwargs: Any) -> None:
        right_init(worker, *args, **kwargs)
        worker._pump.wall = kwargs["clock"]  # type: ignore[attr-defined]

    def settled(pump: Any, one: Finished) -> Record:
        record = right(pump, one)
        if not record.delay_s:
            return record
        store_now = one.claim.claimed_at + timedelta(seconds=one.elapsed_s)
        off_s = (pump.wall.now() - store_now).total_seconds()
        return replace(record, delay_s=max(0.0, record.delay_s + off_s))

    patch.setattr(Worker, "__init__", init)
    patch.setattr(Pump, "_record_of", settled)


def ticks_by_the_workers_clock(patch: pytest.MonkeyPatch) -> None:
    """Which moment has come is reckoned by the wall clock of whoever ticks."""
    right = Ticking.tick_of

    def tick_of(ticking: Ticking, row: ScheduleView, now: Any) -> Tick | None:
        return right(ticking, row, max(ticking._ids._clock.now(), row.next_at))

    patch.setattr(Ticking, "tick_of", tick_of)


def every_missed_moment(patch: pytest.MonkeyPatch) -> None:
    """After an outage there is a job for each of the moments that were missed."""
    right = Ticking.tick_of

    def tick_of(ticking: Ticking, row: ScheduleView, now: Any) -> Tick | None:
        return right(ticking, row, row.next_at)

    patch.setattr(Ticking, "tick_of", tick_of)


def only_hints_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Who rests looks for work only when somebody says that there is some."""
    right = Loop._rest

    def rest(loop: Loop, bell: Any, wait_s: float) -> None:
        right(loop, bell, 1e6 if wait_s > 0 else wait_s)

    patch.setattr(loop_module.Loop, "_rest", rest)


def sweeps_come_late(patch: pytest.MonkeyPatch) -> None:
    """The dead are looked for every few minutes, as elsewhere every hour."""
    patch.setattr(worker_module, "_SWEEP_S", 45.0)


def duty_of_whoever_asks(patch: pytest.MonkeyPatch) -> None:
    """A duty is taken whether or not another has it."""
    patch.setattr(control_module, "standing", lambda *_, **__: None)
    reworded("duty_take", "perdure_duties.until_at <= :now", "true")(patch)


def kept_for_no_time(patch: pytest.MonkeyPatch) -> None:
    """Whatever is over is let go at the next opportunity."""
    patch.setattr(Ends, "_over", lambda ends, row: row[5] is not None)


def wishes_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What a caller leaves is always gone on with."""
    right = lost_module.record_of_left_caller

    def record_of_left_caller(
        ending: Ending, wish: OnLost, line: LaidPipeline, stage: Stage
    ) -> Record:
        return right(ending, OnLost.HAND_OVER, line, stage)

    patch.setattr(lost_module, "record_of_left_caller", record_of_left_caller)
    patch.setattr(overrun_module, "record_of_left_caller", record_of_left_caller)


def record_apart(patch: pytest.MonkeyPatch) -> None:
    """What a stage completes is written at once, in a transaction of the store's own."""

    def complete(store: SqliteStore, record: Record, *, by: int, within: object) -> Any:
        return store.turn([record], None, by=by).settled[0]

    patch.setattr(SqliteStore, "complete", complete)


def completed_by_anybody(patch: pytest.MonkeyPatch) -> None:
    """A stage's record is written whatever claim is the latest by now."""
    right = SqliteStore.complete

    def complete(store: SqliteStore, record: Record, *, by: int, within: object) -> Any:
        row = store._connection.raw.execute(
            "SELECT token FROM perdure_jobs WHERE no = ?", (record.no,)
        ).fetchone()
        claimed = record if row is None else replace(record, token=row[0])
        return replace(right(store, claimed, by=by, within=within), token=record.token)

    patch.setattr(SqliteStore, "complete", complete)


def returns_count(patch: pytest.MonkeyPatch) -> None:
    """A stage that returns has succeeded, though its transaction was not committed."""
    patch.setattr(completion_module, "as_it_ended", lambda outcome: outcome)


def late_ends_count(patch: pytest.MonkeyPatch) -> None:
    """What a worker makes of a stage's end is told, though the stage was complete by then."""

    def settle(
        completions: Completions, record: Record, claim: Claim
    ) -> tuple[Record, Settled | Busy]:
        (answer,) = completions._store.settle([record], by=completions._worker)
        return record, answer

    patch.setattr(Completions, "_settle", settle)
    patch.setattr(Completions, "complete_among", lambda *_: set())


def left_without_a_look(patch: pytest.MonkeyPatch) -> None:
    """A worker that leaves settles nothing that its stages have asked to write, held or not."""
    right = Completions.once

    def once(completions: Completions, judge: Any, *, leaving: bool) -> Any:
        if not leaving:
            yield from right(completions, judge, leaving=False)
            return
        for key, one in list(completions._ended.items()):
            del completions._ended[key]
            yield completions._make(one), Busy(one.claim.no, one.claim.id, one.claim.token)

    patch.setattr(Completions, "once", once)


class Rig:
    """The store of whichever world there is just now, as the patches of the stores' tests want it."""

    name = "sqlite"

    def __init__(self) -> None:
        self.connection: Any = None

    def rows(self, sql: str) -> list[Any]:
        """What a query finds."""
        found: list[Any] = self.connection.raw.execute(sql).fetchall()
        return found

    def damage(self, sql: str) -> None:
        """Change a table behind everybody's back."""
        with self.connection.write() as (cx, _):
            cx.execute(sql)


def of_the_stores(mutant: Any) -> Patch:
    """A mutant of the stores' tests, in every world that is made while it is planted."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        rig, right = Rig(), SqliteStore.__init__

        def init(store: SqliteStore, connection: Any) -> None:
            right(store, connection)
            rig.connection = connection

        patch.setattr(SqliteStore, "__init__", init)
        mutant.plant(patch, rig)

    return plant


ASKED = (
    Mutant("a release counts as a failure", ("S7",), release_is_a_failure, swarm.drains_at_once),
    Mutant(
        "beats stop when the drain begins", ("S6",), beats_end_with_the_order,
        swarm.drains_and_patience,
    ),
    Mutant(
        "a cancel lets the result land", ("S2", "S3", "S15"), cancel_keeps_the_token,
        swarm.only_cancels,
    ),
    Mutant("a checkpoint without a guard", ("S14",), unfenced_checkpoint, swarm.only_cancels),
    Mutant("a wait hint is ignored", ("S9",), hint_not_waited_for, swarm.only_rate_limits),
    Mutant("only hints are believed", ("L1",), only_hints_are_believed, swarm.deaf_ears),
    Mutant(
        "a worker's clock says when a retry is due", ("S9",), waits_by_the_workers_clock,
        swarm.only_failures,
    ),
    Mutant(
        "a worker's clock says which moment has come", ("E6",), ticks_by_the_workers_clock,
        swarm.only_schedules,
    ),
    Mutant(
        "a page of the feed begins behind the line that the last one ended in", ("E17",),
        reworded("changes", "no >= :line", "no > :line"),
    ),
    Mutant(
        "a stage's record is written apart from its rows", ("E18", "S3", "S5"), record_apart,
        swarm.only_completions,
    ),
    Mutant(
        "a stage completes whatever claim is the latest", ("S2", "S3"), completed_by_anybody,
        swarm.only_completions,
    ),
    Mutant(
        "a stage that returns without a commit has succeeded", ("E18",), returns_count,
        swarm.only_completions,
    ),
    Mutant(
        "how a stage ended is told, though it was complete", ("E2",), late_ends_count,
        swarm.only_completions,
    ),
    Mutant(
        "a worker leaves without a look at what its stages may write", ("L6",), left_without_a_look,
        storms.own_transactions,
    ),
    Mutant(
        "a bulk cancel gives up what it meets held once", ("E11",),
        lambda patch: patch.setattr(bulk_cancel_module, "_BUSY_MAX", 1), swarm.only_completions,
    ),
)  # fmt: skip

UPKEEP = (
    Mutant("a job for every missed moment", ("E6",), every_missed_moment, swarm.only_schedules),
    Mutant(
        "a moment is ticked by two", ("E6",),
        reworded("schedule_tick", "AND next_at = :due_at", "AND :due_at IS :due_at"),
        swarm.only_schedules,
    ),
    Mutant("a duty of two", ("E7",), duty_of_whoever_asks, swarm.only_schedules),
    Mutant("sweeps come late", ("L1", "L2"), sweeps_come_late, swarm.only_kills),
    Mutant("nothing is kept", ("S1",), kept_for_no_time, swarm.only_pruning),
    Mutant(
        "what is pruned is not booked", ("S15",),
        reworded("prune_flows", "1 AS created", "0 AS created"), swarm.only_pruning,
    ),
    Mutant(
        "checkpoints outlive their job", ("S14", "E1"),
        reworded("prune_checkpoints", "job IN", "job < 0 AND job IN"), swarm.only_pruning,
    ),
    Mutant(
        "a deadline comes early", ("S9",),
        reworded("expired", "deadline_at <= :now", "deadline_at <= :now + 5000000"),
        swarm.only_deadlines,
    ),
    Mutant("a lost caller's wish is forgotten", ("E8",), wishes_forgotten, swarm.only_callers),
)  # fmt: skip

OPERATORS = (
    Mutant(
        "a person cuts short what the upstream has ordered", ("S9",), hints_are_overruled,
        swarm.hurried_rate_limits,
    ),
    Mutant(
        "closed lanes are open", ("E5",),
        reworded("closed_lane_nos", "FROM perdure_closed_lanes", "FROM perdure_closed_lanes WHERE 0"),
        swarm.only_operators,
    ),
    Mutant(
        "a new life keeps its counters", ("S7", "S15"),
        reworded("revive", "failures = 0", "failures = failures"), swarm.only_operators,
    ),
    Mutant(
        "a new life for whatever was seen", ("S2", "S3"),
        both(
            reworded(
                "revive", "AND token = :token AND failed_reason IS NOT NULL", "AND :token IS :token"
            ),
            reworded("dead_letter", "AND token = ?2 AND failed_reason IS NOT NULL", "AND ?2 IS ?2"),
        ),
        swarm.only_operators,
    ),
    Mutant(
        "results of an earlier life stay", ("S14", "E1"),
        reworded("checkpoint_forget", "WHERE", "WHERE 0 AND"), swarm.only_operators,
    ),
)  # fmt: skip

# By the names of the stores' tests; what they are caught by here, and where.
_STORES: dict[str, tuple[tuple[str, ...], swarm.Setting]] = {
    "no guard on finish": (("S2", "S3", "E1"), swarm.as_drawn),
    "a guard on the state only": (("S3", "E1"), swarm.stages_beyond_their_time),
    "a dead worker's beat": (("S4",), swarm.frozen_workers),
    "rescue from a stale read": (("S5",), swarm.slow_sweepers),
    "a crash is not counted": (("S8", "S15"), swarm.as_drawn),
    "a start is not counted": (("S15",), swarm.as_drawn),
    "a worker's clock is trusted with leases": (("S6",), swarm.only_kills),
    "a worker's clock is trusted with waits": (("S9",), swarm.only_failures),
    "a new life beside a living job of the same key": (("E12",), harvests.only_redrives),
    "a run that has finished stays so": (("E13", "E15"), harvests.only_redrives),
    "a payload that is replaced is lost": (("S19",), swarm.only_operators),
}
_NOT_SIMULATED = (
    "a capture that whoever knows its id may read",  # nobody here reads captures
    "a job that whoever knows its id may cancel",  # nobody here says whose a job is to be
    "a job that whoever knows its id may run now",
    "a dead letter that whoever knows its id may retry",
    "a dead letter that whoever knows its id may discard",
    "a job that need not wait is run now",  # who asks has looked, and the token says the rest
    "a cancel of a job that has ended",
    "what is run now stands where it was to stand",  # the order of claims is for the contract
    "a key is driven again twice in one run",  # two dead letters of one key seldom meet in one re-drive
    "a success by the short way leaves the code of an earlier failure",  # codes are not compared with the history
    "a batch of successes that does not keep what each of them said",  # nor are explanations
    "a claim that does not say when the row was changed",  # nor are the moments of change
    "a new life whose policies overrule the deadline that its caller brought",  # no policy here has a total time
    "a deadline as long as from the moment by which the job stood in line",  # that is later, and only early ones are found
    "a begun job that forgets whose request it is",  # nobody here has a request id
    "a page of the feed begins behind the line in which the last one ended",  # it is among `ASKED`
    "the feed is let go whoever has not read it",  # a world ends before its feed is old
    "a list by change that hears of ends, and of no attempt that is tried again",  # nobody here lists by change
    "a list by change that does not learn of a new life",
    *(  # nobody here looks for another owner
        f"{one} shows another owner's"
        for one in ("job_by_id", "run_by_id", "bulk_by_id", "bulks_list", "bulks_running")
    ),
    *(
        one.name for one in STORE_MUTANTS if one.name.endswith("anybody's")
    ),  # nor among others' lists
    "a bucket of requests without a bottom",  # nobody here sends requests
    "a tally that forgets what was there",  # the audit at the end of a world would find it, too
)


def _found(mutant: Any) -> Mutant:
    short = mutant.name.partition(" (")[0]
    for name, (caught_by, setting) in _STORES.items():
        if short.startswith(name):
            return Mutant(f"stores: {mutant.name}", caught_by, of_the_stores(mutant), setting)
    raise AssertionError(f"say how the simulation finds the stores' mutant {mutant.name!r}")


STORES = tuple(_found(one) for one in STORE_MUTANTS if one.name not in _NOT_SIMULATED)
MORE = (*ASKED, *UPKEEP, *OPERATORS, *STORES)
