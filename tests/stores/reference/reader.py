"""The reads of the reference model."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import astuple, fields

from perdure.model.access import AccessToken
from perdure.model.changes import ChangePage
from perdure.model.diagnoses import StoreCondition
from perdure.model.errors import CallerError, CursorTooOld
from perdure.model.filters import EVERY_JOB, JobFilter
from perdure.model.gates import GateLook, GateRow
from perdure.model.limits import CHANGE_PAGE_ROWS, COUNT_MAX
from perdure.model.operations import BulkStatus, BulkView, LanePause, LoggedDeed, ScheduleView
from perdure.model.states import TERMINAL, FailedReason, State
from perdure.model.views import (
    OPEN,
    AttemptView,
    Books,
    ChangedJob,
    DeathCount,
    Depth,
    FailureGroup,
    Finding,
    Flow,
    JobView,
    LaneView,
    Preview,
    QueueHead,
    StoreFigures,
)
from perdure.model.workers import WorkerView
from tests.stores.reference.choosing import is_meant, lane_of
from tests.stores.reference.gating import look
from tests.stores.reference.reporting import Reports, rows_of
from tests.stores.reference.rows import JobRow, WorkerRow
from tests.stores.reference.tables import Tables, in_line

_SETTLED_SHOWN_MAX = 200


class ModelReader(Reports):
    """The `Reader` port on plain dicts."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def job(self, id: str, *, owner: str | None = None) -> JobView | None:
        """One job."""
        with self._tables.read():
            found = [job for job in self._all() if job.id == id and owner in (None, job.owner)]
            return self._view(found[0]) if found else None

    def jobs_ended(self, ids: Sequence[str]) -> dict[str, JobView | None]:
        """Of these, those that have ended, and those that are not there."""
        seen = {id: self.job(id) for id in ids}
        return {id: job for id, job in seen.items() if job is None or job.state in TERMINAL}

    def jobs(
        self, chosen: JobFilter = EVERY_JOB, *, limit: int = 50, before: int | None = None
    ) -> list[JobView]:
        """Jobs, newest first."""
        with self._tables.read():
            found = [job for job in self._newest_first(chosen) if before is None or job.no < before]
            return [self._view(job) for job in found[: rows_of(limit)]]

    def jobs_changed(
        self, chosen: JobFilter, *, since: datetime, after: int = 0, limit: int = 50
    ) -> list[ChangedJob]:
        """An owner's jobs by their last change."""
        if not chosen.owner:
            raise CallerError(f"jobs are listed by change for one owner, not for {chosen.owner!r}")
        with self._tables.read():
            found = sorted(self._newest_first(chosen), key=lambda job: (job.changed_at, job.no))
            later = [job for job in found if (job.changed_at, job.no) > (since, after)]
            return [ChangedJob(job.changed_at, self._view(job)) for job in later[: rows_of(limit)]]

    def preview(self, chosen: JobFilter, *, count_max: int = COUNT_MAX) -> Preview:
        """The newest ones are counted, up to the bound, and grouped by how they failed."""
        with self._tables.read():
            found = self._newest_first(chosen)
            counted = found[:count_max]
            return Preview(len(counted), len(found) > count_max, _groups(counted))

    def depths(self) -> list[Depth]:
        """How many jobs stand where, counted."""
        with self._tables.read():
            return self._depths(self._all())

    def _depths(self, jobs: Iterable[JobRow]) -> list[Depth]:
        found: dict[tuple[str, str, str], Counter[str]] = {}
        for job in jobs:
            lane = self._tables.lanes[job.lane]
            place = (lane.queue, lane.pipeline, lane.stage)
            found.setdefault(place, Counter())[job.place] += 1
        names = [one.name for one in fields(Depth)][3:]
        return [
            Depth(*place, *(counts[name] for name in names))
            for place, counts in sorted(found.items())
        ]

    def figures(self) -> StoreFigures:
        """All of it, counted; jobs apart by what closes their lanes."""
        flows, gates = self.flows(), self.gates()
        deaths, workers = self.deaths(), self.workers()
        with self._tables.read() as now:
            apart: dict[str, list[JobRow]] = {}
            lines: dict[tuple[int, int], list[JobRow]] = {}
            for job in self._all():
                apart.setdefault(self._closed(job.lane), []).append(job)
                lines.setdefault((job.lane, job.isolation), []).append(job)
            due: dict[tuple[str, str], list[datetime]] = {}
            for (lane, _), jobs in lines.items():
                firsts = [job.due_at for job in jobs if job.ready is False]
                firsts += [job.due_at for job in sorted(jobs, key=in_line) if job.ready][:1]
                queue = self._tables.lanes[lane].queue, self._closed(lane)
                due.setdefault(queue, []).extend(one for one in firsts if one <= now)
            struck: dict[tuple[str, ...], datetime] = {}
            for letter, (_, first_at, _) in self._tables.died.items():
                struck[letter[2:]] = min(first_at, struck.get(letter[2:], first_at))
            return StoreFigures(
                now=now,
                depths={word: self._depths(jobs) for word, jobs in sorted(apart.items())},
                heads=[QueueHead(*one, min(at)) for one, at in sorted(due.items()) if at],
                flows=flows,
                deaths=sorted(deaths, key=lambda one: (struck[astuple(one)[:5]], astuple(one)[:5])),
                gates=gates,
                workers=[one for one in workers if self._tables.workers[one.no].settled_at is None],
            )

    def _closed(self, no: int) -> str:
        lane = self._tables.lanes[no]
        if self._tables.paused_by(lane):
            return "paused"
        return "held" if self._tables.closed_by(lane) else OPEN

    def flows(self, *, minutes: bool = False) -> list[Flow]:
        """What was written down when it happened."""
        with self._tables.read() as now:
            since = now.replace(second=0, microsecond=0) - timedelta(minutes=59)
            found: dict[tuple[datetime | None, str, str], Counter[str]] = {}
            for (pipeline, stage, at), counts in self._tables.flows.items():
                if not minutes or at >= since:
                    place = (at if minutes else None, pipeline, stage)
                    found.setdefault(place, Counter()).update(counts)
            names = [one.name for one in fields(Flow)][3:]
            shown = [
                Flow(pipeline, stage, at, *(counts[name] for name in names))
                for (at, pipeline, stage), counts in found.items()
            ]
            return sorted(shown, key=lambda one: (one.at or now, one.pipeline, one.stage))

    def deaths(self) -> list[DeathCount]:
        """What was written down when a job died; those that are dead letters now are counted."""
        with self._tables.read():
            found: dict[tuple[str, ...], list[int]] = {}
            for letter, (ever, _, _) in self._tables.died.items():
                found.setdefault(letter[2:], [0, 0])[1] += ever
            for job in self._all():
                if job.state is State.FAILED and job.discarded_at is None:
                    found[job.letter[2:]][0] += 1
            ordered = sorted(found.items(), key=lambda item: (-item[1][1], item[0]))
            return [
                DeathCount(pipeline, stage, FailedReason(reason), kind, code, *counts)
                for (pipeline, stage, reason, kind, code), counts in ordered
            ]

    def open_jobs(self, owner: str) -> int:
        """Those of an owner, counted."""
        with self._tables.read():
            return sum(
                job.owner == owner and job.state not in TERMINAL for job in self._all() if owner
            )

    def lanes(self) -> list[LaneView]:
        """All lanes, by number."""
        with self._tables.read():
            return [
                LaneView(
                    no,
                    lane,
                    "; ".join(sorted(self._tables.closed_by(lane))) or None,
                    sum(job.lane == no and job.ready is True for job in self._all()),
                    sum(job.lane == no and job.ready is False for job in self._all()),
                )
                for no, lane in sorted(self._tables.lanes.items())
            ]

    def first_due(self) -> dict[int, datetime]:
        """By lane, the moment of the first in line."""
        with self._tables.read():
            ready = [job for job in self._all() if job.ready is True and job.isolation == 0]
            return {job.lane: job.due_at for job in sorted(ready, key=in_line, reverse=True)}

    def held_lanes(self, lanes: Collection[int]) -> frozenset[int]:
        """Those that are closed by a gate."""
        with self._tables.read():
            return frozenset(no for no in lanes if self._tables.is_held(no))

    def attempts(self, job_no: int) -> list[AttemptView]:
        """The attempts of one job, oldest first."""
        with self._tables.read():
            rows = sorted(self._tables.attempts.items())
            return [row.view() for (job, _), row in rows if job == job_no]

    def books(self, *, pipeline: str | None = None) -> Books:
        """Accepted and pruned are kept, the rest is counted."""
        with self._tables.read():
            jobs = [job for job in self._all() if pipeline in (None, job.pipeline)]
            states = Counter(job.state for job in jobs)
            return Books(
                accepted=_sum(self._tables.accepted, pipeline),
                queued=states[State.QUEUED],
                processing=states[State.PROCESSING],
                succeeded=states[State.SUCCEEDED],
                failed=states[State.FAILED],
                cancelled=states[State.CANCELLED],
                pruned=_sum(self._tables.pruned, pipeline),
            )

    def failures(self, *, pipeline: str | None = None) -> list[FailureGroup]:
        """Failed jobs grouped by how they ended, most frequent first."""
        with self._tables.read():
            return list(_groups(job for job in self._all() if pipeline in (None, job.pipeline)))

    def workers(self) -> list[WorkerView]:
        """The living, then the dead whose jobs are not yet settled, then the newest of the others."""
        with self._tables.read():
            newest_first = sorted(self._tables.workers.values(), key=lambda row: -row.no)
            living = [row for row in newest_first if row.dead_at is None]
            dead = [row for row in newest_first if row.dead_at is not None]
            unsettled = [row for row in dead if row.settled_at is None]
            settled = [row for row in dead if row.settled_at is not None]
            shown = [*living, *unsettled, *settled[:_SETTLED_SHOWN_MAX]]
            return [_worker_view(row) for row in shown]

    def pauses(self) -> list[LanePause]:
        """What is paused, by scope and name."""
        with self._tables.read():
            return [pause for _, pause in sorted(self._tables.pauses.items())]

    def gates(self) -> list[GateRow]:
        """Every gate that has a row, by name."""
        with self._tables.read():
            return [gate for _, gate in sorted(self._tables.gates.items())]

    def gate(self, name: str) -> GateRow | None:
        """One gate."""
        with self._tables.read():
            return self._tables.gates.get(name)

    def look(self, names: Sequence[str]) -> GateLook:
        """All about these gates and their parents."""
        with self._tables.read() as now:
            return look(self._tables, names, 0, now)

    def now(self) -> datetime:
        """The clock that it was given."""
        with self._tables.read() as now:
            return now

    def schedules(self, *, due: bool = False) -> list[ScheduleView]:
        """Schedules by next moment, then by name."""
        with self._tables.read() as now:
            rows = sorted(self._tables.schedules.values(), key=lambda row: (row.next_at, row.name))
            return [row for row in rows if not due or row.next_at <= now]

    def access_token(self, id: str) -> AccessToken | None:
        """One of them."""
        with self._tables.read():
            return self._tables.access_tokens.get(id)

    def access_tokens(self, *, limit: int = 500) -> list[AccessToken]:
        """Newest first."""
        with self._tables.read():
            found = [one for one in self._tables.access_tokens.values() if one.scopes]
            return found[::-1][: rows_of(limit)]

    def bulks(
        self,
        *,
        running: bool = False,
        id: str | None = None,
        owner: str | None = None,
        limit: int = 50,
    ) -> list[BulkView]:
        """Bulk operations, newest first."""
        with self._tables.read():
            rows = [row for _, row in sorted(self._tables.bulks.items(), reverse=True)]
            found = [
                row
                for row in rows
                if id in (None, row.id)
                and owner in (None, row.owner)
                and (not running or row.status is BulkStatus.RUNNING)
            ]
            return found[: rows_of(limit)]

    def deeds(
        self, *, subject: str | None = None, limit: int = 50, before: int | None = None
    ) -> list[LoggedDeed]:
        """The audit log, newest first."""
        with self._tables.read():
            rows = sorted(self._tables.deeds.items(), reverse=True)
            below = [row for no, row in rows if before is None or no < before]
            found = [row for row in below if subject in (None, row.subject)]
            return found[: rows_of(limit)]

    def changes(
        self, after: str | None = None, *, until: str | None = None, limit: int = CHANGE_PAGE_ROWS
    ) -> ChangePage:
        """Commits follow each other here: a cursor is the number of the last entry that was read."""
        with self._tables.read():
            gone, known = self._tables.changes_gone, self._tables.changes
            last = gone + len(known) if until is None else _number(until)
            if after is None:
                return ChangePage((), f"m1-{last}", False)
            read = _number(after)
            if not gone <= read <= gone + len(known):
                raise CursorTooOld(f"the model no longer has all that came after {after!r}")
            end = min(max(read, last), read + max(1, min(limit, CHANGE_PAGE_ROWS)))
            entries = tuple(known[no] for no in range(read + 1, end + 1))
            return ChangePage(entries, f"m1-{end}", end < last)

    def audit(self, *, run: int | None = None) -> list[Finding]:
        """Dicts that nobody can reach are not damaged behind our back."""
        return []

    def condition(self) -> StoreCondition:
        """Dicts stand on nothing."""
        return StoreCondition("dicts", (1,))

    def close(self) -> None:
        """There is nothing to disconnect from."""

    def _all(self) -> list[JobRow]:
        return list(self._tables.jobs.values())

    def _view(self, job: JobRow) -> JobView:
        return job.view(lane_of(self._tables, job), self._tables.input_of(job))

    def _newest_first(self, chosen: JobFilter) -> list[JobRow]:
        found = [job for job in self._all() if is_meant(self._tables, job, chosen)]
        return sorted(found, key=lambda job: -job.no)


