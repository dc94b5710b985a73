"""record: every decision becomes exactly one record."""

from datetime import timedelta

import msgspec
import pytest

from perdure.engine.record import Ending, record_of
from perdure.engine.settle import settle
from perdure.engine.stages import LaidPipeline
from perdure.model.decisions import CancelJob, Counted, Fail, Release, Retry, Succeed, Why
from perdure.model.jobs import ZERO, Counters
from perdure.model.kinds import KINDS, Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import (
    Death,
    Evidence,
    Interrupted,
    Lost,
    Raised,
    Returned,
    Revoked,
    Snoozed,
    StageDeath,
    TimedOut,
    Unbegun,
    Withdrawn,
)
from perdure.model.states import TRANSITIONS, AttemptStatus, FailedReason, Move, State
from perdure.rules.policy import Policy
from tests.engine.kit import PLAIN, claim_of, stage

WHY = Why("because", "a rule", "plain/1")
SUCCEED = Succeed('{"total":3}', "passed", WHY)
LINE = LaidPipeline("p", "q", "c", (stage("one"), stage("two")), {"one": 11, "two": 22})


def recorded(decision, *, outcome=None, claim=None, carry_on=False, line=LINE, policy=PLAIN):
    held = claim or claim_of(lane=11, counters=Counters(starts=2, failures=1, crashes=0))
    ending = Ending(held, outcome or Returned("1"), 1.5, 7, carry_on)
    return record_of(ending, decision, line, stage(held.stage, policy=policy))


def retry(counted, *, kind=Kind.NETWORK, delay_s=5.0):
    return Retry(delay_s, counted, kind, WHY)


