"""Acts on runs, dead letters and bulk operations, on several stores in step."""

from datetime import timedelta
from random import Random
from typing import Any

from perdure.model.filters import JobFilter
from perdure.model.nouns import replace
from perdure.model.operations import (
    BulkChange,
    BulkPhase,
    BulkStatus,
    BulkStep,
    BulkVerb,
    BulkView,
    NewBulk,
    Refusal,
    Revival,
    Target,
)
from perdure.model.runs import NewRun, RunChange, RunCounts, RunStatus, RunView
from perdure.model.states import State
from perdure.model.views import JobView
from perdure.testing.store_contract.fresh_store import uuid_of
from tests.stores.acting import LANES, Acting
from tests.stores.operating import DEED, STALE
from tests.stores.sides import Side

STATUSES = [*RunStatus, RunStatus.RUNNING, RunStatus.RUNNING]
SEALED = [None, None, True, False]
OWNERS = [None, None, None, "ann", ""]


class Batching(Acting):
    """What people, and the engine for them, do to many jobs."""

    # -- dead letters ------------------------------------------------------------------------

    def act_deal_with_dead_letters(self, chance: Random) -> None:
        """Revive or discard jobs, alone or in a step; some are not dead, or were seen long ago."""
        seen = self.sides.first.reader.jobs(JobFilter(states=(State.FAILED,)))
        known = [job.id for job in seen] or [job.id for job in self.jobs]
        if not known:
            return
        more = [job.id for job in self.jobs[-3:]]
        ids = list(dict.fromkeys(chance.choices(known + more, k=chance.randint(1, 4))))
        off_by = chance.choice(STALE)
        bulk, stale = chance.choice([None, *self.bulks]), chance.choice(STALE)
        below = next((job.id for job in _seen(self.sides.first, ids)), None)
        if chance.randint(0, 2) == 0:
            self.sides.each(
                "discard",
                lambda side: side.control.discard(
                    [Target(job.no, job.id, job.token + off_by) for job in _seen(side, ids)],
                    DEED,
                    step=self._step(side, bulk, below, stale),
                ),
            )
            return
        children = [name for name in self.runs if name.startswith("child")]
        driver = chance.choice([None, *children])
        again, owner = chance.random() < 0.5, chance.choice(OWNERS)
        payload = chance.choice([None, None, '{"n":"corrected"}'])
        self.sides.each(
            "revive",
            lambda side: side.control.revive(
                [
                    replace(self._revival(side, job, off_by, driver, again), payload_json=payload)
                    for job in _seen(side, ids)
                ],
                DEED,
                owner=owner,
                step=self._step(side, bulk, below, stale),
            ),
        )

    def act_run_now(self, chance: Random) -> None:
        """Jobs that wait for their time, and others; some were seen long ago, some are another owner's."""
        ids = [job.id for job in self.sides.first.reader.jobs(JobFilter(waiting=True))][:3]
        ids += [job.id for job in chance.sample(self.jobs, min(2, len(self.jobs)))]
        off_by, owner = chance.choice(STALE), chance.choice(OWNERS)
        bulk, stale = chance.choice([None, *self.bulks]), chance.choice(STALE)
        below = next((job.id for job in _seen(self.sides.first, ids)), None)
        self.sides.each(
            "run now",
            lambda side: side.control.run_now(
                [Target(job.no, job.id, job.token + off_by) for job in _seen(side, ids)],
                DEED,
                owner=owner,
                step=self._step(side, bulk, below, stale),
            ),
        )

    def _step(self, side: Side, bulk: str | None, below: str | None, stale: int) -> BulkStep | None:
        """A step of a bulk operation to where one job is, refusing that one as well."""
        if bulk is None or below is None:
            return None
        known = _bulk(side, bulk)
        seen = 10**9 if stale else known.cursor
        no = side.no("job", below)
        return BulkStep(known.no, seen, no, refusals=(Refusal(no, "by chance"),), why="on the way")

    def _revival(
        self, side: Side, job: JobView, off_by: int, driver: str | None, again: bool
    ) -> Revival:
        one = Revival(job.no, job.id, job.token + off_by, job.stage, job.lane, job.input_from)
        one = replace(one, deadline_s=45.5 if again else job.policies_s)
        if driver is not None and job.run != side.no("run", driver):
            one = replace(one, redrive_run=side.no("run", driver))
        if again and job.stage == "two":
            lane = side.no("lane", "one")
            one = replace(one, stage="one", lane=lane, input_from=None, forgotten=("one",))
        return one

    # -- runs --------------------------------------------------------------------------------

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
        """Some changes come from an old sight, and some would finish too early."""
        if not self.runs:
            return
        name, status = chance.choice(self.runs), chance.choice(STATUSES)
        stale, sealed = chance.choice(STALE), chance.choice(SEALED)
        counted = chance.choice(["none", "seen", "wrong"])
        settings = chance.choice([None, None, '{"n":1}'])
        seen_sealed = chance.choice([None, None, None, False, True])

        def call(side: Side) -> Any:
            run = _run(side, name)
            counts = {"none": None, "seen": run.counts, "wrong": RunCounts(total=777)}[counted]
            seen = RunStatus.CANCELLED if stale else run.status
            change = RunChange(
                run.no, seen, status, f"now {status}", counts, sealed, settings, seen_sealed
            )
            return side.control.change_run(change, DEED)

        self.sides.each("change run", call)

    def act_finish_run(self, chance: Random) -> None:
        """A run that nothing is open in any more may finish, if it is sealed."""
        if not self.runs:
            return
        name = chance.choice(self.runs)
        status = chance.choice([RunStatus.COMPLETED, RunStatus.FAILED])
        self.sides.each("seal", lambda side: side.control.seal_run(side.no("run", name)))

        def call(side: Side) -> Any:
            run = _run(side, name)
            change = RunChange(run.no, run.status, status, counts=run.counts)
            return side.control.change_run(change, DEED)

        self.sides.each("finish run", call)

    def act_note_check(self, chance: Random) -> None:
        if self.runs:
            name, checked = chance.choice(self.runs), chance.randint(0, 9)
            self.sides.each(
                "note check", lambda side: side.control.note_check(side.no("run", name), checked)
            )

    def act_note_feeding(self, chance: Random) -> None:
        if self.runs:
            name, by = chance.choice(self.runs), chance.choice("ab")
            ended = chance.random() < 0.3
            self.sides.each(
                "note feeding",
                lambda side: side.control.note_feeding(side.no("run", name), by, ended=ended),
            )

    def act_report(self, chance: Random) -> None:
        """All that is told of a run and of its items."""
        if not self.runs:
            return
        name, redriven = chance.choice(self.runs), chance.random() < 0.4
        limit, since = (
            chance.randint(1, 5),
            self.clock.now() - timedelta(seconds=chance.choice([0, 60, 10**6])),
        )
        after = chance.choice([None, None, None, *(job.id for job in _jobs(self))])

        def items(side: Side) -> Any:
            above = side.maybe_no("job", after) or 0
            where: Any = {"after": above, "redriven": redriven, "limit": limit}
            run = side.no("run", name)
            return (
                side.reader.items(run, **where),
                side.reader.items_ended(run, since=since, **where),
                side.reader.run_figures(run),
                side.reader.audit(run=run),
            )

        self.sides.each("report", items)
        live, of = chance.random() < 0.5, chance.choice([None, name])
        self.sides.each("runs", lambda side: side.reader.runs(live=live, name=of, limit=limit))

        def rivals(side: Side) -> Any:
            found = side.reader.rivals([job.no for job in side.reader.jobs()])
            return {str(side.name_of("job", no)): id for no, id in found.items()}

        self.sides.each("rivals", rivals)

    # -- bulk operations ---------------------------------------------------------------------

    def act_begin_bulk(self, chance: Random) -> None:
        id, run = uuid_of(chance.randint(1, 2), 0xABC), chance.choice([None, *self.runs])
        phase = chance.choice(list(BulkPhase))
        # The audit takes a re-drive at its word that its run has what it did, and the steps here do as they like.
        verb = BulkVerb.REDRIVE if run is None else BulkVerb.DISCARD

        def call(side: Side) -> Any:
            new = NewBulk(id, verb, "{}", DEED, '{"per_s":5}', side.maybe_no("run", run), phase)
            made = side.control.add_bulk(new)
            side.learn("bulk", id, made.no)
            return made

        self.sides.each("begin bulk", call)
        self.bulks = sorted({*self.bulks, id})

    def act_step_bulk(self, chance: Random) -> None:
        if not self.bulks:
            return
        id, status = chance.choice(self.bulks), chance.choice(list(BulkStatus))
        below, stale = chance.choice([None, *(job.id for job in _jobs(self))]), chance.choice(STALE)
        left = [job.id for job in _jobs(self)][: chance.randint(0, 2)]
        phase = chance.choice(list(BulkPhase))

        def call(side: Side) -> Any:
            known = _bulk(side, id)
            seen = 10**9 if stale else known.cursor
            refusals = tuple(Refusal(side.no("job", one), "no source") for one in left)
            step = BulkStep(
                known.no, seen, side.maybe_no("job", below), 1, refusals, status, phase, "so"
            )
            return side.control.step_bulk(step)

        self.sides.each("step bulk", call)

    def act_change_bulk(self, chance: Random) -> None:
        if not self.bulks:
            return
        id, stale = chance.choice(self.bulks), chance.choice(STALE)
        status = chance.choice([*BulkStatus, BulkStatus.RUNNING])

        def call(side: Side) -> Any:
            known = _bulk(side, id)
            seen = BulkStatus.DONE if stale else known.status
            return side.control.change_bulk(BulkChange(known.no, seen, status, "by hand"), DEED)

        self.sides.each("change bulk", call)


def _bulk(side: Side, id: str) -> BulkView:
    (known,) = side.reader.bulks(id=id)
    return known


def _run(side: Side, name: str) -> RunView:
    (run,) = side.reader.runs(no=side.no("run", name))
    return run


def _seen(side: Side, ids: list[str]) -> list[JobView]:
    return [job for id in ids if (job := side.reader.job(id)) is not None]


def _jobs(acting: Acting) -> list[JobView]:
    return acting.sides.first.reader.jobs(limit=5)
