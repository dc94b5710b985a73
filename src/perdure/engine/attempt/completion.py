"""Attempts whose stage writes its record itself, in a transaction of its own: ``context.complete(value, within=cx)``.

Always true:

* The record and the stage's own rows are in one transaction: both are there, or neither.
* Once a stage has asked for this, nothing that it returns or raises says how its attempt has ended. The attempt's row
  does: if it is there, the stage is complete; if not, the attempt is judged by how it ended, and a plain return is
  a failure, because the rows that belong to the result are not there.
* The token guards the record. The worker must be alive when it is written, but its row is not locked: the
  transaction is open for as long as the stage likes, and a worker that is stopped in the middle of it can be
  declared dead. If it commits after that, the attempt was its own to the end; if it does not, the job is lost with it.
* Nobody waits for a job's row that an open transaction holds: whoever meets such a row leaves it and comes back.
* The gate is told once, when it is known what the attempt was: a good call if it is complete, else as it ended. So
  what to write is decided without a look at the gate; a stage that has asked has had the upstream's answer. What the
  driver of its transaction raises is a word of our own store, and says nothing about the upstream.

What may happen at once: a stage asks on a thread of its own, the pump settles on its thread. The notes of an attempt
(`AttemptNotes`) let nobody ask once it is over, so whoever hears of its end knows whether its stage had asked.

If we die on any line: before the commit there is neither a record nor a row, and the attempt is lost; after it
there are both, and the attempt has ended.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, assert_never

import msgspec

from perdure.engine.attempt.captures import CaptureFactory
from perdure.engine.attempt.context import AttemptNotes
from perdure.engine.payloads import admit
from perdure.engine.record import Ending
from perdure.engine.settle import Finished, settle
from perdure.engine.stages import Catalogue
from perdure.model.errors import (
    BugError,
    CallerError,
    NotCompletable,
    PayloadRefused,
    PerdureError,
    StoreBusy,
)
from perdure.model.jobs import Busy, Claim, Receipt, Record, RecordRefused, Settled, Stale
from perdure.model.limits import RESULT_BYTES_MAX
from perdure.model.outcomes import Interrupted, Outcome, Raised, Returned, Unstorable
from perdure.model.signals import Cancel, Snooze, Succeeded
from perdure.model.states import AttemptStatus
from perdure.ports import Clock, Store

log = logging.getLogger("perdure")

Key = tuple[int, int]  # a job and its token
BUSY_S = 0.2  # until we look again at a transaction that is still open
_TELL_S = 5.0  # a transaction that is open for so long after its stage has ended is not about to be committed

_DRIVERS = ("psycopg.", "sqlite3.", "sqlalchemy.")  # of transactions in which a stage can complete
_NOT_COMMITTED = (
    "the stage called complete(within=...) and returned, but its transaction was not committed, so neither its "
    "rows nor its result are there; commit before you return"
)


class Completions:
    """What the stages of one worker, or of one call, write themselves.

    ``make`` says what to write about an attempt, and tells no gate. With ``of_ends`` it also does so for attempts
    that are not complete; without it, the ``judge`` of `once` does.
    """

    def __init__(
        self,
        store: Store,
        worker: int,
        *,
        make: Callable[[Finished], Record],
        capture_factory: CaptureFactory,
        clock: Clock,
        of_ends: bool = False,
    ) -> None:
        self._store = store
        self._worker = worker
        self._make = make
        self._capture_factory = capture_factory
        self._clock = clock
        self._of_ends = of_ends
        self._asked: dict[Key, Record | None] = {}
        self._ended: dict[Key, Finished] = {}
        self._given_back: set[Key] = set()
        self._busy_at: dict[Key, float] = {}

    def __len__(self) -> int:
        """How many attempts are over and not settled yet."""
        return len(self._ended)

    def of(self, claim: Claim, began_s: float) -> "Completion":
        """What the notes of an attempt need."""
        return Completion(self, claim, began_s)

    def has_asked(self, claim: Claim) -> bool:
        """Whether the stage of this attempt has asked for its record in a transaction of its own."""
        return bool(self._asked) and (claim.no, claim.token) in self._asked

    # -- on the stage's thread -----------------------------------------------------------------

    def ask(self, claim: Claim) -> None:
        """From now on the stored attempt decides."""
        self._asked.setdefault((claim.no, claim.token), None)

    def write(
        self, claim: Claim, began_s: float, notes: AttemptNotes, value: Any, within: object
    ) -> None:
        """Write the record in the stage's transaction, or say why not; then nothing of it is there."""
        key, before = (claim.no, claim.token), self._asked.get((claim.no, claim.token))
        outcome, elapsed_s = _storable_result(value), self._clock.monotonic() - began_s
        captures = self._capture_factory.captures_of(outcome, notes.asides)
        record = self._make(Finished(claim, outcome, elapsed_s, notes.usage, captures=captures))
        self._asked[key] = record  # first: if the answer is lost, it may have been written
        answer = self._store.complete(record, by=self._worker, within=within)
        if not isinstance(answer, Receipt) or answer.repeated:
            self._asked[key] = before
            raise notes.too_late() if notes.over else _why_not(answer)

    # -- on the pump's thread ------------------------------------------------------------------

    def add(self, one: Finished) -> None:
        """An attempt that had asked is over. Its first end counts, which may be stored already; one that is given back after it is not waited for."""
        key = (one.claim.no, one.claim.token)
        if _is_given_back(one):
            self._given_back.add(key)
        self._ended.setdefault(key, one)

    def knows_the_end(self, claim: Claim) -> bool:
        """Whether this attempt is over."""
        return (claim.no, claim.token) in self._ended

    def complete_among(self, claims: Iterable[Claim]) -> set[Key]:
        """Those of these attempts whose stages are complete."""
        asked = [(one.no, one.token) for one in claims if self.has_asked(one)]
        found = self._store.ends_of(asked) if asked else {}
        return {key for key, status in found.items() if status is AttemptStatus.SUCCESS}

    def once(
        self, judge: Callable[[Finished], Record], *, leaving: bool
    ) -> Iterator[tuple[Record, Settled | Busy]]:
        """Settle what is over, one after the other: what was to be written, and what became of it.

        ``judge`` says what to write about an attempt, and tells the gate: once, when it is known how the attempt
        has ended. A job that an open transaction still holds is left for the next time, and nobody is told;
        while ``leaving``, for whoever settles lost jobs.
        """
        if not self._ended:
            return
        complete = self.complete_among(one.claim for one in self._ended.values())
        write = self._make if self._of_ends else judge
        for key, one in list(self._ended.items()):
            ended = msgspec.structs.replace(one, outcome=as_it_ended(one.outcome))
            record, answer = (
                self._complete(one.claim)
                if key in complete
                else self._settle(write(ended), one.claim)
            )
            if isinstance(answer, Busy) and not (leaving and key in self._given_back):
                self._say_busy(key, one.claim)
                continue
            if not isinstance(answer, Busy):
                is_complete = record is self._asked.get(key)
                good = msgspec.structs.replace(one, outcome=Returned("null"))
                silent = msgspec.structs.replace(one, outcome=Interrupted())
                judge(good if is_complete else silent if _is_of_driver(one.outcome) else ended)
            self._asked.pop(key, None)
            self._ended.pop(key, None)
            self._busy_at.pop(key, None)
            self._given_back.discard(key)
            yield record, answer

    def _settle(self, record: Record, claim: Claim) -> tuple[Record, Settled | Busy]:
        (answer,) = self._store.settle([record], by=self._worker)
        if _is_old(answer) and self.complete_among([claim]):  # committed this very moment
            return self._complete(claim)
        return record, answer

    def _complete(self, claim: Claim) -> tuple[Record, Receipt]:
        """The record that is stored, and its receipt."""
        record = self._asked[claim.no, claim.token]
        if record is None:
            raise BugError(f"job {claim.id} has the success of an attempt that wrote none")
        return record, Receipt(record.no, record.id, record.token, record.state, None)

    def _say_busy(self, key: Key, claim: Claim) -> None:
        now = self._clock.monotonic()
        busy_at = self._busy_at.setdefault(key, now)
        if now - busy_at >= _TELL_S:
            self._busy_at[key] = math.inf  # once
            log.warning(
                "stage %r of job %s (request %s) has ended, and the transaction in which it called complete() is "
                "still open: commit it or roll it back, or close its connection; until then the job cannot be settled",
                claim.stage,
                claim.id,
                claim.request_id,
            )


