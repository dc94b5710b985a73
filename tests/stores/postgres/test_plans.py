"""What a turn costs: the hot statements go by the index that was made for them, whatever the tables hold.

A statement is prepared once in a session, often when the tables are still empty, and its generic plan is kept
while they grow. So generic plans are pinned for tables in every condition. A custom plan is made anew for each
call (behind a pooler all are): those are pinned for large tables.
"""

from collections.abc import Sequence

import psycopg
import pytest
from psycopg._queries import MAX_CACHED_STATEMENT_LENGTH

from perdure.model.outcomes import Death
from perdure.stores.job_lists import _OF_KEY
from perdure.stores.postgres.statements import SQL
from perdure.stores.run_report import REPORT
from perdure.stores.statements import as_psycopg_reads
from tests.stores.kit import crash, failure, retry, success
from tests.stores.postgres.kit import Place
from tests.stores.postgres.plans import Node, plan_of, plan_of_text, rows_touched

ID = "00000000-0000-7000-8000-000000000001"
VALUES: dict[str, object] = {
    "now": 1, "worker": 1, "by": 1, "lent": False, "counter": 1, "waiting": "{}", "waiting_tokens": "{}", "borrowed": False,
    "lanes": "{1,2}", "floors": "{0,0}", "isolation": 0,
    "slots": 200, "limit": 200, "size": 2, "death": "{}", "nos": "{1,2,3}", "id": ID, "job": 1,
    "jobs": f'[{{"id":"{ID}","owner":"","pipeline":"p","key":"k"}}]',
    "records": '[{"no":1,"token":1},{"no":2,"token":1}]',
    "tokens": "{1,1}", "elapsed_s": "{1,1}", "said": "{1,1}", "called": None, "results": "[null,null]", "labels": None,
    "words": '["p","{}","c"]',
    "targets": '[{"no":1,"token":1}]', "seen": '[{"no":1,"token":1}]', "claims": '[{"no":1,"token":1}]',
    "ageing_us": 1,
    "revivals": '[{"no":1,"token":1}]',
    "look": 100, "owners": '["ann"]', "gate": "vendor", "run": 1, "after": 0, "since": 1, "bulk": 1,
    "floor": 0, "before": 1000, "pipeline": None, "owner": None, "name": None, "no": 1,
    "ids": [ID], "seen_cursor": None,
}  # fmt: skip

