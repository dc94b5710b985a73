"""A call, step by step, on both stores under a clock that the test pushes: what is durable after each step."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest

from perdure.engine.call import HARD_MORE_S, Call, CallTerms, Over, Try
from perdure.engine.observe import Observers
from perdure.engine.operate.single_jobs import cancel
from perdure.engine.record import Ending
from perdure.engine.settle import settle
from perdure.engine.stages import Catalogue, LaidPipeline
from perdure.engine.upkeep.left_callers import record_of_left_caller
from perdure.model.errors import StoreError, StoreUnavailable, UnknownName, WorkerDead
from perdure.model.events import EventName
from perdure.model.jobs import ZERO, Counters, OnLost
from perdure.model.kinds import KINDS, Kind
from perdure.model.operations import Deed, LaneScope
from perdure.model.outcomes import (
    Death,
    Evidence,
    Lost,
    Outcome,
    Raised,
    Returned,
    Snoozed,
    TimedOut,
    Usage,
    Withdrawn,
)
from perdure.model.states import AttemptStatus, FailedReason, State
from perdure.model.views import AttemptView, JobView
from perdure.model.workers import Role
from perdure.rules.decide import FLOWING, GateView
from perdure.rules.policy import RETRY, Policy, Profile
from perdure.rules.presets import preset
from perdure.testing import VirtualClock
from perdure.testing.store_contract.fresh_store import DEED, Place
from tests.engine.kit import Notes, Unreliable, stage
from tests.stores.kit import success
from tests.stores.rigs import PostgresRig, Rig, SqliteRig

SYNC = preset("gateway-sync")
DONE = Returned('"done"')
SLOW = TimedOut(60.0)
LEASE_S = 21_600.0


def failing(kind: Kind, *, wait_s: float | None = None, message: str = "boom") -> Raised:
    return Raised(Evidence(("some.Error",), message, kind=kind, wait_s=wait_s))


@dataclass(frozen=True)
class Standing:
    """A gate that stays as it is."""

    gate: GateView

    def end_call(self, ending, verdict) -> GateView:
        return self.gate

    def hear_decision(self, claim, decision) -> None:
        pass


@dataclass
class Counter:
    """A place where calls are made, by a caller that has a row of its own."""

    rig: Rig
    place: Place
    store: Any = None
    notes: Notes = field(default_factory=Notes)
    caller: int = 0
    line: LaidPipeline = field(init=False)

    def __post_init__(self) -> None:
        self.store = Unreliable(self.place.store)
        self.caller = self.place.hire(role=Role.CALLER, ttl_s=LEASE_S)
        stages = tuple(stage(name) for name in self.place.stages)
        self.line = LaidPipeline(self.place.pipeline, "q", "c", stages, dict(self.place.lanes))

    def call(
        self,
        *,
        policy: Policy = SYNC,
        wait_s: float = 10.0,
        on_lost: OnLost = OnLost.HAND_OVER,
        gate: GateView = FLOWING,
        **job: Any,
    ) -> Call:
        return Call(
            self.store,
            self.place.reader,
            self.line,
            self.place.new(**job),
            CallTerms(policy, wait_s, on_lost),
            worker=self.caller,
            clock=self.place.clock,
            chance=Random(7),
            observers=Observers([self.notes]),
            gates=lambda _: Standing(gate),
        )

    def begun(self, **options: Any) -> tuple[Call, Try]:
        call = self.call(**options)
        step = call.begin()
        assert isinstance(step, Try)
        return call, step

    def job(self) -> JobView:
        (job,) = self.place.reader.jobs()
        return job

    def attempts(self) -> list[AttemptView]:
        return self.place.reader.attempts(self.job().no)

    def statuses(self) -> list[str]:
        return [one.status.value for one in self.attempts()]

    def kept(self) -> tuple[int | None, str | None]:
        """The hard limit and the wish that stand on the job."""
        ((hard_at, on_lost),) = self.rig.rows("SELECT hard_at, on_lost FROM perdure_jobs")
        return hard_at, on_lost

    def clean(self) -> None:
        self.place.clean()


@pytest.fixture(params=["sqlite", "postgres"])
def counter(request):
    rig: Rig = (
        SqliteRig()
        if request.param == "sqlite"
        else PostgresRig(request.getfixturevalue("furnished"))
    )
    clock = VirtualClock()
    counter = Counter(rig, Place(rig.open(clock), clock))
    yield counter
    counter.place.close()
    rig.close()


def over(step: Try | Over) -> Over:
    assert isinstance(step, Over), step
    return step


def again(step: Try | Over) -> Try:
    assert isinstance(step, Try), step
    return step


# -- to the end -------------------------------------------------------------------------------


def test_two_stages_run_one_after_the_other_and_each_leaves_its_rows(counter):
    call, first = counter.begun(owner="ann")
    job = counter.job()
    assert (job.state, job.worker, job.owner) == (State.PROCESSING, counter.caller, "ann")
    second = again(call.end_stage(Returned('{"from":"one"}'), 0.5))
    assert (first.stage.name, second.stage.name) == ("one", "two")
    assert second.claim.input_json == '{"from":"one"}'
    end = over(call.end_stage(Returned('{"total":3}', "passed"), 0.25, Usage(10, 20)))
    assert (end.state, end.result_json, end.handed_over) == (State.SUCCEEDED, '{"total":3}', False)
    job = counter.job()
    assert (job.id, job.state, job.result_json, job.label) == (
        end.job_id,
        State.SUCCEEDED,
        '{"total":3}',
        "passed",
    )
    assert [(one.stage, one.status, one.token, one.worker) for one in counter.attempts()] == [
        ("one", AttemptStatus.SUCCESS, 1, counter.caller),
        ("two", AttemptStatus.SUCCESS, 3, counter.caller),
    ]
    assert {one.policy for one in counter.attempts()} == {"gateway-sync/1"}
    assert msgspec.json.decode(counter.attempts()[1].why_json)["usage"]["tokens_out"] == 20
    assert counter.rig.rows("SELECT stage FROM perdure_checkpoints") == [("one",)]
    counter.clean()


def test_what_is_durable_is_told_and_nothing_else(counter):
    call, _ = counter.begun()
    call.end_stage(DONE, 0.1)
    call.end_stage(DONE, 0.1)
    assert counter.notes.names() == [
        EventName.JOB_ENQUEUED,
        EventName.JOB_CLAIMED,
        EventName.JOB_ADVANCED,
        EventName.JOB_CLAIMED,
        EventName.JOB_SUCCEEDED,
    ]


def test_the_limit_and_the_wish_stay_with_the_job_for_as_long_as_its_caller_holds_it(counter):
    call, _ = counter.begun(wait_s=10.0, on_lost=OnLost.DROP)
    kept = counter.kept()
    began_us = int(counter.place.clock.now().timestamp() * 1_000_000)
    assert kept == (began_us + int((10 + HARD_MORE_S) * 1_000_000), "drop")
    call.end_stage(failing(Kind.NETWORK), 0.1)
    assert counter.kept() == kept
    call.end_stage(DONE, 0.1)
    assert counter.kept() == kept
    call.end_stage(failing(Kind.RATE_LIMITED, wait_s=30), 0.1)
    assert counter.kept() == (None, None)
    counter.clean()


# -- once more, here --------------------------------------------------------------------------


def test_a_fault_that_may_be_gone_is_tried_once_more_after_a_short_pause(counter):
    call, first = counter.begun()
    retry = again(call.end_stage(failing(Kind.UPSTREAM_ERROR), 0.5))
    assert 0.3 <= retry.pause_s <= 0.8
    assert (retry.stage.name, retry.claim.token) == ("one", first.claim.token + 2)
    assert retry.claim.counters == Counters(starts=2, failures=1)
    counter.clean()
    counter.place.clock.push(retry.pause_s)
    call.end_stage(DONE, 0.1)
    assert over(call.end_stage(DONE, 0.1)).state is State.SUCCEEDED
    failed, done, _ = counter.attempts()
    assert (failed.status, failed.number, failed.delay_s) == (AttemptStatus.RETRYING, 1, 0.0)
    assert (done.status, done.number) == (AttemptStatus.SUCCESS, 2)
    assert f"retry in {retry.pause_s:.1f} s" in failed.why_json
    assert EventName.JOB_RETRIED in counter.notes.names()
    counter.clean()


def test_the_pause_covers_the_whole_range_of_the_policy(counter):
    pauses = []
    for _ in range(40):
        call = counter.call()
        call._chance = Random(len(pauses))
        call.begin()
        pauses.append(again(call.end_stage(SLOW, 0.1)).pause_s)
    assert min(pauses) >= 0.3
    assert max(pauses) <= 0.8
    assert max(pauses) - min(pauses) > 0.3


def test_the_second_failure_is_handed_over(counter):
    call, _ = counter.begun()
    call.end_stage(SLOW, 1.0)
    end = over(call.end_stage(SLOW, 1.0))
    assert (end.handed_over, end.state) == (True, State.QUEUED)
    assert 0.3 <= end.due_in_s <= 0.8  # a worker's try would be the third in a row
    assert end.why.startswith("hand over to a durable job: timeout")
    assert counter.statuses() == ["retrying", "handed_over"]
    counter.clean()


def test_a_call_is_tried_once_more_in_all_not_once_a_stage(counter):
    call, _ = counter.begun()
    call.end_stage(SLOW, 0.1)
    call.end_stage(DONE, 0.1)
    end = over(call.end_stage(SLOW, 0.1))
    assert end.handed_over
    assert "has been tried again already" in end.why
    assert counter.statuses() == ["retrying", "success", "handed_over"]
    counter.clean()


# -- handed over ------------------------------------------------------------------------------


def test_a_rate_limit_is_never_waited_for_and_its_hint_is_when_the_job_is_due(counter):
    call, _ = counter.begun()
    end = over(call.end_stage(failing(Kind.RATE_LIMITED, wait_s=0.4), 0.1))
    assert (end.handed_over, end.due_in_s) == (True, 0.4)
    job = counter.job()
    assert (job.due_at - counter.place.clock.now()).total_seconds() == 0.4
    assert (job.error_kind, job.counters, job.past) == ("rate_limited", ZERO, ZERO)
    assert counter.statuses() == ["handed_over"]
    counter.clean()


def test_a_policy_that_would_retry_a_rate_limit_here_is_not_heard(counter):
    bold = Policy("bold", profile=Profile.SYNC, attempts_max=5, otherwise=RETRY)
    call, _ = counter.begun(policy=bold)
    end = over(call.end_stage(failing(Kind.RATE_LIMITED), 0.1))
    assert end.handed_over
    assert "a rate limit is not waited for here" in end.why
    counter.clean()


LONGER = [
    (failing(Kind.OVERLOADED, wait_s=5.0), 9.0, 5.0),  # longer than anybody waits here
    (failing(Kind.OVERLOADED, wait_s=0.7), 0.6, 0.7),  # longer than what is left
]


@pytest.mark.parametrize(("outcome", "left_s", "due_in_s"), LONGER)
def test_a_hint_that_is_longer_than_the_rest_is_when_the_job_is_due(
    counter, outcome, left_s, due_in_s
):
    call, _ = counter.begun(wait_s=10.0)
    counter.place.clock.push(10.0 - left_s)
    end = over(call.end_stage(outcome, 0.1))
    assert (end.handed_over, end.due_in_s) == (True, due_in_s)
    counter.clean()


def test_the_same_hint_is_waited_for_where_it_fits(counter):
    call, _ = counter.begun(wait_s=10.0)
    assert again(call.end_stage(failing(Kind.OVERLOADED, wait_s=0.7), 0.1)).pause_s == 0.7


def test_a_pause_that_does_not_fit_into_the_wait_is_not_begun(counter):
    call, _ = counter.begun(wait_s=1.0)
    counter.place.clock.push(0.75)
    end = over(call.end_stage(failing(Kind.NETWORK), 0.75))
    assert "too long with 0.2 s left" in end.why or "too long with 0.3 s left" in end.why
    assert 0.3 <= end.due_in_s <= 0.8
    counter.clean()


def test_a_snooze_belongs_in_the_queue(counter):
    call, _ = counter.begun()
    end = over(call.end_stage(Snoozed(0.1), 0.1))
    assert (end.handed_over, end.due_in_s) == (True, 0.1)
    assert counter.job().error_kind is None
    counter.clean()


@pytest.mark.parametrize("kind", [Kind.NETWORK, Kind.INVALID_OUTPUT])
def test_nothing_is_tried_again_here_while_the_gate_is_held(counter, kind):
    call, _ = counter.begun(gate=GateView("held"))
    end = over(call.end_stage(failing(kind), 0.1))
    assert end.handed_over
    assert "the upstream's gate is held" in end.why
    counter.clean()


def test_when_the_wait_is_over_the_stage_that_runs_is_handed_over(counter):
    call, _ = counter.begun(wait_s=2.0)
    call.end_stage(DONE, 0.5)
    counter.place.clock.push(2.0)
    end = over(call.end_wait(1.5, Usage(5)))
    assert (end.handed_over, end.due_in_s) == (True, 0.0)
    assert "the caller's wait of 2 s is over" in end.why
    job = counter.job()
    assert (job.stage, job.error_kind, job.input_json) == ("two", "timeout", '"done"')
    assert counter.attempts()[-1].elapsed_s == 1.5
    counter.clean()


def test_no_stage_is_begun_when_the_wait_is_over(counter):
    call, _ = counter.begun(wait_s=2.0)
    counter.place.clock.push(2.0)
    end = over(call.end_stage(DONE, 2.0))
    assert (end.handed_over, counter.statuses()) == (True, ["success"])
    assert "is over before stage 'two'" in end.why
    assert counter.job().stage == "two"
    counter.clean()


def test_the_last_stage_counts_even_when_the_wait_is_over(counter):
    call, _ = counter.begun(wait_s=2.0)
    call.end_stage(DONE, 0.1)
    counter.place.clock.push(3.0)
    assert over(call.end_stage(DONE, 3.0)).state is State.SUCCEEDED


def test_a_caller_that_goes_leaves_its_job_to_a_worker(counter):
    call, _ = counter.begun(on_lost=OnLost.HAND_OVER)
    end = over(call.leave(0.5))
    assert (end.handed_over, end.state) == (True, State.QUEUED)
    job = counter.job()
    assert (job.error_kind, job.counters) == (None, ZERO)
    assert counter.statuses() == ["handed_over"]
    counter.clean()


def rate_limited(call: Call) -> Try | Over:
    return call.end_stage(failing(Kind.RATE_LIMITED, wait_s=60.0), 1.0)


@pytest.mark.parametrize(
    ("passed_s", "hand_over"),
    [
        (5.0, lambda call: call.end_wait(5.0)),
        (5.0, lambda call: call.leave(5.0)),
        (1.0, rate_limited),  # it would be due after the deadline
    ],
    ids=["the wait is over", "the caller has gone", "a rate limit"],
)
def test_a_job_is_not_handed_over_beyond_its_deadline_and_has_expired(counter, passed_s, hand_over):
    call, _ = counter.begun(deadline_s=5.0)
    counter.place.clock.push(passed_s)
    end = over(hand_over(call))
    assert (end.handed_over, end.state, end.failed_reason) == (
        False,
        State.FAILED,
        FailedReason.EXPIRED,
    )
    assert "deadline" in end.why
    assert counter.statuses() == ["failed"]
    counter.clean()


def test_a_job_is_handed_over_right_before_its_deadline(counter):
    call, _ = counter.begun(deadline_s=5.0)
    counter.place.clock.push(4.9)
    assert over(call.end_wait(4.9)).handed_over
    counter.clean()


def test_a_caller_that_goes_may_have_asked_for_the_job_to_be_dropped(counter):
    call, _ = counter.begun(on_lost=OnLost.DROP)
    assert over(call.leave(0.5)).state is State.CANCELLED
    assert counter.statuses() == ["cancelled"]
    counter.clean()


# -- under the stage's own policy from then on ---------------------------------------------------


def worked_off(counter: Counter, *outcomes: Outcome) -> JobView:
    """Let a worker run what waits, one outcome after the other."""
    worker = counter.place.hire()
    counter.place.clock.push(1)  # the wait of what was handed over
    for outcome in outcomes:
        (claim,) = counter.place.take(worker)
        own = counter.line.stage(claim.stage)
        ending = Ending(claim, outcome, 0.1, worker)
        record = settle(ending, counter.line, own, chance=0.5)
        counter.place.settle(record, by=worker)
        counter.clean()
        counter.place.clock.push(10)  # the wait of the stages' policy
    return counter.job()


def test_a_worker_goes_on_at_the_failed_stage_with_counters_from_zero(counter):
    call, _ = counter.begun()
    call.end_stage(Returned('{"paid":1}'), 0.1)
    call.end_stage(SLOW, 0.1)
    call.end_stage(SLOW, 0.1)
    job = counter.job()
    assert (job.stage, job.input_json, job.counters) == ("two", '{"paid":1}', ZERO)
    job = worked_off(counter, SLOW, SLOW)
    assert (job.state, job.counters) == (State.QUEUED, Counters(starts=2, failures=2))
    assert worked_off(counter, DONE).state is State.SUCCEEDED
    rows = [(one.stage, one.number, one.status.value, one.policy) for one in counter.attempts()]
    assert rows == [
        ("one", 1, "success", "gateway-sync/1"),
        ("two", 1, "retrying", "gateway-sync/1"),
        ("two", 2, "handed_over", "gateway-sync/1"),
        ("two", 1, "retrying", "plain/1"),
        ("two", 2, "retrying", "plain/1"),
        ("two", 3, "success", "plain/1"),
    ]


def test_the_stage_s_policy_gives_up_after_its_own_number_of_attempts(counter):
    call, _ = counter.begun()
    call.end_stage(SLOW, 0.1)
    call.end_stage(SLOW, 0.1)
    job = worked_off(counter, SLOW, SLOW, SLOW)
    assert (job.state, job.failed_reason) == (State.FAILED, FailedReason.EXHAUSTED)


# -- no result ----------------------------------------------------------------------------------


def test_a_wrong_request_fails_at_once_with_the_public_message(counter):
    call, _ = counter.begun()
    end = over(call.end_stage(failing(Kind.INVALID_REQUEST, message="key sk-123 is wrong"), 0.1))
    assert (end.state, end.failed_reason) == (State.FAILED, FailedReason.FATAL)
    assert end.error_message == KINDS[Kind.INVALID_REQUEST].sentence
    job = counter.job()
    assert (job.state, job.error_message) == (State.FAILED, end.error_message)
    assert counter.statuses() == ["failed"]
    counter.clean()


def test_a_stage_may_withdraw_its_job(counter):
    call, _ = counter.begun()
    assert over(call.end_stage(Withdrawn("not wanted"), 0.1)).state is State.CANCELLED
    counter.clean()


def test_a_result_that_the_store_cannot_write_is_a_failure_of_the_stage(counter):
    call, _ = counter.begun()
    call.end_stage(DONE, 0.1)
    end = over(call.end_stage(Returned('"fine"', "half \ud800"), 0.1, Usage(7)))
    assert (end.state, counter.job().error_kind) == (State.FAILED, "internal")
    assert msgspec.json.decode(counter.attempts()[-1].why_json)["usage"]["tokens_in"] == 7
    counter.clean()


# -- a key that is taken --------------------------------------------------------------------------


def test_a_taken_key_gives_the_earlier_job_while_it_waits(counter):
    earlier = counter.place.put(key="k")
    end = over(counter.call(key="k").begin())
    assert (end.job_id, end.created, end.state) == (earlier.id, False, State.QUEUED)
    assert (end.handed_over, f"belongs to job {earlier.id}; it is queued" in end.why) == (
        False,
        True,
    )
    assert EventName.JOB_ENQUEUED not in counter.notes.names()


def test_a_taken_key_gives_the_earlier_result(counter):
    call, _ = counter.begun(key="k")
    call.end_stage(DONE, 0.1)
    call.end_stage(Returned('"first"'), 0.1)
    end = over(counter.call(key="k").begin())
    assert (end.state, end.result_json, end.created) == (State.SUCCEEDED, '"first"', False)
    assert len(counter.attempts()) == 2


def test_a_taken_key_gives_the_earlier_failure(counter):
    call, _ = counter.begun(key="k")
    call.end_stage(failing(Kind.INVALID_REQUEST), 0.1)
    end = over(counter.call(key="k").begin())
    assert (end.state, end.failed_reason) == (State.FAILED, FailedReason.FATAL)


# -- closed lanes ---------------------------------------------------------------------------------


def test_a_call_on_a_paused_pipeline_is_handed_over_without_a_try(counter):
    counter.place.control.pause(LaneScope.PIPELINE, "p", DEED)
    end = over(counter.call().begin())
    assert (end.handed_over, end.created, end.state) == (True, True, State.QUEUED)
    assert "stage 'one' may not begin now, pipeline p is paused" in end.why
    job = counter.job()
    assert (job.counters, job.token, counter.attempts()) == (ZERO, 0, [])
    assert counter.kept() == (None, None)
    counter.clean()
    counter.place.control.resume(LaneScope.PIPELINE, "p", DEED)
    assert worked_off(counter, DONE).stage == "two"


def test_a_pipeline_that_is_paused_meanwhile_is_left_after_the_stage_that_runs(counter):
    call, _ = counter.begun()
    counter.place.control.pause(LaneScope.PIPELINE, "p", DEED)
    end = over(call.end_stage(DONE, 0.1))
    assert (end.handed_over, counter.job().stage) == (True, "two")
    assert "stage 'two' may not begin now, pipeline p is paused" in end.why
    assert counter.kept() == (None, None)
    counter.clean()


def test_a_call_on_a_paused_queue_says_what_to_type(counter):
    counter.place.control.pause(LaneScope.QUEUE, "q", DEED)
    end = over(counter.call().begin())
    assert (
        "may not begin now, queue q is paused (to release it: perdure queues resume q)" in end.why
    )


def test_a_retry_does_not_begin_in_a_closed_lane(counter):
    call, _ = counter.begun()
    counter.place.control.pause(LaneScope.PIPELINE, "p", DEED)
    end = over(call.end_stage(SLOW, 0.1))
    assert (end.handed_over, counter.job().state) == (True, State.QUEUED)
    counter.clean()


# -- others, faults and the store ------------------------------------------------------------------


def test_a_job_that_a_person_cancels_meanwhile_is_told_as_cancelled(counter):
    call, step = counter.begun()
    opened = counter.place
    catalogue = Catalogue([counter.line])
    cancel(opened.control, opened.reader, catalogue, step.claim.id, deed=Deed("ann", "enough"))
    end = over(call.end_stage(DONE, 0.1))
    assert end.state is State.CANCELLED
    assert "enough" in end.error_message
    assert counter.statuses() == ["cancelled"]
    assert EventName.RESULT_REFUSED in counter.notes.names()
    counter.clean()


def test_a_job_that_was_taken_from_its_caller_goes_on_elsewhere(counter):
    call, step = counter.begun()
    counter.place.settle(
        record_of_left_caller(
            Ending(step.claim, SLOW, 25.0, counter.caller),
            OnLost.HAND_OVER,
            counter.line,
            step.stage,
        ),
        by=counter.place.hire(),
    )
    end = over(call.end_stage(DONE, 30.0))
    assert (end.handed_over, end.state) == (True, State.QUEUED)
    assert "another hand has taken the job" in end.why
    assert counter.statuses() == ["handed_over"]
    counter.clean()


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_result_whose_answer_was_lost_is_sent_again_and_counts_once(counter, fault):
    call, _ = counter.begun()
    call.end_stage(DONE, 0.1)
    counter.store.breaks = [fault]
    with pytest.raises(StoreUnavailable):
        call.end_stage(DONE, 0.1)
    assert over(call.resend()).state is State.SUCCEEDED
    assert counter.statuses() == ["success", "success"]
    counter.clean()


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_retry_whose_answer_was_lost_is_still_in_our_hands(counter, fault):
    call, first = counter.begun()
    counter.store.breaks = [fault]
    with pytest.raises(StoreUnavailable):
        call.end_stage(SLOW, 0.1)
    retry = again(call.resend())
    assert (retry.claim.token, retry.pause_s > 0) == (first.claim.token + 2, True)
    call.end_stage(DONE, 0.1)
    assert over(call.end_stage(DONE, 0.1)).state is State.SUCCEEDED
    counter.clean()


def test_a_caller_that_was_declared_dead_begins_and_records_nothing(counter):
    call, _ = counter.begun()
    counter.place.store.end_worker(counter.caller, Death("silent"))
    with pytest.raises(WorkerDead):
        call.end_stage(DONE, 0.1)
    with pytest.raises(WorkerDead):
        counter.call().begin()
    assert (counter.job().state, counter.attempts()) == (State.PROCESSING, [])


def test_a_damaged_job_is_left_to_a_worker(counter):
    call, _ = counter.begun()
    call.end_stage(DONE, 0.1)
    counter.rig.damage("DELETE FROM perdure_checkpoints")
    end = over(call.end_stage(SLOW, 0.1))
    assert end.handed_over
    assert "the result of the stage before is gone" in end.why
    assert counter.job().error_kind == "input_invalid"


def test_a_job_that_is_no_longer_there_is_said_so(counter):
    call, step = counter.begun()
    counter.place.settle(success(step.claim, counter.caller), by=None)
    no = step.claim.no
    counter.rig.damage(f"DELETE FROM perdure_jobs WHERE no = {no}")
    with pytest.raises(UnknownName, match="no longer in the store"):
        call.end_stage(DONE, 0.1)


def test_an_end_that_cannot_be_written_at_all_is_an_error_of_the_store(counter):
    call, _ = counter.begun()
    call._laid.lane_nos["one"] = call._laid.lane_nos["two"] = 2**70
    call._claim = msgspec.structs.replace(call._claim, lane=2**70)
    with pytest.raises(StoreError, match="cannot write the end of job"):
        call.end_stage(DONE, 0.1)
    assert counter.notes.names()[-1] is EventName.RESULT_REFUSED


# -- callers that never come back ----------------------------------------------------------------


def test_a_dead_caller_s_job_is_found_when_its_limit_has_passed_and_not_before(counter):
    _, step = counter.begun(wait_s=10.0)
    limits = {step.claim.lane: 5.0}  # the lane's own limit is not the caller's
    counter.place.clock.push(10 + HARD_MORE_S)
    assert counter.place.store.overrun(limits, limit=10) == []
    counter.place.clock.push(0.001)
    (found,) = counter.place.store.overrun(limits, limit=10)
    assert (found.claim.id, found.worker) == (step.claim.id, counter.caller)
    assert found.on_lost is OnLost.HAND_OVER


@pytest.mark.parametrize(
    ("wish", "state", "status"),
    [
        (OnLost.HAND_OVER, State.QUEUED, "handed_over"),
        (OnLost.DROP, State.CANCELLED, "cancelled"),
    ],
)
def test_a_dead_caller_s_job_ends_as_it_had_wished(counter, wish, state, status):
    call, _ = counter.begun(on_lost=wish)
    call.end_stage(DONE, 0.1)
    call.end_stage(SLOW, 0.1)
    counter.place.clock.push(100)
    limits = dict.fromkeys(counter.place.lanes.values(), 1.0)
    (found,) = counter.place.store.overrun(limits, limit=10)
    ending = Ending(found.claim, SLOW, 100.0, found.worker)
    own = counter.line.stage(found.claim.stage)
    record = record_of_left_caller(ending, found.on_lost, counter.line, own)
    counter.place.settle(record, by=counter.place.hire())
    assert counter.job().state is state
    assert counter.statuses() == ["success", "retrying", status]
    assert counter.kept() == (None, None)
    assert counter.place.store.overrun(limits, limit=10) == []
    counter.clean()


@pytest.mark.parametrize("wish", list(OnLost))
def test_a_caller_that_has_left_leaves_lost_jobs_with_their_wish(counter, wish):
    counter.begun(on_lost=wish)
    counter.place.store.end_worker(counter.caller, Death("stopped"))
    (found,) = counter.place.store.lost_claims(limit=10)
    assert (found.on_lost, found.death.why) == (wish, "stopped")


def test_a_worker_s_jobs_have_no_such_wish(counter):
    counter.place.put()
    worker = counter.place.hire()
    (claim,) = counter.place.take(worker)
    counter.place.clock.push(100)
    (found,) = counter.place.store.overrun({claim.lane: 5.0}, limit=10)
    counter.place.store.end_worker(worker, Death("exited", 1))
    (lost,) = counter.place.store.lost_claims(limit=10)
    assert (found.on_lost, lost.on_lost) == (None, None)


def test_nobody_declares_a_caller_dead_while_its_lease_lasts(counter):
    judge = counter.place.hire(ttl_s=15.0)
    counter.place.live([judge], 600.0, every_s=5.0)
    assert counter.place.store.mark_dead(by=judge) == ()
    assert counter.place.worker(counter.caller).dead_at is None


def test_a_crash_in_a_process_of_the_stage_s_own_is_judged_by_the_call_s_policy(counter):
    call, _ = counter.begun()
    end = over(call.end_stage(Lost(Death("exited", signal="SIGSEGV")), 0.1))
    assert (end.state, end.failed_reason) == (State.FAILED, FailedReason.CRASHED)
    counter.clean()
