"""A store that is full of work is upgraded to a version that does not exist yet: every value is there, and the work goes on.

What this version makes is the earlier store; the later one has the step of `tests.stores.later`.
"""

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from perdure.model.errors import PerdureError, SchemaMismatch, StoreUnavailable
from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import Enqueued, Lane, NewJob
from perdure.model.operations import LaneScope, NewSchedule
from perdure.model.states import State
from perdure.model.views import SchemaStatus
from perdure.stores.opening import Opened, open_store, schema_of
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import advance, success
from perdure.testing.store_contract.fresh_store import DEED, Place, uuid_of
from tests.servers.proxy import Proxy
from tests.stores.busy import busy_store
from tests.stores.later import CODE_LATER, become, later, real, step
from tests.stores.postgres.kit import SIGNAL_S_MAX, at_once, meanwhile, terminate
from tests.stories.crashing import KILLED, Nursery, strace
from tests.stories.kit import CLI, Story, played, until
from tests.stories.life import tables_of
from tests.stories.looking import looking_at

ROOT = Path(__file__).parents[2]
START = datetime(2020, 1, 1, tzinfo=UTC)  # everything is due, and every lease has run out
GATED = uuid_of(1, 0xABC)
SAMPLE = 19  # of how many points the quick test takes one

Dump = dict[str, list[list[object]]]


# -- an earlier store --------------------------------------------------------------------


@dataclass
class At:
    """A store to be opened on a clock, wherever it is."""

    url: str

    def open(self, clock: VirtualClock) -> Opened:
        return open_store(self.url, clock, create=True, wait_s_max=10.0, injected=True)


def filled(url: str) -> None:
    """One job in each situation, runs, a bulk operation, a capture; and a job with a key behind a gate that is held."""
    with busy_store(At(url), VirtualClock(START)) as busy:
        place = busy.place
        lane = place.lanes_of("gated", upstream="vendor")["one"]
        place.store.enqueue([NewJob(GATED, "gated", lane, "one", "{}", owner="ann", key="k1")])
        place.control.change_gate(GateChange("vendor", 0, GateState.HELD, reason="broken"), DEED)
        place.control.pause(LaneScope.QUEUE, "elsewhere", DEED)
        place.control.put_schedule(NewSchedule("nightly", "p", "every 5 s", "[1]", START))
        place.clean()


