"""What a person sees who cannot get in: one line that names the thing, never the password."""

import secrets
import threading
from contextlib import suppress

import psycopg
import pytest

from perdure.model.errors import ConfigError, StoreBusy, StoreDenied, StoreError, StoreUnavailable
from perdure.stores.postgres.connection import PostgresConnection
from perdure.stores.urls import shown_url
from tests.servers.folder import run
from tests.servers.postgres import HOST, Server, free_port, name_of
from tests.servers.proxy import Proxy
from tests.stores.postgres.kit import until

SECRET = "s3cr3t-w0rd"


@pytest.fixture(scope="module")
def own():
    """A server whose doors a test may lock."""
    with Server(settings={"max_connections": 8}, in_memory=True) as server:
        yield server


def refused(url: str, kind: type[StoreError], exit_code: int) -> str:
    """What opening says; it must be this error, in one line, without the password."""
    with pytest.raises(StoreError) as caught:
        PostgresConnection(url, wait_s_max=2)
    assert type(caught.value) is kind, caught.value
    assert caught.value.exit_code == exit_code
    text = str(caught.value)
    assert "\n" not in text
    assert SECRET not in text
    assert text.startswith("store postgresql://")
    return text


def at(port: int, database: str = "work", user: str = "ann") -> str:
    return f"postgresql://{user}:{SECRET}@{HOST}:{port}/{database}"


def test_a_port_where_nobody_listens():
    port = free_port()
    text = refused(at(port), StoreUnavailable, 11)
    assert f"@{HOST}:{port}/work" in text
    assert "check that the server runs and that host and port in the URL are right" in text


def test_a_host_that_does_not_exist():
    text = refused(f"postgresql://ann:{SECRET}@nowhere.invalid/work", StoreUnavailable, 11)
    assert "nowhere.invalid" in text


def test_a_server_that_takes_the_call_and_says_nothing(postgres):
    with Proxy(postgres.port) as proxy:
        proxy.black_hole()
        text = refused(proxy.url(at(1)), StoreUnavailable, 11)
    assert "timeout expired" in text


def test_a_wrong_password(postgres, database):
    text = refused(postgres.url(database, password=SECRET), StoreDenied, 18)
    assert 'password authentication failed for user "perdure"' in text
    assert text.endswith("check the user and the password in the URL")


def test_no_password(postgres, database):
    url = postgres.url(database).replace(f":{postgres.passwords['perdure']}@", "@")
    assert "check the user and the password in the URL" in refused(url, StoreDenied, 18)


def test_a_user_whom_the_server_does_not_know(postgres, database):
    """Who has to give a password is not told whether it was the name that was wrong."""
    text = refused(at(postgres.port, name_of(database), user="ghost"), StoreDenied, 18)
    assert 'user "ghost"' in text
    url = f"postgresql://ghost@/{name_of(database)}?host={postgres.folder}&port={postgres.port}"
    text = refused(url, StoreDenied, 18)
    assert 'role "ghost" does not exist' in text
    assert "check the user" in text


def test_a_database_that_does_not_exist(postgres):
    text = refused(postgres.url("nothing_here"), StoreUnavailable, 11)
    assert 'database "nothing_here" does not exist' in text
    assert text.endswith("make the database first: createdb")


def test_a_database_that_does_not_let_the_user_connect(postgres, database):
    role = f"r_{secrets.token_hex(4)}"
    postgres.create_role(role)
    with postgres.admin() as cx:
        cx.execute(f'REVOKE CONNECT ON DATABASE "{name_of(database)}" FROM PUBLIC')
    text = refused(postgres.url(database, user=role), StoreDenied, 18)
    postgres.drop_role(role)
    assert f'permission denied for database "{name_of(database)}"' in text
    assert text.endswith("grant the role its rights: see docs/postgres.md")


def test_a_host_without_a_line_in_pg_hba(own):
    rules = own.folder / "cluster" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("local all all trust\n")
    try:
        with own.admin() as cx:
            cx.execute("SELECT pg_reload_conf()")

        def said() -> str:
            try:
                psycopg.connect(own.url()).close()
            except psycopg.OperationalError as error:
                return str(error)
            return ""

        until(lambda: "pg_hba.conf" in said(), "the server has read its rules")
        text = refused(own.url(), StoreDenied, 18)
    finally:
        rules.write_text(before)
        with own.admin() as cx:
            cx.execute("SELECT pg_reload_conf()")
    assert "no pg_hba.conf entry for host" in text
    assert text.endswith("check the user and pg_hba.conf")


