"""A store that cannot be used is told in one line that says what to do, with a status that says what it is.

Some stores are tried with every command, the others with one or two: they all open a store in the same way. A
schema that is too old: see tests/stores/test_upgrade.py.
"""

import os
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from perdure import App
from perdure.app import schema_of
from tests.stories.kit import CLI

APP = """
import perdure
app = perdure.App()
@app.stage()
def only(item):
    return item
app.pipeline("one", only)
"""

# Root may read and write anything; without these capabilities only what it has the right to.
WITHOUT_OVERRIDE = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
        sys.exit(99)
os.execv(sys.executable, sys.argv[1:])
"""

# Stops the import of the driver, wherever it is installed.
WITHOUT_DRIVER = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "psycopg":
            raise ModuleNotFoundError("No module named 'psycopg'", name=name)
sys.meta_path.insert(0, Blocked())
"""

COMMANDS = {
    "status": ["db", "status"],
    "upgrade": ["db", "upgrade", "--json"],
    "list": ["jobs", "list", "--json"],
    "audit": ["audit"],
    "enqueue": ["enqueue", "shop:one", "1", "--json"],
    "worker": ["worker", "shop:app", "--lease-ttl", "2", "--store-wait", "0"],
}
SECRET = "hunter2-4f510916"  # the same in every process of a parallel run