# statement: the indexes by which it comes to each of the tables that grow.
JOBS: dict[str, set[str]] = {
    "claim": {"perdure_jobs_ready", "perdure_jobs_pkey"},
    "promote": {"perdure_jobs_later", "perdure_jobs_pkey"},
    "waiting": {"perdure_jobs_ready", "perdure_jobs_later"},
    "record": {"perdure_jobs_pkey"},
    "record_done": {"perdure_jobs_pkey"},
    "claims": {"perdure_jobs_pkey"},
    "lost": {"perdure_jobs_held"},
    "held": {"perdure_jobs_held"},
    "settle_workers": {"perdure_jobs_held"},
    "suspects": {"perdure_jobs_suspect"},
    "enqueued_before": {"perdure_jobs_id_key", "perdure_jobs_key"},
    "settled_before": {"perdure_jobs_pkey"},
    "jobs_lock": {"perdure_jobs_pkey"},
    "attempts_ended": set(),
    "job_by_id": {"perdure_jobs_id_key"},
    "jobs_ended": {"perdure_jobs_id_key"},
    "revive": {"perdure_jobs_pkey"},
    "discard": {"perdure_jobs_pkey"},
    "probe_promote": {"perdure_jobs_later", "perdure_jobs_pkey"},
    "probe_claim": {"perdure_jobs_ready", "perdure_jobs_pkey"},
    "fair_lines": {"perdure_jobs_fair_ready", "perdure_jobs_fair_waiting"},
    "fair_owners": {"perdure_jobs_pkey"},
    "revive_lock": {"perdure_jobs_pkey", "perdure_jobs_key"},
    "rivals": {"perdure_jobs_pkey", "perdure_jobs_key"},
    "driven": {"perdure_jobs_pkey", "perdure_jobs_key"},
    "in_own_run": {"perdure_jobs_pkey"},
    "items": {"perdure_jobs_run"},
    "items_redriven": {"perdure_jobs_redrive"},
    "items_ended": {"perdure_jobs_run_ended"},
    "items_ended_redriven": {"perdure_jobs_redrive_ended"},
    "capture_by_id": {"perdure_jobs_pkey"},
    "refusals_page": {"perdure_jobs_pkey"},
    "subjects_of_run": {"perdure_jobs_id_key"},
    "captures_of": set(),
    "prune_captures": set(),
    "run_lanes": set(),
    "run_by_id": set(),
    "run_by_no": set(),
    "run_lock": set(),
    "runs_lock": set(),
    "runs_page": set(),
    "runs_live": set(),
    "bulks_list": set(),
    "bulks_running": set(),
    "bulk_lock": set(),
    "lanes_behind": set(),
    "attempts_of": set(),
    "mark_dead": set(),
    "overdue": set(),
}  # fmt: skip
ATTEMPTS = {
    name: {"perdure_attempts_pkey"} for name in ("settled_before", "attempts_of", "attempts_ended")
}
# statement: a table beside those of jobs, and the indexes by which it comes to it.
BESIDE: dict[str, tuple[str, set[str]]] = {
    "capture_by_id": ("perdure_artifacts", {"perdure_artifacts_id_key"}),
    "captures_of": ("perdure_artifacts", {"perdure_artifacts_job"}),
    "prune_captures": (
        "perdure_artifacts", {"perdure_artifacts_expiry", "perdure_artifacts_pkey"},
    ),
    "refusals_page": ("perdure_bulk_refusals", {"perdure_bulk_refusals_pkey"}),
    "run_lanes": ("perdure_runs", {"perdure_runs_live"}),
    "runs_live": ("perdure_runs", {"perdure_runs_live"}),
    "runs_page": ("perdure_runs", {"perdure_runs_pkey"}),
    "run_by_id": ("perdure_runs", {"perdure_runs_id_key"}),
    "run_by_no": ("perdure_runs", {"perdure_runs_pkey"}),
    "run_lock": ("perdure_runs", {"perdure_runs_pkey"}),
    "runs_lock": ("perdure_runs", {"perdure_runs_pkey"}),
    "bulks_list": ("perdure_bulks", {"perdure_bulks_pkey"}),
    "bulks_running": ("perdure_bulks", {"perdure_bulks_running"}),
    "bulk_lock": ("perdure_bulks", {"perdure_bulks_running"}),
    "prune_jobs": ("perdure_owned", {"perdure_owned_pkey"}),
}  # fmt: skip
# Every one of these rows is wanted: their index holds nothing else.
WHOLE = {"perdure_jobs_suspect", "perdure_runs_live"}
GROWING = (
    "perdure_jobs", "perdure_attempts", "perdure_checkpoints", "perdure_artifacts", "perdure_runs",
    "perdure_run_counts", "perdure_run_kinds", "perdure_bulk_refusals", "perdure_redrives",
    "perdure_owned",
)  # fmt: skip

