"""Stores for the tests of this folder."""

import pytest

from tests.stores.kit import MEMORY, Place, file_in


@pytest.fixture(params=["file", "memory"])
def place(request, tmp_path):
    """A store in a real file, and the same in memory."""
    place = Place(file_in(tmp_path) if request.param == "file" else MEMORY)
    yield place
    place.close()


@pytest.fixture
def file_place(tmp_path):
    """A store in a real file, for what memory cannot show."""
    place = Place(file_in(tmp_path))
    yield place
    place.close()


@pytest.fixture
def worker(place) -> int:
    """A worker that is alive."""
    return place.hire()
