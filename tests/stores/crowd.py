"""Many jobs of a thousand owners, made by a few statements; and how many rows each statement of a read touches there.

Ann has 50 jobs, Big a tenth of all, and the other 998 share the rest. Every state is among the jobs of each; there are
two thousand lanes, and moments rise with the numbers of the jobs.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import psycopg

from perdure.ports import Reader
from perdure.stores.postgres.record import OWNER_LINES
from tests.stores import kit
from tests.stores.kit import MEMORY
from tests.stores.postgres.kit import Place as PostgresPlace
from tests.stores.postgres.plans import plan_of_text, rows_touched

T = TypeVar("T")

LANES = 2_000
INSTRUCTIONS_A_ROW = 40  # of SQLite's machine: a row passed by takes a dozen, a whole job 75

_FILL_LANES = """
INSERT INTO perdure_lanes (queue, category, pipeline, stage, run)
SELECT 'q', 'c', 'p', 'one', n FROM {series} AS s
"""
_FILL_JOBS = """
INSERT INTO perdure_jobs (
    id, lane, token, rank_at, order_at, due_at, enqueued_at, updated_at, priority, ready, worker,
    finished_at, state, failed_reason, error_kind, error_message, fingerprint, owner, pipeline, stage, payload
)
SELECT
    {id}, 1 + n % {lanes}, 1, n, n, n, n, n, 0, CASE WHEN part < 3 THEN 1 WHEN part = 3 THEN 0 END,
    CASE WHEN part = 4 THEN 1 END, CASE WHEN part > 4 THEN n END,
    CASE WHEN part < 4 THEN 'queued' WHEN part = 4 THEN 'processing' WHEN part = 5 THEN 'failed'
        WHEN part = 6 THEN 'cancelled' ELSE 'succeeded' END,
    CASE WHEN part = 5 THEN 'fatal' END, CASE WHEN part = 5 THEN 'input_invalid' END,
    CASE WHEN part = 5 THEN 'The item is broken.' END, CASE WHEN part = 5 THEN 'f' || (n % 300) END,
    CASE WHEN n % ({jobs} / 50) = 7 THEN 'ann' WHEN n % 10 = 3 THEN 'big' ELSE 'owner-' || (n % 998) END,
    'p', 'one', '{{}}'
