"""The audit names every damage, on both stores alike, and nothing else."""

import msgspec
import pytest

from perdure.model.decisions import Counted
from perdure.model.jobs import ZERO, Claim, Record
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus
from perdure.stores.audit_checks import CHECKS
from perdure.stores.postgres.reader import AUDIT as ON_POSTGRES
from perdure.stores.sqlite.reader import AUDIT as ON_SQLITE
from tests.stores.busy import busy_store
from tests.stores.kit import (
    DEED,
    attempt_of,
    cancellation,
    failure,
    release,
    retry,
    success,
    target,
)


@pytest.fixture
def busy(rig):
    with busy_store(rig) as made:
        yield made


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
    "attempt_missing": (["UPDATE perdure_attempts SET number = 2 WHERE job = {no5}"], "{id5}"),
    "attempts_beyond_limit": (
        ["UPDATE perdure_attempts SET why = 'retry; attempt 1 of 1 failed' WHERE job = {no5}"], "{id5}",
    ),
    "books_balance": (["DELETE FROM perdure_jobs WHERE no = {no7}"], "p"),
    "bulk_done_differs": (
        ["UPDATE perdure_bulks SET verb = 'redrive', done = 1, run = {run}"], "{bulk_id}",
    ),
    "checkpoint_missing": (["DELETE FROM perdure_checkpoints"], "{id1}"),
    "checkpoint_without_attempt": (
        ["DELETE FROM perdure_attempts WHERE job = {no1} AND stage = 'one'"], "{id1}",
    ),
    "checkpoint_without_job": (["DELETE FROM perdure_jobs WHERE no = {no1}"], "job number {no1}"),
    "counters_differ": (job("failures = 4", "no5"), "{id5}"),
    "deaths_differ": (["UPDATE perdure_deaths SET letters = letters + 1 WHERE letters > 0"], " of pipeline p, stage one"),
    "depths_differ": (["UPDATE perdure_depths SET succeeded = succeeded + 1 WHERE lane = {lane}"], "one of pipeline p, queue q"),
    "discarded_not_failed": (job("discarded_at = 1", "no7"), "{id7}"),
    "ended_twice": (
        ["UPDATE perdure_attempts SET state = 'succeeded' WHERE job = {no1}"], "{id1}",
    ),
    "failure_without_attempt": (["DELETE FROM perdure_attempts WHERE job = {no3}"], "{id3}"),
    "flows_differ": (["UPDATE perdure_flows SET waits = waits + 1 WHERE stage = 'one'"], "p, stage one"),
    "held_by_nobody": (job("worker = 777777", "no6"), "{id6}"),
    "key_twice": (
        ["DROP INDEX IF EXISTS perdure_jobs_key", *job("key = 'k'", "no2"), *job("key = 'k'", "no7")],
        "{id2}",
    ),
    "lane_of_no_lane": (job("lane = 777777", "no7"), "{id7}"),
    "lives_differ": (job("retries_manual = 1", "no7"), "{id7}"),
    "minutes_differ": (["UPDATE perdure_flows SET minute = minute - 3 WHERE stage = 'two'"], "p, stage two"),
    "owners_differ": (["INSERT INTO perdure_owners VALUES ('nobody', 0, 1)"], "nobody"),
    "owned_differs": (job("owner = 'ann'", "no7"), "{id7}"),
    "past_unreadable": (job("past = 'oops'", "no7"), "{id7}"),
    "payload_astray": (
        ["INSERT INTO perdure_payloads (job, life, payload) VALUES ({no7}, 1, '1')"], "{id7}",
    ),
    "redrive_differs": (["UPDATE perdure_jobs SET redrive_run = {run} WHERE no = {no2}"], "{id2}"),
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


@pytest.mark.parametrize(
    ("damage", "subject"),
    [
        ("INSERT INTO perdure_payloads (job, life, payload) VALUES (777777, 1, '1')", "job number 777777"),
        ("INSERT INTO perdure_bulk_payloads (bulk, key, payload) VALUES (777777, 'k', '1')",
         "bulk number 777777"),
    ],
)  # fmt: skip
def test_a_payload_of_nobody_is_found(busy, damage, subject):
    busy.damage(damage)
    ((name, text),) = busy.found("payload_astray")
    assert name == subject
    assert text


