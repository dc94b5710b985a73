"""Records beside a turn: in a stage's own transaction, and those of jobs that a stage may have in one.

Always true: nobody here waits for a job. Its row is locked first, if it is free and has the token that was seen; what
another transaction holds is `Busy`. On a stage's connection no row is locked but its job's and its own counts.

Who is authoritative: the token. A stage's transaction may be open for long, and its worker be declared dead
meanwhile: whoever would settle the job then finds its row held, and after the commit another token.

If we die in the middle, nothing has happened; so it is with the stage's transaction, which is not ours.
"""

from collections.abc import Callable, Sequence

from perdure.model.jobs import Busy, Record, Settled
from perdure.model.states import AttemptStatus, State
from perdure.stores.borrowed_connection import check_lendable
from perdure.stores.postgres.connection import PostgresConnection
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.enqueue_within import join
from perdure.stores.postgres.notify import NotifySender
from perdure.stores.postgres.record import (
    UNWRITABLE,
    busy_among,
    check_alive,
    is_bad_row,
    record_all,
    record_each,
)
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import encode

_Recorder = Callable[
    [Cx, Sequence[Record], int | None, int | None], tuple[tuple[Settled, ...], bool]
]


class PostgresCompleting:
    """The part of the `Store` port that settles without waiting, and in transactions that are not the store's."""

    _connection: PostgresConnection
    _notify_sender: NotifySender

    def settle(self, records: Sequence[Record], *, by: int | None) -> tuple[Settled | Busy, ...]:
        """As a turn that claims nothing, and waits for no job."""
        if not records:
            return ()
        with self._connection.autocommit() as cx:
            try:
                done = self._settle(cx, records, by, record_all)
            except UNWRITABLE as error:
                if not is_bad_row(error):
                    raise
                done = self._settle(cx, records, by, record_each)
        if any(one.state is State.QUEUED and not one.delay_s for one in records):
            self._notify_sender.tell()
        return done

    def complete(self, record: Record, *, by: int, within: object) -> Settled | Busy:
        """Write a record in its stage's own transaction, without a lock on the worker's row."""
        check_lendable(record)
        with join(within, self._connection) as cx:
            for busy in busy_among(cx, [record]):
                return busy
            settled, alive = record_each(cx, [record], by, self._connection.now(), lent=True)
            check_alive(alive, by)
            return settled[0]

    def ends_of(self, claims: Sequence[tuple[int, int]]) -> dict[tuple[int, int], AttemptStatus]:
        """How these attempts, each a job and its token, have ended."""
        asked = encode([{"no": no, "token": token} for no, token in claims])
        with self._connection.autocommit() as cx:
            rows = cx.execute(SQL.attempts_ended, {"claims": asked}).fetchall()
        return {(no, token): AttemptStatus(status) for no, token, status in rows}

    def _settle(
        self, cx: Cx, records: Sequence[Record], by: int | None, record: _Recorder
    ) -> tuple[Settled | Busy, ...]:
        with cx.transaction():
            busy = busy_among(cx, records)
            held = {one.no for one in busy}
            free = [one for one in records if one.no not in held]
            settled, alive = record(cx, free, by, self._connection.now())
            check_alive(alive, by)
        return (*settled, *busy)
