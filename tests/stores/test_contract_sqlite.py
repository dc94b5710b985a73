"""The contract, on SQLite: in a file that two connections share, and in memory."""

from perdure.stores.opening import Opened
from perdure.testing import StoreContract, VirtualClock
from tests.stores.rigs import SqliteFile, SqliteRig


class TestSqliteFile(SqliteFile):
    """One connection for the writes, another for the reads, and both again."""


class TestSqliteMemory(StoreContract):
    """One connection for all, which is all that memory has."""

    def open(self, clock: VirtualClock) -> Opened:
        return SqliteRig().open(clock)
