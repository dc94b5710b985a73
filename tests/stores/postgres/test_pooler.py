"""Behind PgBouncer in transaction mode: nothing of ours lives in a session, and everything works."""

import secrets
from functools import partial

import psycopg
import pytest

from perdure.model.jobs import Receipt
from perdure.model.outcomes import Death
from perdure.model.workers import NewWorker, Role
from perdure.stores.postgres.connection import PostgresConnection
from perdure.testing import VirtualClock
from tests.servers.pgbouncer import Bouncer
from tests.servers.postgres import SUPERUSER
from tests.servers.programs import MissingPart
from tests.stores.kit import TTL_S, advance, crash, retry, success
from tests.stores.postgres.kit import Place, at_once, meanwhile, opened, other, until, with_options

SERVERS = 3
THREADS = 12


@pytest.fixture(scope="module")
def narrow(postgres, missing):
    """A pooler with three connections to the server for each database."""
    try:
        pooler = Bouncer(postgres, settings={"default_pool_size": SERVERS})
    except MissingPart as part:
        missing(str(part))
    with pooler:
        yield pooler


@pytest.fixture(scope="module")
def deaf(postgres, missing):
    """A pooler that drops the settings that a client asks for, instead of refusing the client."""
    settings = {"default_pool_size": SERVERS, "ignore_startup_parameters": "options"}
    try:
        pooler = Bouncer(postgres, settings=settings)
    except MissingPart as part:
        missing(str(part))
    with pooler:
        yield pooler


@pytest.fixture
def pooled(narrow, furnished, open_place) -> Place:
    return open_place(narrow.url(furnished))


def prepared(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as cx:
        return cx.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0]


# -- finding out ---------------------------------------------------------------------------------


def test_a_pooler_that_refuses_settings_is_known_for_one(narrow, furnished):
    connection = opened(narrow.url(furnished))
    assert connection.pooled
    connection.close()


def test_a_pooler_that_drops_settings_is_known_for_one(deaf, furnished):
    connection = opened(deaf.url(furnished))
    assert connection.pooled
    with connection.autocommit() as cx:
        assert cx.execute("SHOW lock_timeout").fetchone() == ("0",)
    connection.close()


def test_a_server_is_not_taken_for_a_pooler(furnished):
    connection = opened(furnished)
    assert not connection.pooled
    connection.close()


def test_settings_of_the_url_that_a_pooler_refuses_are_not_dropped_in_silence(narrow, furnished):
    """A search_path that is not in force would lead to other tables."""
    with pytest.raises(Exception, match="unsupported startup parameter"):
        PostgresConnection(with_options(narrow.url(furnished), search_path="mine"))


@pytest.mark.parametrize("kind", ["narrow", "deaf"])
def test_no_statement_is_ever_prepared_behind_a_pooler(kind, request, furnished, open_place):
    pooler = request.getfixturevalue(kind)
    place = open_place(pooler.url(furnished))
    worker = place.hire()
    for _ in range(12):  # the driver prepares what it has sent five times
        place.put()
        (claim,) = place.take(worker)
        place.settle(success(claim, worker), by=worker)
    for _ in range(SERVERS):
        assert prepared(pooler.url(furnished)) == 0


def test_a_statement_that_was_prepared_would_be_noticed(place, worker):
    for _ in range(12):
        place.put()
    with place.connection.autocommit() as cx:
        assert cx.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0] > 0


def test_a_pooler_that_nobody_could_see_is_known_by_statements_that_are_gone(place):
    """The next call finds its statement gone; from then on none is prepared."""
    for _ in range(12):
        place.put()
    with place.connection.autocommit() as cx:
        # Behind the driver's back: as if the pooler had given us another server.
        cx.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$", prepare=False)
    with pytest.raises(Exception, match="may succeed later"):
        place.put()
    assert place.connection.pooled
    for _ in range(12):
        place.put()
    with place.connection.autocommit() as cx:
        assert cx.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    assert place.reader.books().accepted == 24


# -- a worker's life -------------------------------------------------------------------------------


