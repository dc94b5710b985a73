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
import psycopg
from examples.reports.app import app
from obstore.exceptions import BaseError as ObjectStoreError

from examples.reports import files, objects
from perdure import State, StoreError, UnknownName


def find_orphans(*, age_s: float = 3_600.0) -> Iterator[tuple[str, str]]:
    """The names of orphans, with the object's key or the file's id."""
    before = datetime.now(UTC) - timedelta(seconds=age_s)
    with files.database() as connection:
        for key in unknown_keys(connection, objects.UPLOADS, "upload_key", before):
            yield "orphan_s3_object", key
        for key in unknown_keys(connection, objects.REPORTS, "report_key", before):
            file_id = key.removeprefix(objects.REPORTS).partition("/")[0]
            asked = "SELECT job_id, report_key FROM files WHERE id::text = %s"
            states = {state_of(row["job_id"]) for row in connection.execute(asked, (file_id,))}
            now = [row["report_key"] for row in connection.execute(asked, (file_id,))]
            if key not in now and not states & {State.QUEUED, State.PROCESSING}:
                yield "orphan_report_object", key  # no job is going to save it, or has just done so
        for file in files.open_files(connection):
            if file["queued_at"] < before and state_of(file["job_id"]) is None:
                yield "orphan_file_without_job", str(file["id"])


def unknown_keys(
    connection: files.Connection, prefix: str, column: str, before: datetime
) -> Iterator[str]:
    """Objects under a prefix that no row has in that column, some thousand at a time."""
    for some in obstore.list(objects.bucket(), prefix=prefix):
        old = [one["path"] for one in some if one["last_modified"] <= before]
        asked = f"SELECT {column} AS key FROM files WHERE {column} = ANY(%s)"
        known = {row["key"] for row in connection.execute(asked, (old,))}
        yield from sorted(set(old) - known)


def state_of(job_id: str | None) -> State | None:
    try:
        return None if job_id is None else app.job(job_id).state
    except UnknownName:
        return None


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--age-s", type=float, default=3_600.0, help="leave out what is younger")
    try:
        found = list(find_orphans(age_s=options.parse_args().age_s))
    except (ObjectStoreError, OSError, psycopg.OperationalError, StoreError) as away:
        print(f"they cannot be looked for: {str(away).partition(chr(10))[0]}", file=sys.stderr)
        return 2
    for name, what in found:
        print(name, what)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
