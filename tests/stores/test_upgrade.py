"""A file of an earlier version, full of jobs, is upgraded: every value is there, and the work goes on."""

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.model.errors import SchemaMismatch
from perdure.model.jobs import Lane, NewJob, Receipt
from perdure.model.operations import BulkPhase, BulkStep, Deed, Revival
from perdure.model.runs import RunStatus
from perdure.model.workers import NewWorker, Role
from perdure.stores.migrations import migrations
from perdure.stores.opening import Opened, open_store, schema_of
from perdure.stores.sqlite.schema import PACKAGE
from perdure.testing import VirtualClock
from tests.stores import old
from tests.stories.crashing import KILLED, Nursery, strace
from tests.stories.kit import CLI, Story, played
from tests.stories.life import Tables, tables_of

STEPS = [f"{one.number:04d}_{one.name}" for one in migrations(PACKAGE)]
SAMPLE = 19  # of how many points the quick test takes one

# What an upgrade leaves out by design.
GONE = {"perdure_attempts": {"no"}}


@pytest.fixture
def path(tmp_path) -> Path:
    """A file of the first version."""
    file = tmp_path / "work.db"
    old.make(file)
    return file


@pytest.fixture
def opened(path) -> Iterator[Opened]:
    """The file, upgraded."""
    old.upgrade(str(path))
    found = open_store(f"sqlite:///{path}", VirtualClock(), create=False, wait_s_max=5.0)
    yield found
    found.close()


def columns(path: Path) -> dict[str, list[str]]:
    """The columns of every table of ours."""
    raw = sqlite3.connect(path)
    names = raw.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'perdure!_%' ESCAPE '!'"
    ).fetchall()
    found = {
        name: [row[1] for row in raw.execute(f"PRAGMA table_info({name})")] for (name,) in names
    }
    raw.close()
    return found


def values(path: Path, shown: dict[str, list[str]]) -> Tables:
    """These columns of these tables, row by row."""
    raw = sqlite3.connect(path)
    found = {
        name: sorted(raw.execute(f"SELECT {', '.join(own)} FROM {name}").fetchall(), key=repr)
        for name, own in shown.items()
    }
    raw.close()
    return found


def kept(path: Path) -> dict[str, list[str]]:
    """The columns of a file of the first version that later ones keep."""
    return {
        name: [one for one in own if one not in GONE.get(name, ())]
        for name, own in columns(path).items()
        if name != "perdure_migrations"
    }


# -- what is kept ------------------------------------------------------------------------


def test_the_old_file_has_every_state_reason_and_status(path):
    found = values(
        path, {"perdure_jobs": ["state", "failed_reason"], "perdure_attempts": ["status"]}
    )
    states = {state for state, _ in found["perdure_jobs"]}
    reasons = {reason for _, reason in found["perdure_jobs"]} - {None}
    statuses = {status for (status,) in found["perdure_attempts"]}
    assert states == {"queued", "processing", "succeeded", "failed", "cancelled"}
    assert reasons == {"fatal", "exhausted", "crashed", "expired"}
    assert len(statuses) == 7


def test_every_value_is_there_after_an_upgrade(path):
    shown = kept(path)
    before = values(path, shown)
    assert all(before.values())
    old.upgrade(str(path))
    assert values(path, shown) == before


def test_a_value_that_was_lost_would_be_seen(path):
    shown = kept(path)
    before = values(path, shown)
    old.upgrade(str(path))
    raw = sqlite3.connect(path)
    raw.execute("UPDATE perdure_jobs SET order_at = rank_at WHERE no = 5")
    raw.commit()
    raw.close()
    assert values(path, shown) != before


def test_the_books_balance_and_the_audit_is_clean_after_an_upgrade(opened):
    books = opened.reader.books()
    assert books.balanced
    assert (books.accepted, books.pruned) == (20, 5)
    assert opened.reader.audit() == []


def test_a_job_reads_as_it_was(opened):
    job = opened.reader.job("00000000-0000-7000-8000-000000000005")
    assert job is not None
    assert (job.no, job.result_json, job.label, job.past.starts) == (5, '"done"', "passed", 2)
    assert [one.stage for one in opened.reader.attempts(5)] == ["prepare", "work", "finish"]
    assert (job.run, job.redrive_run, job.discarded_at, job.retries_manual) == (None, None, None, 0)


def test_a_deadline_from_before_is_its_callers_and_as_long_in_each_life(opened):
    job = opened.reader.job("00000000-0000-7000-8000-000000000001")
    length_s = (job.deadline_at - job.ordered_at).total_seconds()
    assert (job.request_id, job.deadline_s, job.policies_s) == (job.id, length_s, None)


