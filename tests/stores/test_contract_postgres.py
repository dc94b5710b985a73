"""The contract, on PostgreSQL: one database for the class, emptied before each test."""

import pytest

from perdure.stores.opening import Opened
from perdure.testing import SharedStoreContract, VirtualClock
from tests.stores.rigs import PostgresRig, lent_postgres


class TestPostgres(SharedStoreContract):
    rig: PostgresRig

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _database(cls, postgres):
        cls.rig = PostgresRig(postgres.create_database())
        yield
        cls.rig.close()
        postgres.drop_database(cls.rig.url)

    def open(self, clock: VirtualClock) -> Opened:
        return self.rig.open(clock)

    def open_again(self, clock: VirtualClock) -> Opened:
        return self.rig.open_again(clock)

    def lend(self):
        return lent_postgres(self.rig.url)