class Desk:
    """A folder with an app, where all commands are run at once against one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(APP)
        self.environment = {
            name: text for name, text in os.environ.items() if not name.startswith("PERDURE_")
        }

    def run(
        self, url: str, *names: str, before: tuple[str, ...] = (), within_s: float = 60.0
    ) -> dict[str, subprocess.CompletedProcess[str]]:
        """The commands of these names (else all of them), each to its end."""
        started = {
            name: subprocess.Popen(
                [*before, *CLI, *COMMANDS[name]],
                cwd=self.folder,
                env={**self.environment, "PERDURE_STORE": url},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in names or COMMANDS
        }
        give_up_at = time.monotonic() + within_s
        done = {}
        try:
            for name, one in started.items():
                out, err = one.communicate(timeout=max(0.1, give_up_at - time.monotonic()))
                done[name] = subprocess.CompletedProcess(one.args, one.returncode, out, err)
        finally:
            for one in started.values():
                one.kill()
                one.communicate()
        return done


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


def refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """One line, the right status, and no stack trace."""
    assert done.returncode == status, (done.args, done.stderr)
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("perdure: ")
    for word in words:
        assert word in line
    assert SECRET not in line


def all_refused(
    done: dict[str, subprocess.CompletedProcess[str]], status: int, *words: str
) -> None:
    assert done
    for one in done.values():
        refused(one, status, *words)


def made(url: str) -> None:
    """Give a store its schema."""
    schema = schema_of(url)
    schema.upgrade()
    schema.close()


# -- URLs --------------------------------------------------------------------------------


def test_a_scheme_that_is_not_known_is_refused_with_an_example(desk):
    done = desk.run(f"mysql://ann:{SECRET}@there/x")
    all_refused(done, 2, "'mysql://ann:***@there/x' is not a URL of a store", "sqlite:///work.db")


@pytest.mark.parametrize(("url", "name"), [("sqlite:///", "enqueue"), ("work.db", "status")])
def test_a_url_without_a_path_or_a_scheme_is_refused_with_an_example(desk, url, name):
    done = desk.run(url, name)
    all_refused(done, 2, f"store {url!r} is not a URL of a store", "sqlite:///work.db")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}%@127.0.0.1/x",
        f"postgresql://ann:a@{SECRET}@127.0.0.1/x",
        f"postgresql://ann:{SECRET}@127.0.0.1:port/x",
        f"postgresql://127.0.0.1/x?password={SECRET}&nosuch=1",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(desk, url):
    all_refused(desk.run(url, "list"), 2, "is not a URL of PostgreSQL", "***")


def test_a_driver_that_is_missing_is_named_with_the_extra_that_brings_it(desk):
    (desk.folder / "sitecustomize.py").write_text(WITHOUT_DRIVER)
    desk.environment["PYTHONPATH"] = str(desk.folder)
    done = desk.run(f"postgresql://ann:{SECRET}@127.0.0.1/x", "worker")
    all_refused(done, 2, "No module named 'psycopg'", "pip install 'perdure[postgres]'")


# -- servers -----------------------------------------------------------------------------


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_that_is_not_there_is_named(desk):
    done = desk.run(f"postgresql://ann:{SECRET}@127.0.0.1:{closed_port()}/x")
    all_refused(done, 11, "ann:***@127.0.0.1", "refused", "check that the server runs")


def test_a_host_that_is_not_known_is_named(desk):
    done = desk.run(f"postgresql://ann:{SECRET}@nowhere.invalid/x", "status")
    all_refused(done, 11, "nowhere.invalid", "host and port in the URL")


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield listening.getsockname()[1]


def test_a_server_that_never_answers_is_given_up_within_the_bound_of_the_url(desk, silent):
    url = f"postgresql://ann:{SECRET}@127.0.0.1:{silent}/x?connect_timeout=2"
    all_refused(desk.run(url, "upgrade"), 11, "timeout", "check that the server runs")


def test_a_server_that_never_answers_is_given_up_within_our_own_bound(desk, silent):
    all_refused(desk.run(f"postgresql://127.0.0.1:{silent}/x", "worker"), 11, "timeout")


def test_a_wrong_password_is_refused_and_not_repeated(desk, postgres, database):
    done = desk.run(postgres.url(database, password=SECRET), "worker")
    all_refused(done, 18, "check the user and the password in the URL", "perdure:***@")


def test_a_wrong_password_in_the_query_is_refused_and_not_repeated(desk, postgres, database):
    url = postgres.url(database, password=SECRET)
    done = desk.run(url.replace(f":{SECRET}@", "@") + f"?password={SECRET}", "list")
    all_refused(done, 18, "check the user and the password in the URL", "password=***")


def test_a_database_that_does_not_exist_is_named(desk, postgres):
    done = desk.run(postgres.url("nosuch"), "upgrade")
    all_refused(done, 11, '"nosuch" does not exist', "createdb")


@pytest.fixture
def visitor(postgres, database) -> Iterator[str]:
    """The URL of a role that may connect to a database, and nothing else."""
    name = f"visitor_{secrets.token_hex(4)}"
    postgres.create_role(name)
    yield postgres.url(database, user=name)
    postgres.drop_role(name)


def password_of(url: str) -> str:
    return url.partition("@")[0].rpartition(":")[2]


def test_a_role_without_rights_is_told_whom_to_ask(desk, visitor, database):
    made(database)
    done = desk.run(visitor, "status", "worker")
    all_refused(done, 18, "permission denied for table perdure_migrations", "docs/postgres.md")
    assert not [one for one in done.values() if password_of(visitor) in one.stderr]


def test_a_role_that_may_not_make_tables_is_told_to_have_them_made(desk, visitor):
    done = desk.run(visitor, "upgrade")
    role = visitor.partition("//")[2].partition(":")[0]
    all_refused(
        done, 18, f"the role '{role}' may not make tables", "with the URL of a role that may"
    )
    assert not [one for one in done.values() if password_of(visitor) in one.stderr]


def test_a_database_without_a_schema_is_told_how_to_make_one(desk, database):
    done = desk.run(database, "list")
    all_refused(done, 11, "holds no schema of Perdure", "run: perdure db upgrade")
    assert not [one for one in done.values() if password_of(database) in one.stderr]


def test_a_good_store_shows_no_password_either(desk, database):
    made(database)
    password = password_of(database)
    in_query = database.replace(f":{password}@", "@") + f"?password={password}"
    done = desk.run(database, "status", "upgrade", "enqueue")
    for one in (*done.values(), *desk.run(in_query, "status").values()):
        assert (one.returncode, one.stderr) == (0, "")
        assert one.stdout
        assert password not in one.stdout


# -- schemas -----------------------------------------------------------------------------

FUTURE = "INSERT INTO perdure_migrations VALUES (99, 'future', 'x', 99, 0)"


def test_a_schema_that_is_too_new_is_refused_and_its_status_is_told(desk):
    file = desk.folder / "future.db"
    made(f"sqlite:///{file}")
    raw = sqlite3.connect(file, isolation_level=None)
    raw.execute(FUTURE)
    raw.close()
    assert_too_new(desk.run("sqlite:///future.db"))


def test_a_schema_on_a_server_that_is_too_new_is_refused_and_its_status_is_told(desk, database):
    made(database)
    with psycopg.connect(database) as cx:
        cx.execute(FUTURE)
    assert_too_new(desk.run(database, "status", "list"))


def assert_too_new(done: dict[str, subprocess.CompletedProcess[str]]) -> None:
    status = done.pop("status")
    assert (status.returncode, status.stderr) == (0, "")
    assert "schema 99 of" in status.stdout
    assert "newer than this version of Perdure knows" in status.stdout
    all_refused(done, 16, "is at 99 and needs a newer version of Perdure", "upgrade the package")


# -- files -------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_refused_and_left_alone(desk):
    file = desk.folder / "notes.db"
    file.write_text("these are my notes, not a database\n" * 40)
    done = desk.run("sqlite:///notes.db", "upgrade", "worker")
    all_refused(done, 15, "notes.db", "name another file")
    assert file.read_text().startswith("these are my notes")


def test_a_folder_is_no_file(desk):
    (desk.folder / "drawer").mkdir()
    done = desk.run("sqlite:///drawer", "audit")
    all_refused(done, 11, "'drawer' is a folder; name a file in it")


def test_a_folder_that_does_not_exist_is_not_made(desk):
    done = desk.run("sqlite:///nowhere/work.db", "list", "enqueue")
    all_refused(done, 11, "nowhere/work.db", "check")
    assert not (desk.folder / "nowhere").exists()


@pytest.fixture
def plain(missing) -> tuple[str, ...]:
    """What makes a command obey the rights of files, though we may be root."""
    words = (sys.executable, "-c", WITHOUT_OVERRIDE)
    if subprocess.run([*words, sys.executable, "-c", ""], check=False).returncode:
        missing("the right to drop CAP_DAC_OVERRIDE")
    return words


LOCKED: dict[str, tuple[int | None, int | None, tuple[str, ...]]] = {
    # what is locked: the rights on the files and on the folder, and the commands to try
    "file": (0o444, None, ("upgrade", "worker")),
    "folder": (None, 0o555, ("upgrade", "enqueue")),
    "both": (0o444, 0o555, ("enqueue",)),
    "unreadable": (0, None, ("status",)),
    "not to be entered": (None, 0, ("audit", "enqueue")),
}


@pytest.mark.parametrize("what", LOCKED)
def test_what_may_not_be_written_is_refused(desk, plain, what):
    on_files, on_folder, names = LOCKED[what]
    folder = desk.folder / "locked"
    folder.mkdir()
    made(f"sqlite:///{folder / 'work.db'}")
    for one in folder.iterdir() if on_files is not None else ():
        one.chmod(on_files)
    folder.chmod(0o755 if on_folder is None else on_folder)
    try:
        done = desk.run("sqlite:///locked/work.db", *names, before=plain)
    finally:
        folder.chmod(0o755)
    all_refused(done, 14, "locked/work.db", "writ")


@pytest.mark.parametrize(
    ("on_files", "on_folder", "is_live"),
    [
        (0o444, 0o755, False),
        (0o644, 0o555, False),
        (0o444, 0o555, True),
        (0o444, 0o555, False),
        (0o644, 0o777, False),
        (0o644, 0o777, True),
    ],
)
def test_what_may_only_be_read_is_read(desk, plain, on_files, on_folder, is_live):
    folder = desk.folder / "locked"
    folder.mkdir()
    app = App(f"sqlite:///{folder / 'work.db'}")
    id = app.pipeline("one", app.stage(name="only")(lambda item: item)).enqueue(1).id
    if not is_live:
        app.close()
    for one in folder.iterdir():
        one.chmod(on_files)
    folder.chmod(on_folder)
    before = sorted(folder.iterdir())
    try:
        done = desk.run("sqlite:///locked/work.db", "status", "list", "audit", before=plain)
    finally:
        folder.chmod(0o755)
        app.close()
    assert [(one.returncode, one.stderr) for one in done.values()] == [(0, "")] * 3
    assert "up to date" in done["status"].stdout
    assert id in done["list"].stdout
    assert "accepted 1 = queued 1" in done["audit"].stdout
    assert set(folder.iterdir()) <= set(before)  # else they would be ours, and lock the owner out


def test_a_log_that_cannot_be_read_without_writing_is_not_left_out(desk, plain):
    """The file alone would show an older state, as if it were the newest."""
    folder = desk.folder / "locked"
    folder.mkdir()
    app = App(f"sqlite:///{desk.folder / 'work.db'}")
    app.pipeline("one", app.stage(name="only")(lambda item: item)).enqueue(1)
    for end in ("", "-wal"):
        shutil.copy(desk.folder / f"work.db{end}", folder / f"work.db{end}")
    app.close()
    for one in folder.iterdir():
        one.chmod(0o444)
    folder.chmod(0o555)
    try:
        done = desk.run("sqlite:///locked/work.db", "list", before=plain)
    finally:
        folder.chmod(0o755)
    all_refused(done, 14, "copy it, with its -wal file, to a folder of yours")


def test_a_fresh_store_in_a_folder_that_may_not_be_written_is_refused(desk, plain):
    folder = desk.folder / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    try:
        done = desk.run("sqlite:///locked/work.db", "worker", before=plain)
    finally:
        folder.chmod(0o755)
    all_refused(done, 14, "locked/work.db", "make the file and its folder writable")
    assert list(folder.iterdir()) == []
