"""Roles: what the one that works needs is on a page, and the page is executed here."""

import re
import secrets
from functools import partial

import psycopg
import pytest

from perdure.model.errors import StoreDenied, StoreReadOnly
from perdure.model.jobs import Receipt
from perdure.model.operations import LaneScope, Retention
from perdure.model.outcomes import Death
from perdure.stores.opening import open_store
from perdure.stores.postgres.connection import PostgresConnection
from perdure.stores.postgres.schema import PostgresSchema
from perdure.testing import VirtualClock
from tests.house.markdown import fences
from tests.house.tree import ROOT
from tests.servers.pgbouncer import Bouncer
from tests.servers.postgres import name_of
from tests.servers.programs import MissingPart
from tests.stores.kit import DEED, TTL_S, advance, crash, failure, retry, success
from tests.stores.postgres.kit import Place, opened, with_options
from tests.stories.kit import until

PAGE = (ROOT / "docs" / "postgres.md").read_text(encoding="utf-8")
BLOCKS = ["\n".join(one.lines) for one in fences(PAGE) if one.language == "sql"]
ROLES, SCHEMA, TABLES, POOLER, _ = BLOCKS


class Stage:
    """A database and two roles, made by the words of the page."""

    def __init__(self, server) -> None:
        self.server = server
        mark = secrets.token_hex(4)
        self.names = {
            "perdure_owner": f"owner_{mark}",
            "perdure_app": f"app_{mark}",
            "work": f"work_{mark}",
        }
        self.words = {"choose-one": secrets.token_hex(8), "choose-another": secrets.token_hex(8)}
        self.say(ROLES, "postgres")
        self.owner, self.app = self.names["perdure_owner"], self.names["perdure_app"]
        server.passwords |= {self.owner: self.words["choose-one"]}
        server.passwords |= {self.app: self.words["choose-another"]}

    def say(self, block: str, database: str = "work") -> None:
        """Execute a block of the page, with names of our own."""
        for old, new in (self.names | self.words).items():
            block = re.sub(rf"\b{old}\b", new, block)
        with self.server.admin(self.names.get(database, database)) as cx:
            for statement in filter(str.strip, block.split(";")):
                cx.execute(statement)

    def url(self, user: str) -> str:
        return self.server.url(self.names["work"], user=user)

    def close(self) -> None:
        self.server.drop_database(self.names["work"])
        self.server.drop_role(self.owner)
        self.server.drop_role(self.app)


@pytest.fixture
def stage(postgres):
    stage = Stage(postgres)
    yield stage
    stage.close()


@pytest.fixture
def ready(stage) -> Stage:
    """The schema stands, and the role that works has its rights."""
    stage.say(SCHEMA)
    upgraded(stage.url(stage.owner))
    return stage


def upgraded(url: str) -> None:
    connection = opened(url)
    try:
        PostgresSchema(connection).upgrade()
    finally:
        connection.close()


def opened_by_app(url: str, clock: VirtualClock, *, create: bool = True):
    return open_store(url, clock, create=create, wait_s_max=2.0, injected=True)