# decision: move, state, attempt status, what is counted.
TABLE = {
    "success of the last stage": (
        SUCCEED, {"claim": claim_of(stage="two")},
        (Move.SUCCEED, State.SUCCEEDED, AttemptStatus.SUCCESS, None),
    ),
    "success of an earlier stage": (
        SUCCEED, {}, (Move.ADVANCE, State.QUEUED, AttemptStatus.SUCCESS, None),
    ),
    "success while carrying on": (
        SUCCEED, {"carry_on": True},
        (Move.CARRY_ON, State.PROCESSING, AttemptStatus.SUCCESS, None),
    ),
    "counted retry": (
        retry(Counted.FAILURES), {},
        (Move.RETRY, State.QUEUED, AttemptStatus.RETRYING, "failures"),
    ),
    "uncounted wait": (
        retry(Counted.WAITS), {}, (Move.RETRY, State.QUEUED, AttemptStatus.WAITING, "waits"),
    ),
    "snooze": (
        retry(Counted.SNOOZES, kind=None), {},
        (Move.RETRY, State.QUEUED, AttemptStatus.WAITING, "snoozes"),
    ),
    "failed probe": (
        retry(Counted.PROBES), {}, (Move.RETRY, State.QUEUED, AttemptStatus.WAITING, "probes"),
    ),
    "crash": (
        retry(Counted.CRASHES, delay_s=0.0), {},
        (Move.RETRY, State.QUEUED, AttemptStatus.INTERRUPTED, "crashes"),
    ),
    "release": (
        Release(WHY), {}, (Move.RELEASE, State.QUEUED, AttemptStatus.INTERRUPTED, "releases"),
    ),
    "failure": (
        Fail(FailedReason.FATAL, Counted.FAILURES, Kind.AUTH, WHY), {},
        (Move.FAIL, State.FAILED, AttemptStatus.FAILED, "failures"),
    ),
    "cancellation": (
        CancelJob(WHY), {}, (Move.CANCEL, State.CANCELLED, AttemptStatus.CANCELLED, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_a_decision_becomes_this_record(name):
    decision, options, expected = TABLE[name]
    record = recorded(decision, **options)
    attempt = record.attempt
    assert (record.move, record.state, attempt.status, attempt.counted) == expected
    assert (State.PROCESSING, record.move, record.state) in TRANSITIONS
    assert (record.no, record.id, record.token) == (1, "job-00001", 1)
    assert msgspec.json.decode(attempt.why_json)["text"] == "because"
    assert (attempt.worker, attempt.elapsed_s, attempt.policy) == (7, 1.5, "plain/1")


def test_the_last_success_keeps_result_and_label():
    record = recorded(SUCCEED, claim=claim_of(stage="two", past=Counters(starts=4)))
    assert (record.result_json, record.label) == ('{"total":3}', "passed")
    assert (record.checkpoint_stage, record.delay_s, record.reclaim) == (None, None, False)
    assert (record.counters, record.past) == (Counters(starts=1), Counters(starts=4))


@pytest.mark.parametrize("carry_on", [False, True])
def test_an_earlier_success_checkpoints_and_goes_to_the_next_lane(carry_on):
    claim = claim_of(counters=Counters(starts=3, failures=2), past=Counters(starts=1))
    record = recorded(SUCCEED, claim=claim, carry_on=carry_on)
    assert (record.stage, record.lane, record.reclaim) == ("two", 22, carry_on)
    assert (record.checkpoint_stage, record.checkpoint_json) == ("one", '{"total":3}')
    assert (record.counters, record.past) == (ZERO, Counters(starts=4, failures=2))
    assert (record.result_json, record.label, record.delay_s) == (None, None, 0.0)


def test_a_retry_keeps_the_public_sentence_and_never_the_exceptions_text():
    seen = Raised(Evidence(("x.E",), "password=hunter2"))
    record = recorded(retry(Counted.FAILURES), outcome=seen)
    assert record.error_kind == "network"
    assert record.error_message == KINDS[Kind.NETWORK].sentence
    assert record.attempt.message == "password=hunter2"
    assert msgspec.json.decode(record.attempt.evidence_json)["names"] == ["x.E"]


def test_a_retry_raises_its_counter_and_only_a_wait_adds_to_the_time_waited():
    assert recorded(retry(Counted.FAILURES)).counters == Counters(starts=2, failures=2)
    assert recorded(retry(Counted.WAITS)).counters == Counters(
        starts=2, failures=1, waits=1, waited_s=5.0
    )
    assert recorded(retry(Counted.SNOOZES, kind=None)).counters == Counters(
        starts=2, failures=1, snoozes=1
    )
    assert recorded(Release(WHY)).counters == Counters(starts=2, failures=1, releases=1)


def test_a_snooze_and_a_release_leave_no_error_behind():
    for decision in (retry(Counted.SNOOZES, kind=None), Release(WHY)):
        record = recorded(decision)
        assert (record.error_kind, record.error_message) == (None, None)


def test_a_failure_keeps_reason_and_kind():
    record = recorded(Fail(FailedReason.EXPIRED, Counted.WAITS, Kind.RATE_LIMITED, WHY))
    assert (record.failed_reason, record.error_kind) == (FailedReason.EXPIRED, "rate_limited")
    assert (record.counters.waits, record.counters.waited_s) == (1, 0.0)
    assert record.delay_s is None


def test_a_lost_attempt_keeps_the_death_as_its_evidence():
    record = recorded(retry(Counted.CRASHES), outcome=Lost(Death("exited", signal="SIGKILL")))
    assert msgspec.json.decode(record.attempt.evidence_json)["signal"] == "SIGKILL"
    assert record.attempt.message == ""


# -- isolation ---------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "level"), [(0, 1), (1, 2), (2, 2), (9, 2)])
def test_each_crash_sends_the_job_further_apart(before, level):
    claim = claim_of(counters=Counters(starts=1, crashes=before), isolation=min(before, 2))
    assert recorded(retry(Counted.CRASHES), claim=claim).isolation == level


@pytest.mark.parametrize(("crashes", "level"), [(0, 0), (1, 0), (1, 1), (2, 2)])
def test_a_crash_in_a_process_of_the_stages_own_makes_no_suspect(crashes, level):
    claim = claim_of(counters=Counters(starts=2, crashes=crashes), isolation=level)
    died = Lost(StageDeath("exited", exit_status=9))
    record = recorded(retry(Counted.CRASHES), claim=claim, outcome=died)
    assert (record.counters.crashes, record.isolation) == (crashes + 1, level)
    failed = recorded(retry(Counted.FAILURES), claim=claim)
    assert failed.isolation == level
    worker = recorded(retry(Counted.CRASHES), claim=claim)
    assert worker.isolation == min(crashes + 1, 2)


def test_a_suspect_that_fails_in_another_way_stays_a_suspect():
    claim = claim_of(counters=Counters(starts=2, crashes=1), isolation=1)
    for decision in (retry(Counted.FAILURES), retry(Counted.WAITS), Release(WHY)):
        assert recorded(decision, claim=claim).isolation == 1


def test_a_suspect_that_succeeds_is_none_in_the_next_stage_and_does_not_carry_on():
    claim = claim_of(counters=Counters(starts=2, crashes=1), isolation=1)
    record = recorded(SUCCEED, claim=claim, carry_on=True)
    assert (record.isolation, record.reclaim, record.move) == (0, False, Move.ADVANCE)


def test_a_suspect_stays_one_while_a_later_stage_counts_the_crashes_of_the_whole_job():
    """One stage whose policy does not lay between, and a third crash among others failed the job."""
    names = {"one": 11, "two": 22, "three": 33}
    line = LaidPipeline(
        "p",
        "q",
        "c",
        (stage("one"), stage("two"), stage("three", policy=Policy("j", scope="job"))),
        names,
    )
    claim = claim_of(counters=Counters(starts=3, crashes=2), isolation=2)
    record = recorded(SUCCEED, claim=claim, carry_on=True, line=line)
    assert (record.stage, record.isolation, record.reclaim) == ("two", 2, False)
    later = claim_of(stage="two", past=Counters(crashes=2), counters=Counters(1), isolation=2)
    assert recorded(retry(Counted.CRASHES), claim=later, line=line).isolation == 2


def test_a_suspect_of_two_stages_is_alone_where_their_crashes_are_counted_together():
    """One crash in each of two stages, neither of which counts the other's: the third failed the job among others."""
    stages = (stage("one"), stage("two"), stage("three", policy=Policy("j", scope="job")))
    line = LaidPipeline("p", "q", "c", stages, {"one": 11, "two": 22, "three": 33})
    some = {"past": Counters(crashes=1), "counters": Counters(starts=2, crashes=1)}
    claim = claim_of(stage="two", isolation=1, **some)
    record = recorded(SUCCEED, claim=claim, carry_on=True, line=line)
    assert (record.stage, record.isolation, record.reclaim) == ("three", 2, False)


def test_under_a_policy_for_the_whole_job_a_suspect_stays_one():
    by_job = Policy("j", scope="job")
    line = LaidPipeline(
        "p", "q", "c", (stage("one"), stage("two", policy=by_job)), {"one": 11, "two": 22}
    )
    claim = claim_of(counters=Counters(starts=2, crashes=1), isolation=1)
    record = recorded(SUCCEED, claim=claim, carry_on=True, line=line, policy=by_job)
    assert (record.isolation, record.reclaim) == (1, False)
    later = claim_of(
        stage="two", past=Counters(crashes=1), counters=Counters(starts=1), isolation=1
    )
    crashed = recorded(retry(Counted.CRASHES), claim=later, policy=by_job)
    assert crashed.isolation == 2


def test_where_a_crash_is_a_failure_both_are_counted():
    policy = Policy("reports", crash_is_failure=True)
    record = recorded(retry(Counted.CRASHES), policy=policy)
    assert (record.counters.crashes, record.counters.failures) == (1, 2)
    assert record.attempt.counted == "crashes,failures"


# -- settling: outcome → record in one walk ----------------------------------------------

WALK = [
    (Returned("1"), Move.ADVANCE, None),
    (Raised(Evidence(("builtins.ConnectionError",))), Move.RETRY, 10.0),
    (TimedOut(60.0), Move.RETRY, 10.0),
    (Lost(Death("silent")), Move.RETRY, 0.0),
    (Snoozed(3.0), Move.RETRY, 3.0),
    (Interrupted(), Move.RELEASE, 0.0),
    (Withdrawn(), Move.CANCEL, None),
    (Revoked(), Move.CANCEL, None),
]


@pytest.mark.parametrize(
    ("outcome", "move", "delay_s"), WALK, ids=[type(o).__name__ for o, _, _ in WALK]
)
def test_every_outcome_is_settled_by_the_same_walk(outcome, move, delay_s):
    record = settle(Ending(claim_of(), outcome, 2.0, 7), LINE, LINE.stages[0], chance=0.5)
    assert record.move is move
    if move is not Move.ADVANCE:
        assert record.delay_s == delay_s


@pytest.mark.parametrize(
    ("outcome", "called"),
    [
        (Returned("1"), True), (TimedOut(60.0), True), (Interrupted(), True),
        (Interrupted(begun=False), False), (Unbegun(), False),
    ],
)  # fmt: skip
def test_an_attempt_whose_stage_never_began_has_called_nobody(outcome, called):
    calling = replace(LINE.stages[0], upstream="api")
    ending = Ending(claim_of(), outcome, 2.0, 7)
    assert settle(ending, LINE, calling, chance=0.5).attempt.called is called


def test_a_deadline_is_compared_with_the_claims_time_plus_the_time_since():
    failed = Raised(Evidence(("builtins.ConnectionError",)))
    claim = claim_of(deadline_s=30.0)
    in_time = settle(Ending(claim, failed, 20.0, 7), LINE, LINE.stages[0], chance=0.5)
    late = settle(Ending(claim, failed, 20.001, 7), LINE, LINE.stages[0], chance=0.5)
    assert in_time.move is Move.RETRY
    assert (late.move, late.failed_reason) == (Move.FAIL, FailedReason.EXPIRED)


def test_a_time_that_the_store_has_just_told_goes_first():
    claim = claim_of(deadline_s=30.0)
    told = claim.claimed_at + timedelta(seconds=31)
    lost = Ending(claim, Lost(Death("silent")), 0.0, 7)
    record = settle(lost, LINE, LINE.stages[0], chance=0.5, now=told)
    assert record.failed_reason is FailedReason.EXPIRED


def test_the_attempt_knows_which_stage_it_was():
    other = replace(PLAIN, attempts_max=9)
    one = recorded(SUCCEED).attempt.config_hash
    assert one == recorded(SUCCEED).attempt.config_hash
    assert one != recorded(SUCCEED, policy=other).attempt.config_hash
