"""The servers that tests rely on do what they are asked, and leave nothing behind, however they end."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.house.tree import ROOT
from tests.servers import guard, programs, shared
from tests.servers.folder import Folder, FolderGone, account, wait_until_gone
from tests.servers.pgbouncer import CONSOLE, Bouncer
from tests.servers.postgres import SUPERUSER, Server, name_of


@pytest.fixture(scope="module")
def own(missing) -> Iterator[Server]:
    """A server that these tests may stop and crash."""
    try:
        server = Server(in_memory=True)
    except programs.MissingPart as part:
        missing(str(part))
    with server:
        yield server


def answer(url: str, question: str, *before: str) -> object:
    with psycopg.connect(url, prepare_threshold=None) as connection:
        for statement in before:
            connection.execute(statement)
        row = connection.execute(question).fetchone()
    return row[0] if row else None


def running_in(folder: Path) -> list[str]:
    """The command lines that name a folder: its servers' and its guard's."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [line for line in map(guard.command_of, numbers) if str(folder) in line]


def nothing_is_left_of(folder: Path) -> bool:
    """The guard's last act is to remove the folder: its process may be there for a moment more."""
    wait_until_gone(folder)
    return all(guard.__file__ in line for line in running_in(folder))


@pytest.mark.parametrize("version", [18, 16, pytest.param(15, marks=pytest.mark.long)])
def test_a_server_of_each_version_starts_and_answers(version, missing):
    try:
        server = Server(version, in_memory=True, settings={"max_connections": 23})
    except programs.MissingPart as part:
        missing(str(part))
    with server:
        url = server.create_database("some")
        assert str(answer(url, "SELECT version()")).startswith(f"PostgreSQL {version}.")
        assert answer(url, "SHOW max_connections") == "23"
        assert answer(url, "SHOW fsync") == "on"


def test_a_wrong_password_is_refused(postgres, database):
    assert answer(database, "SELECT current_user") == "perdure"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.url(database, password="wrong"))


def test_nobody_comes_in_without_a_password_but_through_the_socket(postgres):
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(host="127.0.0.1", port=postgres.port, user=SUPERUSER, dbname="postgres")
    assert answer(postgres.url(user=SUPERUSER, through="socket"), "SELECT 1") == 1


def test_the_role_owns_its_database_and_is_no_superuser(database):
    assert answer(database, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    assert answer(database, "SELECT count(*) FROM t", "CREATE TABLE t (a int)") == 0


def test_a_crash_keeps_what_was_committed_and_nothing_else(own):
    url = own.create_database()
    before = own.pid
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
        connection.commit()
        connection.execute("INSERT INTO kept VALUES (2)")
        own.stop("immediate")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert own.pid is None
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(url)
    own.start()
    assert own.pid not in {None, before}
    assert answer(url, "SELECT array_agg(number) FROM kept") == [1]
    assert "was not properly shut down" in own.log.read_text()


def test_a_clean_stop_is_not_a_crash(own):
    own.restart("fast")
    assert "database system was shut down at" in own.log.read_text().rsplit("listening", 1)[-1]


def test_two_databases_are_apart(postgres, database):
    other = postgres.create_database(template="template0")
    assert answer(database, "SELECT count(*) FROM here", "CREATE TABLE here (a int)") == 0
    assert answer(database, "SELECT to_regclass('here')::text") == "here"
    assert answer(other, "SELECT to_regclass('here')::text") is None
    postgres.drop_database(other)


def test_a_database_is_dropped_though_someone_is_connected(postgres):
    url = postgres.create_database()
    with psycopg.connect(url) as connection:
        postgres.drop_database(url)
        with pytest.raises(psycopg.OperationalError, match="terminating connection"):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_a_new_role_has_no_right_but_to_log_in(postgres, database):
    postgres.create_role("perdure_bystander")
    url = postgres.url(database, user="perdure_bystander")
    assert answer(url, "SELECT 1") == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        answer(url, "SELECT 1", "CREATE TABLE t (a int)")
    postgres.drop_role("perdure_bystander")


def test_the_pooler_forwards_and_is_in_transaction_mode(bouncer, database):
    assert answer(bouncer.url(database), "SELECT current_database()") == name_of(database)
    with psycopg.connect(bouncer.url(CONSOLE, user=SUPERUSER), autocommit=True) as console:
        config = {row[0]: row[1] for row in console.cursor().execute("SHOW CONFIG").fetchall()}
    assert config["pool_mode"] == "transaction"


def turns(pooler: Bouncer, database: str) -> list[object]:
    """Two clients at once with one server connection between them, each in short transactions."""
    url = pooler.url(database)
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url, autocommit=True) as two:
        asked = [client.execute("SELECT pg_backend_pid()") for client in (one, two, one)]
        return [row.fetchone() for row in asked]


def test_in_transaction_mode_clients_share_a_connection_and_in_session_mode_they_wait(
    postgres, database, bouncer
):
    scarce = {"default_pool_size": 1, "query_wait_timeout": 1}
    with Bouncer(postgres, settings=scarce) as pooler:
        assert len(set(turns(pooler, database))) == 1
    waits = pytest.raises(psycopg.OperationalError, match="query_wait_timeout")
    with Bouncer(postgres, "session", settings=scarce) as pooler, waits:  # the broken twin
        turns(pooler, database)


