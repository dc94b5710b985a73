"""The schema: made once, and refused where it does not fit. How it is upgraded: see test_upgrade.py."""

import sqlite3
import threading
from pathlib import Path

import pytest

from perdure.model.errors import (
    ConfigError,
    SchemaMismatch,
    StoreDamaged,
    StoreUnavailable,
)
from perdure.stores import opening
from perdure.stores.migrations import CODE_VERSION, migrations
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.stores.sqlite.schema import PACKAGE, SqliteSchema
from perdure.stores.urls import settled_url
from perdure.testing import VirtualClock
from tests.stores.kit import Place, file_in

STEPS = tuple(one.label for one in migrations(PACKAGE))


@pytest.fixture
def path(tmp_path) -> str:
    return file_in(tmp_path)


@pytest.fixture
def fresh(path):
    """A connection to a file that nobody has used."""
    connection = SqliteConnection(path, VirtualClock())
    yield SqliteSchema(connection, "sqlite:///work.db")
    connection.close()


def opened(path: str, **options):
    return opening.open_store(
        f"sqlite:///{path}", VirtualClock(), **{"create": True, "wait_s_max": 5.0, **options}
    )


def altered(path: str, *statements: str) -> None:
    with sqlite3.connect(path) as cx:
        for statement in statements:
            cx.execute(statement)
    cx.close()


def tables(path: str) -> set[str]:
    cx = sqlite3.connect(path)
    found = {name for (name,) in cx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    cx.close()
    return found


def test_a_fresh_file_has_no_schema_and_everything_pending(fresh):
    status = fresh.status()
    assert not status.present
    assert (status.version, status.url) == (0, "sqlite:///work.db")
    assert status.pending == STEPS


def test_an_upgrade_applies_all_and_a_second_one_nothing(fresh):
    assert fresh.upgrade() == STEPS
    assert fresh.upgrade() == ()
    status = fresh.status()
    assert (status.present, status.pending) == (True, ())
    assert status.version == status.known_version == migrations(PACKAGE)[-1].number
    fresh.check()


def test_the_migrations_are_numbered_without_gaps_and_let_this_code_run():
    assert [one.number for one in migrations(PACKAGE)] == list(
        range(1, len(migrations(PACKAGE)) + 1)
    )
    assert all(one.compat_min <= CODE_VERSION for one in migrations(PACKAGE))


def test_a_fresh_store_is_made_on_opening(path):
    found = opened(path)
    assert found.reader.books().accepted == 0
    found.store.close()
    found.reader.close()
    assert "perdure_jobs" in tables(path)


def test_two_that_upgrade_at_once_apply_it_once(path):
    connections = [SqliteConnection(path, VirtualClock()) for _ in range(4)]
    done: list[tuple[str, ...]] = []
    start = threading.Barrier(len(connections))

    def upgrade(connection: SqliteConnection) -> None:
        start.wait(20)
        done.append(SqliteSchema(connection, "sqlite:///work.db").upgrade())

    threads = [threading.Thread(target=upgrade, args=(one,)) for one in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(done, key=len) == [(), (), (), STEPS]
    for connection in connections:
        connection.close()


def test_a_migration_that_was_changed_afterwards_is_refused(path, fresh):
    fresh.upgrade()
    altered(path, "UPDATE perdure_migrations SET checksum = 'other'")
    for call in (fresh.check, fresh.upgrade, lambda: opened(path)):
        with pytest.raises(SchemaMismatch, match=r"migration 1 .* belongs to another build"):
            call()


def test_a_schema_that_needs_newer_code_is_refused_with_advice(path, fresh):
    fresh.upgrade()
    altered(
        path, f"INSERT INTO perdure_migrations VALUES (99, 'future', 'x', {CODE_VERSION + 1}, 0)"
    )
    for call in (fresh.check, fresh.upgrade, lambda: opened(path)):
        with pytest.raises(SchemaMismatch, match=r"is at 99 and needs a newer version .* upgrade"):
            call()


def test_a_newer_schema_that_lets_this_code_run_is_fine(path, fresh):
    fresh.upgrade()
    altered(path, f"INSERT INTO perdure_migrations VALUES (99, 'future', 'x', {CODE_VERSION}, 0)")
    fresh.check()
    assert fresh.upgrade() == ()
    assert fresh.status().pending == ()


# -- files that are not ours -------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"hello, world\n" * 1000, b"\x00" * 8192, b"SQLite format 2\x00" * 99]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(path, content):
    Path(path).write_bytes(content)
    with pytest.raises(StoreDamaged, match="it is not an SQLite database; name another file"):
        opened(path)
    assert Path(path).read_bytes() == content


def test_a_damaged_database_says_so(path):
    place = Place(path)
    place.put_many(200)
    place.close()
    content = bytearray(Path(path).read_bytes())
    for page in range(4096, len(content) - 4096, 4096):
        content[page : page + 512] = b"\xaa" * 512
    Path(path).write_bytes(bytes(content))
    with pytest.raises(StoreDamaged, match="damaged; restore a backup"):
        opened(path).reader.jobs()


def test_an_empty_file_is_a_fresh_store(path):
    Path(path).touch()
    found = opened(path)
    assert found.reader.jobs() == []
    found.store.close()
    found.reader.close()


def test_the_tables_of_somebody_else_in_the_same_file_are_left_alone(path):
    altered(path, "CREATE TABLE theirs (x)", "INSERT INTO theirs VALUES (5)")
    found = opened(path)
    found.store.close()
    found.reader.close()
    assert {"theirs", "perdure_jobs"} <= tables(path)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(StoreUnavailable) as caught:
        opened(str(tmp_path / "nowhere" / "work.db"))
    assert "nowhere" in str(caught.value)
    assert "check that its folder exists" in str(caught.value)


def test_a_folder_is_no_store(tmp_path):
    with pytest.raises(StoreUnavailable):
        opened(str(tmp_path))


def test_a_store_that_must_exist_is_not_made(path):
    with pytest.raises(StoreUnavailable, match="does not exist"):
        opened(path, create=False)
    assert not Path(path).exists()


@pytest.mark.parametrize(
    "url", ["", "sqlite:", "sqlite:///", "sqlite://work.db", "work.db", "redis://x"]
)
def test_what_is_no_url_of_a_store_is_refused_with_an_example(url):
    with pytest.raises(ConfigError, match=r"sqlite:///work\.db"):
        settled_url(url)
