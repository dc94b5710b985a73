"""Connections to one database: settings, the store's time, transactions.

Always true: a transaction is READ COMMITTED, has bounds on statements, locks and idleness, and reads the
store's clock (the server's, unless a test brings its own) once. No transaction is open while a stage runs.

Behind a pooler in transaction mode nothing may live in a session: no prepared statements, no LISTEN, no
session settings. We find out by what the server says about the settings that we asked for when connecting;
a pooler refuses or drops them.

If the connection breaks, the caller does not know whether its transaction was committed, and gets
`StoreUnavailable`; it sends the same call again, which the ids, keys and tokens make harmless.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from perdure.model.errors import ConfigError, StoreBusy
from perdure.ports import Clock
from perdure.stores.moments import to_us
from perdure.stores.postgres.errors import ROLLED_BACK, named, translated
from perdure.stores.postgres.lending import Cx, Lender

VERSION_MIN = 150000
CONNECTIONS_MAX = 8  # a worker's pump needs one; threads of an API share the rest
STATEMENT_MS_MAX = 30_000  # a turn takes milliseconds; what takes longer is stuck
LOCK_MS_MAX = 5_000  # rows are locked for the length of a turn
IDLE_MS_MAX = 30_000  # an open transaction of a process that has stopped must not hold others up
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
}

# A half-open line is noticed within 15 seconds.
_KEEPALIVE = {
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "14000",
}

_PLACE = "SELECT pg_postmaster_start_time()::text, current_database()"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class Connection:
    """What the store, the control and the reader of one process share."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        wait_s_max: float = 10.0,
        size_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.shown_url = shown(url)
        self.pooled = False
        self._clock = clock
        self._place: str | None = None
        self._conninfo, self._options = _arguments(url, wait_s_max)
        self._lender = Lender(self._connect, size_max=size_max, wait_s_max=wait_s_max)
        with translated(self.shown_url), self._lender.lent():
            pass  # a wrong address or password shows now, not at the first job

    @contextmanager
    def lent(self) -> Iterator[Cx]:
        """A connection in autocommit: each statement, or each pipeline, is a transaction."""
        with translated(self.shown_url), self._lender.lent() as cx:
            yield cx

    @contextmanager
    def transaction(self, *, walking: bool = False) -> Iterator[tuple[Cx, int]]:
        """One transaction, and the store's time in microseconds.

        A report that looks at whole tables says ``walking``: its plans may then walk and hash.
        """
        with self.lent() as cx, cx.transaction():
            if walking:
                cx.execute(
                    "SELECT set_config('enable_seqscan', 'on', true), "
                    "set_config('enable_hashjoin', 'on', true), "
                    "set_config('enable_mergejoin', 'on', true)"
                )
            yield cx, self.store_now(cx)

    def written(self, work: Callable[[Cx, int], T]) -> T:
        """Do some work in one transaction; again, if the server rolled it back for another's sake."""
        for left in reversed(range(_TRIES_MAX)):
            try:
                with self._lender.lent() as cx, cx.transaction():
                    return work(cx, self.store_now(cx))
            except psycopg.Error as error:
                if error.sqlstate not in ROLLED_BACK or not left:
                    raise named(error, self.shown_url) from error
        raise StoreBusy(f"store {self.shown_url}: others were in the way")  # pragma: no cover

    def resent(self, work: Callable[[Cx], T]) -> T:
        """As `written`, for work that is a single statement and needs no transaction around it."""
        for left in reversed(range(_TRIES_MAX)):
            try:
                with self._lender.lent() as cx:
                    return work(cx)
            except psycopg.Error as error:
                if error.sqlstate not in ROLLED_BACK or not left:
                    raise named(error, self.shown_url) from error
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

    @property
    def place(self) -> str:
        """Which database this is, whatever name or route led there."""
        if self._place is None:
            with self.lent() as cx:
                self._place = self.place_of(cx)
        return self._place

    @staticmethod
    def place_of(cx: Cx) -> str:
        """Server and database behind a connection: when the server started, and the name."""
        row = cx.execute(_PLACE).fetchone()
        assert row is not None
        return f"database {row[1]!r} of the server started {row[0]}"

    def close(self) -> None:
        """Disconnect."""
        self._lender.close()

    def apart(self) -> Cx:
        """A connection of its own, for listening."""
        with translated(self.shown_url):
            return self._connect()

    def _connect(self) -> Cx:
        cx = self._called()
        _check_version(cx, self.shown_url)
        row = cx.execute("SELECT current_setting('enable_hashjoin')").fetchone()
        self.pooled = self.pooled or row != ("off",)
        if self.pooled:
            cx.prepare_threshold = None
        return cx

    def _called(self) -> Cx:
        if not self.pooled:
            try:
                return psycopg.connect(self._conninfo, options=self._options, autocommit=True)
            except psycopg.OperationalError as error:
                if "unsupported startup parameter" not in str(error):
                    raise
                self.pooled = True
        return psycopg.connect(self._conninfo, autocommit=True)


def shown(url: str) -> str:
    """The URL without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    place = parts.netloc.replace(f":{parts.password}@", ":***@")
    return urlunsplit(parts._replace(netloc=place))


def _arguments(url: str, wait_s_max: float) -> tuple[str, str]:
    """What to connect with; what the URL says beats our own."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError as error:
        raise ConfigError(
            f"store {shown(url)!r} is not a URL of PostgreSQL ({str(error).strip()}); write "
            "postgresql://user:password@host:5432/database"
        ) from None
    ours = {
        **_KEEPALIVE,
        "connect_timeout": str(max(2, round(wait_s_max))),
        "application_name": f"perdure {os.getpid()}",
    }
    settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    options = f"{settings} {given.pop('options', '')}".strip()
    return make_conninfo(**{**ours, **given}), options


def _check_version(cx: Cx, shown_url: str) -> None:
    found = cx.info.server_version
    if found < VERSION_MIN:
        cx.close()
        raise ConfigError(
            f"{shown_url} is PostgreSQL {found // 10000}; Perdure needs {VERSION_MIN // 10000} or newer"
        )
