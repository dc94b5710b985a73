"""Hard deadlines: what hangs while its worker beats is ended, and what only waits for the store is not."""

import pytest

from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.overrun_attempts import LOOK_S
from perdure.model.errors import StoreUnavailable
from perdure.model.events import EventName
from perdure.model.jobs import Claim, Counters, OnLost, Stale
from perdure.model.states import State
from perdure.model.workers import Role
from perdure.testing.store_contract.attempt_ends import success
from tests.engine.kit import DONE, Notes, Shop, line_on, stage
from tests.engine.upkeep.test_rounds import Watched
from tests.engine.upkeep.upkeeping import KILLED, MARGIN_S, upkeep

TIMEOUT_S = 60.0  # of the kit's stages


def test_an_attempt_that_hangs_while_its_worker_beats_ends_as_timed_out(either):
    judge, holder = either.hire(), either.hire()
    id = either.put().id
    (claim,) = either.take(holder)
    notes = Notes()
    either.live([judge, holder], TIMEOUT_S + MARGIN_S)
    assert upkeep(either, judge, notes=notes).once() == 0
    either.clock.push(0.001)
    assert upkeep(either, judge, notes=notes).once() == 1
    job = either.see(id)
    assert (job.state, job.error_kind) == (State.QUEUED, "timeout")
    assert job.counters == Counters(starts=1, failures=1)
    (attempt,) = either.reader.attempts(job.no)
    assert (attempt.status, attempt.kind, attempt.worker) == ("retrying", "timeout", holder)
    assert attempt.elapsed_s == pytest.approx(TIMEOUT_S + MARGIN_S + 0.001)
    assert '"matched":"stage timeout"' in attempt.why_json
    assert notes.names() == [EventName.JOB_RETRIED]
    (late,) = either.settle(success(claim, holder), by=holder)
    assert isinstance(late, Stale)
    either.clean()


def test_the_holder_is_told_to_stop_the_run_and_its_late_result_is_refused(place):
    """The pump of a worker whose stage hangs: it finds out, stops the run, and goes on working."""
    shop = Shop(place=place)
    place.put()
    shop.pump.once()
    (hung,) = shop.started
    judge = place.hire()
    place.live([judge, shop.worker], TIMEOUT_S + MARGIN_S + 1)
    assert upkeep(place, judge).once() == 1
    shop.pump.check_held()
    assert shop.stopped == [hung.no]
    shop.finish(hung)
    shop.pump.once()
    assert shop.notes.names()[-1] is EventName.RESULT_REFUSED
    assert place.see(hung.id).state is State.QUEUED
    assert shop.pump.empty
    place.clock.push(60)  # the retry is due
    shop.pump.once()
    again = shop.started[-1]
    shop.finish(again, DONE)
    shop.pump.once()
    place.clean()


def test_each_stage_has_its_own_limit(either):
    known = Catalogue([line_on(either, stage("one", timeout_s=5), stage("two", timeout_s=500))])
    judge, holder = either.hire(), either.hire()
    short = either.put().id
    either.put(lane=either.lanes["two"], stage="two")
    either.take(holder, 2)
    either.live([judge, holder], 5 + MARGIN_S + 1)
    assert upkeep(either, judge, catalogue=known).once() == 1
    assert either.see(short).state is State.QUEUED
    either.clean()


def test_an_attempt_of_a_stage_that_is_not_here_is_left_alone(either):
    judge, holder = either.hire(), either.hire()
    id = either.put().id
    either.take(holder)
    either.live([judge, holder], 1000)
    assert upkeep(either, judge, catalogue=Catalogue([])).once() == 0
    assert either.see(id).state is State.PROCESSING


def test_the_last_attempt_fails(either):
    judge, holder = either.hire(), either.hire()
    id = either.put().id
    for _ in range(3):
        assert either.take(holder)
        either.live([judge, holder], TIMEOUT_S + MARGIN_S + 1)
        assert upkeep(either, judge).once() == 1
        either.live([judge, holder], 60)
    job = either.see(id)
    assert (job.state, job.counters.failures) == (State.FAILED, 3)
    either.clean()


