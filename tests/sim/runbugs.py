"""Bugs of runs, budgets, re-drives and books, put back on purpose."""

from typing import Any

import pytest

from perdure.engine.batch import runs as runs_module
from perdure.engine.batch.feeding import Feeder
from perdure.engine.batch.runs import Runs, RunSettings, final_status, tally_of
from perdure.engine.operate import bulks as bulks_module
from perdure.engine.operate.bulks import Bulks
from perdure.engine.stages import LaidPipeline
from perdure.engine.upkeep import run_watch as watch_module
from perdure.model.jobs import Conflict, Record, Stale
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.runs import RunChange, RunStatus, RunView
from perdure.rules.run_budget import Tally as BudgetTally, overspent
from perdure.stores import deeds as deeds_module
from perdure.stores.sqlite import control as store_module, record as settling_module
from perdure.stores.tally_changes import JobBefore, TallyChanges
from tests.sim import harvests
from tests.sim.mutants import Mutant, reworded


def budget_by_chunk(patch: pytest.MonkeyPatch) -> None:
    """Only what has failed since the last check is held against all that was processed."""
    before: dict[str, int] = {}

    def over_budget(run: RunView, settings: RunSettings, *, due: bool) -> str | None:
        if not due:
            return None
        tally, last = tally_of(run), before.get(run.id, 0)
        before[run.id] = tally.failed
        left = max(0, tally.failed - last)
        kind = next(iter(tally.failures), None)
        chunk = BudgetTally(tally.processed - left, {kind: left} if kind else {})
        return overspent(settings, chunk)

    patch.setattr(watch_module, "over_budget", over_budget)


def budget_from_the_first_item(patch: pytest.MonkeyPatch) -> None:
    """One failure in the first item is a share of one."""
    right, rightly_due = watch_module.over_budget, watch_module.check_due

    def over_budget(run: RunView, settings: RunSettings, *, due: bool) -> str | None:
        return right(run, replace(settings, sample_min=1), due=due)

    def check_due(budget: RunSettings, *, checked: int, processed: int) -> bool:
        return rightly_due(replace(budget, sample_min=1), checked=checked, processed=processed)

    patch.setattr(watch_module, "over_budget", over_budget)
    patch.setattr(watch_module, "check_due", check_due)


def stale_records_count(patch: pytest.MonkeyPatch) -> None:
    """What comes too late is not written, and counted all the same."""
    right = settling_module._earlier_receipt

    def earlier_receipt(cx: Any, record: Record, by: int | None) -> Any:
        answer = right(cx, record, by)
        row = cx.execute(
            "SELECT run, redrive_run, owner, pipeline, lane FROM perdure_jobs WHERE no = ?",
            (record.no,),
        ).fetchone()
        if isinstance(answer, Stale) and row is not None:
            tally = TallyChanges()
            tally.add_settled(record, JobBefore(*row, "processing"))
            counts, *_ = tally.rows(by or 0, now=0)
            cx.executemany(settling_module.SQL.run_counts_add, counts)
        return answer

    patch.setattr(settling_module, "_earlier_receipt", earlier_receipt)


def usage_counts_twice(patch: pytest.MonkeyPatch) -> None:
    """The tokens of an attempt are added once more."""
    right = TallyChanges._settle_in_run

    def settle_in_run(tally: TallyChanges, run: int, record: Record) -> None:
        right(tally, run, record)
        if record.attempt is not None:
            tally._of(run)[6] += record.attempt.tokens_in

    patch.setattr(TallyChanges, "_settle_in_run", settle_in_run)


def conflicts_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """A dead letter whose key is alive is neither driven again nor written down."""
    right = deeds_module.refusals

    def refusals(step: Any, answers: Any) -> Any:
        return right(step, [one for one in answers if not isinstance(one, Conflict)])

    patch.setattr(deeds_module, "refusals", refusals)


def pages_leave_out_rivals(patch: pytest.MonkeyPatch) -> None:
    """Of a page, what cannot be driven again is not even shown to the store."""
    right = bulks_module.replace

    def without(step: Any, **changes: Any) -> Any:
        changes.pop("refusals", None)
        return right(step, **changes)

    patch.setattr(bulks_module, "replace", without)


