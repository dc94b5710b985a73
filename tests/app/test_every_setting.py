"""No setting without an effect: for each there is something that goes otherwise when only it is changed.

A look is given the configuration as it is loaded from the environment, and says what came of it. Where a setting is a
length of time, time is pushed.
"""

import logging
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure import App
from perdure.app import open_store as open_configured
from perdure.app.worker import supervision, upkeep_parts
from perdure.app.worker.bulk_thread import BulkWork
from perdure.app.worker.embedded import EmbeddedWorker
from perdure.app.worker.metrics_port import metrics_port_of
from perdure.app.worker.upkeep_parts import gatekeeper_of, upkeep_of
from perdure.config import SETTINGS, Config, load
from perdure.engine.observe import Observers
from perdure.engine.worker.worker import Worker
from perdure.model.errors import CallerError, CursorTooOld, JobFailed, StoreBusy, StoreUnavailable
from perdure.model.jobs import Claim, ClaimOrder
from perdure.model.workers import NewWorker, Role
from perdure.observers.log import flush_logs, write_logs
from perdure.stores.opening import open_store
from perdure.surfaces.cli.serve import serve
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import failure, success
from perdure.testing.store_contract.fresh_store import DEED, target
from tests.engine.kit import Notes


class Ground:
    """Where a look is taken: a folder, an app with one stage, a worker's row, and time that is pushed."""

    def __init__(self, folder: Path, monkeypatch, capsys, database: Callable[[], str]) -> None:
        self.folder, self.monkeypatch, self.capsys = folder, monkeypatch, capsys
        self.database = database
        self.config: Config = load()
        self.clock = VirtualClock()

    def declare(self, url: str) -> App:
        app = App(url)

        @app.stage(timeout_s=60.0)
        def one(item, context):
            context.capture("taken")
            if item == "raise":
                raise KeyError(item)
            return item

        self.pipe = app.pipeline("p", one)
        return app

    @contextmanager
    def opened(self) -> Iterator[App]:
        app = self.declare(f"sqlite:///{self.folder / 'work.db'}")
        app._session._opened = open_store(
            app.url, self.clock, create=True, wait_s_max=10.0, injected=True
        )
        app.ready()
        self.store, self.reader = app._session.opened.store, app._session.opened.reader
        self.worker = self.store.add_worker(NewWorker("boot", "here", Role.MAIN, 1e6))
        self.order = ClaimOrder(self.worker, 9, app._session.catalogue.lane_nos())
        with closing(app):
            yield app

    def claimed(self) -> Claim:
        self.pipe.enqueue(1)
        (claim,) = self.store.turn([], self.order, by=self.worker).claims
        return claim


# -- looks ---------------------------------------------------------------------------------------


def where_jobs_are(ground: Ground) -> object:
    with closing(ground.declare(ground.config.store)):
        ground.pipe.enqueue(1)
    return sorted(path.name for path in ground.folder.iterdir())


def while_one_connection_is_lent(ground: Ground) -> object:
    opened = open_configured(ground.database(), wait_s_max=0.5)
    with closing(opened), opened.store._connection.autocommit():
        try:
            return len(opened.reader.jobs(limit=1))
        except StoreBusy:
            return "busy"


def told_of_a_store_that_is_away(ground: Ground) -> object:
    notes = Notes()
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and nobody listens there
        url = f"postgresql://nobody@127.0.0.1:{held.getsockname()[1]}/nothing"
        with pytest.raises(StoreUnavailable):
            supervision._await_store(url, ground.config, Observers([notes]))
    return len(notes.names())


def children_wanted(ground: Ground) -> object:
    wanted: list[Role] = []

    def spawn(role: Role, worker: int) -> None:
        wanted.append(role)
        raise OSError(12, "Cannot allocate memory")

    with ground.opened():
        supervision._supervisor(ground.store, ground.config, spawn, (), Observers([Notes()])).once()
    return wanted


