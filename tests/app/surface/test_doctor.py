"""The doctor at a store: a healthy one is all well, and each thing that is set up wrong, or does not move, is found."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from perdure import App
from perdure.app.surface import access, gate_control, queue_control
from perdure.app.surface.doctor import Diagnosis, examine, store_diagnoses
from perdure.model.jobs import ClaimOrder
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.runs import NewRun
from perdure.model.workers import NewWorker, Role
from perdure.rules.diagnosis import store_condition
from perdure.stores.opening import open_store
from perdure.stores.postgres.connection import SETTINGS_ASKED
from perdure.stores.sqlite import network_drive
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import failure
from tests.stores.postgres.kit import with_options

DEED = Deed("ann", "to see what happens")
MINUTE_S = 60.0
TODAY = ("version", "disk", "file_system")  # what they say depends on the machine that tests run on
GB = 1024**3


class Patient:
    """An app on a store whose time is pushed, and the doctor who looks at it."""

    def __init__(self, url: str) -> None:
        self.clock = VirtualClock()
        self.app = App(url)

        @self.app.stage
        def one(item):
            return item

        self.pipe = self.app.pipeline("p", one)
        self.session = self.app._session
        self.session._opened = open_store(
            url, self.clock, create=True, wait_s_max=10.0, injected=True
        )
        self.app.ready()
        self.store = self.session.opened.store

    def looked_at(
        self, *, clock: Any = None, app: App | None = None, **given: Any
    ) -> dict[str, Diagnosis]:
        session = (app or self.app)._session
        found = store_diagnoses(
            self.session.opened,
            session.settings.with_given(given),
            session,
            url=self.app.url,
            clock=clock or self.clock,
        )
        return {one.check: one for one in found}

    def worker(self) -> int:
        return self.store.add_worker(NewWorker("boot", "host:1", Role.MAIN, 1e6))

    def fail_jobs(self, count: int) -> None:
        self.pipe.enqueue_many(range(count))
        worker = self.worker()
        order = ClaimOrder(worker, count, self.session.catalogue.lane_nos())
        claims = self.store.turn([], order, by=worker).claims
        self.store.turn([failure(one, worker) for one in claims], None, by=worker)


@pytest.fixture(params=["sqlite", "postgres"])
def patient(request, tmp_path) -> Iterator[Patient]:
    sqlite_url = f"sqlite:///{tmp_path / 'work.db'}"
    url = sqlite_url if request.param == "sqlite" else request.getfixturevalue("furnished")
    patient = Patient(url)
    yield patient
    patient.app.close()


@pytest.fixture
def furnished_app(furnished) -> Iterator[App]:
    app = App(furnished)
    yield app
    app.close()


def found(app: App, **given: Any) -> dict[str, Diagnosis]:
    """What the doctor finds that opens the store as a command does."""
    try:
        return {one.check: one for one in examine(app._session, **given)}
    finally:
        app.close()


def unwell(lines: dict[str, Diagnosis]) -> list[str]:
    return [name for name, one in lines.items() if one.severity != "ok" and name not in TODAY]


# -- all is well -----------------------------------------------------------------------------


def test_a_healthy_store_is_all_well(patient):
    lines = patient.looked_at()
    assert unwell(lines) == []
    assert {"store", "version", "rights", "clock", "lease", "disk", "listen"} <= set(lines)
    assert list(lines)[-4:] == ["gates", "dead_letters", "runs", "lanes"]
    usual = {"autovacuum", "oldest_transaction", "pooler"}
    other = {"file_system"}
    is_file = patient.app.url.startswith("sqlite")
    assert (usual & set(lines), other & set(lines)) == (
        (set(), other) if is_file else (usual, set())
    )


def test_the_version_and_the_room_are_those_of_this_machine(patient, tmp_path):
    lines = patient.looked_at()
    if patient.app.url.startswith("sqlite"):
        assert lines["version"].text.startswith(f"SQLite {sqlite3.sqlite_version}")
        mended = sqlite3.sqlite_version_info >= (3, 51, 3)
        assert lines["version"].severity == ("ok" if mended else "warn")
        free = shutil.disk_usage(tmp_path).free
        assert abs(float(lines["disk"].text.split()[-4]) * GB - free) < 0.1 * free + GB
    else:
        assert lines["version"].text.startswith("PostgreSQL ")
        assert lines["disk"].text == "how much room the server has left is not seen from here"


def test_what_moves_is_well(patient):
    """Jobs that were made just now, are in work, have ended, or wait for their time."""
    patient.fail_jobs(3)
    patient.pipe.enqueue(1)
    patient.pipe.run([2], name="fed")
    assert unwell(patient.looked_at()) == []


# -- what does not move ----------------------------------------------------------------------


def test_jobs_that_nobody_takes_are_found(patient):
    patient.pipe.enqueue_many(range(3))
    patient.clock.push(10 * MINUTE_S)
    line = patient.looked_at()["lanes"]
    assert (line.severity, line.text) == (
        "warn",
        "nobody takes what is ready: 3 of p/one in queue default for 10 min",
    )
    assert "no worker is at work on this store" in line.remedy
    patient.worker()
    assert "workers are alive (1), and none serves them" in patient.looked_at()["lanes"].remedy


def test_jobs_of_a_stage_that_the_app_does_not_have_are_named_as_such(patient):
    patient.pipe.enqueue(1)
    patient.clock.push(10 * MINUTE_S)
    other = App(patient.app.url)
    other.pipeline("other", other.stage(name="two")(lambda item: item))
    text = patient.looked_at(app=other)["lanes"].text
    assert text.endswith("in queue default for 10 min, which this app does not have")


def test_jobs_behind_a_pause_are_nobodys_fault(patient):
    patient.pipe.enqueue(1)
    queue_control.pause(patient.session.opened, "default", DEED)
    patient.clock.push(10 * MINUTE_S)
    assert patient.looked_at()["lanes"].severity == "ok"


def test_dead_letters_that_grow_are_found_with_what_they_died_of(patient):
    patient.fail_jobs(9)
    assert patient.looked_at()["dead_letters"].severity == "ok"
    patient.clock.push(5 * MINUTE_S)
    patient.fail_jobs(3)
    line = patient.looked_at()["dead_letters"]
    assert line.severity == "warn"
    assert line.text.startswith("12 more in the last hour, 12 in all: p/one ")
    patient.clock.push(61 * MINUTE_S)
    assert patient.looked_at()["dead_letters"].severity == "ok"


def test_a_run_that_nobody_feeds_is_found(patient):
    patient.session.opened.control.add_run(NewRun(patient.session.ids.next(), "", "p", "march"))
    assert patient.looked_at()["runs"].severity == "ok"
    patient.clock.push(5 * MINUTE_S)
    line = patient.looked_at()["runs"]
    assert line.severity == "warn"
    assert "run march (number " in line.text
    assert "perdure runs seal" in line.remedy


def test_a_gate_that_is_held_for_long_is_found_however_often_it_was_probed(patient):
    gated = App(patient.app.url)
    gated.pipeline("g", gated.stage(name="ask", upstream="vendor")(lambda item: item))
    gated._session._opened = patient.session.opened
    gated.ready()
    opened = patient.session.opened
    gate_control.hold(opened, "vendor", by_whom="ann", reason="it is down", for_text="1h")
    patient.clock.push(14 * MINUTE_S)
    gate_control.probe(opened, "vendor", by_whom="ann", reason="is it back?")
    gate_control.hold(opened, "vendor", by_whom="ann", reason="it is down", for_text="1h")
    assert patient.looked_at()["gates"].text == "1 held, none for long"
    patient.clock.push(MINUTE_S)
    line = patient.looked_at()["gates"]
    assert line.severity == "warn"
    assert line.text.startswith("held: vendor for 15 min, 0 jobs behind it")
    gate_control.release(opened, "vendor", by_whom="ann", reason="it is back")
    assert patient.looked_at()["gates"].text == "none is held"
    gate_control.hold(opened, "vendor", by_whom="ann", reason="again", for_text="1h")
    assert patient.looked_at()["gates"].severity == "ok"


# -- how it is set up ------------------------------------------------------------------------


def test_a_clock_that_differs_from_the_stores_is_found(patient):
    ahead = VirtualClock(patient.clock.now() + timedelta(seconds=90))
    behind = VirtualClock(patient.clock.now() - timedelta(hours=1))
    assert patient.looked_at(clock=ahead)["clock"].severity == "warn"
    assert "90 s behind this machine's" in patient.looked_at(clock=ahead)["clock"].text
    assert patient.looked_at(clock=behind)["clock"].severity == "fail"


class SlowClock(VirtualClock):
    """Every look at it takes a second."""

    def monotonic(self) -> float:
        self.push(1.0)
        return super().monotonic()


def test_a_store_that_answers_too_slowly_for_the_lease_is_found(patient):
    slow = SlowClock(patient.clock.now())
    assert patient.looked_at(clock=slow, lease_ttl_s=20.0)["lease"].severity == "ok"
    line = patient.looked_at(clock=slow, lease_ttl_s=5.0)["lease"]
    assert line.severity == "warn"
    assert line.remedy.startswith("set lease_ttl_s to at least 10,")


def test_an_overrun_that_has_no_effect_is_found(patient):
    line = patient.looked_at(overrun_s=10.0)["lease"]
    assert (line.severity, line.text[:36]) == ("warn", "overrun_s is 10 and has no effect: i")


def test_an_address_that_others_reach_without_a_good_token_is_found(patient):
    everywhere = {"serve_host": "0.0.0.0"}
    assert patient.looked_at(**everywhere)["listen"].severity == "fail"
    access.create_token(
        patient.session, name="web", owner="ann", scopes=["submit"], expires="1h", deed=DEED
    )
    assert patient.looked_at(**everywhere)["listen"].severity == "ok"
    patient.clock.push(61 * MINUTE_S)
    line = patient.looked_at(**everywhere)["listen"]
    assert (line.severity, "no token of the store is good any more" in line.text) == ("fail", True)
    assert patient.looked_at()["listen"].severity == "ok"


# -- SQLite ----------------------------------------------------------------------------------


def file_app(folder) -> App:
    app = App(f"sqlite:///{folder / 'work.db'}")
    app.ready()
    app.close()
    return app


def test_a_file_on_a_network_drive_is_found(tmp_path, monkeypatch):
    app = file_app(tmp_path)
    mounts = tmp_path / "mounts"
    mounts.write_text(f"31 27 0:40 / {tmp_path} rw,relatime - nfs4 10.0.0.1:/export rw\n")
    monkeypatch.setattr(network_drive, "MOUNTS", mounts)
    line = found(app)["file_system"]
    assert (line.severity, "(nfs4)" in line.text) == ("fail", True)
    mounts.write_text("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n")
    assert found(app)["file_system"] == Diagnosis("file_system", "ok", "ext4")


def test_a_file_that_may_not_be_written_is_found(tmp_path, monkeypatch):
    app = file_app(tmp_path)
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: allowed(path, mode) and mode != os.W_OK
    )  # as root everything may be written
    assert found(app)["rights"].severity == "fail"


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "does not exist"), (b"no database at all" * 100, "not an SQLite database")],
)
def test_a_store_that_is_not_there_or_is_none_is_found_and_not_made(content, words, tmp_path):
    path = tmp_path / "work.db"
    if content is not None:
        path.write_bytes(content)
    lines = found(App(f"sqlite:///{path}"))
    assert list(lines)[-1] == "store"
    assert (lines["store"].severity, words in lines["store"].text) == ("fail", True)
    assert path.exists() is (content is not None)


def test_a_schema_that_is_newer_than_this_version_is_found(tmp_path):
    app = file_app(tmp_path)
    with closing(sqlite3.connect(tmp_path / "work.db", isolation_level=None)) as cx:
        cx.execute("INSERT INTO perdure_migrations VALUES (9999, 'later', 'x', 9999, 0)")
    line = found(app)["store"]
    assert (line.severity, "9999" in line.text) == ("fail", True)


ON_A_SMALL_DISK = """
import json, sys
from perdure import App
from perdure.app.surface.doctor import examine
app = App(f"sqlite:///{sys.argv[1]}/work.db")
app.ready()
print(json.dumps({one.check: one.severity.value for one in examine(app._session)}))
"""


@pytest.mark.story
def test_a_disk_that_is_nearly_full_is_found(tmp_path, missing: Callable[[str], Any]):
    """On a file system of 64 MB, which is gone with the command."""
    apart = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    if shutil.which(apart[0]) is None or subprocess.run([*apart, "true"], check=False).returncode:
        missing("the right to mount a small file system (unshare)")
    mounted = 'mount -t tmpfs -o size=64m tmpfs "$1" && exec "$2" -c "$3" "$1"'
    words = [*apart, "sh", "-c", mounted, "sh", str(tmp_path), sys.executable, ON_A_SMALL_DISK]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    if "permission denied" in done.stderr.lower() and "mount" in done.stderr:
        missing("the right to mount a small file system")
    said = json.loads(done.stdout)
    assert (said["disk"], said["file_system"]) == ("fail", "warn"), done.stderr


# -- PostgreSQL ------------------------------------------------------------------------------


def test_a_right_that_the_role_lacks_is_found(furnished_app):
    with psycopg.connect(furnished_app.url, autocommit=True) as cx:
        cx.execute("REVOKE DELETE ON perdure_jobs FROM CURRENT_USER")
        cx.execute("REVOKE INSERT, UPDATE ON perdure_migrations FROM CURRENT_USER")  # not needed
    line = found(furnished_app)["rights"]
    assert (line.severity, line.text) == ("fail", "this role lacks DELETE on perdure_jobs")


def test_a_table_that_may_not_be_read_takes_no_other_line_with_it(furnished_app):
    with psycopg.connect(furnished_app.url, autocommit=True) as cx:
        cx.execute("REVOKE ALL ON perdure_gates, perdure_runs FROM CURRENT_USER")
    lines = found(furnished_app)
    assert [name for name, one in lines.items() if one.severity == "fail"] == [
        "rights",
        "gates",
        "runs",
        "lanes",  # gates close some
    ]
    assert "DELETE on perdure_gates" in lines["rights"].text


def test_a_server_that_takes_no_writes_is_found(furnished):
    app = App(with_options(furnished, default_transaction_read_only="on"))
    line = found(app)["rights"]
    assert (line.severity, line.text[:25]) == ("fail", "the store takes no writes")


def test_a_server_that_is_away_is_found(furnished):
    head, _, database = furnished.rpartition("/")
    app = App(f"{head}/nowhere_{database}")
    assert found(app)["store"].severity == "fail"


def test_a_table_that_is_not_vacuumed_is_found(furnished_app):
    with psycopg.connect(furnished_app.url, autocommit=True) as cx:
        cx.execute("ALTER TABLE perdure_jobs SET (autovacuum_enabled = false)")
    line = found(furnished_app)["autovacuum"]
    assert line.severity == "warn"
    assert "perdure_jobs has autovacuum_enabled=false" in line.text


@pytest.mark.parametrize("sql", ["SELECT txid_current()", "SELECT count(*) FROM perdure_jobs"])
def test_an_old_transaction_is_found_with_who_has_it(sql, furnished_app):
    with psycopg.connect(furnished_app.url, application_name="report") as cx:
        cx.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        cx.execute(sql)
        condition = furnished_app._session.opened.reader.condition()
        assert condition.snapshot_s >= 0
        assert condition.snapshot_of == f"pid {cx.info.backend_pid}, report, idle in transaction"
        assert found(furnished_app)["oldest_transaction"].severity == "ok"
        later = replace(condition, snapshot_s=condition.snapshot_s + 600)
        assert store_condition.snapshot_diagnosis(later).severity == "warn"
    assert furnished_app._session.opened.reader.condition().snapshot_s is None


def test_sessions_of_other_roles_are_counted(furnished_app, postgres):
    database = furnished_app.url.rpartition("/")[2].partition("?")[0]
    with postgres.admin(database):
        assert (
            "sessions of other roles are not seen"
            in found(furnished_app)["oldest_transaction"].text
        )


def test_a_pooler_that_drops_our_settings_is_found(furnished, bouncer):
    line = found(App(bouncer.url(furnished)))["pooler"]
    assert line.severity == "warn"
    assert "enable_seqscan, " in line.text
    assert "statement_timeout" in line.text


def test_a_pooler_before_a_role_that_has_the_settings_is_well(furnished, bouncer, postgres):
    name = furnished.rpartition("/")[2].partition("?")[0]
    with psycopg.connect(furnished, autocommit=True) as cx:
        for setting, value in SETTINGS_ASKED.items():
            cx.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    line = found(App(bouncer.url(furnished)))["pooler"]
    assert (line.severity, "by polling, within 1 s" in line.text) == ("ok", True), line


# -- this process ----------------------------------------------------------------------------


@pytest.fixture
def plain_environment(tmp_path, monkeypatch):
    for name in [one for one in os.environ if one.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def test_settings_at_odds_misspelt_and_wrong_are_found(plain_environment, tmp_path):
    file_app(tmp_path)
    app = App("sqlite:///work.db")
    assert found(app)["settings"].severity == "ok"
    plain_environment.setenv("PERDURE_STORE_URI", "x")
    line = found(app)["settings"]
    assert (line.severity, line.text) == ("warn", "PERDURE_STORE_URI sets nothing")
    plain_environment.setenv("PERDURE_POLL_S", "9")
    line = found(App("sqlite:///work.db"))["settings"]
    assert (line.severity, line.text[:11]) == ("fail", "poll_s is 9")
    (tmp_path / "perdure.toml").write_text("pol_s = 1\n")
    (only,) = examine(None, store="sqlite:///work.db")
    assert (only.check, only.severity) == ("settings", "fail")
    assert "'pol_s' in perdure.toml is no setting; did you mean 'poll_s'?" in only.text


def test_a_grace_that_is_too_short_for_a_stage_is_found(plain_environment, tmp_path):
    file_app(tmp_path)
    app = App("sqlite:///work.db")
    app.pipeline("p", app.stage(name="ask", timeout_s=180)(lambda item: item))
    assert found(app)["grace"].severity == "warn"
    plain_environment.setenv("PERDURE_GRACE_S", "180")
    again = App("sqlite:///work.db")
    again.pipeline("p", again.stage(name="ask", timeout_s=180)(lambda item: item))
    assert found(again)["grace"].severity == "ok"


def test_a_function_that_repeats_itself_is_found_once(plain_environment, tmp_path):
    tenacity = pytest.importorskip("tenacity")
    file_app(tmp_path)
    app = App("sqlite:///work.db")
    ask = app.stage(name="ask")(tenacity.retry(stop=tenacity.stop_after_attempt(3))(lambda _: 1))
    app.pipeline("p", ask)
    app.pipeline("q", ask)
    line = found(app)["retries"]
    assert line.severity == "warn"
    assert line.text.count("stage 'ask': ") == 1


def test_without_an_app_its_stages_are_not_spoken_of(plain_environment, tmp_path):
    file_app(tmp_path)
    checks = [one.check for one in examine(None, store="sqlite:///work.db")]
    assert {"grace", "retries"} & set(checks) == set()
    assert checks[:2] == ["settings", "store"]


def test_to_be_looked_at_changes_nothing(patient):
    patient.pipe.enqueue(1)
    reader = patient.session.opened.reader
    cursor, before = reader.changes().cursor, (reader.deeds(), reader.books(), reader.workers())
    patient.looked_at()
    assert (reader.deeds(), reader.books(), reader.workers()) == before
    assert reader.changes(cursor).entries == ()
