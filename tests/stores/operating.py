"""Acts of operators and of the upkeep, on several stores in step."""

from datetime import timedelta
from random import Random
from typing import Any

from perdure.model.filters import JobFilter
from perdure.model.gates import GateChange, GateState
from perdure.model.operations import Deed, LaneScope, NewSchedule, Retention, Tick
from perdure.model.states import FailedReason, State
from tests.stores.acting import Acting
from tests.stores.sides import Side

DEED = Deed("ann", "to see what happens")
STALE = [0, 0, 0, 1]
GATES = [*GateState, GateState.FLOWING, GateState.FLOWING]


class Operating(Acting):
    """What people and the upkeep do."""

    def act_list(self, chance: Random) -> None:
        """A filter, on both its sides: the listing and the preview."""
        chosen = {
            "states": tuple(chance.choices(list(State), k=chance.randint(0, 3))),
            "pipeline": chance.choice([None, None, "p", "p2"]),
            "stage": chance.choice([None, None, "two"]),
            "queue": chance.choice([None, None, "q2"]),
            "owner": chance.choice([None, None, "ann"]),
            "reason": chance.choice([None, None, None, FailedReason.FATAL]),
            "text": chance.choice([None, None, "THE", "%", "HOST"]),
            "kind": chance.choice([None, None, None, "network"]),
            "code": chance.choice([None, None, None, "E1"]),
            "fingerprint": chance.choice([None, None, None, "f1"]),
            "finished_from": chance.choice([None, None, self.clock.now() - timedelta(seconds=30)]),
            "finished_until": chance.choice([None, None, self.clock.now()]),
            "discarded": chance.choice([None, None, True, False]),
            "waiting": chance.choice([None, None, True, False]),
        }
        run = chance.choice([None, None, *self.runs])
        limit = chance.randint(1, 5)

        def wanted(side: Side) -> JobFilter:
            return JobFilter(run=side.maybe_no("run", run), **chosen)

        self.sides.each("list", lambda side: side.reader.jobs(wanted(side), limit=limit))
        since = self.clock.now() - timedelta(seconds=chance.choice([1, 30]))
        self.sides.each(
            "list by change",
            lambda side: side.reader.jobs_changed(wanted(side), since=since, limit=limit),
        )
        self.sides.each("preview", lambda side: side.reader.preview(wanted(side), count_max=limit))
        self.sides.each("dead groups", lambda side: side.reader.dead_groups(wanted(side)))

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

    def act_prune_captures(self, chance: Random) -> None:
        limit = chance.randint(0, 4)
        self.sides.each("prune captures", lambda side: side.control.prune_captures(limit=limit))

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
