"""What belongs to nobody: found and named, never removed. `python -m examples.reports.orphans` prints it, a line each.

    orphan_s3_object         a transcript in S3 that no row speaks of: the database was away when it was uploaded
    orphan_file_without_job  a row that nobody works on
    orphan_report_object     a report in S3 that no row speaks of, and no job will: it was written, and could not be saved

What is younger than `age_s` may be on its way, and is left out.
"""

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import obstore
from examples.reports.app import app

from examples.reports import files, objects
from perdure import State, UnknownName

ENDED = (State.SUCCEEDED, State.FAILED, State.CANCELLED)


def find_orphans(*, age_s: float = 3_600.0) -> Iterator[tuple[str, str]]:
    """The names of orphans, with the object's key or the file's id."""
    before = datetime.now(UTC) - timedelta(seconds=age_s)
    with files.database() as connection:
        for key in keys(connection, objects.UPLOADS, "upload_key", before):
            yield "orphan_s3_object", key
        for key in keys(connection, objects.REPORTS, "report_key", before):
            if not is_expected(connection, key):
                yield "orphan_report_object", key
        for file in files.open_files(connection):
            if file["queued_at"] < before and state_of(file["job_id"]) is None:
                yield "orphan_file_without_job", str(file["id"])


def keys(connection: files.Connection, prefix: str, column: str, before: datetime) -> Iterator[str]:
    """Objects under a prefix that no row has in that column, some thousand at a time."""
    for some in obstore.list(objects.bucket(), prefix=prefix):
        old = [one["path"] for one in some if one["last_modified"] <= before]
        known = connection.execute(
            f"SELECT {column} AS key FROM files WHERE {column} = ANY(%s)", (old,)
        )
        yield from sorted(set(old) - {row["key"] for row in known})


def is_expected(connection: files.Connection, report_key: str) -> bool:
    """Whether the job that has written a report is still going to save it."""
    file_id = report_key.removeprefix(objects.REPORTS).partition("/")[0]
    found = connection.execute(
        "SELECT job_id FROM files WHERE id::text = %s", (file_id,)
    ).fetchone()
    return found is not None and state_of(found["job_id"]) not in (None, *ENDED)


def state_of(job_id: str | None) -> State | None:
    try:
        return None if job_id is None else app.job(job_id).state
    except UnknownName:
        return None


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--age-s", type=float, default=3_600.0, help="leave out what is younger")
    found = list(find_orphans(age_s=options.parse_args().age_s))
    for name, what in found:
        print(name, what)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
