"""Judges bulk operations: to each job that was meant, one thing is done, or it is refused."""

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.model.jobs import Conflict, Receipt, Record, Revived, Settled, Stale
from perdure.model.operations import (
    BulkChange,
    BulkPhase,
    BulkStatus,
    BulkStep,
    BulkVerb,
    BulkView,
    Deed,
    NewBulk,
    Revival,
    Target,
)
from perdure.model.states import State
from tests.sim.ledger import BulkAccount, JobAccount

if TYPE_CHECKING:
    from tests.sim.checker import Checker

_GIVEN_UP_AFTER = 20  # looks at a job that a transaction of its stage's own holds


class Letters:
    """The judge of bulk operations."""

    def __init__(self, checker: "Checker") -> None:
        self._checker = checker
        self._ledger = checker.ledger
        self._world = checker.world

    # -- steps with deeds ----------------------------------------------------------------

    def takes(
        self,
        step: BulkStep,
        chosen: Sequence[Revival | Target | Record],
        answers: Sequence[Settled | Revived],
    ) -> bool:
        """Whether a step is taken: the operation runs and stands where it was seen."""
        bulk = self._ledger.bulks[step.no]
        if self._stands(bulk, step):
            self._check_chosen(bulk, [one.no for one in (*chosen, *step.refusals)])
            return True
        if not all(isinstance(one, Stale) for one in answers):
            self._broken(bulk, f"a step from {step.seen_cursor} was taken")
        self._world.seen["steps of bulk operations that came second"] += 1
        return False

    def taken(self, step: BulkStep, answers: Sequence[Settled | Revived]) -> None:
        """What a step has done is the operation's."""
        bulk = self._ledger.bulks[step.no]
        bulk.done |= {one.no for one in answers if isinstance(one, Receipt)}
        kinds = Conflict if step.again else Stale | Conflict
        left = {one.no for one in answers if isinstance(one, kinds)}
        bulk.refused |= left | {one.no for one in step.refusals}
        self._world.seen["dead letters refused"] += len(left) + len(step.refusals)
        self._check_rate(bulk)
        self._move(bulk, step)

    def _check_chosen(self, bulk: BulkAccount, nos: Sequence[int]) -> None:
        before = bulk.done | bulk.refused
        for no in nos:
            if no not in bulk.meant:
                self._broken(bulk, f"#{no} was no dead letter of its filter when it began")
            if no in before or nos.count(no) > 1:
                self._broken(bulk, f"#{no} is taken on a second time")
        if nos and bulk.phase is BulkPhase.PROVING:
            self._broken(bulk, f"{list(nos)} are taken on before its canary has ended")

    def _check_rate(self, bulk: BulkAccount) -> None:
        rate, canary = bulk.settings.get("rate_per_s"), bulk.settings.get("canary")
        since_s = (self._world.now_us - bulk.resumed_us) / 1e6
        if rate is not None and len(bulk.done) - bulk.resumed_done > math.floor(rate * since_s) + 1:
            self._broken(bulk, f"{len(bulk.done)} are done in {since_s:g} s at {rate:g} a second")
        if bulk.phase is BulkPhase.CANARY and len(bulk.done) > (canary or 0):
            self._broken(bulk, f"{len(bulk.done)} are done, its canary is {canary}")

    # -- operations ----------------------------------------------------------------------

    def _add_bulk(self, answer: BulkView, new: NewBulk) -> None:
        if answer.no not in self._ledger.bulks:
            meant = json.loads(new.filter_json)
            letters = [
                one for one in self._ledger.jobs.values() if self._is_meant(one, new.verb, meant)
            ]
            self._ledger.bulks[answer.no] = BulkAccount(
                answer.no,
                new.id,
                new.verb,
                new.run,
                new.phase,
                {one.no: one.token for one in letters},
                {one.no: one.life for one in letters if not one.terminal},
                json.loads(new.settings_json),
                resumed_us=self._world.now_us,
            )
            self._world.seen[f"bulk operations begun: {new.verb.value}"] += 1
        self.seen(answer)

    def _is_meant(self, job: JobAccount, verb: BulkVerb, meant: dict[str, object]) -> bool:
        """One that is dead now may be open when an operation on open jobs comes to it."""
        dead = job.state is State.FAILED and job.discarded_us is None
        dead = (dead or verb in (BulkVerb.CANCEL, BulkVerb.RUN_NOW)) and not job.pruned
        alike = all(
            meant[name] in (None, getattr(job, name)) for name in ("pipeline", "owner", "stage")
        )
        return dead and alike and meant["run"] in (None, job.run, job.redrive_run)

    def _step_bulk(self, answer: BulkView | None, step: BulkStep) -> None:
        bulk = self._ledger.bulks[step.no]
        if (answer is not None) != self._stands(bulk, step):
            self._broken(bulk, f"a step from {step.seen_cursor} was taken: {answer is not None}")
        if answer is not None:
            self._given_up(bulk, [one.no for one in step.refusals])
            self._move(bulk, step)
            self.seen(answer)

    def _given_up(self, bulk: BulkAccount, nos: Sequence[int]) -> None:
        """What a step refuses that does nothing else it has met in an open transaction of its stage, again and again."""
        self._check_chosen(bulk, nos)
        for no in nos:
            met = self._checker.bulk_busy[bulk.no, no]
            if met < _GIVEN_UP_AFTER:
                self._broken(bulk, f"#{no} is refused, and it was met held {met} times")
        bulk.refused |= set(nos)
        self._world.seen["bulk operations that gave a held job up"] += len(nos)

    def _change_bulk(self, answer: BulkView | None, change: BulkChange, deed: Deed) -> None:
        bulk = self._ledger.bulks[change.no]
        if (answer is not None) != (bulk.status is change.seen):
            self._broken(bulk, f"from {change.seen} to {change.status}: {answer is not None}")
        if answer is None:
            return
        bulk.status = change.status
        if change.status is BulkStatus.RUNNING:
            bulk.resumed_us, bulk.resumed_done = self._world.now_us, len(bulk.done)
        self._world.seen[f"bulk operations {change.status.value} by a person"] += 1
        self._checker.moved_us = self._world.now_us
        self.seen(answer)

    def _bulks(self, answer: list[BulkView], **chosen: object) -> None:
        for one in answer:
            self.seen(one)

    def seen(self, view: BulkView) -> None:
        """A bulk operation as the store shows it now is as its history says."""
        bulk = self._ledger.bulks[view.no]
        said = (view.status, view.cursor, view.phase, view.done, view.refused)
        known = (bulk.status, bulk.cursor, bulk.phase, len(bulk.done), len(bulk.refused))
        if said != known:
            self._broken(bulk, f"it is {said}, the history says {known}")

    def _stands(self, bulk: BulkAccount, step: BulkStep) -> bool:
        return bulk.status is BulkStatus.RUNNING and bulk.cursor == step.seen_cursor

    def _move(self, bulk: BulkAccount, step: BulkStep) -> None:
        bulk.cursor, bulk.status, bulk.phase = step.cursor, step.status, step.phase
        self._checker.moved_us = self._world.now_us
        if bulk.status is BulkStatus.RUNNING:
            return
        self._world.seen[f"bulk operations {bulk.status.value}: {bulk.verb.value}"] += 1
        if bulk.status is BulkStatus.DONE:
            self._check_whole(bulk)

    def _check_whole(self, bulk: BulkAccount) -> None:
        """Each job that was meant is done, refused, or had moved on before it was looked at; a cancelled one has ended."""
        for no, life in bulk.open.items() if bulk.verb is BulkVerb.CANCEL else ():
            job = self._ledger.jobs[no]
            if not (job.terminal or job.pruned or job.life != life or no in bulk.refused):
                self._broken(bulk, f"it is done, and #{no} is still {job.state.value}")
        if bulk.verb in (BulkVerb.CANCEL, BulkVerb.RUN_NOW):
            return
        for no, token in bulk.meant.items():
            job = self._ledger.jobs[no]
            moved_on = job.pruned or job.token != token
            if no not in bulk.done | bulk.refused and not moved_on:
                self._broken(bulk, f"it is done, and #{no} was neither taken on nor refused")

    def _broken(self, bulk: BulkAccount, text: str) -> None:
        self._checker.broken("E11", f"{bulk.verb.value} {bulk.no}: {text}")
