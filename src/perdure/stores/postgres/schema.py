"""The schema in one database.

Always true: an upgrade is one transaction under an advisory lock, so it is there whole or not at all, and two
that upgrade at once apply each step once. Who may read what was applied may open the store; who may make
tables may upgrade it.
"""

import psycopg

from perdure.model.errors import PerdureError, StoreDenied
from perdure.model.views import SchemaStatus
from perdure.stores.migrations import check_current, check_fits, migrations, status_of
from perdure.stores.postgres.connection import LOCK_MS_MAX, PostgresConnection
from perdure.stores.postgres.connection_pool import Cx, patient

PACKAGE = "perdure.stores.postgres"

_LOCK = 0x7065726475  # one upgrade at a time in a database, whoever begins it
_TURN_S_MAX = 60  # to wait for an upgrade that somebody else has begun

_TABLE = """
CREATE TABLE IF NOT EXISTS perdure_migrations (
    number      bigint PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    compat_min  bigint NOT NULL,
    applied_at  bigint NOT NULL
)
"""

_NAMES = """
SELECT CAST(current_user AS text), (
    SELECT CAST(pg_get_userbyid(relowner) AS text) FROM pg_class WHERE oid = to_regclass('perdure_migrations')
)
"""
# No right in the schema, and no schema in the search_path where the role has one.
_MAY_NOT = (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName)


class PostgresSchema:
    """The `Schema` port on one database."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def status(self) -> SchemaStatus:
        """Where the schema stands."""
        with self._connection.autocommit() as cx:
            return status_of(
                self._connection.shown_url, _applied_migrations(cx), migrations(PACKAGE)
            )

    def upgrade(self) -> tuple[str, ...]:
        """Apply what is pending, all in one transaction, under a lock."""
        try:
            return self._connection.write(self._apply)
        except PerdureError as denied:
            if not isinstance(denied.__cause__, _MAY_NOT):
                raise
            raise StoreDenied(self._whose_upgrade(denied)) from denied

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def check(self) -> None:
        """Refuse a schema that this version must not touch."""
        with self._connection.autocommit() as cx:
            check_current(
                self._connection.shown_url,
                _applied_migrations(cx),
                migrations(PACKAGE),
                owner=lambda: _names(cx)[1],
            )

    def _whose_upgrade(self, denied: PerdureError) -> str:
        """That this role may not do it, and who must."""
        with self._connection.autocommit() as cx:
            role, owner = _names(cx)
        whose = "a role that may; the tables will be its own" if owner is None else repr(owner)
        deed = "make tables" if owner is None else f"change the tables, which are {owner!r}'s"
        return (
            f"{self._connection.shown_url}: the role {role!r} may not {deed} ({_one_line(denied)}); run: "
            f"perdure db upgrade --store URL, with the URL of {whose}; then grant {role!r} its rights: see "
            "docs/postgres.md"
        )

    def _apply(self, cx: Cx, now: int) -> tuple[str, ...]:
        with patient(cx):
            cx.execute(f"SET LOCAL lock_timeout = '{_TURN_S_MAX}s'")
            cx.execute("SET LOCAL statement_timeout = 0")
            cx.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            # Who waits for a table stops others.
            cx.execute(f"SET LOCAL lock_timeout = {LOCK_MS_MAX}")
            return self._apply_under_lock(cx, now)

    def _apply_under_lock(self, cx: Cx, now: int) -> tuple[str, ...]:
        known = migrations(PACKAGE)
        applied = _applied_migrations(cx)
        check_fits(self._connection.shown_url, applied, known)
        pending = [one for one in known if one.number not in applied]
        if pending:
            cx.execute(_TABLE)
        for one in pending:
            cx.execute(one.sql.encode())
            cx.execute(
                "INSERT INTO perdure_migrations VALUES (%s, %s, %s, %s, %s)",
                (one.number, one.name, one.checksum, one.compat_min, now),
            )
        return tuple(one.label for one in pending)


def _one_line(denied: PerdureError) -> str:
    return " ".join(str(denied.__cause__).split())


def _names(cx: Cx) -> tuple[str, str | None]:
    """Who is connected, and who owns the tables."""
    ((role, owner),) = cx.execute(_NAMES).fetchall()
    return role, owner


def _applied_migrations(cx: Cx) -> dict[int, tuple[str, int]]:
    row = cx.execute("SELECT to_regclass('perdure_migrations') IS NOT NULL").fetchone()
    if row != (True,):
        return {}
    rows = cx.execute("SELECT number, checksum, compat_min FROM perdure_migrations").fetchall()
    return {number: (checksum, compat_min) for number, checksum, compat_min in rows}
