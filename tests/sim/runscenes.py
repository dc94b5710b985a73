"""Histories of runs and dead letters in short words, for the tests of the checker."""

from typing import Any

from perdure.engine.batch.runs import RunSettings, settings_in
from perdure.engine.operate.bulk_settings import BulkSettings
from perdure.model.filters import JobFilter
from perdure.model.jobs import Enqueued, Lane, NewJob, Receipt, Revived
from perdure.model.nouns import replace
from perdure.model.operations import (
    BulkPhase,
    BulkStatus,
    BulkStep,
    BulkVerb,
    BulkView,
    NewBulk,
    Refusal,
    Revival,
)
from perdure.model.outcomes import Outcome
from perdure.model.runs import FINISHED, NewRun, RunChange, RunCounts, RunStatus, RunView
from perdure.model.states import State
from perdure.stores.rows import encode
from tests.sim.scenes import DEED, DONE, FAILED, Scene

RUNNING, COMPLETED, ABORTED = RunStatus.RUNNING, RunStatus.COMPLETED, RunStatus.ABORTED
TERMS = RunSettings(
    failure_budget=0.4, check_every=2, sample_min=2, completed_at=0.5, partial_at=0.2
)


class RunScene(Scene):
    """A run of the two-staged pipeline, its lanes, and short words for what happens to them."""

    def __init__(self, terms: RunSettings = TERMS) -> None:
        super().__init__()
        self.checker.speaker = "watcher"
        self.add_run(1, terms)

    def add_run(self, no: int, terms: RunSettings = TERMS) -> None:
        new = NewRun(f"r{no}", "", "p", f"run{no}", settings_in(terms))
        now = self.world.clock.now()
        made = RunView(
            no,
            new.id,
            "",
            "p",
            new.name,
            RUNNING,
            None,
            new.settings_json,
            now,
            now,
            None,
            RunCounts(),
        )
        self.show("add_run", made, new)
        lanes = {
            Lane("q", "c", "p", stage, run=no): 10 * no + n for n, stage in ((1, "one"), (2, "two"))
        }
        self.show("lanes", lanes, list(lanes))

    def counts(self, no: int) -> RunCounts:
        run = self.checker.ledger.runs.get(no)
        return RunCounts() if run is None else run.counts(self.checker.ledger.jobs)

    def view(self, no: int = 1, **changes: Any) -> RunView:
        """The run as its history has it."""
        run, now = self.checker.ledger.runs[no], self.world.clock.now()
        shown = RunView(
            no,
            run.id,
            "",
            "p",
            run.name,
            run.status,
            None,
            run.settings_json,
            now,
            now,
            now if run.ended else None,
            self.counts(no),
            now if run.sealed else None,
            "",
            run.checked,
            run.kinds(self.checker.ledger.jobs),
            run.fed_by,
            now if run.is_fed else None,
        )
        return replace(shown, **changes)

    def put(self, id: str, no: int = 1, key: str | None = None, lane: int | None = None) -> int:
        job = NewJob(id, "p", 10 * no + 1 if lane is None else lane, "one", "{}", key=key, run=no)
        number = len(self.checker.ledger.jobs) + 1
        self.show("enqueue", [Enqueued(id, number, True)], [job])
        return number

    def item(self, no: int, outcome: Outcome, run: int = 1, **changes: Any) -> None:
        """One attempt of an item, in the lanes of its run."""
        stage = self.checker.ledger.jobs[no].stage
        claim = self.claim(no=no, lane=10 * run + (1 if stage == "one" else 2))
        lane = {"lane": 10 * run + (2 if outcome is DONE else 1)}
        if outcome is DONE and stage == "one":
            changes |= lane
        self.settled(claim, outcome, **changes)

    def dead(self, id: str, no: int = 1, key: str | None = None) -> int:
        """An item that has failed for good."""
        number = self.put(id, no, key)
        for _ in range(2):
            failures = self.checker.ledger.jobs[number].counted("failures")
            claim = self.claim(no=number, lane=10 * no + 1)
            counters = replace(claim.counters, failures=failures)
            self.settled(replace(claim, counters=counters), FAILED)
            self.world.clock.push(60.0)
        return number

    def done(self, id: str, no: int = 1) -> int:
        number = self.put(id, no)
        self.item(number, DONE, no)
        self.item(number, DONE, no)
        return number

    def seal(self, no: int = 1) -> None:
        run = self.checker.ledger.runs[no]
        before, run.sealed = (run.sealed, run.is_fed), True
        run.is_fed = False
        view = self.view(no)
        run.sealed, run.is_fed = before
        self.show("seal_run", view, no)

    def change(self, seen: RunStatus, status: RunStatus, *, no: int = 1, done: bool = True) -> None:
        answer = None
        if done:
            ended = self.world.clock.now() if status in FINISHED else None
            answer = self.view(no, status=status, ended_at=ended)
        self.show("change_run", answer, RunChange(no, seen, status), DEED)

    def look(self, no: int = 1, **changes: Any) -> None:
        self.show("runs", [self.view(no, **changes)], no=no)

    # -- bulk operations -----------------------------------------------------------------

    def bulk(self, settings: BulkSettings | None = None, run: int | None = None) -> None:
        phase = BulkPhase.CANARY if settings and settings.canary else BulkPhase.ALL
        chosen = encode(JobFilter(states=(State.FAILED,), pipeline="p", discarded=False))
        said = encode(settings or BulkSettings())
        new = NewBulk("b", BulkVerb.REDRIVE, chosen, DEED, said, run, phase)
        now = self.world.clock.now()
        view = BulkView(
            1,
            "b",
            new.verb,
            BulkStatus.RUNNING,
            chosen,
            "ann",
            "",
            None,
            0,
            0,
            now,
            now,
            said,
            run,
            phase,
            "",
        )
        self.show("add_bulk", view, new)

    def redrive(
        self, *answers: Revived, seen: int | None = None, refused: tuple[int, ...] = ()
    ) -> None:
        """A step that gives these jobs what they are answered."""
        jobs = self.checker.ledger.jobs
        run = self.checker.ledger.bulks[1].run
        lane = 11 if run is None else 10 * run + 1
        chosen = [Revival(one.no, one.id, one.token, "one", lane, None, (), run) for one in answers]
        nos = [one.no for one in answers] + list(refused)
        assert all(no in jobs for no in nos)
        step = BulkStep(
            1,
            seen,
            min(nos),
            refusals=tuple(Refusal(no, "gone") for no in refused),
            phase=self.checker.ledger.bulks[1].phase,
        )
        self.show("revive", list(answers), chosen, DEED, step=step)

    def lives(self, no: int) -> Receipt:
        job = self.checker.ledger.jobs[no]
        return Receipt(no, job.id, job.token, State.QUEUED, None)

    def stands(self, status: BulkStatus, phase: BulkPhase = BulkPhase.ALL) -> None:
        """A step that moves no cursor."""
        bulk, now = self.checker.ledger.bulks[1], self.world.clock.now()
        step = BulkStep(1, bulk.cursor, bulk.cursor, status=status, phase=phase)
        view = BulkView(
            1,
            "b",
            bulk.verb,
            status,
            "",
            "ann",
            "",
            bulk.cursor,
            len(bulk.done),
            len(bulk.refused),
            now,
            now,
            "",
            bulk.run,
            phase,
            "",
        )
        self.show("step_bulk", view, step)
