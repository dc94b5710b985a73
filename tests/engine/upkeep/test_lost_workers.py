"""Lost jobs: the silent are declared dead, and what they held is settled once."""

import threading
from random import Random

import pytest

from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.lost_workers import LostJobs
from perdure.model.errors import WorkerDead
from perdure.model.events import EventName
from perdure.model.jobs import Claim, Counters, OnLost
from perdure.model.limits import LOST_BATCH_MAX
from perdure.model.outcomes import Death
from perdure.model.states import FailedReason, State
from perdure.model.workers import Role
from perdure.rules.policy import Policy
from perdure.testing.store_contract.attempt_ends import success
from perdure.testing.store_contract.fresh_store import TTL_S
from tests.engine.kit import Notes, line_on, stage
from tests.engine.upkeep.upkeeping import KILLED, live, upkeep


def lost_jobs(place, worker, notes=None):
    """The chore alone, whoever has the duty."""
    observers = Observers([notes] if notes else [])
    known = Catalogue([line_on(place)])
    return LostJobs(place.store, known, worker, chance=Random(1), observers=observers)


def test_with_nobody_dead_there_is_nothing_to_do(place):
    judge = place.hire()
    place.put()
    place.take(judge)
    assert upkeep(place, judge).once() == 0


def test_a_silent_workers_jobs_are_queued_again_with_a_crash_counted(either):
    judge, silent = either.hire(), either.hire()
    ids = [one.id for one in either.put_many(3)]
    either.take(silent, 3)
    live(either, [judge], TTL_S)
    notes = Notes()
    assert upkeep(either, judge, notes=notes).once() == 3
    for id in ids:
        job = either.see(id)
        assert (job.state, job.isolation, job.error_kind) == (State.QUEUED, 1, "worker_lost")
        assert job.counters == Counters(starts=1, crashes=1)
        (attempt,) = either.reader.attempts(job.no)
        assert (attempt.status, attempt.worker) == ("interrupted", silent)
        assert attempt.elapsed_s == pytest.approx(TTL_S + TTL_S / 3)
    assert notes.names() == [EventName.WORKER_LOST] + [EventName.JOB_RETRIED] * 3
    either.clean()


def test_a_reported_death_is_settled_without_waiting(place):
    judge, dead = place.hire(), place.hire()
    place.put()
    place.take(dead)
    place.store.end_worker(dead, KILLED)
    assert upkeep(place, judge).once() == 1
    (attempt,) = place.reader.attempts(1)
    assert "was killed by SIGKILL" in attempt.why_json


def test_what_we_ended_ourselves_at_shutdown_counts_as_nothing(place):
    judge, ours = place.hire(), place.hire()
    id = place.put().id
    place.take(ours)
    place.store.end_worker(ours, Death("stopped", signal="SIGKILL"))
    assert upkeep(place, judge).once() == 1
    job = place.see(id)
    assert (job.state, job.isolation) == (State.QUEUED, 0)
    assert job.counters == Counters(starts=1, releases=1)
    place.clean()


def test_the_last_crash_makes_a_job_fail_as_crashed(place):
    judge = place.hire()
    id = place.put().id
    for crash in range(3):
        worker = place.hire()
        (claim,) = place.take(worker, isolation=min(crash, 2))
        place.store.end_worker(worker, KILLED)
        assert upkeep(place, judge).once() == 1
    job = place.see(id)
    assert (job.state, job.failed_reason) == (State.FAILED, FailedReason.CRASHED)
    assert (job.counters.crashes, job.counters.failures, claim.isolation) == (3, 0, 2)
    place.clean()


def test_a_crash_that_is_a_failure_too_keeps_the_books_clean(place):
    policy = Policy("reports", attempts_max=2, crash_is_failure=True)
    known = Catalogue([line_on(place, stage("one", policy=policy), stage("two"))])
    judge = place.hire()
    id = place.put().id
    for level in range(2):
        worker = place.hire()
        place.take(worker, isolation=level)
        place.store.end_worker(worker, KILLED)
        upkeep(place, judge, catalogue=known).once()
        place.clean()
        place.clock.push(60)  # such a crash backs off like any other failure
    job = place.see(id)
    assert (job.state, job.failed_reason) == (State.FAILED, FailedReason.EXHAUSTED)
    assert (job.counters.crashes, job.counters.failures) == (2, 2)


