"""The reads of the reference model that are about runs, dead letters and captures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from perdure.model.filters import DEAD_LETTERS, JobFilter
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.operations import LoggedRefusal
from perdure.model.runs import ItemView, RunView
from perdure.model.states import AttemptStatus, State
from perdure.model.views import (
    CaptureView,
    DeadGroup,
    Errors,
    PayloadView,
    RunFigures,
    StageFigures,
)
from tests.stores.reference.choosing import is_meant
from tests.stores.reference.rows import AttemptRow, JobRow
from tests.stores.reference.tables import Tables

_Ending = tuple[JobRow, int, State]
_INVALID = ("invalid_output", "truncated_output")


class Reports:
    """The part of the `Reader` port that is about runs, dead letters and captures."""

    _tables: Tables

    # -- runs --------------------------------------------------------------------------------

    def run(self, id: str, *, owner: str | None = None) -> RunView | None:
        """One run."""
        with self._tables.read():
            found = [run for run in self._tables.runs.values() if run.id == id]
            return next((run for run in found if owner in (None, run.owner)), None)

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
        """Runs, newest first."""
        with self._tables.read():
            found = [
                run
                for _, run in sorted(self._tables.runs.items(), reverse=True)
                if pipeline in (None, run.pipeline)
                and owner in (None, run.owner)
                and name in (None, run.name)
                and no in (None, run.no)
                and not (live and run.ended_at is not None)
                and (before is None or run.no < before)
            ]
            return found[: rows_of(limit)]

    def items(
        self, run: int, *, after: int = 0, redriven: bool = False, limit: int = 500
    ) -> list[ItemView]:
        """In the order in which they came in."""
        with self._tables.read():
            found = [job for job in self._of_run(run, redriven) if job.no > after]
            return [_item(job) for job in found[: rows_of(limit)]]

    def items_ended(
        self, run: int, *, since: datetime, after: int = 0, redriven: bool = False, limit: int = 500
    ) -> list[ItemView]:
        """In the order in which they ended."""
        with self._tables.read():
            found = sorted(
                (job.finished_at, job.no)
                for job in self._of_run(run, redriven)
                if job.finished_at is not None and (job.finished_at, job.no) > (since, after)
            )
            return [_item(self._tables.jobs[no]) for _, no in found[: rows_of(limit)]]

    def _of_run(self, run: int, redriven: bool) -> list[JobRow]:
        jobs = [job for _, job in sorted(self._tables.jobs.items())]
        return [job for job in jobs if run == (job.redrive_run if redriven else job.run)]

    def run_figures(self, run: int) -> RunFigures:
        """Over all attempts of the run's jobs, and over those lives of others that were driven again in it."""
        with self._tables.read():
            endings = self._endings(run)
            rows = [
                row
                for row in self._tables.attempts.values()
                if self._counts_in(run, row.job, row.told.life)
            ]
            waits = [row for row in rows if row.told.status is AttemptStatus.WAITING]
            wasted = [row for row in rows if row.told.status is not AttemptStatus.SUCCESS]
            times_s = [
                (job.finished_at - job.enqueued_at).total_seconds()
                for job, _, state in endings
                if state is State.SUCCEEDED and job.finished_at is not None
            ]
            captured = {
                (row.view.job_no, row.view.token) for row in self._tables.artifacts.values()
            } & {(row.job, row.token) for row in rows}
            return RunFigures(
                retries=_retries(endings, rows),
                errors=_errors(rows),
                stages=_stages(rows),
                attempts=len(rows),
                wasted_attempts=len(wasted),
                cost_nusd=sum(row.told.cost_nusd for row in rows),
                wasted_nusd=sum(row.told.cost_nusd for row in wasted),
                invalid_outputs=sum(row.told.kind in _INVALID for row in rows),
                attempts_captured=len(captured),
                success_p50_s=nearest_rank(times_s, 50),
                success_p95_s=nearest_rank(times_s, 95),
                success_mean_s=sum(times_s) / len(times_s) if times_s else None,
                waits=len(waits),
                waited_s=sum(_wait_us(row) for row in waits) / 1_000_000,
            )

    def _counts_in(self, run: int, no: int, life: int) -> bool:
        own = self._tables.jobs[no].run == run
        return own or (run, no, life) in self._tables.redrives

    def _endings(self, run: int) -> list[_Ending]:
        """In which life each item stands in the run, and how that one ended, if it did.

        A run that drove an item again has the last of the lives that followed each other in it. Whatever lived
        again has failed before.
        """
        found = [(job, job.life, job.state) for job in self._of_run(run, redriven=False)]
        for number, no, life in sorted(self._tables.redrives):
            job = self._tables.jobs[no]
            if number == run != job.run and (run, no, life + 1) not in self._tables.redrives:
                found.append((job, life, job.state if job.life == life else State.FAILED))
        return found

    # -- dead letters ------------------------------------------------------------------------

    def dead_groups(self, chosen: JobFilter = DEAD_LETTERS, *, limit: int = 50) -> list[DeadGroup]:
        """By all that they have in common; the newest stands for the others."""
        with self._tables.read():
            groups: dict[tuple[str, ...], list[JobRow]] = {}
            for _, job in sorted(self._tables.jobs.items()):
                if job.state is State.FAILED and is_meant(self._tables, job, chosen):
                    groups.setdefault(_likeness(job), []).append(job)
            ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
            return [
                _group(like, jobs, self._struck(like, chosen.owner))
                for like, jobs in ordered[: rows_of(limit)]
            ]

    def _struck(
        self, like: tuple[str, ...], owner: str | None
    ) -> list[tuple[int, datetime, datetime]]:
        """How often, and when first and last, jobs have died of this, whatever became of them."""
        return [
            times
            for one, times in self._tables.died.items()
            if (one.fingerprint, one.pipeline, one.stage, one.kind, one.code) == like
            and owner in (None, one.owner)
        ]

    def rivals(self, job_nos: Sequence[int]) -> dict[int, str]:
        """Who would be in the way of a new life."""
        with self._tables.read():
            jobs = [self._tables.jobs[no] for no in job_nos if no in self._tables.jobs]
            found = {job.no: self._tables.rival(job) for job in jobs}
            return {no: rival.id for no, rival in found.items() if rival is not None}

    def refusals(self, bulk: int, *, after: int = 0, limit: int = 500) -> list[LoggedRefusal]:
        """By job number; of a job that is gone only the number is left."""
        with self._tables.read():
            found = [
                LoggedRefusal(no, self._tables.jobs[no].id if no in self._tables.jobs else "", why)
                for (operation, no), why in sorted(self._tables.refusals.items())
                if operation == bulk and no > after
            ]
            return found[: rows_of(limit)]

    # -- payloads ----------------------------------------------------------------------------

    def payloads(self, job_no: int) -> list[PayloadView]:
        """By the lives that they were for."""
        with self._tables.read():
            kept = sorted(self._tables.payloads.items())
            return [PayloadView(life, payload) for (no, life), payload in kept if no == job_no]

    def bulk_payloads(self, bulk: int, keys: Sequence[str]) -> dict[str, str]:
        """Those that there are."""
        with self._tables.read():
            brought = self._tables.bulk_payloads
            return {key: brought[bulk, key] for key in keys if (bulk, key) in brought}

    # -- captures ----------------------------------------------------------------------------

    def captures(self, job_no: int) -> list[CaptureView]:
        """Oldest first."""
        with self._tables.read():
            rows = [row.view for _, row in sorted(self._tables.artifacts.items())]
            return [view for view in rows if view.job_no == job_no]

    def capture(self, id: str, *, owner: str | None) -> tuple[CaptureView, bytes] | None:
        """None to whoever it does not belong to, as if it were not there."""
        with self._tables.read():
            for row in self._tables.artifacts.values():
                job = self._tables.jobs[row.view.job_no]
                if row.view.id == id and owner in (None, job.owner):
                    return row.view, row.content
            return None


