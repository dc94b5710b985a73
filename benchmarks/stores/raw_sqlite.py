"""Two loops written by hand for SQLite, as fast as we could make them: the limit.

`Narrow` and `SameRows` are what they are in `raw_postgres`. WAL, synchronous=FULL, one BEGIN IMMEDIATE per
turn, a checkpoint each 16 MB of log, as in Perdure; no turnstile, so one process only. Rows are bound one at
a time: one JSON value per batch was a tenth slower.
"""

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.stores.work import ELAPSED_S, FAILURE, SUCCESS, Item

NARROW = """
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY, payload TEXT NOT NULL, status INTEGER NOT NULL DEFAULT 0,
    run_at INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, token INTEGER, worker INTEGER,
    lease_until INTEGER, finished_at INTEGER
);
CREATE INDEX jobs_ready ON jobs (run_at, id) WHERE status = 0;
CREATE INDEX jobs_leased ON jobs (lease_until) WHERE status = 1;
CREATE TABLE attempts (
    job INTEGER, attempt INTEGER, worker INTEGER, outcome INTEGER, decision TEXT, at INTEGER,
    PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
"""

SAME_ROWS = """
CREATE TABLE jobs (
    no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, queue TEXT NOT NULL, pipeline TEXT NOT NULL,
    stage TEXT NOT NULL, state TEXT NOT NULL, token INTEGER NOT NULL DEFAULT 0, worker INTEGER,
    priority INTEGER NOT NULL DEFAULT 0, run_at INTEGER NOT NULL, enqueued_at INTEGER NOT NULL,
    claimed_at INTEGER, finished_at INTEGER, updated_at INTEGER NOT NULL,
    starts INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0, error_kind TEXT,
    error_message TEXT, payload TEXT NOT NULL, result TEXT
);
CREATE INDEX jobs_ready ON jobs (queue, priority, run_at, no) WHERE state = 'queued';
CREATE INDEX jobs_held ON jobs (worker) WHERE worker IS NOT NULL;
CREATE TABLE attempts (
    job INTEGER NOT NULL, token INTEGER NOT NULL, stage TEXT NOT NULL, number INTEGER NOT NULL,
    life INTEGER NOT NULL, status TEXT NOT NULL, state TEXT NOT NULL, worker INTEGER,
    claimed_at INTEGER NOT NULL, settled_at INTEGER NOT NULL, elapsed_s REAL NOT NULL, delay_s REAL,
    due_at INTEGER, counted TEXT, kind TEXT, message TEXT NOT NULL, policy TEXT NOT NULL, why TEXT NOT NULL,
    evidence TEXT, config_hash TEXT NOT NULL, settled_by INTEGER, code TEXT,
    tokens_in INTEGER NOT NULL DEFAULT 0, tokens_out INTEGER NOT NULL DEFAULT 0,
    cost_nusd INTEGER NOT NULL DEFAULT 0, owner TEXT, PRIMARY KEY (job, token)
) WITHOUT ROWID;
"""

NARROW_RECORD = """
UPDATE jobs SET status = ?1, token = NULL, worker = NULL, lease_until = NULL,
    finished_at = CASE WHEN ?1 = 2 THEN ?2 END, run_at = CASE WHEN ?1 = 2 THEN run_at ELSE ?2 END
WHERE id = ?3 AND token = ?4
"""
NARROW_CLAIM = """
UPDATE jobs SET status = 1, attempts = attempts + 1, token = ?1, worker = 1, lease_until = ?2 + 30000000
WHERE id IN (SELECT id FROM jobs WHERE status = 0 AND run_at <= ?2 ORDER BY run_at, id LIMIT ?3)
RETURNING id, token, attempts, payload
"""
SAME_ROWS_RECORD = """
UPDATE jobs SET state = ?1, worker = NULL, token = token + 1, failures = ?2,
    run_at = CASE WHEN ?1 = 'queued' THEN ?3 ELSE run_at END,
    finished_at = CASE WHEN ?1 = 'queued' THEN NULL ELSE ?3 END, updated_at = ?3, error_kind = ?4,
    error_message = ?5, result = ?6
WHERE no = ?7 AND token = ?8
"""
SAME_ROWS_CLAIM = """
UPDATE jobs SET state = 'processing', worker = 1, token = token + 1, starts = starts + 1,
    claimed_at = ?1, updated_at = ?1
WHERE no IN (
    SELECT no FROM jobs WHERE state = 'queued' AND queue = 'default' AND run_at <= ?1
    ORDER BY priority, run_at, no LIMIT ?2
)
RETURNING no, token, starts, payload, id, queue, pipeline, stage, priority, failures, claimed_at
"""