def altered(url: str, statement: str) -> None:
    """Change the tables behind the store's back."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as cx:
            cx.execute(statement)
        return
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(statement)


@pytest.fixture(scope="module")
def full_file(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("full") / "work.db"
    filled(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="module")
def full_database(postgres, template) -> Iterator[str]:
    url = postgres.create_database(template=template)
    filled(url)
    yield url
    postgres.drop_database(url)


@pytest.fixture
def file(full_file, tmp_path) -> Path:
    """A full file of this version."""
    return Path(shutil.copy(full_file, tmp_path / "work.db"))


@pytest.fixture
def database_url(postgres, full_database) -> Iterator[str]:
    """A full database of this version."""
    url = postgres.create_database(template=full_database)
    yield url
    postgres.drop_database(url)


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request) -> str:
    """Both stores."""
    return request.param


on_a_file = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


@pytest.fixture
def url(request, kind) -> str:
    """A full store of this version."""
    if kind == "sqlite":
        return f"sqlite:///{request.getfixturevalue('file')}"
    return request.getfixturevalue("database_url")


@pytest.fixture
def opened(url) -> Iterator[Callable[[], Place]]:
    """Opens the store by the code of the moment; it is closed after the test."""
    found: list[Opened] = []
    clock = VirtualClock()

    def place() -> Place:
        found.append(At(url).open(clock))
        return Place(found[-1], clock, series=len(found))

    yield place
    for one in found:
        one.close()


# -- all that is in a store --------------------------------------------------------------


def asked(url: str, sql: str, *values: object) -> list[list[object]]:
    with closing(looking_at(url)) as looking:
        return [list(row) for row in looking.rows(sql, values)]


def columns(url: str) -> dict[str, list[str]]:
    """The columns of every table of ours, but of the one that an upgrade always writes."""
    sql = (
        "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'"
        if url.startswith("sqlite")
        else "SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables "
        "USING (table_schema, table_name) WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
    )
    found: dict[str, list[str]] = {}
    for table, column in asked(url, sql):
        if str(table).startswith("perdure_") and table != "perdure_migrations":
            found.setdefault(str(table), []).append(str(column))
    return found


def dumped(url: str, shown: dict[str, list[str]] | None = None) -> Dump:
    """These columns of these tables, else all of them, row by row."""
    shown = shown or columns(url)
    with closing(looking_at(url)) as looking:
        return {
            name: sorted(
                map(list, looking.rows(f"SELECT {', '.join(own)} FROM {name}", ())), key=repr
            )
            for name, own in shown.items()
        }


SHAPES = """
SELECT table_name, column_name, data_type, is_nullable, coalesce(column_default, '')
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'index', indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT 'view', viewname, definition, '', '' FROM pg_views WHERE schemaname = 'public'
UNION ALL SELECT 'check', conname, pg_get_constraintdef(oid), '', '' FROM pg_constraint
WHERE connamespace = 'public'::regnamespace
"""


def shape(url: str) -> set[tuple[object, ...]]:
    """The schema itself: tables, columns, views, indexes and checks."""
    on_file = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"
    return set(map(tuple, asked(url, on_file if url.startswith("sqlite") else SHAPES)))


def status(url: str) -> SchemaStatus:
    with closing(schema_of(url, VirtualClock(), create=False)) as schema:
        return schema.status()


def upgraded(url: str) -> tuple[str, ...]:
    """Upgrade a store by the code of this moment; what was applied."""
    with closing(schema_of(url, VirtualClock(), create=True)) as schema:
        return schema.upgrade()


def upgrade_later(url: str) -> None:
    """Be a process of the later version that upgrades a store."""
    become()
    upgraded(url)


# -- what is kept ------------------------------------------------------------------------


def test_the_earlier_store_has_work_of_every_kind_in_it(url):
    found = dumped(url)
    states = {state for (state,) in asked(url, "SELECT state FROM perdure_jobs")}
    assert states == {one.value for one in State}
    for name in (
        "jobs",
        "attempts",
        "checkpoints",
        "workers",
        "lanes",
        "runs",
        "run_counts",
        "run_kinds",
        "gates",
        "pauses",
        "schedules",
        "bulks",
        "bulk_refusals",
        "artifacts",
        "audit_log",
    ):
        assert found[f"perdure_{name}"], name


def test_every_value_is_there_after_an_upgrade(url):
    shown = columns(url)
    before = dumped(url, shown)
    with later():
        assert upgraded(url) == (step(url),)
    assert dumped(url, shown) == before
    assert "colour" in columns(url)["perdure_jobs"]


def test_a_value_that_was_lost_would_be_seen(url):
    shown = columns(url)
    before = dumped(url, shown)
    with later(more="UPDATE perdure_gates SET reason = '';\n"):
        upgraded(url)
    after = dumped(url, shown)
    assert [name for name in shown if after[name] != before[name]] == ["perdure_gates"]


def test_what_is_new_is_made_out_of_what_was_there(url):
    with later():
        upgraded(url)
    assert dumped(url)["perdure_colours"] == [
        ["gated", "grey", 1],
        ["p", "grey", 8],
        ["p", "red", 3],
    ]
    reds = asked(url, "SELECT state FROM perdure_jobs WHERE colour = 'red'")
    assert reds == [["failed"]] * 3


def test_all_that_can_be_read_reads_as_it_did(url, opened):
    before = opened().everything()
    with later():
        upgraded(url)
        place = opened()
    assert place.everything() == before
    place.clean()


def test_numbers_go_on_where_they_were_even_if_the_last_row_is_gone(url, opened):
    ((last, pipeline),) = asked(
        url, "SELECT no, pipeline FROM perdure_lanes ORDER BY no DESC LIMIT 1"
    )
    altered(url, f"DELETE FROM perdure_lanes WHERE no = {last}")
    assert pipeline == "gated"  # its second stage, where nobody has been
    with later():
        upgraded(url)
        numbers = opened().store.lanes([Lane("q", "c", "p", "one"), Lane("q", "c", "p", "new")])
    assert sorted(numbers.values()) == [1, last + 1]


def test_keys_find_their_jobs_and_stay_unique(url, opened):
    with later():
        upgraded(url)
        place = opened()
    lane = place.lanes_of("gated", upstream="vendor")["one"]
    again = NewJob(uuid_of(2, 0xABC), "gated", lane, "one", "{}", owner="ann", key="k1")
    assert place.store.enqueue([again]) == [Enqueued(GATED, place.see(GATED).no, created=False)]


def test_a_gate_that_was_held_is_held_until_it_is_released(url, opened):
    with later():
        upgraded(url)
        place = opened()
    place.lanes = place.lanes_of("gated", upstream="vendor")
    worker = place.hire()
    assert place.take(worker) == []
    gate = place.reader.gate("vendor")
    assert gate is not None
    place.control.change_gate(GateChange("vendor", gate.generation, GateState.FLOWING), DEED)
    (claim,) = place.take(worker)
    assert claim.id == GATED
    place.settle(success(claim, worker), by=worker)
    place.clean()


# -- which code may work on which store --------------------------------------------------


def goes_on(place: Place) -> None:
    """The work that waited is done, through both stages, and so is new work."""
    id = place.put().id
    worker = place.hire()
    while claims := place.take(worker, 9):
        place.settle(
            *(
                advance(one, worker, place.lanes["two"])
                if one.stage == "one"
                else success(one, worker)
                for one in claims
            ),
            by=worker,
        )
    assert place.see(id).state is State.SUCCEEDED
    place.clean()


def test_the_status_says_what_is_pending_and_changes_nothing(url):
    before = dumped(url), shape(url)
    version = real(url)[-1].number
    assert (status(url).version, status(url).pending) == (version, ())
    with later():
        found = status(url)
    assert (found.version, found.known_version, found.pending) == (
        version,
        version + 1,
        (step(url),),
    )
    assert (dumped(url), shape(url)) == before


def test_the_later_code_refuses_the_earlier_store_and_says_what_to_run(url, opened):
    before = dumped(url)
    with later(), pytest.raises(SchemaMismatch, match="run: perdure db upgrade --store") as caught:
        opened()
    version = real(url)[-1].number
    assert f"is at {version}, this version of Perdure needs {version + 1};" in str(caught.value)
    whose = "--store URL, with the URL of 'perdure', who owns its tables"
    assert ("sqlite" in url) or str(caught.value).endswith(whose)
    assert dumped(url) == before


def test_the_later_code_works_on_the_store_that_it_has_upgraded(url, opened):
    with later():
        upgraded(url)
        goes_on(opened())


def test_the_earlier_code_works_on_a_later_store_that_allows_it(url, opened):
    with later():
        upgraded(url)
    assert upgraded(url) == ()
    assert (status(url).version, status(url).pending) == (real(url)[-1].number + 1, ())
    goes_on(opened())
    assert asked(url, "SELECT DISTINCT colour FROM perdure_jobs WHERE state = 'succeeded'") == [
        ["grey"]
    ]


def test_the_earlier_code_goes_on_where_it_was_when_another_process_upgrades(url, opened):
    place = opened()
    place.put()
    with later():
        upgraded(url)
    goes_on(place)


def test_the_earlier_code_refuses_a_later_store_that_is_not_for_it(url, opened):
    with later(compat_min=CODE_LATER):
        upgraded(url)
        goes_on(opened())
    before = dumped(url)
    for call in (opened, lambda: upgraded(url)):
        with pytest.raises(SchemaMismatch, match=r"needs a newer version .* upgrade the package"):
            call()
    assert dumped(url) == before


def test_a_step_that_was_changed_after_it_was_applied_is_refused(url, opened):
    with later():
        upgraded(url)
    number = real(url)[-1].number + 1
    with later(more="-- another form\n"):
        for call in (opened, lambda: upgraded(url)):
            with pytest.raises(
                SchemaMismatch, match=f"migration {number} .* belongs to another build"
            ):
                call()


# -- from any version to the same schema -------------------------------------------------


@pytest.fixture
def empty(request, kind, tmp_path) -> Iterator[Callable[[], str]]:
    """Makes stores without a schema."""
    made: list[str] = []
    server = request.getfixturevalue("postgres") if kind == "postgres" else None

    def store() -> str:
        file = f"sqlite:///{tmp_path / f'{len(made)}.db'}"
        made.append(file if server is None else server.create_database())
        return made[-1]

    yield store
    for one in made if server is not None else ():
        server.drop_database(one)


def test_the_migrations_add_up_to_one_schema_whatever_the_path(empty):
    whole = empty()
    with later():
        done = upgraded(whole)
    for through in range(1, len(done)):
        url = empty()
        with later(through=through):
            assert upgraded(url) == done[:through]
        with later():
            assert upgraded(url) == done[through:]
        assert shape(url) == shape(whole)
    assert not [one for one in shape(whole) if "_old_" in str(one)]


def test_a_full_store_gets_the_same_schema_as_an_empty_one(url, empty):
    fresh = empty()
    with later():
        upgraded(url)
        upgraded(fresh)
    assert shape(url) == shape(fresh)


def test_an_index_more_or_less_would_be_seen(url):
    before = shape(url)
    altered(url, "DROP INDEX perdure_jobs_ready")
    assert shape(url) != before


# -- upgrades that fail, are cut short, or meet ------------------------------------------


def test_a_step_that_fails_at_its_end_leaves_all_as_it_was(url, opened):
    before = dumped(url), shape(url)
    with (
        later(more="INSERT INTO perdure_nowhere VALUES (1);\n"),
        pytest.raises(PerdureError, match="perdure_nowhere"),
    ):
        upgraded(url)
    assert (dumped(url), shape(url)) == before
    goes_on(opened())
    with later():
        assert upgraded(url) == (step(url),)


def test_a_step_that_leaves_a_row_which_points_to_nothing_is_taken_back(url):
    before = dumped(url), shape(url)
    orphan = "CREATE TABLE perdure_stray (job BIGINT REFERENCES perdure_jobs (no));\n"
    orphan += "INSERT INTO perdure_stray VALUES (777777);\n"
    with later(more=orphan), pytest.raises(PerdureError, match="perdure_stray"):
        upgraded(url)
    assert (dumped(url), shape(url)) == before


def test_many_that_upgrade_at_once_apply_it_once(url):
    with later():
        done = at_once([lambda: upgraded(url)] * 4)
    assert sorted(done, key=len) == [(), (), (), (step(url),)]


def upgrades_killed(folder: Path, full: Path, *, sample: int) -> None:
    """Kill an upgrade at its writes; each time the file is old or new, and can be upgraded again."""
    whole = Path(shutil.copy(full, folder / "whole.db"))
    before, called = tables_of(whole), "tests.stores.test_upgrade:upgrade_later"
    with Nursery() as nursery:
        points = nursery.points(called, f"sqlite:///{whole}")
        after = tables_of(whole)
        seen = set()
        for number, point in enumerate([*points[::sample], points[-1]]):
            path = Path(shutil.copy(full, folder / f"{number}.db"))
            assert nursery.crashed_at(point, called, f"sqlite:///{path}") == KILLED
            found = tables_of(path)
            assert found in (before, after), f"half an upgrade, killed at {point}"
            assert_upgradable(f"sqlite:///{path}", done=found == after)
            assert tables_of(path) == after
            seen.add(found == after)
    print(f"FIGURE killed at {len(points[::sample])} of {len(points)} points of an upgrade")
    assert seen == {True, False}  # else the kills have all come too early or too late


def assert_upgradable(url: str, *, done: bool) -> None:
    pending = () if done else (step(url),)
    with later():
        assert status(url).pending == pending
        if pending:
            with pytest.raises(SchemaMismatch, match="perdure db upgrade"):
                At(url).open(VirtualClock())
        assert upgraded(url) == pending


@pytest.fixture
def tracer(missing) -> None:
    if strace() is None:
        missing("strace, to crash processes at their writes (make parts)")


def test_an_upgrade_that_is_killed_has_happened_or_not(tmp_path, full_file, tracer):
    upgrades_killed(tmp_path, full_file, sample=SAMPLE)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_upgrade_that_is_killed_anywhere_has_happened_or_not(tmp_path, full_file, tracer):
    upgrades_killed(tmp_path, full_file, sample=1)


@pytest.mark.parametrize(
    "words",
    [b"pg_advisory_xact_lock", b"perdure_colours", b"INSERT INTO perdure_migrations", b"COMMIT"],
)
def test_an_upgrade_on_a_server_that_is_cut_off_has_not_happened(postgres, database_url, words):
    before = dumped(database_url), shape(database_url)
    with Proxy(postgres.port) as proxy, later():
        trap = proxy.hold(words)
        with meanwhile(lambda: upgraded(proxy.url(database_url))) as answer:
            assert trap.sprung.wait(SIGNAL_S_MAX)
            terminate(postgres, database_url)
            proxy.heal()
            with pytest.raises(StoreUnavailable):
                answer()
    assert (dumped(database_url), shape(database_url)) == before
    assert_upgradable(database_url, done=False)


def test_an_upgrade_on_a_server_whose_answer_was_lost_has_happened(postgres, database_url):
    shown = columns(database_url)
    before = dumped(database_url, shown)
    with Proxy(postgres.port) as proxy, later():
        proxy.lose_reply(b"COMMIT")
        with pytest.raises(StoreUnavailable):
            upgraded(proxy.url(database_url))
    assert dumped(database_url, shown) == before
    assert_upgradable(database_url, done=True)


# -- the commands and a worker of the later version --------------------------------------

APP = """
import perdure