def test_numbers_go_on_where_they_were_even_if_the_last_rows_are_gone(opened):
    lane = Lane("default", "default", "walk", "prepare")
    numbers = opened.store.lanes([lane, Lane("default", "default", "walk", "new")])
    assert sorted(numbers.values()) == [1, old.LAST["perdure_lanes"] + 1]
    worker = opened.store.add_worker(NewWorker("boot-9", "host:9", Role.MAIN, 15.0))
    assert worker == old.LAST["perdure_workers"] + 1
    new = NewJob("00000000-0000-7000-8000-00000000ffff", "walk", 1, "prepare", "{}")
    (done,) = opened.store.enqueue([new])
    assert done.no == old.LAST["perdure_jobs"] + 1


def test_keys_find_their_jobs_and_stay_unique(opened, path):
    new = NewJob(
        "00000000-0000-7000-8000-00000000ffff", "walk", 1, "prepare", "{}", owner="ann", key="k1"
    )
    (found,) = opened.store.enqueue([new])
    assert (found.no, found.created) == (1, False)
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="perdure_jobs_key"):
        raw.execute("UPDATE perdure_jobs SET pipeline = 'walk' WHERE no = 15")
    raw.close()


# -- what runs and bulk operations were before they had kinds, seals and phases ----------


@pytest.fixture
def with_runs(tmp_path) -> Iterator[Opened]:
    """A file of the third version with runs in it, upgraded."""
    file = tmp_path / "runs.db"
    old.make(file, through=3)
    old.add_runs(file)
    shown = kept(file)
    before = values(file, shown)
    old.upgrade(str(file))
    assert values(file, shown) == before
    found = open_store(f"sqlite:///{file}", VirtualClock(), create=False, wait_s_max=5.0)
    yield found
    found.close()


def test_the_failed_jobs_of_old_runs_have_their_kinds_and_none_is_missing(with_runs):
    again, first = with_runs.reader.runs(owner="ann")
    assert first.kinds == {"": 1, "input_invalid": 1, "network": 1, "worker_lost": 1}
    assert again.kinds == {"worker_lost": 1}
    for run in (first, again):
        assert sum(run.kinds.values()) == run.counts.failed
    assert first.counts.cost_nusd == 0
    assert with_runs.reader.audit() == []


def test_a_run_that_had_ended_has_all_of_its_items_and_one_that_goes_on_is_not_sealed(with_runs):
    again, first = with_runs.reader.runs(owner="ann")
    assert first.sealed_at == first.ended_at is not None
    assert (again.sealed_at, again.ended_at, again.why, again.checked) == (None, None, "", 0)
    assert with_runs.reader.runs(live=True) == [again]


def test_dead_letters_of_an_old_run_can_be_driven_again(with_runs):
    job = with_runs.reader.job("00000000-0000-7000-8000-000000000007")
    assert job is not None
    lane = Lane("default", "default", "walk", "work", run=2)
    revival = Revival(
        job.no,
        job.id,
        job.token,
        "work",
        with_runs.store.lanes([lane])[lane],
        "prepare",
        redrive_run=2,
    )
    (answer,) = with_runs.control.revive([revival], Deed("bo"))
    assert isinstance(answer, Receipt)
    again, first = with_runs.reader.runs(owner="ann")
    assert (first.status, first.counts.failed) == (RunStatus.RUNNING, 3)
    assert first.kinds == {"": 1, "input_invalid": 1, "worker_lost": 1}
    assert again.counts.open == 1
    assert with_runs.reader.audit() == []


def test_an_old_bulk_operation_goes_on_with_all_that_is_left(with_runs):
    (bulk,) = with_runs.reader.bulks(running=True)
    assert (bulk.phase, bulk.cursor, bulk.done) == (BulkPhase.ALL, 9, 3)
    moved = with_runs.control.step_bulk(BulkStep(bulk.no, 9, 4, done=1))
    assert moved is not None
    assert (moved.cursor, moved.done) == (4, 4)


def test_an_old_capture_was_never_cut(with_runs):
    (view,) = with_runs.reader.captures(5)
    assert (view.bytes_kept, view.bytes_whole) == (6, 6)
    assert with_runs.reader.capture(view.id, owner=None) == (view, "naïve".encode())


# -- from any version to the same schema -------------------------------------------------


