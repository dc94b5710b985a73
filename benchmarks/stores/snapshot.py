"""A long drain on PostgreSQL while somebody holds an old snapshot: a report, a backup, a forgotten transaction.

What has been claimed or finished since cannot be cleaned up then, and lies dead at the head of the index of
ready jobs, where each claim begins to read. The raw loop reads all of it again each time; with a cursor (a lower
bound that it remembers) it does not, but would miss whatever becomes ready below the bound. Perdure's stores
remember such a bound only while claims are slow, and drop it regularly.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import psycopg
from benchmarks.stores.ours import OursOnPostgres
from benchmarks.stores.places import Places
from benchmarks.stores.raw_postgres import Narrow
from benchmarks.stores.work import Contender, fill

SLOTS = 200
PARTS = 10

_CLAIM = """
UPDATE jobs AS j SET status = 1, attempts = attempts + 1, token = %s,
    lease_until = now() + interval '30 s', worker = 1
WHERE id = ANY (ARRAY(
    SELECT id FROM jobs
    WHERE status = 0 AND queue = 'default' AND run_at <= now()
    AND (priority, run_at, id) > (0, %s::timestamptz, %s::bigint)
    ORDER BY priority, run_at, id LIMIT %s FOR UPDATE SKIP LOCKED
))
RETURNING j.id, j.token, j.attempts, j.payload, j.run_at::text
"""


class NarrowWithCursor(Narrow):
    """The narrow loop, which begins to read where it last stopped. Right only while nothing comes back."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._last: tuple[str, int] = ("-infinity", 0)

    def claim(self, slots: int) -> "psycopg.Cursor[Any]":
        """Ask for so many jobs above the bound."""
        self._turns += 1
        return self.cx.cursor(binary=True).execute(_CLAIM, (self._turns, *self._last, slots))

    def read(self, claimed: "psycopg.Cursor[Any]") -> Sequence[Any]:
        """The claims of an answer."""
        rows = claimed.fetchall()
        if rows:
            self._last = max((row[4], row[0]) for row in rows)
        return rows


CONTENDERS: dict[str, tuple[Callable[[str], Contender], bool]] = {
    "ours, nobody holds": (OursOnPostgres, False),
    "ours": (OursOnPostgres, True),
    "raw narrow": (Narrow, True),
    "raw narrow with a cursor": (NarrowWithCursor, True),
}


def measured(places: Places, jobs: int) -> dict[str, Any]:
    """One long drain each: jobs per second over all, in each tenth, and the length of the turns."""
    return {
        name: _drained(places, make, jobs, held=held) for name, (make, held) in CONTENDERS.items()
    }


def _drained(
    places: Places, make: Callable[[str], Contender], jobs: int, *, held: bool
) -> dict[str, Any]:
    with ExitStack() as stack:
        url = stack.enter_context(places.fresh("postgresql"))
        contender = make(url)
        stack.callback(contender.close)
        fill(contender, jobs)
        places.rest()
        if held:
            holder = stack.enter_context(psycopg.connect(url))
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("SELECT count(*) FROM pg_class")
        turns_s = _turns(contender)
        if contender.counted() != (jobs, jobs):
            raise AssertionError(f"{contender.counted()} of {jobs} jobs and attempts")
    size = -(-len(turns_s) // PARTS)
    parts = [turns_s[at : at + size] for at in range(0, len(turns_s), size)]
    return {
        "jobs": jobs,
        "jobs_s": round(jobs / sum(turns_s)),
        "turn_ms_by_tenth": [round(statistics.median(part) * 1e3, 2) for part in parts],
        "jobs_s_by_tenth": [round(SLOTS * len(part) / sum(part)) for part in parts],
    }


def _turns(contender: Contender) -> list[float]:
    turns_s = []
    endings = contender.settled((), failing=False)
    while True:
        begun_s = time.perf_counter()
        claims = contender.turn(endings, SLOTS)
        turns_s.append(time.perf_counter() - begun_s)
        if not claims:
            return turns_s
        endings = contender.settled(claims, failing=False)
