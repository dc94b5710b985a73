"""What a read costs in a store of many jobs: the rows that each of its statements touches, by the store's own account.

A read that promises a bound stands in the table, one line each.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from perdure.model.filters import JobFilter
from perdure.model.states import FailedReason, State
from perdure.ports import Reader
from tests.stores.crowd import Crowd, PostgresCrowd, SqliteCrowd

ROWS_MAX = 1_000
START = datetime(1970, 1, 1, tzinfo=UTC)
ANN = JobFilter(owner="ann")
BIG = JobFilter(owner="big")

# What is read: no statement of it touches more than `ROWS_MAX` rows.
READS: dict[str, Callable[[Reader], object]] = {
    "an owner's jobs": lambda reader: reader.jobs(ANN),
    "an owner's jobs, all of them": lambda reader: reader.jobs(ANN, limit=500),
    "an owner's dead letters": lambda reader: reader.jobs(
        JobFilter(owner="ann", states=(State.FAILED,), discarded=False)
    ),
    "an owner's open jobs in a queue": lambda reader: reader.jobs(
        JobFilter(owner="ann", states=(State.QUEUED, State.PROCESSING), queue="q", category="c")
    ),
    "an owner's jobs by change": lambda reader: reader.jobs_changed(ANN, since=START),
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
}
# Here the page is not full before the last of the owner's jobs was looked at, step by step.
SEARCHES: dict[str, Callable[[Reader], object]] = {
    "a large owner's jobs of no pipeline": lambda reader: reader.jobs(
        JobFilter(owner="big", pipeline="nowhere")
    ),
    "a large owner's jobs by change, in no queue": lambda reader: reader.jobs_changed(
        JobFilter(owner="big", queue="nowhere"), since=START
    ),
}

SIZES = [
    pytest.param((store, jobs), id=f"{store}-{jobs}", marks=marks)
    for store in ("sqlite", "postgres")
    for jobs, marks in ((100_000, ()), (1_000_000, (pytest.mark.long,)))
]


@pytest.fixture(scope="module", params=SIZES)
def crowd(request) -> Iterator[Crowd]:
    store, jobs = request.param
    yield from made(request, store, jobs)


@pytest.fixture(params=["sqlite", "postgres"])
def small_crowd(request) -> Iterator[Crowd]:
    """To be spoilt."""
    yield from made(request, request.param, 40_000 if request.param == "sqlite" else 15_000)


def made(request, store: str, jobs: int) -> Iterator[Crowd]:
    if store == "sqlite":
        crowd = SqliteCrowd(jobs)
        yield crowd
        crowd.close()
        return
    postgres, template = (request.getfixturevalue(name) for name in ("postgres", "template"))
    url = postgres.create_database(template=template)
    full = PostgresCrowd(jobs, url)
    yield full
    full.close()
    postgres.drop_database(url)


@pytest.mark.parametrize("name", [*READS, *SEARCHES])
def test_no_statement_touches_more_than_a_thousand_rows(crowd, name):
    touched = crowd.touched({**READS, **SEARCHES}[name])
    print(f"{name}: {len(touched)} statements, at most {max(touched)} rows")
    assert max(touched) <= ROWS_MAX


@pytest.mark.parametrize("name", ["an owner's jobs", "an owner's jobs by change"])
def test_an_owner_of_fifty_jobs_pays_for_fifty(crowd, name):
    """Its entry, the job seen by the filter, the whole job, its lane and its input: five rows for each, all told."""
    found = []
    touched = crowd.touched(lambda reader: found.extend(READS[name](reader)))
    assert len(found) == 50
    assert sum(touched) <= ROWS_MAX


def test_a_list_that_walks_over_all_jobs_would_be_noticed(crowd):
    walk = crowd.touched(lambda reader: reader.jobs(JobFilter(pipeline="nowhere")))
    assert max(walk) > ROWS_MAX


def test_a_schema_without_the_index_of_changes_would_be_noticed(small_crowd):
    read = READS["a large owner's jobs by change"]
    assert max(small_crowd.touched(read)) <= ROWS_MAX
    small_crowd.run("DROP INDEX perdure_owned_changed")
    assert max(small_crowd.touched(read)) > ROWS_MAX
