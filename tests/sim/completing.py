"""Transactions of stages' own: an application's row and the record of its attempt, which come and go together.

What is real: `Context.complete`, `Completions` and the store's own `complete`. What stands in is the connection: it
keeps its row and the record until its commit, which is one instant, and until then it holds the row of its job as
PostgreSQL does. Whoever would end that job meanwhile is told `Busy`, and so is a second transaction; its worker
can be declared dead, and the commit stands all the same, since the token says that nobody else has settled the claim.
A transaction ends with its process.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from perdure.engine.attempt.context import Context
from perdure.model.errors import StoreUnavailable, WorkerDead
from perdure.model.jobs import Busy, Receipt, Record, Settled
from perdure.model.workers import Role
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.stores.sqlite.record import record_each
from perdure.stores.sqlite.store import SqliteStore
from tests.sim.checker import Checker
from tests.sim.history import answered, asked
from tests.sim.process import Process
from tests.sim.remote import Wire
from tests.sim.swarm import Setup

_TABLE = "CREATE TABLE application (job TEXT, stage TEXT, token INTEGER)"
_ADD = "INSERT INTO application VALUES (?, ?, ?)"
_ROWS = """
SELECT a.job, a.stage, a.token FROM application AS a JOIN perdure_jobs AS j ON j.id = a.job
"""
_RECORDS = """
SELECT j.id, a.stage, a.token, a.worker
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job WHERE a.status = 'success'
"""


class OwnTransaction:
    """A connection of a stage's own, from its first change to its end."""

    def __init__(
        self, wire: Wire, store: SqliteStore, process: Process, row: tuple[Any, ...]
    ) -> None:
        self.committed = False
        self._wire = wire
        self._store = store
        self._process = process
        self._row = row
        self._record: Record | None = None
        self._by = 0
        self._over = False

    @property
    def holds(self) -> tuple[int, int] | None:
        """The job whose row it holds, and its token."""
        if self._record is None or self._over or self._process.dead:
            return None
        return self._record.no, self._record.token

    def complete(self, record: Record, by: int) -> Settled | Busy:
        """As far as it can be said before the commit."""
        self._wire.checker.apart.add((record.id, record.token))
        if self._wire.away or self._wire.strikes("lost_request"):
            self.roll_back()
            raise StoreUnavailable("the connection of the stage was lost")
        if (record.no, record.token) in self._wire.held:
            return Busy(record.no, record.id, record.token)
        try:
            answer = self._store.complete(record, by=by, within=self)
        except WorkerDead:
            self._wire.checker.told_dead(by)
            raise
        finally:
            self._store._connection.raw.rollback()
        if isinstance(answer, Receipt) and not answer.repeated:
            self._record, self._by = record, by
            self._wire.lent.append(self)
        else:
            self._wire.checker.settle(record, answer, by, asked=False)
        return answer

    def commit(self) -> None:
        """Both are there now, or, if the store is away, neither."""
        if self._wire.away or self._over:
            self.roll_back()
            raise ConnectionResetError("the database is gone")
        self._over, record = True, self._record
        wire, raw = self._wire, self._store._connection.raw
        answer = None if record is None else self._write(record)
        if not raw.in_transaction:
            raw.execute("BEGIN")
        raw.execute(_ADD, self._row)
        raw.commit()
        self.committed = True
        if record is not None:
            said = asked((record,), {"by": self._by})
            wire.world.history.note(
                wire.world.now_us, self._process.name, "complete", said, answered(answer)
            )
            wire.world.seen["records that stages wrote"] += 1
            wire.written("settle", ([record],))
            wire.checker.speaker = self._process.name
            wire.checker.committed("complete", (record,), {"by": self._by}, answer)

    def _write(self, record: Record) -> Settled | Busy:
        """The worker was alive when it was asked; since then the token alone decides."""
        try:
            return self._store.complete(record, by=self._by, within=self)
        except WorkerDead:
            self._wire.checker.told_dead(self._by)
            self._wire.world.seen["commits after the worker was declared dead"] += 1
        with join(self, self._store._connection) as (cx, now):
            return record_each(cx, [record], self._by, now)[0]

    def roll_back(self) -> None:
        """Neither is there."""
        self._over = True


