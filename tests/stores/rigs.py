"""Both stores as tests want them: opened empty on a given clock, looked into, damaged and closed."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg

from perdure.stores.opening import Opened, open_store
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.testing import SharedStoreContract, StoreContract, VirtualClock
from tests.stores.kit import MEMORY, connected, file_in, furnished, opened_on
from tests.stores.postgres.kit import until

_TABLES = """
SELECT tablename FROM pg_tables
WHERE tablename LIKE 'perdure\\_%' AND tablename <> 'perdure_migrations' ORDER BY 1
"""
_CHECKS = """
SELECT conrelid::regclass::text, conname FROM pg_constraint
WHERE contype IN ('c', 'f') AND conrelid::regclass::text LIKE 'perdure\\_%'
"""


class Rig(Protocol):
    """A place where a store can be opened again and again."""

    name: str

    def open(self, clock: VirtualClock) -> Opened: ...

    def damage(self, *statements: str) -> None: ...

    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...

    def close(self) -> None: ...


class SqliteRig:
    """In memory: one connection at a time, and nothing of the one before."""

    name = "sqlite"

    def __init__(self) -> None:
        self._connection: SqliteConnection | None = None

    def open(self, clock: VirtualClock) -> Opened:
        self._connection = connected(MEMORY, clock)
        return opened_on(self._connection)

    def damage(self, *statements: str) -> None:
        """Change the tables behind the store's back, as no code of ours would."""
        assert self._connection is not None
        raw = self._connection.raw
        raw.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            raw.execute(statement)
        raw.execute("PRAGMA ignore_check_constraints = OFF")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        assert self._connection is not None
        return self._connection.raw.execute(sql).fetchall()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class PostgresRig:
    """One database that is emptied in between; its numbers are not given again."""

    name = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url
        self._aside = psycopg.connect(url, autocommit=True)

    def open(self, clock: VirtualClock) -> Opened:
        tables = [name for (name,) in self._aside.execute(_TABLES).fetchall()]
        if tables:
            self._aside.execute("; ".join(f"DELETE FROM {name}" for name in tables))
        return self.open_again(clock)

    def open_again(self, clock: VirtualClock) -> Opened:
        return open_store(self.url, clock, create=True, wait_s_max=10.0, injected=True)

    def damage(self, *statements: str) -> None:
        """As on SQLite; the checks that would refuse it are gone from this database afterwards."""
        for table, check in self._aside.execute(_CHECKS).fetchall():
            self._aside.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{check}"')
        for statement in statements:
            self._aside.execute(statement)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._aside.execute(sql).fetchall()

    def wait_for_others(self) -> None:
        """Until no transaction is open that could keep what the feed says by now; the server's other databases count."""
        ((before,),) = self.rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
        over = f"SELECT 1 WHERE pg_snapshot_xmin(pg_current_snapshot()) >= '{before}'::xid8"
        until(lambda: self.rows(over), "what others had open is over")

    def close(self) -> None:
        """Whoever made the database drops it."""
        self._aside.close()


@dataclass(frozen=True, slots=True)
class Lent:
    """A connection of somebody's own, and its transaction."""

    within: Any
    commit: Callable[[], object]
    rollback: Callable[[], object]


@contextmanager
def lent_sqlite(file: Path) -> Iterator[Lent]:
    with closing(sqlite3.connect(file, timeout=10)) as cx:
        yield Lent(cx, cx.commit, cx.rollback)


@contextmanager
def lent_postgres(url: str) -> Iterator[Lent]:
    with closing(psycopg.connect(url)) as cx:
        yield Lent(cx, cx.commit, cx.rollback)


class SqliteFile(SharedStoreContract):
    """The contract on a file, as the app opens it: one connection to write, another to read."""

    def open(self, clock: VirtualClock) -> Opened:
        self.folder = tempfile.TemporaryDirectory(prefix="perdure-")
        return self.open_again(clock)

    def open_again(self, clock: VirtualClock) -> Opened:
        url = f"sqlite:///{furnished(file_in(Path(self.folder.name)))}"
        return open_store(url, clock, create=True, wait_s_max=10.0)

    def lend(self):
        return lent_sqlite(file_in(Path(self.folder.name)))

    def teardown_method(self) -> None:
        super().teardown_method()
        self.folder.cleanup()


ROUNDS_ON_A_SHARED_SERVER = 20


def contract_on(rig: Rig) -> StoreContract:
    """The contract on a rig, for who calls its tests one by one."""

    class OnRig(StoreContract):
        feed_rounds = ROUNDS_ON_A_SHARED_SERVER if rig.name == "postgres" else 0

        def open(self, clock: VirtualClock) -> Opened:
            return rig.open(clock)

        def _upkeep(self, seconds: float, **how: float) -> int:
            if isinstance(rig, PostgresRig):
                rig.wait_for_others()
            return super()._upkeep(seconds, **how)

    return OnRig()


def broken(rig: Rig, tests: Sequence[str]) -> dict[str, Exception]:
    """Those of these tests of the contract that fail on a rig, and how."""
    failed: dict[str, Exception] = {}
    for name in tests:
        contract = contract_on(rig)
        contract.setup_method()
        try:
            getattr(contract, name)()
        except Exception as error:
            failed[name] = error
        finally:
            contract.teardown_method()
    return failed
