"""The table of files, for people. `python -m examples.reports.files` makes it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from examples.reports.settings import SETTINGS, TIMEOUT_S
from psycopg.rows import DictRow, dict_row

Connection = psycopg.Connection[DictRow]


@contextmanager
def database() -> Iterator[Connection]:
    """A transaction: committed at the end of the block, rolled back by whatever is raised in it."""
    wait_s = max(2, round(SETTINGS[TIMEOUT_S]))
    opened = psycopg.connect(SETTINGS["store"], row_factory=dict_row, connect_timeout=wait_s)
    with closing(opened), opened:  # psycopg 3.3 leaves it open where the commit fails
        yield opened


def create_tables() -> None:
    with database() as connection:
        connection.execute(Path(__file__).with_name("tables.sql").read_text())


def add(connection: Connection, **columns: Any) -> dict[str, Any]:
    """A new file, with its job."""
    return connection.execute(
        "INSERT INTO files (id, owner, name, bytes, version, status, job_id, upload_key)"
        " VALUES (%(id)s, %(owner)s, %(name)s, %(bytes)s, %(version)s, 'queued', %(job_id)s, %(upload_key)s)"
        " RETURNING *",
        columns,
    ).fetchone()


def find(id: str, owner: str) -> dict[str, Any] | None:
    """A file of an owner; somebody else's is not there."""
    with database() as connection:
        found = connection.execute("SELECT * FROM files WHERE id = %s AND owner = %s", (id, owner))
        return found.fetchone()


def page(owner: str, *, before: int, limit: int) -> list[dict[str, Any]]:
    """An owner's files, newest first."""
    with database() as connection:
        return connection.execute(
            "SELECT * FROM files WHERE owner = %s AND no < %s ORDER BY no DESC LIMIT %s",
            (owner, before, limit),
        ).fetchall()


def open_files(connection: Connection) -> list[dict[str, Any]]:
    """Files that something is still to become of, oldest first."""
    return connection.execute(
        "SELECT * FROM files WHERE status IN ('uploaded', 'queued', 'processing') ORDER BY no"
    ).fetchall()


def jobs_to_look_at() -> list[str]:
    """Those of open files, and of files that failed within 30 days: an operator may have let them run again."""
    with database() as connection:
        found = connection.execute(
            "SELECT job_id FROM files WHERE job_id IS NOT NULL AND (status IN ('uploaded', 'queued', 'processing')"
            " OR status = 'failed' AND processed_at > now() - interval '30 days')"
        )
        return [row["job_id"] for row in found]


def mark_processing(id: str, job_id: str, token: int) -> bool:
    """Say that a file is in work, and what had failed has not; False where the file is not of that job.

    It is for the eyes: a database that is away does not fail the job for it.
    """
    with suppress(psycopg.OperationalError), database() as connection:
        connection.execute(
            "UPDATE files SET status = 'processing', job_token = %s, started_at = coalesce(started_at, now()),"
            " error_code = CASE WHEN status <> 'failed' THEN error_code END,"
            " error_message = CASE WHEN status <> 'failed' THEN error_message END,"
            " raw_output = NULL, processed_at = NULL WHERE id = %s AND job_id = %s AND job_token < %s",
            (token, id, job_id, token),
        )
        mine = "SELECT 1 FROM files WHERE id = %s AND job_id = %s"
        return connection.execute(mine, (id, job_id)).fetchone() is not None
    return True


def mark(
    connection: Connection,
    job_id: str,
    token: int,
    status: str,
    code: str | None,
    message: str | None,
    raw_output: str | None = None,
) -> None:
    """Say that a file waits for its next try (queued) or has failed, and why; keep where the raw output is.

    Without a code only a file that had failed waits, since somebody lets it run again: a job between two stages is queued, too.
    """
    connection.execute(
        "UPDATE files SET status = %s, job_token = %s, error_code = %s, error_message = %s, raw_output = %s,"
        " processed_at = CASE WHEN %s = 'failed' THEN now() END WHERE job_id = %s AND job_token < %s"
        " AND (status = 'failed' OR %s)",
        (status, token, code, message, raw_output, status, job_id, token, code is not None),
    )


def save_report(
    connection: Connection, id: str, job_id: str, token: int, key: str, sha256: str
) -> bool:
    """The last word on a file; False where the file is not of that job."""
    saved = connection.execute(
        "UPDATE files SET status = 'succeeded', job_token = %s, report_key = %s, report_sha256 = %s,"
        " error_code = NULL, error_message = NULL, raw_output = NULL, processed_at = now()"
        " WHERE id = %s AND job_id = %s",
        (token, key, sha256, id, job_id),
    )
    return saved.rowcount == 1


if __name__ == "__main__":
    create_tables()
