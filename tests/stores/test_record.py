"""record: the guard, the receipt of a repeat, the re-claim, the bad row, the dead writer."""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from perdure.model.errors import WorkerDead
from perdure.model.jobs import Counters, Receipt, Refused, Stale
from perdure.model.outcomes import Death
from perdure.model.states import State
from tests.stores.kit import (
    Place,
    advance,
    cancelled,
    crash,
    failure,
    file_in,
    release,
    retry,
    success,
)


@pytest.fixture
def claim(place, worker):
    """One job in the hands of the worker."""
    place.put()
    return place.take(worker)[0]


def test_a_success_is_final_and_keeps_its_result(place, worker, claim):
    place.clock.push(2)
    record = replace(success(claim, worker, result_json='{"total":3}'), label="passed")
    (receipt,) = place.settle(record, by=worker)
    assert receipt == Receipt(claim.no, claim.id, claim.token, State.SUCCEEDED, None)
    job = place.see(claim.id)
    assert (job.state, job.result_json, job.label) == (State.SUCCEEDED, '{"total":3}', "passed")
    assert (job.finished_at, job.worker, job.token) == (place.clock.now(), None, claim.token + 1)
    place.clean()


def test_a_failure_is_a_dead_letter_with_its_reason(place, worker, claim):
    place.settle(failure(claim, worker), by=worker)
    job = place.see(claim.id)
    assert (job.state, job.failed_reason, job.error_kind) == (
        State.FAILED,
        "fatal",
        "input_invalid",
    )
    assert job.counters.failures == 1
    (group,) = place.reader.failures()
    assert (group.reason, group.kind, group.count, group.example_id) == (
        "fatal", "input_invalid", 1, claim.id,
    )  # fmt: skip
    place.clean()


def test_a_retry_waits_for_its_delay_by_the_stores_clock(place, worker, claim):
    place.clock.push(100)
    (receipt,) = place.settle(retry(claim, worker, delay_s=2.5), by=worker)
    due_at = place.clock.now() + timedelta(seconds=2.5)
    assert (receipt.state, receipt.due_at) == (State.QUEUED, due_at)
    job = place.see(claim.id)
    assert (job.due_at, job.error_kind, job.finished_at) == (due_at, "network", None)


@pytest.mark.parametrize("delay_s", [0.0000001, 0.1 + 0.2, 1 / 3, 1e-6])
def test_a_delay_is_never_shortened_by_rounding(place, worker, claim, delay_s):
    (receipt,) = place.settle(retry(claim, worker, delay_s=delay_s), by=worker)
    assert (receipt.due_at - place.clock.now()).total_seconds() >= delay_s


def test_the_attempt_is_kept_as_it_was_told(place, worker, claim):
    place.clock.push(3)
    attempt = replace(
        retry(claim, worker).attempt,
        message="reset ' \" \\ 🎉",
        evidence_json='{"names":["x"]}',
        why_json='{"text":"retry"}',
    )
    place.settle(replace(retry(claim, worker, delay_s=5.0), attempt=attempt), by=worker)
    (seen,) = place.reader.attempts(claim.no)
    assert (seen.token, seen.stage, seen.number, seen.life) == (1, "one", 1, 1)
    assert (seen.status, seen.counted, seen.kind) == ("retrying", "failures", "network")
    assert (seen.message, seen.policy) == ("reset ' \" \\ 🎉", "plain/1")
    assert (seen.why_json, seen.evidence_json) == ('{"text":"retry"}', '{"names":["x"]}')
    assert (seen.worker, seen.delay_s, seen.elapsed_s) == (worker, 5.0, 0.5)
    assert (seen.claimed_at, seen.settled_at) == (claim.claimed_at, place.clock.now())
    assert seen.due_at == place.clock.now() + timedelta(seconds=5)


def test_the_next_stage_gets_the_result_of_the_one_before(place, worker, claim):
    place.settle(advance(claim, worker, place.lanes["two"], value_json="[1,2]"), by=worker)
    (after,) = place.take(worker)
    assert (after.stage, after.lane) == ("two", place.lanes["two"])
    assert (after.input_json, after.payload_json) == ("[1,2]", claim.payload_json)
    assert after.counters == Counters(starts=1)
    assert after.past == Counters(starts=1)
    place.settle(success(after, worker), by=worker)
    assert [(one.stage, one.status) for one in place.reader.attempts(claim.no)] == [
        ("one", "success"), ("two", "success"),
    ]  # fmt: skip
    place.clean()


def test_a_retry_of_a_later_stage_keeps_its_input(place, worker, claim):
    place.settle(advance(claim, worker, place.lanes["two"]), by=worker)
    (second,) = place.take(worker)
    place.settle(retry(second, worker, delay_s=0.0), by=worker)
    (third,) = place.take(worker)
    assert third.input_json == second.input_json == '{"from":"one"}'