def rows_of(limit: int) -> int:
    """A page is bounded, whatever is asked for."""
    return max(0, min(limit, PAGE_ROWS_MAX))


def nearest_rank(values: Sequence[float], percent: int) -> float | None:
    """The smallest value that so many percent of all do not exceed."""
    if not values:
        return None
    return sorted(values)[-(-len(values) * percent // 100) - 1]


def _item(job: JobRow) -> ItemView:
    return ItemView(
        no=job.no,
        id=job.id,
        key=job.key,
        state=job.state,
        result_json=job.result_json,
        label=job.label,
        failed_reason=job.failed_reason,
        error_kind=job.error_kind,
        error_code=job.error_code,
        error_message=job.error_message,
        finished_at=job.finished_at,
        error_detail=job.error_detail,
    )


def _wait_us(row: AttemptRow) -> int:
    return 0 if row.due_at is None else (row.due_at - row.settled_at) // timedelta(microseconds=1)


def _retries(endings: Iterable[_Ending], rows: Sequence[AttemptRow]) -> dict[int, int]:
    """How many ended items needed how many retries, in the life in which they ended."""
    needed: Counter[int] = Counter()
    for job, life, state in endings:
        if state in (State.SUCCEEDED, State.FAILED):
            needed[
                sum(
                    row.told.status is AttemptStatus.RETRYING
                    and "failures" in (row.told.counted or "")
                    for row in rows
                    if row.job == job.no and row.told.life == life
                )
            ] += 1
    return dict(sorted(needed.items()))


def _errors(rows: Sequence[AttemptRow]) -> tuple[Errors, ...]:
    groups: dict[tuple[str, str], list[AttemptRow]] = {}
    for row in rows:
        if row.told.kind is not None:
            groups.setdefault((row.told.kind, row.told.code or ""), []).append(row)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return tuple(
        Errors(*like, len(own), sum(row.told.status is AttemptStatus.FAILED for row in own))
        for like, own in ordered
    )


def _stages(rows: Sequence[AttemptRow]) -> tuple[StageFigures, ...]:
    """In the order in which they were first entered."""
    stages: dict[str, list[AttemptRow]] = {}
    for row in rows:
        stages.setdefault(row.told.stage, []).append(row)
    ordered = sorted(stages.items(), key=lambda one: (min(row.token for row in one[1]), one[0]))
    return tuple(_stage(stage, own) for stage, own in ordered)


def _stage(stage: str, rows: Sequence[AttemptRow]) -> StageFigures:
    statuses = Counter(row.told.status for row in rows)
    good = [row for row in rows if row.told.status is AttemptStatus.SUCCESS]
    took_s = [row.told.elapsed_s for row in good]
    cost_nusd = sum(row.told.cost_nusd for row in rows)
    return StageFigures(
        stage=stage,
        attempts=len(rows),
        succeeded=len(good),
        retried=statuses[AttemptStatus.RETRYING],
        failed=statuses[AttemptStatus.FAILED],
        p50_s=nearest_rank(took_s, 50),
        p95_s=nearest_rank(took_s, 95),
        tokens_in=sum(row.told.tokens_in for row in rows),
        tokens_out=sum(row.told.tokens_out for row in rows),
        cost_nusd=cost_nusd,
        wasted_nusd=cost_nusd - sum(row.told.cost_nusd for row in good),
    )


def _likeness(job: JobRow) -> tuple[str, ...]:
    return (
        job.fingerprint or "",
        job.pipeline,
        job.stage,
        job.error_kind or "",
        job.error_code or "",
    )


def _group(
    like: tuple[str, ...], jobs: Sequence[JobRow], struck: list[tuple[int, datetime, datetime]]
) -> DeadGroup:
    first_at, last_at = min(one[1] for one in struck), max(one[2] for one in struck)
    newest = jobs[-1]
    fingerprint, pipeline, stage, kind, code = like
    return DeadGroup(
        fingerprint,
        pipeline,
        stage,
        kind,
        code,
        len(jobs),
        first_at,
        last_at,
        newest.id,
        newest.error_detail or newest.error_message or "",
    )