def completions_of(
    store: Store, catalogue: Catalogue, worker: int, capture_factory: CaptureFactory, clock: Clock
) -> Completions:
    """Those of a worker."""

    def make(one: Finished) -> Record:
        claim = one.claim
        laid, stage = catalogue.place_of_ours(claim)
        ending = Ending(
            claim, one.outcome, one.elapsed_s, worker, usage=one.usage, captures=one.captures
        )
        chance = Random(f"{claim.id} {claim.token}").random()  # the same each time it is sent
        return settle(ending, laid, stage, chance=chance)

    return Completions(
        store, worker, make=make, capture_factory=capture_factory, clock=clock, of_ends=True
    )


class Completion:
    """The way of one attempt to its record, as its notes have it."""

    __slots__ = ("_began_s", "_claim", "_whole")

    def __init__(self, whole: Completions, claim: Claim, began_s: float) -> None:
        self._whole = whole
        self._claim = claim
        self._began_s = began_s

    def ask(self) -> None:
        """From now on the stored attempt decides."""
        self._whole.ask(self._claim)

    def write(self, notes: AttemptNotes, value: Any, within: object) -> None:
        """Write the record in the stage's transaction."""
        self._whole.write(self._claim, self._began_s, notes, value, within)


def _storable_result(value: Any) -> Returned:
    label = None
    if isinstance(value, Succeeded):
        value, label = value.value, value.label
    elif isinstance(value, Snooze | Cancel):
        name = type(value).__name__
        raise CallerError(
            f"complete: value is a {name}, which is no result; return it, without complete"
        )
    return Returned(admit(value, what="the result", bytes_max=RESULT_BYTES_MAX), label)