def life(place: Place) -> None:
    """Everything that a worker, an operator and the upkeep do."""
    worker, silent = place.hire(), place.hire()
    run = place.begin_run(id="00000000-0000-7000-8000-00000000aaaa")
    place.put_many(6)
    place.put(run=run.no, key="k")
    place.put(run=run.no, key="k")
    claims = place.take(worker, 3)
    place.settle(
        advance(claims[0], worker, place.lanes["two"]),
        failure(claims[1], worker),
        retry(claims[2], worker),
        by=worker,
    )
    place.take(silent, 1)
    place.live([worker], TTL_S * 2.5)
    assert place.store.mark_dead(by=worker) == (silent,)
    (lost,) = place.store.lost_claims(limit=5)
    place.settle(crash(lost.claim, silent), by=worker)
    place.store.mark_dead(by=worker)
    place.revive(place.see(claims[1].id))
    assert place.control.pause(LaneScope.QUEUE, "q", DEED)
    assert place.take(worker, 10) == []
    assert place.control.resume(LaneScope.QUEUE, "q", DEED)
    while more := place.take(worker, 10):
        for answer in place.settle(*(success(one, worker) for one in more), by=worker):
            assert isinstance(answer, Receipt)
    assert place.control.take_duty("upkeep", worker=worker, ttl_s=30)
    place.clock.push(10)
    assert place.control.prune(Retention(succeeded_s=1.0), limit=100).jobs > 0
    assert place.store.end_worker(worker, Death("stopped"))
    for read in (
        place.reader.depths,
        place.reader.lanes,
        place.reader.failures,
        place.reader.deeds,
    ):
        read()
    place.clean()


def test_a_role_without_rights_to_make_tables_lives_a_whole_life(ready, open_place):
    """As the app opens it, schema check included."""
    opened_by_app(ready.url(ready.app), VirtualClock()).close()
    life(open_place(ready.url(ready.app), VirtualClock()))


def test_a_role_without_rights_to_make_tables_is_refused_an_upgrade_with_advice(stage):
    stage.say(SCHEMA)
    for attempt in (
        partial(upgraded, stage.url(stage.app)),
        partial(opened_by_app, stage.url(stage.app), VirtualClock()),
    ):
        with pytest.raises(StoreDenied) as caught:
            attempt()
        assert "permission denied for schema perdure" in str(caught.value)
        assert "run: perdure db upgrade --store URL, with the URL of a role that may" in str(
            caught.value
        )
        assert stage.words["choose-another"] not in str(caught.value)


def test_a_role_that_may_not_even_look_into_the_schema_is_told_the_same(ready):
    ready.say("REVOKE USAGE ON SCHEMA perdure FROM perdure_app;")
    with pytest.raises(
        StoreDenied, match="run: perdure db upgrade --store URL, with the URL of a role that may"
    ):
        opened_by_app(ready.url(ready.app), VirtualClock())


def test_a_role_without_any_schema_is_told_the_same(ready):
    ready.say("ALTER ROLE perdure_app IN DATABASE work SET search_path = nowhere;")
    with pytest.raises(
        StoreDenied, match="run: perdure db upgrade --store URL, with the URL of a role that may"
    ):
        opened_by_app(ready.url(ready.app), VirtualClock())


def test_tables_from_before_the_default_privileges_need_the_grant_of_the_page(stage):
    before, _, after = SCHEMA.partition("ALTER DEFAULT PRIVILEGES")
    stage.say(before)
    upgraded(stage.url(stage.owner))
    with pytest.raises(StoreDenied, match="permission denied for table perdure_migrations"):
        opened_by_app(stage.url(stage.app), VirtualClock())
    stage.say(f"ALTER DEFAULT PRIVILEGES{after}")
    stage.say(TABLES)
    opened_by_app(stage.url(stage.app), VirtualClock()).close()


def test_a_fresh_upgrade_by_the_owner_is_usable_at_once_by_the_other(ready):
    opened_by_app(ready.url(ready.app), VirtualClock(), create=False).close()


@pytest.mark.parametrize(
    ("right", "table"),
    [
        ("INSERT", "perdure_jobs"),
        ("INSERT", "perdure_attempts"),
        ("UPDATE", "perdure_jobs"),
        ("SELECT", "perdure_lanes"),
        ("INSERT", "perdure_workers"),
        ("INSERT", "perdure_flows"),
        ("UPDATE", "perdure_depths"),
    ],
)
def test_a_right_that_is_missing_is_named_with_its_table(ready, right, table, open_place):
    ready.say(f"REVOKE {right} ON perdure.{table} FROM perdure_app;")
    with pytest.raises(StoreDenied) as caught:
        life(open_place(ready.url(ready.app), VirtualClock()))
    assert f"permission denied for table {table}" in str(caught.value)
    assert str(caught.value).endswith("grant the role its rights: see docs/postgres.md")
    assert caught.value.exit_code == 18