app = perdure.App()


@app.stage()
async def one(item):
    return item


@app.stage()
async def two(item):
    return "done"


p = app.pipeline("p", one, two, queue="q", category="c")
"""


@pytest.fixture
def story(url, tmp_path) -> Iterator[Story]:
    """A story whose processes are all of the later version, and whose store is of this one."""
    with played(tmp_path, url) as story:
        (story.folder / "later_app.py").write_text(APP)
        (story.folder / "sitecustomize.py").write_text(
            "from tests.stores.later import become\n\nbecome()\n"
        )
        given = os.environ.get("PYTHONPATH", "")
        story.settings["PYTHONPATH"] = f"{story.folder}:{ROOT}:{given}".rstrip(":")
        for end in ("SUCCEEDED", "CANCELLED", "DISCARDED"):  # its jobs ended long ago
            story.settings[f"PERDURE_RETAIN_{end}_S"] = "forever"
        yield story


@on_a_file
def test_the_command_says_what_is_pending_and_changes_nothing(story, url):
    before = dumped(url), shape(url)
    version = real(url)[-1].number
    done = story.perdure("db", "status")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(
        f": schema {version} of {version + 1}, pending: {step(url)}; run: perdure db upgrade\n"
    )
    told = json.loads(story.perdure("db", "status", "--json").stdout)
    assert told["pending"] == [step(url)]
    assert (dumped(url), shape(url)) == before


def test_the_status_of_a_file_is_told_without_touching_it(file):
    content = file.read_bytes()
    with later():
        assert status(f"sqlite:///{file}").pending
    assert file.read_bytes() == content
    assert sorted(one.name for one in file.parent.iterdir()) == [file.name]


COMMANDS = [
    ["jobs", "list"], ["jobs", "show", "1"], ["audit"], ["enqueue", "later_app:p", "{}"],
    ["worker", "later_app:app"],
]  # fmt: skip


@on_a_file
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_other_command_refuses_an_earlier_file_and_says_what_to_run(story, url, words):
    before = dumped(url)
    done = story.perdure(*words)
    assert (done.returncode, done.stdout) == (16, "")
    [line] = done.stderr.splitlines()
    assert line.endswith(f"run: perdure db upgrade --store {url}")
    assert dumped(url) == before


@on_a_file
def test_two_commands_that_upgrade_at_once_apply_it_once(story, url):
    both = [
        subprocess.Popen(
            [*CLI, "db", "upgrade", "--json"],
            cwd=story.folder,
            env=story.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [one.communicate(timeout=60) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert sorted(json.loads(out)["applied"] for out, _ in said) == [[], [step(url)]]


@pytest.mark.long
def test_a_worker_drains_an_upgraded_store(story, url):
    assert story.perdure("db", "upgrade").returncode == 0
    assert story.states() == {
        "queued": 5,
        "processing": 1,
        "succeeded": 2,
        "failed": 3,
        "cancelled": 1,
    }
    (lost,) = [
        str(row[0]) for row in story.rows("SELECT id FROM perdure_jobs WHERE state = 'processing'")
    ]
    worker = story.worker("a", lease_s=1.0, module="later_app")
    ended = {"queued": 1, "succeeded": 7, "failed": 3, "cancelled": 1}  # one waits behind its gate
    until("all is done but what is gated", lambda: story.states() == ended, within_s=60)
    first, *more = [(row["stage"], row["status"]) for row in story.attempts(lost)]
    # Its worker is gone, and it has taken longer than it may: whichever is found first.
    assert first in (("one", "interrupted"), ("one", "retrying"))
    assert more == [("one", "success"), ("two", "success")]
    worker.kill(15)
    assert worker.exit_status(within_s=30) == 0
    story.assert_audit_is_clean()