def schema(path: Path) -> set[tuple[str, ...]]:
    raw = sqlite3.connect(path)
    found = set(raw.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"))
    raw.close()
    return found


@pytest.mark.parametrize("through", range(1, len(STEPS)))
@pytest.mark.parametrize("filled", [True, False], ids=["full", "empty"])
def test_the_migrations_add_up_to_one_schema_whatever_the_path(tmp_path, through, filled):
    step, at_once = tmp_path / "step.db", tmp_path / "at once.db"
    old.make(step, through=through, filled=filled)
    old.upgrade(str(step))
    old.upgrade(str(at_once))
    assert schema(step) == schema(at_once)
    assert not [name for _, name, table, sql in schema(step) if "old" in name + table + sql]


def test_an_index_more_or_less_would_be_seen(tmp_path, path):
    old.upgrade(str(path))
    before = schema(path)
    raw = sqlite3.connect(path)
    raw.execute("DROP INDEX perdure_jobs_ready")
    raw.close()
    assert schema(path) != before


# -- upgrades that are cut short, or meet ------------------------------------------------


def upgrades_killed(folder: Path, *, sample: int) -> None:
    """Kill an upgrade at its writes; each time the file is old or new, and can be upgraded again."""
    whole = folder / "whole.db"
    old.make(whole)
    before = tables_of(whole)
    with Nursery() as nursery:
        points = nursery.points("tests.stores.old:upgrade", str(whole))
        after = tables_of(whole)
        seen = set()
        for number, point in enumerate(points[::sample]):
            path = folder / f"{number}.db"
            old.make(path)
            assert nursery.crashed_at(point, "tests.stores.old:upgrade", str(path)) == KILLED
            found = tables_of(path)
            assert found in (before, after), f"half an upgrade, killed at {point}"
            assert_upgradable(path, len(STEPS) if found == after else 1)
            assert tables_of(path) == after
            seen.add(found == after)
    print(f"FIGURE killed at {len(points[::sample])} of {len(points)} points of an upgrade")
    assert seen == {True, False}  # else the kills have all come too early or too late


def assert_upgradable(path: Path, version: int) -> None:
    looking = schema_of(f"sqlite:///{path}", VirtualClock(), create=False)
    status = looking.status()
    looking.close()
    assert (status.version, list(status.pending)) == (version, STEPS[version:])
    if version < len(STEPS):
        with pytest.raises(SchemaMismatch, match="perdure db upgrade"):
            open_store(f"sqlite:///{path}", VirtualClock(), create=True, wait_s_max=5.0)
    old.upgrade(str(path))


@pytest.fixture
def tracer(missing) -> None:
    if strace() is None:
        missing("strace, to crash processes at their writes (make parts)")


def test_an_upgrade_that_is_killed_has_happened_or_not(tmp_path, tracer):
    upgrades_killed(tmp_path, sample=SAMPLE)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_upgrade_that_is_killed_anywhere_has_happened_or_not(tmp_path, tracer):
    upgrades_killed(tmp_path, sample=1)


def test_two_commands_that_upgrade_at_once_apply_it_once(path):
    command = [*CLI, "db", "upgrade", "--store", f"sqlite:///{path}", "--json"]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate(timeout=60) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    applied = sorted(json.loads(out)["applied"] for out, _ in said)
    assert applied == [[], STEPS[1:]]


# -- the command and a worker ------------------------------------------------------------


@pytest.fixture
def old_story(tmp_path) -> Iterator[Story]:
    """A story whose store is a file of the first version."""
    with played(tmp_path) as story:
        old.make(story.file)
        for end in ("SUCCEEDED", "CANCELLED", "DISCARDED"):  # its jobs ended long ago
            story.settings[f"PERDURE_RETAIN_{end}_S"] = "forever"
        yield story


def test_the_status_of_an_old_file_says_what_is_pending_and_changes_nothing(old_story):
    content = old_story.file.read_bytes()
    done = old_story.perdure("db", "status")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"schema 1 of {len(STEPS)}, pending: {', '.join(STEPS[1:])}\n" in done.stdout
    told = json.loads(old_story.perdure("db", "status", "--json").stdout)
    assert told["pending"] == STEPS[1:]
    assert old_story.file.read_bytes() == content
    assert sorted(one.name for one in old_story.folder.glob("story.db*")) == ["story.db"]


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "list"],
        ["jobs", "show", "1"],
        ["audit"],
        ["enqueue", "work:walk", '{"work":{}}'],
        ["worker", "work:app"],
    ],
    ids=" ".join,
)
def test_every_other_command_refuses_an_old_file_and_says_what_to_run(old_story, words):
    before = tables_of(old_story.file)
    done = old_story.perdure(*words)
    assert (done.returncode, done.stdout) == (16, "")
    [line] = done.stderr.splitlines()
    assert line.endswith(f"run: perdure db upgrade --store {old_story.url}")
    assert tables_of(old_story.file) == before


def test_a_worker_drains_an_upgraded_file(old_story):
    assert old_story.perdure("db", "upgrade").returncode == 0
    assert old_story.states()["queued"] == 6
    worker = old_story.worker("a", lease_s=1.0)
    states = old_story.all_ended(within_s=60)
    assert states == {"succeeded": 9, "failed": 4, "cancelled": 2}
    lost = "00000000-0000-7000-8000-000000000004"
    assert [(one["stage"], one["status"]) for one in old_story.attempts(lost)] == [
        ("prepare", "success"),
        ("work", "interrupted"),
        ("work", "success"),
        ("finish", "success"),
    ]
    worker.kill(15)
    assert worker.exit_status(within_s=30) == 0
    old_story.assert_audit_is_clean()