def life(place: Place, number: int) -> int:
    """Lanes, jobs, claims, records, beats: as a worker lives; how many jobs it has finished."""
    lanes = place.lanes_of(f"own-{number}")
    worker = place.store.add_worker(NewWorker(secrets.token_hex(8), "w", Role.MAIN, 600.0))
    shared = [place.new(id=place.id_of(number * 1000 + n), key=f"k{n}") for n in range(3)]
    own = [
        place.new(
            id=place.id_of(number * 1000 + 100 + n), pipeline=f"own-{number}", lane=lanes["one"]
        )
        for n in range(10)
    ]
    place.store.enqueue(shared)
    made = place.store.enqueue(own)
    assert [one.id for one in made] == [one.id for one in own]
    finished = 0
    order = place.order(worker, 4)
    order = type(order)(worker, 4, tuple(lanes.values()))
    records: list = []
    while True:
        turn = place.store.turn(records, order, by=worker)
        assert all(isinstance(one, Receipt) for one in turn.settled), turn.settled
        assert place.store.beat([worker]) == {worker}
        finished += sum(one.state == "succeeded" for one in turn.settled)
        if not turn.claims:
            assert place.store.tokens_held(worker) == {}
            return finished
        records = [
            advance(claim, worker, lanes["two"]) if claim.stage == "one" else success(claim, worker)
            for claim in turn.claims
        ]


def test_twelve_workers_live_through_three_connections_to_the_server(
    pooled, narrow, furnished, open_place
):
    places = [pooled, *(open_place(narrow.url(furnished), series=n + 1) for n in range(3))]
    done = at_once([partial(life, places[n % 4], n + 1) for n in range(THREADS)])
    assert done == [10] * THREADS
    books = pooled.reader.books()
    assert books.succeeded == 10 * THREADS
    assert books.accepted == 10 * THREADS + 3  # the same three keys from all
    pooled.clean()
    with psycopg.connect(narrow.url("pgbouncer", user=SUPERUSER), autocommit=True) as console:
        console.prepare_threshold = None
        rows = psycopg.ClientCursor(console).execute("SHOW SERVERS").fetchall()
    assert 1 <= sum(furnished.endswith(f"/{row[2]}") for row in rows) <= SERVERS


def test_the_dead_are_marked_and_their_jobs_found_through_a_pooler(narrow, furnished, open_place):
    place = open_place(narrow.url(furnished), VirtualClock())
    judge, silent = place.hire(), place.hire()
    place.put_many(4)
    held = place.take(silent, 3)
    place.live([judge], TTL_S * 2.5)
    assert place.store.mark_dead(by=judge) == (silent,)
    lost = place.store.lost_claims(limit=10)
    assert sorted(one.claim.id for one in lost) == sorted(one.id for one in held)
    place.settle(*(crash(one.claim, judge) for one in lost), by=judge)
    assert place.store.suspects() == {1}
    place.store.mark_dead(by=judge)
    assert place.store.lost_claims(limit=10) == []
    (claim,) = place.take(judge)
    place.settle(retry(claim, judge, delay_s=60), by=judge)
    assert place.store.waiting(place.order(judge)) == pytest.approx(60)
    assert place.store.end_worker(judge, Death("silent"))
    place.clean()


def test_a_schema_is_made_through_a_pooler_once_by_many(narrow, database):
    at_once([lambda: Place(narrow.url(database)).close()] * 4)
    with other(database) as cx:
        assert cx.execute("SELECT count(*) FROM perdure_migrations").fetchone()[0] >= 1


def test_nobody_listens_behind_a_pooler_and_polling_finds_the_work(pooled):
    worker = pooled.hire()
    assert pooled.store.has_changed() is False
    assert pooled.store.waiting(pooled.order(worker)) is None
    pooled.put()
    assert pooled.store.has_changed() is False
    assert pooled.store.waiting(pooled.order(worker)) == 0.0
    assert len(pooled.take(worker)) == 1


def test_who_listens_at_the_server_hears_of_what_was_enqueued_through_a_pooler(pooled, place):
    place.store.has_changed()
    pooled.put()
    until(place.store.has_changed, "the hint")


def test_a_pooler_that_restarts_costs_no_more_than_the_calls_under_way(
    postgres, furnished, missing, open_place
):
    try:
        pooler = Bouncer(postgres)
    except MissingPart as part:
        missing(str(part))
    with pooler:
        place = open_place(pooler.url(furnished))
        place.put()
        pooler.stop()
        with pytest.raises(Exception, match="check that the server runs"):
            place.put()
        pooler.start()
        place.put()
        assert place.reader.books().accepted == 2


def test_a_full_pool_makes_callers_wait_not_fail(narrow, furnished, pooled, open_place):
    """Three transactions hold all that the pooler has; a fourth waits its turn."""
    holders = [open_place(narrow.url(furnished), series=n + 1) for n in range(SERVERS)]
    blocks = [one.connection.transaction() for one in holders]
    for one in blocks:
        one.__enter__()
    with meanwhile(pooled.put) as answer:
        for one in blocks:
            one.__exit__(None, None, None)
        assert answer().created
