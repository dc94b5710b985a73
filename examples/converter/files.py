"""The converter's own rows and files: what was uploaded, by whom, and what is kept for how long.

A row is one upload. Its job is in the same database, so both are made in one transaction. What becomes of the job is the
job's own: lists join the rows with Perdure's view for converters, and nothing is stored twice.

* A row is *open* while it answers for its file: the same file of the same owner is the same job. Cancelling, deleting and
  expiry close it, so that the file can be uploaded and converted anew.
* ``changed_at`` is the row's own last change; a list of changes looks at it, at the job's, and at the moment of expiry.
* A file is written before the row is committed. If we die in between, a file without a row is left, and the sweep removes it.
"""

import hashlib
import os
import re
import shutil
import time
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from uuid import uuid4

import psycopg
from psycopg.rows import DictRow, dict_row

from perdure import ConfigError, Pipeline, Settings

from .settings import ATTEMPTS_MAX, RESULTS_DIR, RESULTS_KEPT_S, UPLOADS_DIR

SHOWN_MAX = 500  # files of one owner in a list
STRAY_S = 3_600.0  # a file without a row may belong to an upload that is not committed yet
# A change carries the moment of its transaction, and may be committed that much later (Perdure's statement timeout).
LATE_COMMIT = timedelta(seconds=30)
OURS = re.compile(r"([0-9a-f]{32})(\.pdf|\.\d+\.xml)|\.[0-9a-f]{32}")  # PDF, XML, a draft of either

# A file under the names that programs and people are told. Its tries are those that count, and the one that is under way.
LISTED = """
SELECT j.id::text, f.upload, f.name AS filename, f.bytes, j.status, j."lastAttemptAt", j."retryAfter",
    least(j."attemptCount", %(attempts_max)s) AS "attemptCount",
    j.created_at AS "createdAt", j."queuedAt", j.started_at AS "startedAt", c.at AS "updatedAt",
    concat_ws('/', j.updated_at, f.changed_at, x.at) AS version,
    j."endedAt", k.expires_at AS "expiresAt", j."errorCode", f.deleted_at IS NOT NULL AS deleted,
    f.expired_at IS NOT NULL OR x.at IS NOT NULL AS expired, f.download_count AS "downloadCount"
FROM converter_files AS f JOIN perdure_converter_jobs AS j ON j.id = f.job_id,
    LATERAL (SELECT j."endedAt" + make_interval(secs => %(kept_s)s) AS expires_at) AS k,
    LATERAL (SELECT CASE WHEN k.expires_at <= now() THEN k.expires_at END AS at) AS x,
    LATERAL (SELECT greatest(j.updated_at, f.changed_at, x.at) AS at) AS c
WHERE f.owner = %(owner)s
"""

COUNTED = """
SELECT now() AS at, count(*) AS files, count(*) FILTER (WHERE j.status IN ('queued', 'processing')) AS active
FROM converter_files AS f JOIN perdure_converter_jobs AS j ON j.id = f.job_id
WHERE f.owner = %(owner)s AND f.deleted_at IS NULL
"""

# Close what has been kept for long enough, or whose job is gone: of everybody, or one file of one owner.
EXPIRE = """
UPDATE converter_files AS f SET closed_at = coalesce(f.closed_at, now()), expired_at = now(), changed_at = now()
WHERE f.expired_at IS NULL AND f.deleted_at IS NULL
    AND (%(owner)s::text IS NULL OR (f.owner = %(owner)s AND f.sha256 = %(sha256)s))
    AND NOT EXISTS (
        SELECT 1 FROM perdure_converter_jobs AS j
        WHERE j.id = f.job_id AND (j."endedAt" < now() - make_interval(secs => %(kept_s)s)) IS NOT TRUE
    )
RETURNING f.upload
"""

# What an operator has cancelled no longer answers for its file.
CLOSE_CANCELLED = """
UPDATE converter_files AS f SET closed_at = now(), changed_at = now() FROM perdure_converter_jobs AS j
WHERE j.id = f.job_id AND j.status = 'cancelled' AND f.closed_at IS NULL AND f.owner = %s AND f.sha256 = %s
"""