def as_it_ended(outcome: Outcome) -> Outcome:
    """A plain return says nothing: what was to be stored with it is not there."""
    return Unstorable(_NOT_COMMITTED) if isinstance(outcome, Returned | Unstorable) else outcome


def _is_of_driver(outcome: Outcome) -> bool:
    return isinstance(outcome, Raised) and any(
        name.startswith(_DRIVERS) for name in outcome.evidence.names
    )


def _is_given_back(one: Finished) -> bool:
    return isinstance(one.outcome, Interrupted)


def _is_old(answer: Settled | Busy) -> bool:
    """Whether the job has moved on without what we have just sent."""
    return isinstance(answer, Stale) or (isinstance(answer, Receipt) and answer.repeated)


def _why_not(answer: Settled | Busy) -> PerdureError:
    """Why nothing was written, to be raised in the stage."""
    match answer:
        case Receipt():
            return NotCompletable(
                f"complete: this attempt of job {answer.id} has its record already; call complete once in a "
                "transaction"
            )
        case Stale():
            return NotCompletable(
                f"complete: job {answer.id} is not in the hands of this attempt any more (it was cancelled, or its "
                "time was up, or its worker was taken for dead); roll back"
            )
        case RecordRefused():
            return PayloadRefused(
                f"complete: the store cannot write the result of job {answer.id}: {answer.reason}; complete it "
                "with another value"
            )
        case Busy():
            return StoreBusy(
                f"complete: another transaction holds job {answer.id}: one of yours in which you called complete, or "
                "that of somebody who ends the job at this moment; end yours, or roll back"
            )
        case _:  # pragma: no cover
            assert_never(answer)