def test_jobs_of_a_stage_that_is_not_here_are_left_for_one_that_knows_it(place):
    judge, dead = place.hire(), place.hire()
    id = place.put().id
    place.take(dead)
    place.store.end_worker(dead, KILLED)
    notes = Notes()
    stranger = upkeep(place, judge, catalogue=Catalogue([]), notes=notes)
    assert stranger.once() == 0
    assert notes.names() == [EventName.STAGE_UNKNOWN]
    assert stranger.once() == 0
    assert notes.names() == [EventName.STAGE_UNKNOWN]  # once is enough
    assert notes.events[0].fields["request_id"] == id
    assert place.see(id).state is State.PROCESSING
    assert upkeep(place, judge).once() == 1
    assert place.see(id).state is State.QUEUED
    place.clean()


def test_a_dead_sweeper_settles_nothing(place):
    judge, dead = place.hire(), place.hire()
    place.put()
    place.take(dead)
    for worker in (dead, judge):
        place.store.end_worker(worker, KILLED)
    assert upkeep(place, judge).once() == 0  # it gets no duty
    with pytest.raises(WorkerDead):
        lost_jobs(place, judge).once()
    assert place.reader.attempts(1) == []


def test_a_result_that_came_before_the_sweep_stands(place):
    judge, other = place.hire(), place.hire()
    id = place.put().id
    (claim,) = place.take(other)
    place.settle(success(claim, other), by=other)
    place.store.end_worker(other, KILLED)
    assert upkeep(place, judge).once() == 0
    assert place.see(id).state is State.SUCCEEDED


def test_more_lost_jobs_than_a_batch_ask_for_another_round_at_once(place):
    judge, dead = place.hire(), place.hire()
    place.put_many(LOST_BATCH_MAX + 1)
    place.take(dead, LOST_BATCH_MAX)
    place.take(dead, 1)
    place.store.end_worker(dead, KILLED)
    sweeper = upkeep(place, judge)
    assert (sweeper.once(), sweeper.more) == (LOST_BATCH_MAX, True)
    assert (sweeper.once(), sweeper.more) == (1, False)


def test_a_sweeper_that_read_before_another_wrote_changes_nothing(place):
    """Both have read the same lost claims; the second write finds the tokens moved on."""
    first, second, dead = place.hire(), place.hire(), place.hire()
    place.put_many(2)
    place.take(dead, 2)
    place.store.end_worker(dead, KILLED)
    late = lost_jobs(place, second)
    records = [late.record_of(lost) for lost in place.store.lost_claims(limit=10)]
    assert upkeep(place, first).once() == 2
    before = place.everything()
    answers = place.settle(*records, by=second)
    assert [type(answer).__name__ for answer in answers] == ["Stale", "Stale"]
    assert place.everything() == before
    place.clean()


def test_two_sweepers_at_once_settle_each_job_once(anywhere):
    """Neither asks for the duty: it saves work, and the tokens keep the books."""
    places = [anywhere() for _ in range(2)]
    judges = [place.hire() for place in places]
    dead = places[0].hire()
    places[0].put_many(60)
    places[0].take(dead, 60)
    places[0].store.end_worker(dead, KILLED)
    notes = [Notes(), Notes()]
    start = threading.Barrier(2)

    def sweep(who: int) -> None:
        chore = lost_jobs(places[who], judges[who], notes[who])
        start.wait(20)
        chore.once()

    threads = [threading.Thread(target=sweep, args=(who,)) for who in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    retried = [fields["job_id"] for note in notes for fields in note.of(EventName.JOB_RETRIED)]
    assert len(retried) == len(set(retried)) == 60
    assert all(
        job.counters == Counters(starts=1, crashes=1) for job in places[0].reader.jobs(limit=99)
    )
    places[0].clean()


@pytest.mark.parametrize(
    ("wish", "state", "status"),
    [
        (OnLost.DROP, State.CANCELLED, "cancelled"),
        (OnLost.HAND_OVER, State.QUEUED, "handed_over"),
    ],
)
def test_a_dead_callers_job_becomes_what_the_caller_asked_for(either, wish, state, status):
    judge, caller = either.hire(), either.hire(role=Role.CALLER, ttl_s=86_400.0)
    claim = either.store.begin(either.new(), worker=caller, hard_s=60.0, on_lost=wish)
    assert isinstance(claim, Claim)
    either.store.end_worker(caller, KILLED)
    assert upkeep(either, judge).once() == 1
    job = either.see(claim.id)
    assert (job.state, job.counters.crashes, job.isolation) == (state, 0, 0)
    (attempt,) = either.reader.attempts(job.no)
    assert (attempt.status, attempt.worker) == (status, caller)
    assert "its caller is gone" in attempt.why_json
