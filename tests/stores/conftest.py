"""Stores for the tests of this folder."""

import pytest

from tests.stores.kit import MEMORY, Place, file_in
from tests.stores.rigs import PostgresRig, SqliteRig


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


@pytest.fixture(scope="module")
def postgres_url(postgres, template):
    """The URL of a database that the tests of a module share, one after the other."""
    url = postgres.create_database(template=template)
    yield url
    postgres.drop_database(url)


@pytest.fixture
def postgres_rig(postgres_url):
    """That database, to be opened empty."""
    rig = PostgresRig(postgres_url)
    yield rig
    rig.close()


@pytest.fixture(params=["sqlite", "postgres"])
def rig(request):
    """Both stores."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_rig")
        return
    rig = SqliteRig()
    yield rig
    rig.close()