# -- the guard ---------------------------------------------------------------------------

ENDINGS = [success, retry, failure, crash, release, cancelled]


@pytest.mark.parametrize("end", ENDINGS)
@pytest.mark.parametrize("off_by", [-1, 1, 1000])
def test_a_record_with_another_token_writes_nothing_at_all(place, worker, claim, end, off_by):
    before = place.everything()
    stale = replace(end(claim, worker), token=claim.token + off_by)
    assert place.settle(stale, by=worker) == (Stale(claim.no, claim.id, stale.token),)
    assert place.everything() == before


def test_a_stale_advance_leaves_no_attempt_and_no_checkpoint(place, worker, claim):
    before = place.everything()
    stale = replace(advance(claim, worker, place.lanes["two"], reclaim=True), token=claim.token + 1)
    assert place.settle(stale, by=worker) == (Stale(claim.no, claim.id, stale.token),)
    assert place.everything() == before


def test_a_writer_that_was_overtaken_writes_nothing(place, worker, claim):
    other = place.hire()
    place.settle(release(claim, None), by=None)
    (theirs,) = place.take(other)
    before = place.everything()
    assert isinstance(place.settle(success(claim, worker), by=worker)[0], Stale)
    assert place.everything() == before
    assert isinstance(place.settle(success(theirs, other), by=other)[0], Receipt)
    place.clean()


def test_a_word_about_a_job_that_somebody_else_settled_is_stale(place, worker, claim):
    """The attempt row of this token is there, but it is not ours."""
    place.settle(cancelled(claim, worker), by=None)
    before = place.everything()
    assert isinstance(place.settle(success(claim, worker), by=worker)[0], Stale)
    assert place.everything() == before
    assert place.see(claim.id).state is State.CANCELLED
    place.clean()


def test_without_the_guard_a_late_writer_would_be_caught_by_the_audit(place, worker, claim):
    """The broken twin: the same late word, let in by hand."""
    place.settle(success(claim, worker), by=worker)
    place.damage(
        "UPDATE perdure_jobs SET state = 'failed', failed_reason = 'fatal'",
    )
    assert "failure_without_attempt" in {finding.check for finding in place.reader.audit()}


# -- repeats -----------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDINGS)
def test_a_record_that_is_sent_again_gets_its_first_receipt(place, worker, claim, end):
    record = end(claim, worker)
    (first,) = place.settle(record, by=worker)
    before = place.everything()
    place.clock.push(60)
    (again,) = place.settle(record, by=worker)
    assert again == replace(first, repeated=True)
    assert place.everything() == before
    place.clean()


def test_a_receipt_is_found_again_after_the_job_has_moved_on(place, worker, claim):
    record = release(claim, worker)
    (first,) = place.settle(record, by=worker)
    (after,) = place.take(worker)
    place.settle(success(after, worker), by=worker)
    assert place.settle(record, by=worker) == (replace(first, repeated=True),)


def test_a_batch_that_is_sent_again_is_answered_one_by_one(place, worker):
    place.put_many(3)
    first, second, third = place.take(worker, 3)
    place.settle(success(first, worker), retry(second, worker), by=worker)
    answers = place.settle(
        success(first, worker), retry(second, worker), success(third, worker), by=worker
    )
    assert [(answer.no, answer.repeated) for answer in answers] == [
        (1, True),
        (2, True),
        (3, False),
    ]
    place.clean()


# -- carrying on -------------------------------------------------------------------------


def test_carrying_on_claims_the_next_stage_in_the_same_transaction(place, worker, claim):
    place.clock.push(1)
    (receipt,) = place.settle(advance(claim, worker, place.lanes["two"], reclaim=True), by=worker)
    after = receipt.claim
    assert (after.stage, after.token, after.counters.starts) == ("two", claim.token + 2, 1)
    assert (after.input_json, after.claimed_at) == ('{"from":"one"}', place.clock.now())
    assert after.past.starts == 1
    assert place.store.held(worker) == {claim.no: claim.token + 2}
    place.settle(success(after, worker), by=worker)
    place.clean()


def test_a_carry_on_that_is_sent_again_gets_its_claim_again(place, worker, claim):
    record = advance(claim, worker, place.lanes["two"], reclaim=True)
    (first,) = place.settle(record, by=worker)
    before = place.everything()
    (again,) = place.settle(record, by=worker)
    assert again == replace(first, repeated=True)
    assert again.claim is not None
    assert place.everything() == before


def test_a_carry_on_that_is_sent_again_too_late_gets_no_claim(place, worker, claim):
    record = advance(claim, worker, place.lanes["two"], reclaim=True)
    (first,) = place.settle(record, by=worker)
    place.settle(release(first.claim, worker), by=worker)
    (again,) = place.settle(record, by=worker)
    assert (again.repeated, again.claim) == (True, None)


