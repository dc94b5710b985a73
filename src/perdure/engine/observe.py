"""observe: `Receipt` → `Event`. We tell only what is durable, and nobody we tell can hurt us."""

import logging
from collections.abc import Callable, Iterable, Sequence
from traceback import walk_tb

import msgspec
from msgspec import Struct

from perdure.model.errors import StoreError
from perdure.model.events import Event, EventName
from perdure.model.jobs import Claim, Enqueued, Receipt, Record, RecordRefused, Settled, Stale
from perdure.model.limits import CAUSES_MAX
from perdure.model.operations import Deed, Revival, Target
from perdure.model.outcomes import raised_in_words
from perdure.model.states import Move, State
from perdure.ports import Observer
from perdure.rules.foreign_code import try_or_none
from perdure.rules.redact import safe_line

log = logging.getLogger("perdure")

_NAMES: dict[Move, EventName] = {
    Move.ADVANCE: EventName.JOB_ADVANCED,
    Move.CARRY_ON: EventName.JOB_ADVANCED,
    Move.RETRY: EventName.JOB_RETRIED,
    Move.REPEAT: EventName.JOB_RETRIED,
    Move.RELEASE: EventName.JOB_RELEASED,
    Move.SUCCEED: EventName.JOB_SUCCEEDED,
    Move.FAIL: EventName.JOB_FAILED,
    Move.CANCEL: EventName.JOB_CANCELLED,
}


class _Met(Struct):
    """What is read of the evidence of an attempt."""

    status: int | None = None
    names: tuple[str, ...] = ()
    where: str = ""


class _Judged(Struct):
    """What is read of an explained decision."""

    gate: str | None = None


_NOTHING_MET = _Met()
_read_evidence = msgspec.json.Decoder(_Met).decode
_read_why = msgspec.json.Decoder(_Judged).decode


