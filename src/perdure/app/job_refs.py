"""Jobs as their callers hold them: what was enqueued, and what came of a call."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from perdure.app.session.session import Session
from perdure.app.session.waiting import check_wait
from perdure.engine.call import Over
from perdure.engine.operate import single_jobs
from perdure.engine.operate.revival import Restart, admit_correction
from perdure.engine.payloads import decode
from perdure.model.errors import (
    BugError,
    CallerError,
    JobFailed,
    JobUnfinished,
    StoreError,
    UnknownName,
)
from perdure.model.filters import JobFilter
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.operations import Deed, LoggedDeed
from perdure.model.states import TERMINAL, FailedReason, State
from perdure.model.views import AttemptView, CaptureView, JobView, PayloadView
from perdure.ports import Reader

KEPT: Any = object()  # an item may be anything, None as well
_UNTOLD = (TimeoutError, StoreError, BugError)  # what is amiss is seen by who looks for itself


class _Told(Struct):
    """What is read of an explained decision."""

    text: str = ""


class HistoryLine(Struct, frozen=True):
    """What happened to a job at a moment, in a word or two (``event``) and in a sentence (``text``).

    ``event`` is ``enqueued``, how an attempt ended (``retrying``, say), what a person did (``run job now``), or the state
    in which the job ended.
    """

    at: datetime
    event: str
    text: str
    stage: str | None = None
    by: str | None = None


class JobRef(Struct, frozen=True):
    """A job that was enqueued. ``created`` is False when its key belonged to a job already."""

    id: str
    created: bool
    _session: Session
    _owner: str | None = None

    def __repr__(self) -> str:
        return f"JobRef(id={self.id!r}, created={self.created})"

    def __eq__(self, other: object) -> bool:
        """Whether both are the same job, however they were come by."""
        if not isinstance(other, JobRef):
            return NotImplemented
        return self.id == other.id and self._session is other._session

    def __hash__(self) -> int:
        return hash(self.id)

    def view(self) -> JobView:
        """The job as it is now."""
        job = self._session.opened.reader.job(self.id, owner=self._owner)
        if job is None:
            raise UnknownName(f"job {self.id} is no longer in the store")
        return job

    @property
    def state(self) -> State:
        """What the job is now."""
        return self.view().state

    def wait(self, *, wait_s: float | None = 60.0) -> JobView:
        """The job when it has ended, however that was; raises `JobUnfinished` after ``wait_s``, if that is given.

        All who wait in one process are served by one query a look.
        """
        check_wait(wait_s)
        if wait_s is not None and wait_s <= 0:
            return self._check_ended(self.view(), wait_s)
        left_s, again = _countdown(wait_s), False
        while True:
            wait = self._session.watch.wait_for(self.id, again=again)
            try:
                job = wait.result(left_s())
            except _UNTOLD:
                job = None
            finally:
                wait.cancel()
            again = True
            job = job or self.view()
            if job.state in TERMINAL or left_s() == 0:
                return self._check_ended(job, wait_s)

    async def wait_async(self, *, wait_s: float | None = 60.0) -> JobView:
        """As `wait`, without blocking the event loop; it can be cancelled."""
        check_wait(wait_s)
        if wait_s is not None and wait_s <= 0:
            return self._check_ended(await self.view_async(), wait_s)
        left_s, again = _countdown(wait_s), False
        while True:
            watch = await asyncio.to_thread(lambda: self._session.watch)
            wait = watch.wait_for(self.id, again=again)  # here: who is cancelled leaves none behind
            try:
                job = await asyncio.wait_for(asyncio.wrap_future(wait), left_s())
            except _UNTOLD:
                job = None
            finally:
                wait.cancel()
            again = True
            job = job or await self.view_async()
            if job.state in TERMINAL or left_s() == 0:
                return self._check_ended(job, wait_s)

    def result(self, *, wait_s: float | None = 60.0) -> Any:
        """The job's result; waits for it, raises `JobFailed` or `JobUnfinished`."""
        return _result_of(self.wait(wait_s=wait_s))

    async def result_async(self, *, wait_s: float | None = 60.0) -> Any:
        """As `result`, without blocking the event loop; it can be cancelled."""
        return _result_of(await self.wait_async(wait_s=wait_s))

    def attempts(self) -> list[AttemptView]:
        """The job's attempts that have ended, oldest first, each with what it met and why it was judged so."""
        return self._session.opened.reader.attempts(self.view().no)

    def history(self) -> list[HistoryLine]:
        """What has happened to the job, oldest first: attempts, and what people did."""
        job, reader = self.view(), self._session.opened.reader
        deeds = reader.deeds(subject=job.id, limit=PAGE_ROWS_MAX)
        return history_of(job, reader.attempts(job.no), deeds)

    def captures(self) -> list[CaptureView]:
        """What the job's attempts have put aside, oldest first; `App.read_capture` has the output itself."""
        return self._session.opened.reader.captures(self.view().no)

    def payloads(self) -> list[PayloadView]:
        """The payloads that the job had before it was retried with a corrected one, oldest first."""
        return self._session.opened.reader.payloads(self.view().no)

    def retry(
        self,
        *,
        from_stage: str | None = None,
        from_start: bool = False,
        payload: Any = KEPT,
        dry_run: bool = False,
        reason: str = "",
        by: str = "app",
    ) -> str:
        """Give the failed job a new life: at its failed stage, at an earlier one, or from the start.

        The answer is the stage at which it begins. With ``dry_run`` it is checked whether that can be, and nothing is done.

        A corrected ``payload`` takes the place of the item, and is checked as a new one is: the job begins at its first
        stage, and no earlier result is used. Its key stays; the old payload is kept.
        """
        session, job = self._session, self.view()
        opened = session.opened
        kept = payload is KEPT
        return single_jobs.retry(
            opened.control,
            opened.reader,
            session.catalogue,
            self.id,
            deed=Deed(by, reason),
            owner=self._owner,
            restart=Restart(from_stage, from_start),
            payload_json=None
            if kept
            else admit_correction(session.catalogue, job.pipeline, payload),
            check=session.checks.get(job.pipeline),
            observers=session.observers,
            dry_run=dry_run,
        )

    def cancel(self, *, dry_run: bool = False, reason: str = "", by: str = "app") -> None:
        """Cancel the job; after this returns no new attempt starts. With ``dry_run`` it is only checked whether that can be."""
        opened = self._session.opened
        single_jobs.cancel(
            opened.control,
            opened.reader,
            self._session.catalogue,
            self.id,
            deed=Deed(by, reason),
            owner=self._owner,
            observers=self._session.observers,
            dry_run=dry_run,
        )

    def run_now(self, *, dry_run: bool = False, reason: str = "", by: str = "app") -> None:
        """Let a job that waits, for its time or after a failure, be due now; ``dry_run`` as in `cancel`.

        It stays behind a gate that is held and in a queue that is paused. A wait that its upstream has asked for is not
        cut short.
        """
        opened = self._session.opened
        single_jobs.run_now(
            opened.control,
            opened.reader,
            self.id,
            deed=Deed(by, reason),
            owner=self._owner,
            observers=self._session.observers,
            dry_run=dry_run,
        )

    async def view_async(self) -> JobView:
        """As `view`, without blocking the event loop."""
        return await asyncio.to_thread(self.view)

    async def state_async(self) -> State:
        """As `state`, without blocking the event loop."""
        return (await self.view_async()).state

    async def attempts_async(self) -> list[AttemptView]:
        """As `attempts`, without blocking the event loop."""
        return await asyncio.to_thread(self.attempts)

    async def history_async(self) -> list[HistoryLine]:
        """As `history`, without blocking the event loop."""
        return await asyncio.to_thread(self.history)

    async def captures_async(self) -> list[CaptureView]:
        """As `captures`, without blocking the event loop."""
        return await asyncio.to_thread(self.captures)

    async def payloads_async(self) -> list[PayloadView]:
        """As `payloads`, without blocking the event loop."""
        return await asyncio.to_thread(self.payloads)

    async def retry_async(self, **options: Any) -> str:
        """As `retry`, without blocking the event loop."""
        return await asyncio.to_thread(self.retry, **options)

    async def cancel_async(
        self, *, dry_run: bool = False, reason: str = "", by: str = "app"
    ) -> None:
        """As `cancel`, without blocking the event loop."""
        await asyncio.to_thread(self.cancel, dry_run=dry_run, reason=reason, by=by)

    async def run_now_async(
        self, *, dry_run: bool = False, reason: str = "", by: str = "app"
    ) -> None:
        """As `run_now`, without blocking the event loop."""
        await asyncio.to_thread(self.run_now, dry_run=dry_run, reason=reason, by=by)

    def _check_ended(self, job: JobView, wait_s: float | None) -> JobView:
        if self._owner not in (None, job.owner):
            raise UnknownName(f"job {self.id} is no longer in the store")
        if job.state not in TERMINAL:
            raise JobUnfinished(
                f"job {self.id} is still {job.shown_state} after a wait of {wait_s:g} s{_due(job)}"
            )
        return job


