"""The pump: one turn of a worker's trade with the store.

A turn settles what has finished, records it all and claims as many jobs as there are free slots,
in one transaction. Batches form by themselves: while one turn is under way, finished work gathers.

Always true:

* The pump's thread alone touches the store connection and ``_in_hand``. The runner has threads of its own; it is told
  what to start and stop and asked what runs; what has ended it appends to ``finished``.
* A slot is taken from the claim until the receipt of its record, so a worker never holds more jobs
  than its concurrency, carried-on ones included.
* An attempt whose stage writes its record itself is settled apart from the batch (`attempt/completion.py`).
* After an error whose effect is unknown, the same records are sent again, alone, before anything
  else; then the pump asks what the store says it holds and takes up claims whose news was lost.

If the store declares this worker dead, `WorkerDead` leaves `once` and the process has to end.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from random import Random
from time import perf_counter
from typing import Protocol

from msgspec import Struct

from perdure.engine.attempt.completion import BUSY_S, Completions
from perdure.engine.claim import order_for
from perdure.engine.gates.gatekeeper import Gatekeeper
from perdure.engine.gates.traffic import Checked
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.engine.observe import Observers
from perdure.engine.record import Ending, outcome_of_refusal
from perdure.engine.settle import Finished, settle
from perdure.engine.stages import Catalogue, LaidPipeline
from perdure.model.errors import BugError, StoreError, WorkerDead
from perdure.model.jobs import (
    Busy,
    Claim,
    ClaimOrder,
    Receipt,
    Record,
    RecordRefused,
    Settled,
    Stale,
    Turn,
)
from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence, Interrupted, Raised, Returned, Usage
from perdure.model.states import TERMINAL
from perdure.model.verdicts import Handback
from perdure.ports import Store

_LATE_MAX = 3  # turns for nothing, after which a word is not believed without a look


class WorkerIdentity(Struct, frozen=True):
    """Who this pump works for."""

    worker: int
    isolation: int
    concurrency: int


class Runner(Protocol):
    """Whoever runs what the pump has claimed, on threads of its own: `StageRunner`."""

    finished: deque[Finished | Checked]  # what has ended, for the pump to take

    def start(self, claims: Sequence[Claim]) -> None:
        """Run the stages of these."""
        ...

    def stop(self, nos: Sequence[int]) -> None:
        """Stop the stages of these jobs, as far as they can be."""
        ...

    def check(self, upstream: DeclaredUpstream, generation: int) -> None:
        """Ask an upstream how it is."""
        ...

    def has_begun(self, no: int) -> bool:
        """Whether the stage of this job has taken its first step."""
        ...

    def usage_of(self, claim: Claim) -> Usage | None:
        """What a running stage has spent so far, if that is known."""
        ...

    @property
    def slots_unusable(self) -> int:
        """Slots that cannot be filled, beside those that are taken."""
        ...


class Pump:
    """Carries finished work to the store and claims from it to the runner."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        identity: WorkerIdentity,
        runner: Runner,
        *,
        chance: Random,
        observers: Observers,
        gates: Gatekeeper | None = None,
        completions: Completions | None = None,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._identity = identity
        self._runner = runner
        self._finished = runner.finished
        self._chance = chance
        self._observers = observers
        self._gates = gates
        self._completions = completions
        self._trailing: set[tuple[int, int]] = set()  # run here, though their jobs have gone on
        self._left_open: set[tuple[int, int]] = set()  # left behind in transactions of their stages
        self._in_hand: dict[int, Claim] = {}
        self._unsent: dict[int, Record] = {}
        self._used: dict[int, Usage] = {}  # by what is unsent, should it be refused
        self._unsure = False
        self._draining = False
        self._run_jobs_ended = 0
        self._late = 0  # how often in a row we were told of work and others had taken it

    @property
    def in_hand(self) -> tuple[int, ...]:
        """The jobs whose end has not been sent yet."""
        return tuple(no for no in self._in_hand if no not in self._unsent)

    @property
    def run_jobs_ended(self) -> int:
        """How many jobs of runs have ended here."""
        return self._run_jobs_ended

    @property
    def draining(self) -> bool:
        """Whether nothing more is claimed."""
        return self._draining

    def drain(self) -> None:
        """Claim nothing more."""
        self._draining = True

    @property
    def empty(self) -> bool:
        """Whether nothing is in our hands, and nothing may be of which the news was lost."""
        return not self._in_hand and not self._unsure and not self._completions

    def once(self, *, told: bool = False) -> float | None:
        """One turn. Returns how long nothing will be due: 0 to go on at once, None if unknown.

        ``told``: somebody has just said that there is work. Without that we look for work first, which is cheaper than
        a turn for nothing. We also look first after others were quicker several times: many may hear of one job.
        """
        self._gather()
        self._settle_apart()
        wait_s = self._take_turn(told)
        if not self._completions:
            return wait_s
        return BUSY_S if wait_s is None else min(wait_s, BUSY_S)

    def _take_turn(self, told: bool) -> float | None:
        if self._unsure:
            self._catch_up()
            return 0.0
        if self._gates is not None and not (self._draining and self.empty):
            self._keep(self._gates)
        order = self._order()
        if not self._unsent and not (told and order is not None and self._late < _LATE_MAX):
            wait_s = None if order is None else self._store.waiting(order)
            if order is None or wait_s is None or wait_s > 0:
                return wait_s
        turn = self._send(order)
        self._late = self._late + 1 if told and not turn.claims else 0
        self._take_up(turn.claims)
        full = order is not None and len(turn.claims) == order.slots
        return 0.0 if full or self._finished else turn.next_due_s

    def check_held(self) -> tuple[int, ...]:
        """Stop the stages of jobs that the store has taken from us; those that still run here."""
        held = self._store.tokens_held(self._identity.worker)
        if not held.items() <= self._known():  # an earlier turn of ours came through after all
            self._unsure = True
        gone = tuple(
            no
            for no, claim in self._in_hand.items()
            if held.get(no) != claim.token and no not in self._unsent
        )
        if gone and self._completions is not None:  # what is complete was not taken from us
            here = self._in_hand
            stored = self._completions.complete_among(here[no] for no in gone)
            gone = tuple(no for no in gone if (no, here[no].token) not in stored)
        if gone:
            self._runner.stop(gone)
        return gone

    def give_back(self) -> None:
        """Settle what is still in our hands as interrupted by a shutdown; it counts as nothing."""
        for no in self.in_hand:
            self._interrupt(no, "shutdown", begun=self._runner.has_begun(no))

    def give_back_unbegun(self, reason: str) -> int:
        """Settle what has not begun as interrupted; how much that was."""
        unbegun = [no for no in self.in_hand if not self._runner.has_begun(no)]
        if unbegun:
            # Should they begin after all, they end before their first step.
            self._runner.stop(unbegun)
        for no in unbegun:
            self._interrupt(no, reason, begun=False)
        return len(unbegun)

    def _interrupt(self, no: int, reason: str, *, begun: bool) -> None:
        claim = self._in_hand[no]  # what has just finished was appended before this
        usage = self._runner.usage_of(claim)
        self._finished.append(Finished(claim, Interrupted(reason, begun), 0.0, usage))

    def _gather(self) -> None:
        while self._finished:
            one = self._finished.popleft()
            if isinstance(one, Checked):
                if self._gates is not None:
                    self._gates.heed(one)
                continue
            no, claim = one.claim.no, self._in_hand.get(one.claim.no)
            if claim is None or claim.token != one.claim.token or no in self._unsent:
                self._trailing.discard((no, one.claim.token))
                continue  # a late word about a claim that was settled without it
            if self._completions is not None and self._completions.has_asked(claim):
                self._completions.add(one)
                continue
            self._unsent[no] = self._record_of(one)
            if one.usage is not None:
                self._used[no] = one.usage

    def _settle_apart(self) -> None:
        """Attempts that their stages may have recorded themselves: what is stored decides."""
        if not self._completions:
            return
        judge = partial(self._record_of, alone=True)
        for record, answer in self._completions.once(judge, leaving=self._draining):
            claim = self._in_hand.get(record.no)
            if claim is None or claim.token != record.token:
                if not isinstance(answer, Busy):
                    self._observers.tell_settled(record, answer)
            elif isinstance(answer, Busy):  # its transaction ends with this process, or after it
                del self._in_hand[record.no]
                self._left_open.add((record.no, record.token))
            else:
                self._deliver([record], [answer])

    def _record_of(self, one: Finished, *, alone: bool = False) -> Record:
        claim = one.claim
        laid, stage = self._catalogue.place_of_ours(claim)
        ending = Ending(
            claim,
            one.outcome,
            one.elapsed_s,
            self._identity.worker,
            carry_on=isinstance(one.outcome, Returned)
            and not alone
            and self._carries_on(laid, claim),
            usage=one.usage,
            told=one.told,
            captures=one.captures,
        )
        return settle(ending, laid, stage, chance=self._chance.random(), gates=self._gates)

    def _carries_on(self, laid: LaidPipeline, claim: Claim) -> bool:
        if self._draining or not self._catalogue.carries_on(claim.pipeline, claim.stage):
            return False
        following = laid.after(claim.stage)
        if self._gates is None or following is None or following.upstream is None:
            return True
        # while we are unsure, calls that we do not know of may be in flight
        return not self._unsure and self._gates.may_carry_on(following.upstream)

    def _keep(self, gates: Gatekeeper) -> None:
        """Keep the gates; what has finished is recorded, even if that fails."""
        free = 0 if self._draining else max(0, self._slots_free())
        try:
            gates.once(isolation=self._identity.isolation, free=free)
        except StoreError:
            if self._unsent:
                self._send(None)
            raise
        if free:
            try:
                claim = gates.probe(isolation=self._identity.isolation, check=self._runner.check)
            except WorkerDead:
                raise
            except StoreError:
                self._unsure = True  # it may be in our hands all the same
                raise
            if claim is not None:
                self._take_up([claim])

    def _slots_free(self) -> int:
        leaving = sum(1 for record in self._unsent.values() if not record.reclaim)
        taken = len(self._in_hand) + len(self._trailing) - leaving + self._runner.slots_unusable
        return self._identity.concurrency - taken

    def _order(self) -> ClaimOrder | None:
        order = order_for(
            self._catalogue,
            worker=self._identity.worker,
            isolation=self._identity.isolation,
            slots=self._slots_free(),
            draining=self._draining,
        )
        return order if self._gates is None else self._gates.fit_order(order)

    def _send(self, order: ClaimOrder | None) -> Turn:
        records, begun_s = tuple(self._unsent.values()), perf_counter()
        try:
            turn = self._store.turn(records, order, by=self._identity.worker)
        except WorkerDead:
            raise
        except StoreError:
            self._unsure = True
            raise
        self._unsent = {}
        self._observers.note_turn(perf_counter() - begun_s)
        if self._gates is not None:
            self._gates.forget_promises()
        self._deliver(records, turn.settled)
        return turn

    def _catch_up(self) -> None:
        """After an unknown commit: record alone, then see what the store says we hold."""
        self._send(None)
        held = self._store.claims_held(self._identity.worker)
        if self._gates is not None:
            self._gates.look()
        self._unsure = False
        self._take_up([one for one in held if (one.no, one.token) not in self._known()])

    def _known(self) -> set[tuple[int, int]]:
        """The claims whose news has come: those in our hands, and those that we have left to whoever settles lost jobs."""
        return {(claim.no, claim.token) for claim in self._in_hand.values()} | self._left_open

    def _deliver(self, records: Sequence[Record], answers: Sequence[Settled]) -> None:
        by_job = {answer.no: answer for answer in answers}
        defect: BugError | None = None
        # What was refused comes last: whatever is wrong with it, the others' receipts are delivered.
        for record in sorted(records, key=lambda one: isinstance(by_job[one.no], RecordRefused)):
            answer = by_job[record.no]
            try:
                if isinstance(answer, RecordRefused) and self._send_failure_instead(record, answer):
                    continue
            except BugError as error:
                defect = defect or error
                continue
            claim = self._in_hand.pop(record.no)
            self._run_jobs_ended += record.state in TERMINAL and self._is_of_run(claim)
            self._used.pop(record.no, None)
            self._observers.tell_settled(record, answer)
            if isinstance(answer, Receipt) and answer.claim is not None:
                self._take_up([answer.claim])
        if defect is not None:
            raise defect

    def _is_of_run(self, claim: Claim) -> bool:
        return claim.run is not None or self._catalogue.run_of(claim.lane) is not None

    def _send_failure_instead(self, record: Record, answer: RecordRefused) -> bool:
        """A result that cannot be stored is a failure of its stage; True when that is being sent."""
        if record.attempt is not None and record.attempt.kind == "internal":
            return False  # it was that already
        claim, outcome = self._in_hand[record.no], outcome_of_refusal(record, answer.reason)
        ended = Finished(claim, outcome, 0.0, self._used.get(record.no), captures=record.captures)
        self._unsent[record.no] = self._record_of(ended)
        return True

    def _drop_call(self, claim: Claim) -> None:
        """We have claimed the job again: what still runs under its old token is no call of ours any more.

        The store would refuse a record of the old claim, and it must not pass for the end of the new one. Both can be
        here at once, because a probe is claimed before the turn sends its records.
        """
        old = self._in_hand.get(claim.no)
        if old is None or old.token == claim.token:
            return
        late = self._unsent.pop(claim.no, None)
        if self._completions is not None and self._completions.has_asked(old):
            if not self._completions.knows_the_end(old):  # complete, most likely, and not yet back
                self._trailing.add((old.no, old.token))
                self._completions.add(Finished(old, Interrupted(), 0.0))
        elif late is not None:
            self._used.pop(claim.no, None)
            self._observers.tell_settled(late, Stale(late.no, late.id, late.token))
        elif self._gates is not None:
            self._gates.end_call(Ending(old, Interrupted(), 0.0, self._identity.worker), Handback())

    def _take_up(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._drop_call(claim)
            self._in_hand[claim.no] = claim
            self._observers.tell_claimed(claim, self._identity.worker)
            if claim.damage is not None:
                self._finished.append(Finished(claim, Raised(_damage_evidence(claim.damage)), 0.0))
        if self._gates is not None:
            self._gates.start_calls(claims)
        whole = [claim for claim in claims if claim.damage is None]
        if whole:
            self._runner.start(whole)


def _damage_evidence(damage: str) -> Evidence:
    """Why a job whose row cannot be read is not run: running it again would not mend the row."""
    words = f"the stored job is damaged: {damage}"
    return Evidence(("perdure.RowDamaged",), words, kind=Kind.INPUT_INVALID)
