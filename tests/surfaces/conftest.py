"""Offices for the tests of runs and dead letters."""

import pytest

from tests.surfaces.letters import office_at


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def archive(request, tmp_path_factory):
    """A run and its dead letters on either store, only to be looked at."""
    folder = tmp_path_factory.mktemp("archive")
    if request.param == "sqlite":
        with office_at(f"sqlite:///{folder / 'work.db'}", folder) as office:
            office.feed()
            yield office
        return
    postgres = request.getfixturevalue("postgres")
    url = postgres.create_database(template=request.getfixturevalue("template"))
    with office_at(url, folder) as office:
        office.feed()
        yield office
    postgres.drop_database(url)


@pytest.fixture
def office(tmp_path):
    """A run and its dead letters on SQLite, to be worked on."""
    with office_at(f"sqlite:///{tmp_path / 'work.db'}", tmp_path) as office:
        office.feed()
        yield office
