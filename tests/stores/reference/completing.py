"""A record in a transaction that is not the store's: what the reference model makes of that.

A job whose record stands in an open transaction is held by it. Nobody else sees anything of it before the
commit, and who must not wait is told that the job is busy.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from perdure.model.errors import BugError, CallerError, WorkerDead
from perdure.model.jobs import Busy, Receipt, Record, Settled, Stale
from perdure.model.states import AttemptStatus
from tests.stores.reference.tables import Tables


class Lent:
    """A transaction of somebody's own on the tables of a model."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.within = self
        self.records: dict[tuple[int, int], Callable[[], Settled]] = {}

    def commit(self) -> None:
        """Now it has happened."""
        with self.tables.written(self):
            for write in self.records.values():
                write()
            self._let_go()

    def rollback(self) -> None:
        """It has never happened."""
        with self.tables.written(self):
            self._let_go()

    def _let_go(self) -> None:
        for no, _ in self.records:
            del self.tables.lent[no]
        self.records = {}


class Notary:
    """The part of the `Store` port that is about transactions which are not the store's."""

    _tables: Tables

    def settle_one(self, record: Record, by: int | None, now: datetime) -> Settled:
        """As the store writes a record."""
        raise NotImplementedError

    def _settled_before(self, record: Record, by: int | None) -> Receipt | Stale:
        raise NotImplementedError

    def complete(self, record: Record, *, by: int, within: object) -> Settled | Busy:
        """Try it, undo it, and do it again at the commit."""
        if record.reclaim:
            raise BugError(f"job {record.id} cannot be claimed again in another's transaction")
        if not isinstance(within, Lent) or within.tables is not self._tables:
            raise CallerError("within is no transaction of this reference model")
        with self._tables.written(self) as now:
            if not self._tables.is_alive(by):
                raise WorkerDead(f"worker {by} was declared dead, so nothing it says counts")
            holder = self._tables.lent.get(record.no)
            if holder is not None and holder is not within:
                return Busy(record.no, record.id, record.token)
            if (record.no, record.token) in within.records:
                return Receipt(
                    record.no, record.id, record.token, record.state, None, repeated=True
                )
            job = self._tables.jobs.get(record.no)
            if job is None or job.token != record.token:
                return self._settled_before(record, by)
            answer = self._tried(record, by, now)
            if isinstance(answer, Receipt):
                write = partial(self.settle_one, record, by, now)
                within.records[record.no, record.token] = write
                self._tables.lent[record.no] = within
            return answer

    def _tried(self, record: Record, by: int, now: datetime) -> Settled:
        with self._tables.undone():
            return self.settle_one(record, by, now)

    def ends_of(self, claims: Sequence[tuple[int, int]]) -> dict[tuple[int, int], AttemptStatus]:
        """Those that have left a row."""
        with self._tables.read():
            found = {one: self._tables.attempts.get(one) for one in claims}
            return {one: row.told.status for one, row in found.items() if row is not None}
