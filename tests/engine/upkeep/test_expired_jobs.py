"""Deadlines of waiting jobs: what has waited too long fails as expired, wherever it waits."""

import pytest

from perdure.engine.record import expiry_record
from perdure.engine.stages import Catalogue
from perdure.model.events import EventName
from perdure.model.jobs import Counters, Stale
from perdure.model.limits import EXPIRED_BATCH_MAX
from perdure.model.operations import LaneScope
from perdure.model.states import FailedReason, State
from perdure.testing.store_contract.attempt_ends import advance, retry
from perdure.testing.store_contract.fresh_store import DEED
from tests.engine.kit import Notes
from tests.engine.upkeep.upkeeping import upkeep


def test_a_waiting_job_fails_at_its_deadline_and_not_before(either):
    notes = Notes()
    id = either.put(deadline_s=10).id
    sweeper = upkeep(either, either.hire(), notes=notes)
    either.clock.push(9.999999)
    assert sweeper.once() == 0
    either.clock.push(0.000001)
    assert sweeper.once() == 1
    job = either.see(id)
    assert (job.state, job.failed_reason, job.error_kind) == (
        State.FAILED,
        FailedReason.EXPIRED,
        "timeout",
    )
    assert job.error_message == "the deadline passed while the job waited"
    assert job.finished_at == either.clock.now()
    assert either.reader.attempts(job.no) == []
    (told,) = notes.of(EventName.JOB_FAILED)
    assert (told["job_id"], told["status"], told["error_code"]) == (id, "failed", "timeout")
    assert (told["pipeline"], told["reason"], told["error_kind"]) == ("p", "expired", "timeout")
    either.clean()
    assert sweeper.once() == 0


@pytest.mark.parametrize(
    ("scope", "name"), [(LaneScope.QUEUE, "q"), (LaneScope.PIPELINE, "p"), (None, "")]
)
def test_a_job_expires_in_a_paused_lane_too(either, scope, name):
    id = either.put(deadline_s=10).id
    if scope is not None:
        either.control.pause(scope, name, DEED)
    either.clock.push(11)
    assert upkeep(either, either.hire()).once() == 1
    assert either.see(id).failed_reason is FailedReason.EXPIRED
    either.clean()


def test_a_job_that_waits_for_a_retry_or_its_next_stage_expires_with_its_history(either):
    worker = either.hire()
    retried, advanced = either.put(deadline_s=10).id, either.put(deadline_s=10).id
    first, second = either.take(worker, 2)
    lane = either.lanes["two"]
    either.settle(retry(first, worker, delay_s=60), advance(second, worker, lane=lane), by=worker)
    either.clock.push(11)
    assert upkeep(either, worker).once() == 2
    for id, stage in ((retried, "one"), (advanced, "two")):
        job = either.see(id)
        assert (job.failed_reason, job.stage) == (FailedReason.EXPIRED, stage)
        assert len(either.reader.attempts(job.no)) == 1
    assert either.see(retried).counters == Counters(starts=1, failures=1)
    either.clean()


def test_a_running_job_is_left_to_its_worker(either):
    worker = either.hire()
    id = either.put(deadline_s=10).id
    either.take(worker)
    either.clock.push(11)
    assert upkeep(either, worker).once() == 0
    assert either.see(id).state is State.PROCESSING


def test_a_job_of_a_stage_that_nobody_knows_expires_like_any_other(either):
    id = either.put(deadline_s=10).id
    either.clock.push(11)
    assert upkeep(either, either.hire(), catalogue=Catalogue([])).once() == 1
    assert either.see(id).failed_reason is FailedReason.EXPIRED


def test_a_job_that_is_claimed_between_the_look_and_the_write_goes_to_its_worker(place):
    """The sweeper's record shows the token of the waiting job, which has moved on."""
    id = place.put(deadline_s=10).id
    worker = place.hire()
    place.clock.push(11)
    (seen,) = place.store.expired_jobs(limit=9)
    (claim,) = place.take(worker)
    (answer,) = place.settle(expiry_record(seen), by=place.hire())
    assert isinstance(answer, Stale)
    assert (place.see(id).state, place.store.tokens_held(worker)) == (
        State.PROCESSING,
        {claim.no: claim.token},
    )


def test_many_expire_in_bounded_steps_the_longest_over_first(place):
    late = place.put(deadline_s=20).id
    place.put_many(EXPIRED_BATCH_MAX, deadline_s=10)
    place.clock.push(21)
    sweeper = upkeep(place, place.hire())
    assert (sweeper.once(), sweeper.more) == (EXPIRED_BATCH_MAX, True)
    assert place.see(late).state is State.QUEUED
    assert (sweeper.once(), sweeper.more) == (1, False)
    place.clean()


def test_an_expired_job_of_a_run_is_counted_as_failed_and_can_be_driven_again(either):
    run = either.begin_run()
    lane = either.lanes_of("p", run=run.no)["one"]
    id = either.put(deadline_s=10, run=run.no, lane=lane).id
    either.clock.push(11)
    assert upkeep(either, either.hire()).once() == 1
    assert either.see_run(run).counts.failed == 1
    either.clean()
    either.revive(either.see(id))
    job = either.see(id)
    assert (job.state, job.life) == (State.QUEUED, 2)
    assert job.deadline_at is not None
    assert job.deadline_at > either.clock.now()
    either.clean()


def test_a_failure_without_attempt_before_its_deadline_is_found_by_the_audit(place):
    """Twin: what no deadline explains is not allowed by the check."""
    place.put(deadline_s=10)
    place.clock.push(11)
    upkeep(place, place.hire()).once()
    place.clean()
    place.damage("UPDATE perdure_jobs SET deadline_at = finished_at + 1")
    assert [one.check for one in place.reader.audit()] == ["failure_without_attempt"]
    place.damage("UPDATE perdure_jobs SET deadline_at = NULL")
    assert [one.check for one in place.reader.audit()] == ["failure_without_attempt"]
