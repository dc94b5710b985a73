"""Bring the table of files after the jobs, by the change feed: what waits for its next try, and what has failed.

A job's state is never copied. A file is *queued* while its job waits, with the error that it waits for; it has *failed* when its job
has. That it has succeeded is the stage `save`'s own to say, in the transaction that ends the job.

What is always true: a page of the feed and its cursor are committed together, and a row goes on only to a higher token of its job. So
a crash, a second follower or an entry that is heard twice change nothing.
"""

import logging
import threading
import time

import psycopg
from examples.reports.app import app, reports

from examples.reports import files
from perdure import ChangePage, CursorTooOld, JobRef, State, StoreError, UnknownName

CURSOR_AGE_S = 60.0  # of one that is kept while nothing happens; the feed is kept for an hour

log = logging.getLogger("reports")


class Follower(threading.Thread):
    """Follows until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(name="reports follower")
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()

    def run(self) -> None:
        while not self._stop_asked.is_set():
            try:
                self._follow()
            except CursorTooOld:  # nobody has followed for an hour: look at every open file instead
                forget_cursor()
            except (psycopg.OperationalError, StoreError) as away:
                log.warning("follower_waits error=%s", type(away).__name__)
                self._stop_asked.wait(1.0)

    def _follow(self) -> None:
        cursor = known_cursor()
        with app.follow(after=cursor) as listener:
            if cursor is None:
                catch_up(listener.cursor)
            kept_at = 0.0
            while not self._stop_asked.is_set():
                page = listener.take(wait_s=0.5)
                if page.entries or time.monotonic() > kept_at + CURSOR_AGE_S:
                    take(page)
                    kept_at = time.monotonic()


def known_cursor() -> str | None:
    with files.database() as connection:
        found = connection.execute("SELECT cursor FROM files_feed").fetchone()
    return found and found["cursor"]


def forget_cursor() -> None:
    with files.database() as connection:
        connection.execute("DELETE FROM files_feed")


def catch_up(cursor: str) -> None:
    """Look at the job of every file that is open."""
    with files.database() as connection:
        for file in files.open_files(connection):
            if file["job_id"] is not None:
                show(connection, file["job_id"])
        keep_cursor(connection, cursor)


def take(page: ChangePage) -> None:
    """Bring the files after what a page tells, and keep how far that is."""
    changed = {one.id for one in page.entries if one.pipeline == reports.name}
    with files.database() as connection:
        for job_id in changed:
            show(connection, job_id)
        keep_cursor(connection, page.cursor)


def show(connection: files.Connection, job_id: str) -> None:
    """Bring one file after its job."""
    try:
        ref = app.job(job_id)
        job = ref.view()
    except UnknownName:  # it was pruned; the file stays as it is
        return
    code, message = job.error_code or "processing_failed", job.error_message or job.state.value
    if job.state is State.QUEUED and job.error_kind is not None:
        files.mark_waiting(connection, job_id, job.token, code, message)
    elif job.state in (State.FAILED, State.CANCELLED):
        raw = last_raw_output(ref)
        files.mark_failed(connection, job_id, job.token, code, message, raw)


def last_raw_output(ref: JobRef) -> str | None:
    kept = [one.id for one in ref.captures() if one.kind == "invalid_output"]
    return kept[-1] if kept else None


def keep_cursor(connection: files.Connection, cursor: str) -> None:
    connection.execute(
        "INSERT INTO files_feed (cursor) VALUES (%s) ON CONFLICT (one) DO UPDATE SET cursor = excluded.cursor",
        (cursor,),
    )
