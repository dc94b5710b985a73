"""Real bugs of other queues, and a few of our own that are gone, put back on purpose.

A mutant is a patch of the engine or of one statement, made by the test and undone after it. If the
simulation does not find it within a few seeds, the simulation is no evidence of anything.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from perdure.engine import record as record_module
from perdure.engine.observe import Observers
from perdure.engine.upkeep import lost_workers as lost_module
from perdure.engine.worker import pump as pump_module
from perdure.engine.worker.pump import Finished, Pump
from perdure.engine.worker.stage_runner import StageRunner
from perdure.engine.worker.worker import WorkerSettings
from perdure.model.jobs import Receipt, Record
from perdure.model.nouns import replace
from perdure.model.outcomes import Death, Interrupted
from perdure.stores.sqlite.statements import SQL
from perdure.stores.sqlite.store import SqliteStore
from tests.sim.swarm import (
    Setting,
    as_drawn,
    cancels_while_blocked,
    frozen_workers,
    only_cancels,
    only_outages,
    outages_and_unlike_leases,
    slow_sweepers,
)

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug, and the invariants of which one has to name it."""

    name: str
    caught_by: tuple[str, ...]
    plant: Patch
    setting: Setting = as_drawn


def reworded(statement: str, old: str, new: str) -> Patch:
    """A patch of one SQL statement; it must still have the words that are taken out."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        text = getattr(SQL, statement)
        assert old in text, f"{statement}.sql no longer says {old!r}"
        patch.setattr(SQL, statement, text.replace(old, new))

    return plant


def both(*patches: Patch) -> Patch:
    """Several patches at once."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for one in patches:
            one(patch)

    return plant


def rescue_from_a_stale_read(patch: pytest.MonkeyPatch) -> None:
    """The sweeper reads what is lost and later puts it back, whatever has become of it since."""
    right = SqliteStore.turn

    def turn(store: SqliteStore, records: Sequence[Record], order: Any, *, by: int | None) -> Any:
        fresh = [
            replace(one, token=_token(store, one)) if _rescues(one) else one for one in records
        ]
        return right(store, fresh, order, by=by)

    patch.setattr(SqliteStore, "turn", turn)


def _rescues(record: Record) -> bool:
    return record.attempt is not None and record.attempt.kind == "worker_lost"


def _token(store: SqliteStore, record: Record) -> int:
    raw = store._connection.raw
    (token,) = raw.execute("SELECT token FROM perdure_jobs WHERE no = ?", (record.no,)).fetchone()
    return int(token)


def crash_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A dead worker's job is simply given back."""

    def given_back(death: Death) -> Interrupted:
        return Interrupted("its worker is gone")

    patch.setattr(lost_module, "Lost", given_back)


def failure_not_counted(patch: pytest.MonkeyPatch) -> None:
    """The counters stay as they were."""
    patch.setattr(record_module, "_raise_counters", lambda counters, *_: counters)


def suspects_beside_others(patch: pytest.MonkeyPatch) -> None:
    """What has crashed a process runs beside the innocent again."""
    patch.setattr(record_module, "_isolation", lambda *_: 0)


def lost_news_forgotten(patch: pytest.MonkeyPatch) -> None:
    """After a lost answer the pump does not ask what it holds."""

    def catch_up(pump: Pump) -> None:
        pump._send(None)
        pump._unsure = False

    patch.setattr(pump_module.Pump, "_catch_up", catch_up)


def lost_news_taken_twice(patch: pytest.MonkeyPatch) -> None:
    """After a lost answer the pump starts everything that it holds, running or not."""

    def catch_up(pump: Pump) -> None:
        pump._send(None)
        pump._unsure = False
        pump._take_up(pump._store.claims_held(pump._identity.worker))

    patch.setattr(pump_module.Pump, "_catch_up", catch_up)


def told_whatever_was_answered(patch: pytest.MonkeyPatch) -> None:
    """A refused result is announced like an accepted one."""
    right = Observers.tell_settled

    def settled(observers: Observers, record: Record, answer: Any) -> None:
        accepted = Receipt(record.no, record.id, record.token, record.state, None)
        right(observers, record, accepted)

    patch.setattr(Observers, "tell_settled", settled)


def never_anew(patch: pytest.MonkeyPatch) -> None:
    """A worker that has lost slots goes on: beginning anew would make up for what is wrong."""
    patch.setattr(WorkerSettings, "patience_s", math.inf)


def stopped_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """A stage that was stopped because its job was taken away keeps its slot for ever."""
    right = Pump._gather

    def gather(pump: Pump) -> None:
        if not pump.draining:
            for one in list(pump._finished):
                if isinstance(one, Finished) and isinstance(one.outcome, Interrupted):
                    pump._finished.remove(one)
        right(pump)

    patch.setattr(Pump, "_gather", gather)
    never_anew(patch)


