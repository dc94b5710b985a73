"""One schema on both stores: the same tables and columns, and what a column allows is what the model says."""

import re

import pytest

from perdure.model.gates import GateState
from perdure.model.jobs import Receipt
from perdure.model.operations import BulkPhase, BulkStatus, BulkVerb, LaneScope
from perdure.model.runs import RunStatus
from perdure.model.states import TERMINAL, AttemptStatus, FailedReason, State
from perdure.model.workers import Role
from tests.stores import kit as sqlite_kit
from tests.stores.kit import MEMORY, success
from tests.stores.postgres.kit import Place, alter


def on_sqlite() -> dict[str, set[str]]:
    place = sqlite_kit.Place(MEMORY)
    names = place.rows(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name LIKE 'perdure%'"
    )
    found = {
        name: {row[1] for row in place.rows(f"PRAGMA table_info({name})")} for (name,) in names
    }
    place.close()
    return found


def on_postgres(place: Place) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for table, column in place.rows(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = 'public' AND table_name LIKE 'perdure%%'"
    ):
        found.setdefault(table, set()).add(column)
    return found


def differing(one: dict[str, set[str]], two: dict[str, set[str]]) -> dict[str, set[str]]:
    """Tables and columns that only one of them has."""
    tables = {name: one.get(name, set()) ^ two.get(name, set()) for name in one.keys() | two.keys()}
    return {name: columns for name, columns in tables.items() if columns}


# SQLite has one writer at a time, which takes a success off its owner's row at once.
ONLY_ON_POSTGRES = {"perdure_owners_ended": {"owners"}}


def test_both_stores_have_the_same_tables_and_columns(place):
    assert differing(on_sqlite(), on_postgres(place)) == ONLY_ON_POSTGRES


def test_a_column_that_only_one_store_has_would_be_noticed(place):
    alter(place.url, "ALTER TABLE perdure_jobs ADD COLUMN colour text")
    alter(place.url, "CREATE TABLE perdure_more (n int)")
    assert differing(on_sqlite(), on_postgres(place)) == {
        **ONLY_ON_POSTGRES,
        "perdure_jobs": {"colour"},
        "perdure_more": {"n"},
    }


# Every index of the wide row, on both stores. Of those without a condition a claim and a success change no column: in
# PostgreSQL they would have to write them all anew. No column is in any of them that only lists by owner or by change ask for.
INDEXES_OF_JOBS = {
    "perdure_jobs_ready": "lane, isolation, rank_at, no",
    "perdure_jobs_later": "lane, isolation, due_at",
    "perdure_jobs_suspect": "isolation, lane",
    "perdure_jobs_held": "worker",
    "perdure_jobs_failed": "pipeline, stage, failed_reason, error_kind",
    "perdure_jobs_deadline": "deadline_at",
    "perdure_jobs_run": "run, no",
    "perdure_jobs_redrive": "redrive_run, no",
    "perdure_jobs_fair_ready": "lane, rank_at",
    "perdure_jobs_fair_waiting": "owner, lane, rank_at",
    "perdure_jobs_key": "owner, pipeline, key, coalesce(run, 0)",
    "perdure_jobs_run_ended": "run, finished_at, no",
    "perdure_jobs_redrive_ended": "redrive_run, finished_at, no",
    "perdure_jobs_fingerprint": "fingerprint, no",
}  # all of them have a condition
WHOLE = {"no", "id"}  # the columns of those that every row is in


def indexes_of_jobs(texts: list[str]) -> tuple[dict[str, str], set[str]]:
    """Of the indexes of jobs, the columns of those with a condition, by name, and of the others."""
    found: dict[str, str] = {}
    whole: set[str] = set()
    for text in texts:
        short = re.sub(r"\s+", " ", text.lower()).replace("(0)::bigint", "0")
        name, columns, condition = re.fullmatch(
            r"create (?:unique )?index (\w+) on (?:public\.)?perdure_jobs (?:using btree )?\((.*?)\)( where .*)?",
            short,
        ).groups()
        if condition is None:
            whole.add(columns)
        else:
            found[name] = columns
    return found, whole


def indexes_on_postgres(place: Place) -> tuple[dict[str, str], set[str]]:
    rows = place.rows("SELECT indexdef FROM pg_indexes WHERE tablename = 'perdure_jobs'")
    return indexes_of_jobs([text for (text,) in rows])


def indexes_on_sqlite(*more: str) -> tuple[dict[str, str], set[str]]:
    store = sqlite_kit.Place(MEMORY)
    store.damage(*more)
    rows = store.rows(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'perdure_jobs'"
    )
    made = indexes_of_jobs([text for _, text in rows if text is not None])
    own = {
        ", ".join(row[2] for row in store.rows(f"PRAGMA index_info({name})"))
        for name, text in rows
        if text is None
    }
    store.close()
    return made[0], made[1] | own


