"""Workers and what they hold, in the reference model: leases, death, and what is lost, expired or overrun."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from perdure.model.changes import ChangeKind
from perdure.model.jobs import Claim, Expired, LostClaim, Overrun
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.model.workers import NewWorker
from tests.stores.reference.rows import JobRow, WorkerRow
from tests.stores.reference.tables import Tables, length


class Workforce:
    """The part of the `Store` port that is about workers."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add_worker(self, worker: NewWorker) -> int:
        """Alive, and steady from now."""
        with self._tables.written(self) as now:
            for row in self._tables.workers.values():
                if row.boot == worker.boot:  # this very call, sent again after its answer was lost
                    return row.no
            no = self._tables.next_no("workers")
            self._tables.workers[no] = WorkerRow(
                no, worker.boot, worker.name, worker.role, length(worker.ttl_s), now, now, now
            )
            self._tables.tell(ChangeKind.WORKER_CHANGED, now, no, worker.boot, state="alive")
            return no

    def beat(self, workers: Sequence[int]) -> frozenset[int]:
        """After a gap of more than half a lease a worker has to be steady anew."""
        with self._tables.written(self) as now:
            heard = frozenset(no for no in workers if self._tables.is_alive(no))
            for no in heard:
                row = self._tables.workers[no]
                gap = now - row.beat_at > row.ttl // 2
                steady_at = now if gap else row.steady_at
                self._tables.workers[no] = replace(row, beat_at=now, steady_at=steady_at)
            return heard

    def end_worker(self, worker: int, death: Death) -> bool:
        """Once, and for good."""
        with self._tables.written(self) as now:
            return self._bury(worker, death, now)

    def _bury(self, worker: int, death: Death, now: datetime) -> bool:
        if not self._tables.is_alive(worker):
            return False
        row = self._tables.workers[worker]
        self._tables.workers[worker] = replace(row, dead_at=now, death=death)
        self._tables.tell(ChangeKind.WORKER_CHANGED, now, worker, row.boot, state="dead")
        return True

    def mark_dead(self, *, by: int) -> tuple[int, ...]:
        """The judge must be alive, just heard, and heard without a gap for the longer of both leases."""
        with self._tables.written(self) as now:
            judge = self._tables.workers.get(by)
            dead = [
                one.no
                for one in self._tables.workers.values()
                if judge is not None and _is_silent(one, judge, now)
            ]
            for no in dead:
                self._bury(no, Death("silent"), now)
            held_by = {job.worker for job in self._tables.jobs.values()}
            for no, row in self._tables.workers.items():
                if row.dead_at is not None and row.settled_at is None and no not in held_by:
                    self._tables.workers[no] = replace(row, settled_at=now)
            for place in [key for key in self._tables.samples if not self._tables.is_alive(key[1])]:
                del self._tables.samples[place]
            return tuple(dead)

    def lost_claims(self, *, limit: int, lanes: Sequence[int] | None = None) -> list[LostClaim]:
        """What the dead hold: the first dead worker's first jobs first, then in the order of claiming."""
        with self._tables.read() as now:
            found = [
                job
                for job in self._tables.jobs.values()
                if job.worker is not None
                and not self._tables.is_alive(job.worker)
                and (lanes is None or job.lane in lanes)
            ]
            found.sort(key=lambda job: (job.worker, job.no))
            workers = {job.no: job.worker or 0 for job in found}
            return [
                LostClaim(
                    claim,
                    workers[claim.no],
                    self._death(workers[claim.no]),
                    now,
                    self._tables.jobs[claim.no].on_lost,
                )
                for claim in self._tables.claims(found[:limit])
            ]

    def _death(self, worker: int) -> Death:
        return self._tables.workers[worker].death or Death("silent")

    def expired_jobs(self, *, limit: int) -> list[Expired]:
        """Whoever waits past its deadline, the longest past first."""
        with self._tables.read() as now:
            found = [
                (job.deadline_at, job)
                for job in self._tables.jobs.values()
                if job.state is State.QUEUED and job.deadline_at and job.deadline_at <= now
            ]
            found.sort(key=lambda one: (one[0], one[1].no))
            return [
                Expired(
                    job.no,
                    job.id,
                    job.token,
                    job.lane,
                    job.pipeline,
                    job.stage,
                    job.counters,
                    job.past,
                    job.isolation,
                    job.run,
                    job.request_id or job.id,
                    job.owner,
                )
                for _, job in found[:limit]
            ]

    def overrun(self, limits_s: Mapping[int, float], *, limit: int) -> list[Overrun]:
        """What the living hold for too long; what the dead hold is lost."""
        with self._tables.read() as now:
            found = [
                job
                for job in sorted(self._tables.jobs.values(), key=lambda job: job.no)
                if job.worker is not None
                and self._tables.is_alive(job.worker)
                and job.lane in limits_s
                and self._hard_at(job, limits_s[job.lane]) < now
            ]
            return [
                Overrun(claim, job.worker or 0, now, job.on_lost)
                for claim in self._tables.claims(found[:limit])
                for job in [self._tables.jobs[claim.no]]
            ]

    @staticmethod
    def _hard_at(job: JobRow, limit_s: float) -> datetime:
        assert job.claimed_at is not None
        return job.hard_at or job.claimed_at + length(limit_s)

    def tokens_held(self, worker: int) -> dict[int, int]:
        """Numbers and tokens."""
        with self._tables.read():
            return {job.no: job.token for job in self._held(worker)}

    def claims_held(self, worker: int) -> list[Claim]:
        """The same, whole."""
        with self._tables.read():
            return self._tables.claims(self._held(worker))

    def _held(self, worker: int) -> list[JobRow]:
        return [job for job in self._tables.jobs.values() if job.worker == worker]

    def suspects(self, lanes: Sequence[int] | None = None) -> frozenset[int]:
        """Levels above 0 at which a queued job is due in an open lane."""
        with self._tables.read() as now:
            return frozenset(
                job.isolation
                for job in self._tables.jobs.values()
                if job.isolation > 0
                and job.state is State.QUEUED
                and job.due_at <= now
                and (lanes is None or job.lane in lanes)
                and self._tables.is_open(job.lane)
            )


def _is_silent(one: WorkerRow, judge: WorkerRow, now: datetime) -> bool:
    lease = max(judge.ttl, one.ttl)
    return (
        one.dead_at is None
        and one.no != judge.no
        and judge.dead_at is None
        and judge.beat_at + judge.ttl // 2 >= now
        and judge.steady_at + lease <= now
        and one.beat_at + lease < now
    )
