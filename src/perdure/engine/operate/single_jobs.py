"""What people and callers do to single jobs: cancel them, run those that wait now, retry those that have failed.

A caller holds no lease, so it shows the token it has just read; if the job moves on in between, the
answer is stale. For one job we look again. After a cancel is acknowledged no new attempt starts, and
whatever a running one still says is refused.
"""

import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from itertools import count

import msgspec

from perdure.engine.observe import Observers
from perdure.engine.operate.closed_lanes import why_closed
from perdure.engine.operate.eligible import Check, why_not
from perdure.engine.operate.revival import FAILED_STAGE, Restart, Revivals, enqueue_anew
from perdure.engine.record import Ending, cancel_record, record_of
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.model.decisions import CancelJob, Why
from perdure.model.errors import (
    NotCancellable,
    NotChangeable,
    NotRetriable,
    StoreBusy,
    UnknownName,
)
from perdure.model.filters import JobFilter
from perdure.model.jobs import Busy, Claim, Conflict, Receipt, Record
from perdure.model.kinds import GROUPS
from perdure.model.limits import MESSAGE_CHARS_MAX, NAME_CHARS_MAX, PAGE_ROWS_MAX
from perdure.model.operations import Deed, Target
from perdure.model.outcomes import Revoked
from perdure.model.runs import RunStatus
from perdure.model.states import TERMINAL, State
from perdure.model.views import JobView
from perdure.ports import Control, Reader
from perdure.ports.compare_and_set import compare_and_set
from perdure.rules.evidence import one_line

_BUSY_MAX = 20  # a claim or a record is over long before that
_BUSY_S = 0.01

NOBODY = Observers()


class _JobAsked(msgspec.Struct):
    """What is read of an explained decision: the wait that the upstream has asked for."""

    hint_s: float | None = None


def cancel(
    control: Control,
    reader: Reader,
    catalogue: Catalogue,
    job_id: str,
    *,
    deed: Deed,
    owner: str | None = None,
    observers: Observers = NOBODY,
    dry_run: bool = False,
    rest: Callable[[float], object] = time.sleep,
) -> Receipt | None:
    """Cancel a queued or running job; with ``dry_run`` all is checked, and nothing is done."""
    words, busy = clean_deed(deed), count(1)

    def look() -> Record:
        job = _job(reader, job_id, owner)
        if job.state in TERMINAL:
            raise NotCancellable(f"job {job_id} is already {job.state.value}")
        return _record(job, catalogue, words.reason, reader.now())

    def once() -> Receipt | None:
        record = look()
        (answer,) = control.cancel([record], words, owner=owner)
        if isinstance(answer, Receipt):
            observers.tell_settled(record, answer)
            return answer
        if isinstance(answer, Busy):
            if next(busy) == _BUSY_MAX:
                raise StoreBusy(
                    f"job {job_id} is being completed in a transaction of its stage's own, which is still open; "
                    "try again when that has ended"
                )
            rest(_BUSY_S)
        return None

    if dry_run:
        look()
        return None
    return compare_and_set(f"job {job_id}", once)


def retry(
    control: Control,
    reader: Reader,
    catalogue: Catalogue,
    job_id: str,
    *,
    deed: Deed,
    owner: str | None = None,
    restart: Restart = FAILED_STAGE,
    payload_json: str | None = None,
    check: Check | None = None,
    observers: Observers = NOBODY,
    dry_run: bool = False,
) -> str:
    """Give a failed job a new life, at its failed stage or from an earlier one; with a corrected payload, from the first.

    The answer is the stage at which it begins. With ``dry_run`` all is checked, and nothing is done.
    """
    revivals = Revivals(reader, catalogue, restart)

    def once() -> str | None:
        job = _job(reader, job_id, owner)
        _check_run(reader, job)
        revival = revivals.of(job, payload_json)
        refused = why_not(job, check, payload_json)
        if refused is not None:
            raise NotRetriable(f"job {job_id} cannot be retried: {refused}")
        if dry_run:
            _check_rival(job, reader.rivals([job.no]).get(job.no))
            return revival.stage
        (answer,) = control.revive([revival], clean_deed(deed), owner=owner)
        if isinstance(answer, Conflict):
            _check_rival(job, answer.with_id)
        if isinstance(answer, Receipt):
            observers.tell_revived(revival, clean_deed(deed))
            return revival.stage
        return None

    return compare_and_set(f"job {job_id}", once)


def _check_rival(job: JobView, rival: str | None) -> None:
    if rival is not None:
        raise NotRetriable(
            f"job {job.id} cannot be retried: its key {job.key!r} is alive again as job "
            f"{rival}; wait for that one, or cancel it"
        )


def run_now(
    control: Control,
    reader: Reader,
    job_id: str,
    *,
    deed: Deed,
    owner: str | None = None,
    observers: Observers = NOBODY,
    dry_run: bool = False,
) -> Receipt | None:
    """Let a job that waits for its time be due now; with ``dry_run`` all is checked, and nothing is done."""

    def look() -> JobView:
        job = _job(reader, job_id, owner)
        refused = not_now(job, reader)
        if refused is not None:
            raise NotChangeable(f"job {job_id} cannot be run now: {refused}")
        return job

    def once() -> Receipt | None:
        job = look()
        target = target_of(job)
        (answer,) = control.run_now([target], clean_deed(deed), owner=owner)
        if isinstance(answer, Receipt):
            observers.tell_brought_forward(target, clean_deed(deed))
            return answer
        return None

    if dry_run:
        look()
        return None
    return compare_and_set(f"job {job_id}", once)


