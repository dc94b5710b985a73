"""Perdure's two stores, through the port that the engine uses."""

import os
import sqlite3
import uuid
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import psycopg
from benchmarks.stores.work import FAILURE, SUCCESS, Item, cpu_ns

from perdure.app.session.opening import open_store
from perdure.model.decisions import Counted
from perdure.model.jobs import Attempt, Claim, ClaimOrder, Lane, NewJob, Receipt, Record
from perdure.model.workers import NewWorker, Role

LEASE_S = 3_600.0  # nobody beats here


class Ours:
    """A store opened by its URL, one worker and the lanes of a pipeline of two stages."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened = open_store(url)
        self.store = self.opened.store
        self.lanes = self.lay([Lane("q", "c", "p", "one"), Lane("q", "c", "p", "two")])
        boot = NewWorker(uuid.uuid4().hex, "bench", Role.MAIN, LEASE_S)
        self.worker = self.store.add_worker(boot)

    def lay(self, lanes: Sequence[Lane]) -> tuple[int, ...]:
        """The numbers of these lanes, made where they are missing."""
        numbers = self.store.lanes(lanes)
        return tuple(numbers[lane] for lane in lanes)

    def prepared(self, batch: Sequence[Item]) -> Any:
        """New jobs, as the engine builds them."""
        return [NewJob(one.id, "p", self.lanes[0], "one", one.payload_json) for one in batch]

    def enqueue(self, prepared: Any) -> None:
        """One call of the port."""
        self.store.enqueue(prepared)

    def settled(self, claims: Sequence[Claim], *, failing: bool) -> list[Record]:
        """Records, as the engine builds them; a failed job comes again at once."""
        return [
            record(one, FAILURE if failing and one.counters.failures == 0 else SUCCESS, self.worker)
            for one in claims
        ]

    def turn(self, endings: Sequence[Record], slots: int) -> Sequence[Claim]:
        """One call of the port."""
        turn = self.store.turn(endings, ClaimOrder(self.worker, slots, self.lanes), by=self.worker)
        if not all(type(one) is Receipt for one in turn.settled):
            raise AssertionError("a record was refused")
        return turn.claims

    def counted(self) -> tuple[int, int]:
        """Finished jobs and attempt rows."""
        return counted(self.url)

    def close(self) -> None:
        """Disconnect."""
        self.opened.close()


class OursOnPostgres(Ours):
    """On a database of a server, with a second connection to look at it from the side."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._aside = psycopg.connect(url, autocommit=True)
        self._spent_ns: dict[int, int] = {}

    def ready(self) -> None:
        """What autovacuum would have done by then."""
        self._aside.execute("VACUUM ANALYZE perdure_jobs")

    def server_ns(self) -> int | None:
        """CPU time of all backends that we have had."""
        rows = self._aside.execute(_BACKENDS, (f"perdure {os.getpid()}",)).fetchall()
        for (pid,) in rows:
            spent_ns = cpu_ns(pid)
            if spent_ns is None:
                return None
            self._spent_ns[pid] = spent_ns
        return sum(self._spent_ns.values())

    def log_at(self) -> str:
        """How far the server's log is."""
        return str(self._aside.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0])  # type: ignore[index]

    def log_since(self, place: str) -> int:
        """How many bytes the server's log has grown by."""
        sql = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s::pg_lsn)"
        return int(self._aside.execute(sql, (place,)).fetchone()[0])  # type: ignore[index]

    def behind(self, *statements: str) -> None:
        """Write behind the store's back, in one transaction."""
        with self._aside.transaction():
            for one in statements:
                self._aside.execute(one.encode())

    def close(self) -> None:
        """Disconnect."""
        self._aside.close()
        super().close()


class OursOnSqlite(Ours):
    """On a file."""

    def ready(self) -> None:
        """A file has no upkeep."""

    def server_ns(self) -> int | None:
        """The library is in our own thread."""
        return None

    def behind(self, *statements: str) -> None:
        """Write behind the store's back, while nobody else writes."""
        with closing(
            sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)
        ) as cx:
            cx.execute("PRAGMA synchronous = OFF")
            for one in statements:
                cx.execute(one)


_BACKENDS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
)


def on(url: str) -> "OursOnPostgres | OursOnSqlite":
    """Our store behind a URL."""
    return OursOnPostgres(url) if url.startswith("postgresql:") else OursOnSqlite(url)


_COUNTED = (
    "SELECT (SELECT count(*) FROM perdure_jobs WHERE state = 'succeeded'), "
    "(SELECT count(*) FROM perdure_attempts)"
)


def counted(url: str) -> tuple[int, int]:
    """Finished jobs and attempt rows, read by a connection of its own."""
    if url.startswith("postgresql:"):
        with psycopg.connect(url, autocommit=True) as server:
            return server.execute(_COUNTED).fetchone() or (0, 0)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        row: tuple[int, int] = file.execute(_COUNTED).fetchone()
        return row


def record(claim: Claim, ending: Record, worker: int) -> Record:
    """The record of one claim that ended like ``ending``."""
    like = ending.attempt
    assert like is not None
    again = ending is FAILURE
    attempt = Attempt(
        claim.stage, claim.counters.starts, claim.life, like.status, worker, claim.claimed_at,
        like.elapsed_s, like.counted, like.kind, like.message, like.policy, like.why_json,
        like.evidence_json, like.config_hash,
    )  # fmt: skip
    counters = claim.counters.after_event(Counted.FAILURES) if again else claim.counters
    return Record(
        claim.no, claim.id, claim.token, ending.move, ending.state, claim.stage, claim.lane, counters,
        claim.past, claim.isolation, 0.0 if again else None, None, ending.error_kind,
        ending.error_message, ending.result_json, attempt=attempt,
    )  # fmt: skip