FILL = """
INSERT INTO perdure_jobs (
    id, lane, token, rank_at, order_at, due_at, enqueued_at, updated_at, isolation, priority, ready,
    worker, finished_at, state, failed_reason, key, owner, pipeline, stage, payload, fair,
    run, redrive_run
)
SELECT
    gen_random_uuid(), 1 + n %% 2, 1, n, n, n, n, n, 0, 0,
    CASE WHEN n %% 10 < 3 THEN 1 WHEN n %% 10 = 3 THEN 0 END,
    CASE WHEN n %% 1000 = 4 THEN 1 END,
    CASE WHEN n %% 10 >= 4 AND n %% 1000 <> 4 THEN n END,
    CASE WHEN n %% 10 < 4 THEN 'queued' WHEN n %% 1000 = 4 THEN 'processing'
        WHEN n %% 10 = 5 THEN 'failed' ELSE 'succeeded' END,
    CASE WHEN n %% 10 = 5 THEN 'fatal' END,
    CASE WHEN n %% 7 = 0 THEN 'key-' || n END, 'ann', 'p', 'one', '{"n":1}', n %% 3 = 0,
    CASE WHEN n %% 4 = 0 THEN 1 + n %% 50 END, CASE WHEN n %% 20 = 0 THEN 51 + n %% 50 END
FROM generate_series(1, %(jobs)s) AS n
"""
FILL_ATTEMPTS = """
INSERT INTO perdure_attempts (
    job, token, claimed_at, settled_at, elapsed_s, number, life, status, state, stage, message, policy,
    config_hash, why
)
SELECT n, 1, 1, 1, 0.5, 1, 1, 'success', 'succeeded', 'one', '', 'p/1', '', '{}'
FROM generate_series(1, %(jobs)s) AS n
"""
FILL_CHECKPOINTS = """
INSERT INTO perdure_checkpoints (job, stage, token, saved_at, value)
SELECT n, 'one', 1, 1, '{}' FROM generate_series(1, %(jobs)s) AS n
"""
FILL_RUNS = """
INSERT INTO perdure_runs (id, owner, pipeline, name, status, settings, created_at, changed_at, ended_at)
SELECT gen_random_uuid(), 'ann', 'p', 'run-' || n, 'running', '{}', 1, 1, CASE WHEN n > 20 THEN 1 END
FROM generate_series(1, 5000) AS n
"""
FILL_ARTIFACTS = """
INSERT INTO perdure_artifacts (
    id, job, token, stage, kind, media_type, content, bytes_whole, saved_at, expires_at
)
SELECT gen_random_uuid(), n, 1, 'one', 'raw', 'text/plain', 'x', 1, n, n
FROM generate_series(1, %(jobs)s / 10) AS n
"""
FILL_REFUSALS = """
INSERT INTO perdure_bulk_refusals (bulk, job, why)
SELECT 1 + n %% 5, n, 'x' FROM generate_series(1, %(jobs)s / 10) AS n
"""
FILL_REDRIVES = """
INSERT INTO perdure_redrives (run, job, life)
SELECT redrive_run, no, life FROM perdure_jobs WHERE redrive_run IS NOT NULL
"""
FILL_OWNED = """
INSERT INTO perdure_owned (owner, job, changed_at) SELECT owner, no, updated_at FROM perdure_jobs
"""
MANY = 100_000


def fill(place: Place, condition: str) -> None:
    if condition == "empty":
        return
    if condition.startswith("many"):
        place.rows(
            "WITH x AS (INSERT INTO perdure_workers (boot, name, role, ttl_us, started_at, "
            "beat_at, steady_at) VALUES ('b', 'n', 'main', 1, 1, 1, 1)) SELECT 1"
        )
        with psycopg.connect(place.url, autocommit=True) as cx:
            cx.execute(FILL, {"jobs": MANY})
            cx.execute(FILL_ATTEMPTS, {"jobs": MANY})
            cx.execute(FILL_CHECKPOINTS, {"jobs": MANY})
            cx.execute(FILL_RUNS)
            cx.execute(FILL_ARTIFACTS, {"jobs": MANY})
            cx.execute(FILL_REFUSALS, {"jobs": MANY})
            cx.execute(FILL_REDRIVES)
            cx.execute(FILL_OWNED)
    else:
        worker, dead = place.hire(), place.hire()
        place.put_many(200, owner="ann")
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
    if condition.endswith("analysed"):
        with psycopg.connect(place.url, autocommit=True) as cx:
            cx.execute("ANALYZE")


CONDITIONS = ["empty", "few", "few analysed", "many", "many analysed"]


@pytest.fixture(scope="module", params=CONDITIONS)
def filled(request, postgres):
    """A store in some condition, and the kinds of plan that matter in it."""
    condition = request.param
    modes = ("generic", "custom") if condition.startswith("many") else ("generic",)
    place = Place(postgres.create_database())
    with psycopg.connect(
        place.url, autocommit=True
    ) as cx:  # no autovacuum analyses behind our back
        cx.execute("ALTER TABLE perdure_jobs SET (autovacuum_enabled = off)")
        cx.execute("ALTER TABLE perdure_attempts SET (autovacuum_enabled = off)")
    fill(place, condition)
    yield place, modes
    place.close()
    postgres.drop_database(place.url)


