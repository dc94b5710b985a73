"""The audit names every damage, on both stores alike, and nothing else."""

from dataclasses import dataclass

import pytest

from perdure.model.jobs import ZERO, Claim, Record
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus
from perdure.stores.auditing import CHECKS
from perdure.stores.postgres.reader import AUDIT as ON_POSTGRES
from perdure.stores.sqlite.reader import AUDIT as ON_SQLITE
from perdure.testing import VirtualClock
from perdure.testing.contract.kit import Place
from perdure.testing.nouns import replace
from tests.stores.kit import advance, attempt_of, cancelled, crash, failure, retry, success
from tests.stores.rigs import Rig


@dataclass
class Busy:
    """A store with one job in each situation, whose numbers and ids are known by place.

    Jobs 1 and 2 are done, 3 failed, 4 cancelled, 5 retrying, 6 running, 7 ready again, 8 a suspect;
    job 1 went through both stages, and job 9 waits in a run.
    """

    rig: Rig
    place: Place
    worker: int
    nos: dict[int, int]
    ids: dict[int, str]
    run: int

    def told(self, text: str) -> str:
        """A text that speaks of jobs by place, in numbers and ids."""
        names = {f"no{n}": no for n, no in self.nos.items()}
        return text.format(**names, **{f"id{n}": id for n, id in self.ids.items()}, run=self.run)

    def damage(self, *statements: str) -> None:
        self.rig.damage(*(self.told(one) for one in statements))

    def found(self, check: str) -> list[tuple[str, str]]:
        return [(one.subject, one.text) for one in self.place.reader.audit() if one.check == check]


@pytest.fixture
def busy(rig):
    clock = VirtualClock()
    place = Place(rig.open(clock), clock)
    worker = place.hire()
    made = place.put_many(8)
    claims = place.take(worker, 8)
    one, two, three, four, five, _, seven, eight = claims
    place.settle(
        advance(one, worker, place.lanes["two"]), success(two, worker), failure(three, worker),
        cancelled(four, worker), retry(five, worker), retry(seven, worker, delay_s=0.0),
        crash(eight, worker), by=worker,
    )  # fmt: skip
    (one,) = place.take(worker, 1)
    place.settle(success(one, worker), by=worker)
    run = place.begin_run()
    made.append(place.put(run=run.no))
    clock.push(1)
    nos = {n: job.no for n, job in enumerate(made, 1)}
    yield Busy(rig, place, worker, nos, {n: job.id for n, job in enumerate(made, 1)}, run.no)
    place.close()


def test_a_store_that_nobody_damaged_is_clean(busy):
    busy.place.clean()


JOB = "UPDATE perdure_jobs SET {what} WHERE no = {{{no}}}"


def job(what: str, no: str) -> list[str]:
    return [JOB.format(what=what, no=no)]


# check: what is done to the tables, and whom the audit must name.
DAMAGES: dict[str, tuple[list[str], str]] = {
    "attempt_without_job": (["DELETE FROM perdure_jobs WHERE no = {no3}"], "job number {no3}"),
    "books_balance": (["DELETE FROM perdure_jobs WHERE no = {no7}"], "p"),
    "checkpoint_missing": (["DELETE FROM perdure_checkpoints"], "{id1}"),
    "checkpoint_without_job": (["DELETE FROM perdure_jobs WHERE no = {no1}"], "job number {no1}"),
    "counters_differ": (job("failures = 4", "no5"), "{id5}"),
    "discarded_not_failed": (job("discarded_at = 1", "no7"), "{id7}"),
    "ended_twice": (
        ["UPDATE perdure_attempts SET state = 'succeeded' WHERE job = {no1}"], "{id1}",
    ),
    "failure_without_attempt": (["DELETE FROM perdure_attempts WHERE job = {no3}"], "{id3}"),
    "held_by_nobody": (job("worker = 777777", "no6"), "{id6}"),
    "key_twice": (
        ["DROP INDEX IF EXISTS perdure_jobs_key", *job("key = 'k'", "no2"), *job("key = 'k'", "no7")],
        "{id2}",
    ),
    "lane_of_no_lane": (job("lane = 777777", "no7"), "{id7}"),
    "past_unreadable": (job("past = 'oops'", "no7"), "{id7}"),
    "run_of_no_run": (job("run = 777777", "no7"), "{id7}"),
    "stage_done_twice": (
        ["UPDATE perdure_attempts SET stage = 'one' WHERE job = {no1}"], "{id1}",
    ),
    "state_and_fields": (job("worker = 1", "no7"), "{id7}"),
    "state_of_no_table": (job("state = 'limbo', ready = NULL", "no7"), "{id7}"),
    "success_without_attempt": (["DELETE FROM perdure_attempts WHERE job = {no2}"], "{id2}"),
    "token_behind": (job("token = 1", "no2"), "{id2}"),
    "too_early": (
        ["UPDATE perdure_attempts SET due_at = settled_at + 5000000 WHERE job = {no1} AND token = 1"],
        "{id1}",
    ),
}  # fmt: skip


