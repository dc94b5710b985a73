"""Judges what operators and the upkeep do: revive, discard, cancel, run now, pause, schedules, duties, pruning.

As the checker, of which this is a part, it knows from the ledger what the store has to answer, and
takes nothing from the tables. Which moments a schedule has is reckoned here anew.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from perdure.model.events import Event, EventName
from perdure.model.jobs import Conflict, Enqueued, Receipt, Record, Revived, Settled, Stale
from perdure.model.limits import PRUNE_BATCH_MAX
from perdure.model.operations import (
    BulkStep,
    Deed,
    LaneScope,
    NewSchedule,
    Pruned,
    Retention,
    Revival,
    Target,
    Tick,
)
from perdure.model.states import State
from tests.sim.ledger import Duty, JobAccount, ScheduleAccount

if TYPE_CHECKING:
    from tests.sim.checker import Checker

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def period_of(spec: str) -> timedelta:
    """The period behind the words that the store keeps; schedules here are in whole seconds."""
    words = spec.removeprefix("every ")
    seconds = 0
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        head, found, tail = words.partition(unit)
        if found:
            seconds, words = seconds + int(head) * size, tail
    assert not words, spec
    return timedelta(seconds=seconds)


class Deeds:
    """The judge of the control side."""

    def __init__(self, checker: "Checker") -> None:
        self._checker = checker
        self._ledger = checker.ledger
        self._world = checker.world
        self._read_at: dict[str, datetime] = {}  # when each speaker last asked for the time

    def closed(self, pipeline: str, run: int | None = None) -> bool:
        """Whether the lanes of a pipeline, in a run or outside of all, are closed now."""
        line = self._checker.catalogue.pipeline(pipeline)
        assert line is not None
        ours = {(LaneScope.PIPELINE, pipeline), (LaneScope.QUEUE, line.queue)}
        if run is not None:
            ours.add((LaneScope.RUN, str(run)))
        return bool(ours & self._ledger.paused)

    def told(self, event: Event) -> None:
        """An observer was told of a deed."""
        if event.name not in (EventName.JOB_REVIVED, EventName.JOB_DISCARDED):
            return
        job = self._ledger.by_id[str(event.fields["job_id"])]
        done = job.discards > 0 if event.name is EventName.JOB_DISCARDED else job.life > 1
        if not done and not job.again:
            self._checker.broken("E2", f"{event.name} was told of #{job.no}")

    # -- operators -----------------------------------------------------------------------

    def _revive(
        self,
        answers: list[Revived],
        chosen: Sequence[Revival],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> None:
        if step is not None and not self._checker.letters.takes(step, chosen, answers):
            return
        pairs = zip(chosen, answers, strict=True)
        for one, answer in sorted(pairs, key=lambda pair: pair[0].no):
            self._revive_one(one, answer)
        if step is not None:
            self._checker.letters.taken(step, answers)

    def _revive_one(self, one: Revival, answer: Revived) -> None:
        job = self._ledger.jobs[one.no]
        failed = self._checker.runs.may_live(job, one.redrive_run)
        if isinstance(answer, Conflict):
            self._conflict(job, one, answer)
            return
        self._guarded(job, one.token, answer, "a new life", due=failed)
        if not isinstance(answer, Receipt):
            return
        rivals = self._ledger.rivals(job)
        if rivals:
            self._checker.broken("E12", f"#{job.no} lives again beside #{rivals[0].no}: {job.key}")
        twice = self._ledger.driven(job, one.redrive_run)
        if twice:
            self._checker.broken(
                "E12",
                f"run {one.redrive_run} drives {job.key} again, #{job.no} after #{twice[0].no}",
            )
        for stage in one.forgotten:
            job.done.pop(stage, None)
        if one.payload_json is not None:
            if job.done or one.input_from is not None:
                self._checker.broken("S14", f"#{job.no} has another payload and old results")
            job.payloads[job.life], job.payload_json = job.payload_json, one.payload_json
            self._world.seen["payloads replaced"] += 1
        if one.input_from is not None and one.input_from not in job.done:
            self._checker.broken("S13", f"#{job.no} is given {one.input_from}, not done")
        given = one.input_from and job.done[one.input_from]
        job.lane = one.lane
        self.revived(job, one.stage, given or job.payload_json, one.redrive_run)
        self._checker.runs.check_lane(job, one.lane, f"a new life of #{job.no}")

    def _conflict(self, job: JobAccount, one: Revival, answer: Conflict) -> None:
        """A dead letter stays one because of another job with its key, which lives or was driven in that run."""
        living = self._ledger.rivals(job)
        found = living if answer.alive else self._ledger.driven(job, one.redrive_run)
        rivals = {other.id for other in found} if answer.alive or not living else set()
        if answer.with_id not in rivals or one.token != job.token:
            self._checker.broken("E12", f"#{job.no} conflicts with {answer.with_id}: {rivals}")
        how = "is alive" if answer.alive else "was driven in the same run"
        self._world.seen[f"dead letters whose key {how}"] += 1

    def revived(
        self, job: JobAccount, stage: str, given_json: str, redrive_run: int | None = None
    ) -> None:
        """A job begins anew, perhaps in another run."""
        self._checker.runs.came_back(job, redrive_run)
        job.revive(stage, given_json, self._world.now_us)
        self._checker.moved_us = self._world.now_us
        self._world.seen["lives begun anew"] += 1

    def _discard(
        self,
        answers: list[Settled],
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> None:
        if step is not None and not self._checker.letters.takes(step, chosen, answers):
            return
        for one, answer in zip(chosen, answers, strict=True):
            job = self._ledger.jobs[one.no]
            dead = job.state is State.FAILED and job.discarded_us is None and not job.pruned
            self._guarded(job, one.token, answer, "a discard", due=dead)
            if isinstance(answer, Receipt):
                job.discarded_us, job.token = self._world.now_us, job.token + 1
                job.discards += 1
                self._world.seen["dead letters discarded"] += 1
        if step is not None:
            self._checker.letters.taken(step, answers)

    def _cancel(
        self,
        answers: list[Settled],
        records: Sequence[Record],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> None:
        if step is not None and not self._checker.letters.takes(step, records, answers):
            return
        for record, answer in zip(records, answers, strict=True):
            self._checker.settle(record, answer, None, asked=False)
        if step is not None:
            self._checker.letters.taken(step, answers)

    def _run_now(
        self,
        answers: list[Settled],
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> None:
        if step is not None and not self._checker.letters.takes(step, chosen, answers):
            return
        now_us = self._world.now_us
        for one, answer in zip(chosen, answers, strict=True):
            job = self._ledger.jobs[one.no]
            waits = job.state is State.QUEUED and not job.pruned
            ready = isinstance(answer, Stale) and job.due_us <= now_us  # it may have been promoted
            self._guarded(job, one.token, answer, "a run now", due=waits and not ready)
            if not isinstance(answer, Receipt):
                continue
            if now_us < job.told_us:
                self._checker.broken("S9", f"#{job.no} is run now, its upstream wants it to wait")
            sooner_us = max(0, job.order_us - now_us)
            job.token, job.due_us, job.order_us = job.token + 1, now_us, job.order_us - sooner_us
            if job.deadline_us is not None:
                job.deadline_us -= sooner_us
            self._checker.moved_us = now_us
            self._world.seen["jobs run now"] += 1
        if step is not None:
            self._checker.letters.taken(step, answers)

    def _guarded(
        self, job: JobAccount, token: int, answer: Settled | Revived, what: str, *, due: bool
    ) -> None:
        """A deed on a job is done if the job is as it was seen, and only then."""
        right = due and token == job.token
        if isinstance(answer, Receipt) and token != job.token:
            self._checker.broken("S3", f"{what} of #{job.no}/{token}: its token is {job.token}")
        if isinstance(answer, Receipt) and not due:
            self._checker.broken("S2", f"{what} of #{job.no}/{token}: it is {job.state.value}")
        if isinstance(answer, Stale) and right:
            self._checker.broken("S3", f"{what} of #{job.no}/{token} was refused for nothing")
        self._world.seen["deeds that came too late"] += isinstance(answer, Stale)

    def _pause(self, done: bool, scope: LaneScope, name: str, deed: Deed) -> None:
        if done == ((scope, name) in self._ledger.paused):
            self._checker.broken("E5", f"the pause of {scope} {name} was news: {done}")
        self._ledger.paused.add((scope, name))

    def _resume(self, done: bool, scope: LaneScope, name: str, deed: Deed) -> None:
        if done != ((scope, name) in self._ledger.paused):
            self._checker.broken("E5", f"the end of the pause of {scope} {name} was news: {done}")
        self._ledger.paused.discard((scope, name))

    # -- schedules -----------------------------------------------------------------------

    def _put_schedule(self, _: None, schedule: NewSchedule) -> None:
        known = self._ledger.schedules.get(schedule.name)
        if known is not None and known.spec == schedule.spec:
            known.pipeline, known.payload_json = schedule.pipeline, schedule.payload_json
            return
        self._ledger.schedules[schedule.name] = ScheduleAccount(
            schedule.name, schedule.pipeline, schedule.spec, schedule.payload_json, schedule.next_at
        )

    def _drop_schedule(self, done: bool, name: str) -> None:
        if done != (self._ledger.schedules.pop(name, None) is not None):
            self._checker.broken("E6", f"the end of schedule {name} was news: {done}")

    def _now(self, answer: datetime) -> None:
        self._read_at[self._checker.speaker] = answer

    def _tick(self, answer: Enqueued | None, tick: Tick) -> None:
        row = self._ledger.schedules.get(tick.schedule)
        stands = row is not None and row.next_at == tick.due_at
        what = f"the tick of {tick.schedule} for {tick.due_at}"
        if answer is None:
            if stands:
                self._checker.broken("E6", f"{what} was refused, and the schedule stands there")
            self._world.seen["ticks that came second"] += 1
            return
        if row is None or not stands:
            self._checker.broken("E6", f"{what} was accepted; it stands at {row and row.next_at}")
        assert row is not None
        moment = self._moment(row, tick, what)
        self._made(row.name, moment, tick, answer)
        missed = (moment - tick.due_at) // period_of(row.spec)
        self._world.seen["moments missed and made up for by one job"] += missed
        self._world.seen["ticks"] += 1
        row.next_at, row.ticked_us = tick.next_at, self._world.now_us

    def _made(self, name: str, moment: datetime, tick: Tick, answer: Enqueued) -> None:
        """A moment makes one job; a schedule that was dropped and put again finds it by its key."""
        first = self._ledger.moments.setdefault((name, moment), answer.id)
        if first != answer.id or answer.created != (answer.id == tick.job.id):
            self._checker.broken("E6", f"{moment} of {name} has made {first}, and now {answer}")
        if answer.created:
            self._checker.accepted_new(tick.job, answer)
        else:
            self._world.seen["moments that had their job already"] += 1

    def _moment(self, row: ScheduleAccount, tick: Tick, what: str) -> datetime:
        """The moment whose job this is: one that has come, and the last before the next."""
        now, period = self._world.clock.now(), period_of(row.spec)
        moment = tick.next_at - period
        if (moment - _EPOCH) % period:
            self._checker.broken("E6", f"{what}: {moment} is no moment of {row.spec!r}")
        if not tick.due_at <= moment <= now:
            self._checker.broken("E6", f"{what}: {moment} is not over, or over since long ago")
        read_at = self._read_at.get(self._checker.speaker, moment)
        if tick.next_at <= read_at:
            self._checker.broken("E6", f"{what}: {tick.next_at} had come as well at {read_at}")
        key = f"{row.name} at {moment.isoformat()}"
        if (tick.job.key, tick.job.payload_json) != (key, row.payload_json):
            self._checker.broken("E6", f"{what}: its job is {tick.job.key!r}, not {key!r}")
        return moment

    # -- duties and pruning --------------------------------------------------------------

    def _take_duty(self, done: bool, name: str, *, worker: int, ttl_s: float) -> None:
        held, now_us = self._ledger.duties.get(name), self._world.now_us
        alive = self._ledger.workers[worker].death is None
        free = (
            held is None
            or held.until_us <= now_us
            or held.worker == worker
            or self._ledger.workers[held.worker].death is not None
        )
        if done != (free and alive):
            self._checker.broken("E7", f"worker {worker} has {name!r}: {done}; held: {held}")
        if not done:
            self._world.seen["duties that another has"] += 1
            return
        ttl_us = round(ttl_s * 1e6)
        taken = held is None or held.worker != worker
        self._world.seen["duties that changed hands"] += taken and held is not None
        if held is None or taken or (held.until_us - now_us) * 2 < ttl_us:
            self._ledger.duties[name] = Duty(worker, now_us + ttl_us)

    def _prune(self, answer: Pruned, retention: Retention, *, limit: int, after: int = 0) -> None:
        present = [one for no, one in self._ledger.jobs.items() if no > after and not one.pruned]
        looked = sorted(present, key=lambda one: one.no)[: min(limit, PRUNE_BATCH_MAX)]
        gone = [one for one in looked if self._over(one, retention) and not self._needed(one)]
        if answer.jobs != len(gone):
            self._checker.broken(
                "S1", f"{answer.jobs} jobs were let go, {[one.no for one in gone]} may go"
            )
        for one in gone:
            self._ledger.forget(one)
        self._world.seen["jobs pruned"] += len(gone)

    def _prune_workers(self, gone: int, kept_s: float, *, limit: int) -> None:
        self._world.seen["workers forgotten"] += gone

    def _needed(self, job: JobAccount) -> bool:
        """Whether a run that is not over has this job."""
        runs = [self._ledger.runs.get(no or 0) for no in (job.run, job.redrive_run)]
        return any(run is not None and not run.ended for run in runs)

    def _over(self, job: JobAccount, kept: Retention) -> bool:
        """Whether a job has been over for longer than its kind is kept."""
        ended_us, kept_s = (
            job.finished_us,
            {
                State.SUCCEEDED: kept.succeeded_s,
                State.CANCELLED: kept.cancelled_s,
                State.FAILED: kept.failed_s,
            }.get(job.state),
        )
        if job.state is State.FAILED and job.discarded_us is not None:
            ended_us, kept_s = job.discarded_us, kept.discarded_s
        if ended_us is None or kept_s is None:
            return False
        return ended_us < self._world.now_us - round(kept_s * 1e6)
