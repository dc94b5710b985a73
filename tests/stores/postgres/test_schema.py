"""The schema on a server: made once by many, whole or not at all, and refused where it does not fit.

How an earlier one is upgraded: see tests/stores/test_upgrade.py; here, only what happens to others meanwhile.
"""

import threading
from functools import partial

import psycopg
import pytest

from perdure.model.errors import SchemaMismatch, StoreBusy, StoreUnavailable
from perdure.model.jobs import Receipt
from perdure.stores.migrations import CODE_VERSION, Migration, migrations
from perdure.stores.opening import open_store
from perdure.stores.postgres import schema as module
from perdure.stores.postgres.schema import PACKAGE, PostgresSchema
from perdure.testing import VirtualClock
from tests.stores.kit import success
from tests.stores.postgres.kit import (
    SIGNAL_S_MAX,
    alter,
    at_once,
    blocked,
    meanwhile,
    opened,
    other,
    terminate,
    with_options,
)

KNOWN = tuple(one.label for one in migrations(PACKAGE))


@pytest.fixture
def open_schema():
    """Opens schemas: `open_schema(url)`; their connections are closed after the test."""
    connections = []

    def schema(url: str) -> PostgresSchema:
        connections.append(opened(url))
        return PostgresSchema(connections[-1])

    yield schema
    for one in connections:
        one.close()


@pytest.fixture
def fresh(open_schema, database) -> PostgresSchema:
    """The schema of a database that nobody has used."""
    return open_schema(database)


def objects(url: str) -> set[str]:
    """Every table, view and index of ours."""
    with psycopg.connect(url, autocommit=True) as cx:
        rows = cx.execute("SELECT relname FROM pg_class WHERE relname LIKE 'perdure%'").fetchall()
    return {name for (name,) in rows}


def opened_by_app(url: str):
    return open_store(url, VirtualClock(), create=True, wait_s_max=2.0, injected=True)


# -- making it ---------------------------------------------------------------------------------------


def test_an_empty_database_has_no_schema_and_everything_pending(fresh, database):
    status = fresh.status()
    assert not status.present
    assert (status.version, status.pending) == (0, KNOWN)
    assert ":***@" in status.url
    assert objects(database) == set()


def test_an_upgrade_applies_all_and_a_second_one_nothing(fresh):
    assert fresh.upgrade() == KNOWN
    assert fresh.upgrade() == ()
    status = fresh.status()
    assert (status.present, status.pending) == (True, ())
    assert status.version == status.known_version == migrations(PACKAGE)[-1].number
    fresh.check()


def test_the_migrations_are_numbered_without_gaps_and_let_this_code_run():
    steps = migrations(PACKAGE)
    assert [one.number for one in steps] == list(range(1, len(steps) + 1))
    assert all(one.compat_min <= CODE_VERSION for one in steps)


def test_many_that_upgrade_at_once_apply_it_once(open_schema, database):
    schemas = [open_schema(database) for _ in range(8)]
    done = at_once([one.upgrade for one in schemas])
    assert sorted(done, key=len) == [()] * 7 + [KNOWN]


def test_who_upgrades_second_waits_for_the_first_longer_than_for_any_other_lock(
    open_schema, database, postgres
):
    schema = open_schema(with_options(database, lock_timeout="200ms"))
    with other(database) as cx:
        cx.execute("SELECT pg_advisory_xact_lock(%s)", (module._LOCK,))
        with meanwhile(schema.upgrade) as answer:
            blocked(postgres, database)
            assert not threading.Event().wait(0.5)
            cx.rollback()
            assert answer() == KNOWN


def test_who_upgrades_second_does_not_wait_for_ever(fresh, database, monkeypatch):
    monkeypatch.setattr(module, "_TURN_S_MAX", 1)
    with other(database) as cx:
        cx.execute("SELECT pg_advisory_xact_lock(%s)", (module._LOCK,))
        with pytest.raises(StoreBusy, match="try again"):
            fresh.upgrade()
    assert fresh.upgrade() == KNOWN


STEPS = [
    b"pg_advisory_xact_lock",
    b"CREATE TABLE IF NOT EXISTS perdure_migrations",
    b"CREATE TABLE perdure_lanes",
    b"INSERT INTO perdure_migrations",
    b"COMMIT",
]


@pytest.mark.parametrize("words", STEPS, ids=lambda words: words.decode()[:24])
def test_an_upgrade_that_is_killed_leaves_nothing_and_can_be_done_again(
    open_schema, database, proxy, words
):
    schema = open_schema(proxy.url(database))
    trap = proxy.hold(words)
    with meanwhile(schema.upgrade) as answer:
        assert trap.sprung.wait(SIGNAL_S_MAX)
        proxy.reset()
        proxy.heal()
        with pytest.raises(StoreUnavailable):
            answer()
    assert objects(database) == set()
    assert schema.upgrade() == KNOWN