FROM (SELECT n, (n / 11) % 10 AS part FROM {series} AS s) AS numbered
"""
_FILL_OWNED = """
INSERT INTO perdure_owned (owner, job, failed, changed_at)
SELECT owner, no, state = 'failed', enqueued_at FROM perdure_jobs
"""
_FILL_ATTEMPTS = """
INSERT INTO perdure_attempts (
    job, token, claimed_at, settled_at, elapsed_s, number, life, status, state, stage, message, policy, config_hash, why,
    owner
)
SELECT no, 1, enqueued_at, finished_at, 0.5, 1, 1, 'success', state, stage, '', 'p/1', '', '{{"text": "done"}}', owner
FROM perdure_jobs WHERE finished_at IS NOT NULL
"""
# As they are once they were added up: what is open in a hundred lanes, five stages, three hundred groups of dead letters.
_FILL_DEPTHS = """
INSERT INTO perdure_depths (lane, ready) SELECT lane, count(*) FROM perdure_jobs WHERE lane <= 100 GROUP BY lane
"""
_FILL_FLOWS = """
INSERT INTO perdure_flows (pipeline, stage, minute, created)
SELECT 'p', 'stage ' || (n / 62), n % 62 - 1, 1 FROM {series} AS s WHERE n < 310
"""
_FILL_DEATHS = """
INSERT INTO perdure_deaths (owner, fingerprint, pipeline, stage, reason, kind, code, letters, ever, first_at, last_at)
SELECT {owner}, fingerprint, pipeline, stage, failed_reason, error_kind, '', count(*), count(*), 1, 1
FROM perdure_jobs WHERE failed_reason IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6, 7
"""
_FILL_OWNERS = "INSERT INTO perdure_owners (owner, open) SELECT owner, count(*) FROM perdure_jobs GROUP BY owner"
# As fifteen working processes may leave them: as many lines each as are not added up yet, of batches of a hundred.
_FILL_OWNERS_ENDED = """
INSERT INTO perdure_owners_ended (owners)
SELECT (SELECT array_agg('owner-' || ((n * 7 + i) % 998)) FROM generate_series(1, 99) AS i) || 'big'::text
FROM generate_series(1, {lines}) AS n
"""
_SERIES = """(
    WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s
)"""


class Crowd(Protocol):
    """A store full of jobs, and a watch on the statements by which it is read."""

    reader: Reader
    run: Callable[[str], object]

    def touched(self, read: Callable[[Reader], object]) -> list[int]:
        """How many rows each statement of a read has touched."""
        ...

    def plans(self, read: Callable[[Reader], object]) -> list[tuple[str, str]]:
        """Each statement of a read, and how it is carried out."""
        ...


def _statements(jobs: int, lanes: int, *, id: str, series: str) -> Iterator[str]:
    yield _FILL_LANES.format(series=series.format(count=lanes))
    yield _FILL_JOBS.format(jobs=jobs, lanes=lanes, id=id, series=series.format(count=jobs))
    yield _FILL_OWNED
    yield _FILL_ATTEMPTS.format()
    yield _FILL_DEPTHS
    yield _FILL_FLOWS.format(series=series.format(count=400))
    yield from (_FILL_DEATHS.format(owner=owner) for owner in ("''", "owner"))
    yield _FILL_OWNERS


def fill_sqlite(run: Callable[[str], object], jobs: int, lanes: int = LANES) -> None:
    """Fill a file that has the schema and nothing else."""
    for one in _statements(jobs, lanes, id="'job-' || n", series=_SERIES):
        run(one)
    run("ANALYZE")


def fill_postgres(run: Callable[[str], object], jobs: int, lanes: int = LANES) -> None:
    """Fill a database that has the schema and nothing else."""
    series = "generate_series(1, {count})"
    for one in _statements(jobs, lanes, id="gen_random_uuid()", series=series):
        run(one.replace("AS s", "AS s (n)"))
    run(_FILL_OWNERS_ENDED.format(lines=15 * OWNER_LINES))
    run("VACUUM ANALYZE perdure_jobs, perdure_owned, perdure_attempts, perdure_lanes")


class SqliteCrowd:
    """Rows are not counted by SQLite; the instructions of its machine are, and a row takes some."""

    def __init__(self, jobs: int, lanes: int = LANES) -> None:
        self._place = kit.Place(MEMORY)
        self._raw = self._place.connection.raw
        self.reader: Reader = self._place.reader
        self.run: Callable[[str], object] = self._raw.execute
        fill_sqlite(self.run, jobs, lanes)

    def touched(self, read: Callable[[Reader], object]) -> list[int]:
        counts: list[int] = []

        def instruction() -> None:
            counts[-1] += 1

        self._raw.set_trace_callback(lambda _: counts.append(0))
        self._raw.set_progress_handler(instruction, 1)
        try:
            read(self.reader)
        finally:
            self._raw.set_trace_callback(None)
            self._raw.set_progress_handler(None, 1)
        return [-(-count // INSTRUCTIONS_A_ROW) for count in counts]

    def plans(self, read: Callable[[Reader], object]) -> list[tuple[str, str]]:
        texts: list[str] = []
        self._raw.set_trace_callback(texts.append)
        try:
            read(self.reader)
        finally:
            self._raw.set_trace_callback(None)
        asked = [text for text in texts if text.lstrip().startswith(("SELECT", "WITH", "--"))]
        return [
            (one, str(self._raw.execute(f"EXPLAIN QUERY PLAN {one}").fetchall())) for one in asked
        ]

    def close(self) -> None:
        self._place.close()


class PostgresCrowd:
    """Every statement is explained with what it was given, as it is prepared and as it is planned for one call."""

    def __init__(self, jobs: int, url: str, lanes: int = LANES) -> None:
        self._place = PostgresPlace(url, size_max=1)
        self._aside = psycopg.connect(url, autocommit=True)
        self.reader: Reader = self._place.reader
        self.run: Callable[[str], object] = self._aside.execute
        fill_postgres(self.run, jobs, lanes)

    def touched(self, read: Callable[[Reader], object]) -> list[int]:
        return self._watch(read, _most)

    def plans(self, read: Callable[[Reader], object]) -> list[tuple[str, str]]:
        def plan(cx: Any, text: str, values: Mapping[str, object]) -> tuple[str, str]:
            both = [plan_of_text(cx, text, values, mode=mode) for mode in ("generic", "custom")]
            return text, "\n".join(map(str, both))

        return self._watch(read, plan)

    def _watch(self, read: Callable[[Reader], object], note: Callable[..., T]) -> list[T]:
        noted: list[T] = []

        class Watched(psycopg.Cursor[Any]):
            def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
                if isinstance(query, str) and query.lstrip().startswith(("SELECT", "WITH", "--")):
                    with _plain(self.connection) as cx:
                        noted.append(note(cx, query, params or {}))
                return super().execute(query, params, **options)

        with self._place.connection.autocommit() as cx:
            cx.cursor_factory = Watched
        try:
            read(self.reader)
        finally:
            with self._place.connection.autocommit() as cx:
                cx.cursor_factory = psycopg.Cursor
        return noted

    def close(self) -> None:
        self._aside.close()
        self._place.close()


@contextmanager
def _plain(cx: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    watched, cx.cursor_factory = cx.cursor_factory, psycopg.Cursor
    yield cx
    cx.cursor_factory = watched


def _most(cx: psycopg.Connection[Any], text: str, values: Mapping[str, object]) -> int:
    return max(rows_touched(cx, text, values, mode=mode) for mode in ("generic", "custom"))
