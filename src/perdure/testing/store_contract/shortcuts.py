"""Short ways and long ones: whatever a job has been through, a store that takes a short way writes what the long one would.

A job is brought into every state that can stand before an attempt. From there each ending must leave the whole row
that its record says, and twins of which one goes the short way and one the long one must end alike.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import Claim, Counters, OnLost, Record
from perdure.model.nouns import replace
from perdure.model.operations import LaneScope
from perdure.model.runs import RunView
from perdure.model.states import TERMINAL, TRANSITIONS, FailedReason, Move, State
from perdure.model.views import AttemptView, JobView
from perdure.testing.store_contract.attempt_ends import ENDINGS, advance, retry, success
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore
from perdure.testing.store_contract.journeys import BEFORE, LATER_S, Journey, JourneyStart, Step

_LATER = datetime(2999, 1, 1, tzinfo=UTC)


class ShortcutsContract(OnAFreshStore):
    """Ways that a store may take to be quick, and what they must not change."""

    def bring(self, way: JourneyStart, *runs: RunView | None) -> Journey:
        """Jobs that have been through this, one for each run, in the hands of the worker."""
        return Journey(self.place, self.worker, way, list(runs))

    def ends(self) -> tuple[Step, ...]:
        """Every record that can end an attempt."""
        two = self.place.lanes["two"]
        return (
            *ENDINGS,
            lambda claim, worker: advance(claim, worker, two),
            lambda claim, worker: advance(claim, worker, two, reclaim=True),
            _repeat_record,
        )

    def test_every_ending_leaves_the_row_that_its_record_says_whatever_stood_there_before(
        self,
    ) -> None:
        for name, way in BEFORE.items():
            ends = [one for one in self.ends() if not _goes_back(one, way)]
            journey = self.bring(way, *[None] * len(ends))
            self.clock.push(1)
            pairs = list(zip(ends, journey.claims, strict=True))
            records = [_record_of(end, claim, self.worker) for end, claim in pairs]
            before = [self.place.see(one.id) for one in records]
            self.place.settle(*records, by=self.worker)
            for record, job in zip(records, before, strict=True):
                said = (name, record.move)
                assert (*said, self.place.see(job.id)) == (*said, self.after(job, record)), said
                seen = self.place.reader.attempts(job.no)[-1]
                assert (*said, seen) == (*said, self.attempt_after(record)), said
        self.place.clean()

    def test_a_success_by_the_short_way_is_one_by_the_long_way_whatever_stood_there_before(
        self,
    ) -> None:
        short, long = self.place.begin_run("short"), self.place.begin_run("long")
        children: tuple[list[int], list[int]] = ([], [])
        for name, way in BEFORE.items():
            for label in (None, "passed"):
                journey = self.bring(way, short, long)
                self.clock.push(1)
                first, second = (
                    replace(success(one, self.worker), label=label) for one in journey.claims
                )
                (quick,) = self.place.settle(first, by=self.worker)
                (slow,) = self.place.settle(by_the_long_way(second), by=self.worker)
                assert _anon(quick) == _anon(slow), name
                one, other = self.place.see(first.id), self.place.see(second.id)
                assert _twin(one) == _twin(other), name
                assert _past_attempts(self, one) == _past_attempts(self, other), name
                for job, found in zip((one, other), children, strict=True):
                    found.append(job.redrive_run or 0)
        one_run, other_run = self.place.see_run(short), self.place.see_run(long)
        assert one_run.counts == other_run.counts
        assert one_run.counts.succeeded == 2 * len(BEFORE)
        counts = {run.no: run.counts for run in self.place.reader.runs()}
        assert [counts.get(no) for no in children[0]] == [counts.get(no) for no in children[1]]
        assert any(children[0])
        self.place.clean()

    def test_successes_of_one_batch_have_each_their_own_words(self) -> None:
        runs = self.place.begin_run("one"), self.place.begin_run("other"), None, None
        journey = self.bring(BEFORE["nothing"], *runs)
        self.clock.push(1)
        records = [_in_own_words(one, self.worker) for one in journey.claims]
        before = [self.place.see(one.id) for one in records]
        self.place.settle(*reversed(records), by=self.worker)
        counts = {run.no: run.counts for run in self.place.reader.runs()}
        for record, job in zip(records, before, strict=True):
            assert self.place.see(job.id) == self.after(job, record)
            assert self.place.reader.attempts(job.no) == [self.attempt_after(record)]
            called = record.attempt is not None and record.attempt.called
            assert job.run is None or counts[job.run].calls == called
        self.place.clean()

    def test_a_claim_in_the_same_breath_is_one_that_is_queued_and_taken(self) -> None:
        for name, way in BEFORE.items():
            for again, apart in self._reclaims(way):
                journey = self.bring(way, None, None)
                self.clock.push(1)
                first, second = journey.claims
                self.place.settle(again(first, self.worker), by=self.worker)
                self.place.settle(apart(second, self.worker), by=self.worker)
                level = self.place.see(second.id).isolation
                (taken,) = self.place.take(self.worker, isolation=level)
                one, other = self.place.see(first.id), self.place.see(second.id)
                assert _twin(one) == _twin(other), name
                assert _past_attempts(self, one) == _past_attempts(self, other), name
                (held,) = [
                    claim
                    for claim in self.place.store.claims_held(self.worker)
                    if claim.id == first.id
                ]
                assert _without_names(held) == _without_names(taken), name
                ends = [success(claim, self.worker) for claim in (held, taken)]
                self.place.settle(*ends, by=self.worker)
        self.place.clean()

    def _reclaims(self, way: JourneyStart) -> list[tuple[Step, Step]]:
        """The ways in which a job is claimed again at once, each with the same one in two steps."""
        found: list[tuple[Step, Step]] = [
            (_repeat_record, lambda claim, worker: retry(claim, worker, delay_s=0.0))
        ]
        if not any(isinstance(step, str) for step in way.steps):
            two = self.place.lanes["two"]
            found.append(
                (
                    lambda claim, worker: advance(claim, worker, two, reclaim=True),
                    lambda claim, worker: advance(claim, worker, two),
                )
            )
        return found

    def test_a_job_that_its_caller_begins_is_one_that_is_enqueued_and_taken(self) -> None:
        for changes in ({}, BEFORE["a priority, a key and a deadline"].changes):
            begun, put = self.place.begin_run(), self.place.begin_run("other")
            first = self.place.store.begin(
                self.place.new(run=begun.no, **changes),
                worker=self.worker,
                hard_s=LATER_S,
                on_lost=OnLost.DROP,
            )
            assert isinstance(first, Claim)
            self.place.put(run=put.no, **changes)
            (second,) = self.place.take(self.worker)
            one, other = self.place.see(first.id), self.place.see(second.id)
            assert _twin(one) == _twin(other)
            assert _without_names(first) == _without_names(second)
            assert self.place.see_run(begun).counts == self.place.see_run(put).counts

    def test_a_job_that_is_begun_in_a_closed_lane_is_one_that_is_enqueued_there(self) -> None:
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        for changes in ({}, BEFORE["a priority, a key and a deadline"].changes):
            new = self.place.new(**changes)
            self.place.store.begin(new, worker=self.worker, hard_s=9.0, on_lost=OnLost.DROP)
            one, other = self.place.see(new.id), self.place.see(self.place.put(**changes).id)
            assert _twin(one) == _twin(other)

    def test_jobs_alike_are_alike_whether_they_come_alone_together_or_beside_others(self) -> None:
        alone = self.place.put()
        together = self.place.put_many(3)
        beside = self.place.store.enqueue(
            [self.place.new(tokens=7), self.place.new(), self.place.new(fair=True)]
        )[:2]
        views = [self.place.see(one.id) for one in (alone, *together, *beside)]
        assert [_twin(one) for one in views] == [_twin(views[0])] * 6

    def test_the_probe_of_a_gate_is_claimed_as_any_other_job(self) -> None:
        self.place.lanes_of("p", upstream="vendor")
        gate = self.place.control.change_gate(
            GateChange("vendor", 0, GateState.FLOWING, None), DEED
        )
        for name in ("nothing", "a retry", "a wait", "a hand-over", "a stage before", "a death"):
            journey = self.bring(BEFORE[name], None, None)
            back = [replace(retry(one, self.worker, delay_s=0.0)) for one in journey.claims]
            self.place.settle(*back, by=self.worker)
            assert gate is not None
            change = GateChange("vendor", gate.generation, GateState.PROBING, None)
            probe = self.place.store.probe(self.place.order(self.worker), change, DEED)
            assert probe is not None
            flowing = GateChange("vendor", probe.gate.generation, GateState.FLOWING, None)
            gate = self.place.control.change_gate(flowing, DEED)
            (taken,) = self.place.take(self.worker)
            assert _without_names(probe.claim) == _without_names(taken), name
            one, other = self.place.see(probe.claim.id), self.place.see(taken.id)
            assert _twin(one) == _twin(other), name
            ends = [success(claim, self.worker) for claim in (probe.claim, taken)]
            self.place.settle(*ends, by=self.worker)

    def test_every_move_is_told_by_the_moment_of_the_last_change(self) -> None:
        dead = self.place.dead_letter(self.worker)
        self.clock.push(1)
        self.place.discard(dead)
        assert self.place.see(dead.id).updated_at == self.clock.now()
        for source, move, to in TRANSITIONS:
            id = self._move_job(source, move, to)
            seen = self.place.see(id)
            assert (move, seen.state, seen.updated_at) == (move, to, self.clock.now())

    def _move_job(self, source: State | None, move: Move, to: State) -> str:
        """A job that has just made this move, a second after it came where it was; others are out of the way."""
        if source is State.FAILED:
            job = self.place.dead_letter(self.worker)
            self.clock.push(1)
            self.place.revive(job)
            return job.id
        later = None if move is Move.CLAIM or source is State.PROCESSING else _LATER
        id = self.place.put(run_at=later).id
        if source is State.PROCESSING:
            (claim,) = self.place.take(self.worker)
            told = [_record_of(end, claim, self.worker) for end in self.ends()]
            self.clock.push(1)
            self.place.settle(next(one for one in told if one.move is move), by=self.worker)
        elif move is Move.CLAIM:
            self.clock.push(1)
            assert self.place.taken_ids(self.worker) == [id]
        elif source is State.QUEUED:
            self.clock.push(1)
            self.place.settle(_unbegun(self.place.see(id), move, to), by=None)
        return id

    # -- what a record says ------------------------------------------------------------------

    def after(self, job: JobView, record: Record) -> JobView:
        """The whole row that this record makes of this job; ``updated_at`` goes with every move."""
        now, again = self.clock.now(), record.reclaim
        due_at = job.due_at
        if record.delay_s is not None:
            due_at = now + timedelta(seconds=record.delay_s)
        value = job.input_json if record.checkpoint_json is None else record.checkpoint_json
        return replace(
            job,
            state=record.state,
            stage=record.stage,
            lane=record.lane,
            token=job.token + 1 + again,
            isolation=record.isolation,
            ready=record.state is State.QUEUED and due_at == now,
            worker=self.worker if again else None,
            past=record.past,
            counters=replace(record.counters, starts=record.counters.starts + again),
            failed_reason=record.failed_reason,
            error_kind=record.error_kind,
            error_message=record.error_message,
            error_code=record.error_code,
            error_detail=record.error_detail,
            fingerprint=record.fingerprint,
            label=record.label,
            result_json=record.result_json,
            input_json=value,
            due_at=due_at,
            input_from=record.checkpoint_stage or job.input_from,
            claimed_at=now if again else job.claimed_at,
            finished_at=now if record.state in TERMINAL else None,
            updated_at=now,
        )

    def attempt_after(self, record: Record) -> AttemptView:
        """The whole row that this record leaves of its attempt."""
        told, now = record.attempt, self.clock.now()
        assert told is not None
        return AttemptView(
            job_no=record.no,
            token=record.token,
            stage=told.stage,
            number=told.number,
            life=told.life,
            status=told.status,
            worker=told.worker,
            claimed_at=told.claimed_at,
            settled_at=now,
            elapsed_s=told.elapsed_s,
            delay_s=record.delay_s,
            due_at=None if record.delay_s is None else now + timedelta(seconds=record.delay_s),
            counted=told.counted,
            kind=told.kind,
            message=told.message,
            policy=told.policy,
            why_json=told.why_json,
            evidence_json=told.evidence_json,
            config_hash=told.config_hash,
            code=told.code,
            tokens_in=told.tokens_in,
            tokens_out=told.tokens_out,
            cost_nusd=told.cost_nusd,
        )


def _unbegun(job: JobView, move: Move, to: State) -> Record:
    """The end of a job that waits: there is no attempt."""
    return Record(
        no=job.no,
        id=job.id,
        token=job.token,
        move=move,
        state=to,
        stage=job.stage,
        lane=job.lane,
        counters=job.counters,
        past=job.past,
        isolation=job.isolation,
        failed_reason=FailedReason.EXPIRED if to is State.FAILED else None,
    )


def by_the_long_way(record: Record) -> Record:
    """The same record; its past is nothing, too, but not the very object by which stores know that at a glance."""
    return replace(record, past=Counters()) if record.past == Counters() else record


def _in_own_words(claim: Claim, worker: int) -> Record:
    """A plain success; two in a row share some of their words, and every other one has a label and no result."""
    record = success(claim, worker)
    assert record.attempt is not None
    half, odd = claim.no // 2, claim.no % 2
    attempt = replace(
        record.attempt,
        policy=f"policy {half}",
        why_json=f'{{"text":"\\"{half}\\" ✓"}}',
        config_hash=f"{claim.no:016x}",
        elapsed_s=claim.no / 8,
        called=odd == 1,
    )
    result = None if odd else f'["{claim.no}",null]'
    return replace(record, attempt=attempt, result_json=result, label="{passed}" if odd else None)


def _repeat_record(claim: Claim, worker: int) -> Record:
    """A retry for which its caller waits: claimed again at once."""
    told = retry(claim, worker, delay_s=0.0)
    return replace(told, move=Move.REPEAT, state=State.PROCESSING, reclaim=True)


def _record_of(end: Step, claim: Claim, worker: int) -> Record:
    """An ending; where the job is queued again, far enough away, and of a stage that is known by its hash."""
    record = end(claim, worker)
    assert record.attempt is not None
    attempt = replace(record.attempt, config_hash=f"{claim.no:016x}")
    delay_s = LATER_S if record.state is State.QUEUED else record.delay_s
    return replace(record, delay_s=delay_s, attempt=attempt)


def _goes_back(end: Step, way: JourneyStart) -> bool:
    """Whether the stage that would be left behind has been left behind before."""
    advances = end not in ENDINGS and end is not _repeat_record
    return advances and any(isinstance(step, str) for step in way.steps)


def _twin(job: JobView) -> JobView:
    """The row without what two jobs cannot have in common."""
    return replace(
        job,
        no=0,
        id="",
        key=None,
        run=None,
        redrive_run=None,
        payload_json="",
        input_json="",
        request_id=_request_id_given(job),
    )


def _without_names(claim: Claim) -> Claim:
    return replace(
        claim,
        no=0,
        id="",
        key=None,
        run=None,
        payload_json="",
        input_json="",
        request_id=_request_id_given(claim),
    )


def _request_id_given(job: JobView | Claim) -> str:
    """Its request id, if that is not its own id."""
    return "" if job.request_id == job.id else job.request_id


def _past_attempts(test: OnAFreshStore, job: JobView) -> list[AttemptView]:
    return [replace(one, job_no=0) for one in test.place.reader.attempts(job.no)]


def _anon(answer: Any) -> Any:
    return replace(answer, no=0, id="")