class Observers:
    """Everybody who wants to be told."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)
        self._turns: tuple[Callable[[float], None], ...] = ()
        self.store_away = False

    def add(self, observer: Observer, *, turns: Callable[[float], None]) -> None:
        """One more, who also hears how long each turn with the store took."""
        self._observers = (*self._observers, observer)
        self._turns = (*self._turns, turns)

    def note_turn(self, elapsed_s: float) -> None:
        """A turn with the store is done."""
        for note in self._turns:
            note(elapsed_s)

    def tell(self, name: EventName, **fields: object) -> None:
        """Tell everybody; one who raises is logged and does not hurt the walk."""
        event = Event(name, fields)
        for observer in self._observers:
            try:
                observer(event)
            except Exception as error:
                log.error("an observer failed on %s: %s", name, trace_of(error))

    def store_is_away(self, why: StoreError) -> None:
        """Tell it once, however often it is found."""
        if not self.store_away:
            self.store_away = True
            self.tell(EventName.STORE_AWAY, reason=str(why))

    def store_answers(self) -> None:
        """Tell that the store is back, if it was away."""
        if self.store_away:
            self.store_away = False
            self.tell(EventName.STORE_BACK)

    def tell_enqueued(
        self,
        pipeline: str,
        done: Sequence[Enqueued],
        *,
        request_id: str | None = None,
        owner: str = "",
        run: int | None = None,
    ) -> None:
        """Tell that items were accepted; those whose key was taken are not news."""
        made = [one for one in done if one.created]
        if made:
            self.tell(
                EventName.JOB_ENQUEUED,
                job_id=made[0].id,
                request_id=request_id or made[0].id,
                owner=owner or None,
                pipeline=pipeline,
                run=run,
                count=len(made),
            )

    def tell_settled(self, record: Record, answer: Settled) -> None:
        """Tell what became of a record."""
        if not isinstance(answer, Receipt):
            self._tell_refused(record, answer)
            return
        attempt, met = record.attempt, _read_met(record)
        self.tell(
            _NAMES[record.move],
            job_id=record.id,
            request_id=record.request_id,
            owner=record.owner or None,
            pipeline=record.pipeline,
            run=record.run,
            worker=attempt.worker if attempt else None,
            status=answer.state.value,
            stage=attempt.stage if attempt else record.stage,
            attempt=attempt.number if attempt else None,
            failures=_failures(record),
            attempts_max=record.attempts_max,
            duration_ms=round(attempt.elapsed_s * 1000, 1) if attempt else None,
            age_ms=None if record.age_s is None else round(record.age_s * 1000),
            reason=None if record.failed_reason is None else record.failed_reason.value,
            error_kind=record.error_kind,
            error_code=record.error_code,
            raised=raised_in_words(met.names, met.where) or None,
            upstream=attempt.upstream if attempt else None,
            upstream_status=met.status,
            gate_state=_gate_state(record),
            delay_ms=_delay_ms(record),
            hinted=record.hinted,
            error_message=record.error_message,
            captures=len(record.captures) or None,
        )

    def _tell_refused(self, record: Record, answer: Stale | RecordRefused) -> None:
        """Tell that a record was not written. Of a store's words the first line: the others may quote the row."""
        reason = None
        if isinstance(answer, RecordRefused):
            reason = safe_line(answer.reason.partition("\n")[0])
        attempt = record.attempt
        self.tell(
            EventName.RESULT_REFUSED,
            job_id=record.id,
            request_id=record.request_id,
            owner=record.owner or None,
            pipeline=record.pipeline,
            run=record.run,
            worker=attempt.worker if attempt else None,
            stage=attempt.stage if attempt else record.stage,
            attempt=attempt.number if attempt else None,
            token=record.token,
            reason=reason,
        )

    def tell_revived(self, revival: Revival, deed: Deed) -> None:
        """Tell that a dead letter has a new life."""
        self.tell(
            EventName.JOB_REVIVED,
            job_id=revival.id,
            request_id=revival.request_id,
            owner=revival.owner or None,
            stage=revival.stage,
            by_whom=deed.by_whom,
            reason=deed.reason or None,
        )

    def tell_discarded(self, target: Target, deed: Deed) -> None:
        """Tell that a dead letter is dealt with."""
        self.tell(
            EventName.JOB_DISCARDED,
            job_id=target.id,
            request_id=target.request_id,
            owner=target.owner or None,
            by_whom=deed.by_whom,
            reason=deed.reason or None,
        )

    def tell_brought_forward(self, target: Target, deed: Deed) -> None:
        """Tell that a job which waited for its time is due."""
        self.tell(
            EventName.JOB_BROUGHT_FORWARD,
            job_id=target.id,
            request_id=target.request_id,
            owner=target.owner or None,
            by_whom=deed.by_whom,
            reason=deed.reason or None,
        )

    def tell_claimed(self, claim: Claim, worker: int) -> None:
        """Tell that a job is in the hands of a worker."""
        self.tell(
            EventName.JOB_CLAIMED,
            job_id=claim.id,
            request_id=claim.request_id,
            owner=claim.owner or None,
            pipeline=claim.pipeline,
            run=claim.run,
            worker=worker,
            status=State.PROCESSING.value,
            stage=claim.stage,
            attempt=claim.counters.starts,
            token=claim.token,
        )


def _failures(record: Record) -> int | None:
    """How many failures are counted in the stage that was attempted, this one among them."""
    attempt = record.attempt
    if attempt is None or attempt.stage != record.stage:
        return None
    return record.counters.failures


def _read_met(record: Record) -> _Met:
    """What the attempt has met, if anything. Its message is not for the log: it may be an upstream's."""
    attempt = record.attempt
    if attempt is None or attempt.evidence_json is None:
        return _NOTHING_MET
    return _read_evidence(attempt.evidence_json)


def _gate_state(record: Record) -> str | None:
    """How the upstream's gate stood when a failure was judged."""
    attempt = record.attempt
    return None if attempt is None or attempt.kind is None else _read_why(attempt.why_json).gate


def _delay_ms(record: Record) -> int | None:
    """How long until the next try, whoever waits for it."""
    if record.delay_s is None:
        return None
    return round((record.delay_s + record.pause_s) * 1000)


def trace_of(error: BaseException) -> str:
    """What was raised, and where, innermost first, on one line for a log: the words without secrets, no values."""
    told: list[str] = []
    link: BaseException | None = error
    while link is not None and len(told) <= CAUSES_MAX:
        frames = [
            f"{frame.f_globals.get('__name__', '?')}:{line}"
            for frame, line in walk_tb(link.__traceback__)
        ]
        words = safe_line(try_or_none(str, link) or "")
        told.append(f"{type(link).__qualname__}: {words} at {' < '.join(reversed(frames))}")
        link = link.__cause__ or link.__context__
    return "; after ".join(told)
