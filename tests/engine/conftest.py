"""What the tests of the engine share."""

import pytest

from tests.engine.kit import Shop
from tests.stores.kit import MEMORY, Place


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