def used(plan: Node, table: str) -> set[str]:
    """The indexes by which a plan comes to a table."""
    return {one.index for one in plan.walk() if one.index and one.index.startswith(f"{table}_")}


def walks(plan: Node) -> list[str]:
    """Steps that go over a whole table or index of those that grow."""
    return [
        f"{one.type} {one.table or ''} {one.index or ''}"
        for one in plan.walk()
        if (one.type == "Seq Scan" and one.table in GROWING)
        or (
            one.index is not None
            and one.index.startswith(GROWING)
            and not one.condition
            and one.index not in WHOLE
        )
    ]


def planned(place: Place, modes: Sequence[str], name: str) -> list[Node]:
    with place.connection.autocommit() as cx:
        return [plan_of(cx, name, VALUES, mode=mode) for mode in modes]


@pytest.mark.parametrize("name", JOBS)
def test_a_hot_statement_goes_by_the_index_that_was_made_for_it(filled, name):
    for plan in planned(*filled, name):
        assert walks(plan) == [], f"\n{plan}"
        assert used(plan, "perdure_jobs") == JOBS[name], f"\n{plan}"
        assert used(plan, "perdure_attempts") == ATTEMPTS.get(name, set()), f"\n{plan}"


@pytest.mark.parametrize("name", BESIDE)
def test_what_stands_beside_jobs_is_found_by_its_index(filled, name):
    table, indexes = BESIDE[name]
    for plan in planned(*filled, name):
        assert walks(plan) == [], f"\n{plan}"
        assert used(plan, table) == indexes, f"\n{plan}"


@pytest.mark.parametrize(
    "name", ["claim", "promote", "waiting", "probe_claim", "probe_promote", "fair_lines"]
)
def test_the_heads_of_a_lane_are_read_in_their_order_and_no_further_than_needed(filled, name):
    """Under a limit there is the index, perhaps with locks on its rows, and no sort: it would read all."""
    for plan in planned(*filled, name):
        by_number = {"perdure_jobs_pkey", None}
        found = [
            one for one in heads(plan) if not {inner.index for inner in one.walk()} <= by_number
        ]
        assert found, f"\n{plan}"
        for head in found:
            assert {one.type for one in head.walk()} <= {
                "Limit",
                "LockRows",
                "Index Scan",
                "Index Only Scan",
            }, f"\n{plan}"


def heads(plan: Node) -> list[Node]:
    """The innermost limits over jobs."""
    limits = [
        one
        for one in plan.walk()
        if one.type == "Limit" and any(inner.table == "perdure_jobs" for inner in one.walk())
    ]
    return [one for one in limits if not any(inner in limits for inner in list(one.walk())[1:])]


@pytest.mark.parametrize("name", REPORT)
def test_a_report_looks_at_no_jobs_but_those_of_its_run(filled, name):
    place, modes = filled
    text = REPORT[name].replace(":run", "%(run)s::bigint")
    with place.connection.autocommit() as cx:
        for mode in modes:
            plan = plan_of_text(cx, text, VALUES, mode=mode)
            assert walks(plan) == [], f"\n{plan}"
            assert any("_run" in index for index in used(plan, "perdure_jobs")), f"\n{plan}"
            assert "perdure_redrives_pkey" in used(plan, "perdure_redrives"), f"\n{plan}"
            assert used(plan, "perdure_attempts") <= {"perdure_attempts_pkey"}, f"\n{plan}"


def test_jobs_of_a_key_are_found_by_pipeline_and_key(filled):
    place, modes = filled
    values = {**VALUES, "owner": "", "pipeline": "p", "key": "k"}
    with place.connection.autocommit() as cx:
        for mode in modes:
            plan = plan_of_text(cx, as_psycopg_reads(_OF_KEY), values, mode=mode)
            (found,) = [one for one in plan.walk() if one.table == "perdure_jobs"]
            assert found.index == "perdure_jobs_key", f"\n{plan}"
            assert all(one in found.condition for one in ("owner =", "pipeline =", "key =")), (
                f"\n{plan}"
            )