def test_a_store_that_was_away_ends_no_attempt(place):
    """Results that were ready meanwhile are on their way: their workers come first."""
    watched = Watched(place)
    judge, holder = place.hire(), place.hire()
    place.put()
    (claim,) = place.take(holder)
    sweeper = upkeep(watched, judge, patience_s=15.0)
    for _ in range(20):
        place.clock.push(1.0)
        assert sweeper.once() == 0
    watched.store.errors["overrun"] = StoreUnavailable("the store is away")
    place.clock.push(1.0)
    with pytest.raises(StoreUnavailable):
        sweeper.once()
    place.clock.push(600)
    watched.store.errors.clear()
    for _ in range(14):
        sweeper.once()
        place.clock.push(1.0)
    assert place.store.tokens_held(holder) == {claim.no: claim.token}
    place.settle(success(claim, holder), by=holder)
    place.clean()


@pytest.mark.parametrize(("patience_s", "after_s"), [(15.0, 15), (2.0, 5), (0.5, 5), (0.0, 0)])
def test_after_a_while_of_answers_what_is_still_held_is_ended(place, patience_s, after_s):
    judge, holder = place.hire(), place.hire()
    place.put()
    place.take(holder)
    place.clock.push(600)
    sweeper = upkeep(place, judge, patience_s=patience_s)
    ended = []
    for second in range(17):
        if sweeper.once():
            ended.append(second)
        place.clock.push(1.0)
    assert ended == [after_s]


def test_a_sweeper_that_paused_is_patient_again(place):
    judge, holder = place.hire(), place.hire()
    sweeper = upkeep(place, judge, patience_s=15.0)
    for _ in range(20):
        sweeper.once()
        place.clock.push(1.0)
    place.put()
    place.take(holder)
    place.clock.push(600)
    assert sweeper.once() == 0


def test_it_looks_every_few_seconds_only(place):
    watched = Watched(place)
    sweeper = upkeep(watched, place.hire())
    for _ in range(20):
        sweeper.once()
        place.clock.push(1.0)
    assert watched.store.calls["overrun"] == 20 / LOOK_S


def test_what_hangs_in_a_workers_own_hands_is_ended_too_and_its_late_word_refused(place):
    """The sweeper is the holder: what it says as the one must not be taken for a word of the other."""
    shop = Shop(place=place)
    place.put()
    shop.pump.once()
    (hung,) = shop.started
    place.live([shop.worker], TIMEOUT_S + MARGIN_S + 1)
    assert upkeep(place, shop.worker).once() == 1
    shop.finish(hung)
    shop.pump.once()
    assert shop.notes.names()[-1] is EventName.RESULT_REFUSED
    assert EventName.JOB_SUCCEEDED not in shop.notes.names()
    assert place.see(hung.id).state is State.QUEUED


def test_what_a_dead_worker_holds_is_lost_and_not_overrun(either):
    judge, dead = either.hire(), either.hire()
    either.put()
    either.take(dead)
    either.live([judge, dead], 1000)
    either.store.end_worker(dead, KILLED)
    assert either.store.overrun(dict.fromkeys(either.lanes.values(), 1.0), limit=9) == []
    assert upkeep(either, judge).once() == 1
    assert either.reader.jobs()[0].counters.crashes == 1


@pytest.mark.parametrize(
    ("wish", "state", "status"),
    [
        (OnLost.DROP, State.CANCELLED, "cancelled"),
        (OnLost.HAND_OVER, State.QUEUED, "handed_over"),
    ],
)
def test_the_job_of_a_caller_that_is_gone_is_found_by_its_own_limit(either, wish, state, status):
    judge, caller = either.hire(), either.hire(role=Role.CALLER, ttl_s=86_400.0)
    claim = either.store.begin(either.new(), worker=caller, hard_s=8.0, on_lost=wish)
    assert isinstance(claim, Claim)
    either.live([judge], 8)
    assert upkeep(either, judge).once() == 0
    either.clock.push(0.001)
    assert upkeep(either, judge).once() == 1
    job = either.see(claim.id)
    assert (job.state, job.counters.failures) == (state, 0)
    (attempt,) = either.reader.attempts(job.no)
    assert (attempt.status, attempt.worker) == (status, caller)
    assert "its caller is gone" in attempt.why_json