def test_records_are_written_before_the_claims_of_the_same_turn(place, worker, claim):
    turn = place.turn([release(claim, worker)], worker, 5)
    assert [one.id for one in turn.claims] == [claim.id]
    assert turn.claims[0].token == claim.token + 2


# -- bad rows ----------------------------------------------------------------------------

BAD = {
    "a row that breaks a check": {"isolation": 7},
    "a row without what the state needs": {"state": State.FAILED},
    "a lane that does not exist": {"lane": 12345},
    "half of a surrogate pair": {"label": "half \ud800"},
    "a wait that is no number": {"delay_s": float("nan")},
    "a wait beyond all calendars": {"delay_s": 1e300},
    "a label that is no text": {"label": object()},
}


@pytest.mark.parametrize("what", BAD)
def test_one_bad_row_is_refused_and_its_ninety_nine_neighbours_land(place, worker, what):
    place.put_many(100)
    claims = place.take(worker, 100)
    records = [success(claim, worker) for claim in claims]
    records[41] = replace(retry(claims[41], worker), **BAD[what])
    answers = {answer.no: answer for answer in place.settle(*records, by=worker)}
    assert isinstance(answers[42], Refused)
    assert answers[42].reason
    assert sum(isinstance(answer, Receipt) for answer in answers.values()) == 99
    assert place.see(claims[41].id).state is State.PROCESSING
    assert place.reader.attempts(42) == []
    assert place.reader.books().succeeded == 99
    place.clean()


def test_a_refused_row_can_be_recorded_better(place, worker, claim):
    assert isinstance(place.settle(replace(retry(claim, worker), lane=99), by=worker)[0], Refused)
    assert isinstance(place.settle(failure(claim, worker), by=worker)[0], Receipt)
    place.clean()


def test_a_bad_row_does_not_keep_the_turn_from_claiming(place, worker, claim):
    place.put()
    turn = place.turn([replace(retry(claim, worker), isolation=9)], worker, 1)
    assert isinstance(turn.settled[0], Refused)
    assert len(turn.claims) == 1


def test_a_stale_row_among_good_ones_is_only_itself(place, worker):
    place.put_many(3)
    claims = place.take(worker, 3)
    records = [success(claim, worker) for claim in claims]
    records[1] = replace(records[1], token=99)
    kinds = {answer.no: type(answer) for answer in place.settle(*records, by=worker)}
    assert kinds == {1: Receipt, 2: Stale, 3: Receipt}
    assert place.see(claims[1].id).state is State.PROCESSING


# -- the dead ----------------------------------------------------------------------------


def test_a_dead_worker_writes_nothing(place, worker, claim):
    place.put()
    place.store.end_worker(worker, Death("exited", exit_status=1))
    before = place.everything()
    for records, order in (
        ([success(claim, worker)], None),
        ([], place.order(worker, 1)),
        ([success(claim, worker)], place.order(worker, 1)),
        ([], None),
    ):
        with pytest.raises(WorkerDead, match=rf"worker {worker} was declared dead"):
            place.store.turn(records, order, by=worker)
        assert place.everything() == before


def test_a_worker_that_never_was_writes_nothing(place, worker, claim):
    with pytest.raises(WorkerDead):
        place.settle(success(claim, worker), by=9999)


def test_a_caller_holds_no_lease_and_needs_none(place, worker, claim):
    (receipt,) = place.settle(cancelled(claim, worker), by=None)
    assert receipt.state is State.CANCELLED
    place.clean()


def test_a_waiting_job_is_cancelled_without_an_attempt(place):
    id = place.put().id
    job = place.see(id)
    (claim,) = place.take(place.hire())
    place.settle(release(claim, None), by=None)
    job = place.see(id)
    plain = replace(cancelled(claim, None), token=job.token, attempt=None, counters=job.counters)
    (receipt,) = place.settle(plain, by=None)
    assert receipt.state is State.CANCELLED
    assert [one.status for one in place.reader.attempts(job.no)] == ["interrupted"]
    place.clean()


def test_everything_a_record_says_survives_a_new_connection(tmp_path):
    place = Place(file_in(tmp_path))
    worker = place.hire()
    place.put(key="k", owner="ann", priority=2, deadline_s=50)
    (claim,) = place.take(worker)
    place.settle(advance(claim, worker, place.lanes["two"]), by=worker)
    (second,) = place.take(worker)
    place.settle(retry(second, worker), by=worker)
    seen = place.see(claim.id)
    attempts = place.reader.attempts(claim.no)
    place.close()
    again = Place(file_in(tmp_path), clock=place.clock)
    assert again.see(claim.id) == seen
    assert again.reader.attempts(claim.no) == attempts
    assert msgspec.to_builtins(seen.past) == msgspec.to_builtins(Counters(starts=1))
    again.clean()
    again.close()
