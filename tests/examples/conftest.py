"""The fixtures of the examples' tests; what they are made of is in a kit for each example."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.examples import converter_kit, datasets_kit
from tests.examples.converter_kit import Trial

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MakeTrial = Callable[..., AbstractContextManager[Trial]]


@pytest.fixture(scope="session")
def make_converter_trial(postgres, template, tmp_path_factory) -> MakeTrial:
    """A converter with a database and folders of its own: ``with make_converter_trial(RETRY_MAX_ATTEMPTS="1") as trial``."""

    @contextmanager
    def make(**variables: str) -> Iterator[Trial]:
        url = postgres.create_database(template=template)
        with converter_kit.trial(tmp_path_factory.mktemp("converter"), url, **variables) as trial:
            yield trial
        postgres.drop_database(url)

    return make


@pytest.fixture(scope="session")
def quiet_converter(make_converter_trial) -> Iterator[Trial]:
    """One without a worker, for all tests of this process: what is uploaded stays queued."""
    with make_converter_trial() as trial:
        yield trial


@pytest.fixture(scope="session")
def patient_converter(make_converter_trial) -> Iterator[Trial]:
    """One for all tests of this process; its breaker is too patient for what they do."""
    with make_converter_trial(CIRCUIT_WINDOW="1000", CIRCUIT_FAIL_THRESHOLD="1") as trial:
        yield trial


@pytest.fixture(scope="module")
def shared_converter(patient_converter) -> Iterator[Trial]:
    """The same with a worker, whose threads the tests of other files must not meet."""
    patient_converter.order()
    with patient_converter.working():
        good = patient_converter.user().upload(converter_kit.pdf_of("good"))
        patient_converter.job(good).wait(
            wait_s=converter_kit.FAR_S
        )  # or ten that fail first would hold the queue
        yield patient_converter


@pytest.fixture
def quiet(quiet_converter) -> Trial:
    return quiet_converter


@pytest.fixture
def converter(shared_converter) -> Iterator[Trial]:
    """The one with a worker, its gateway well, and no file left in work by another test."""
    shared_converter.order()
    shared_converter.converter.app.jobs.cancel(pipeline="conversions", reason="another test begins")
    yield shared_converter
    shared_converter.order()


@pytest.fixture(scope="session")
def shared_datasets(tmp_path_factory) -> Iterator[datasets_kit.Trial]:
    """The sample pipeline without a worker, one for each process of the tests."""
    with datasets_kit.trial(tmp_path_factory.mktemp("datasets")) as trial:
        yield trial


@pytest.fixture(scope="module")
def datasets(shared_datasets) -> Iterator[datasets_kit.Trial]:
    """The sample pipeline with a worker in this process."""
    with shared_datasets.app.working(concurrency=8):
        yield shared_datasets


@pytest.fixture(scope="module")
def chromium(missing) -> Iterator["Browser"]:
    """A real browser. Its driver keeps an event loop turning, which the tests of other files must not meet."""
    from tests.examples.chromium import PROGRAM, REMEDY, browsing

    if not PROGRAM.exists():
        missing(REMEDY)
    with browsing() as browser:
        yield browser
