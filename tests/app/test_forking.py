"""A process that was forked off, as by a web server that has loaded the application first, enqueues and calls by itself."""

import json
import os
import subprocess
import sys
import threading

import pytest

from perdure import App
from perdure.app.session.opening import open_store
from perdure.model.errors import StoreUnavailable
from perdure.stores.sqlite import connection as sqlite_connection
from tests.app import forking_app
from tests.house.tree import ROOT


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("database")
    return f"sqlite:///{tmp_path / 'work.db'}"


@pytest.mark.story
def test_children_enqueue_and_call_at_once_and_their_parent_goes_on(url):
    command = [sys.executable, "-m", "tests.app.forking_app", url]
    ran = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    children = forking_app.CHILDREN
    assert seen["ends"] == [0] * children
    made = 3 + seen["busy"] + children * (forking_app.ITEMS + 1)
    assert seen["accepted"] == made
    assert seen["my_row_lives"] == [True]  # no child has ended its parent's row when it ended
    assert seen["rows"] == 1 + children
    assert "Traceback" not in ran.stderr


def forked(act) -> int:
    """The exit status of a child that does this."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = act()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pytest's own threads, and a fork
def test_a_child_keeps_the_file_locked_after_its_parent_has_closed_it(tmp_path):
    """SQLite would take the parent's lock for the child's, and whoever closes last would drop the child's log."""
    path = tmp_path / "work.db"
    ready, go = os.pipe(), os.pipe()

    def parent() -> int:
        opened = open_store(f"sqlite:///{path}")  # here, so that nobody else has it open
        child = os.fork()
        if child == 0:
            opened.reader.books()
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            os._exit(0 if path.with_name("work.db-wal").exists() else 1)
        os.read(ready[0], 1)
        opened.close()  # the last one, were it not for the child
        os.write(go[1], b"x")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert forked(parent) == 0
    for end in (*ready, *go):
        os.close(end)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_of_a_parent_in_the_middle_of_a_write_is_refused_and_says_why(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sqlite_connection, "_FORK_S_MAX", 0.01)
    opened = open_store(f"sqlite:///{tmp_path / 'work.db'}")

    def child() -> int:
        try:
            opened.store.lanes([])
            opened.store.has_changed()
        except StoreUnavailable as refused:
            return 0 if "forked off" in str(refused) else 2
        return 1

    inside, leave = threading.Event(), threading.Event()

    def write() -> None:
        with opened.store._connection.write():
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(30)
    try:
        assert forked(child) == 0
    finally:
        leave.set()
        thread.join()
    assert opened.reader.books().accepted == 0
    opened.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_does_not_count_on_from_its_parents_last_id():
    """Two children that did would make the same id, and one job would be taken for the other."""
    app = App("sqlite:///unused.db")
    app._session.ids.next()
    assert forked(lambda: app._session.ids._last) == 0
