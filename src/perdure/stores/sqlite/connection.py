"""One connection to one file: settings, transactions, checkpoints, and every driver error named.

Always true: a write transaction begins with BEGIN IMMEDIATE while we hold the turnstile, reads the
store's clock once, and is on the disk (synchronous=FULL) before `write` returns. Automatic
checkpoints are off on every connection; whoever finds more than 16 MB of log after its commit
checkpoints while it still holds the turnstile, so that no two connections ever write or
checkpoint at the same instant (SQLite up to 3.51.2 can corrupt a database then).

A process that was forked off may neither use nor keep what its parent has opened: SQLite takes the parent's locks for its
own there, and would leave the file without any when the parent ends. So nobody is in the middle of anything here when
a process forks; the child closes its copies, and opens its own when it first needs one.

If we die: before COMMIT nothing has happened, after it everything has. The kernel frees our locks.
"""

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from enum import Enum, auto
from pathlib import Path
from weakref import WeakSet

from perdure.model.errors import (
    ConfigError,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from perdure.ports import Clock
from perdure.stores.moments import to_us
from perdure.stores.sqlite.network_drive import warn_of_network
from perdure.stores.sqlite.turnstile import Turnstile

VERSION_MIN = (3, 38, 0)  # the ->> operator
WAL_BYTES_MAX = 16 * 1024 * 1024
MEMORY = ":memory:"


class _State(Enum):
    OPEN = auto()
    LEFT = auto()  # to our parent, and not yet opened here
    # Our parent was in the middle of something: it can be neither used nor closed.
    STRANDED = auto()
    CLOSED = auto()


class SqliteConnection:
    """A connection that any thread may use, one at a time.

    One that is only ``looking`` leaves a file that may be somebody else's as it is. It reads also where nothing may be written.
    """

    def __init__(
        self, path: str, clock: Clock, *, wait_s_max: float = 10.0, looking: bool = False
    ) -> None:
        if sqlite3.sqlite_version_info < VERSION_MIN:
            raise ConfigError(
                f"SQLite {sqlite3.sqlite_version} is too old; Perdure needs 3.38 or newer"
            )
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self._wait_ms_max = round(wait_s_max * 1000)
        self._checkpoint_again_at = 0.0
        self._wait_s_max = wait_s_max
        self._looking = looking
        self._turnstile: Turnstile | None = None
        self._state = _State.OPEN
        with translate_errors(path):
            # Once and for all: a program may go to another folder, and its log stays where it is.
            self.path = path if path == MEMORY else str(Path(path).absolute())
        with _REGISTER:
            _ALL.add(self)
        with translate_errors(path), self._one_at_a_time:
            self._open()

    def _open(self) -> None:
        with ExitStack() as undo:
            alone = self._looking and is_others_file(self.path) and self._may_be_read_alone()
            self._connect(self._as_it_is() if alone else self.path, uri=alone)
            undo.callback(self.raw.close)
            if self.path != MEMORY and not self._looking:
                warn_of_network(self.path)
                self._turnstile = Turnstile(self.path, wait_s_max=self._wait_s_max)
                undo.callback(self._turnstile.close)
            try:
                self._settings()
            except sqlite3.OperationalError:
                if not self._looking or not self._is_at_rest() or not self._is_in_closed_folder():
                    raise
                self.raw.close()
                self._connect(self._as_it_is(), uri=True)
                undo.callback(self.raw.close)
                self._settings()
            undo.pop_all()

    def _connect(self, target: str, *, uri: bool = False) -> None:
        self.raw = sqlite3.connect(
            target, timeout=self._wait_s_max, isolation_level=None, check_same_thread=False, uri=uri
        )

    def _as_it_is(self) -> str:
        """The file alone, without the side files of a log: where SQLite cannot make them, or would make them ours."""
        return f"{Path(self.path).as_uri()}?immutable=1"

    def _is_at_rest(self) -> bool:
        """Whether nothing is in the log, so that the file is whole without it."""
        log = Path(f"{self.path}-wal")
        with suppress(OSError):
            return not (log.exists() and log.stat().st_size)
        return False

    def _may_be_read_alone(self) -> bool:
        """Whether the file is whole without its log; refuses a log whose index we would have to make."""
        if self._is_at_rest():
            return True
        if not os.access(f"{self.path}-shm", os.F_OK):
            raise StoreReadOnly(
                f"store {self.path!r} was left with a log, which only who may write it can take in; make the file "
                "and its folder writable, or copy it, with its -wal file, to a folder of yours"
            )
        return False

    def _is_in_closed_folder(self) -> bool:
        return not os.access(Path(self.path).parent, os.W_OK)

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """One thread at a time, on a connection of this process."""
        with translate_errors(self.path), self._one_at_a_time:
            if self._state is _State.STRANDED:
                raise StoreUnavailable(
                    f"{self.path!r} was being written for long while this process was forked off, and "
                    "cannot be opened again here; end this process, and fork when less goes on"
                )
            if self._state is _State.LEFT:
                self._open()
                self._state = _State.OPEN
            yield

    def begin_anew(self, *, idle: bool) -> None:
        """In a process that was forked off; ``idle`` if nobody was in the middle of something here."""
        self._one_at_a_time = threading.Lock()
        if self.path == MEMORY or self._state is not _State.OPEN:
            return  # what is in memory was copied
        self._turnstile = None  # which has left the line by itself
        self._state = _State.LEFT if idle else _State.STRANDED
        if idle:
            with suppress(sqlite3.Error):
                self.raw.close()

    def _settings(self) -> None:
        (journal,) = self.raw.execute("PRAGMA journal_mode").fetchone()
        if journal != "wal" and self._turnstile:  # a fresh file; readers never wait in line
            with self._turnstile.hold():
                self.raw.execute("PRAGMA journal_mode = WAL")
        for pragma in (
            "synchronous = FULL",
            "wal_autocheckpoint = 0",
            "mmap_size = 0",
            "foreign_keys = ON",
            "trusted_schema = OFF",
        ):
            self.raw.execute(f"PRAGMA {pragma}")

    @contextmanager
    def write(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        """A write transaction: the connection and the store's time in microseconds."""
        with self._ours(), self._turnstile.hold() if self._turnstile else nullcontext():
            self.raw.execute("BEGIN IMMEDIATE")
            try:
                yield self.raw, self.now()
                self.raw.execute("COMMIT")
            finally:
                if self.raw.in_transaction:
                    self.raw.execute("ROLLBACK")
            self._checkpoint_when_long()

    @contextmanager
    def rebuild(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        """As `write`, for a schema in the making: foreign keys are off and renames touch no others."""
        with self._ours():
            self.raw.execute("PRAGMA foreign_keys = OFF")
            self.raw.execute("PRAGMA legacy_alter_table = ON")
        try:
            with self.write() as opened:
                yield opened
        finally:
            self.raw.execute("PRAGMA legacy_alter_table = OFF")
            self.raw.execute("PRAGMA foreign_keys = ON")

    @contextmanager
    def read(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        """A consistent read: the connection and the store's time in microseconds."""
        with self._ours():
            self.raw.execute("BEGIN")
            try:
                yield self.raw, self.now()
            finally:
                if self.raw.in_transaction:
                    self.raw.execute("COMMIT")

    def write_mark(self) -> int:
        """A number that moves when another connection has written."""
        with self._ours():
            (version,) = self.raw.execute("PRAGMA data_version").fetchone()
            return int(version)

    def now(self) -> int:
        """The store's time. On one machine that is the machine's."""
        return to_us(self._clock.now())

    def close(self) -> None:
        """Disconnect."""
        with self._one_at_a_time:
            if self._state is not _State.STRANDED:
                self.raw.close()
            self._state = _State.CLOSED
            if self._turnstile:
                self._turnstile.close()
                self._turnstile = None

    def _checkpoint_when_long(self) -> None:
        try:
            long = Path(f"{self.path}-wal").stat().st_size > WAL_BYTES_MAX
        except FileNotFoundError:
            return
        if long and time.monotonic() >= self._checkpoint_again_at:
            self.raw.execute("PRAGMA busy_timeout = 50")  # a long reader must not hold the line
            with suppress(sqlite3.OperationalError):  # the commit stands; the next one tries again
                (blocked, *_) = self.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if blocked:  # by a reader, who may stay long
                    self._checkpoint_again_at = time.monotonic() + 1.0
            self.raw.execute(f"PRAGMA busy_timeout = {self._wait_ms_max}")


# -- forks ---------------------------------------------------------------------------------

_FORK_S_MAX = 5.0  # for what is under way to end; a transaction takes milliseconds

_ALL: "WeakSet[SqliteConnection]" = WeakSet()
_REGISTER = threading.Lock()
_held: list[SqliteConnection] = []


def _before_fork() -> None:
    """Wait until nobody is in the middle of anything: a copy of that could be neither used nor closed."""
    _REGISTER.acquire()
    give_up_at = time.monotonic() + _FORK_S_MAX
    _held.extend(
        one
        for one in list(_ALL)
        if one._one_at_a_time.acquire(timeout=max(0.0, give_up_at - time.monotonic()))
    )


def _go_on() -> None:
    for one in _held:
        one._one_at_a_time.release()
    _held.clear()
    _REGISTER.release()


def _in_child() -> None:
    idle = set(_held)
    for one in list(_ALL):
        one.begin_anew(idle=one in idle)
    _held.clear()
    _REGISTER.release()


os.register_at_fork(before=_before_fork, after_in_parent=_go_on, after_in_child=_in_child)


@contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Every driver error as one of ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _error_of(error, path) from error
    except OSError as error:
        kind = StoreReadOnly if error.errno in _READ_ONLY else StoreUnavailable
        raise kind(
            f"cannot open {path!r}: {error.strerror or error}; check that its folder exists and "
            "that you may write there"
        ) from error


_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


_BY_CODE: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_BUSY_SNAPSHOT": (
        StoreBusy,
        "others have written since this transaction first read; roll back, and begin with BEGIN IMMEDIATE",
    ),
    "SQLITE_BUSY": (StoreBusy, "another connection holds it; try again"),
    "SQLITE_LOCKED": (StoreBusy, "another connection holds it; try again"),
    "SQLITE_FULL": (StoreFull, "free some space; nothing that was accepted is lost"),
    "SQLITE_READONLY": (StoreReadOnly, "make the file and its folder writable"),
    "SQLITE_NOTADB": (StoreDamaged, "it is not an SQLite database; name another file"),
    "SQLITE_CORRUPT": (StoreDamaged, "it is damaged; restore a backup"),
    "SQLITE_IOERR": (StoreUnavailable, "the disk reports an error"),
    "SQLITE_PERM": (StoreReadOnly, "make the file and its folder writable"),
}


def _error_of(error: sqlite3.Error, path: str) -> StoreError:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_CANTOPEN"):
        return _why_not_opened(error, Path(path))
    for prefix, (kind, advice) in _BY_CODE.items():
        if name.startswith(prefix):
            return kind(f"store {path!r}: {error}; {advice}")
    return StoreError(f"store {path!r}: {error}")


def _why_not_opened(error: sqlite3.Error, path: Path) -> StoreError:
    """SQLite says only that it cannot open a file; the file system knows why."""
    if os.path.isdir(path):  # noqa: PTH112 - a Path would raise where a folder may not be entered
        return StoreUnavailable(f"store {str(path)!r} is a folder; name a file in it")
    there = path if os.access(path, os.F_OK) else path.parent
    if os.access(there, os.F_OK) and not os.access(there, os.R_OK | os.W_OK):
        return StoreReadOnly(
            f"store {str(path)!r}: {error}; make the file and its folder writable, or copy it, with its -wal file, "
            "to a folder of yours"
        )
    return StoreUnavailable(
        f"store {str(path)!r}: {error}; check that its folder exists and that you may write"
    )


def is_others_file(path: str) -> bool:
    """Whether we may not write this file. Side files that we made beside it would lock out who may."""
    return path != MEMORY and os.access(path, os.F_OK) and not os.access(path, os.W_OK)