def test_the_settings_of_the_page_are_in_force_behind_a_pooler(ready, postgres, missing):
    ready.say(POOLER)
    try:
        pooler = Bouncer(postgres)
    except MissingPart as part:
        missing(str(part))
    wanted = re.findall(r"SET (\w+) = '?([^';]+)'?;", POOLER)
    with pooler:
        connection = opened(pooler.url(ready.names["work"], user=ready.app))
        assert connection.pooled
        with connection.autocommit() as cx:
            found = [(name, cx.execute(f"SHOW {name}").fetchone()[0]) for name, _ in wanted]
            assert cx.answer_s_max == 35
        connection.close()
    assert found == wanted


def test_the_page_gives_a_pooler_all_that_a_server_is_asked_for(database):
    connection = opened(database)
    said = dict(re.findall(r"SET (\w+) = '?([^';]+)'?;", POOLER))
    asked = dict(re.findall(r"-c ([a-z_]+)=((?:\\ |\S)+)", connection._options[0]))
    with connection.autocommit() as cx:
        for name in asked:
            assert cx.execute(f"SHOW {name}").fetchone()[0] == said.get(name), name
    connection.close()
    assert set(said) == {*asked, "synchronous_commit"}


def test_the_query_of_the_page_finds_an_old_snapshot(place, postgres):
    with psycopg.connect(place.url) as cx:
        cx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cx.execute("SELECT 1")
        with postgres.admin() as admin:

            def is_found() -> bool:
                admin.execute("SELECT txid_current()")  # what begins after it is younger
                found = [row[0] for row in admin.execute(BLOCKS[-1]).fetchall()]
                return cx.info.backend_pid in found

            # Others on this server are as old, and end.
            until("it is among the five oldest", is_found, within_s=60.0)


# -- read only ---------------------------------------------------------------------------------------


def test_a_read_only_server_is_told_apart_and_work_goes_on_when_it_ends(place, worker, postgres):
    """As after a failover to a standby: reads work, writes are refused with what to do."""
    place.put_many(2)
    (claim,) = place.take(worker)

    def read_only(value: str) -> None:
        with postgres.admin() as cx:
            cx.execute(
                f"ALTER DATABASE {name_of(place.url)} SET default_transaction_read_only = {value}"
            )
            cx.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
                (name_of(place.url),),
            )

    read_only("on")
    assert place.reader.books().accepted == 2
    assert place.see(claim.id).state == "processing"
    writes = [
        place.put,
        partial(place.take, worker),
        partial(place.store.beat, [worker]),
        partial(place.settle, success(claim, worker), by=worker),
        partial(place.lanes_of, "new"),
        place.hire,
    ]
    for write in writes:
        with pytest.raises(StoreReadOnly) as caught:
            write()
        assert caught.value.exit_code == 14
        assert str(caught.value).endswith("connect to the primary")
    read_only("off")
    place.put()
    (receipt,) = place.settle(success(claim, worker), by=worker)
    assert isinstance(receipt, Receipt)
    assert not receipt.repeated
    assert place.store.beat([worker]) == {worker}
    place.clean()


def test_a_role_that_trades_durability_for_speed_does_not_do_so_with_us(postgres, database):
    with postgres.admin() as cx:
        cx.execute(f"ALTER DATABASE {name_of(database)} SET synchronous_commit = off")

    def commits(url: str) -> str:
        connection = PostgresConnection(url)
        with connection.autocommit() as cx:
            found = cx.execute("SHOW synchronous_commit").fetchone()[0]
        connection.close()
        return found

    assert commits(database) == "on"
    assert commits(with_options(database, synchronous_commit="off")) == "off"  # who insists