def test_a_server_without_a_connection_to_spare(own):
    held = []
    try:
        with suppress(psycopg.OperationalError):
            while True:
                held.append(psycopg.connect(own.url()))
        text = refused(own.url(), StoreBusy, 12)
    finally:
        for one in held:
            one.close()
    assert text.endswith("the server has too many connections; raise max_connections or use fewer")


def test_a_server_that_is_shutting_down(own):
    last = own.admin()
    stopping = threading.Thread(target=own.stop, args=("smart",))
    stopping.start()  # waits for those who are connected
    try:
        until(lambda: own.log.read_text().count("smart shutdown request"), "it wants to stop")
        text = refused(own.url(), StoreUnavailable, 11)
    finally:
        last.close()
        stopping.join(20)
        own.start()
    assert "the database system is shutting down" in text
    assert text.endswith("the same call may succeed later")


def test_a_server_that_is_starting_up():
    """It asks its archive for what it has to replay, and the archive takes its time."""
    settings = {"restore_command": "sleep 20; false"}
    with Server(settings=settings, in_memory=True) as server:
        url = server.create_database()
        server.stop("fast")
        cluster = server.folder / "cluster"
        run(["touch", cluster / "recovery.signal"], cwd=server.folder)
        quiet = ["-D", cluster, "-s", "-W", "-l", server.log]
        run([server.bin / "pg_ctl", "start", *quiet], cwd=server.folder)

        def listens() -> bool:
            try:
                psycopg.connect(url).close()
            except psycopg.OperationalError as error:
                return "refused" not in str(error)
            return True

        until(listens, "it listens")
        text = refused(url, StoreUnavailable, 11)
        server.stop("immediate")
    assert "the database system is starting up" in text
    assert text.endswith("the same call may succeed later")


def test_a_database_that_cannot_hold_every_text_is_refused(postgres):
    name = f"t_{secrets.token_hex(6)}"
    with postgres.admin() as cx:
        cx.execute(
            f"CREATE DATABASE {name} OWNER perdure ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
        )
    with pytest.raises(ConfigError, match=r"has the encoding LATIN1.*createdb --encoding=UTF8"):
        PostgresConnection(postgres.url(name))
    postgres.drop_database(name)


# -- URLs that cannot be right ---------------------------------------------------------------

WRONG = [
    f"postgresql://ann:{SECRET}%@db/work",
    f"postgresql://ann:{SECRET}@more@db/work",
    f"postgresql://ann:{SECRET}@[db/work",
    f"postgresql://ann:{SECRET}@db/work?sslmod=require",
    f"postgresql://ann:x%zz{SECRET}@db/work",
    f"postgresql://ann:x/{SECRET}@db/work",
    f"postgresql://ann:{SECRET}/x@db/work",
]


@pytest.mark.parametrize("url", WRONG)
def test_a_url_that_cannot_be_read_is_refused_with_an_example(url):
    with pytest.raises(ConfigError) as caught:
        PostgresConnection(url)
    text = str(caught.value)
    assert SECRET not in text
    assert "postgresql://user:password@host:5432/database" in text
    assert "percent-encoded" in text
    assert "db/work" in text


def test_a_parameter_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match=r'invalid URI query parameter: "sslmod"'):
        PostgresConnection("postgresql://ann@db/work?sslmod=require")


SHOWN = {
    "postgresql://ann:S@db:5432/work?sslmode=require": (
        "postgresql://ann:***@db:5432/work?sslmode=require"
    ),
    "postgresql://ann:S@one:1,two:2/work": "postgresql://ann:***@one:1,two:2/work",
    "postgresql://ann:S#S@db/work": "postgresql://ann:***@db/work",
    "postgresql://ann:S?S@db/work": "postgresql://ann:***@db/work",
    "postgresql:///work?user=ann&password=S@S": "postgresql:///work?user=ann&password=***",
    "host=db user=ann password=S": "host=db user=ann password=***",
    "host=db password='S S' user=ann": "host=db password=*** user=ann",
}


@pytest.mark.parametrize(("url", "wanted"), SHOWN.items())
def test_a_url_is_shown_without_its_password_however_it_was_written(url, wanted):
    assert shown_url(url.replace("S", SECRET)) == wanted


def test_the_password_of_a_url_that_works_is_nowhere_to_be_seen(postgres, database):
    connection = PostgresConnection(database)
    with pytest.raises(StoreError) as caught, connection.autocommit() as cx:
        cx.execute("SELECT * FROM nothing")
    connection.close()
    assert postgres.passwords["perdure"] in database
    chain: BaseException | None = caught.value
    while chain is not None:
        assert postgres.passwords["perdure"] not in str(chain)
        chain = chain.__cause__
