"""What the tests of the engine share."""

import pytest

from perdure.stores.opening import open_store
from perdure.testing import VirtualClock
from perdure.testing.store_contract import fresh_store
from tests.engine.kit import Shop
from tests.stores.kit import MEMORY, Place, file_in, furnished


@pytest.fixture
def place():
    """A store in memory."""
    place = Place(MEMORY)
    yield place
    place.close()


@pytest.fixture
def shop():
    """A pump with four slots, on a store in memory."""
    shop = Shop()
    yield shop
    shop.close()


@pytest.fixture(params=["sqlite", "postgres"])
def anywhere(request, tmp_path):
    """Places on one store of each kind, as many as are asked for, all on one clock."""
    sqlite = request.param == "sqlite"
    url = (
        f"sqlite:///{furnished(file_in(tmp_path))}"
        if sqlite
        else request.getfixturevalue("furnished")
    )
    clock, places = VirtualClock(), []

    def opened():
        known = open_store(url, clock, create=True, wait_s_max=10.0, injected=True)
        places.append(fresh_store.Place(known, clock, series=len(places)))
        return places[-1]

    yield opened
    for place in places:
        place.close()


@pytest.fixture
def either(anywhere):
    """A store of each kind."""
    return anywhere()
