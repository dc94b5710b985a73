"""What a read costs in a store of many jobs: the rows that each of its statements touches, by the store's own account.

A read that promises a bound stands in the table, one line each.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.model.filters import DEAD_LETTERS, JobFilter
from perdure.model.states import FailedReason, State
from perdure.ports import Reader
from tests.stores.crowd import LANES, Crowd, PostgresCrowd, SqliteCrowd
from tests.surfaces.http.behind import ASKED, ask

ROWS_MAX = 1_000
START = datetime(1970, 1, 1, tzinfo=UTC)
ANN = JobFilter(owner="ann")
BIG = JobFilter(owner="big")

# What is read: no statement of it touches more than `ROWS_MAX` rows.
READS: dict[str, Callable[[Reader], Any]] = {
    "an owner's jobs": lambda reader: reader.jobs(ANN),
    "an owner's jobs, all of them": lambda reader: reader.jobs(ANN, limit=500),
    "an owner's dead letters": lambda reader: reader.jobs(
        JobFilter(owner="ann", states=(State.FAILED,), discarded=False)
    ),
    "an owner's open jobs in a queue": lambda reader: reader.jobs(
        JobFilter(owner="ann", states=(State.QUEUED, State.PROCESSING), queue="q", category="c")
    ),
    "an owner's jobs by change": lambda reader: reader.jobs_changed(ANN, since=START),
    "everybody's jobs": lambda reader: reader.jobs(),
    "everybody's dead letters": lambda reader: reader.jobs(DEAD_LETTERS),
    "everybody's dead letters, further down": lambda reader: reader.jobs(
        DEAD_LETTERS, before=9_999
    ),
    "everybody's open jobs": lambda reader: reader.jobs(
        JobFilter(states=(State.QUEUED, State.PROCESSING))
    ),
    "nobody's jobs": lambda reader: reader.jobs(JobFilter(owner="nobody")),
    "a large owner's jobs": lambda reader: reader.jobs(BIG, limit=500),
    "a large owner's jobs, further down": lambda reader: reader.jobs(BIG, limit=500, before=9_999),
    "a large owner's dead letters of a reason": lambda reader: reader.jobs(
        JobFilter(owner="big", reason=FailedReason.FATAL, category="c"), limit=500
    ),
    "a large owner's jobs in somebody's run": lambda reader: reader.jobs(
        JobFilter(owner="big", run=7)
    ),
    "a large owner's jobs by change": lambda reader: reader.jobs_changed(
        BIG, since=START, limit=500
    ),
    "a large owner's jobs by change, of a text": lambda reader: reader.jobs_changed(
        JobFilter(owner="big", text="broken"), since=START, limit=500
    ),
    "how many jobs a large owner has": lambda reader: reader.preview(BIG),
    "since when queues wait": lambda reader: reader.first_due(),
    "which lanes are held": lambda reader: reader.held_lanes(range(1, 500)),
    "how many jobs stand where": lambda reader: reader.depths(),
    "what has happened": lambda reader: reader.flows(),
    "what has happened, minute by minute": lambda reader: reader.flows(minutes=True),
    "what jobs have died of": lambda reader: reader.deaths(),
    "what a scrape of metrics reads": lambda reader: reader.figures(),
    "all groups of dead letters": lambda reader: reader.dead_groups(limit=500),
    "an owner's groups of dead letters": lambda reader: reader.dead_groups(
        JobFilter(owner="ann", states=(State.FAILED,), discarded=False)
    ),
    "an owner's number of open jobs": lambda reader: reader.open_jobs("big"),
    "what changed, from now on": lambda reader: reader.changes(),
    # Here the page is not full before the last of the owner's jobs was looked at, step by step.
    "a large owner's jobs of no pipeline": lambda reader: reader.jobs(
        JobFilter(owner="big", pipeline="nowhere")
    ),
    "a large owner's jobs of no label": lambda reader: reader.jobs(
        JobFilter(owner="big", label="none")
    ),
    "a large owner's jobs by change, in no queue": lambda reader: reader.jobs_changed(
        JobFilter(owner="big", queue="nowhere"), since=START
    ),
}

FEED = """
INSERT INTO perdure_changes (changed_at, what, size, entries)
WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 3000)
SELECT n, 'job_accepted', 1, '[[1],"a","","p","s","queued",null,0,null]' FROM s
"""


def sizes(sqlite: int, *, postgres: int) -> list[Any]:
    return [
        pytest.param(store, jobs, id=f"{store}-{jobs}", marks=marks)
        for store, usual in (("sqlite", sqlite), ("postgres", postgres))
        for jobs, marks in ((usual, ()), (1_000_000, (pytest.mark.long,)))
    ]


# As many as the broken twin below needs to be noticed; PostgreSQL counts every row, SQLite what several of them take.
SIZES = sizes(40_000, postgres=20_000)


@pytest.fixture
def made(request) -> Iterator[Callable[[str, int], Crowd]]:
    """Makes crowds."""
    with ExitStack() as stack:

        def make(store: str, jobs: int, lanes: int = LANES) -> Crowd:
            if store == "sqlite":
                return stack.enter_context(closing(SqliteCrowd(jobs, lanes)))
            postgres = request.getfixturevalue("postgres")
            url = postgres.create_database(template=request.getfixturevalue("template"))
            stack.callback(postgres.drop_database, url)
            return stack.enter_context(closing(PostgresCrowd(jobs, url, lanes)))

        yield make


@pytest.mark.parametrize(("store", "jobs"), SIZES)
def test_no_statement_of_a_bounded_read_touches_more_than_a_thousand_rows(made, store, jobs):
    """And an owner of fifty jobs pays for fifty: for each its entry, the job, its lane and its input, all told."""
    crowd = made(store, jobs)
    touched = {name: crowd.touched(read) for name, read in (READS | ASKED).items()}
    for name, counts in touched.items():
        print(f"{name}: {len(counts)} statements, at most {max(counts)} rows")
    assert {name: max(counts) for name, counts in touched.items() if max(counts) > ROWS_MAX} == {}
    for name in ("an owner's jobs", "an owner's jobs by change"):
        assert len(READS[name](crowd.reader)) == 50
        assert sum(touched[name]) <= ROWS_MAX


GATES = (
    """
    INSERT INTO perdure_gates (name, parent, state, generation, reason, changed_by, changed_at, control)
    VALUES ('u', 'k', 'flowing', 1, '', 'ann', 1, '{}'), ('k', NULL, 'held', 1, '', 'ann', 1, '{}')
    """,
    "UPDATE perdure_lanes SET upstream = 'u'",
    "ANALYZE",
)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_to_find_a_large_owners_held_jobs_touches_few_rows_with_each_statement(made, store):
    crowd, found = made(store, 10_000), []
    for one in GATES:
        crowd.run(one)
    held = JobFilter(owner="big", states=(State.QUEUED,), held=True)
    for limit in (50, 500):
        counts = crowd.touched(
            lambda reader, limit=limit: found.append(reader.jobs(held, limit=limit))
        )
        print(f"{limit}: {counts}")
        assert max(counts) <= ROWS_MAX
    assert len(found[0]) == 50
    assert 250 < len(found[1]) < 500


# As many groups of dead letters in every crowd, and a paused queue: a scrape looks at these as well.
SAME_NAMES = (
    "DELETE FROM perdure_deaths",
    """
    INSERT INTO perdure_deaths (owner, fingerprint, pipeline, stage, reason, kind, code, letters, ever, first_at, last_at)
    SELECT '', 'f' || lane, 'p', 'one', 'fatal', 'internal', '', 1, 1, 1, 1 FROM perdure_depths
    """,
    "INSERT INTO perdure_pauses (scope, name, reason, paused_by, paused_at) VALUES ('queue', 'q', '', 'ann', 1)",
    "ANALYZE",
)


@pytest.mark.parametrize(("store", "jobs"), sizes(10_000, postgres=10_000))
def test_a_scrape_runs_the_same_statements_and_touches_no_more_rows_than_at_a_thousand_jobs(
    made, store, jobs
):
    """In a store of ten lanes, each of which has jobs of every state."""
    counts, texts, seen = [], [], []
    for size in (1_000, jobs):
        crowd = made(store, size, lanes=10)
        for one in SAME_NAMES:
            crowd.run(one)
        counts.append(crowd.touched(lambda reader: seen.append(reader.figures())))
        texts.append([text for text, _ in crowd.plans(lambda reader: reader.figures())])
    print(f"rows touched at 1,000 and at {jobs:,} jobs: {counts}")
    assert texts[0] == texts[1]
    assert len(counts[0]) == len(counts[1])
    assert sum(counts[1]) <= sum(counts[0])
    few, many = seen
    assert sum(one.ready for one in many.depths["paused"]) > 5 * few.depths["paused"][0].ready
    assert few.heads[0].queue == many.heads[0].queue == "q"


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_scrape_that_counted_jobs_would_be_noticed(made, store):
    """The broken twin: one index less, and the head of each line is found by walking along it."""
    counts = []
    for size in (1_000, 5_000):
        crowd = made(store, size, lanes=10)
        crowd.run("DROP INDEX perdure_jobs_ready")
        counts.append(sum(crowd.touched(lambda reader: reader.figures())))
    assert counts[1] > 2 * counts[0]


@pytest.mark.parametrize("endpoint", ["show_job", "show_result", "list_captures"])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_an_id_of_anothers_and_an_unknown_one_take_the_same_statement_and_plan(
    made, store, endpoint
):
    """And one's own takes it first. So neither an answer nor the time to it tells that a job is there."""
    crowd = made(store, 1_000)
    own, others = (
        crowd.reader.jobs(JobFilter(owner=owner, states=(State.SUCCEEDED,)), limit=1)[0].id
        for owner in ("ann", "big")
    )
    unknown = "00000000-0000-7000-8000-000000000009"
    known, strange, never = (
        [
            (text.replace(id, "?"), plan.replace(id, "?"))
            for text, plan in crowd.plans(ask(endpoint, "ann", id))
        ]
        for id in (own, others, unknown)
    )
    assert strange == never
    assert len(never) == 1
    assert known[:1] == never


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_page_of_the_feed_touches_no_more_lines_however_many_are_left(made, store):
    """On PostgreSQL the first page looks through the lines of its range once, to know its end, and reads its own."""
    crowd = made(store, 1_000)
    begin = crowd.reader.changes().cursor
    crowd.run(FEED)
    crowd.run("ANALYZE perdure_changes")
    pages, counts = [], []

    def read_first(reader: Reader) -> None:
        pages.append(reader.changes(begin, limit=400))

    def read_on(reader: Reader) -> None:
        pages.append(reader.changes(pages[-1].cursor, limit=400))

    first = max(crowd.touched(read_first))
    assert first <= (ROWS_MAX if store == "sqlite" else 3_000 + 402), first
    while pages[-1].more:
        counts += crowd.touched(read_on)
    assert sum(len(page.entries) for page in pages) == 3_000
    assert max(counts) <= ROWS_MAX, counts


@pytest.mark.parametrize(("store", "jobs"), [("sqlite", 40_000), ("postgres", 15_000)])
def test_a_walk_and_a_schema_without_the_index_of_changes_would_be_noticed(made, store, jobs):
    crowd = made(store, jobs)
    walk = crowd.touched(lambda reader: reader.jobs(JobFilter(pipeline="nowhere")))
    assert max(walk) > ROWS_MAX
    by_change = READS["a large owner's jobs by change"]
    assert max(crowd.touched(by_change)) <= ROWS_MAX
    crowd.run("DROP INDEX perdure_owned_changed")
    assert max(crowd.touched(by_change)) > ROWS_MAX
