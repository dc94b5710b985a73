"""Stores on PostgreSQL for the tests of this folder."""

from typing import Any

import pytest

from perdure.testing import VirtualClock
from tests.servers.proxy import Proxy
from tests.stores.postgres.kit import Place


@pytest.fixture
def open_place():
    """Opens stores: `open_place(url, clock, series=1)`; they are closed after the test."""
    places: list[Place] = []

    def opened(url: str, clock: VirtualClock | None = None, **options: Any) -> Place:
        places.append(Place(url, clock, **options))
        return places[-1]

    yield opened
    for one in places:
        one.close()


@pytest.fixture
def place(furnished, open_place) -> Place:
    """A store whose time is the server's."""
    return open_place(furnished)


@pytest.fixture
def clocked(furnished, open_place) -> Place:
    """A store whose time the test pushes."""
    return open_place(furnished, VirtualClock())


@pytest.fixture
def worker(place) -> int:
    """A worker that is alive."""
    return place.hire()


@pytest.fixture
def proxy(postgres, open_place):
    """A faulty line to the server; it is healed before the stores are closed."""
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def far(place, proxy, open_place) -> Place:
    """The same store, at the other end of the faulty line."""
    return open_place(proxy.url(place.url), series=1)
