"""Stores on PostgreSQL for the tests of this folder."""

import pytest

from perdure.testing import VirtualClock
from tests.servers.proxy import Proxy
from tests.stores.postgres.kit import Place


@pytest.fixture
def place(database):
    """A store whose time is the server's."""
    place = Place(database)
    yield place
    place.close()


@pytest.fixture
def clocked(database):
    """A store whose time the test pushes."""
    place = Place(database, VirtualClock())
    yield place
    place.close()


@pytest.fixture
def worker(place) -> int:
    """A worker that is alive."""
    return place.hire()


@pytest.fixture
def proxy(postgres):
    """A faulty line to the server."""
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def far(place, proxy):
    """The same store, at the other end of the faulty line."""
    far = Place(proxy.url(place.url), series=1)
    yield far
    proxy.heal()
    far.close()
