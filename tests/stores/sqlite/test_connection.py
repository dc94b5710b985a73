"""One connection: settings that keep promises, a bounded log, full disks, many threads."""

import shutil
import sqlite3
import subprocess
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from perdure.model.errors import ConfigError, StoreError, StoreFull, StoreReadOnly
from perdure.stores.opening import open_store
from perdure.stores.sqlite import connection as sqlite_connection
from perdure.stores.sqlite.connection import WAL_BYTES_MAX, SqliteConnection
from perdure.testing import VirtualClock
from tests.stores.kit import Place, file_in, success

MEGABYTE = '"' + "x" * 1_000_000 + '"'


def wal_bytes(place: Place) -> int:
    return Path(f"{place.path}-wal").stat().st_size


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("wal_autocheckpoint", 0),
        ("mmap_size", 0),
        ("foreign_keys", 1),
        ("trusted_schema", 0),
        ("busy_timeout", 10_000),
    ],
)
def test_every_connection_has_the_settings_that_the_promises_need(file_place, pragma, value):
    later = SqliteConnection(file_place.path, VirtualClock())
    for one in (file_place.connection, later):
        assert one.raw.execute(f"PRAGMA {pragma}").fetchone() == (value,)
    later.close()


def test_the_stores_time_is_read_once_in_a_transaction(place):
    place.put_many(3)
    worker = place.hire()
    place.take(worker, 3)
    assert len(place.rows("SELECT DISTINCT claimed_at FROM perdure_jobs")) == 1


