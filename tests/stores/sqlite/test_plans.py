"""What statements cost on SQLite: those of the hot path walk the partial indexes, and none walks the jobs."""

import re
from collections.abc import Mapping
from datetime import timedelta

import pytest

from perdure.model.filters import JobFilter
from perdure.model.jobs import Lane
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.stores.dead_groups import dead_groups
from perdure.stores.job_lists import Choice
from perdure.stores.run_report import REPORT
from perdure.stores.sqlite.reader import DIALECT
from perdure.stores.sqlite.statements import SQL
from tests.stores.kit import MEMORY, Place, crash, failure, retry, success

# statement: what its plan must contain, as regular expressions.
PLANS = {
    "lane_heads": [r"SEARCH perdure_jobs USING (COVERING )?INDEX perdure_jobs_ready \(lane=\? AND isolation=\?"],
    "lane_firsts": [
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
    "closed_lane_nos": [
        r"INDEX perdure_lanes_queue \(queue=\?\)", r"INDEX perdure_lanes_name \(pipeline=\?\)",
        r"INDEX perdure_lanes_run \(run=\?\)", r"INDEX perdure_lanes_upstream \(upstream=\?\)",
    ],
    "lost": [r"SEARCH j USING (COVERING )?INDEX perdure_jobs_held \(worker=\?\)"],
    "expired": [r"SEARCH perdure_jobs USING INDEX perdure_jobs_deadline \(deadline_at<\?\)"],
    "held": [r"SEARCH perdure_jobs USING INDEX perdure_jobs_held \(worker=\?\)"],
    "suspects": [r"SEARCH perdure_jobs USING INDEX perdure_jobs_suspect \(isolation>\?\)"],
    "claim": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "records_matched": [r"SEARCH j USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "record": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "revive": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "run_now": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "cancellable": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "payload_keep": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "payloads_of": [r"SEARCH perdure_payloads USING .*\(job=\?\)"],
    "bulk_payloads_of": [r"SEARCH perdure_bulk_payloads USING .*\(bulk=\? AND key=\?\)"],
    "discard": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "prune_look": [
        r"SEARCH j USING INTEGER PRIMARY KEY \(rowid>\?\)",
        r"SEARCH r USING INTEGER PRIMARY KEY \(rowid=\?\)",
    ],
    "prune_attempts": [r"SEARCH perdure_attempts USING PRIMARY KEY \(job=\?\)"],
    "attempts_ended": [r"SEARCH a USING PRIMARY KEY \(job=\? AND token=\?\)"],
    "settled_before": [r"SEARCH a USING PRIMARY KEY \(job=\? AND token=\?\)"],
    "ids_taken": [r"USING COVERING INDEX sqlite_autoindex_perdure_jobs_1 \(id=\?\)"],
    "enqueued_before": [
        r"USING INDEX perdure_jobs_key \(owner=\? AND pipeline=\? AND key=\? AND <expr>=\?\)"
    ],
    "settle_workers": [r"SEARCH j USING COVERING INDEX perdure_jobs_held \(worker=\?\)"],
    "jobs_ended": [r"SEARCH j USING INDEX sqlite_autoindex_perdure_jobs_1 \(id=\?\)"],
    "deeds_of": [r"USING INDEX perdure_audit_log_subject \(subject=\?"],
    "job_by_id": [
        r"SEARCH j USING INDEX sqlite_autoindex_perdure_jobs_1 \(id=\?\)",
        r"SEARCH l USING INTEGER PRIMARY KEY \(rowid=\?\)",
    ],
    "fair_owners": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "attempts_of": [r"SEARCH perdure_attempts USING PRIMARY KEY \(job=\?\)"],
    "record_done": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "dead_letter": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "redrive_add": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "in_own_run": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "runs_reopen": [r"SEARCH perdure_runs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "run_found": [
        r"USING COVERING INDEX sqlite_autoindex_perdure_runs_2 \(owner=\? AND pipeline=\? AND name=\?\)"
    ],
    "items": [r"SEARCH perdure_jobs USING INDEX perdure_jobs_run \(run=\? AND no>\?\)"],
    "items_redriven": [r"USING INDEX perdure_jobs_redrive \(redrive_run=\? AND no>\?\)"],
    "items_ended": [r"USING INDEX perdure_jobs_run_ended \(run=\? AND finished_at>\?\)"],
    "items_ended_redriven": [
        r"USING INDEX perdure_jobs_redrive_ended \(redrive_run=\? AND finished_at>\?\)"
    ],
    "captures_of": [r"SEARCH perdure_artifacts USING INDEX perdure_artifacts_job \(job=\?\)"],
    "capture_by_id": [r"SEARCH a USING INDEX sqlite_autoindex_perdure_artifacts_1 \(id=\?\)"],
    "prune_captures": [r"USING COVERING INDEX perdure_artifacts_expiry \(expires_at<\?\)"],
    "bulk_by_id": [r"SEARCH perdure_bulks USING INDEX sqlite_autoindex_perdure_bulks_1 \(id=\?\)"],
    "bulks_running": [r"USING INDEX perdure_bulks_running"],
    "bulk_step": [r"SEARCH perdure_bulks USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "refusals_page": [r"SEARCH f USING PRIMARY KEY \(bulk=\? AND job>\?\)"],
    "owned_put": [r"SEARCH perdure_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"],
    "prune_owned": [
        r"SEARCH perdure_owned USING PRIMARY KEY \(owner=\? AND job=\?\)",
        r"SEARCH j USING INTEGER PRIMARY KEY \(rowid=\?\)",
    ],
    "subjects_of_run": [r"SEARCH j USING INDEX sqlite_autoindex_perdure_jobs_1 \(id=\?\)"],
}  # fmt: skip

# As above, for statements that sort the few rows that they have found.
SORTED = {
    "overrun": [r"SEARCH j USING INDEX perdure_jobs_held \(worker=\?\)"],
    "driven": [
        r"SEARCH j USING INTEGER PRIMARY KEY \(rowid=\?\)",
        r"SEARCH o USING INDEX perdure_jobs_key \(owner=\? AND pipeline=\? AND key=\?\)",
    ],
    "rivals": [r"SEARCH o USING INDEX perdure_jobs_key \(owner=\? AND pipeline=\? AND key=\?\)"],
    "run_lanes": [
        r"USING (COVERING )?INDEX perdure_runs_live", r"INDEX perdure_lanes_run \(run=\?\)",
    ],
    "runs_live": [
        r"USING INDEX perdure_runs_live \(no>\? AND no<\?\)",
        r"SEARCH c USING PRIMARY KEY \(run=\?\)", r"SEARCH k USING PRIMARY KEY \(run=\?\)",
    ],
    "runs_page": [
        r"SEARCH perdure_runs USING INTEGER PRIMARY KEY \(rowid>\? AND rowid<\?\)",
        r"SEARCH c USING PRIMARY KEY \(run=\?\)", r"SEARCH k USING PRIMARY KEY \(run=\?\)",
    ],
    "run_by_no": [
        r"SEARCH c USING PRIMARY KEY \(run=\?\)", r"SEARCH k USING PRIMARY KEY \(run=\?\)",
    ],
}  # fmt: skip

# Walking these is meant: an argument, a constant, what a statement has found itself, and indexes that hold only a
# few workers, shut gates, or runs and bulk operations that are not over.
SMALL = re.compile(
    r"SCAN (\w+ VIRTUAL TABLE|CONSTANT ROW|\(subquery-\d+\)|r$|\w+ USING (COVERING )?INDEX "
    r"perdure_(workers_|gates_shut|runs_live|bulks_running))"
)

# A table that grows with the work, walked whole or by an index that holds all of it.
GROWING = re.compile(
    r"SCAN (perdure_(jobs|attempts|checkpoints|artifacts|bulk_refusals|redrives|owned)|j|a|c|f)\b(.*)"
)
PARTIAL = re.compile(r"INDEX perdure_jobs_(ready|later|held|failed|suspect)")


def plan(place: Place, name: str) -> list[str]:
    return plan_of(place, getattr(SQL, name))


def plan_of(place: Place, sql: str) -> list[str]:
    named = set(re.findall(r":([a-z_]+)", sql))
    places = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    values: object = (1,) * (max(places, default=0) + len(re.findall(r"\?(?!\d)", sql)))
    if named:
        arrays = {"nos", "lanes", "records", "workers", "names", "ids"}
        values = {name: "[1]" if name in arrays else 1 for name in named}
    return [row[3] for row in place.connection.raw.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def faults(lines: list[str], wanted: list[str]) -> list[str]:
    missing = [one for one in wanted if not any(re.search(one, line) for line in lines)]
    walks = [line for line in lines if line.startswith("SCAN") and not SMALL.match(line)]
    sorts = [line for line in lines if "TEMP B-TREE" in line]
    return [*missing, *walks, *sorts]


def walks(lines: list[str]) -> list[str]:
    found = [(line, GROWING.match(line)) for line in lines]
    return [line for line, table in found if table and not PARTIAL.search(table[3])]


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
            (success, claims[:40]),
            (failure, claims[40:50]),
            (retry, claims[50:70]),
            (crash, claims[70:80]),
        ):
            place.settle(*(end(claim, worker) for claim in some), by=worker)
        place.take(dead, 10)
        place.store.end_worker(dead, Death("silent"))
    if request.param == "analysed":
        place.connection.raw.execute("ANALYZE")
    yield place
    place.close()


@pytest.mark.parametrize("name", SORTED)
def test_a_statement_that_sorts_has_found_only_a_few(place, name):
    lines = plan(place, name)
    found = [one for one in faults(lines, SORTED[name]) if "TEMP B-TREE" not in one]
    assert found == [], lines


@pytest.mark.parametrize("name", REPORT)
def test_a_report_walks_over_the_jobs_of_its_run_and_no_others(place, name):
    lines = plan_of(place, REPORT[name])
    own = [line for line in lines if "perdure_jobs" in line]
    assert own
    assert all(re.search(r"INDEX perdure_jobs_run\w* \(run=\?", line) for line in own), lines
    driven = [line for line in lines if re.match(r"(SCAN|SEARCH) d\b", line)]
    assert driven
    assert all(line.startswith("SEARCH d USING PRIMARY KEY (run=?)") for line in driven), lines
    others = [line for line in lines if re.match(r"(SCAN|SEARCH) j\b", line)]
    assert others
    assert all("USING INTEGER PRIMARY KEY (rowid=?)" in line for line in others), lines
    assert walks(lines) == []


def test_dead_letters_of_a_fingerprint_are_found_by_an_index_that_holds_no_others(place):
    asked: list[list[str]] = []

    def fetch(sql: str, values: Mapping[str, object]) -> list[tuple[int, ...]]:
        asked.append(
            [row[3] for row in place.connection.raw.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        )
        return []

    meant = JobFilter(states=(State.FAILED,), pipeline="p", fingerprint="f")
    assert dead_groups(meant, DIALECT, fetch, limit=5) == []
    [lines] = asked
    assert (
        faults(
            lines, [r"INDEX perdure_jobs_(fingerprint \(fingerprint=\?\)|failed \(pipeline=\?\))"]
        )
        == []
    )


def test_jobs_of_a_key_are_found_by_the_index_of_keys(place):
    asked: list[list[str]] = []

    def fetch(sql: str, values: Mapping[str, object]) -> list[tuple[int, ...]]:
        asked.append(
            [row[3] for row in place.connection.raw.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        )
        return []

    meant = Choice(JobFilter(owner="", key="k", pipeline="p"), DIALECT)
    assert list(meant.rows(fetch, limit=5, before=None)) == []
    [lines] = asked
    wanted = r"SEARCH perdure_jobs USING COVERING INDEX perdure_jobs_key \(owner=\? AND pipeline=\? AND key=\?\)"
    assert [line for line in lines if "perdure_jobs " in line and not re.search(wanted, line)] == []
    assert re.search(wanted, "\n".join(lines))


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


@pytest.mark.parametrize("name", sorted(vars(SQL)))
def test_no_statement_walks_a_table_that_grows_with_the_work(place, name):
    assert walks(plan(place, name)) == []


def test_a_statement_that_counts_all_jobs_would_be_caught(place):
    counting = "SELECT state, count(*) FROM perdure_jobs GROUP BY state"
    assert walks(plan_of(place, counting)) != []


@pytest.mark.parametrize(
    ("index", "name"),
    [
        ("perdure_jobs_ready", "lane_heads"),
        ("perdure_jobs_ready", "busy_lanes"),
        ("perdure_jobs_later", "promote"),
        ("perdure_jobs_later", "next_due"),
        ("perdure_jobs_held", "held"),
        ("perdure_jobs_held", "lost"),
        ("perdure_jobs_suspect", "suspects"),
        ("perdure_jobs_key", "enqueued_before"),
        ("perdure_lanes_queue", "closed_lane_nos"),
        ("perdure_jobs_run", "items"),
        ("perdure_jobs_run_ended", "items_ended"),
        ("perdure_jobs_redrive_ended", "items_ended_redriven"),
        ("perdure_artifacts_expiry", "prune_captures"),
        ("perdure_jobs_key", "rivals"),
        ("perdure_jobs_key", "driven"),
        ("perdure_runs_live", "run_lanes"),
        ("perdure_bulks_running", "bulks_running"),
    ],
)
def test_a_schema_without_the_index_would_be_caught(index, name):
    bare = Place(MEMORY)
    bare.connection.raw.execute(f"DROP INDEX {index}")
    assert faults(plan(bare, name), {**PLANS, **SORTED}[name]) != []
    bare.close()
