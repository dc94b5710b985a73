"""A worker that starts before its store: it says so once and waits, or ends at once where waiting would not help."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from perdure.app.worker.supervision import _await_store, _opened_in_time, _Orders
from perdure.config import load
from perdure.engine.observe import Observers
from perdure.model.errors import StoreUnavailable
from perdure.model.events import EventName
from perdure.stores.postgres.errors import BY_CLASS, BY_CODE, error_of
from tests.engine.kit import Notes, until
from tests.servers.proxy import Proxy
from tests.stories.kit import CLI
from tests.surfaces.cli.test_bad_stores import APP


class Started:
    """A worker that was started by an init system."""

    def __init__(
        self,
        folder: Path,
        url: str,
        *options: str,
        serves: bool = False,
        store_wait_s: float = 60,
        source: str = APP,
    ) -> None:
        (folder / "shop.py").write_text(source)
        worker = ("worker", "shop:app", "--log-format", "json", "--grace", "1")
        command = ("serve", "shop:app", "--worker", "--port", "0") if serves else worker
        self._said = folder / "said.txt"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PERDURE_")}
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*CLI, *command, *options],
                cwd=folder,
                env={
                    **environment,
                    "PERDURE_STORE": url,
                    "PERDURE_LOG_FORMAT": "json",
                    "PERDURE_STORE_WAIT_S": str(store_wait_s),
                },
                stderr=said,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def lines(self) -> list[str]:
        return self._said.read_text().splitlines()

    def events(self, name: str) -> list[dict[str, str]]:
        told = [json.loads(one) for one in self.lines() if one.startswith("{")]
        return [one for one in told if one["event"] == name]

    def told(self, name: str) -> None:
        until(lambda: bool(self.events(name)), f"{name} is told", within_s=60)

    def ended(self) -> int:
        return self.process.wait(60)


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., Started]]:
    all_started = []

    def start(url: str, *options: str, **more: Any) -> Started:
        all_started.append(Started(tmp_path, url, *options, **more))
        return all_started[-1]

    yield start
    for one in all_started:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()


@pytest.fixture
def line(postgres, database) -> Iterator[Proxy]:
    """A port at which nobody answers yet, and a server behind it."""
    with Proxy(urlsplit(database).port or 5432) as proxy:
        proxy.refuse()
        yield proxy


@pytest.mark.story
def test_a_worker_waits_for_a_store_that_starts_after_it_and_says_so_once(start, line, database):
    worker = start(line.url(database))
    worker.told("store_away")
    line.accept()
    worker.told("store_back")
    assert worker.events("worker_started")
    (away,) = worker.events("store_away")
    assert "waited for up to 60 s" in away["reason"]
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended() == 0


@pytest.mark.story
def test_a_server_waits_for_a_store_that_starts_after_it(start, line, database):
    server = start(line.url(database), serves=True)
    server.told("store_away")
    line.accept()
    server.told("store_back")
    server.told("worker_started")
    server.process.send_signal(signal.SIGTERM)
    assert server.ended() == 0


@pytest.mark.story
@pytest.mark.parametrize("serves", [False, True])
def test_whoever_is_told_to_stop_while_it_waits_ends_at_once_and_well(
    start, line, database, serves
):
    one = start(line.url(database), serves=serves, store_wait_s=3600)
    one.told("store_away")
    one.process.send_signal(signal.SIGTERM)
    assert one.ended() == 0
    assert len(one.lines()) == 1


@pytest.mark.story
def test_a_server_without_pipelines_waits_too(start, line, database):
    server = start(line.url(database), serves=True, source="import perdure\napp = perdure.App()\n")
    server.told("store_away")
    line.accept()
    server.told("store_back")


@pytest.mark.story
def test_an_option_that_cannot_be_is_told_before_the_wait(start, line, database):
    options = ("--rate-per-owner", "nonsense")
    server = start(line.url(database), *options, serves=True, store_wait_s=3600)
    assert server.ended() == 2
    (said,) = server.lines()
    assert "rate_per_owner is 'nonsense'" in said


def test_a_signal_that_comes_while_the_wait_is_told_ends_it(line, database):
    """It strikes within an observer, whose own failures nobody minds."""
    orders = _Orders()
    before = signal.signal(signal.SIGUSR1, orders.heed)
    try:
        told = Observers([lambda event: os.kill(os.getpid(), signal.SIGUSR1)])
        config = load({}, store_wait_s="1")
        assert _opened_in_time(line.url(database), config, told, orders) is None
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.story
def test_a_database_that_is_not_there_is_not_waited_for(start, database):
    worker = start(database.rpartition("/")[0] + "/nowhere", "--store-wait", "3600")
    assert worker.ended() == 11
    (line,) = worker.lines()
    assert line.startswith("perdure: store postgresql://")
    assert "createdb" in line


@pytest.mark.story
def test_a_folder_that_is_not_there_is_not_waited_for(start, tmp_path):
    worker = start(f"sqlite:///{tmp_path}/none/jobs.db", "--store-wait", "3600")
    assert worker.ended() == 11
    (line,) = worker.lines()
    assert "none" in line


@pytest.mark.parametrize(("wait_s", "told"), [("0.3", 1), ("0", 0)])
def test_after_the_wait_the_error_is_that_of_one_that_did_not_wait(line, database, wait_s, told):
    notes, config = Notes(), load({}, store_wait_s=wait_s)
    with pytest.raises(StoreUnavailable, match=r"^store postgresql://.* refused.*are right$"):
        _await_store(line.url(database), config, Observers([notes]))
    assert notes.names() == [EventName.STORE_AWAY] * told


def test_the_setting_has_its_default_and_its_bound():
    assert load({}).store_wait_s == 60.0
    assert load({"PERDURE_STORE_WAIT_S": "0"}).store_wait_s == 0.0


@pytest.mark.parametrize(
    ("code", "may_pass"),
    [
        ("08006", True), ("57P03", True), ("57P01", True), ("53300", True), ("53200", True),
        ("3D000", False), ("28P01", False), ("28000", False), ("42P01", False), ("58030", False),
        ("25006", False),
    ],
)  # fmt: skip
def test_only_what_may_be_well_again_by_itself_is_waited_for(code, may_pass):
    class Failed(psycopg.OperationalError):
        sqlstate = code

    assert code in BY_CODE or code[:2] in BY_CLASS
    assert getattr(error_of(Failed("no"), "there"), "may_pass", False) is may_pass
