"""What has happened to a job, in the order in which it did."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from perdure.model.operations import LoggedDeed
from perdure.model.views import AttemptView, JobView


class _Told(msgspec.Struct):
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