def test_the_row_of_a_job_is_in_these_indexes_and_no_others(place):
    """Each costs every job something; one over a column that a claim or a success changes would be rewritten by each."""
    assert indexes_on_postgres(place) == (INDEXES_OF_JOBS, WHOLE)
    assert indexes_on_sqlite() == (
        INDEXES_OF_JOBS,
        WHOLE - {"no"},
    )  # the table itself goes by number


def test_one_more_index_of_jobs_would_be_noticed(place):
    more = "CREATE INDEX perdure_jobs_updated ON perdure_jobs (owner, updated_at)"
    alter(place.url, more)
    for _, whole in (indexes_on_postgres(place), indexes_on_sqlite(more)):
        assert "owner, updated_at" in whole


ALLOWED = [
    ("perdure_jobs", "state", State),
    ("perdure_jobs", "failed_reason", FailedReason),
    ("perdure_attempts", "state", State),
    ("perdure_attempts", "status", AttemptStatus),
    ("perdure_workers", "role", Role),
    ("perdure_runs", "status", RunStatus),
    ("perdure_gates", "state", GateState),
    ("perdure_pauses", "scope", LaneScope),
    ("perdure_bulks", "verb", BulkVerb),
    ("perdure_bulks", "status", BulkStatus),
    ("perdure_bulks", "phase", BulkPhase),
]


def checks_on_postgres(place: Place, table: str) -> list[str]:
    rows = place.rows(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = %s::regclass AND contype = 'c'",
        table,
    )
    return [text for (text,) in rows]


def checks_on_sqlite(table: str) -> list[str]:
    place = sqlite_kit.Place(MEMORY)
    ((text,),) = place.rows("SELECT sql FROM sqlite_master WHERE name = ?", table)
    place.close()
    nested = r"(?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*"
    return re.findall(rf"CHECK \({nested}\)", text)


def allowed(checks: list[str], column: str) -> list[set[str]]:
    """The values that checks on this column alone let pass."""
    return [
        set(re.findall(r"'([^']*)'", text))
        for text in checks
        if set(re.findall(r"\b[a-z_]+\b", re.sub(r"'[^']*'|::text\b", "", text))) == {column}
    ]


@pytest.mark.parametrize(("table", "column", "members"), ALLOWED)
def test_both_schemas_allow_exactly_the_members(place, table, column, members):
    wanted = [{member.value for member in members}]
    assert allowed(checks_on_postgres(place, table), column) == wanted
    assert allowed(checks_on_sqlite(table), column) == wanted


def test_both_schemas_call_the_same_states_finished_as_the_table(place):
    for checks in (checks_on_postgres(place, "perdure_jobs"), checks_on_sqlite("perdure_jobs")):
        (finished,) = [text for text in checks if "finished_at" in text]
        assert set(re.findall(r"'([^']*)'", finished)) == {state.value for state in TERMINAL}


def test_a_check_that_forgets_a_state_would_be_noticed(place):
    ((name,),) = place.rows(
        "SELECT conname FROM pg_constraint WHERE conrelid = 'perdure_gates'::regclass AND contype = 'c'"
    )
    alter(place.url, f"ALTER TABLE perdure_gates DROP CONSTRAINT {name}")
    alter(place.url, "ALTER TABLE perdure_gates ADD CHECK (state IN ('flowing', 'held'))")
    assert allowed(checks_on_postgres(place, "perdure_gates"), "state") == [{"flowing", "held"}]


def test_numbers_are_wide_enough_for_a_long_life(place):
    """Whatever is counted up has 64 bits: a job number beyond 2^31 is enqueued, claimed and settled."""
    alter(place.url, "ALTER TABLE perdure_jobs ALTER COLUMN no RESTART WITH 4294967296")
    alter(place.url, "ALTER TABLE perdure_lanes ALTER COLUMN no RESTART WITH 4294967296")
    alter(place.url, "ALTER TABLE perdure_workers ALTER COLUMN no RESTART WITH 4294967296")
    worker, lanes = place.hire(), place.lanes_of("wide")
    made = place.put(pipeline="wide", lane=lanes["one"])
    alter(place.url, "UPDATE perdure_jobs SET token = 4294967296")
    assert min(made.no, worker, *lanes.values()) >= 4294967296
    place.lanes = lanes
    (claim,) = place.take(worker)
    assert claim.token == 4294967297
    (receipt,) = place.settle(success(claim, worker), by=worker)
    assert isinstance(receipt, Receipt)
    assert place.see(made.id).state is State.SUCCEEDED
    place.clean()


def test_counters_of_rows_are_the_only_narrow_numbers(place):
    narrow = place.rows(
        "SELECT table_name || '.' || column_name FROM information_schema.columns WHERE "
        "table_name LIKE 'perdure%%' AND data_type IN ('integer', 'smallint') ORDER BY 1"
    )
    counters = {
        "priority",
        "life",
        "starts",
        "failures",
        "waits",
        "crashes",
        "snoozes",
        "probes",
        "releases",
        "retries_manual",
        "number",
        "isolation",
        "ready",
        "attempt",
    }
    assert {name.rpartition(".")[2] for (name,) in narrow} <= counters
