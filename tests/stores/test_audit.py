"""The audit names every damage, on both stores alike, and nothing else."""

from dataclasses import dataclass

import msgspec
import pytest

from perdure.model.decisions import Counted
from perdure.model.jobs import ZERO, Claim, Enqueued, Record
from perdure.model.operations import BulkStep, BulkVerb, NewBulk, Refusal, Retention
from perdure.model.outcomes import Death
from perdure.model.runs import RunStatus, RunView
from perdure.model.states import AttemptStatus
from perdure.stores.auditing import CHECKS
from perdure.stores.postgres.reader import AUDIT as ON_POSTGRES
from perdure.stores.sqlite.reader import AUDIT as ON_SQLITE
from perdure.testing import VirtualClock
from perdure.testing.contract.capturing import putting_aside
from perdure.testing.contract.kit import DEED, Place, uuid_of
from perdure.testing.contract.records import failing, spending
from perdure.testing.nouns import replace
from tests.stores.kit import advance, attempt_of, cancelled, crash, failure, retry, success
from tests.stores.rigs import Rig


@dataclass
class Busy:
    """A store with one job in each situation, whose numbers and ids are known by place.

    Jobs 1 and 2 are done, 3 failed, 4 cancelled, 5 retrying, 6 running, 7 ready again, 8 a suspect;
    job 1 went through both stages, and job 9 waits in a run. Job 10 failed in that run, after an attempt that cost
    something and left a capture; the other run is over, with job 11, and so is the one bulk operation.
    """

    rig: Rig
    place: Place
    worker: int
    nos: dict[int, int]
    ids: dict[int, str]
    run: int
    over: int
    bulk: int
    texts: dict[str, str]

    def told(self, text: str) -> str:
        """A text that speaks of jobs by place, in numbers and ids."""
        names = {f"no{n}": no for n, no in self.nos.items()}
        return text.format(
            **names, **{f"id{n}": id for n, id in self.ids.items()}, **self.texts, run=self.run,
            over=self.over, bulk=self.bulk,
        )  # fmt: skip

    def damage(self, *statements: str) -> None:
        self.rig.damage(*(self.told(one) for one in statements))

    def found(self, check: str, run: int | None = None) -> list[tuple[str, str]]:
        found = self.place.reader.audit(run=run)
        return [(one.subject, one.text) for one in found if one.check == check]


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
    made.append(failed_in(place, worker, run))
    over = place.begin_run("over")
    made.append(failed_in(place, worker, over))
    place.control.seal_run(over.no)
    assert place.change_run(over, RunStatus.FAILED)
    bulk = place.control.add_bulk(NewBulk(uuid_of(5), BulkVerb.DISCARD, "{}", DEED))
    refusals = (Refusal(made[9].no, "why not"),)
    place.control.step_bulk(BulkStep(bulk.no, None, 1, refusals=refusals))
    clock.push(1)
    nos = {n: job.no for n, job in enumerate(made, 1)}
    texts = {"run_id": run.id, "over_id": over.id, "bulk_id": bulk.id}
    ids = {n: job.id for n, job in enumerate(made, 1)}
    yield Busy(rig, place, worker, nos, ids, run.no, over.no, bulk.no, texts)
    place.close()


def failed_in(place: Place, worker: int, run: RunView) -> Enqueued:
    """A dead letter of a run, with costs and a capture; it goes before all that waits."""
    made = place.put(run=run.no, priority=9)
    (claim,) = place.take(worker)
    record = spending(failure(claim, worker), tokens_in=5, tokens_out=3, cost_nusd=7)
    place.settle(putting_aside(record, b"raw"), by=worker)
    return made


def test_a_store_that_nobody_damaged_is_clean(busy):
    busy.place.clean()


JOB = "UPDATE perdure_jobs SET {what} WHERE no = {{{no}}}"


def job(what: str, no: str) -> list[str]:
    return [JOB.format(what=what, no=no)]