@pytest.mark.parametrize("name", ["items", "items_redriven", "items_ended", "items_ended_redriven"])
def test_a_page_of_a_runs_items_is_read_in_its_order_and_no_further(filled, name):
    """As it is prepared; a plan for one call sorts where it takes a run that was never analysed for small."""
    (plan,) = planned(filled[0], ["generic"], name)
    assert [one.type for one in plan.walk()] == ["Limit", "Index Scan"], f"\n{plan}"


@pytest.mark.parametrize("name", ["record", "record_done", "revive", "discard"])
def test_rows_are_locked_in_the_order_in_which_the_batch_names_them(filled, name):
    """The batch is on the outside of a nested loop (or is sorted first), so two batches never cross."""
    for plan in planned(*filled, name):
        assert unordered(plan) == [], f"\n{plan}"


@pytest.mark.parametrize("name", ["record_done", "promote", "claim", "waiting", "enqueue", "begin"])
def test_the_driver_remembers_how_it_reads_a_hot_statement(name):
    assert len(getattr(SQL, name)) <= MAX_CACHED_STATEMENT_LENGTH


def test_a_claim_looks_at_the_heads_once_where_only_one_lane_has_work(postgres):
    place = Place(postgres.create_database())
    place.put_many(60)
    lanes = [place.lanes["one"], place.lanes["two"]]
    asked = VALUES | {"worker": place.hire(), "slots": 50, "lanes": lanes}
    with place.connection.autocommit() as cx:
        touched = rows_touched(cx, SQL.claim, asked, mode="generic")
    place.close()
    postgres.drop_database(place.url)
    first, worker = 1, 1
    heads, numbers, rows, updated = 50, 50, 50, 50
    assert touched <= first + worker + heads + numbers + rows + updated


def unordered(plan: Node) -> list[str]:
    """Joins of a batch with the jobs that do not take the rows in the batch's order."""
    joins = [one for one in plan.walk() if "Join" in one.type or one.type == "Nested Loop"]
    near = [one for one in joins if any(inner.index == "perdure_jobs_pkey" for inner in one.inner)]
    wrong = [one.type for one in near if one.type != "Nested Loop"]
    wrong += [
        "the jobs are outside"
        for one in near
        if one.type == "Nested Loop" and one.inner[1].index != "perdure_jobs_pkey"
    ]
    return wrong if near else ["no join with the jobs by number"]


# -- broken twins --------------------------------------------------------------------------------------

TWINS = [
    ("perdure_jobs_ready", "claim"),
    ("perdure_jobs_ready", "waiting"),
    ("perdure_jobs_later", "promote"),
    ("perdure_jobs_later", "waiting"),
    ("perdure_jobs_ready", "probe_claim"),
    ("perdure_jobs_later", "probe_promote"),
    ("perdure_jobs_fair_ready", "fair_lines"),
    ("perdure_jobs_fair_waiting", "fair_lines"),
    ("perdure_jobs_held", "held"),
    ("perdure_jobs_held", "lost"),
    ("perdure_jobs_held", "settle_workers"),
    ("perdure_jobs_suspect", "suspects"),
    ("perdure_jobs_key", "enqueued_before"),
    ("perdure_jobs_key", "revive_lock"),
    ("perdure_jobs_key", "rivals"),
    ("perdure_jobs_key", "driven"),
    ("perdure_jobs_run", "items"),
    ("perdure_jobs_redrive", "items_redriven"),
    ("perdure_jobs_run_ended", "items_ended"),
    ("perdure_jobs_redrive_ended", "items_ended_redriven"),
]


@pytest.mark.parametrize(("index", "name"), TWINS)
def test_a_schema_without_the_index_would_be_noticed(place, index, name):
    with psycopg.connect(place.url, autocommit=True) as cx:
        cx.execute(f"DROP INDEX {index}")
    (plan,) = planned(place, ["generic"], name)
    assert walks(plan) or used(plan, "perdure_jobs") != JOBS[name]


def test_a_session_that_may_hash_would_be_noticed(place):
    """Why the settings of a connection say otherwise: over a small table a hash join is cheaper."""
    place.put_many(50)
    with psycopg.connect(place.url, autocommit=True) as cx:
        cx.execute("ANALYZE")
        plan = plan_of(cx, "record", VALUES, mode="generic")
    assert walks(plan)
    assert unordered(plan) != []
