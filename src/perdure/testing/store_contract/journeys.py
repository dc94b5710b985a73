"""What a job may have been through when an attempt of it begins: every state of a row that can stand before it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from perdure.model.decisions import Counted
from perdure.model.jobs import ZERO, Claim, NewJob, OnLost, Receipt, Record
from perdure.model.nouns import replace
from perdure.model.runs import RunView
from perdure.model.states import AttemptStatus
from perdure.testing.store_contract.attempt_ends import (
    advance,
    attempt_of,
    crash,
    failing,
    release,
    retry,
    snooze,
    spending,
)
from perdure.testing.store_contract.fresh_store import Place

Step = Callable[[Claim, int], Record]
LATER_S = 1_000_000.0  # out of the way of what is claimed next


def _wait_record(claim: Claim, worker: int) -> Record:
    """The upstream asked for a wait."""
    told = retry(claim, worker, delay_s=0.0)
    counters = claim.counters.after_event(Counted.WAITS, waited_s=2.5)
    attempt = attempt_of(claim, AttemptStatus.WAITING, worker, counted="waits", kind="rate_limited")
    return replace(told, counters=counters, error_code="E429", attempt=attempt)


def _probe_record(claim: Claim, worker: int) -> Record:
    """It was the probe of a gate, and failed."""
    counters = claim.counters.after_event(Counted.PROBES)
    attempt = attempt_of(claim, AttemptStatus.WAITING, worker, counted="probes", kind="network")
    return replace(retry(claim, worker, delay_s=0.0), counters=counters, attempt=attempt)


def _handover_record(claim: Claim, worker: int) -> Record:
    """Its caller does not wait any longer: all counters from zero, and the error stands."""
    attempt = attempt_of(claim, AttemptStatus.HANDED_OVER, worker, kind="timeout", code="TIMEOUT")
    return replace(
        retry(claim, worker, delay_s=0.0),
        counters=ZERO,
        past=ZERO,
        isolation=0,
        attempt=attempt,
        error_kind="timeout",
        error_code="TIMEOUT",
        error_message="It took too long.",
    )


def _marked_record(claim: Claim, worker: int) -> Record:
    """Queued again, with everything on its row that a record can leave there, and nothing counted."""
    return replace(
        _handover_record(claim, worker),
        error_detail="after 60 s",
        fingerprint="f0",
        label="late",
        result_json='"half"',
    )


def _death_record(claim: Claim, worker: int) -> Record:
    told = failing(claim, worker, code="E7", detail="row 7", fingerprint="aa")
    return replace(told, label="bad")


def _costly_record(claim: Claim, worker: int) -> Record:
    return spending(retry(claim, worker, delay_s=0.0), tokens_in=10, tokens_out=3, cost_nusd=5)


def _retry_record(claim: Claim, worker: int) -> Record:
    return retry(claim, worker, delay_s=0.0)


def _snooze_record(claim: Claim, worker: int) -> Record:
    return snooze(claim, worker, delay_s=0.0)


@dataclass(frozen=True)
class JourneyStart:
    """What a job has been through before the attempt: records, a new life after each that ends it, and its birth."""

    steps: tuple[Step | str, ...] = ()
    begun: bool = False
    redriven: bool = False
    changes: dict[str, Any] = field(default_factory=dict)


BEFORE: dict[str, JourneyStart] = {
    "nothing": JourneyStart(),
    "a priority, a key and a deadline": JourneyStart(
        changes={"priority": 3, "deadline_s": 9e6, "tokens": 40, "request_id": "req-7"}
    ),
    "a retry": JourneyStart((_retry_record,)),
    "a retry that cost something": JourneyStart((_costly_record,)),
    "a wait": JourneyStart((_wait_record,)),
    "a snooze": JourneyStart((_snooze_record,)),
    "a failed probe": JourneyStart((_probe_record,)),
    "a release": JourneyStart((release,)),
    "a crash": JourneyStart((crash,)),
    "two crashes": JourneyStart((crash, crash)),
    "a hand-over": JourneyStart((_handover_record,)),
    "a caller that handed it over": JourneyStart((_handover_record,), begun=True),
    "a caller that waits": JourneyStart(begun=True),
    "retries and a hand-over": JourneyStart((_retry_record, _costly_record, _handover_record)),
    "a hand-over that left all it can": JourneyStart((_marked_record,)),
    "a stage before": JourneyStart(("advance",)),
    "a stage before that was tried twice": JourneyStart((_retry_record, "advance")),
    "a stage before, and a retry": JourneyStart(("advance", _retry_record)),
    "a stage before, and a hand-over": JourneyStart(("advance", _handover_record)),
    "a stage before in the same hands": JourneyStart(("carry on",)),
    "a death": JourneyStart((_death_record,)),
    "a death after retries and a stage": JourneyStart(
        (_retry_record, "advance", _wait_record, _death_record)
    ),
    "a death, driven again in a run": JourneyStart((_death_record,), redriven=True),
    "a death, driven again and handed over": JourneyStart(
        (_death_record, _handover_record), redriven=True
    ),
}


class Journey:
    """Some jobs alike, brought to the hands of a worker by the same way."""

    def __init__(
        self, place: Place, worker: int, way: JourneyStart, runs: list[RunView | None]
    ) -> None:
        self.place, self.worker = place, worker
        self._way = way
        self._children = [self._child(run) for run in runs] if way.redriven else []
        if way.begun:
            self.claims = [self._begin(run) for run in runs]
        else:
            new = [self._new(run) for run in runs]
            self.claims = self._take([one.no for one in place.store.enqueue(new)])
        for step in way.steps:
            place.clock.push(1)
            self._walk(step)

    def _child(self, run: RunView | None) -> int:
        name = f"again {self.place.new().id}"
        return self.place.begin_run(name, parent=None if run is None else run.no).no

    def _new(self, run: RunView | None) -> NewJob:
        new = self.place.new(run=None if run is None else run.no, **self._way.changes)
        return replace(new, key=new.id if self._way.changes else None)

    def _begin(self, run: RunView | None) -> Claim:
        claim = self.place.store.begin(
            self._new(run), worker=self.worker, hard_s=LATER_S, on_lost=OnLost.HAND_OVER
        )
        assert isinstance(claim, Claim)
        return claim

    def _take(self, nos: list[int]) -> list[Claim]:
        found = [
            claim
            for level in (0, 1, 2)
            for claim in self.place.take(self.worker, len(nos), isolation=level)
        ]
        by_no = {claim.no: claim for claim in found}
        return [by_no[no] for no in nos]

    def _walk(self, step: Step | str) -> None:
        if isinstance(step, str):
            lane, again = self.place.lanes["two"], step == "carry on"
            records = [advance(one, self.worker, lane, reclaim=again) for one in self.claims]
        else:
            records = [step(one, self.worker) for one in self.claims]
        answers = self.place.settle(*records, by=self.worker)
        again_claims = [one.claim for one in answers if isinstance(one, Receipt) and one.claim]
        if len(again_claims) == len(records):
            self.claims = again_claims
            return
        if step is _death_record:
            for place, claim in enumerate(self.claims):
                child = self._children[place] if self._children else None
                self.place.revive(self.place.see(claim.id), redrive_run=child)
        self.claims = self._take([one.no for one in self.claims])
