"""Judges runs: their counts, their status and seal, their lanes, their budgets, and what their attempts cost.

What a run has to count is counted anew over the accounts of its jobs, at every look at it; whether it is over
its budget is reckoned here by other code than the engine's.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.engine.batch.feeding import Fed
from perdure.model.jobs import Lane, Record
from perdure.model.kinds import KINDS, FailureClass, Kind
from perdure.model.nouns import replace
from perdure.model.operations import Deed, LaneScope
from perdure.model.runs import CLOSED, FINISHED, NANO, NewRun, RunChange, RunStatus, RunView
from perdure.model.states import TERMINAL, AttemptStatus, FailedReason, Move, State
from tests.sim.ledger import JobAccount, RunAccount

if TYPE_CHECKING:
    from tests.sim.checker import Checker

_LOOKS_MAX = 20  # that may find a run over its budget once nothing goes wrong, before it is aborted
_LIMITED = {one.value for one in Kind if KINDS[one].failure_class is FailureClass.RATE_LIMITED}
_MONEY = ("tokens_in", "tokens_out", "cost_nusd")


@dataclass(frozen=True, slots=True)
class Look:
    """What somebody saw of a run: whether a check was due, and whether it was over its budget."""

    due: bool = False
    over: bool = False


class Runs:
    """The judge of runs."""

    def __init__(self, checker: "Checker") -> None:
        self._checker = checker
        self._ledger = checker.ledger
        self._world = checker.world
        self._looks: dict[tuple[str, int], Look] = {}  # of each speaker, the last one
        self.expected: dict[str, set[str]] = {}  # the payloads that are fed to the run of a name
        self.quiet = False  # whether nothing but the work itself goes wrong any more

    # -- jobs ----------------------------------------------------------------------------

    def came_in(self, job: JobAccount) -> None:
        """A job was accepted; where it is an item of a run, that is running."""
        self.check_lane(job, job.lane, f"the beginning of #{job.no}")
        if job.run is None:
            return
        run = self._ledger.runs[job.run]
        run.members[job.no] = None
        run.fed.add(job.payload_json)
        self._reopen(run)
        run.ended = False  # a cancelled one has to be cancelled anew

    def came_back(self, job: JobAccount, redrive_run: int | None) -> None:
        """A dead letter has a new life, perhaps in another run, which takes it over from an earlier one."""
        before = self._ledger.runs_of(job)
        if redrive_run is not None and redrive_run != job.redrive_run:
            if job.redrive_run is not None:
                left = self._ledger.runs[job.redrive_run]
                left.members[job.no] = (State.FAILED, job.error_kind or "")
            self._ledger.runs[redrive_run].members[job.no] = None
            job.redrive_run = redrive_run
            self._world.seen["dead letters driven again"] += 1
        for run in (*before, *self._ledger.runs_of(job)):
            self._reopen(run)

    def may_live(self, job: JobAccount, redrive_run: int | None = None) -> bool:
        """Whether a job may have a new life: a dead one, whose lanes are not those of a cancelled run."""
        no = redrive_run or self.of_lane(job)
        cancelled = no is not None and self._ledger.runs[no].status is RunStatus.CANCELLED
        return job.state is State.FAILED and not job.pruned and not cancelled

    def _reopen(self, run: RunAccount) -> None:
        if run.status in FINISHED:
            run.status, run.ended = RunStatus.RUNNING, False
            self._world.seen["runs that were over and run again"] += 1

    def of_lane(self, job: JobAccount) -> int | None:
        """The run in whose lanes a job stands: the one that drives it again, or its own."""
        return job.run if job.redrive_run is None else job.redrive_run

    def is_returned(self, job: JobAccount, record: Record, by: int | None) -> bool:
        """Whether a dead letter is dead again, because the run that drove it again was cancelled while it waited."""
        if record.attempt is not None or record.move is not Move.FAIL:
            return False
        tries = [one.attempt for one in job.settled.values() if one.attempt is not None]
        tried = any(one.status is AttemptStatus.FAILED for one in tries)
        if record.failed_reason is not (FailedReason.FATAL if tried else FailedReason.EXPIRED):
            return False
        in_time = job.deadline_us is not None and self._world.now_us < job.deadline_us
        if not tried and (job.life == 1 or not (in_time or by is None)):
            return False  # its own deadline has passed, and a sweeper saw it first
        run = None if job.redrive_run is None else self._ledger.runs[job.redrive_run]
        if run is None or run.status is not RunStatus.CANCELLED or job.holder is not None:
            self._checker.broken("E13", f"#{job.no} is dead again, and nobody has cancelled {run}")
        self._world.seen["letters that are dead again"] += 1
        return True

    def check_lane(self, job: JobAccount, no: int, what: str) -> None:
        """A job of a run stands in the lanes of that run, all others outside of all runs."""
        run, lane = self.of_lane(job), self._ledger.lanes.get(no)
        if lane is None and run is None:
            return  # those that were laid before the beginning
        said = None if lane is None else (lane.run, lane.pipeline, lane.stage)
        if said != (run, job.pipeline, job.stage):
            self._checker.broken("E15", f"{what}: lane {no} is {said}, not of run {run}")

    def settled(self, job: JobAccount, record: Record) -> None:
        """An attempt ended, or a wait did: it counts once in each run of its job."""
        self.check_lane(job, record.lane, f"{record.move.value} of #{job.no}")
        attempt = record.attempt
        if attempt is None:
            return
        self._check_usage(job, record)
        again = attempt.counted == "failures" and record.state not in TERMINAL
        for run in self._ledger.runs_of(job):
            run.spent.update(
                {
                    "attempts": 1,
                    "retries": int(again),
                    "tokens_in": attempt.tokens_in,
                    "tokens_out": attempt.tokens_out,
                    "cost_nusd": attempt.cost_nusd,
                    "calls": int(attempt.called),
                }
            )

    def _check_usage(self, job: JobAccount, record: Record) -> None:
        """An attempt costs what its stage has said by its end, or, where it was lost, by some earlier moment."""
        attempt = record.attempt
        assert attempt is not None
        said, sums = Counter(dict.fromkeys(_MONEY, 0)), []
        for one in self._ledger.used.get((job.id, record.token), ()):
            sums.append(dict(said))
            said.update(one)
        sums.append(dict(said))
        if attempt.status is AttemptStatus.SUCCESS:
            sums = sums[-1:]
        written = {what: getattr(attempt, what) for what in _MONEY}
        if written not in sums:
            self._checker.broken("S16", f"#{job.no}/{record.token} costs {written}, not {sums[-1]}")
        self._world.seen["attempts that cost something"] += any(written.values())

    def used(self, job_id: str, token: int, amounts: Mapping[str, int]) -> None:
        """A stage has said what it used up."""
        self._ledger.used.setdefault((job_id, token), []).append(Counter(amounts))

    # -- lanes ---------------------------------------------------------------------------

    def _lanes(self, found: dict[Lane, int] | list[Any], *_: Any, **__: Any) -> None:
        if isinstance(found, dict):
            self._ledger.lanes.update({no: lane for lane, no in found.items()})

    def _run_lanes(self, found: dict[int, Lane]) -> None:
        live = {run.no for run in self._ledger.runs.values() if not run.ended}
        known = {no for no, lane in self._ledger.lanes.items() if lane.run in live}
        if set(found) != known:
            self._checker.broken("E15", f"lanes of runs are {sorted(found)}, not {sorted(known)}")

    # -- runs ----------------------------------------------------------------------------

    def _add_run(self, answer: RunView, new: NewRun) -> None:
        known = self._named(new.owner, new.pipeline, new.name)
        if known is None:
            known = RunAccount(
                answer.no, new.id, new.owner, new.pipeline, new.name, new.settings_json, new.parent
            )
            if answer.no in self._ledger.runs:
                self._checker.broken("S1", f"run {answer.no} was made a second time: {new}")
            self._ledger.runs[answer.no] = known
            self._world.seen["runs"] += 1
        self.seen(answer)

    def _named(self, owner: str, pipeline: str, name: str) -> RunAccount | None:
        place = (owner, pipeline, name)
        runs = self._ledger.runs.values()
        return next((one for one in runs if (one.owner, one.pipeline, one.name) == place), None)

    def _runs(self, answer: list[RunView], *, live: bool = False, **chosen: Any) -> None:
        for view in answer:
            self.seen(view)
        if live and chosen.get("before") is None:
            known = {run.no for run in self._ledger.runs.values() if not run.ended}
            if {view.no for view in answer} != known:
                self._checker.broken("E13", f"not over are {sorted(known)}: {len(answer)} are told")

    def _run(self, answer: RunView | None, id: str) -> None:
        if answer is not None:
            self.seen(answer)

    def _seal_run(self, answer: RunView | None, no: int) -> None:
        run = self._ledger.runs[no]
        if run.name in self.expected and not self.expected[run.name] <= run.fed:
            missing = len(self.expected[run.name] - run.fed)
            self._checker.broken("E14", f"run {run.name} is sealed, {missing} items are not in")
        run.sealed, run.is_fed = True, False
        self._moved()
        assert answer is not None
        self.seen(answer)

    def fed_to_the_end(self, no: int, fed: Fed, *, more: bool) -> None:
        """A feeder has ended: unless its source gave one more as it stopped, it has sealed the run, or that was cancelled."""
        run = self._ledger.runs[no]
        if not fed.whole and not more and run.status is not RunStatus.CANCELLED:
            self._checker.broken(
                "E14", f"no item of {names([run])} is known to be left, it is not sealed"
            )

    def _note_feeding(self, _: None, no: int, by: str, *, ended: bool = False) -> None:
        run = self._ledger.runs[no]
        if not ended:
            run.fed_by, run.is_fed = by, not run.sealed
        elif run.fed_by == by:
            run.is_fed = False

    def _note_check(self, _: None, no: int, checked: int) -> None:
        look = self._looks.get((self._checker.speaker, no), Look())
        if look.over:
            self._checker.broken("E16", f"run {no} was over its budget at {checked}, and goes on")
        run = self._ledger.runs[no]
        run.checked = max(run.checked, checked)
        self._world.seen["budgets looked at"] += 1

    def _change_run(self, answer: RunView | None, change: RunChange, deed: Deed) -> None:
        run = self._ledger.runs[change.no]
        may = self._may(run, change)
        what = f"run {run.no}, {run.status.value}: {change.seen.value} to {change.status.value}"
        if may != (answer is not None):
            self._checker.broken("E13", f"{what} was done: {not may}; sealed: {run.sealed}")
        if answer is None:
            self._world.seen["changes of a run that came second"] += 1
            return
        if change.status is RunStatus.ABORTED:
            look = self._looks.get((self._checker.speaker, run.no), Look())
            if not look.over:
                self._checker.broken("E16", f"{what}, and it was not over its budget: {change.why}")
        if change.status in FINISHED and change.status is not self._called(run):
            self._checker.broken("E13", f"{what}, with {run.counts(self._ledger.jobs)}")
        self._become(run, change)
        self.seen(answer)
        self._world.seen[f"runs made {change.status.value}"] += 1

    def _become(self, run: RunAccount, change: RunChange) -> None:
        run.status = change.status
        run.ended = change.status in FINISHED or (
            change.status is RunStatus.CANCELLED and not self._open(run)
        )
        run.sealed = run.sealed if change.sealed is None else change.sealed
        run.settings_json = change.settings_json or run.settings_json
        run.overspent_looks = 0
        place = (LaneScope.RUN, str(run.no))
        if change.status in CLOSED:
            self._ledger.paused.add(place)
        elif change.status is RunStatus.RUNNING:
            self._ledger.paused.discard(place)
        self._moved()

    def _may(self, run: RunAccount, change: RunChange) -> bool:
        """Whether a run may have that status now: it ends when all are in, and all have ended."""
        if run.status is not change.seen or change.seen_sealed not in (None, run.sealed):
            return False
        if change.status in FINISHED:
            counted = change.counts in (None, run.counts(self._ledger.jobs))
            return bool(run.sealed or change.sealed) and not self._open(run) and counted
        return not (run.ended and run.status is change.status is RunStatus.CANCELLED)

    def _called(self, run: RunAccount) -> RunStatus:
        """What a run has to be called that is over: by its share of success."""
        counts, terms = run.counts(self._ledger.jobs), json.loads(run.settings_json)
        share = counts.succeeded / counts.processed if counts.processed else 1.0
        if share >= terms["completed_at"]:
            return RunStatus.COMPLETED
        return RunStatus.PARTIAL_SUCCESS if share >= terms["partial_at"] else RunStatus.FAILED

    def _open(self, run: RunAccount) -> int:
        return sum(state not in TERMINAL for state, _ in run.ends(self._ledger.jobs))

    def _moved(self) -> None:
        self._checker.moved_us = self._world.now_us

    # -- what is seen of them ------------------------------------------------------------

    def seen(self, view: RunView) -> None:
        """A run as the store shows it now is as its history says."""
        run = self._ledger.runs[view.no]
        counts = run.counts(self._ledger.jobs)
        kinds = {kind: count for kind, count in view.kinds.items() if count}
        free = dict.fromkeys(_MONEY, 0)
        alike = replace(view.counts, **free) == replace(counts, **free)
        if not alike or kinds != dict(run.kinds(self._ledger.jobs)):
            self._checker.broken(
                "S15", f"run {run.no} counts {view.counts} {kinds}, the history {counts}: {run}"
            )
        if view.counts != counts:
            self._checker.broken("S16", f"run {run.no} counts {view.counts}, the history {counts}")
        shown = (view.status, view.sealed_at is not None, view.ended_at is not None, view.checked)
        if shown != (run.status, run.sealed, run.ended, run.checked):
            self._checker.broken("E13", f"run {run.no} is {shown}, the history says {run}")
        if (view.fed_by, view.feeding_at is not None) != (run.fed_by, run.is_fed):
            self._checker.broken(
                "E13", f"run {run.no} is fed by {view.fed_by}, the history says {run}"
            )
        self._looks[self._checker.speaker, run.no] = look = self.look(run)
        overspent = look.over and look.due and not self._is_through(run)
        overspent = overspent and not self._checker.speaker.startswith(
            "feeder"
        )  # it judges nothing
        if self.quiet and run.status is RunStatus.RUNNING and overspent:
            run.overspent_looks += 1
            if run.overspent_looks > _LOOKS_MAX:
                self._checker.broken("L10", f"run {run.no} is over its budget and goes on: {run}")

    def look(self, run: RunAccount) -> Look:
        """Whether a check of its budget is due, and whether it has to be aborted for what is checked."""
        terms = json.loads(run.settings_json)
        ends = run.ends(self._ledger.jobs)
        processed = sum(state in (State.SUCCEEDED, State.FAILED) for state, _ in ends)
        share_max, kinds = terms["failure_budget"], terms["kinds"]
        every, first = terms["check_every"], terms["sample_min"]
        at = {first, *range((first // every + 1) * every, processed + 1, every)}
        due = (share_max is not None or bool(kinds)) and any(
            run.checked < one <= processed for one in at
        )
        cost_max = terms["cost_max_usd"]
        if cost_max is not None and run.spent["cost_nusd"] / NANO > cost_max:
            return Look(due=True, over=True)
        failed = run.kinds(self._ledger.jobs)
        if not terms["rate_limits"]:
            processed -= sum(failed.pop(kind, 0) for kind in _LIMITED)
        if not due or processed < terms["sample_min"]:
            return Look(due)
        over = share_max is not None and failed.total() / processed > share_max
        over = over or any(failed[kind] / processed > most for kind, most in kinds.items())
        return Look(due, over)

    def _is_through(self, run: RunAccount) -> bool:
        """Whether nothing is left of a run that could be saved by giving it up."""
        return run.sealed and not self._open(run)


def names(runs: Sequence[RunAccount]) -> list[str]:
    """Runs in words."""
    return [f"{one.name} {one.status.value}{' sealed' if one.sealed else ''}" for one in runs]
