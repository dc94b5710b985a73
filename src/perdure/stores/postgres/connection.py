"""Connections to one database: settings, the store's time, transactions.

Always true: a transaction is READ COMMITTED, has bounds on statements, locks and idleness, and reads the
store's clock (the server's, unless a test brings its own) once; committed, it is on stable storage, unless the
URL itself says otherwise. No transaction is open while a stage runs.

Behind a pooler in transaction mode nothing may live in a session: no prepared statements, no LISTEN, no
session settings. We find out by a mark among the settings that we ask for when connecting: a pooler refuses
or drops them, and the mark is not there. One that keeps them shows itself by statements that were prepared
and are not found.

If the connection breaks, the caller does not know whether its transaction was committed, and gets
`StoreUnavailable`; it sends the same call again, which the ids, keys and tokens make harmless.
"""

import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from perdure.model.errors import ConfigError, StoreBusy, StoreError
from perdure.model.secret import Secret
from perdure.ports import Clock
from perdure.stores.moments import to_us
from perdure.stores.postgres.connection_pool import Cx, Lender, LentConnection, patient
from perdure.stores.postgres.errors import POOLED, ROLLED_BACK, error_of, translate_errors
from perdure.stores.urls import shown_url

log = logging.getLogger("perdure")

VERSION_MIN = 150000
CONNECTIONS_MAX = 8  # a worker's pump needs one; threads of an API share the rest
STATEMENT_MS_MAX = 30_000  # a turn takes milliseconds; what takes longer is stuck
LOCK_MS_MAX = 5_000  # rows are locked for the length of a turn
IDLE_MS_MAX = 30_000  # an open transaction of a process that has stopped must not hold others up
WALK_S_MAX = 1800  # a report over all jobs
ANSWER_MORE_S = 5.0  # a server that is still there reports a statement's end within this
_TRIES_MAX = 5  # of a transaction that the server rolled back for the sake of another

T = TypeVar("T")

# Plans that stay good while the tables grow under a prepared statement: by index, never by a walk.
_SETTINGS = {
    "default_transaction_isolation": r"read\ committed",
    "statement_timeout": str(STATEMENT_MS_MAX),
    "lock_timeout": str(LOCK_MS_MAX),
    "idle_in_transaction_session_timeout": str(IDLE_MS_MAX),
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",  # a claim that is planned each time costs 0.5 ms more
    "perdure.direct": "on",  # the mark
}

# Those of them that a pooler drops, as the server's own table has them.
SETTINGS_ASKED = {
    name: value.replace("\\ ", " ") for name, value in _SETTINGS.items() if "." not in name
}

# A half-open line is noticed within 15 seconds.
_KEEPALIVE = {
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "14000",
}

_PATIENT = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; "
    f"SET LOCAL statement_timeout = '{WALK_S_MAX}s'"
)
# Without nested loops: before a table was first analysed, its planner would take it for small.
_WALKING = (
    f"{_PATIENT}; "
    "SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; "
    "SET LOCAL enable_nestloop = off"
)

# What a pooler says to settings that it does not pass on: PgBouncer, Amazon RDS Proxy.
_REFUSED = ("unsupported startup parameter", "command-line options")

_GREETING = """
SELECT current_setting('perdure.direct', true),
    extract(epoch FROM current_setting('statement_timeout')::interval)::float8,
    current_setting('synchronous_commit')
"""
_PLACE = """
SELECT extract(epoch FROM pg_postmaster_start_time())::text, current_database(),
    to_regclass('perdure_jobs')::oid::bigint
"""
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class ServerPlace(NamedTuple):
    """Which tables a connection leads to, whatever name or route led there."""

    started: str
    database: str
    table: int | None

    @classmethod
    def of(cls, cx: Cx) -> "ServerPlace":
        """Where this connection leads."""
        row = cx.execute(_PLACE).fetchone()
        assert row is not None
        return cls(*row)


