"""The contract, on PostgreSQL: one database for the class, emptied before each test.

It has a server of its own: what other tests have open on theirs would keep lines of the change feed, and cursors, for longer.
"""

import pytest

from perdure.stores.opening import Opened
from perdure.testing import SharedStoreContract, VirtualClock
from tests.servers.postgres import Server
from tests.stores.rigs import PostgresRig, lent_postgres


class TestPostgres(SharedStoreContract):
    rig: PostgresRig

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _database(cls):
        with Server(settings={"autovacuum": "off"}, in_memory=True) as server:
            cls.rig = PostgresRig(server.create_database())
            yield
            cls.rig.close()

    def open(self, clock: VirtualClock) -> Opened:
        return self.rig.open(clock)

    def open_again(self, clock: VirtualClock) -> Opened:
        return self.rig.open_again(clock)

    def lend(self):
        return lent_postgres(self.rig.url)
