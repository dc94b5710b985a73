"""Apps on either store, shops and callers for the tests of transactions, and a process with many files."""

import os
import resource
from collections.abc import Iterator

import pytest

from perdure import App
from perdure.model.events import Event
from tests.app.calling.callers import Caller, Shop
from tests.stores.kit import file_in, furnished


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> str:
    """A store of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{furnished(file_in(tmp_path))}"
    return request.getfixturevalue("furnished")


@pytest.fixture
def told() -> list[Event]:
    """What the app has told."""
    return []


@pytest.fixture
def app(url, told) -> Iterator[App]:
    """An app that is closed in the end."""
    app = App(url, observers=[told.append])
    yield app
    app.close()


@pytest.fixture
def shops(request, tmp_path) -> Iterator[dict[str, Shop]]:
    """Shops by store, made when they are asked for."""
    made: dict[str, Shop] = {}

    class Made(dict[str, Shop]):
        def __missing__(self, store: str) -> Shop:
            sqlite = f"sqlite:///{furnished(file_in(tmp_path))}"
            url = sqlite if store == "sqlite" else request.getfixturevalue("furnished")
            made[store] = self[store] = Shop(url)
            return made[store]

    yield Made()
    for shop in made.values():
        shop.close()


@pytest.fixture
def shop(shops, store) -> Shop:
    return shops[store]


@pytest.fixture
def caller(shop, way) -> Iterator[Caller]:
    with way(shop) as opened:
        yield opened


@pytest.fixture
def many_files():
    """So many open files that the next ones have numbers beyond 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    yield
    for one in opened:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
