"""What a turn costs: the statements of the hot path walk the partial indexes and nothing else."""

import re
from datetime import timedelta

import pytest

from perdure.model.outcomes import Death
from perdure.stores.sqlite.statements import SQL
from tests.stores.kit import MEMORY, Place, crash, failure, retry, success

# statement: what its plan must contain, as regular expressions.
PLANS = {
    "heads": [r"SEARCH perdure_jobs USING (COVERING )?INDEX perdure_jobs_ready \(lane=\? AND isolation=\?\)"],
    "promote": [
        r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)",
        r"USING (COVERING )?INDEX perdure_jobs_later \(lane=\? AND isolation=\? AND due_at<\?\)",
    ],
    "next_due": [
        r"SEARCH perdure_jobs USING (COVERING )?INDEX perdure_jobs_later \(lane=\? AND isolation=\?\)"
    ],
    "lost": [r"SEARCH j USING (COVERING )?INDEX perdure_jobs_held \(worker=\?\)"],
    "held": [r"SEARCH perdure_jobs USING INDEX perdure_jobs_held \(worker=\?\)"],
    "suspects": [r"SEARCH perdure_jobs USING INDEX perdure_jobs_suspect \(isolation>\?\)"],
    "claim": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "record": [r"SEARCH j USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "settled_before": [r"SEARCH a USING INDEX sqlite_autoindex_perdure_attempts_1 \(job=\? AND token=\?\)"],
    "enqueued_before": [r"USING INDEX perdure_jobs_key \(owner=\? AND pipeline=\? AND key=\?\)"],
    "settle_workers": [r"SEARCH j USING COVERING INDEX perdure_jobs_held \(worker=\?\)"],
    "job_by_id": [r"SEARCH j USING INDEX sqlite_autoindex_perdure_jobs_1 \(id=\?\)"],
    "attempts_of": [r"SEARCH perdure_attempts USING INDEX sqlite_autoindex_perdure_attempts_1 \(job=\?\)"],
}  # fmt: skip

# Walking these is meant: an argument, a constant, and indexes that hold only a handful of workers.
SMALL = re.compile(r"SCAN (\w+ VIRTUAL TABLE|CONSTANT ROW|\w+ USING INDEX perdure_workers_)")


def plan(place: Place, name: str) -> list[str]:
    sql = getattr(SQL, name)
    named = set(re.findall(r":([a-z_]+)", sql))
    values = dict.fromkeys(named, 1) if named else (1,) * sql.count("?")
    if isinstance(values, dict) and "nos" in values:
        values["nos"] = "[1]"
    return [row[3] for row in place.connection.raw.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def faults(lines: list[str], wanted: list[str]) -> list[str]:
    missing = [one for one in wanted if not any(re.search(one, line) for line in lines)]
    walks = [line for line in lines if line.startswith("SCAN") and not SMALL.match(line)]
    sorts = [line for line in lines if "TEMP B-TREE" in line]
    return [*missing, *walks, *sorts]


@pytest.fixture(scope="module", params=["empty", "filled", "analysed"])
def place(request):
    """A store as it is at first, with jobs in every state, and with statistics about them."""
    place = Place(MEMORY)
    if request.param != "empty":
        worker, dead = place.hire(), place.hire()
        place.put_many(200)
        place.put_many(100, run_at=place.clock.now() + timedelta(days=1))
        claims = place.take(worker, 90)
        for end, some in (
            (success, claims[:40]), (failure, claims[40:50]), (retry, claims[50:70]),
            (crash, claims[70:80]),
        ):  # fmt: skip
            place.settle(*(end(claim, worker) for claim in some), by=worker)
        place.take(dead, 10)
        place.store.end_worker(dead, Death("silent"))
    if request.param == "analysed":
        place.connection.raw.execute("ANALYZE")
    yield place
    place.close()


@pytest.mark.parametrize("name", PLANS)
def test_a_hot_statement_uses_the_index_that_was_made_for_it(place, name):
    lines = plan(place, name)
    assert faults(lines, PLANS[name]) == [], lines


@pytest.mark.parametrize(
    ("index", "name"),
    [
        ("perdure_jobs_ready", "heads"),
        ("perdure_jobs_later", "promote"),
        ("perdure_jobs_later", "next_due"),
        ("perdure_jobs_held", "held"),
        ("perdure_jobs_held", "lost"),
        ("perdure_jobs_suspect", "suspects"),
    ],
)
def test_a_schema_without_the_index_would_be_caught(index, name):
    bare = Place(MEMORY)
    bare.connection.raw.execute(f"DROP INDEX {index}")
    assert faults(plan(bare, name), PLANS[name]) != []
    bare.close()
