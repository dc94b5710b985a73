"""Bring the table of files after the jobs, by the change feed: what waits for its next try, and what has failed.

A job's state is never copied. A file is *queued* while its job waits, with the error that it waits for; it has *failed* when its job
has. That it has succeeded is the stage `save`'s own to say, in the transaction that ends the job.

Always true: whoever begins to follow looks at every open file first, and a row goes on only to a higher token of its job. So what was
missed is made good, and a crash, a second follower or an entry that is heard twice change nothing.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import psycopg
from examples.reports.app import app, reports

from examples.reports import files
from perdure import Change, State, UnknownName


def following() -> AbstractContextManager[Callable[[], bool]]:
    """Follow while a block runs; it is given a function that says whether all is well."""
    return app.following(take, begin=catch_up, away=(psycopg.OperationalError,))


def take(entries: Sequence[Change]) -> None:
    """Bring files after the jobs that have changed."""
    changed = {one.id for one in entries if one.pipeline == reports.name}
    if changed:
        with files.database() as connection:
            for job_id in changed:
                show(connection, job_id)


def catch_up() -> None:
    """Look at the job of every file that is open."""
    with files.database() as connection:
        for file in files.open_files(connection):
            if file["job_id"] is not None:
                show(connection, file["job_id"])


def show(connection: files.Connection, job_id: str) -> None:
    """Bring one file after its job."""
    try:
        ref = app.job(job_id)
        job = ref.view()
    except UnknownName:  # it was pruned; the file stays as it is
        return
    code, message = job.error_code or "processing_failed", job.error_message or job.state.value
    if job.state is State.QUEUED and job.error_kind is not None:
        files.mark(connection, job_id, job.token, "queued", code, message)
    elif job.state in (State.FAILED, State.CANCELLED):
        raw = [one.id for one in ref.captures() if one.kind == "invalid_output"]
        files.mark(connection, job_id, job.token, "failed", code, message, *raw[-1:])