def claimed_at_once(ground: Ground) -> object:
    with worker_of(ground) as worker:
        ground.pipe.enqueue_many(range(5))
        return len(ground.store.turn([], worker._pump._order(), by=ground.worker).claims)


@contextmanager
def worker_of(ground: Ground) -> Iterator[Worker]:
    """A worker inside this process, as `app.working` makes it, before its first turn."""
    with ground.opened() as app:
        bulks = BulkWork(app._session, app._session.catalogue, ground.worker)
        working = EmbeddedWorker(app._session, ground.config)
        yield working._worker(app._session.opened, app._session.catalogue, ground.worker, bulks)


def longest_rest_s(ground: Ground) -> object:
    with worker_of(ground) as worker:
        worker._step()
        return worker._step() <= 0.1


class Rung:
    """A bell that is rung at once, and remembers how long was meant to be rested."""

    rest_s = 0.0

    def rest(self, wait_s: float, wake_fd: int | None) -> bool:
        self.rest_s = wait_s
        return True


def looks_for_hints_s(ground: Ground) -> object:
    with worker_of(ground) as worker:
        bell = Rung()
        worker._loop._rest(bell, 60.0)
        return bell.rest_s


def swept(ground: Ground, app: App, *, for_s: float) -> object:
    """The states of all jobs, after upkeep for so long."""
    ground.monkeypatch.setattr(upkeep_parts, "SystemClock", lambda: ground.clock)
    gates = gatekeeper_of(app._session, app._session.opened, app._session.catalogue, ground.worker)
    upkeep = upkeep_of(
        app._session,
        app._session.opened,
        app._session.catalogue,
        ground.worker,
        ground.config,
        gates=gates,
    )
    for _ in range(10):
        upkeep.once()
        ground.clock.push(for_s / 10)
    return [job.state.value for job in ground.reader.jobs(limit=10)]


def while_an_attempt_hangs(ground: Ground) -> object:
    with ground.opened() as app:
        ground.claimed()
        return swept(ground, app, for_s=200.0)


def after_a_success(ground: Ground) -> object:
    with ground.opened() as app:
        ground.store.turn([success(ground.claimed(), ground.worker)], None, by=ground.worker)
        return swept(ground, app, for_s=3600.0)


def after_a_cancel(ground: Ground) -> object:
    with ground.opened() as app:
        ground.pipe.enqueue(1).cancel()
        return swept(ground, app, for_s=3600.0)


def after_a_discard(ground: Ground) -> object:
    with ground.opened() as app:
        ground.store.turn([failure(ground.claimed(), ground.worker)], None, by=ground.worker)
        (job,) = ground.reader.jobs(limit=1)
        app._session.opened.control.discard([target(job)], DEED)
        return swept(ground, app, for_s=3600.0)


def raw_output_expires(ground: Ground) -> object:
    with ground.opened():
        (capture,) = ground.pipe.call(1).job.captures()
        return capture.expires_at is not None


def what_a_failure_leaves(ground: Ground) -> object:
    with ground.opened() as app:
        with pytest.raises(JobFailed):
            ground.pipe.call("raise")
        (job,) = ground.reader.jobs(limit=10)
        return [one.kind for one in app._session.opened.reader.captures(job.no)]


def what_is_left_of_the_feed(ground: Ground) -> object:
    with ground.opened() as app:
        cursor = ground.reader.changes().cursor
        ground.pipe.enqueue(1)
        swept(ground, app, for_s=3600.0)
        try:
            return bool(ground.reader.changes(cursor).entries)
        except CursorTooOld:
            return "gone"


def what_is_logged(ground: Ground) -> object:
    write_logs(form=ground.config.log_format, level=ground.config.log_level)
    logging.getLogger("perdure").info("a word")
    flush_logs()
    text = ground.capsys.readouterr().err
    return text.count("a word"), text.startswith("{")


