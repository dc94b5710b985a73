"""psycopg's own exceptions, from a server that lets it in and refuses, and from one that is not there."""

import asyncio

import pytest

from tests.sdks.kit import RETRIED_IN_REPORTS, Sdk, seen, waits_in_reports
from tests.sdks.wires import postgres_talk, serving

psycopg = Sdk("psycopg")
errors = Sdk("psycopg.errors")
pool = Sdk("psycopg_pool")


def query(port, **more):
    address = f"host=127.0.0.1 port={port} user=u password=c4n4ry dbname=d sslmode=disable"
    with psycopg.connect(address, connect_timeout=20, **more) as connection:
        connection.execute("select 1")


REFUSED = {
    "40001": "storage_transient", "40P01": "storage_transient", "55P03": "storage_transient",
    "40003": "ambiguous", "08007": "ambiguous",
    "08006": "storage_transient", "57P01": "storage_transient", "25006": "storage_transient",
    "53100": "storage_transient", "53200": "storage_transient", "53300": "storage_transient",
    "58030": "storage_transient", "57P05": "storage_transient",
    "28P01": "auth", "28000": "auth", "42501": "auth",
    "57P04": "config_missing", "3D000": "config_missing",
    "54001": "too_large",
    "23505": "invalid_request", "22P02": "invalid_request", "P0001": "invalid_request",
    "42P01": "internal", "25P02": "internal", "0A000": "internal", "XX001": "internal",
    "08P01": "internal",
}  # fmt: skip


@pytest.mark.parametrize(("state", "kind"), REFUSED.items())
def test_a_statement_refused_with_a_state_means(state, kind):
    with serving(postgres_talk(state, "no")) as port:
        evidence, verdict = seen(lambda: query(port))
    assert (verdict.kind, verdict.rule) == (kind, f"sqlstate {state}"), evidence
    assert evidence.names[-3:] == ("psycopg.Error", "builtins.Exception", "builtins.BaseException")
    assert "c4n4ry" not in str(evidence)


# [000]'s list of what passes: 08, 53, 40001, 40P01, 57P01 to 57P03
PASSING = ("08000", "08006", "53100", "53200", "53300", "40001", "40P01", "57P01", "57P02", "57P03")


@pytest.mark.parametrize("state", [*PASSING, "23505", "42P01"])
def test_a_report_job_tries_a_passing_fault_of_its_database_again(state):
    with serving(postgres_talk(state, "no")) as port:
        waits_s = waits_in_reports(lambda: query(port))
    assert waits_s == (RETRIED_IN_REPORTS if state in PASSING else [])


def test_a_report_job_waits_for_a_database_that_is_not_there(closed_port):
    port = int(closed_port.rpartition(":")[2].strip("/"))
    assert waits_in_reports(lambda: query(port)) == RETRIED_IN_REPORTS


@pytest.mark.parametrize(("state", "kind"), REFUSED.items())
def test_the_class_that_psycopg_looks_up_means_the_same(state, kind):
    error = errors.lookup(state)("no")

    def throw():
        raise error

    assert seen(throw)[1].kind == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("canceling statement due to statement timeout", "timeout"),
        ("canceling statement due to user request", "cancelled"),
    ],
)
def test_a_cancelled_query_is_judged_by_who_cancelled_it(text, kind):
    with serving(postgres_talk("57014", text)) as port:
        _, verdict = seen(lambda: query(port))
    assert verdict.kind == kind


@pytest.mark.parametrize("text", ["query_wait_timeout", "server conn crashed?"])
def test_what_pgbouncer_calls_a_broken_protocol_passes(text):
    with serving(postgres_talk("08P01", text)) as port:
        _, verdict = seen(lambda: query(port))
    assert verdict.kind == "storage_transient"


def test_a_connection_lost_after_the_statement_is_ambiguous():
    with serving(postgres_talk("", "", then_gone=True)) as port:
        evidence, verdict = seen(lambda: query(port))
    assert evidence.sqlstate is None
    assert verdict.kind == "ambiguous", evidence


AT_THE_DOOR = [
    ("57P03", "the database system is starting up", "storage_transient"),
    ("53300", "sorry, too many clients already", "storage_transient"),
    ("28P01", 'password authentication failed for user "u"', "auth"),
    ("28000", 'no pg_hba.conf entry for host "127.0.0.1"', "auth"),
    ("3D000", 'database "d" does not exist', "config_missing"),
]


@pytest.mark.parametrize(("state", "text", "kind"), AT_THE_DOOR)
def test_a_client_refused_at_the_door_means(state, text, kind):
    with serving(postgres_talk(state, text, at_start=True)) as port:
        evidence, verdict = seen(lambda: query(port))
    assert verdict.kind == kind, (verdict, evidence)
    assert evidence.names[0] == "psycopg.OperationalError"


def test_a_server_that_is_not_there_fails_in_passing(closed_port):
    port = closed_port.rpartition(":")[2]
    evidence, verdict = seen(lambda: query(port))
    assert (verdict.kind, evidence.sqlstate) == ("storage_transient", None)


def test_the_asynchronous_driver_means_the_same(closed_port):
    port = closed_port.rpartition(":")[2]

    async def connect():
        await psycopg.AsyncConnection.connect(f"host=127.0.0.1 port={port} user=u dbname=d")

    assert seen(lambda: asyncio.run(connect()))[1].kind == "storage_transient"


def test_an_empty_pool_is_our_own_shortage():
    with serving(postgres_talk("", "")) as port:
        address = f"host=127.0.0.1 port={port} user=u dbname=d sslmode=disable"
        with pool.ConnectionPool(address, min_size=1, max_size=1, timeout=10) as small:

            def take_two():
                with small.connection(), small.connection(timeout=0.05):
                    pass

            _, verdict = seen(take_two)
    assert (verdict.kind, verdict.rule) == ("resource_exhausted", "psycopg_pool.PoolTimeout")
