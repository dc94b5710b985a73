"""record: what a job becomes, the receipt of a repeat, the re-claim, the bad row among good ones."""

from datetime import timedelta
from typing import Any

from perdure.model.jobs import Counters, Receipt, Record, RecordRefused, Stale
from perdure.model.nouns import replace
from perdure.model.states import FailedReason, Move, State
from perdure.testing.store_contract.attempt_ends import (
    ENDINGS,
    advance,
    cancellation,
    failure,
    release,
    retry,
    snooze,
    success,
)
from perdure.testing.store_contract.fresh_store import OnAFreshStore

# What no store can hold, as changes of a retry.
BAD: dict[str, dict[str, Any]] = {
    "a level that is none": {"isolation": 7},
    "a failure without a reason": {"state": State.FAILED},
    "half of a surrogate pair": {"label": "half \ud800"},
    "a wait that is no number": {"delay_s": float("nan")},
    "a wait beyond all calendars": {"delay_s": 1e300},
    "a wait beyond the year 9999": {"delay_s": 1e12},
    "a label that is no text": {"label": object()},
}


class SettleContract(OnAFreshStore):
    """What a record makes of its job."""

    def test_a_success_is_final_and_keeps_its_result(self) -> None:
        claim = self.one_claim()
        self.clock.push(2)
        record = replace(success(claim, self.worker, result_json='{"total":3}'), label="passed")
        (receipt,) = self.place.settle(record, by=self.worker)
        assert receipt == Receipt(claim.no, claim.id, claim.token, State.SUCCEEDED, None)
        job = self.place.see(claim.id)
        assert (job.state, job.result_json, job.label) == (State.SUCCEEDED, '{"total":3}', "passed")
        assert (job.finished_at, job.worker) == (self.clock.now(), None)
        assert job.token == claim.token + 1
        self.place.clean()

    def test_of_two_words_about_one_claim_in_a_batch_the_first_counts(self) -> None:
        run = self.place.begin_run()
        self.place.put(run=run.no)
        worker = self.place.hire()
        (claim,) = self.place.take(worker)
        first, second = self.place.settle(success(claim, worker), failure(claim, worker), by=worker)
        assert isinstance(first, Receipt)
        assert isinstance(second, Receipt)
        assert (first.state, first.repeated) == (State.SUCCEEDED, False)
        assert (second.state, second.repeated) == (State.SUCCEEDED, True)
        assert self.place.see(claim.id).state is State.SUCCEEDED
        assert self.place.see_run(run).counts.succeeded == 1
        self.place.clean()

    def test_a_wait_that_is_cancelled_twice_in_a_batch_is_cancelled_once(self) -> None:
        run = self.place.begin_run()
        job = self.place.see(self.place.put(run=run.no).id)
        word = Record(
            no=job.no,
            id=job.id,
            token=job.token,
            move=Move.CANCEL,
            state=State.CANCELLED,
            stage=job.stage,
            lane=job.lane,
            counters=job.counters,
            past=job.past,
            isolation=0,
        )
        answers = self.place.settle(word, replace(word), by=None)
        assert [type(one) for one in answers] == [Receipt, Stale]
        assert self.place.see_run(run).counts.cancelled == 1
        self.place.clean()

    def test_a_failure_is_a_dead_letter_with_its_reason(self) -> None:
        claim = self.one_claim()
        (receipt,) = self.place.settle(failure(claim, self.worker), by=self.worker)
        assert receipt == Receipt(claim.no, claim.id, claim.token, State.FAILED, None)
        job = self.place.see(claim.id)
        assert (job.state, job.failed_reason) == (State.FAILED, FailedReason.FATAL)
        assert (job.error_kind, job.error_message) == ("input_invalid", "The item is broken.")
        assert (job.counters.failures, job.finished_at) == (1, self.clock.now())
        (group,) = self.place.reader.failures()
        assert (group.reason, group.kind, group.count) == ("fatal", "input_invalid", 1)
        assert group.example_id == claim.id
        self.place.clean()

    def test_a_retry_waits_for_its_delay_by_the_stores_clock(self) -> None:
        claim = self.one_claim()
        self.clock.push(100)
        (receipt,) = self.place.settle(retry(claim, self.worker, delay_s=2.5), by=self.worker)
        due_at = self.clock.now() + timedelta(seconds=2.5)
        assert receipt == Receipt(claim.no, claim.id, claim.token, State.QUEUED, due_at)
        job = self.place.see(claim.id)
        assert (job.due_at, job.error_kind, job.finished_at) == (due_at, "network", None)
        assert (job.counters.failures, job.ready, job.worker) == (1, False, None)

    def test_a_delay_of_nothing_is_ready_at_once(self) -> None:
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=self.worker)
        assert self.place.see(claim.id).ready

    def test_a_delay_is_never_shortened_by_rounding(self) -> None:
        for delay_s in (0.0000001, 0.1 + 0.2, 1 / 3, 1e-6, 12345.6789012):
            claim = self.one_claim()
            (receipt,) = self.place.settle(
                retry(claim, self.worker, delay_s=delay_s), by=self.worker
            )
            assert isinstance(receipt, Receipt)
            assert receipt.due_at is not None
            waited_s = (receipt.due_at - self.clock.now()).total_seconds()
            assert delay_s <= waited_s < delay_s + 1.1e-6
            assert self.place.see(claim.id).due_at == receipt.due_at

    def test_counters_are_kept_as_they_are_told(self) -> None:
        claim = self.one_claim()
        counters = Counters(1, 7, 4, 1, 5, 9, 2, 0.1 + 0.2)
        past = Counters(6, 5, 3, 5, 8, 9, 7, 1e-9)
        record = replace(retry(claim, self.worker), counters=counters, past=past, isolation=1)
        self.place.settle(record, by=self.worker)
        job = self.place.see(claim.id)
        assert (job.counters, job.past, job.isolation) == (counters, past, 1)
        self.clock.push(5)
        (again,) = self.place.take(self.worker, isolation=1)
        assert (again.counters, again.past) == (replace(counters, starts=2), past)

    def test_a_snooze_leaves_no_error_behind(self) -> None:
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=self.worker)
        (claim,) = self.place.take(self.worker)
        self.place.settle(snooze(claim, self.worker, delay_s=9.0), by=self.worker)
        job = self.place.see(claim.id)
        assert (job.error_kind, job.error_message) == (None, None)
        assert (job.counters.snoozes, job.counters.waited_s) == (1, 9.0)
        assert job.shown_state == "scheduled"
        self.place.clean()

    def test_the_attempt_is_kept_as_it_was_told(self) -> None:
        claim = self.one_claim()
        self.clock.push(3)
        told = retry(claim, self.worker, delay_s=5.0)
        assert told.attempt is not None
        attempt = replace(
            told.attempt,
            message="reset ' \" \\ 🎉",
            evidence_json='{"names":["x"]}',
            why_json='{"text":"retry"}',
            elapsed_s=0.1 + 0.2,
            config_hash="00c0ffee00c0ffee",
        )
        self.place.settle(replace(told, attempt=attempt), by=self.worker)
        (seen,) = self.place.reader.attempts(claim.no)
        assert (seen.job_no, seen.token, seen.stage) == (claim.no, 1, "one")
        assert (seen.number, seen.life, seen.worker) == (1, 1, self.worker)
        assert (seen.status, seen.counted, seen.kind) == ("retrying", "failures", "network")
        assert (seen.message, seen.policy) == ("reset ' \" \\ 🎉", "plain/1")
        assert (seen.why_json, seen.evidence_json) == ('{"text":"retry"}', '{"names":["x"]}')
        assert (seen.delay_s, seen.elapsed_s) == (5.0, 0.1 + 0.2)
        assert seen.config_hash == "00c0ffee00c0ffee"
        assert (seen.claimed_at, seen.settled_at) == (claim.claimed_at, self.clock.now())
        assert seen.due_at == self.clock.now() + timedelta(seconds=5)

    def test_the_next_stage_gets_the_result_of_the_one_before(self) -> None:
        claim = self.one_claim()
        lane = self.place.lanes["two"]
        self.place.settle(advance(claim, self.worker, lane, value_json="[1,2]"), by=self.worker)
        (after,) = self.place.take(self.worker)
        assert (after.stage, after.lane) == ("two", lane)
        assert (after.input_json, after.payload_json) == ("[1,2]", claim.payload_json)
        assert after.counters == Counters(starts=1)
        assert after.past == Counters(starts=1)
        job = self.place.see(claim.id)
        assert (job.input_from, job.input_json, job.stage) == ("one", "[1,2]", "two")
        self.place.settle(success(after, self.worker), by=self.worker)
        assert [(one.stage, one.status) for one in self.place.reader.attempts(claim.no)] == [
            ("one", "success"),
            ("two", "success"),
        ]
        self.place.clean()

    def test_a_retry_of_a_later_stage_keeps_its_input(self) -> None:
        claim = self.one_claim()
        self.place.settle(advance(claim, self.worker, self.place.lanes["two"]), by=self.worker)
        (second,) = self.place.take(self.worker)
        self.place.settle(retry(second, self.worker, delay_s=0.0), by=self.worker)
        (third,) = self.place.take(self.worker)
        assert third.input_json == second.input_json == '{"from":"one"}'

    # -- repeats -----------------------------------------------------------------------------

    def test_a_record_that_is_sent_again_gets_its_first_receipt(self) -> None:
        for end in ENDINGS:
            claim = self.one_claim()
            record = end(claim, self.worker)
            (first,) = self.place.settle(record, by=self.worker)
            assert isinstance(first, Receipt), end.__name__
            before = self.place.everything()
            self.clock.push(60)
            (again,) = self.place.settle(record, by=self.worker)
            assert again == replace(first, repeated=True), end.__name__
            assert self.place.everything() == before, end.__name__
            self._finish_all()
        self.place.clean()

    def _finish_all(self) -> None:
        """Nothing is left waiting."""
        for isolation in (0, 1):
            for claim in self.place.take(self.worker, 9, isolation=isolation):
                self.place.settle(success(claim, self.worker), by=self.worker)

    def test_a_receipt_is_found_again_after_the_job_has_moved_on(self) -> None:
        claim = self.one_claim()
        record = release(claim, self.worker)
        (first,) = self.place.settle(record, by=self.worker)
        assert isinstance(first, Receipt)
        (after,) = self.place.take(self.worker)
        self.place.settle(success(after, self.worker), by=self.worker)
        assert self.place.settle(record, by=self.worker) == (replace(first, repeated=True),)

    def test_a_batch_that_is_sent_again_is_answered_one_by_one(self) -> None:
        self.place.put_many(3)
        first, second, third = self.place.take(self.worker, 3)
        known = [success(first, self.worker), retry(second, self.worker)]
        self.place.settle(*known, by=self.worker)
        answers = self.place.settle(*known, success(third, self.worker), by=self.worker)
        assert {one.no: isinstance(one, Receipt) and one.repeated for one in answers} == {
            first.no: True,
            second.no: True,
            third.no: False,
        }
        self.place.clean()

    def test_an_old_word_and_a_new_one_about_one_job_are_answered_each_for_itself(self) -> None:
        """A word that was sent before and one about the claim after it, in one batch."""
        claim = self.one_claim()
        old = release(claim, self.worker)
        (first,) = self.place.settle(old, by=self.worker)
        assert isinstance(first, Receipt)
        (after,) = self.place.take(self.worker)
        unknown = replace(success(claim, self.worker), token=77)
        new = success(after, self.worker)
        answers = self.place.settle(old, unknown, new, by=self.worker)
        assert {one.token: one for one in answers} == {
            old.token: replace(first, repeated=True),
            77: Stale(claim.no, claim.id, 77),
            new.token: Receipt(claim.no, claim.id, new.token, State.SUCCEEDED, None),
        }
        self.place.clean()

    # -- carrying on -------------------------------------------------------------------------

    def test_carrying_on_claims_the_next_stage_in_the_same_transaction(self) -> None:
        claim = self.one_claim()
        self.clock.push(1)
        after = self._settle_one(self._carry_on(claim)).claim
        assert after is not None
        assert (after.stage, after.token, after.counters.starts) == ("two", claim.token + 2, 1)
        assert (after.input_json, after.claimed_at) == ('{"from":"one"}', self.clock.now())
        assert after.past.starts == 1
        assert self.place.store.tokens_held(self.worker) == {claim.no: claim.token + 2}
        assert self.place.store.claims_held(self.worker) == [after]
        self.place.settle(success(after, self.worker), by=self.worker)
        self.place.clean()

    def test_a_carry_on_that_is_sent_again_gets_its_claim_again(self) -> None:
        record = self._carry_on(self.one_claim())
        first = self._settle_one(record)
        before = self.place.everything()
        again = self._settle_one(record)
        assert again == replace(first, repeated=True)
        assert again.claim is not None
        assert self.place.everything() == before

    def test_a_carry_on_that_is_sent_again_too_late_gets_no_claim(self) -> None:
        record = self._carry_on(self.one_claim())
        first = self._settle_one(record)
        assert first.claim is not None
        self.place.settle(release(first.claim, self.worker), by=self.worker)
        again = self._settle_one(record)
        assert (again.repeated, again.claim, again.state) == (True, None, State.PROCESSING)

    def test_a_carry_on_sent_again_beside_the_word_that_ends_it_gets_no_claim(self) -> None:
        """What it had won is settled in the same batch, so nobody is to begin it once more."""
        record = self._carry_on(self.one_claim())
        first = self._settle_one(record)
        assert first.claim is not None
        ended = success(first.claim, self.worker)
        answers = {one.token: one for one in self.place.settle(record, ended, by=self.worker)}
        assert answers == {
            record.token: replace(first, claim=None, repeated=True),
            ended.token: Receipt(ended.no, ended.id, ended.token, State.SUCCEEDED, None),
        }
        self.place.clean()

    def test_nobody_carries_on_without_being_a_worker(self) -> None:
        claim = self.one_claim()
        (answer,) = self.place.settle(self._carry_on(claim), by=None)
        assert isinstance(answer, RecordRefused)
        assert self.place.see(claim.id).state is State.PROCESSING

    def _carry_on(self, claim: Any) -> Record:
        return advance(claim, self.worker, self.place.lanes["two"], reclaim=True)

    def _settle_one(self, record: Record) -> Receipt:
        (receipt,) = self.place.settle(record, by=self.worker)
        assert isinstance(receipt, Receipt)
        return receipt

    def test_records_are_written_before_the_claims_of_the_same_turn(self) -> None:
        claim = self.one_claim()
        turn = self.place.turn([release(claim, self.worker)], self.worker, 5)
        assert [one.id for one in turn.claims] == [claim.id]
        assert turn.claims[0].token == claim.token + 2

    # -- bad rows ----------------------------------------------------------------------------

    def test_one_bad_row_is_refused_and_its_ninety_nine_neighbours_land(self) -> None:
        for n, (what, change) in enumerate(BAD.items(), 1):
            self.place.put_many(100)
            claims = self.place.take(self.worker, 100)
            records = [success(claim, self.worker) for claim in claims]
            bad = claims[41]
            records[41] = replace(retry(bad, self.worker), **change)
            answers = {one.no: one for one in self.place.settle(*records, by=self.worker)}
            refused = answers[bad.no]
            assert isinstance(refused, RecordRefused), what
            assert refused.reason, what
            assert sum(isinstance(one, Receipt) for one in answers.values()) == 99, what
            assert self.place.see(bad.id).state is State.PROCESSING, what
            assert self.place.reader.attempts(bad.no) == [], what
            assert self.place.reader.books().succeeded == 99 * n, what
        self.place.clean()

    def test_a_refused_row_can_be_recorded_better(self) -> None:
        claim = self.one_claim()
        bad = replace(retry(claim, self.worker), isolation=9)
        assert isinstance(self.place.settle(bad, by=self.worker)[0], RecordRefused)
        better = failure(claim, self.worker)
        assert isinstance(self.place.settle(better, by=self.worker)[0], Receipt)
        self.place.clean()

    def test_a_bad_row_does_not_keep_the_turn_from_claiming(self) -> None:
        claim = self.one_claim()
        self.place.put()
        bad = replace(retry(claim, self.worker), isolation=9)
        turn = self.place.turn([bad], self.worker, 1)
        assert isinstance(turn.settled[0], RecordRefused)
        assert len(turn.claims) == 1

    def test_a_stale_row_among_good_ones_is_only_itself(self) -> None:
        self.place.put_many(3)
        claims = self.place.take(self.worker, 3)
        records = [success(claim, self.worker) for claim in claims]
        records[1] = replace(records[1], token=99)
        kinds = {one.no: type(one) for one in self.place.settle(*records, by=self.worker)}
        wanted = (Receipt, Stale, Receipt)
        assert kinds == {claim.no: kind for claim, kind in zip(claims, wanted, strict=True)}
        assert self.place.see(claims[1].id).state is State.PROCESSING

    def test_a_stage_that_is_done_is_not_done_again(self) -> None:
        """Its result stands: a second one for the same stage is refused, not written over it."""
        claim = self.one_claim()
        lane = self.place.lanes["one"]
        back = advance(claim, self.worker, lane, stage="one", value_json="[1]")
        self.place.settle(back, by=self.worker)
        (again,) = self.place.take(self.worker)
        other = advance(again, self.worker, lane, stage="one", value_json="[2]")
        assert isinstance(self.place.settle(other, by=self.worker)[0], RecordRefused)
        assert self.place.see(claim.id).input_json == "[1]"

    # -- callers -----------------------------------------------------------------------------

    def test_a_caller_holds_no_lease_and_needs_none(self) -> None:
        claim = self.one_claim()
        (receipt,) = self.place.settle(cancellation(claim, self.worker), by=None)
        assert receipt == Receipt(claim.no, claim.id, claim.token, State.CANCELLED, None)
        self.place.clean()

    def test_a_waiting_job_is_cancelled_without_an_attempt(self) -> None:
        claim = self.one_claim()
        self.place.settle(release(claim, None), by=None)
        job = self.place.see(claim.id)
        plain = replace(cancellation(claim, None), token=job.token, attempt=None)
        (receipt,) = self.place.settle(replace(plain, counters=job.counters), by=None)
        assert receipt == Receipt(job.no, job.id, job.token, State.CANCELLED, None)
        assert self.place.see(claim.id).finished_at == self.clock.now()
        assert [one.status for one in self.place.reader.attempts(job.no)] == ["interrupted"]
        assert self.place.take(self.worker, 5) == []
        self.place.clean()
