"""What statements cost on SQLite: those of the hot path walk the partial indexes, and none walks the jobs."""

import re
from datetime import timedelta

import pytest

from perdure.model.jobs import Lane
from perdure.model.outcomes import Death
from perdure.stores.sqlite.statements import SQL
from tests.stores.kit import MEMORY, Place, crash, failure, retry, success

# statement: what its plan must contain, as regular expressions.
PLANS = {
    "heads": [r"SEARCH perdure_jobs USING (COVERING )?INDEX perdure_jobs_ready \(lane=\? AND isolation=\?"],
    "firsts": [
        r"SEARCH j USING INTEGER PRIMARY KEY \(rowid=\?\)",
        r"SEARCH h USING (COVERING )?INDEX perdure_jobs_ready \(lane=\? AND isolation=\?\)",
    ],
    "busy_lanes": [r"SEARCH j USING (COVERING )?INDEX perdure_jobs_ready \(lane=\? AND isolation=\?\)"],
    "due_lanes": [r"USING (COVERING )?INDEX perdure_jobs_later \(lane=\? AND isolation=\? AND due_at<\?\)"],
    "promote": [
        r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)",
        r"USING (COVERING )?INDEX perdure_jobs_later \(lane=\? AND isolation=\? AND due_at<\?\)",
    ],
    "next_due": [r"SEARCH j USING (COVERING )?INDEX perdure_jobs_later \(lane=\? AND isolation=\?\)"],
    "closed_lanes": [
        r"INDEX perdure_lanes_queue \(queue=\?\)", r"INDEX perdure_lanes_name \(pipeline=\?\)",
        r"INDEX perdure_lanes_run \(run=\?\)", r"INDEX perdure_lanes_upstream \(upstream=\?\)",
    ],
    "lost": [r"SEARCH j USING (COVERING )?INDEX perdure_jobs_held \(worker=\?\)"],
    "expired": [r"SEARCH perdure_jobs USING INDEX perdure_jobs_deadline \(deadline_at<\?\)"],
    "held": [r"SEARCH perdure_jobs USING INDEX perdure_jobs_held \(worker=\?\)"],
    "suspects": [r"SEARCH perdure_jobs USING INDEX perdure_jobs_suspect \(isolation>\?\)"],
    "claim": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "matched": [r"SEARCH j USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "record": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "revive": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "discard": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "prune_look": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid>\?\)"],
    "prune_attempts": [r"SEARCH perdure_attempts USING PRIMARY KEY \(job=\?\)"],
    "settled_before": [r"SEARCH a USING PRIMARY KEY \(job=\? AND token=\?\)"],
    "ids_taken": [r"USING COVERING INDEX sqlite_autoindex_perdure_jobs_1 \(id=\?\)"],
    "enqueued_before": [
        r"USING INDEX perdure_jobs_key \(owner=\? AND pipeline=\? AND <expr>=\? AND key=\?\)"
    ],
    "settle_workers": [r"SEARCH j USING COVERING INDEX perdure_jobs_held \(worker=\?\)"],
    "job_by_id": [
        r"SEARCH j USING INDEX sqlite_autoindex_perdure_jobs_1 \(id=\?\)",
        r"SEARCH l USING INTEGER PRIMARY KEY \(rowid=\?\)",
    ],
    "fair_owners": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "attempts_of": [r"SEARCH perdure_attempts USING PRIMARY KEY \(job=\?\)"],
}  # fmt: skip

# Walking these is meant: an argument, a constant, and indexes that hold only a few workers or shut gates.
SMALL = re.compile(
    r"SCAN (\w+ VIRTUAL TABLE|CONSTANT ROW|\w+ USING INDEX perdure_(workers_|gates_shut))"
)

# A table that grows with the work, walked whole or by an index that holds all of it.
GROWING = re.compile(r"SCAN (perdure_jobs|perdure_attempts|perdure_checkpoints|j|a|c)\b(.*)")
PARTIAL = re.compile(r"INDEX perdure_jobs_(ready|later|held|failed|suspect)")

# Reports that say in their port that they count.
COUNTING = {"states_count"}


