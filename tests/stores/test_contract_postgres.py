"""The contract, on PostgreSQL: one database for the class, emptied before each test."""

import pytest

from perdure.stores.opening import Opened
from perdure.testing import SharedStoreContract, VirtualClock
from perdure.testing.contract.following import Following
from tests.servers.postgres import Server
from tests.stores.rigs import ROUNDS_ON_A_SHARED_SERVER, PostgresRig, lent_postgres


class TestPostgres(SharedStoreContract):
    rig: PostgresRig
    feed_rounds = ROUNDS_ON_A_SHARED_SERVER

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

    def _upkeep(self, seconds: float, **how: float) -> int:
        self.rig.wait_for_others()
        return super()._upkeep(seconds, **how)


class TestPostgresAlone(Following):
    """The feed on a server that nobody else uses: what is let go goes to the moment."""

    rig: PostgresRig

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _database(cls):
        with Server(settings={"autovacuum": "off"}) as server:
            cls.rig = PostgresRig(server.create_database())
            yield
            cls.rig.close()

    def open(self, clock: VirtualClock) -> Opened:
        return self.rig.open(clock)
