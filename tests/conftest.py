"""What every test shares: the hypothesis profile, what a missing part means, and real servers.

pytest-randomly prints the run's seed in the header; `-p no:randomly` or `--randomly-seed=N` steers it.
"""

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NoReturn

import hypothesis
import pytest

# The servers need a driver, which is not everywhere that a test of the rules is run: `make mutation`.
if TYPE_CHECKING:
    from tests.servers.pgbouncer import Bouncer
    from tests.servers.postgres import Server
    from tests.servers.s3 import S3Server

# A shell that runs us in the background ignores SIGINT for us and for every process we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Some environments forbid compiled modules. Then each of the thousand processes that tests start would compile
# all of ours anew, which takes longer than what most of them are started for.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A deadline measures the machine, not the code; pytest-timeout ends what hangs.
hypothesis.settings.register_profile("perdure", deadline=None, print_blob=True)
# Every run draws other examples: `make test` draws half as many as usual, `make test-long` ten times as many.
for name, examples in {"brief": 50, "long": 1_000}.items():
    usual = hypothesis.settings.get_profile("perdure")
    hypothesis.settings.register_profile(name, usual, max_examples=examples)
hypothesis.settings.load_profile("perdure")

# By default Python looks for garbage after every 700 new objects, and reading the tests makes a million that stay.
gc.set_threshold(10_000, 10, 10)

pytest.register_assert_rewrite(
    "perdure.testing.store_contract"
)  # so that a broken promise shows its values


TESTS = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Let each process of a parallel run read the files in an order of its own.

    All of them read all files. Side by side, each would compile what a fresh checkout has not compiled yet, for its
    asserts too; so one compiles a file, and the others find it done.
    """
    if hasattr(config, "workerinput") and [Path(one).resolve() for one in config.args] == [TESTS]:
        files = [str(one) for one in TESTS.rglob("test_*.py")]
        Random(config.workerinput["workerid"]).shuffle(files)
        config.args[:] = files


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """The same order in all of them again, before it is left to chance; then what takes long comes first."""
    if not hasattr(config, "workerinput"):
        return (yield)
    items.sort(key=lambda item: str(item.path))
    yield
    items[:] = longest_first(items, config.workerinput["workercount"])


def longest_first(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Each process is given its part of the list and begins with the longest, so that none is left alone at the end.

    The tests of the SDKs stay together in the first: to import them all takes a process seven seconds.
    """
    long = sorted((one for one in items if limit_s(one)), key=limit_s, reverse=True)
    rest = [one for one in items if not limit_s(one)]
    rest.sort(key=lambda one: TESTS / "sdks" not in one.path.parents)
    ordered: list[pytest.Item] = []
    for process in range(processes):
        own = long[process::processes]
        room = max(len(items) * (process + 1) // processes - len(ordered) - len(own), 0)
        ordered += own + rest[:room]
        del rest[:room]
    return ordered


def limit_s(item: pytest.Item) -> float:
    """How long a test may take by its own word, if it says so."""
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark else 0.0


def pytest_collection_finish() -> None:
    """What was read stays to the end: it need not be walked over again and again, and garbage is found sooner."""
    gc.freeze()


@pytest.fixture(scope="session")
def missing() -> Callable[[str], NoReturn]:
    """Say that a real part (a database, a browser, a document) is not here: `missing("chromium")`.

    At home the test is skipped, under CI=true it fails: there, everything is expected to be present.
    """

    def leave(part: str) -> NoReturn:
        if os.environ.get("CI") == "true":
            pytest.fail(f"missing under CI: {part}", pytrace=False)
        pytest.skip(f"missing: {part}")

    return leave


# Held beyond the last test that we know of: another process of the run may need them yet.
JOINED = pytest.StashKey["list[Server | S3Server]"]()


def run_folder(request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of a run of tests share."""
    own = factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session")
def postgres(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    missing: Callable[[str], NoReturn],
) -> "Server":
    """A real PostgreSQL, one for the whole run. A test that stops or crashes one makes its own.

    PERDURE_TEST_POSTGRES chooses the version: 18, 16 or 15.
    """
    from tests.servers import programs, shared

    try:
        server = shared.join(run_folder(request, tmp_path_factory), programs.wanted_version())
    except programs.MissingPart as part:
        missing(str(part))
    request.config.stash.setdefault(JOINED, []).append(server)
    return server


@pytest.fixture(scope="session")
def s3(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    missing: Callable[[str], NoReturn],
) -> "S3Server":
    """A real S3 server, one for the whole run; a bucket is made by the first object that is put into it."""
    from tests.servers import programs, shared

    try:
        server = shared.join_s3(run_folder(request, tmp_path_factory))
    except programs.MissingPart as part:
        missing(str(part))
    request.config.stash.setdefault(JOINED, []).append(server)
    return server


@pytest.fixture(autouse=True)
def _store_named_by_nobody() -> Iterator[None]:
    """A command that is given a store names it to its whole process, which here goes on."""
    before = os.environ.get("PERDURE_STORE")
    yield
    os.environ.pop("PERDURE_STORE", None)
    if before is not None:
        os.environ["PERDURE_STORE"] = before


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The logger of Perdure, put back as it was."""
    logger = logging.getLogger("perdure")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield logger
    for one in logger.handlers:
        if one not in before[0]:
            one.close()
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])  # not by its attribute: what was enabled would stay so


@pytest.fixture
def database(postgres: "Server") -> Iterator[str]:
    """The URL of a fresh, empty database on it, which the plain role `perdure` owns."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def template(postgres: "Server") -> Iterator[str]:
    """A database with the schema in it; a copy is had in half the time that it takes to make one."""
    from perdure.engine.clock import SystemClock
    from perdure.stores.opening import open_store

    url = postgres.create_database()
    open_store(url, SystemClock(), create=True, wait_s_max=10.0).close()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def furnished(postgres: "Server", template: str) -> Iterator[str]:
    """The URL of a fresh database that has the schema and no rows."""
    url = postgres.create_database(template=template)
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def bouncer(postgres: "Server", missing: Callable[[str], NoReturn]) -> "Iterator[Bouncer]":
    """A real PgBouncer in transaction mode before it: `bouncer.url(database)`."""
    from tests.servers import pgbouncer, programs

    try:
        pooler = pgbouncer.Bouncer(postgres)
    except programs.MissingPart as part:
        missing(str(part))
    with pooler:
        yield pooler


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave the run's servers. When its first process ends no worker is left: see them removed."""
    for server in config.stash.get(JOINED, []):
        server.leave()
    run = getattr(getattr(config, "_tmp_path_factory", None), "_basetemp", None)
    if run is None or hasattr(config, "workerinput"):
        return
    if any(run.glob("postgres-*")) or any(run.glob("s3-server")):
        from tests.servers import shared

        shared.wait_for_end(run)
