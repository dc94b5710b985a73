"""The change feed: what happened to jobs, runs, gates and workers, as entries that are read after a cursor."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class ChangeKind(StrEnum):
    """What an entry of the feed tells."""

    JOB_ACCEPTED = "job_accepted"  # an item is in the store
    ATTEMPT_ENDED = "attempt_ended"  # an attempt is over, and its job goes on
    JOB_ENDED = "job_ended"  # a job is over, with its last attempt or while it waited
    JOB_REVIVED = "job_revived"  # a failed job has a new life
    JOB_DISCARDED = "job_discarded"  # a dead letter was dealt with
    RUN_CHANGED = "run_changed"  # a run has another status
    GATE_CHANGED = "gate_changed"  # a gate holds, probes or flows; for operators
    WORKER_CHANGED = "worker_changed"  # a worker has come or gone; for operators


class Change(Struct, frozen=True):
    """One entry. It says what the thing has become at that moment; what it is now is for the reads to say.

    ``id`` is the id of a job or a run, the name of a gate, the boot id of a worker; a gate has no number.
    ``state`` is the state of a job or a gate, the status of a run, ``alive`` or ``dead``. ``status`` is that of
    the attempt that has ended, if one has, and ``stage`` its stage. ``token`` is the job's after the change, so that
    it rises from entry to entry of one job; of a gate it is the generation. Gates and workers have no owner.
    """

    kind: ChangeKind
    changed_at: datetime
    no: int
    id: str
    owner: str
    pipeline: str
    stage: str
    state: str
    status: str | None
    token: int
    run: int | None


class ChangePage(Struct, frozen=True):
    """Some entries, and the cursor after which to go on; ``more`` when there are entries to be had now."""

    entries: tuple[Change, ...]
    cursor: str
    more: bool