def plan(place: Place, name: str) -> list[str]:
    sql = getattr(SQL, name)
    named = set(re.findall(r":([a-z_]+)", sql))
    places = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    values: object = (1,) * max(places, default=sql.count("?"))
    if named:
        arrays = {"nos", "lanes", "records", "workers", "names"}
        values = {name: "[1]" if name in arrays else 1 for name in named}
    return [row[3] for row in place.connection.raw.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def faults(lines: list[str], wanted: list[str]) -> list[str]:
    missing = [one for one in wanted if not any(re.search(one, line) for line in lines)]
    walks = [line for line in lines if line.startswith("SCAN") and not SMALL.match(line)]
    sorts = [line for line in lines if "TEMP B-TREE" in line]
    return [*missing, *walks, *sorts]


def walks(lines: list[str]) -> list[str]:
    found = [(line, GROWING.match(line)) for line in lines]
    return [line for line, table in found if table and not PARTIAL.search(table[2])]


@pytest.fixture(scope="module", params=["empty", "filled", "analysed"])
def place(request):
    """A store as it is at first, with jobs in every state and many lanes, and with statistics about them."""
    place = Place(MEMORY)
    if request.param != "empty":
        place.store.lanes([Lane("q", "c", f"p{n % 40}", f"s{n}") for n in range(400)])
        place.store.lanes([Lane(f"q{n}", "c", "p", "s", n, f"u{n}") for n in range(1, 200)])
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


def test_attempts_that_are_overrun_are_looked_for_among_what_the_living_hold(place):
    lines = plan(place, "overrun")
    held = [r"SEARCH j USING INDEX perdure_jobs_held \(worker=\?\)"]
    assert [one for one in faults(lines, held) if "TEMP B-TREE" not in one] == [], lines


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("fair_starts", [r"INDEX perdure_jobs_fair_ready$",
                         r"INDEX perdure_jobs_fair_ready \(lane>\?\)",
                         r"INDEX perdure_jobs_fair_ready \(lane=\?\)"]),
        ("fair_ends", [r"INDEX perdure_jobs_fair_waiting \(owner=\?\)",
                       r"INDEX perdure_jobs_fair_waiting \(owner=\? AND lane>\?\)",
                       r"INDEX perdure_jobs_fair_waiting \(owner=\? AND lane=\?\)"]),
    ],
)  # fmt: skip
def test_the_lines_of_a_fair_queue_are_read_at_their_ends(place, name, wanted):
    """Every look at the jobs takes one entry of the index that was made for it: the lowest or the highest."""
    lines = plan(place, name)
    looks = [line for line in lines if "perdure_jobs" in line]
    assert [one for one in wanted if not any(re.search(one, line) for line in looks)] == [], lines
    assert all(line.startswith("SEARCH") for line in looks), lines


@pytest.mark.parametrize("name", PLANS)
def test_a_hot_statement_uses_the_index_that_was_made_for_it(place, name):
    lines = plan(place, name)
    assert faults(lines, PLANS[name]) == [], lines


@pytest.mark.parametrize("name", sorted(set(vars(SQL)) - COUNTING))
def test_no_statement_walks_a_table_that_grows_with_the_work(place, name):
    assert walks(plan(place, name)) == []


def test_a_statement_that_counts_all_jobs_would_be_caught(place):
    assert walks(plan(place, "states_count")) != []


@pytest.mark.parametrize(
    ("index", "name"),
    [
        ("perdure_jobs_ready", "heads"),
        ("perdure_jobs_ready", "busy_lanes"),
        ("perdure_jobs_later", "promote"),
        ("perdure_jobs_later", "next_due"),
        ("perdure_jobs_held", "held"),
        ("perdure_jobs_held", "lost"),
        ("perdure_jobs_suspect", "suspects"),
        ("perdure_jobs_key", "enqueued_before"),
        ("perdure_lanes_queue", "closed_lanes"),
    ],
)
def test_a_schema_without_the_index_would_be_caught(index, name):
    bare = Place(MEMORY)
    bare.connection.raw.execute(f"DROP INDEX {index}")
    assert faults(plan(bare, name), PLANS[name]) != []
    bare.close()