class PostgresConnection:
    """What the store, the control and the reader of one process share."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        wait_s_max: float = 10.0,
        size_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.shown_url = shown_url(url)
        self.pooled = False
        self._warned = False
        self.place: ServerPlace | None = None
        self._clock = clock
        self._conninfo, self._options = _arguments(url, wait_s_max)
        self._lender = Lender(self._connect, size_max=size_max, wait_s_max=wait_s_max)
        with translate_errors(self.shown_url), self._lender.lend():
            pass  # a wrong address or password shows now, not at the first job

    @contextmanager
    def autocommit(self) -> Iterator[Cx]:
        """A connection in autocommit: each statement, or each pipeline, is a transaction."""
        try:
            with self._lender.lend() as cx:
                yield cx
        except psycopg.Error as error:
            raise self._error_of(error) from error

    @contextmanager
    def transaction(self) -> Iterator[tuple[Cx, int]]:
        """One transaction, and the store's time in microseconds."""
        with self.autocommit() as cx, cx.transaction():
            yield cx, self.store_now(cx)

    @contextmanager
    def walking(self, *, by_index: bool = False) -> Iterator[Cx]:
        """A snapshot for a report over whole tables, which may walk and hash, and take its time.

        With ``by_index``, for one over a part of them, which goes by index as everything else does.
        """
        settings = _PATIENT if by_index else _WALKING
        with self.autocommit() as cx, patient(cx, WALK_S_MAX + ANSWER_MORE_S), cx.transaction():
            cx.execute(settings, prepare=False)  # more than one command cannot be prepared
            yield cx

    def write(self, work: Callable[[Cx, int], T]) -> T:
        """Do some work in one transaction; again, if the server rolled it back for another's sake."""

        def in_transaction(cx: Cx) -> T:
            with cx.transaction():
                return work(cx, self.store_now(cx))

        return self.resend(in_transaction)

    def resend(self, work: Callable[[Cx], T]) -> T:
        """As `write`, for work that is a single statement and needs no transaction around it."""
        for left in reversed(range(_TRIES_MAX)):
            try:
                with self._lender.lend() as cx:
                    return work(cx)
            except psycopg.Error as error:
                if error.sqlstate not in ROLLED_BACK or not left:
                    raise self._error_of(error) from error
        raise StoreBusy(f"store {self.shown_url}: others were in the way")  # pragma: no cover

    def monotonic(self) -> float:
        """Seconds that never go backwards, for measuring."""
        return time.monotonic() if self._clock is None else self._clock.monotonic()

    def now(self) -> int | None:
        """The time that a test has set; None means that a statement takes the server's."""
        return None if self._clock is None else to_us(self._clock.now())

    def store_now(self, cx: Cx) -> int:
        """The store's time."""
        given = self.now()
        if given is not None:
            return given
        row = cx.execute(_NOW).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        """Disconnect."""
        self._lender.close()

    def connect_apart(self) -> Cx:
        """A connection of its own, for listening."""
        with translate_errors(self.shown_url):
            return self._connect()

    def _error_of(self, error: psycopg.Error) -> StoreError:
        if error.sqlstate in POOLED:
            self.pooled = True
            self._lender.drop_idle()  # they have prepared statements
        return error_of(error, self.shown_url)

    def _connect(self) -> Cx:
        cx = self._borrow()
        try:
            self._greet(cx)
        except (psycopg.Error, ConfigError):
            cx.close()
            raise
        return cx

    def _greet(self, cx: LentConnection) -> None:
        _check_server(cx, self.shown_url)
        row = cx.execute(_GREETING, prepare=False).fetchone()
        assert row is not None
        mark, statement_s, durable = row
        self.pooled = self.pooled or mark != "on"
        if self.pooled:
            cx.prepare_threshold = None
            if durable == "off" and not self._warned:
                self._warned = True
                log.warning(
                    "%s answers before it has written (synchronous_commit is off), and a pooler keeps us "
                    "from changing that: ALTER ROLE … SET synchronous_commit = on",
                    self.shown_url,
                )
        elif durable == "off" and "synchronous_commit" not in self._options[1]:
            cx.execute("SET synchronous_commit = on")  # what is accepted is on stable storage
        if not statement_s:  # behind a pooler nobody has decided so
            statement_s = STATEMENT_MS_MAX / 1000 if self.pooled else math.inf
        cx.answer_s_max = statement_s + ANSWER_MORE_S

    def _borrow(self) -> LentConnection:
        ours, theirs = self._options
        if not self.pooled:
            try:
                return LentConnection.connect(
                    self._conninfo.reveal(), options=f"{ours} {theirs}".strip(), autocommit=True
                )
            except psycopg.OperationalError as error:
                if not any(words in str(error) for words in _REFUSED):
                    raise
                self.pooled = True
        return LentConnection.connect(self._conninfo.reveal(), options=theirs, autocommit=True)


def _arguments(url: str, wait_s_max: float) -> tuple[Secret, tuple[str, str]]:
    """What to connect with, and our settings and theirs; what the URL says beats our own."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError as error:
        raise _not_a_url(url, str(error)) from None
    if "@" in given.get("host", "") or not re.fullmatch(r"[0-9,]*", given.get("port", "")):
        raise _not_a_url(url, "")  # the rest of a password that is not encoded
    ours = {
        **_KEEPALIVE,
        "connect_timeout": str(max(2, round(wait_s_max))),
        "application_name": f"perdure {os.getpid()}",
    }
    settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    theirs = given.pop("options", "")
    conninfo = make_conninfo(**{**ours, **given, "client_encoding": "utf8"})
    return Secret(conninfo), (settings, theirs)


def _not_a_url(url: str, said: str) -> ConfigError:
    # Of what libpq says only this is sure not to quote a part of the password.
    quotable = "invalid URI query parameter" in said and "@" not in url.partition("?")[2]
    why = f" ({said.strip()})" if quotable else ""
    return ConfigError(
        f"store {shown_url(url)!r} is not a URL of PostgreSQL{why}; write "
        "postgresql://user:password@host:5432/database, with signs such as @ : / ? # % in user and "
        "password percent-encoded"
    )


def _check_server(cx: Cx, name: str) -> None:
    found = cx.info.server_version
    if found < VERSION_MIN:
        raise ConfigError(
            f"{name} is PostgreSQL {found // 10000}; Perdure needs {VERSION_MIN // 10000} or newer"
        )
    encoding = cx.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ConfigError(
            f"{name} has the encoding {encoding}, which cannot hold every text; make the "
            "database anew: createdb --encoding=UTF8 --template=template0"
        )
