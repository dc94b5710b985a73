"""The reads, for screens, reports and the audit, the same on every store. They change nothing and wait for nobody.

What takes more than one statement is read in one snapshot, so that books balance while others write.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import ClassVar

from perdure.model.access import AccessToken
from perdure.model.filters import DEAD_LETTERS, EVERY_JOB, JobFilter
from perdure.model.gates import GateRow
from perdure.model.limits import COUNT_MAX, PAGE_ROWS_MAX
from perdure.model.operations import (
    BulkStatus,
    BulkView,
    LanePause,
    LoggedDeed,
    LoggedRefusal,
    ScheduleView,
)
from perdure.model.runs import ItemView, RunView
from perdure.model.views import (
    AttemptView,
    Books,
    CaptureView,
    ChangedJob,
    DeadGroup,
    DeathCount,
    Depth,
    FailureGroup,
    Finding,
    Flow,
    JobView,
    LaneView,
    PayloadView,
    Preview,
    RunFigures,
    StoreFigures,
)
from perdure.model.workers import WorkerView
from perdure.stores import job_lists, tally_reads
from perdure.stores.audit_checks import findings, of_run
from perdure.stores.columns import (
    ACCESS_TOKEN,
    ATTEMPT,
    BULK,
    CAPTURE,
    DEED,
    GATE,
    ITEM,
    JOB,
    PAUSE,
    RUN,
    SCHEDULE,
    WORKER,
)
from perdure.stores.dead_groups import preview
from perdure.stores.job_lists import NO_MAX, Choice, Dialect, Fetch, FetchWhole
from perdure.stores.moments import from_us, to_us
from perdure.stores.rows import Row, job_out, lanes_out
from perdure.stores.run_report import run_figures
from perdure.stores.statements import Statements

_WORKERS_MAX = 200  # dead ones that have left nothing behind


class SharedReader(ABC):
    """The `Reader` port but for what each store reads in its own way."""

    _sql: ClassVar[Statements]
    _dialect: ClassVar[Dialect]
    _checks: ClassVar[Mapping[str, str]]

    @abstractmethod
    def _rows(self, sql: str, values: Mapping[str, object]) -> Sequence[Row]:
        """What one statement finds."""

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[Fetch]:
        """How several statements are run that see the same."""

    @abstractmethod
    def _walking(self, *, by_index: bool = False) -> AbstractContextManager[Fetch]:
        """As `_snapshot`, for a report over whole tables; with ``by_index``, over a part of them."""

    @abstractmethod
    def _now_us(self) -> int:
        """The store's clock."""

    def _is_id(self, id: str) -> bool:
        """Whether this could be the id of anything here."""
        return True

    def job(self, id: str, *, owner: str | None = None) -> JobView | None:
        """One job; `StoreDamaged` when its row cannot be read."""
        rows = self._with_id(self._sql.job_by_id, id, owner=owner)
        return job_out(rows[0]) if rows else None

    def jobs_ended(self, ids: Sequence[str]) -> dict[str, JobView | None]:
        """Of these jobs, those that have ended, and None for those that are not there."""
        asked = [one for one in ids if self._is_id(one)]
        packed = self._dialect.packed_texts(asked)
        rows = self._rows(self._sql.jobs_ended, {"ids": packed}) if asked else ()
        place = 1 + JOB.places["id"]
        found = {row[0]: None if row[place] is None else job_out(row[1:]) for row in rows}
        return {one: None for one in ids if not self._is_id(one)} | found

    def jobs(
        self, chosen: JobFilter = EVERY_JOB, *, limit: int = 50, before: int | None = None
    ) -> list[JobView]:
        """Jobs, newest first; a page that is shorter than ``limit`` is the last one.

        No statement looks at more than `job_lists.LOOK_ROWS_MAX` rows.
        """
        with self._snapshot() as fetch:
            choice, whole = Choice(chosen, self._dialect), self._page_fetcher(fetch)
            return job_lists.page(choice, fetch, whole, limit=limit, before=before)

    def jobs_changed(
        self, chosen: JobFilter, *, since: datetime, after: int = 0, limit: int = 50
    ) -> list[ChangedJob]:
        """An owner's jobs by their last change, from a moment on, above a number within it."""
        with self._snapshot() as fetch:
            choice, whole = Choice(chosen, self._dialect), self._page_fetcher(fetch)
            return job_lists.changes(choice, fetch, whole, since=since, after=after, limit=limit)

    def preview(self, chosen: JobFilter, *, count_max: int = COUNT_MAX) -> Preview:
        """How many jobs a filter means, counted up to a bound, and how those have ended."""
        with self._snapshot() as fetch:
            return preview(Choice(chosen, self._dialect), fetch, count_max=count_max)

    def depths(self) -> list[Depth]:
        """How many jobs stand where, by queue, pipeline and stage."""
        return tally_reads.depths(self._rows)

    def flows(self, *, minutes: bool = False) -> list[Flow]:
        """What has happened since the store was made; with ``minutes``, in each of the last sixty of them."""
        return tally_reads.flows(self._rows, self._now_us(), minutes=minutes)

    def deaths(self) -> list[DeathCount]:
        """What jobs have died of, by kind and code, most frequent first."""
        return tally_reads.deaths(self._rows)

    def figures(self) -> StoreFigures:
        """What stands where, what has happened, gates and workers, all at one moment and without counting a job."""
        now = self._now_us()
        with self._snapshot() as fetch:
            closed = tally_reads.words_of_closed(fetch(self._sql.depths_closed, {}))
            depths, heads = tally_reads.depths_and_heads(fetch, closed, now)
            return StoreFigures(
                now=from_us(now),
                depths=depths,
                heads=heads,
                flows=tally_reads.flows(fetch, now, minutes=False),
                deaths=tally_reads.deaths(fetch, oldest_first=True),
                gates=GATE.read_all(fetch(self._sql.gates_list, {})),
                workers=WORKER.read_all(fetch(self._sql.workers_list, {"limit": 0})),
            )

    def open_jobs(self, owner: str) -> int:
        """How many jobs of an owner are queued or in work."""
        return tally_reads.open_jobs(self._rows, owner)

    def lanes(self) -> list[LaneView]:
        """All lanes by number, all that closes each, and how many jobs wait in it."""
        with self._snapshot() as fetch:
            lanes, closed = fetch(self._sql.lanes_list, {}), fetch(self._sql.lanes_closed_by, {})
            return lanes_out(lanes, closed, tally_reads.waiting_by_lane(fetch))

    def first_due(self) -> dict[int, datetime]:
        """For each lane with jobs that can run now, since when the first in line could."""
        return tally_reads.first_due(self._rows)

    def held_lanes(self, lanes: Collection[int]) -> frozenset[int]:
        """Of these lanes, those whose gate lets nothing pass."""
        asked = sorted(set(lanes))
        return tally_reads.held_lanes(self._rows, self._dialect, asked) if asked else frozenset()

    def attempts(self, job_no: int) -> list[AttemptView]:
        """The attempts of one job, oldest first."""
        return ATTEMPT.read_all(self._rows(self._sql.attempts_of, {"job": job_no}))

    def books(self, *, pipeline: str | None = None) -> Books:
        """How many items came in, and where they are."""
        with self._snapshot() as fetch:
            return tally_reads.books(fetch, pipeline)

    def failures(self, *, pipeline: str | None = None) -> list[FailureGroup]:
        """Failed jobs grouped by how they ended, most frequent first."""
        rows = self._rows(self._sql.failures, {"pipeline": pipeline})
        return [FailureGroup(*row) for row in rows]

    def workers(self) -> list[WorkerView]:
        """All workers that are alive or have unsettled jobs, then the newest dead ones."""
        return WORKER.read_all(self._rows(self._sql.workers_list, {"limit": _WORKERS_MAX}))

    def pauses(self) -> list[LanePause]:
        """What is paused."""
        return PAUSE.read_all(self._rows(self._sql.pauses_list, {}))

    def gates(self) -> list[GateRow]:
        """Every gate that has a row, by name."""
        return GATE.read_all(self._rows(self._sql.gates_list, {}))

    def gate(self, name: str) -> GateRow | None:
        """One gate; None when it has no row, and so is flowing."""
        rows = self._rows(self._sql.gate, {"name": name})
        return GATE.read(rows[0]) if rows else None

    def now(self) -> datetime:
        """The store's clock."""
        return from_us(self._now_us())

    def schedules(self, *, due: bool = False) -> list[ScheduleView]:
        """Schedules by next moment; with ``due`` only those whose moment has come."""
        where = {"due_by": self._now_us() if due else None}
        return SCHEDULE.read_all(self._rows(self._sql.schedules_list, where))

    def run(self, id: str, *, owner: str | None = None) -> RunView | None:
        """One run, its counters summed."""
        rows = self._with_id(self._sql.run_by_id, id, owner=owner)
        return RUN.read(rows[0]) if rows else None

    def runs(
        self,
        *,
        pipeline: str | None = None,
        owner: str | None = None,
        name: str | None = None,
        no: int | None = None,
        live: bool = False,
        limit: int = 50,
        before: int | None = None,
    ) -> list[RunView]:
        """Runs, newest first; with ``live`` only those that are not over; ``before`` continues below a number."""
        where = {"pipeline": pipeline, "owner": owner, "name": name}
        bounds = {"floor": 0, **_bounds(limit, before)}
        if no is None and None not in (pipeline, owner, name):
            ((no,),) = self._rows(self._sql.run_found, where) or [(0,)]
        if no is not None:
            if not 0 < no < bounds["before"]:
                return []
            bounds |= {"floor": no, "before": no + 1}
        sql = self._sql.runs_live if live else self._sql.runs_page
        return RUN.read_all(self._rows(sql, {**where, **bounds}))

    def items(
        self, run: int, *, after: int = 0, redriven: bool = False, limit: int = 500
    ) -> list[ItemView]:
        """The items of a run in their order, above a job number; with ``redriven``, what was driven again in it."""
        where = {"run": run, "after": after, "limit": _rows_of(limit)}
        sql = self._sql.items_redriven if redriven else self._sql.items
        return ITEM.read_all(self._rows(sql, where))

    def items_ended(
        self, run: int, *, since: datetime, after: int = 0, redriven: bool = False, limit: int = 500
    ) -> list[ItemView]:
        """The items of a run that have ended, by when they did, from a moment on, above a number within it."""
        where = {"run": run, "since": to_us(since), "after": after, "limit": _rows_of(limit)}
        sql = self._sql.items_ended_redriven if redriven else self._sql.items_ended
        return ITEM.read_all(self._rows(sql, where))

    def run_figures(self, run: int) -> RunFigures:
        """What the attempts of a run's jobs say; walks over all of them, and over those of no other run."""
        with self._walking(by_index=True) as fetch:
            return run_figures(fetch, run)

    def dead_groups(self, chosen: JobFilter = DEAD_LETTERS, *, limit: int = 50) -> list[DeadGroup]:
        """The dead letters of a filter by fingerprint, most frequent first."""
        kept = tally_reads.is_kept(chosen)
        with self._snapshot() if kept else self._walking(by_index=True) as fetch:
            return tally_reads.dead_groups(chosen, self._dialect, fetch, limit=limit)

    def rivals(self, job_nos: Sequence[int]) -> dict[int, str]:
        """For these jobs, the ids of others of their owner, pipeline and key that are queued or processing."""
        rows = self._rows(self._sql.rivals, {"nos": self._dialect.packed(job_nos)})
        return {row[0]: row[1] for row in rows}

    def access_token(self, id: str) -> AccessToken | None:
        """One access token, good or not."""
        rows = self._with_id(self._sql.access_token_by_id, id)
        return ACCESS_TOKEN.read(rows[0]) if rows else None

    def access_tokens(self, *, limit: int = 500) -> list[AccessToken]:
        """All access tokens but logins, newest first."""
        rows = self._rows(self._sql.access_tokens_list, {"limit": _rows_of(limit)})
        return ACCESS_TOKEN.read_all(rows)

    def bulks(
        self,
        *,
        running: bool = False,
        id: str | None = None,
        owner: str | None = None,
        limit: int = 50,
    ) -> list[BulkView]:
        """Bulk operations, newest first; with ``running`` only those under way."""
        if id is not None:
            found = BULK.read_all(self._with_id(self._sql.bulk_by_id, id, owner=owner))
            kept = [one for one in found if not running or one.status is BulkStatus.RUNNING]
            return kept[: _rows_of(limit)]
        sql = self._sql.bulks_running if running else self._sql.bulks_list
        return BULK.read_all(self._rows(sql, {"owner": owner, "limit": _rows_of(limit)}))

    def refusals(self, bulk: int, *, after: int = 0, limit: int = 500) -> list[LoggedRefusal]:
        """What a bulk operation has left as it was, by job number above ``after``."""
        where = {"bulk": bulk, "after": after, "limit": _rows_of(limit)}
        return [LoggedRefusal(*row) for row in self._rows(self._sql.refusals_page, where)]

    def payloads(self, job_no: int) -> list[PayloadView]:
        """The payloads that a job had before the one that it has, oldest first."""
        return [PayloadView(*row) for row in self._rows(self._sql.payloads_of, {"job": job_no})]

    def bulk_payloads(self, bulk: int, keys: Sequence[str]) -> dict[str, str]:
        """The payloads, as JSON, that a bulk operation which is not done brings for these keys."""
        where = {"bulk": bulk, "keys": self._dialect.packed_texts(keys)}
        return {row[0]: row[1] for row in self._rows(self._sql.bulk_payloads_of, where)}

    def captures(self, job_no: int) -> list[CaptureView]:
        """What was put aside in a job's attempts, oldest first."""
        return CAPTURE.read_all(self._rows(self._sql.captures_of, {"job": job_no}))

    def capture(self, id: str, *, owner: str | None) -> tuple[CaptureView, bytes] | None:
        """One capture, if its job is that owner's; None as owner is an operator, who may read all."""
        rows = self._with_id(self._sql.capture_by_id, id, owner=owner)
        return (CAPTURE.read(rows[0]), bytes(rows[0][CAPTURE.width])) if rows else None

    def deeds(
        self, *, subject: str | None = None, limit: int = 50, before: int | None = None
    ) -> list[LoggedDeed]:
        """The audit log, newest first; ``before`` continues below a line's number."""
        bounds = _bounds(limit, before)
        if subject is None:
            return DEED.read_all(self._rows(self._sql.deeds_page, bounds))
        return DEED.read_all(self._rows(self._sql.deeds_of, {"subject": subject, **bounds}))

    def audit(self, *, run: int | None = None) -> list[Finding]:
        """Everything in the tables that ought not to be so; with ``run``, only of that run and its jobs."""
        with self._walking() as fetch:
            found = findings(self._checks, lambda sql: fetch(sql, {}))
            if run is None:
                return found

            def subjects_of_run(subjects: Sequence[str]) -> list[str]:
                ids = self._dialect.packed_texts([one for one in subjects if self._is_id(one)])
                rows = fetch(self._sql.subjects_of_run, {"run": run, "ids": ids})
                return [id for (id,) in rows]

            return of_run(found, run, subjects_of_run)

    def _with_id(self, sql: str, id: str, **values: object) -> Sequence[Row]:
        return self._rows(sql, {"id": id, **values}) if self._is_id(id) else ()

    def _page_fetcher(self, fetch: Fetch) -> FetchWhole:
        """How the rows of a page are read when their numbers are known."""
        return lambda nos: fetch(self._sql.jobs_page, {"nos": self._dialect.packed(nos)})


def _rows_of(limit: int) -> int:
    """A page is never too long."""
    return max(0, min(limit, PAGE_ROWS_MAX))


def _bounds(limit: int, before: int | None) -> dict[str, int]:
    """A page by number, from the newest on when nothing is said."""
    return {"limit": _rows_of(limit), "before": NO_MAX if before is None else min(before, NO_MAX)}