def test_what_a_person_has_run_now_is_not_too_early_and_what_nobody_has_is(busy):
    place, worker = busy.place, busy.place.hire()
    place.take(worker, 50)  # all that waited before
    jobs = [place.dead_letter(worker, end=retry) for _ in range(2)]
    place.clock.push(1)
    place.control.run_now([target(job) for job in jobs], DEED)
    for claim in place.take(worker, 2):
        place.settle(success(claim, worker), by=worker)
    assert busy.found("too_early") == []
    busy.damage(f"DELETE FROM perdure_audit_log WHERE subject = '{jobs[0].id}'")
    assert {name for name, _ in busy.found("too_early")} == {jobs[0].id}


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
    ("damage", "subject"),
    [
        ("DELETE FROM perdure_owned", "{id}"),
        ("UPDATE perdure_owned SET failed = NOT failed", "{id}"),
        ("UPDATE perdure_owned SET changed_at = changed_at - 1", "{id}"),
        ("UPDATE perdure_owned SET changed_at = changed_at + 9000000", "{id}"),
        ("UPDATE perdure_owned SET owner = 'bob'", "{id}"),
        ("UPDATE perdure_owned SET owner = 'bob'", "job number {no}"),
        ("UPDATE perdure_owned SET job = -job", "job number -{no}"),
        ("UPDATE perdure_jobs SET owner = ''", "job number {no}"),
    ],
)  # fmt: skip
def test_jobs_that_are_not_their_owners_as_they_are_are_found(busy, damage, subject):
    """Whether a job waits, is in work or has ended."""
    place, worker = busy.place, busy.worker
    made = place.put_many(7, owner="ann", priority=9)
    place.clock.push(1)
    claims = place.take(worker, 6)
    place.clock.push(1)
    for end, claim in zip((success, failure, cancellation, retry, release), claims, strict=False):
        place.settle(end(claim, worker), by=worker)
    place.clock.push(1)
    (again,) = place.take(worker)
    assert again.id == claims[4].id
    place.clean()
    busy.damage(damage)
    found = {name for name, _ in busy.found("owned_differs")}
    assert {subject.format(id=one.id, no=one.no) for one in made} <= found


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE perdure_run_counts SET total = total + 1 WHERE run = {run}",
        "UPDATE perdure_run_counts SET succeeded = 1 WHERE run = {run}",
        "DELETE FROM perdure_run_counts WHERE run = {run}",
        "UPDATE perdure_jobs SET run = {run} WHERE no = {no7}",
        "UPDATE perdure_jobs SET run = NULL WHERE no = {no9}",
    ],
)
def test_a_run_that_does_not_count_what_its_jobs_are_is_found(busy, damage):
    assert busy.found("run_counts_differ") == []
    busy.damage(damage)
    assert [name for name, _ in busy.found("run_counts_differ")] == [busy.told("{run_id}")]


# What else the checks of runs and captures find: the check, what is done, whom the audit must name.
MORE: list[tuple[str, str, str]] = [
    ("artifact_without_attempt", "UPDATE perdure_artifacts SET job = 777000777 WHERE job = {no10}", "job number 777000777"),
    ("artifact_without_attempt", "DELETE FROM perdure_attempts WHERE job = {no10}", "{id10}"),
    ("attempts_beyond_limit",
     "UPDATE perdure_attempts SET why = 'at once: lost, crash 1 of 1; it will run' WHERE job = {no8}", "{id8}"),
    ("attempts_beyond_limit",
     "UPDATE perdure_attempts SET counted = 'waits', why = 'x, wait 1 of 0,' WHERE job = {no5}", ""),
    ("attempts_beyond_limit",
     "UPDATE perdure_attempts SET why = 'retry; attempt 1 of 3 failed' WHERE job = {no5}", ""),
    ("attempts_beyond_limit",
     "UPDATE perdure_attempts SET why = 'fail; attempt 1 of 1 failed' WHERE job = {no3}", ""),
    ("attempt_missing", "UPDATE perdure_jobs SET life = 2 WHERE no = {no7}", "{id7}"),
    ("checkpoint_without_attempt", "UPDATE perdure_checkpoints SET stage = 'two' WHERE job = {no1}", "{id1}"),
    ("owned_differs", "UPDATE perdure_attempts SET owner = 'ann' WHERE job = {no3}", "{id3}"),
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
    ("run_of_no_run", "UPDATE perdure_run_kinds SET run = 777000777 WHERE run = {run}", "run number 777000777"),
    ("run_of_no_run", "UPDATE perdure_runs SET parent = 777000777 WHERE no = {over}", "{over_id}"),
    ("run_of_no_run", "UPDATE perdure_bulks SET run = 777000777", "{bulk_id}"),
    ("run_of_no_run", "INSERT INTO perdure_redrives VALUES (777000777, {no7}, 1)", "{id7}"),
    ("run_of_no_run", "INSERT INTO perdure_run_pruned (run) VALUES (777000777)", "run number 777000777"),
    ("run_spending_differs",
     "UPDATE perdure_run_counts SET retries = retries + 1 WHERE run = {run} AND cost_nusd > 0", "{run_id}"),
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
        claim,
        AttemptStatus.WAITING,
        worker,
        counted="waits",
        why_json=msgspec.json.encode({"text": words}).decode(),
    )
    return replace(record, counters=claim.counters.after_event(Counted.WAITS), attempt=attempt)


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


def test_a_job_of_a_worker_that_was_done_with_is_found(busy):
    busy.place.store.end_worker(busy.worker, Death("silent"))
    busy.damage("UPDATE perdure_workers SET settled_at = 1")
    ((subject, text),) = busy.found("held_by_nobody")
    assert subject == busy.ids[6]
    assert "whose jobs were all settled" in text


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("no = {no11}", "{no11}"),
        ("no = {no1}", "{no1} to {no1}"),
        ("no IN ({no3}, {no4})", "{no3} to {no4}"),
    ],
)
def test_on_sqlite_a_vanished_job_is_missed_at_either_end_and_in_rows(busy, gone, named):
    if busy.rig.name != "sqlite":
        assert "job_vanished" not in ON_POSTGRES  # its numbers have gaps by nature
        return
    busy.damage(f"DELETE FROM perdure_jobs WHERE {gone}")
    assert [name for name, _ in busy.found("job_vanished")] == [f"job number {busy.told(named)}"]
