"""The benchmark of the stores keeps working, and its loops cannot cheat: each does all of its work or is refused."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.stores import engine, growth, peer, raw_postgres, raw_sqlite, report, snapshot
from benchmarks.stores.ours import OursOnPostgres, OursOnSqlite, on
from benchmarks.stores.places import Places, calibration, versions
from benchmarks.stores.rates import CONTENDERS, summary
from benchmarks.stores.work import Rate, drain, fill

JOBS = 200
SCHEMES = ("sqlite", "postgresql")
EACH = [(scheme, name) for scheme in SCHEMES for name in CONTENDERS[scheme]]


@pytest.fixture
def places(postgres, tmp_path) -> Places:
    return Places(postgres, tmp_path, log_files=1)


@pytest.fixture(params=SCHEMES)
def scheme(request) -> str:
    return request.param


@pytest.fixture
def url(places, scheme) -> Iterator[str]:
    with places.fresh(scheme) as made:
        yield made


@pytest.mark.parametrize(("scheme", "name"), EACH)
@pytest.mark.parametrize("failing", [False, True])
def test_every_contender_finishes_every_job_and_keeps_every_attempt(url, scheme, name, failing):
    contender = CONTENDERS[scheme][name](url)
    assert fill(contender, JOBS).jobs_s > 0
    rate = drain(contender, JOBS, 64, failing=failing)
    assert rate.jobs == JOBS
    assert rate.client_us
    assert contender.counted() == (JOBS, JOBS * 2 if failing else JOBS)
    contender.close()


@pytest.mark.parametrize("kind", [raw_sqlite.Narrow, raw_sqlite.SameRows, OursOnSqlite])
def test_a_loop_that_loses_a_job_is_refused(places, kind):
    class Losing(kind):
        def settled(self, claims, *, failing):
            return super().settled(claims[1:], failing=failing)

    with places.fresh("sqlite") as url:
        contender = Losing(url)
        fill(contender, 20)
        with pytest.raises(AssertionError, match="finished jobs and attempts"):
            drain(contender, 20, 10)
        contender.close()


def columns(contender, table) -> list[str]:
    if isinstance(contender, raw_sqlite.Narrow):
        return [row[1] for row in contender.cx.execute(f"PRAGMA table_info({table})")]
    cursor = contender.cx.execute(f"SELECT * FROM {table} LIMIT 0")
    return [column.name for column in cursor.description]


@pytest.mark.parametrize("raw", [raw_sqlite.SameRows, raw_postgres.SameRows])
def test_the_same_rows_have_all_columns_of_our_attempts_and_our_words(places, raw):
    scheme = "sqlite" if raw is raw_sqlite.SameRows else "postgresql"
    with places.fresh(scheme) as url, places.fresh(scheme) as other:
        contender, ours = raw(url), on(other)
        for one in (contender, ours):
            fill(one, 1)
            drain(one, 1, 1, failing=True)
        (kept,) = ours.opened.reader.jobs()
        theirs = sorted(
            contender.cx.execute("SELECT status, why, evidence FROM attempts").fetchall()
        )
        attempts = ours.opened.reader.attempts(kept.no)
        assert theirs == sorted((a.status, a.why_json, a.evidence_json) for a in attempts)
        assert set(columns(contender, "attempts")) == set(_our_columns(ours))
        contender.close()
        ours.close()


def _our_columns(ours) -> list[str]:
    if isinstance(ours, OursOnPostgres):
        cursor = ours._aside.execute("SELECT * FROM perdure_attempts LIMIT 0")
    else:
        cursor = ours.store._connection.raw.execute("SELECT * FROM perdure_attempts LIMIT 0")
    return [column[0] for column in cursor.description]


@pytest.mark.parametrize("kind", growth.KINDS)
def test_rows_that_are_filled_in_are_sound_and_claims_go_past_them(url, kind):
    field = growth.Field(url, kind=kind, rows=JOBS)
    assert field.ours.opened.reader.audit() == []
    wall_ms, cpu_ms = field.measure()
    assert wall_ms > 0
    assert cpu_ms > 0
    assert all(one.processing == 0 for one in field.ours.opened.reader.depths())
    field.close()


def test_a_claim_that_comes_back_short_is_refused(url):
    field = growth.Field(url, kind="ready", rows=growth.CLAIMED - 1)
    with pytest.raises(AssertionError, match="claimed 99 of 100"):
        field.measure()
    field.close()


def test_a_thousand_lanes_can_be_asked_for(url):
    field = growth.LanesField(url, busy=2)
    assert len(field.asked_lanes) == growth.LANES
    field.measure()
    field.close()


def test_growth_and_an_old_snapshot_make_tables(places):
    grown = {"sqlite": {"ready": growth.grown(places, "sqlite", "ready", (100, 300), 5)}}
    assert "300" in report.growth_told(grown)
    held = snapshot.measured(places, 1_000)
    assert set(held) == set(snapshot.CONTENDERS)
    assert "ours, nobody holds" in report.snapshot_told(held)


@pytest.mark.long  # of the peer's; ours is in every run
def test_the_peer_finishes_every_job_after_a_failure_of_each(places):
    with places.fresh("postgresql") as url:
        bulk, retry = asyncio.run(peer.drained(url, 20, failing=True))
    assert bulk.jobs == retry.jobs == 20
    assert retry.jobs_s > 0


def test_our_worker_finishes_every_job_after_a_failure_of_each(url):
    assert engine.measure(url, JOBS, failing=True).jobs_s > 0


def test_percentiles_are_those_of_the_sorted_values():
    values = [float(value) for value in range(200, 0, -1)]
    assert growth.percentile(values, 0.50) == 100
    assert growth.percentile(values, 0.99) == 198
    assert growth.percentile([3.0], 0.99) == 3


def test_a_summary_has_the_median_and_all_values():
    rates = [Rate(100, 1.0, 5.0, 2.0), Rate(100, 2.0, 7.0, 3.0), Rate(100, 4.0, 6.0, 1.0)]
    told = summary(rates)
    assert told["jobs_s"] == 50
    assert told["jobs_s_all"] == [100, 50, 25]
    assert told["cpu_us"] == 8.0
    assert json.loads(json.dumps(told)) == told


def test_the_machine_says_what_it_is(postgres, tmp_path: Path):
    assert {"python", "postgresql", "sqlite", "psycopg", "pgqueuer"} <= set(versions(postgres))
    assert all(value >= 0 for value in calibration(tmp_path).values())
