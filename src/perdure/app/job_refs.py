"""Jobs as their callers hold them: what was enqueued, and what came of a call."""

import asyncio
from dataclasses import dataclass
from typing import Any

from perdure.app.session.session import Session
from perdure.app.session.waiting import wait_until
from perdure.engine.call import Over
from perdure.engine.operate import single_jobs
from perdure.engine.operate.revival import Restart, corrected
from perdure.engine.payloads import decode
from perdure.model.errors import JobFailed, JobUnfinished, UnknownName
from perdure.model.operations import Deed
from perdure.model.states import TERMINAL, FailedReason, State
from perdure.model.views import CaptureView, JobView, PayloadView
from perdure.ports import Reader

KEPT: Any = object()  # an item may be anything, None as well


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job that was enqueued. ``created`` is False when its key belonged to a job already."""

    id: str
    created: bool
    _session: Session
    _owner: str | None = None

    def show(self) -> JobView:
        """The job as it is now."""
        job = self._session.opened.reader.job(self.id)
        if job is None or self._owner not in (None, job.owner):
            raise UnknownName(f"job {self.id} is no longer in the store")
        return job

    def result(self, *, wait_s: float = 60.0) -> Any:
        """The job's result; waits for it, raises `JobFailed` or `JobUnfinished`."""
        job = wait_until(lambda job: job.state in TERMINAL, self.show, wait_s)
        if job.state not in TERMINAL:
            raise JobUnfinished(f"job {self.id} is {job.shown_state} after {wait_s:g} s")
        return _result_of(job)

    async def result_async(self, *, wait_s: float = 60.0) -> Any:
        """As `result`, without blocking the event loop."""
        return await asyncio.to_thread(self.result, wait_s=wait_s)

    def captures(self) -> list[CaptureView]:
        """What the job's attempts have put aside, oldest first; `App.read_capture` has the output itself."""
        return self._session.opened.reader.captures(self.show().no)

    def payloads(self) -> list[PayloadView]:
        """The payloads that the job had before it was retried with a corrected one, oldest first."""
        return self._session.opened.reader.payloads(self.show().no)

    def retry(
        self,
        *,
        from_stage: str | None = None,
        from_start: bool = False,
        payload: Any = KEPT,
        reason: str = "",
        by: str = "app",
    ) -> None:
        """Give the failed job a new life: at its failed stage, at an earlier one, or from the start.

        A corrected ``payload`` takes the place of the item, and is checked as a new one is: the job begins at its first
        stage, and no earlier result is used. Its key stays; the old payload is kept.
        """
        session, job = self._session, self.show()
        opened = session.opened
        kept = payload is KEPT
        single_jobs.retry(
            opened.control,
            opened.reader,
            session.catalogue,
            self.id,
            deed=Deed(by, reason),
            owner=self._owner,
            restart=Restart(from_stage, from_start),
            payload_json=None if kept else corrected(session.catalogue, job.pipeline, payload),
            check=session.checks.get(job.pipeline),
            observers=session.observers,
        )

    def cancel(self, *, reason: str = "", by: str = "app") -> None:
        """Cancel the job; after this returns no new attempt starts."""
        opened = self._session.opened
        single_jobs.cancel(
            opened.control,
            opened.reader,
            self._session.catalogue,
            self.id,
            deed=Deed(by, reason),
            owner=self._owner,
            observers=self._session.observers,
        )

    def run_now(self, *, reason: str = "", by: str = "app") -> None:
        """Let a job that waits, for its time or after a failure, be due now.

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
        )


@dataclass(frozen=True, slots=True)
class Called:
    """How a call ended: done, with its value; or with a durable job that goes on.

    ``why`` is the decision in one sentence. ``due_in_s`` is when the job that was handed over is due.
    """

    job: JobRef
    done: bool
    value: Any
    handed_over: bool
    why: str
    due_in_s: float | None = None


def job_at(reader: Reader, job_id: str, owner: str | None = None) -> JobView:
    """A job by its id or its number; another owner's is not found, as one that never was."""
    job = reader.job(job_id)
    if job is None and job_id.isascii() and job_id.isdecimal() and len(job_id) < 19:
        below = reader.jobs(limit=1, before=int(job_id) + 1)
        job = below[0] if below and below[0].no == int(job_id) else None
    if job is None or owner not in (None, job.owner):
        raise UnknownName(f"no job {job_id!r} in this store; see: perdure jobs list")
    return job


def called(over: Over, session: Session) -> Called:
    """What a caller is told; raises `JobFailed` when there will be no result."""
    if over.state in (State.FAILED, State.CANCELLED):
        raise _no_result(over.job_id, over.state, over.failed_reason, over.error_message)
    done = over.state is State.SUCCEEDED
    value = decode(over.result_json or "null") if done else None
    ref = JobRef(over.job_id, over.created, session)
    return Called(ref, done, value, over.handed_over, over.why, over.due_in_s)


def _result_of(job: JobView) -> Any:
    if job.state is State.SUCCEEDED:
        return decode(job.result_json or "null")
    raise _no_result(job.id, job.state, job.failed_reason, job.error_message)


def _no_result(
    id: str, state: State, failed_reason: FailedReason | None, message: str | None
) -> JobFailed:
    reason = f" ({failed_reason.value})" if failed_reason else ""
    what = f": {message}" if message else ""
    return JobFailed(f"job {id} {state.value}{reason}{what}; see: perdure jobs show {id}")
