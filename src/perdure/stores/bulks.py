"""Deeds on jobs, one by one and in bulk; the same on every store.

Always true: what is done to the jobs of a step, what is written down about those that were left as they
were, and the step itself are one transaction; a bulk operation has done what its row says, no more and no less.

Who is authoritative: the rows. A job is guarded by its token, a bulk operation by its cursor while it runs:
whoever saw it elsewhere does nothing.

What may happen at once: on SQLite anything, one after the other under the turnstile. On PostgreSQL anything, in READ COMMITTED:
the row of the bulk operation is locked before anything else, and compared: of two hands that take the same step the
second waits, and then finds the cursor elsewhere. After it jobs are locked, then runs, each in the order of numbers.

If we die in the middle nothing has happened; if the answer is lost, the same step again is told that the
operation has moved on, and its row says how far.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence

from perdure.model.jobs import Busy, Receipt, Record, Revived, Settled, Stale
from perdure.model.operations import (
    BulkChange,
    BulkStatus,
    BulkStep,
    BulkView,
    Deed,
    NewBulk,
    Refusal,
    Revival,
    Target,
)
from perdure.stores import deeds
from perdure.stores.columns import BULK
from perdure.stores.deed_writer import OpenTransaction, SharedWriting


class SharedBulks(SharedWriting):
    """The part of the `Control` port that is about single jobs and bulk operations."""

    @abstractmethod
    def _revive(
        self, cx: OpenTransaction, chosen: Sequence[Revival], owner: str | None, now: int
    ) -> list[Revived]:
        """Begin new lives, in a transaction."""

    @abstractmethod
    def _discard(
        self, cx: OpenTransaction, chosen: Sequence[Target], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        """Discard dead letters, in a transaction."""

    @abstractmethod
    def _cancel(
        self, cx: OpenTransaction, records: Sequence[Record], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        """Write the ends of open jobs, in a transaction."""

    @abstractmethod
    def _run_now(
        self, cx: OpenTransaction, chosen: Sequence[Target], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        """Let waiting jobs be due, in a transaction."""

    @abstractmethod
    def _refuse(self, cx: OpenTransaction, bulk: int, refusals: Sequence[Refusal]) -> int:
        """Write down what was left as it was; how many of these were not written down before."""

    @abstractmethod
    def _keep_payloads(
        self, cx: OpenTransaction, bulk: int, payloads: Sequence[tuple[str, str]]
    ) -> None:
        """Keep what a bulk operation brings, by key."""

    def revive(
        self,
        chosen: Sequence[Revival],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Revived]:
        """Give failed jobs a new life; of those with one key, the lowest number."""

        def work(cx: OpenTransaction, now: int) -> list[Revived]:
            if step is not None and not self._stands(cx, step):
                return [stale(one) for one in chosen]
            answers = self._revive(cx, chosen, owner, now) if chosen else []
            in_order = sorted(answers, key=lambda one: one.no)
            self._note(cx, deeds.REVIVE, _ids_done(in_order), deed, now)
            if step is not None:
                self._move(cx, step, answers, now)
            return answers

        return self._write(work)

    def discard(
        self,
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Mark dead letters as dealt with; one that is not failed, or discarded already, is stale."""
        return self._act(
            chosen, lambda cx, now: self._discard(cx, chosen, owner, now), deeds.DISCARD, deed, step
        )

    def cancel(
        self,
        records: Sequence[Record],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Write these ends of open jobs; one that cannot be written does not spoil its neighbours."""
        return self._act(
            records, lambda cx, now: self._cancel(cx, records, owner, now), deeds.CANCEL, deed, step
        )

    def run_now(
        self,
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Let jobs that wait for their time be due now; idle workers are woken."""
        return self._act(
            chosen, lambda cx, now: self._run_now(cx, chosen, owner, now), deeds.RUN_NOW, deed, step
        )

    def add_bulk(self, bulk: NewBulk) -> BulkView:
        """Begin a bulk operation; the same id finds the same one."""

        def work(cx: OpenTransaction, now: int) -> BulkView:
            where = {
                "id": bulk.id,
                "verb": bulk.verb.value,
                "filter": bulk.filter_json,
                "by_whom": bulk.deed.by_whom,
                "reason": bulk.deed.reason,
                "now": now,
                "settings": bulk.settings_json,
                "run": bulk.run,
                "phase": bulk.phase.value,
                "owner": bulk.owner,
            }
            made = cx.execute(self._sql.bulk_add, where).rowcount == 1
            view = BULK.read(
                cx.execute(self._sql.bulk_by_id, {"id": bulk.id, "owner": None}).fetchone()
            )
            if made:
                self._note(cx, deeds.BULK[bulk.verb], [bulk.id], bulk.deed, now)
                self._keep_payloads(cx, view.no, bulk.payloads)
            return view

        return self._write(work)

    def step_bulk(self, step: BulkStep) -> BulkView | None:
        """Move a bulk operation on; None when it is elsewhere already, or over."""

        def work(cx: OpenTransaction, now: int) -> BulkView | None:
            return self._move(cx, step, (), now) if self._stands(cx, step) else None

        return self._write(work)

    def change_bulk(self, change: BulkChange, deed: Deed) -> BulkView | None:
        """Stop a bulk operation, or set it going again, if it still has the status that was seen."""

        def work(cx: OpenTransaction, now: int) -> BulkView | None:
            where = {
                "no": change.no,
                "seen": change.seen.value,
                "status": change.status.value,
                "why": change.why,
                "now": now,
            }
            row = cx.execute(self._sql.bulk_change, where).fetchone()
            if row is None:
                return None
            bulk = BULK.read(row)
            self._note(cx, deeds.BULK_CHANGE[change.status], [bulk.id], deed, now)
            return bulk

        return self._write(work)

    def _act(
        self,
        chosen: Sequence[Target | Record],
        act: Callable[[OpenTransaction, int], list[Settled | Busy]],
        verb: str,
        deed: Deed,
        step: BulkStep | None,
    ) -> list[Settled | Busy]:
        """A deed on some jobs, each with its line in the audit log, and the step of a bulk operation."""

        def work(cx: OpenTransaction, now: int) -> list[Settled | Busy]:
            if step is not None and not self._stands(cx, step):
                return [stale(one) for one in chosen]
            answers = act(cx, now) if chosen else []
            self._note(cx, verb, _ids_done(answers), deed, now)
            if step is not None:
                self._move(cx, step, answers, now)
            return answers

        return self._write(work)

    def _stands(self, cx: OpenTransaction, step: BulkStep) -> bool:
        """Whether it runs and is where it was seen; if so, it stays there until we have committed."""
        where = {"no": step.no, "seen_cursor": step.seen_cursor}
        return cx.execute(self._sql.bulk_lock, where).fetchone() is not None

    def _move(
        self,
        cx: OpenTransaction,
        step: BulkStep,
        answers: Sequence[Settled | Revived | Busy],
        now: int,
    ) -> BulkView:
        """Write the step, and the jobs that it left as they were; each job is listed once."""
        refusals = deeds.refusals(step, answers)
        where = {
            "no": step.no,
            "cursor": step.cursor,
            "done": step.done + len(_ids_done(answers)),
            "refused": self._refuse(cx, step.no, refusals) if refusals else 0,
            "status": step.status.value,
            "phase": step.phase.value,
            "why": step.why,
            "now": now,
        }
        row = cx.execute(self._sql.bulk_step, where).fetchone()
        if step.status is BulkStatus.DONE:
            cx.execute(self._sql.bulk_payloads_forget, {"bulk": step.no})
        return BULK.read(row)


def stale(one: Revival | Target | Record) -> Stale:
    """The answer about a job that has moved on."""
    return Stale(one.no, one.id, one.token)


def _ids_done(answers: Iterable[Settled | Revived | Busy]) -> list[str]:
    return [one.id for one in answers if isinstance(one, Receipt)]