def test_every_check_of_the_audit_has_a_damage_here():
    assert {*DAMAGES, "run_counts_differ"} == set(CHECKS)
    assert set(ON_POSTGRES) == set(CHECKS)
    assert set(ON_SQLITE) == {*CHECKS, "job_vanished"}


@pytest.mark.parametrize("check", DAMAGES)
def test_the_audit_finds_and_names(busy, check):
    statements, subject = DAMAGES[check]
    assert busy.found(check) == []
    busy.damage(*statements)
    found = busy.found(check)
    assert {name for name, _ in found} == {busy.told(subject)}
    assert all(text for _, text in found)


def test_after_a_hand_over_only_what_was_tried_since_is_counted(busy):
    place, worker = busy.place, busy.worker
    id = place.put(priority=1).id
    (claim,) = place.take(worker)
    place.settle(retry(claim, worker, delay_s=0.0), by=worker)
    (claim,) = place.take(worker)
    assert (claim.id, claim.counters.failures) == (id, 1)
    place.settle(handed_over(claim, worker), by=worker)
    assert place.see(id).counters == ZERO
    place.clean()
    (claim,) = place.take(worker)
    place.settle(retry(claim, worker), by=worker)
    assert (place.see(id).counters.starts, place.see(id).counters.failures) == (1, 1)
    place.clean()
    busy.damage(f"UPDATE perdure_jobs SET failures = 2, starts = 3 WHERE no = {claim.no}")
    ((subject, text),) = busy.found("counters_differ")
    assert subject == id
    assert "its attempts show 1, 1, 0 and 0" in text


def handed_over(claim: Claim, worker: int) -> Record:
    """A caller's job in a worker's hands from now on, with counters from zero."""
    attempt = attempt_of(claim, AttemptStatus.HANDED_OVER, worker)
    return replace(retry(claim, worker, delay_s=0.0), counters=ZERO, attempt=attempt)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE perdure_run_counts SET total = total + 1",
        "UPDATE perdure_run_counts SET succeeded = 1",
        "DELETE FROM perdure_run_counts",
        "UPDATE perdure_jobs SET run = {run} WHERE no = {no7}",
        "UPDATE perdure_jobs SET redrive_run = {run} WHERE no = {no2}",
        "UPDATE perdure_jobs SET run = NULL WHERE no = {no9}",
    ],
)
def test_a_run_that_does_not_count_what_its_jobs_are_is_found(busy, damage):
    (run,) = busy.place.reader.runs()
    assert busy.found("run_counts_differ") == []
    busy.damage(damage)
    assert [name for name, _ in busy.found("run_counts_differ")] == [run.id]


def test_a_job_of_a_worker_that_was_done_with_is_found(busy):
    busy.place.store.end_worker(busy.worker, Death("silent"))
    busy.damage("UPDATE perdure_workers SET settled_at = 1")
    ((subject, text),) = busy.found("held_by_nobody")
    assert subject == busy.ids[6]
    assert "whose jobs were all settled" in text


@pytest.mark.parametrize(
    ("gone", "named"),
    [("no = {no9}", "{no9}"), ("no = {no1}", "{no1} to {no1}"), ("no IN ({no3}, {no4})", "{no3} to {no4}")],
)  # fmt: skip
def test_on_sqlite_a_vanished_job_is_missed_at_either_end_and_in_rows(busy, gone, named):
    if busy.rig.name != "sqlite":
        assert "job_vanished" not in ON_POSTGRES  # its numbers have gaps by nature
        return
    busy.damage(f"DELETE FROM perdure_jobs WHERE {gone}")
    assert [name for name, _ in busy.found("job_vanished")] == [f"job number {busy.told(named)}"]
