"""Acts of operators and of the upkeep, on several stores in step."""

from datetime import timedelta
from random import Random
from typing import Any

from perdure.model.filters import JobFilter
from perdure.model.gates import GateChange, GateState
from perdure.model.operations import (
    BulkStatus,
    BulkStep,
    BulkVerb,
    Deed,
    LaneScope,
    NewBulk,
    NewSchedule,
    Retention,
    Revival,
    Target,
    Tick,
)
from perdure.model.runs import NewRun, RunStatus
from perdure.model.states import FailedReason, State
from perdure.model.views import JobView
from perdure.testing.contract.kit import uuid_of
from perdure.testing.nouns import replace
from tests.stores.acting import LANES, Acting
from tests.stores.sides import Side

DEED = Deed("ann", "to see what happens")
STALE = [0, 0, 0, 1]
GATES = [*GateState, GateState.FLOWING, GateState.FLOWING]
STATUSES = [*RunStatus, RunStatus.RUNNING, RunStatus.RUNNING]


class Operating(Acting):
    """What people and the upkeep do."""

    def act_deal_with_dead_letters(self, chance: Random) -> None:
        """Revive or discard jobs; some of them are not dead, or were seen long ago."""
        seen = self.sides.first.reader.jobs(JobFilter(states=(State.FAILED,)))
        known = [job.id for job in seen] or [job.id for job in self.jobs]
        if not known:
            return
        more = [job.id for job in self.jobs[-3:]]
        ids = list(dict.fromkeys(chance.choices(known + more, k=chance.randint(1, 3))))
        off_by = chance.choice(STALE)
        if chance.randint(0, 2) == 0:
            self.sides.each("discard", lambda side: self._discard(side, ids, off_by))
            return
        children = [name for name in self.runs if name.startswith("child")]
        driver = chance.choice([None, *children])
        again = chance.random() < 0.5
        self.sides.each(
            "revive",
            lambda side: side.control.revive(
                [self._revival(side, job, off_by, driver, again) for job in _seen(side, ids)], DEED
            ),
        )

    def _discard(self, side: Side, ids: list[str], off_by: int) -> Any:
        targets = [Target(job.no, job.id, job.token + off_by) for job in _seen(side, ids)]
        return side.control.discard(targets, DEED)

    def _revival(
        self, side: Side, job: JobView, off_by: int, driver: str | None, again: bool
    ) -> Revival:
        one = Revival(job.no, job.id, job.token + off_by, job.stage, job.lane, job.input_from)
        if driver is not None and job.run != side.no("run", driver):
            one = replace(one, redrive_run=side.no("run", driver))
        if again and job.stage == "two":
            lane = side.no("lane", "one")
            one = replace(one, stage="one", lane=lane, input_from=None, forgotten=("one",))
        return one

    def act_list(self, chance: Random) -> None:
        """A filter, on both its sides: the listing and the preview."""
        chosen = {
            "states": tuple(chance.choices(list(State), k=chance.randint(0, 3))),
            "pipeline": chance.choice([None, None, "p", "p2"]),
            "stage": chance.choice([None, None, "two"]),
            "queue": chance.choice([None, None, "q2"]),
            "owner": chance.choice([None, None, "ann"]),
            "reason": chance.choice([None, None, None, FailedReason.FATAL]),
            "text": chance.choice([None, None, "THE", "%"]),
            "discarded": chance.choice([None, None, True, False]),
        }
        run = chance.choice([None, None, *self.runs])
        limit = chance.randint(1, 5)

        def wanted(side: Side) -> JobFilter:
            return JobFilter(run=side.maybe_no("run", run), **chosen)

        self.sides.each("list", lambda side: side.reader.jobs(wanted(side), limit=limit))
        self.sides.each("preview", lambda side: side.reader.preview(wanted(side), count_max=limit))

    def act_pause_or_resume(self, chance: Random) -> None:
        scope = chance.choice(list(LaneScope))
        names = {LaneScope.QUEUE: ["q", "q2"], LaneScope.PIPELINE: ["p", "p2"]}.get(
            scope, self.runs
        )
        if not names:
            return
        name, resume = chance.choice(names), chance.randint(0, 2) > 0

        def call(side: Side) -> bool:
            own = str(side.no("run", name)) if scope is LaneScope.RUN else name
            change = side.control.resume if resume else side.control.pause
            return change(scope, own, DEED)

        self.sides.each("resume" if resume else "pause", call)

    def act_change_gate(self, chance: Random) -> None:
        name, state, off_by = (
            chance.choice(["vendor", "account"]),
            chance.choice(GATES),
            chance.choice(STALE),
        )
        held_for_s = chance.choice([None, 2.5])
        parent = "account" if name == "vendor" else None

        def call(side: Side) -> Any:
            known = side.reader.gate(name)
            generation = (0 if known is None else known.generation) + off_by
            change = GateChange(name, generation, state, parent, held_for_s)
            return side.control.change_gate(change, DEED)

        self.sides.each("change gate", call)

    def act_begin_run(self, chance: Random) -> None:
        kind = "child" if self.runs and chance.random() < 0.5 else "run"
        name = f"{kind} {chance.randint(0, 1)}"
        parent = self.runs[0] if kind == "child" else None
        id = self.new_name()

        def call(side: Side) -> Any:
            new = NewRun(id, "", "p", name, parent=side.maybe_no("run", parent))
            made = side.control.add_run(new)
            side.learn("run", name, made.no)
            return made

        self.sides.each("begin run", call)
        if name not in self.runs:
            self.runs.append(name)
            self.add_lane(f"one of {name}", LANES["one"], name)

    def act_change_run(self, chance: Random) -> None:
        if not self.runs:
            return
        name, status = chance.choice(self.runs), chance.choice(STATUSES)
        stale = chance.choice(STALE)

        def call(side: Side) -> Any:
            no = side.no("run", name)
            (run,) = [one for one in side.reader.runs() if one.no == no]
            seen = RunStatus.CANCELLED if stale else run.status
            return side.control.change_run(no, seen=seen, status=status, deed=DEED)

        self.sides.each("change run", call)

    def act_prune(self, chance: Random) -> None:
        ages = [chance.choice([None, 0.0, 10.0]) for _ in range(4)]
        limit, after = chance.randint(1, 4), None
        for _ in range(chance.randint(1, 4)):
            step = self._pruned(ages, limit, after)
            if step.go_on_after is None:
                return
            after = str(self.sides.first.name_of("job", step.go_on_after))

    def _pruned(self, ages: list[float | None], limit: int, after: str | None) -> Any:
        def call(side: Side) -> Any:
            start = side.maybe_no("job", after) or 0
            return side.control.prune(Retention(*ages), limit=limit, after=start)

        return self.first(self.sides.each("prune", call))

    def act_prune_workers(self, chance: Random) -> None:
        kept_s, limit = chance.choice([0.0, 10.0]), chance.randint(1, 4)
        self.sides.each(
            "prune workers", lambda side: side.control.prune_workers(kept_s, limit=limit)
        )

    def act_schedule(self, chance: Random) -> None:
        name = chance.choice(["s1", "s2"])
        if chance.randint(0, 3) == 0:
            self.sides.each("drop", lambda side: side.control.drop_schedule(name))
            return
        spec = chance.choice(["every 5 s", "every 60 s"])
        new = NewSchedule(name, "p", spec, "[1]", self.clock.now() + timedelta(seconds=5))
        self.sides.each("schedule", lambda side: side.control.put_schedule(new))

    def act_tick(self, chance: Random) -> None:
        known = self.sides.first.reader.schedules()
        if not known:
            return
        one = chance.choice(known)
        due_at = one.next_at + timedelta(seconds=chance.choice(STALE))
        job = self.a_job(chance, plain=True)

        def call(side: Side) -> Any:
            tick = Tick(one.name, due_at, due_at + timedelta(seconds=5), job.on(side))
            made = side.control.tick(tick)
            if made is not None:
                side.learn("job", made.id, made.no)
            return made

        made = self.first(self.sides.each("tick", call))
        if made is not None and made.created:
            self.jobs.append(job)
            self.promises.accepted([made.id])

    def act_take_duty(self, chance: Random) -> None:
        name, worker = chance.choice(["upkeep", "gates"]), self.a_worker(chance)
        ttl_s = chance.choice([0.5, 20.0])
        self.sides.each(
            "duty",
            lambda side: side.control.take_duty(
                name, worker=side.no("worker", worker), ttl_s=ttl_s
            ),
        )

    def act_begin_bulk(self, chance: Random) -> None:
        id = uuid_of(chance.randint(1, 2), 0xABC)

        def call(side: Side) -> Any:
            made = side.control.add_bulk(NewBulk(id, BulkVerb.REDRIVE, "{}", DEED))
            side.learn("bulk", id, made.no)
            return made

        self.sides.each("begin bulk", call)
        self.bulks = sorted({*self.bulks, id})

    def act_step_bulk(self, chance: Random) -> None:
        if not self.bulks:
            return
        id, status = chance.choice(self.bulks), chance.choice(list(BulkStatus))
        below, stale = chance.choice([None, *(job.id for job in _jobs(self))]), chance.choice(STALE)

        def call(side: Side) -> Any:
            (known,) = [one for one in side.reader.bulks() if one.id == id]
            seen = 10**9 if stale else known.cursor
            cursor = side.maybe_no("job", below)
            return side.control.step_bulk(BulkStep(known.no, seen, cursor, 1, 2, status))

        self.sides.each("step bulk", call)


def _seen(side: Side, ids: list[str]) -> list[JobView]:
    return [job for id in ids if (job := side.reader.job(id)) is not None]


def _jobs(acting: Acting) -> list[JobView]:
    return acting.sides.first.reader.jobs(limit=5)
