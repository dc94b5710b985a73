"""The reads: pages, books, groups; and an audit that names every damage and nothing else."""

import pytest

from perdure.model.jobs import Lane
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.outcomes import Death
from perdure.model.views import Books
from perdure.stores.sqlite.reader import AUDIT
from tests.stores.kit import MEMORY, Place, advance, cancelled, crash, failure, retry, success


@pytest.fixture
def busy():
    """One job in each situation: 1 and 2 done, 3 failed, 4 cancelled, 5 retrying, 6 running, 7 new.

    Job 1 went through both stages, job 2 through one; job 8 waits as a suspect.
    """
    place = Place(MEMORY)
    worker = place.hire()
    place.put_many(8, key=None)
    one, two, three, four, five, six, seven, eight = place.take(worker, 8)
    place.settle(
        advance(one, worker, place.lanes["two"]), success(two, worker), failure(three, worker),
        cancelled(four, worker), retry(five, worker), retry(seven, worker, delay_s=0.0),
        crash(eight, worker), by=worker,
    )  # fmt: skip
    (one,) = [claim for claim in place.take(worker, 1) if claim.id == one.id]
    place.settle(success(one, worker), by=worker)
    place.clock.push(1)
    place.busy = worker
    place.six = six
    yield place
    place.close()


def test_books_are_kept_by_state_and_by_pipeline(busy):
    assert busy.reader.books() == Books(
        accepted=8, queued=3, processing=1, succeeded=2, failed=1, cancelled=1, pruned=0
    )
    assert busy.reader.books(pipeline="p") == busy.reader.books()
    assert busy.reader.books(pipeline="other") == Books(0, 0, 0, 0, 0, 0, 0)
    lane = busy.store.lanes([Lane("q", "c", "other", "one")]).popitem()[1]
    busy.put(pipeline="other", lane=lane)
    assert busy.reader.books(pipeline="other").queued == 1
    assert busy.reader.books().accepted == 9


def test_jobs_come_newest_first_in_pages(busy):
    assert [job.no for job in busy.reader.jobs()] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert [job.no for job in busy.reader.jobs(limit=3)] == [8, 7, 6]
    assert [job.no for job in busy.reader.jobs(limit=3, before=6)] == [5, 4, 3]
    assert busy.reader.jobs(before=1) == []


def test_jobs_are_filtered_by_state_and_pipeline(busy):
    assert [job.no for job in busy.reader.jobs(states=["succeeded", "failed"])] == [3, 2, 1]
    assert [job.no for job in busy.reader.jobs(states=["processing"])] == [6]
    assert busy.reader.jobs(pipeline="other") == []
    assert len(busy.reader.jobs(pipeline="p", states=["queued"])) == 3


def test_a_page_is_bounded_whatever_is_asked_for():
    place = Place(MEMORY)
    place.put_many(PAGE_ROWS_MAX + 1)
    assert len(place.reader.jobs(limit=10**6)) == PAGE_ROWS_MAX
    place.close()


def test_failures_are_grouped_most_frequent_first(busy):
    for _ in range(2):
        busy.put()
    claims = [claim for claim in busy.take(busy.busy, 9) if claim.counters.starts == 1]
    from dataclasses import replace

    for claim in claims:
        record = failure(claim, busy.busy)
        busy.settle(replace(record, error_kind="too_large"), by=busy.busy)
    assert [(group.kind, group.count) for group in busy.reader.failures()] == [
        ("too_large", 2), ("input_invalid", 1),
    ]  # fmt: skip
    assert busy.reader.failures(pipeline="other") == []


def test_attempts_come_oldest_first(busy):
    assert [(one.token, one.stage) for one in busy.reader.attempts(1)] == [(1, "one"), (3, "two")]
    assert busy.reader.attempts(999) == []


def test_a_job_that_is_not_there_is_none(busy):
    assert busy.reader.job("nobody") is None


# -- the audit ---------------------------------------------------------------------------


def test_a_store_that_nobody_damaged_is_clean(busy):
    busy.clean()


JOB = "UPDATE perdure_jobs SET {} WHERE no = {}"

# check: what is done to the tables, and whom the audit must name.
DAMAGES = {
    "attempt_without_job": (["DELETE FROM perdure_jobs WHERE no = 3"], "job number 3"),
    "books_balance": (["UPDATE perdure_books SET accepted = 9"], "p"),
    "checkpoint_missing": (["DELETE FROM perdure_checkpoints"], "{1}"),
    "checkpoint_without_job": (["DELETE FROM perdure_jobs WHERE no = 1"], "job number 1"),
    "counters_differ": ([JOB.format("failures = 4", 5)], "{5}"),
    "ended_twice": (
        ["UPDATE perdure_attempts SET state = 'succeeded' WHERE job = 1"], "{1}",
    ),
    "failure_without_attempt": (["DELETE FROM perdure_attempts WHERE job = 3"], "{3}"),
    "held_by_nobody": ([JOB.format("worker = 77", 6)], "{6}"),
    "job_vanished": (["DELETE FROM perdure_jobs WHERE no = 4"], "job number 4"),
    "stage_done_twice": (
        ["UPDATE perdure_attempts SET stage = 'one' WHERE job = 1"], "{1}",
    ),
    "state_and_fields": ([JOB.format("worker = 1", 7)], "{7}"),
    "state_of_no_table": ([JOB.format("state = 'limbo', ready = NULL", 7)], "{7}"),
    "success_without_attempt": (["DELETE FROM perdure_attempts WHERE job = 2"], "{2}"),
    "token_behind": ([JOB.format("token = 1", 2)], "{2}"),
    "too_early": (
        [
            "UPDATE perdure_attempts SET due_at = settled_at + 5000000 WHERE job = 1 AND token = 1",
        ],
        "{1}",
    ),
}  # fmt: skip


def test_every_check_of_the_audit_has_a_damage_here():
    assert set(DAMAGES) == set(AUDIT)


@pytest.mark.parametrize("check", DAMAGES)
def test_the_audit_finds_and_names(busy, check):
    statements, subject = DAMAGES[check]
    ids = {job.no: job.id for job in busy.reader.jobs()}
    busy.damage(*statements)
    wanted = subject if "{" not in subject else ids[int(subject.strip("{}"))]
    found = [finding for finding in busy.reader.audit() if finding.check == check]
    assert {finding.subject for finding in found} == {wanted}
    assert all(finding.text for finding in found)


@pytest.mark.parametrize(
    ("gone", "named"), [("no = 8", "8"), ("no = 1", "1 to 1"), ("no IN (3, 4)", "3 to 4")]
)
def test_a_vanished_job_is_missed_at_either_end_and_in_rows(busy, gone, named):
    busy.damage(f"DELETE FROM perdure_jobs WHERE {gone}")
    subjects = [one.subject for one in busy.reader.audit() if one.check == "job_vanished"]
    assert subjects == [f"job number {named}"]


def test_a_job_of_a_worker_that_was_done_with_is_found(busy):
    busy.store.end_worker(busy.busy, Death("silent"))
    busy.damage("UPDATE perdure_workers SET settled_at = 1")
    (found,) = [one for one in busy.reader.audit() if one.check == "held_by_nobody"]
    assert found.subject == busy.six.id
    assert "whose jobs were all settled" in found.text