def test_an_upgrade_whose_backend_is_ended_leaves_nothing(open_schema, database, proxy, postgres):
    schema = open_schema(proxy.url(database))
    trap = proxy.hold(b"INSERT INTO perdure_migrations")
    with meanwhile(schema.upgrade) as answer:
        assert trap.sprung.wait(SIGNAL_S_MAX)
        terminate(postgres, database)
        trap.released.set()
        with pytest.raises(StoreUnavailable):
            answer()
    assert objects(database) == set()
    assert schema.upgrade() == KNOWN


def test_an_upgrade_whose_answer_was_lost_has_happened(open_schema, database, proxy):
    schema = open_schema(proxy.url(database))
    proxy.lose_reply(b"COMMIT")
    with pytest.raises(StoreUnavailable):
        schema.upgrade()
    assert schema.upgrade() == ()
    schema.check()


# -- what does not fit ---------------------------------------------------------------------------------


def test_a_migration_that_was_changed_afterwards_is_refused(fresh, database):
    fresh.upgrade()
    alter(database, "UPDATE perdure_migrations SET checksum = 'other'")
    for call in (fresh.check, fresh.upgrade, partial(opened_by_app, database)):
        with pytest.raises(SchemaMismatch, match=r"migration 1 .* another build") as caught:
            call()
        assert caught.value.exit_code == 16


def test_a_schema_that_needs_newer_code_is_refused_with_advice(fresh, database):
    fresh.upgrade()
    alter(
        database,
        f"INSERT INTO perdure_migrations VALUES (99, 'future', 'x', {CODE_VERSION + 1}, 0)",
    )
    for call in (fresh.check, fresh.upgrade, partial(opened_by_app, database)):
        with pytest.raises(SchemaMismatch, match=r"is at 99 and needs a newer version .* upgrade"):
            call()


def test_a_newer_schema_that_lets_this_code_run_is_fine(fresh, database):
    fresh.upgrade()
    alter(database, f"INSERT INTO perdure_migrations VALUES (99, 'f', 'x', {CODE_VERSION}, 0)")
    fresh.check()
    assert fresh.upgrade() == ()
    opened_by_app(database).close()


SECOND = Migration(
    migrations(PACKAGE)[-1].number + 1,
    "colours",
    "-- compat_min: 1\nALTER TABLE perdure_jobs ADD COLUMN colour text;\n"
    "ALTER TABLE perdure_attempts ADD COLUMN colour text;\n"
    "ALTER TABLE perdure_workers ADD COLUMN colour text;\n",
    1,
)


@pytest.fixture
def with_migration(monkeypatch):
    """This version of the code, with one step more."""

    def add(step: Migration) -> None:
        known = migrations(PACKAGE)
        monkeypatch.setattr(module, "migrations", lambda _: (*known, step))

    return add


def test_a_step_that_waits_for_a_table_gives_up_before_it_stops_everybody(
    open_schema, place, with_migration
):
    """Whoever comes after a waiting ALTER TABLE waits, too."""
    schema = open_schema(place.url)
    with_migration(SECOND)
    with other(place.url) as cx:
        cx.execute("SELECT 1 FROM perdure_jobs")  # a long report
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "LOCK_MS_MAX", 200)
            with pytest.raises(StoreBusy):
                schema.upgrade()
        place.put()
    assert schema.upgrade() == (SECOND.label,)


def test_work_goes_on_through_an_upgrade(place, open_place, open_schema, with_migration):
    """Prepared statements of sessions that were there before go on, too. A turn may be told to wait."""
    schema = open_schema(place.url)
    stop, done = threading.Event(), []

    def again(call, *given, **named):
        while True:
            try:
                return call(*given, **named)
            except (StoreBusy, StoreUnavailable):  # the engine sends the same again, too
                continue

    def work(number: int) -> None:
        mine = open_place(place.url, series=number)
        worker = mine.hire(ttl_s=600)
        while not stop.is_set():
            (made,) = again(mine.store.enqueue, [mine.new()])
            claims = again(mine.take, worker, 5)
            records = [success(one, worker) for one in claims]
            answers = again(mine.settle, *records, by=worker)
            assert all(isinstance(one, Receipt) for one in answers)
            assert again(mine.reader.job, made.id) is not None
            done.append(len(answers))

    def upgrade() -> tuple[str, ...]:
        while len(done) < 30:
            stop.wait(0.01)
        with_migration(SECOND)
        applied = schema.upgrade()
        before = len(done)
        while len(done) < before + 30:
            stop.wait(0.01)
        stop.set()
        return applied

    *_, applied = at_once([partial(work, 1), partial(work, 2), upgrade])
    assert applied == (SECOND.label,)
    place.clean()
