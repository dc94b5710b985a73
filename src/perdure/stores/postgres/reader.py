"""The reads on one PostgreSQL database; what takes more than one statement sees one snapshot."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from perdure.model.changes import ChangePage
from perdure.model.diagnoses import StoreCondition
from perdure.model.gates import GateLook
from perdure.model.limits import CHANGE_PAGE_ROWS
from perdure.stores.audit_checks import CHECKS
from perdure.stores.job_lists import Dialect, Fetch
from perdure.stores.postgres import change_feed
from perdure.stores.postgres.claim import array
from perdure.stores.postgres.connection import SETTINGS_ASKED, PostgresConnection
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.gates import look
from perdure.stores.postgres.statements import SQL
from perdure.stores.reader import SharedReader
from perdure.stores.rows import Row
from perdure.stores.statements import as_psycopg_reads

AUDIT: dict[str, str] = dict(CHECKS)

# The rows of a step are found first (OFFSET 0 keeps them apart): what else a filter says must not lead to another index.
DIALECT = Dialect(
    "(SELECT * FROM perdure_jobs AS j WHERE {step} OFFSET 0) AS j WHERE true",
    "j.no = ANY (CAST(:nos AS bigint[]))",
    array,
    list,
)

_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class PostgresReader(SharedReader):
    """The `Reader` port on one PostgreSQL database."""

    _sql = SQL
    _dialect = DIALECT
    _checks = AUDIT

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def look(self, names: Sequence[str]) -> GateLook:
        """All there is about these gates and their parents, at one moment."""
        return look(self._connection, names, 0, {})

    def changes(
        self, after: str | None = None, *, until: str | None = None, limit: int = CHANGE_PAGE_ROWS
    ) -> ChangePage:
        """The change feed after a cursor; None begins now."""
        with self._connection.autocommit() as cx:
            return change_feed.changes(cx, after, until, limit)

    def condition(self) -> StoreCondition:
        """What the server says of itself, in one statement; what a plain role may not see, it counts."""
        asked = {"names": list(SETTINGS_ASKED), "values": list(SETTINGS_ASKED.values())}
        with self._connection.autocommit() as cx:
            row = cx.execute(SQL.condition, asked).fetchone()
        assert row is not None
        number, read_only, lost, missing, idle, snapshot_s, snapshot_of, slots, hidden = row
        return StoreCondition(
            "PostgreSQL",
            (number // 10_000, number % 10_000),
            read_only=read_only,
            pooled=self._connection.pooled,
            settings_lost=tuple(lost),
            rights_missing=tuple(missing),
            idle_vacuum=tuple(idle),
            snapshot_s=snapshot_s,
            snapshot_of=snapshot_of or "",
            slots_left=tuple(slots),
            sessions_hidden=hidden,
        )

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _rows(self, sql: str, values: Mapping[str, object]) -> Sequence[Row]:
        with self._connection.autocommit() as cx:
            return _fetching(cx)(sql, values)

    @contextmanager
    def _snapshot(self) -> Iterator[Fetch]:
        with self._connection.autocommit() as cx, cx.transaction():
            cx.execute(_SNAPSHOT, prepare=False)  # more than one command cannot be prepared
            yield _fetching(cx)

    @contextmanager
    def _walking(self, *, by_index: bool = False) -> Iterator[Fetch]:
        with self._connection.walking(by_index=by_index) as cx:
            yield _fetching(cx)

    def _now_us(self) -> int:
        with self._connection.autocommit() as cx:
            return self._connection.store_now(cx)

    def _is_id(self, id: str) -> bool:
        """The server refuses to compare an id with what is none."""
        try:
            return str(UUID(id)) == id
        except ValueError:
            return False


def _fetching(cx: Cx) -> Fetch:
    def fetch(sql: str, values: Mapping[str, object]) -> Sequence[Row]:
        if not values:  # then a percent sign is one
            return cx.execute(sql).fetchall()
        return cx.execute(as_psycopg_reads(sql), values).fetchall()

    return fetch