class Narrow:
    """The smallest table one could write."""

    tables = NARROW
    finished = "SELECT count(*) FROM jobs WHERE status = 2"

    def __init__(self, url: str) -> None:
        self.cx = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4096"):
            self.cx.execute(f"PRAGMA {pragma}")
        self.cx.executescript(self.tables)
        self._turns = 0

    def prepared(self, batch: Sequence[Item]) -> Any:
        """What `enqueue` binds."""
        return [(one.payload_json,) for one in batch]

    def enqueue(self, prepared: Any) -> None:
        """One transaction."""
        self.cx.execute("BEGIN IMMEDIATE")
        self.add(prepared)
        self.cx.execute("COMMIT")

    def add(self, prepared: Any) -> None:
        """Insert new jobs."""
        self.cx.executemany("INSERT INTO jobs (payload) VALUES (?)", prepared)

    def settled(self, claims: Sequence[Any], *, failing: bool) -> Any:
        """Whether each has failed, and its claim."""
        return [(failing and one[2] == 1, one) for one in claims]

    def turn(self, endings: Any, slots: int) -> Sequence[Any]:
        """Record and claim in one transaction."""
        now = time.time_ns() // 1000
        self.cx.execute("BEGIN IMMEDIATE")
        if endings:
            self.record(endings, now)
        claims = self.claim(slots, now)
        self.cx.execute("COMMIT")
        return claims

    def record(self, endings: Any, now: int) -> None:
        """Update and insert."""
        self.cx.executemany(
            NARROW_RECORD, [(0 if failed else 2, now, one[0], one[1]) for failed, one in endings]
        )
        self.cx.executemany(
            "INSERT INTO attempts VALUES (?, ?, 1, ?, ?, ?)",
            [
                (one[0], one[2], 2 if failed else 1, _FAILED if failed else _DONE, now)
                for failed, one in endings
            ],
        )

    def claim(self, slots: int, now: int) -> Sequence[Any]:
        """Take the first ones."""
        self._turns += 1
        return self.cx.execute(NARROW_CLAIM, (self._turns, now, slots)).fetchall()

    def ready(self) -> None:
        """A file has no upkeep."""

    def server_ns(self) -> int | None:
        """The library is in our own thread."""
        return None

    def counted(self) -> tuple[int, int]:
        """Finished jobs and attempt rows."""
        (jobs,) = self.cx.execute(self.finished).fetchone()
        (attempts,) = self.cx.execute("SELECT count(*) FROM attempts").fetchone()
        return jobs, attempts

    def close(self) -> None:
        """Disconnect."""
        self.cx.close()


class SameRows(Narrow):
    """The rows that Perdure leaves behind."""

    tables = SAME_ROWS
    finished = "SELECT count(*) FROM jobs WHERE state = 'succeeded'"

    def prepared(self, batch: Sequence[Item]) -> Any:
        """What `enqueue` binds."""
        now = time.time_ns() // 1000
        return [(one.id, now, one.payload_json) for one in batch]

    def add(self, prepared: Any) -> None:
        """Insert new jobs."""
        self.cx.executemany(
            "INSERT INTO jobs (id, queue, pipeline, stage, state, run_at, enqueued_at, updated_at, payload) "
            "VALUES (?1, 'default', 'p', 'one', 'queued', ?2, ?2, ?2, ?3)",
            prepared,
        )

    def record(self, endings: Any, now: int) -> None:
        """Update and insert."""
        self.cx.executemany(
            SAME_ROWS_RECORD,
            [
                ("queued", 1, now, *_ERROR, one[0], one[1]) if failed
                else ("succeeded", one[9], now, None, None, SUCCESS.result_json, one[0], one[1])
                for failed, one in endings
            ],
        )  # fmt: skip
        self.cx.executemany(
            f"INSERT INTO attempts VALUES ({', '.join('?' * 21)}, NULL, 0, 0, 0, NULL)",
            [
                (one[0], one[1], "one", one[2], 1, "retrying", "queued", 1, one[10], now, ELAPSED_S,
                 0.0, now, *_FAILURE, 1) if failed
                else (one[0], one[1], "one", one[2], 1, "success", "succeeded", 1, one[10], now,
                      ELAPSED_S, None, None, *_SUCCESS, 1)
                for failed, one in endings
            ],
        )  # fmt: skip

    def claim(self, slots: int, now: int) -> Sequence[Any]:
        """Take the first ones."""
        return self.cx.execute(SAME_ROWS_CLAIM, (now, slots)).fetchall()


def _columns(record: Any) -> tuple[object, ...]:
    made = record.attempt
    return (
        made.counted, made.kind, made.message, made.policy, made.why_json, made.evidence_json,
        made.config_hash,
    )  # fmt: skip


_SUCCESS = _columns(SUCCESS)
_FAILURE = _columns(FAILURE)
_ERROR = (FAILURE.error_kind, FAILURE.error_message, None)
_DONE = _SUCCESS[4]
_FAILED = _FAILURE[4]
