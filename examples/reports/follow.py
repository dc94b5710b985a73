"""Bring the table of files after the jobs, by the change feed: what waits for its next try, and what has failed.

A job's state is never copied. A file is *queued* while its job waits, with the error that it waits for; it has *failed* when its job
has. That it has succeeded is the stage `save`'s own to say, in the transaction that ends the job.

Always true: whoever begins to follow looks first at every open file, and at every one that has failed lately; and a row goes on only
to a higher token of its job. So what was missed is made good, and a crash, a second follower or an entry that is heard twice change nothing.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

import psycopg
from examples.reports.app import app, reports

from examples.reports import files
from perdure import Change, State, UnknownName

log = logging.getLogger("reports")


def following() -> AbstractContextManager[Callable[[], bool]]:
    """Follow while a block runs; it is given a function that says whether all is well."""
    return app.following(take, begin=catch_up, away=(psycopg.OperationalError,))


def take(entries: Sequence[Change]) -> None:
    """Bring files after the jobs that have changed."""
    if changed := {one.id for one in entries if one.pipeline == reports.name}:
        show_all(changed)


def catch_up() -> None:
    """Look at the job of every file that something may have become of."""
    show_all(files.jobs_to_look_at())


def show_all(job_ids: Iterable[str]) -> None:
    """Each in a transaction of its own: who waits for a row holds no other, and one that cannot be changed stops nobody."""
    with files.database() as connection:
        for job_id in job_ids:
            try:
                with connection.transaction():
                    show(connection, job_id)
            except (psycopg.IntegrityError, psycopg.DataError) as wrong:
                log.error("the file of job %s cannot go after it: %s", job_id, type(wrong).__name__)


def show(connection: files.Connection, job_id: str) -> None:
    """Bring one file after its job."""
    try:
        ref = app.job(job_id)
        job = ref.view()
    except UnknownName:  # it was pruned; the file stays as it is
        return
    code, message = job.error_code or "processing_failed", job.error_message or job.state.value
    if job.state is State.QUEUED:
        error = (code, message) if job.error_kind is not None else (None, None)
        files.mark(connection, job_id, job.token, "queued", *error)
    elif job.state in (State.FAILED, State.CANCELLED):
        raw = [one.id for one in ref.captures() if one.kind == "invalid_output"]
        files.mark(connection, job_id, job.token, "failed", code, message, *raw[-1:])