def _sum(by_pipeline: dict[str, int], pipeline: str | None) -> int:
    return sum(count for name, count in by_pipeline.items() if pipeline in (None, name))


def _groups(jobs: Iterable[JobRow]) -> tuple[FailureGroup, ...]:
    """The failed ones among these, grouped by how they ended, most frequent first."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for job in jobs:
        if job.failed_reason is not None:
            like = (job.pipeline, job.stage, job.failed_reason.value, job.error_kind or "")
            groups.setdefault(like, []).append(job.id)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return tuple(FailureGroup(*like, len(ids), min(ids)) for like, ids in ordered)


def _worker_view(row: WorkerRow) -> WorkerView:
    return WorkerView(
        no=row.no,
        boot=row.boot,
        name=row.name,
        role=row.role,
        ttl_s=row.ttl.total_seconds(),
        started_at=row.started_at,
        beat_at=row.beat_at,
        steady_at=row.steady_at,
        dead_at=row.dead_at,
        death_json=None if row.death is None else msgspec.json.encode(row.death).decode(),
    )


def _number(cursor: object) -> int:
    found = re.fullmatch(r"m1-([0-9]{1,18})", str(cursor), re.ASCII)
    if found is None:
        raise CallerError(f"{cursor!r} is not a cursor of the model's change feed")
    return int(found[1])