class Listed(NamedTuple):
    """Some files, how many of all are in work, how many there are, and from when to ask the next time."""

    rows: list[dict[str, Any]]
    active: int
    files: int
    asked_from: datetime


class Files:
    """Rows and files of all owners."""

    def __init__(self, settings: Settings) -> None:
        self._database_url, kept_s = settings["store"], settings[RESULTS_KEPT_S]
        self._known = {"kept_s": kept_s, "attempts_max": settings[ATTEMPTS_MAX]}
        self.uploads, self.results = Path(settings[UPLOADS_DIR]), Path(settings[RESULTS_DIR])

    def make_folders(self) -> None:
        for name, folder in (("UPLOADS_DIR", self.uploads), ("RESULTS_DIR", self.results)):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as wrong:
                why = f"{wrong.strerror}; it must be a folder that can be written to"
                raise ConfigError(f"{name} is {str(folder)!r}: {why}") from None

    def make_table(self) -> None:
        self.run(Path(__file__).with_name("tables.sql").read_text())

    def transaction(self) -> psycopg.Connection[DictRow]:
        """A connection for a ``with``, at the end of which its transaction is committed and it is closed.

        Each request has its own: a few milliseconds, and none is broken after the server was restarted.
        """
        return psycopg.connect(self._database_url, connect_timeout=10, row_factory=dict_row)

    def run(self, statement: str, *values: Any) -> None:
        with self.transaction() as cx:
            cx.execute(statement, values or None)

    def source(self, upload: str) -> Path:
        """Where an uploaded PDF lies."""
        return self.uploads / f"{upload}.pdf"

    def is_kept(self, upload: str) -> bool:
        """Whether the PDF is there; of one whose whole folder is away nobody can say that it is gone."""
        return self.source(upload).exists() or not self.uploads.is_dir()

    def accept(
        self, file: BinaryIO, name: str, owner: str, conversions: Pipeline
    ) -> tuple[str, bool]:
        """Keep a PDF and enqueue its job, in one transaction; the job's id, and whether it is new.

        The same file of the same owner is the same job; one that has failed is tried again.
        """
        sha256, fresh = hashlib.file_digest(file, "sha256").hexdigest(), uuid4().hex
        size = file.tell()
        file.seek(0)
        with self.transaction() as cx, ExitStack() as undo:
            self._expire(cx, owner, sha256)  # nobody may have swept it yet
            cx.execute(CLOSE_CANCELLED, (owner, sha256))
            row = cx.execute(
                "INSERT INTO converter_files (upload, owner, name, bytes, sha256) VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT (owner, sha256) WHERE closed_at IS NULL DO UPDATE SET changed_at = now()"
                " RETURNING upload",
                (fresh, owner, name, size, sha256),
            ).fetchone()
            upload = row["upload"]
            undo.callback(self.source(fresh).unlink, missing_ok=True)
            write_atomically(self.source(upload), file)
            job = conversions.enqueue(
                {"upload": upload}, owner=owner, key=upload, if_failed="retry", within=cx
            )
            cx.execute("UPDATE converter_files SET job_id = %s WHERE upload = %s", (job.id, upload))
            undo.pop_all()  # of a commit that fails nobody knows whether it was done
        return job.id, job.created

    def listed(self, owner: str, since: datetime | None = None) -> Listed:
        """An owner's files, the newest first; with ``since`` those that have changed after it, the deleted ones among
        them, the oldest change first: whoever asks on from the last one misses none."""
        newest = "AND f.deleted_at IS NULL ORDER BY f.created_at DESC, f.upload"
        which = newest if since is None else "AND c.at > %(since)s ORDER BY c.at"
        asked = {**self._known, "owner": owner, "since": since}
        with self.transaction() as cx:
            # Both statements are of one moment: a file that is counted as in work is listed so.
            cx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            rows = cx.execute(
                f"{LISTED} {which} FETCH FIRST {SHOWN_MAX} ROWS WITH TIES", asked
            ).fetchall()
            told = cx.execute(COUNTED, asked).fetchone()
        asked_from = told["at"] - LATE_COMMIT
        if since is not None and len(rows) >= SHOWN_MAX:
            asked_from = min(asked_from, rows[-1]["updatedAt"])
        return Listed(rows, told["active"], told["files"], asked_from)

    def find(self, job_id: str, owner: str) -> dict[str, Any] | None:
        """One of an owner's files, unless it was deleted."""
        asked = {**self._known, "owner": owner, "job": job_id}
        with self.transaction() as cx:
            return cx.execute(
                f"{LISTED} AND f.job_id = %(job)s AND f.deleted_at IS NULL", asked
            ).fetchone()

    def close(self, upload: str, *, delete: bool) -> None:
        """Let a row no longer answer for its file; or take it off its owner's list, and remove what is kept of it."""
        self.run(
            "UPDATE converter_files SET closed_at = coalesce(closed_at, now()), changed_at = now(),"
            " deleted_at = coalesce(deleted_at, CASE WHEN %s THEN now() END) WHERE upload = %s",
            delete,
            upload,
        )
        if delete:  # if we die before it, the sweep does it
            self._remove(upload)

    def touch(self, upload: str) -> None:
        """Let a row be among the changes."""
        self.run("UPDATE converter_files SET changed_at = now() WHERE upload = %s", upload)

    def read_result(self, name: str, upload: str) -> bytes:
        """The XML, counted as a download; FileNotFoundError when it is no longer kept."""
        content = (self.results / name).read_bytes()
        self.run(
            "UPDATE converter_files SET download_count = download_count + 1,"
            " first_downloaded_at = coalesce(first_downloaded_at, now()) WHERE upload = %s",
            upload,
        )
        return content

    def sweep(self) -> dict[str, int]:
        """Expire what has been kept for long enough, and remove rows and files that nothing answers for."""
        self.make_table()
        with self.transaction() as cx:
            expired = self._expire(cx)
            cx.execute(  # Perdure has pruned the job
                "DELETE FROM converter_files AS f WHERE f.closed_at < now() - interval '1 day'"
                " AND NOT EXISTS (SELECT 1 FROM perdure_converter_jobs AS j WHERE j.id = f.job_id)"
            )
            kept = cx.execute(
                "SELECT upload FROM converter_files WHERE expired_at IS NULL AND deleted_at IS NULL"
            ).fetchall()
        return {"expired": expired, "strays": self._remove_strays({row["upload"] for row in kept})}

    def _expire(
        self, cx: psycopg.Connection[DictRow], owner: str | None = None, sha256: str = ""
    ) -> int:
        """Files go before the commit: if we die in between, the rows are found again."""
        asked = {**self._known, "owner": owner, "sha256": sha256}
        expired = cx.execute(EXPIRE, asked).fetchall()
        for row in expired:
            self._remove(row["upload"])
        return len(expired)

    def _remove(self, upload: str) -> None:
        for path in (self.source(upload), *self.results.glob(f"{upload}.*.xml")):
            path.unlink(missing_ok=True)

    def _remove_strays(self, kept: set[str]) -> int:
        removed, before_s = 0, time.time() - STRAY_S
        for path in (*self.uploads.iterdir(), *self.results.iterdir()):
            with suppress(FileNotFoundError):  # another sweep has it
                ours = OURS.fullmatch(path.name) if path.is_file() else None
                if ours and ours[1] not in kept and path.stat().st_mtime < before_s:
                    path.unlink()
                    removed += 1
        return removed


def write_atomically(path: Path, content: BinaryIO) -> None:
    """All of it or nothing: whoever opens the path sees a whole file, after a power cut too."""
    draft = path.with_name(f".{uuid4().hex}")
    try:
        with draft.open("xb") as file:
            shutil.copyfileobj(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)  # so that it, too, remembers
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        draft.unlink(missing_ok=True)