class Called(Struct, frozen=True):
    """How a call ended: done, with its value; or with a durable job that goes on.

    ``why`` is the decision in one sentence. ``due_in_s`` is when the job that was handed over is due.
    """

    job: JobRef
    done: bool
    value: Any
    handed_over: bool
    why: str
    due_in_s: float | None = None


def name_or_number(what: str, given: object) -> str:
    """What names a job or a run, as text: an id or a name, or a number, which may be an int."""
    if isinstance(given, str):
        return given
    if not isinstance(given, int) or isinstance(given, bool):
        raise CallerError(f"{what} is {given!r:.80}; give a text or a number")
    return str(given)


def job_at(reader: Reader, named: str | int, owner: str | None = None) -> JobView:
    """A job by its id or its number; another owner's is not found, as one that never was."""
    job_id = name_or_number("the id of a job", named)
    job = reader.job(job_id, owner=owner)
    if job is None and job_id.isascii() and job_id.isdecimal() and len(job_id) < 19:
        below = reader.jobs(JobFilter(owner=owner), limit=1, before=int(job_id) + 1)
        job = below[0] if below and below[0].no == int(job_id) else None
    if job is None:
        raise UnknownName(f"no job {job_id!r} in this store; see: perdure jobs list")
    return job


def called_of(over: Over, session: Session) -> Called:
    """What a caller is told; raises `JobFailed` when there will be no result."""
    if over.state in (State.FAILED, State.CANCELLED):
        raise _no_result(over.job_id, over)
    done = over.state is State.SUCCEEDED
    value = decode(over.result_json or "null") if done else None
    ref = JobRef(over.job_id, over.created, session)
    return Called(ref, done, value, over.handed_over, over.why, over.due_in_s)


