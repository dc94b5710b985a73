"""Which jobs are meant: the one filter of lists, previews and bulk operations."""

from datetime import datetime

from msgspec import Struct

from perdure.model.states import FailedReason, State


class JobFilter(Struct, frozen=True):
    """All that is given must hold; what is left out does not matter.

    ``text`` is looked for in the error's public message and in its detail, upper and lower case alike.
    ``discarded`` False leaves out the dead letters that somebody has discarded, True leaves out all others.
    ``waiting`` True means the queued jobs whose time has not come, False all others.
    ``retrying`` True means the queued jobs that have failed before, False all others.
    ``held`` True means the queued jobs behind a gate that lets nothing pass, False all others.
    ``key`` is found by an index where an owner is named as well, "" for none; otherwise it is only compared.
    """

    states: tuple[State, ...] = ()
    pipeline: str | None = None
    stage: str | None = None
    queue: str | None = None
    category: str | None = None
    owner: str | None = None
    key: str | None = None
    run: int | None = None
    reason: FailedReason | None = None
    kind: str | None = None
    code: str | None = None
    fingerprint: str | None = None
    text: str | None = None
    enqueued_from: datetime | None = None
    enqueued_until: datetime | None = None
    finished_from: datetime | None = None
    finished_until: datetime | None = None
    discarded: bool | None = None
    waiting: bool | None = None
    retrying: bool | None = None
    held: bool | None = None
    label: str | None = None


EVERY_JOB = JobFilter()
DEAD_LETTERS = JobFilter(states=(State.FAILED,), discarded=False)