@contextmanager
def join(within: object, own: SqliteConnection) -> Iterator[tuple[sqlite3.Connection, int]]:
    """In place of the store's own: the connection that all share, in a transaction that its caller ends."""
    assert isinstance(within, OwnTransaction)
    if not own.raw.in_transaction:
        own.raw.execute("BEGIN")
    yield own.raw, own.now()


class Completing:
    """How stages end that write their record themselves, and what befalls them on the way."""

    def __init__(self, wire: Wire, store: SqliteStore, setup: Setup, checker: Checker) -> None:
        self._wire = wire
        self._store = store
        self._setup = setup
        self._checker = checker
        if setup.completing:
            store._connection.raw.execute(_TABLE)

    def does(self, stage: str) -> bool:
        """Whether this stage writes its record itself."""
        return stage in self._setup.completing

    async def end(
        self, context: Context, process: Process, value: Any, good: Callable[[], None]
    ) -> Any:
        """Write row and record, commit, and return or raise whatever comes then; ``good`` is told of a commit."""
        row = (context.job_id, context.stage, context.token)
        own = OwnTransaction(self._wire, self._store, process, row)
        mishap = self._mishap()
        try:
            context.complete(value, within=own)
            if mishap == "held_open":
                await self._hold(own, process, good)
            if mishap == "killed_before_commit":
                await self._die(process)
            if mishap == "commit_failed":
                raise ConnectionResetError("the database is gone")
            if mishap == "not_committed":
                return {"committed": False}
            if not own.committed:
                own.commit()
                good()
        finally:
            if not own.committed and mishap != "held_open":
                own.roll_back()
        if mishap == "killed_after_commit":
            await self._die(process)
        if mishap == "commit_unknown":
            raise ConnectionResetError("the database is gone")
        if mishap == "runs_on":
            await asyncio.sleep(self._wire.world.rng.expovariate(1 / self._setup.work_s))
        return value

    async def _hold(self, own: OwnTransaction, process: Process, good: Callable[[], None]) -> None:
        """As a thread does that nobody can stop: it commits, though its attempt may be over by then."""
        world = self._wire.world
        takes_s = self._setup.timeout_s * world.rng.choice((0.1, 0.6, 1.5))

        def commit() -> None:
            try:
                own.commit()
            except ConnectionResetError:
                return
            good()

        world.after(takes_s, commit, process)
        await asyncio.sleep(takes_s)
        if not own.committed:
            await asyncio.sleep(
                0.001
            )  # of two things due at the same instant either may come first

    def _mishap(self) -> str | None:
        world = self._wire.world
        for mishap, chance in self._setup.mishaps.items() if world.chaos else ():
            if world.rng.random() < chance:
                world.struck[mishap] += 1
                return mishap
        return None

    async def _die(self, process: Process) -> None:
        self._wire.kernel.die(process, 9)
        await asyncio.get_running_loop().create_future()

    def check(self) -> None:
        """A row of the application is there if and only if the record of its attempt is."""
        if not self._setup.completing:
            return
        raw = self._store._connection.raw
        rows: Sequence[Any] = raw.execute(_ROWS).fetchall()
        records = {
            (job, stage, token)
            for job, stage, token, worker in raw.execute(_RECORDS).fetchall()
            if self.does(stage) and self._is_worker(worker)
        }
        if len(rows) != len(set(rows)) or set(rows) != records:
            odd = sorted(set(rows) ^ records)[:3]
            self._checker.broken("E18", f"of row and record only one is there: {odd}")

    def _is_worker(self, no: int) -> bool:
        """Callers run stages of which only the outcome is drawn."""
        return self._checker.ledger.workers[no].registered.role is not Role.CALLER