def keys_may_live_twice(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether a key is alive elsewhere."""
    patch.setattr(store_module, "conflict", lambda *_: None)


def rates_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """All dead letters are driven again at once."""
    right = Bulks._limit

    def limit(bulks: Bulks, bulk: Any, settings: Any) -> int:
        return right(bulks, bulk, replace(settings, rate_per_s=None))

    patch.setattr(Bulks, "_limit", limit)


def canaries_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """The first few are not told from the rest."""
    right = Bulks._limit

    def limit(bulks: Bulks, bulk: Any, settings: Any) -> int:
        return right(bulks, bulk, replace(settings, canary=1_000))

    patch.setattr(Bulks, "_limit", limit)


def a_complete_canary_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    """Who dies between the last of the canary and its next phase leaves an operation that stands still."""
    right = Bulks.once

    def once(bulks: Bulks, bulk: Any) -> Any:
        complete = bulk.phase.value == "canary" and bulk.done >= bulks_settings(bulk).canary
        return None if complete else right(bulks, bulk)

    patch.setattr(Bulks, "once", once)


def bulks_settings(bulk: Any) -> Any:
    """The settings of a bulk operation."""
    return bulks_module.msgspec.json.decode(bulk.settings_json, type=bulks_module.BulkSettings)


def failed_stays_failed(patch: pytest.MonkeyPatch) -> None:
    """A job that lives again is still counted among the failed ones of its run."""
    patch.setattr(TallyChanges, "return_to_run", lambda *_: None)


def short_chunks_are_the_end(patch: pytest.MonkeyPatch) -> None:
    """A chunk that is not full is taken for the end of the items, before it is sent."""
    right = Feeder._take

    def take(feeder: Feeder, count: int) -> bool:
        went_on = right(feeder, count)
        if len(feeder._unsent) < count:
            feeder._unsent = []
            return False
        return went_on

    patch.setattr(Feeder, "_take", take)


def stopped_at_the_end_is_stopped_before_it(patch: pytest.MonkeyPatch) -> None:
    """A run that is aborted after its last item is left unsealed; nobody asks whether there are more."""
    patch.setattr(Feeder, "_stop_if_more", Feeder._stop)


def advances_leave_the_run(patch: pytest.MonkeyPatch) -> None:
    """The next stage is always that outside of runs."""
    patch.setattr(LaidPipeline, "lane_beside", lambda line, lane, stage: line.lane_nos[stage])


def ends_without_a_look(patch: pytest.MonkeyPatch) -> None:
    """A run that is sealed is over, whatever its jobs are."""

    def settle(runs: Runs, run: RunView) -> RunView:
        if run.status is not RunStatus.RUNNING or run.sealed_at is None:
            return run
        change = RunChange(run.no, RunStatus.RUNNING, final_status(run))
        return runs._write_change(change, Deed("perdure", "it is sealed")) or run

    def may_change(run: RunView, change: RunChange) -> bool:
        return run.status is change.seen

    patch.setattr(Runs, "settle", settle)
    patch.setattr(deeds_module, "may_change", may_change)


def whatever_is_over_is_completed(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks at how many have failed."""
    patch.setattr(runs_module, "final_status", lambda run: RunStatus.COMPLETED)


def runs_are_not_looked_after(patch: pytest.MonkeyPatch) -> None:
    """Nobody ends what is over."""
    patch.setattr(Runs, "settle", lambda runs, run: run)


RUNS = (
    Mutant("a budget by chunk", ("E16",), budget_by_chunk, harvests.only_runs),
    Mutant("a budget without a sample", ("E16",), budget_from_the_first_item, harvests.only_runs),
    Mutant(
        "a stale record counts in its run", ("S15",), stale_records_count,
        harvests.runs_and_cancels,
    ),
    Mutant("usage counts twice", ("S16",), usage_counts_twice, harvests.only_runs),
    Mutant("a record leaves the run", ("E15",), advances_leave_the_run, harvests.only_runs),
    Mutant(
        "a run ends with open jobs", ("E13",), ends_without_a_look, harvests.only_runs
    ),
    Mutant(
        "a run is completed, whatever failed", ("E13",), whatever_is_over_is_completed,
        harvests.only_redrives,
    ),
    Mutant("a run never ends", ("L10",), runs_are_not_looked_after, harvests.only_runs),
    Mutant(
        "a run is sealed before its last chunk", ("E14",), short_chunks_are_the_end,
        harvests.only_runs,
    ),
    Mutant(
        "a run that is aborted after its last item is not sealed", ("E14",),
        stopped_at_the_end_is_stopped_before_it, harvests.runs_aborted_while_fed,
    ),
)  # fmt: skip

REDRIVES = (
    Mutant(
        "a re-drive drops conflicts", ("E11",), conflicts_are_dropped, harvests.only_redrives
    ),
    Mutant(
        "a re-drive drops what it cannot drive", ("E11",), pages_leave_out_rivals,
        harvests.only_redrives,
    ),
    Mutant("a key lives twice", ("E12",), keys_may_live_twice, harvests.only_redrives),
    Mutant("a rate is forgotten", ("E11",), rates_are_forgotten, harvests.only_redrives),
    Mutant(
        "a canary is not awaited", ("E11",), canaries_are_not_awaited, harvests.only_redrives
    ),
    Mutant(
        "a complete canary is overlooked", ("L10",), a_complete_canary_is_overlooked,
        harvests.only_redrives,
    ),
    Mutant(
        "a new life leaves its run failed", ("S15",), failed_stays_failed,
        harvests.only_redrives,
    ),
    Mutant(
        "a new life leaves its run over", ("E13", "E15"),
        reworded("runs_reopen", "AND status IN", "AND 0 AND status IN"), harvests.only_redrives,
    ),
    Mutant(
        "a discarded letter is emptied", ("S19",),
        reworded("discard", "SET ", "SET payload = '0', "), harvests.only_discards,
    ),
    Mutant(
        "a step is taken from wherever it stands", ("E11",),
        reworded("bulk_lock", "AND cursor IS :seen_cursor", "AND :seen_cursor IS :seen_cursor"),
        harvests.redrives_by_two,
    ),
)  # fmt: skip

BOOKS = (*RUNS, *REDRIVES)