# check: what is done to the tables, and whom the audit must name.
DAMAGES: dict[str, tuple[list[str], str]] = {
    "artifact_without_attempt": (
        ["UPDATE perdure_artifacts SET token = 777 WHERE job = {no10}"], "{id10}",
    ),
    "attempt_without_job": (["DELETE FROM perdure_jobs WHERE no = {no3}"], "job number {no3}"),
    "attempts_beyond_limit": (
        ["UPDATE perdure_attempts SET why = 'retry; attempt 1 of 1 failed' WHERE job = {no5}"], "{id5}",
    ),
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
    "refusal_of_no_bulk": (["DELETE FROM perdure_bulks"], "bulk number {bulk}"),
    "run_end_and_status": (
        ["UPDATE perdure_runs SET status = 'paused' WHERE no = {over}"], "{over_id}",
    ),
    "run_ended_early": (
        ["UPDATE perdure_runs SET sealed_at = NULL WHERE no = {over}"], "{over_id}",
    ),
    "run_kinds_differ": (
        ["UPDATE perdure_run_kinds SET kind = 'network' WHERE run = {run}"], "{run_id}",
    ),
    "run_of_no_run": (job("run = 777777", "no7"), "{id7}"),
    "run_spending_differs": (
        ["UPDATE perdure_run_counts SET cost_nusd = cost_nusd + 1 WHERE run = {run} AND cost_nusd > 0"],
        "{run_id}",
    ),
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
        "UPDATE perdure_run_counts SET total = total + 1 WHERE run = {run}",
        "UPDATE perdure_run_counts SET succeeded = 1 WHERE run = {run}",
        "DELETE FROM perdure_run_counts WHERE run = {run}",
        "UPDATE perdure_jobs SET run = {run} WHERE no = {no7}",
        "UPDATE perdure_jobs SET redrive_run = {run} WHERE no = {no2}",
        "UPDATE perdure_jobs SET run = NULL WHERE no = {no9}",
    ],
)
def test_a_run_that_does_not_count_what_its_jobs_are_is_found(busy, damage):
    assert busy.found("run_counts_differ") == []
    busy.damage(damage)
    assert [name for name, _ in busy.found("run_counts_differ")] == [busy.told("{run_id}")]


# What else the checks of runs and captures find: the check, what is done, whom the audit must name.
MORE: list[tuple[str, str, str]] = [
    ("artifact_without_attempt", "UPDATE perdure_artifacts SET job = 777 WHERE job = {no10}", "job number 777"),
    ("artifact_without_attempt", "DELETE FROM perdure_attempts WHERE job = {no10}", "{id10}"),
    ("attempts_beyond_limit",
     "UPDATE perdure_attempts SET why = 'at once: lost, crash 1 of 1; it will run' WHERE job = {no8}", "{id8}"),
    ("attempts_beyond_limit",
     "UPDATE perdure_attempts SET counted = 'waits', why = 'x, wait 1 of 0,' WHERE job = {no5}", ""),
    ("attempts_beyond_limit",
     "UPDATE perdure_attempts SET why = 'retry; attempt 1 of 3 failed' WHERE job = {no5}", ""),
    ("attempts_beyond_limit",
     "UPDATE perdure_attempts SET why = 'fail; attempt 1 of 1 failed' WHERE job = {no3}", ""),
    ("refusal_of_no_bulk", "UPDATE perdure_bulks SET refused = 0", "{bulk_id}"),
    ("run_end_and_status", "UPDATE perdure_runs SET ended_at = NULL WHERE no = {over}", "{over_id}"),
    ("run_end_and_status", "UPDATE perdure_runs SET ended_at = 5 WHERE no = {run}", "{run_id}"),
    ("run_end_and_status", "UPDATE perdure_runs SET status = 'cancelled' WHERE no = {over}", ""),
    ("run_ended_early", "UPDATE perdure_jobs SET run = {over} WHERE no = {no9}", "{over_id}"),
    ("run_ended_early", "UPDATE perdure_jobs SET redrive_run = {over} WHERE no = {no6}", "{over_id}"),
    ("run_ended_early", "UPDATE perdure_runs SET status = 'completed' WHERE no = {run}", "{run_id}"),
    ("run_kinds_differ", "DELETE FROM perdure_run_kinds WHERE run = {run}", "{run_id}"),
    ("run_kinds_differ", "UPDATE perdure_run_kinds SET failed = 2 WHERE run = {over}", "{over_id}"),
    ("run_kinds_differ", "UPDATE perdure_jobs SET error_kind = NULL WHERE no = {no10}", "{run_id}"),
    ("run_of_no_run", "UPDATE perdure_run_kinds SET run = 777 WHERE run = {run}", "run number 777"),
    ("run_spending_differs", "DELETE FROM perdure_attempts WHERE job = {no11}", "{over_id}"),
    ("run_spending_differs", "UPDATE perdure_attempts SET tokens_in = 6 WHERE job = {no10}", "{run_id}"),
    ("run_spending_differs", "UPDATE perdure_attempts SET tokens_out = 6 WHERE job = {no10}", "{run_id}"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "damage", "subject"), MORE)