def target_of(job: JobView) -> Target:
    """The job as it was seen."""
    return Target(job.no, job.id, job.token, job.request_id, job.owner)


def run_held_now(control: Control, reader: Reader, lanes: Collection[int], *, deed: Deed) -> int:
    """Let jobs in these lanes be due whose wait was only the hold of a credential, which a person has released; how many."""
    begun, words = 0, clean_deed(deed)
    for kind in sorted(GROUPS["account"]):
        chosen = JobFilter(states=(State.QUEUED,), kind=kind, waiting=True)
        before = None
        while page := reader.jobs(chosen, limit=PAGE_ROWS_MAX, before=before):
            before = page[-1].no
            met = [one for one in page if one.lane in lanes and not_now(one, reader) is None]
            targets = [target_of(one) for one in met]
            answers = control.run_now(targets, words) if targets else []
            begun += sum(isinstance(one, Receipt) for one in answers)
    return begun


def not_now(job: JobView, reader: Reader) -> str | None:
    """Why a job cannot be run now, or None.

    Our own pauses and a time that was asked for are overruled. What the upstream has ordered is not: a call that comes
    before its time would be refused, or held against us.
    """
    if job.state is State.PROCESSING:
        return f"it is running stage {job.stage!r}"
    if job.state is not State.QUEUED:
        instead = "retry it instead" if job.state is State.FAILED else enqueue_anew(job)
        return f"it is {job.state.value}; {instead}"
    if job.ready:
        closed = why_closed(reader, job.lane)
        return "it is due already" + (f", and {closed}" if closed else "")
    told_at = _ordered_until(job, reader)
    if told_at is not None and told_at > reader.now():
        return f"its upstream has asked to wait until {told_at.isoformat(timespec='seconds')}"
    return None


def _ordered_until(job: JobView, reader: Reader) -> datetime | None:
    """Until when the upstream has asked this job to wait, if it has; never later than the job is due."""
    attempts = [one for one in reader.attempts(job.no) if one.life == job.life]
    if not attempts:
        return None
    hint_s = msgspec.json.decode(attempts[-1].why_json, type=_JobAsked).hint_s
    if not hint_s:
        return None
    return min(job.due_at, attempts[-1].settled_at + timedelta(seconds=hint_s))


def _check_run(reader: Reader, job: JobView) -> None:
    """Refuse a new life in the closed lanes of a cancelled run."""
    no = job.run if job.redrive_run is None else job.redrive_run
    found = [] if no is None else reader.runs(no=no)
    if job.state is State.FAILED and found and found[0].status is RunStatus.CANCELLED:
        raise NotRetriable(
            f"job {job.id} cannot be retried: its run {found[0].name!r} was cancelled; drive it again in "
            "another one: perdure dead redrive"
        )


def cancel_records(
    jobs: Sequence[JobView], catalogue: Catalogue, reason: str, now: datetime
) -> list[Record]:
    """What the store has to write when these open jobs are cancelled; those of unknown stages are left out."""
    words = one_line(reason, MESSAGE_CHARS_MAX // 4)
    return [_record(job, catalogue, words, now) for job in jobs if can_cancel(job, catalogue)]


def can_cancel(job: JobView, catalogue: Catalogue) -> bool:
    """Whether a job is open, and its stage, if it runs, is known here: how the attempt ends is in its policy's words."""
    is_known = catalogue.stage(job.pipeline, job.stage) is not None
    return job.state is State.QUEUED or (job.state is State.PROCESSING and is_known)


def clean_deed(deed: Deed) -> Deed:
    """A deed whose words can be stored and shown."""
    return Deed(
        one_line(deed.by_whom, NAME_CHARS_MAX), one_line(deed.reason, MESSAGE_CHARS_MAX // 4)
    )


def _job(reader: Reader, job_id: str, owner: str | None) -> JobView:
    """A job; another owner's is not found, as one that never was."""
    job = reader.job(job_id, owner=owner)
    if job is None:
        raise UnknownName(f"no job {job_id!r}")
    return job


def _record(job: JobView, catalogue: Catalogue, reason: str, now: datetime) -> Record:
    if job.state is State.QUEUED:
        return cancel_record(job, _words(reason))
    place = catalogue.place_of(job)
    if place is None:
        raise UnknownName(
            f"job {job.id} is running stage {job.stage!r} of pipeline {job.pipeline!r}; "
            f"cancelling it takes the app that has this stage: perdure jobs cancel {job.id} --app module:app"
        )
    return _running(job, *place, reason, now)


def _running(job: JobView, laid: LaidPipeline, stage: Stage, reason: str, now: datetime) -> Record:
    assert job.claimed_at is not None
    claim = Claim(
        no=job.no,
        id=job.id,
        token=job.token,
        lane=job.lane,
        pipeline=job.pipeline,
        stage=job.stage,
        owner=job.owner,
        payload_json=job.payload_json,
        input_json=job.input_json,
        counters=job.counters,
        past=job.past,
        life=job.life,
        isolation=job.isolation,
        claimed_at=job.claimed_at,
        due_at=job.due_at,
        deadline_at=job.deadline_at,
        key=job.key,
        request_id=job.request_id,
    )
    elapsed_s = max(0.0, (now - job.claimed_at).total_seconds())
    ending = Ending(claim, Revoked(reason), elapsed_s, job.worker)
    decision = CancelJob(Why(_words(reason), "cancel", stage.policy.label))
    return msgspec.structs.replace(
        record_of(ending, decision, laid, stage), error_message=_words(reason)
    )


def _words(reason: str) -> str:
    return f"cancelled by the caller ({reason})" if reason else "cancelled by the caller"