def stopped_before_its_first_step(patch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled before it has begun ends without running at all."""

    def cancel_runs(runner: StageRunner, nos: Sequence[int]) -> None:
        for no in nos:
            if no in runner._runs:
                task, stopping = runner._runs[no]
                stopping.order()
                task.cancel()

    patch.setattr(StageRunner, "_cancel_runs", cancel_runs)
    never_anew(patch)


_LONGER = "max(judge.ttl_us, w.ttl_us)"

UNGUARDED = (
    reworded("record", "AND token = ?2", "AND ?2 IS ?2"),
    reworded("records_matched", "SELECT j.no, j.token", "SELECT j.no, r.value ->> 1"),
    reworded("records_matched", "AND j.token = r.value ->> 1", ""),
)

THE_FOUR = (
    Mutant(
        "no guard on record (Oban, PgQueuer, graphile-worker, SAQ)",
        ("S2", "S3"),
        both(
            *UNGUARDED,
            reworded("attempts_add", "INSERT INTO", "INSERT OR IGNORE INTO"),
            reworded("attempts_add_more", "INSERT INTO", "INSERT OR IGNORE INTO"),
            reworded("checkpoints_add", "INSERT INTO", "INSERT OR IGNORE INTO"),
        ),
    ),
    Mutant(
        "a dead worker's beat is accepted (PgQueuer)",
        ("S4",),
        reworded("beat", "AND dead_at IS NULL", ""),
        frozen_workers,
    ),
    Mutant(
        "rescue from a stale read (River before #1373)",
        ("S5",),
        rescue_from_a_stale_read,
        slow_sweepers,
    ),
    Mutant("a crash is not counted (PgQueuer, Dramatiq)", ("S7", "S8"), crash_not_counted),
)

OTHERS = (
    Mutant(
        "no guard on record, and only the attempt's own row in the way",
        ("S3", "E1"),
        both(*UNGUARDED),
    ),
    Mutant(
        "a dead worker may write",
        ("S4",),
        reworded("worker_alive", "AND dead_at IS NULL", ""),
    ),
    Mutant(
        "a lease is over before its time",
        ("S6",),
        both(
            reworded(
                "mark_dead", f"w.beat_at + {_LONGER} < :now", "w.beat_at + w.ttl_us / 2 < :now"
            ),
            reworded("overdue", "beat_at + ttl_us < :now", "true"),
        ),
    ),
    Mutant(
        "a judge that was not heard itself",
        ("S6",),
        both(
            reworded("mark_dead", "judge.beat_at + judge.ttl_us / 2 >= :now", "true"),
            reworded("mark_dead", f"judge.steady_at + {_LONGER} <= :now", "true"),
        ),
        only_outages,
    ),
    Mutant(
        "a judge with a longer lease than the judged",
        ("S6",),
        reworded("mark_dead", _LONGER, "w.ttl_us"),
        outages_and_unlike_leases,
    ),
    Mutant(
        "the receipt of somebody else's record",
        ("S3",),
        reworded("settled_before", "AND a.settled_by = :by", "AND :by IS :by"),
    ),
    Mutant("nothing is counted", ("S7", "S8", "S15"), failure_not_counted),
    Mutant(
        "a retry starts at once",
        ("S9",),
        reworded("record", "ready = ?4,", "ready = CASE WHEN ?4 IS NOT NULL THEN 1 END,"),
    ),
    Mutant("suspects run beside the innocent", ("S8",), suspects_beside_others),
    Mutant(
        "the result of a stage is not handed on",
        ("S14",),
        reworded("record", "coalesce(?11, input_from)", "CASE WHEN ?11 IS ?11 THEN input_from END"),
    ),
    Mutant(
        "one item in the books too few",
        ("S15",),
        reworded("flows_add", "created = created + excluded.created", "created = created"),
    ),
    Mutant("a retry is never promoted", ("L1",), reworded("promote", "<= :now", "< 0")),
    Mutant(
        "claims of which the news was lost are forgotten", ("L1", "L6", "S10"), lost_news_forgotten
    ),
    Mutant(
        "a stage stopped before its first step says nothing",
        ("E4",),
        stopped_before_its_first_step,
        cancels_while_blocked,
    ),
    Mutant("a stopped stage says nothing", ("E4", "L1"), stopped_without_a_word, only_cancels),
    Mutant("claims are taken up a second time", ("E3", "S10"), lost_news_taken_twice),
    Mutant("what was refused is told as done", ("E2",), told_whatever_was_answered),
)