def _result_of(job: JobView) -> Any:
    if job.state is State.SUCCEEDED:
        return decode(job.result_json or "null")
    raise _no_result(job.id, job)


def _no_result(id: str, ended: Over | JobView) -> JobFailed:
    """Why there will be none, in words that users may read as well: of the stage's own there are none among them."""
    why = () if ended.failed_reason is None else (ended.failed_reason.value, ended.error_kind)
    reason = ", ".join(filter(None, why))
    late = "its time was over; " if ended.failed_reason is FailedReason.EXPIRED else ""
    code = f" with {ended.error_code}" if ended.error_code not in (None, *why) else ""
    what = f": {late}{ended.error_message.rstrip('.')}" if ended.error_message else ""
    return JobFailed(
        f"job {id} {ended.state.value}{code}{f' ({reason})' if reason else ''}{what}; see: perdure jobs show {id}",
        job_id=id,
        kind=ended.error_kind,
        public_code=ended.error_code,
        public_message=ended.error_message,
    )


def _due(job: JobView) -> str:
    """When a job that waits for its time may go on; of others nothing."""
    if job.state is not State.QUEUED or job.ready:
        return ""
    return f"; it is due {job.due_at.isoformat(timespec='seconds')}"


def _countdown(wait_s: float | None) -> Callable[[], float | None]:
    """How much is left of a wait, from now on; None of one without end."""
    if wait_s is None or wait_s > threading.TIMEOUT_MAX:
        return lambda: None
    until_s = time.monotonic() + wait_s
    return lambda: max(0.0, until_s - time.monotonic())


def history_of(
    job: JobView, attempts: Sequence[AttemptView], deeds: Sequence[LoggedDeed]
) -> list[HistoryLine]:
    """The lines of a job's history, oldest first."""
    return sorted(_lines(job, attempts, deeds), key=lambda line: line.at)


def _lines(
    job: JobView, attempts: Sequence[AttemptView], deeds: Sequence[LoggedDeed]
) -> Iterator[HistoryLine]:
    yield HistoryLine(job.enqueued_at, "enqueued", f"enqueued in pipeline {job.pipeline}")
    for one in attempts:
        why = msgspec.json.decode(one.why_json, type=_Told).text
        text = f"attempt {one.number} of {one.stage} took {one.elapsed_s:.2f} s: {why}"
        yield HistoryLine(one.settled_at, one.status.value, text, one.stage)
    for deed in reversed(deeds):
        text = f"{deed.verb} by {deed.by_whom}" + (f": {deed.reason}" if deed.reason else "")
        yield HistoryLine(deed.done_at, deed.verb, text, by=deed.by_whom)
    if job.finished_at is not None:
        text = job.state.value + (f" ({job.failed_reason.value})" if job.failed_reason else "")
        yield HistoryLine(job.finished_at, job.state.value, text, job.stage)