def test_a_transaction_that_raises_leaves_nothing(place):
    before = place.everything()
    with pytest.raises(ZeroDivisionError), place.connection.write() as (cx, _):
        cx.execute("DELETE FROM perdure_lanes").fetchall()[0 // 0]
    assert place.everything() == before
    place.put()


def test_an_error_of_the_driver_is_one_of_ours(place):
    with pytest.raises(StoreError, match="no such table"), place.connection.write() as (cx, _):
        cx.execute("SELECT * FROM nowhere")
    with pytest.raises(StoreError, match="no such table"), place.connection.read() as (cx, _):
        cx.execute("SELECT * FROM nowhere")


def test_a_closed_store_says_so(file_place):
    file_place.close()
    with pytest.raises(StoreError, match="closed"):
        file_place.store.waiting(file_place.order(1))


def test_somebody_elses_write_is_noticed_and_ones_own_is_not(file_place):
    watching = Place(file_place.path, clock=file_place.clock)
    file_place.store.has_changed()
    watching.store.has_changed()
    assert not watching.store.has_changed()
    file_place.put()
    assert watching.store.has_changed()
    assert not watching.store.has_changed()
    assert not file_place.store.has_changed()
    watching.close()


def test_many_threads_may_share_one_connection(place):
    worker = place.hire()
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(10):
                place.store.enqueue([place.new(id=f"{number}-{n}")])
                (claim,) = place.take(worker)
                place.settle(success(claim, worker), by=worker)
                place.reader.jobs(limit=2)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert place.reader.books().succeeded == 60
    place.clean()


# -- the log -----------------------------------------------------------------------------


def test_the_log_is_cut_back_whenever_it_passes_its_bound(file_place):
    sizes = []
    for _ in range(40):
        file_place.put(payload_json=MEGABYTE)
        sizes.append(wal_bytes(file_place))
    assert max(sizes) <= WAL_BYTES_MAX + 2_000_000
    assert sum(later < earlier for earlier, later in pairwise(sizes)) >= 2
    file_place.clean()


def test_a_long_reader_lets_the_log_grow_and_writers_go_on(file_place, monkeypatch):
    monkeypatch.setattr(sqlite_connection, "WAL_BYTES_MAX", 2_000_000)
    reading = SqliteConnection(file_place.path, file_place.clock)
    said: list[str] = []
    file_place.connection.raw.set_trace_callback(said.append)
    with reading.read() as (cx, _):
        cx.execute("SELECT count(*) FROM perdure_jobs").fetchone()
        for _ in range(6):
            file_place.put(payload_json=MEGABYTE)
        assert wal_bytes(file_place) > 4_000_000
        assert cx.execute("SELECT count(*) FROM perdure_jobs").fetchone() == (0,)
    file_place.connection.raw.set_trace_callback(None)
    cuts = [place for place, one in enumerate(said) if "wal_checkpoint" in one]
    assert cuts  # each waits a twentieth of a second for the reader, not its ten seconds
    assert {said[place - 1] for place in cuts} == {"PRAGMA busy_timeout = 50"}
    give_up_at = time.monotonic() + 20
    while wal_bytes(file_place) >= 2_000_000:  # a second after it was last in the way, at most
        assert time.monotonic() < give_up_at
        file_place.put()
    (timeout,) = file_place.connection.raw.execute("PRAGMA busy_timeout").fetchone()
    assert timeout == 10_000
    reading.close()
    file_place.clean()


# -- full and read-only disks ------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path, missing):
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        missing("the command mount")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
    )
    if made.returncode != 0:
        missing(f"the right to mount a small disk ({made.stderr.decode().strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def fill(place: Place) -> tuple[list[str], str]:
    """Enqueue until the disk is full: what was accepted, and what was not."""
    accepted = []
    for _ in range(500):
        job = place.new(payload_json='"' + "x" * 20_000 + '"')
        try:
            place.store.enqueue([job])
        except StoreFull:
            return accepted, job.id
        accepted.append(job.id)
    raise AssertionError("a disk of one megabyte never became full")


@pytest.mark.parametrize("wal_bytes_max", [WAL_BYTES_MAX, 100_000])
def test_a_full_disk_refuses_new_work_and_loses_none(small_disk, monkeypatch, wal_bytes_max):
    """With the small bound the checkpoint finds the disk full, with the large one the commit does."""
    monkeypatch.setattr(sqlite_connection, "WAL_BYTES_MAX", wal_bytes_max)
    place = Place(file_in(small_disk))
    accepted, refused = fill(place)
    assert len(accepted) >= 5
    for _ in range(2):
        assert {job.id for job in place.reader.jobs(limit=500)} == set(accepted)
        place.clean()
        remount(small_disk, "size=4m")
        more = place.put()
        accepted.append(more.id)
        assert place.reader.job(refused) is None
    place.close()
    again = Place(file_in(small_disk))
    assert {job.id for job in again.reader.jobs(limit=500)} == set(accepted)
    assert again.rows("PRAGMA integrity_check") == [("ok",)]
    again.clean()
    again.close()


def test_finished_work_on_a_full_disk_is_recorded_when_there_is_room_again(small_disk):
    place = Place(file_in(small_disk))
    worker = place.hire()
    place.put()
    (claim,) = place.take(worker)
    fill(place)
    record = success(claim, worker, result_json='"' + "y" * 20_000 + '"')
    with pytest.raises(StoreFull, match="nothing that was accepted is lost"):
        place.settle(record, by=worker)
    remount(small_disk, "size=4m")
    (receipt,) = place.settle(record, by=worker)
    assert (receipt.state, receipt.repeated) == ("succeeded", False)
    place.clean()
    place.close()


def test_a_read_only_disk_says_so(small_disk):
    place = Place(file_in(small_disk))
    place.put()
    place.close()
    remount(small_disk, "ro")
    with pytest.raises(StoreReadOnly, match=r"Read-only file system; .* may write there"):
        SqliteConnection(place.path, VirtualClock())
    url = f"sqlite:///{place.path}"
    read = open_store(url, VirtualClock(), create=False, wait_s_max=1.0)
    assert read.reader.books().queued == 1
    with pytest.raises(StoreReadOnly, match="make the file and its folder writable"):
        read.store.enqueue([place.new()])
    read.close()
    remount(small_disk, "rw")
    again = Place(place.path)
    assert again.reader.books().queued == 1
    again.close()


def test_a_connection_that_cannot_be_made_leaves_no_open_file(tmp_path):
    path = file_in(tmp_path)
    Path(path).write_bytes(b"not a database" * 1000)
    before = open_files(path)
    for _ in range(3):
        with pytest.raises(StoreError):
            SqliteConnection(path, VirtualClock())
    assert open_files(path) == before == 0


def open_files(path: str) -> int:
    links = Path("/proc/self/fd")
    if not links.exists():
        return 0
    return sum(path in str(link.resolve()) for link in links.iterdir() if link.is_symlink())


def test_an_sqlite_that_is_too_old_is_refused(monkeypatch):
    assert sqlite3.sqlite_version_info >= sqlite_connection.VERSION_MIN
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    with pytest.raises(ConfigError, match=r"needs 3\.38 or newer"):
        SqliteConnection(":memory:", VirtualClock())


def test_a_connection_stays_at_its_file_when_the_process_goes_elsewhere(tmp_path, monkeypatch):
    """Its log is looked for where it is, and cut."""
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    connection = SqliteConnection("work.db", VirtualClock())
    monkeypatch.chdir(other)
    with connection.write() as (cx, _):
        cx.execute("CREATE TABLE t (text)")
    for _ in range(18):
        with connection.write() as (cx, _):
            cx.execute("INSERT INTO t VALUES (?)", (MEGABYTE,))
    assert (tmp_path / "work.db-wal").stat().st_size < WAL_BYTES_MAX
    connection.close()
    assert list(other.iterdir()) == []
