"""What operators and the upkeep do, on one SQLite file.

What may happen at once: anything. Each method is one transaction under the turnstile, so they take place one after the other.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from perdure.model.changes import ChangeKind
from perdure.model.gates import GateChange, GateRow
from perdure.model.jobs import Enqueued, NewJob
from perdure.model.limits import FINGERPRINT_KEPT_S, PRUNE_BATCH_MAX
from perdure.model.operations import Deed
from perdure.stores.changes import Entry
from perdure.stores.control import SharedControl
from perdure.stores.lanes import KnownLanes
from perdure.stores.moments import MINUTE_US, seconds_us
from perdure.stores.rows import Row, encoded
from perdure.stores.sqlite import changing
from perdure.stores.sqlite.accepting import accept, lanes_among
from perdure.stores.sqlite.bulks import SqliteBulks
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.gating import change_gate
from perdure.stores.sqlite.noting import note
from perdure.stores.sqlite.statements import SQL

T = TypeVar("T")


class SqliteControl(SqliteBulks, SharedControl):
    """The `Control` port on one SQLite file."""

    _sql = SQL

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lanes = KnownLanes()

    def change_gate(self, change: GateChange, deed: Deed) -> GateRow | None:
        """Write a gate's row where its generation is as seen; None when it has moved on."""
        with self._connection.written() as (cx, now):
            return change_gate(cx, change, deed, now)

    def prune_workers(self, kept_s: float, *, limit: int) -> int:
        """Forget workers that ended long ago and whose jobs are all settled; and add the tallies up."""
        with self._connection.written() as (cx, now):
            _fold(cx, now)
            where = {"end": now - seconds_us(kept_s), "limit": min(limit, PRUNE_BATCH_MAX)}
            return cx.execute(SQL.prune_workers, where).rowcount

    def prune_changes(self, kept_s: float, *, limit: int) -> int:
        """Forget lines of the change feed that everybody could read for long enough."""
        with self._connection.written() as (cx, now):
            return changing.prune(cx, kept_s, max(0, min(limit, PRUNE_BATCH_MAX)), now)

    def _written(self, work: Callable[[sqlite3.Connection, int], T]) -> T:
        with self._connection.written() as (cx, now):
            return work(cx, now)

    def _execute(self, sql: str, values: Mapping[str, object]) -> int:
        with self._connection.written() as (cx, _):
            return cx.execute(sql, values).rowcount

    def _note(
        self, cx: sqlite3.Connection, verb: str, subjects: Sequence[str], deed: Deed, now: int
    ) -> None:
        note(cx, verb, subjects, deed, now)

    def _tell(
        self, cx: sqlite3.Connection, kind: ChangeKind, entries: Sequence[Entry], now: int
    ) -> None:
        changing.tell(cx, kind, entries, now)

    def _wake(self, cx: sqlite3.Connection) -> None:
        """A file tells nobody that it has changed."""

    def _hold_run(self, cx: sqlite3.Connection, no: int) -> None:
        """Nobody else writes while we do."""

    def _accept(self, cx: sqlite3.Connection, job: NewJob, now: int) -> Enqueued:
        self._lanes.check([job], partial(lanes_among, cx))
        return accept(cx, [job], now)[0]

    def _duty_seen(self, name: str) -> Row | None:
        with self._connection.read() as (cx, now):
            seen: Row | None = cx.execute(SQL.duty_seen, {"name": name, "now": now}).fetchone()
        return seen

    def _let_go(self, cx: sqlite3.Connection, rows: Sequence[Row]) -> tuple[int, int]:
        where = {"nos": encoded([row[0] for row in rows])}
        for sql in (SQL.prune_depths, SQL.prune_flows, SQL.prune_deaths, SQL.prune_runs):
            cx.execute(sql, where)
        cx.execute(SQL.prune_redrives, where)
        attempts = cx.execute(SQL.prune_attempts, where).rowcount
        cx.execute(SQL.prune_checkpoints, where)
        cx.execute(SQL.prune_artifacts, where)
        cx.execute(SQL.prune_owned, where)
        cx.execute(SQL.prune_payloads, where)
        cx.execute(SQL.prune_jobs, where)
        return len(rows), attempts


def _fold(cx: sqlite3.Connection, now: int) -> None:
    """Add up what ended in runs and the minutes older than an hour, and forget what struck nobody for a month."""
    cx.execute(SQL.depths_home)
    cx.execute(SQL.depths_forget)
    hour = {"old": now // MINUTE_US - 60}
    cx.execute(SQL.flows_fold, hour)
    cx.execute(SQL.flows_forget, hour)
    month = {"old": now - seconds_us(FINGERPRINT_KEPT_S)}
    cx.execute(SQL.deaths_fold, month)
    cx.execute(SQL.deaths_forget, month)
    cx.execute(SQL.owners_forget)