def test_the_audit_of_runs_and_captures_names(busy, check, damage, subject):
    """No subject: it is no damage."""
    busy.damage(damage)
    assert {name for name, _ in busy.found(check)} == ({busy.told(subject)} if subject else set())


def test_the_last_wait_allowed_may_be_waited_and_none_after_it(busy):
    place, worker = busy.place, busy.worker
    id = place.put(priority=9).id
    for _ in range(3):
        (claim,) = place.take(worker)
        assert claim.id == id
        place.settle(waiting(claim, worker, "retry in 0 s: busy, wait 9 of 2 (jitter)"), by=worker)
        found = busy.found("attempts_beyond_limit")
        assert [name for name, _ in found] == [id] * (claim.counters.starts == 3)
    assert found[0][1] == "went on after 3 waits in stage one of life 1, 2 are allowed"


def waiting(claim: Claim, worker: int, words: str) -> Record:
    """A wait that the upstream has ordered, with the words of the decision."""
    record = retry(claim, worker, delay_s=0.0)
    attempt = attempt_of(
        claim, AttemptStatus.WAITING, worker, counted="waits",
        why_json=msgspec.json.encode({"text": words}).decode(),
    )  # fmt: skip
    return replace(record, counters=claim.counters.raised(Counted.WAITS), attempt=attempt)


def test_the_audit_of_a_run_tells_of_that_run_and_its_jobs_only(busy):
    damage = "UPDATE perdure_jobs SET failures = 4 WHERE no IN ({no3}, {no10}, {no11})"
    busy.damage(damage, "UPDATE perdure_run_counts SET total = total + 1 WHERE run = {run}")
    every = {subject for subject, _ in busy.found("counters_differ")}
    assert every == {busy.ids[3], busy.ids[10], busy.ids[11]}
    assert [name for name, _ in busy.found("counters_differ", busy.run)] == [busy.ids[10]]
    assert [name for name, _ in busy.found("counters_differ", busy.over)] == [busy.ids[11]]
    assert [name for name, _ in busy.found("run_counts_differ", busy.run)] == [
        busy.told("{run_id}")
    ]
    assert busy.found("run_counts_differ", busy.over) == []
    assert busy.place.reader.audit(run=999_999) == []


def test_the_audit_of_a_run_tells_of_what_is_driven_again_in_it(busy):
    child = busy.place.begin_run("again", parent=busy.run)
    busy.place.revive(busy.place.see(busy.ids[10]), redrive_run=child.no)
    assert busy.place.reader.audit(run=child.no) == []
    busy.damage("UPDATE perdure_jobs SET starts = 9 WHERE no = {no10}")
    for run in (busy.run, child.no):
        assert [name for name, _ in busy.found("counters_differ", run)] == [busy.ids[10]]


def test_a_child_run_and_its_parent_are_clean_through_lives_and_pruning(busy):
    place, worker = busy.place, busy.worker
    child = place.begin_run("again", parent=busy.run)
    place.revive(place.see(busy.ids[10]), redrive_run=child.no)
    (claim,) = [one for one in place.take(worker, 9) if one.id == busy.ids[10]]
    record = spending(failing(claim, worker, kind="network"), cost_nusd=11)
    place.settle(record, by=worker)
    place.clean()
    other = place.begin_run("once more", parent=busy.run)
    place.revive(place.see(busy.ids[10]), redrive_run=other.no)
    place.clean()
    place.discard(place.see(busy.ids[11]))
    place.clock.push(100)
    assert place.control.prune(Retention(discarded_s=1.0), limit=100).jobs == 1
    place.clean()


def test_a_job_of_a_worker_that_was_done_with_is_found(busy):
    busy.place.store.end_worker(busy.worker, Death("silent"))
    busy.damage("UPDATE perdure_workers SET settled_at = 1")
    ((subject, text),) = busy.found("held_by_nobody")
    assert subject == busy.ids[6]
    assert "whose jobs were all settled" in text


@pytest.mark.parametrize(
    ("gone", "named"),
    [("no = {no11}", "{no11}"), ("no = {no1}", "{no1} to {no1}"), ("no IN ({no3}, {no4})", "{no3} to {no4}")],
)  # fmt: skip
def test_on_sqlite_a_vanished_job_is_missed_at_either_end_and_in_rows(busy, gone, named):
    if busy.rig.name != "sqlite":
        assert "job_vanished" not in ON_POSTGRES  # its numbers have gaps by nature
        return
    busy.damage(f"DELETE FROM perdure_jobs WHERE {gone}")
    assert [name for name, _ in busy.found("job_vanished")] == [f"job number {busy.told(named)}"]