def where_a_server_listens(ground: Ground) -> object:
    """Said by a refusal: its port is taken, or it is reached from elsewhere and the store has no token."""
    (ground.folder / "listening.py").write_text(
        "import perdure\napp = perdure.App('sqlite:///work.db')\n"
    )
    ground.monkeypatch.delitem(sys.modules, "listening", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(serve, ["listening:app", "--port", port])
    assert isinstance(done.exception, CallerError)
    return "has no token" in str(done.exception)


def second_names(ground: Ground) -> object:
    with ground.opened() as app:
        return dict(app._session.aliases_of("p"))


def has_port(ground: Ground) -> object:
    port = metrics_port_of("sqlite:///work.db", ground.config)
    if port is not None:
        port.close()
    return port is None


def host_of_port(ground: Ground) -> object:
    port = metrics_port_of("sqlite:///work.db", replace(ground.config, metrics_port=0))
    assert port is not None
    with closing(port):
        return port.address.rpartition(":")[0]


WALK: dict[str, tuple[str, str, Callable[[Ground], object]]] = {
    "store": ("sqlite:///one.db", "sqlite:///two.db", where_jobs_are),
    "connections": ("1", "2", while_one_connection_is_lent),
    "store_wait_s": ("0", "0.3", told_of_a_store_that_is_away),
    "concurrency": ("2", "3", claimed_at_once),
    "processes": ("1", "3", children_wanted),
    "lease_ttl_s": ("15", "9000", while_an_attempt_hangs),
    "grace_s": ("0", "9000", while_an_attempt_hangs),
    "poll_s": ("0.05", "0.5", longest_rest_s),
    "tick_s": ("0.01", "0.02", looks_for_hints_s),
    "overrun_s": ("60", "9000", while_an_attempt_hangs),
    "retain_succeeded_s": ("60", "forever", after_a_success),
    "retain_cancelled_s": ("60", "forever", after_a_cancel),
    "retain_discarded_s": ("60", "forever", after_a_discard),
    "capture_kept_s": ("60", "forever", raw_output_expires),
    "capture_tracebacks": ("off", "ON", what_a_failure_leaves),
    "retain_changes_s": ("60", "7200", what_is_left_of_the_feed),
    "log_format": ("text", "json", what_is_logged),
    "log_level": ("INFO", "ERROR", what_is_logged),
    "metrics_port": ("off", "0", has_port),
    "metrics_host": ("127.0.0.1", "127.0.0.2", host_of_port),
    "serve_host": ("127.0.0.1", "0.0.0.0", where_a_server_listens),
    "aliases": ("gateway", "attempts=tries", second_names),
}


@pytest.mark.usefixtures("log")  # which a server, and a look at the log, set up for themselves
@pytest.mark.parametrize("name", [one.name for one in SETTINGS])
def test_every_setting_changes_an_outcome(name, tmp_path, monkeypatch, capsys, request):
    one, other, look = WALK[name]
    seen = []
    for place, value in enumerate((one, other)):
        folder = tmp_path / str(place)
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv(f"PERDURE_{name.upper()}", value)
        database = lambda: request.getfixturevalue("database")  # noqa: E731
        seen.append(look(Ground(folder, monkeypatch, capsys, database)))
    assert seen[0] != seen[1]


def test_no_row_is_left_over():
    assert list(WALK) == [one.name for one in SETTINGS]


@pytest.mark.parametrize("name", ["store", "concurrency", "retain_succeeded_s"])
def test_a_look_that_does_not_depend_on_the_setting_would_be_noticed(
    name, tmp_path, monkeypatch, capsys
):
    """The twin: the same value twice gives the same outcome, so what differs above is the setting's doing."""
    value, _, look = WALK[name]
    seen = []
    for place in "ab":
        folder = tmp_path / place
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv(f"PERDURE_{name.upper()}", value)
        seen.append(look(Ground(folder, monkeypatch, capsys, str)))
    assert seen[0] == seen[1]