def test_the_pooler_stops_and_comes_back_at_the_same_place(postgres, database, bouncer):
    with Bouncer(postgres) as pooler:
        pooler.stop()
        assert pooler.pid is None
        with pytest.raises(psycopg.OperationalError, match="refused"):
            answer(pooler.url(database), "SELECT 1")
        pooler.start()
        assert answer(pooler.url(database), "SELECT 1") == 1
        folder = pooler.folder
        assert len(running_in(folder)) == 2
    assert nothing_is_left_of(folder)


def test_a_closed_server_leaves_nothing_behind(own):
    with Server(in_memory=True) as server:
        folder, log = server.folder, server.log
        assert log.exists()
        assert any("postgres" in line for line in running_in(folder))
    assert not folder.exists()
    assert nothing_is_left_of(folder)


STARTER = """
import sys
from tests.servers.postgres import Server
server = Server(in_memory=True)
server.start()
print(server.folder, flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_leaves_nothing_behind(own):
    command = [sys.executable, "-c", STARTER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        folder = Path(process.stdout.readline().strip())
        assert (folder / "cluster" / "postmaster.pid").exists()
        process.kill()
    assert nothing_is_left_of(folder)


def test_the_processes_of_a_run_share_a_server_until_the_last_leaves(own, tmp_path):
    first = shared.join(tmp_path, own.version)
    second = shared.join(tmp_path, own.version)
    folder = first.folder
    assert (second.folder, second.pid) == (folder, first.pid)
    first.leave()
    assert answer(second.url(), "SELECT 1") == 1
    second.leave()
    shared.wait_for_end(tmp_path)
    assert nothing_is_left_of(folder)
    with pytest.raises(FolderGone):
        Server.attach(folder)
    third = shared.join(tmp_path, own.version)
    assert third.folder != folder
    third.close()


RUN = """
import os, signal, time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(4))
def test_of_a_run(postgres, number):
    Path(os.environ["SEEN"]).joinpath(str(number)).write_text(str(postgres.folder))
    if number == 3:
        {end}
"""
ENDS = {
    "good": ("pass", pytest.ExitCode.OK),
    "crash": ("os._exit(3)", pytest.ExitCode.TESTS_FAILED),
    "interrupt": ("os.kill(os.getppid(), signal.SIGINT)", pytest.ExitCode.INTERRUPTED),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_run_in_parallel_has_one_server_and_ends_it_however_it_ends(end, own, tmp_path):
    last_words, expected = ENDS[end]
    (tmp_path / "test_run.py").write_text(RUN.format(end=last_words))
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "xdist", "-p", "tests.conftest"]
    ours = {"SEEN": str(tmp_path), "PATH": os.defpath, "CI": "true"}
    ours["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    ours["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    place = ["-c", os.devnull, "--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "base")]
    ended = subprocess.run(
        [*command, *place, "test_run.py"], cwd=tmp_path, env=ours, capture_output=True, check=False
    )
    assert ended.returncode == expected, ended.stdout + ended.stderr
    folders = {Path(file.read_text()) for file in tmp_path.glob("[0-3]")}
    # The worker that crashes may have been the only one that had joined.
    assert len(folders) in ({1, 2} if end == "crash" else {1})
    assert all(nothing_is_left_of(folder) for folder in folders)


def test_a_version_that_is_not_installed_is_named_with_its_remedy():
    with pytest.raises(programs.MissingPart, match=r"PostgreSQL 14 .*make parts-long"):
        Server(14)


def test_a_version_that_is_not_tested_is_refused(monkeypatch):
    monkeypatch.setenv("PERDURE_TEST_POSTGRES", "17")
    with pytest.raises(ValueError, match="PERDURE_TEST_POSTGRES=17"):
        programs.wanted_version()


def test_a_pid_file_that_means_someone_else_means_nobody(tmp_path):
    file = tmp_path / "postmaster.pid"
    file.write_text(f"{os.getpid()}\n")
    assert guard.pid_in(file) is None
    guard.end(file, signal.SIGKILL)  # we are still here


def test_programs_that_the_servers_user_cannot_reach_are_copied(tmp_path, missing):
    try:
        there = programs.postgres(18)
    except programs.MissingPart as part:
        missing(str(part))
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    install, root = there.parent, there.parents[1]
    shutil.copytree(install, closed / root.name / install.name)
    shutil.copytree(root.with_name(f"{root.name}.libs"), closed / f"{root.name}.libs")
    server = Server(18, in_memory=True)
    server._bin = closed / root.name / install.name / "bin"
    with server:
        copied = server.folder in server.bin.parents
        assert copied == (account() is not None)  # ours are within our reach unless we are root
        assert str(answer(server.url(), "SELECT version()")).startswith("PostgreSQL 18.")


def test_a_folder_is_its_servers_users_alone():
    folder = Folder.make("perdure-test-")
    secret = folder.write("secret", "x")
    user = account()
    assert (folder.path.stat().st_mode & 0o777, secret.stat().st_mode & 0o777) == (0o700, 0o600)
    assert secret.stat().st_uid == (user.pw_uid if user else os.geteuid())
    folder.remove()
