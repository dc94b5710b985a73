"""The checker on runs, budgets, dead letters and books: right histories pass, each wrong one is named."""

import pytest

from perdure.engine.batch.feeding import Fed
from perdure.engine.batch.runs import settings_in
from perdure.engine.operate.bulk_settings import BulkSettings
from perdure.model.jobs import Conflict, Stale
from perdure.model.nouns import replace
from perdure.model.operations import (
    BulkChange,
    BulkPhase,
    BulkStatus,
    BulkView,
    Revival,
)
from perdure.model.runs import RunChange, RunStatus
from tests.sim.invariants import Violation
from tests.sim.runscenes import ABORTED, COMPLETED, RUNNING, TERMS, RunScene
from tests.sim.scenes import DEED, DONE

# -- right histories -----------------------------------------------------------------------


def a_run_to_its_end(scene: RunScene) -> None:
    """Fed, looked at, failed in part, sealed, ended; a dead letter lives again, and so does the run."""
    scene.show("note_feeding", None, 1, "ann")
    scene.done("a")
    dead = scene.dead("b")
    scene.done("c")
    scene.look()
    scene.show("note_feeding", None, 1, "ben", ended=True)
    scene.look()
    scene.show("note_check", None, 1, 3)
    scene.change(RUNNING, COMPLETED, done=False)
    scene.seal()
    scene.change(RUNNING, COMPLETED)
    answer = scene.lives(dead)
    scene.show("revive", [answer], [Revival(dead, "b", answer.token, "one", 11, None)], DEED)
    scene.look(status=RUNNING, ended_at=None)
    scene.item(dead, DONE)
    scene.item(dead, DONE)
    scene.change(RUNNING, COMPLETED)


def an_aborted_run(scene: RunScene) -> None:
    """Over its budget at a check, aborted, resumed with a larger one."""
    scene.dead("a")
    scene.dead("b")
    scene.look()
    scene.change(RUNNING, ABORTED)
    waiting = scene.put("c")
    terms = settings_in(replace(TERMS, failure_budget=None))
    change = RunChange(1, ABORTED, RUNNING, settings_json=terms)
    scene.show("change_run", scene.view(status=RUNNING), change, DEED)
    scene.item(waiting, DONE)


def a_redrive(scene: RunScene) -> None:
    """A canary, a conflict, a refusal, a second hand that comes too late; its run is sealed, then it is done."""
    first, second, third = (
        scene.dead(id, key=key) for id, key in (("a", "k"), ("b", None), ("c", None))
    )
    scene.add_run(2)
    scene.put("d", no=2, key="k")
    scene.bulk(BulkSettings(canary=1, rate_per_s=1.0), run=2)
    scene.redrive(scene.lives(third))
    scene.redrive(
        Stale(second, "b", 4), seen=None
    )  # by another hand, from where it no longer stands
    scene.stands(BulkStatus.RUNNING, BulkPhase.PROVING)
    scene.item(third, DONE, 2)
    scene.item(third, DONE, 2)
    scene.stands(BulkStatus.RUNNING, BulkPhase.ALL)
    token = scene.checker.ledger.jobs[first].token
    scene.redrive(Conflict(first, "a", token, "d"), seen=third, refused=(second,))
    scene.seal(2)
    scene.stands(BulkStatus.DONE)
    scene.look(2)
    scene.look(1)


@pytest.mark.parametrize("history", [a_run_to_its_end, an_aborted_run, a_redrive])
def test_a_right_history_of_runs_and_dead_letters_passes(history):
    history(RunScene())


# -- wrong histories -----------------------------------------------------------------------


def counts_more_than_there_is(scene: RunScene) -> None:
    scene.done("a")
    counts = scene.view().counts
    scene.look(counts=replace(counts, succeeded=2, total=2))


def another_kind_of_failure(scene: RunScene) -> None:
    scene.dead("a")
    scene.look(kinds={"timeout": 1})


def costs_more_than_was_said(scene: RunScene) -> None:
    scene.done("a")
    scene.look(counts=replace(scene.view().counts, tokens_in=5))


def an_attempt_that_cost_nothing(scene: RunScene) -> None:
    number = scene.put("a")
    scene.checker.runs.used("a", 1, {"tokens_in": 3, "tokens_out": 0, "cost_nusd": 7})
    scene.item(number, DONE)


def ended_with_an_open_item(scene: RunScene) -> None:
    scene.put("a")
    scene.seal()
    scene.change(RUNNING, COMPLETED)


def ended_unsealed(scene: RunScene) -> None:
    scene.change(RUNNING, COMPLETED)


def ended_though_it_was_paused(scene: RunScene) -> None:
    scene.seal()
    scene.change(RunStatus.PAUSED, COMPLETED)


def over_and_a_job_lives(scene: RunScene) -> None:
    dead = scene.dead("a")
    scene.seal()
    scene.change(RUNNING, RunStatus.FAILED)
    answer = scene.lives(dead)
    scene.show("revive", [answer], [Revival(dead, "a", answer.token, "one", 11, None)], DEED)
    scene.look(status=RunStatus.FAILED)


def called_completed_though_all_failed(scene: RunScene) -> None:
    scene.dead("a")
    scene.seal()
    scene.change(RUNNING, COMPLETED)


def a_live_run_is_not_told(scene: RunScene) -> None:
    scene.show("runs", [], live=True)


def sealed_before_all_is_in(scene: RunScene) -> None:
    scene.checker.runs.expected["run1"] = {'{"n":1}'}
    scene.seal()


def aborted_after_its_last_item_and_not_sealed(scene: RunScene) -> None:
    scene.put("a")
    scene.checker.runs.fed_to_the_end(1, Fed(items=1, created=1, whole=False), more=False)


def fed_by_somebody_else(scene: RunScene) -> None:
    scene.show("note_feeding", None, 1, "ann")
    scene.look(fed_by="ben")


def fed_by_one_that_has_ended(scene: RunScene) -> None:
    scene.show("note_feeding", None, 1, "ann")
    scene.show("note_feeding", None, 1, "ann", ended=True)
    scene.look(feeding_at=scene.world.clock.now())


def an_item_outside_of_its_run(scene: RunScene) -> None:
    scene.put("a", lane=1)


def advanced_out_of_its_run(scene: RunScene) -> None:
    number = scene.put("a")
    scene.settled(scene.claim(no=number, lane=11), DONE, lane=2)


def driven_again_in_the_lanes_of_before(scene: RunScene) -> None:
    dead = scene.dead("a")
    scene.add_run(2)
    answer = scene.lives(dead)
    chosen = Revival(dead, "a", answer.token, "one", 11, None, (), 2)
    scene.show("revive", [answer], [chosen], DEED)


def lanes_of_a_run_are_not_told(scene: RunScene) -> None:
    scene.show("run_lanes", {})


def claimed_from_a_paused_run(scene: RunScene) -> None:
    number = scene.put("a")
    scene.change(RUNNING, RunStatus.PAUSED)
    scene.claim(no=number, lane=11)


def aborted_within_its_budget(scene: RunScene) -> None:
    scene.dead("a")
    scene.done("b")
    scene.done("c")
    scene.done("d")
    scene.look()
    scene.change(RUNNING, ABORTED)


def aborted_before_the_sample(scene: RunScene) -> None:
    scene.dead("a")
    scene.look()
    scene.change(RUNNING, ABORTED)


def aborted_between_two_checks(scene: RunScene) -> None:
    scene.done("a")
    scene.done("b")
    scene.look()
    scene.show("note_check", None, 1, 2)
    scene.dead("c")
    scene.look()
    scene.show("note_check", None, 1, 3)
    scene.look()
    scene.change(RUNNING, ABORTED)


def noted_though_it_is_over_its_budget(scene: RunScene) -> None:
    scene.dead("a")
    scene.dead("b")
    scene.look()
    scene.show("note_check", None, 1, 2)


def over_its_budget_for_long(scene: RunScene) -> None:
    scene.checker.runs.quiet = True
    scene.dead("a")
    scene.dead("b")
    for _ in range(30):
        scene.look()


def alive_twice(scene: RunScene) -> None:
    dead = scene.dead("a", key="k")
    scene.add_run(2)
    scene.put("b", no=2, key="k")
    answer = scene.lives(dead)
    scene.show("revive", [answer], [Revival(dead, "a", answer.token, "one", 11, None)], DEED)


def a_conflict_with_nobody(scene: RunScene) -> None:
    dead = scene.dead("a", key="k")
    token = scene.checker.ledger.jobs[dead].token
    conflict = Conflict(dead, "a", token, "b")
    scene.show("revive", [conflict], [Revival(dead, "a", token, "one", 11, None)], DEED)


def a_key_driven_twice_in_one_run(scene: RunScene) -> None:
    scene.add_run(2)
    scene.add_run(3)
    first, second = scene.dead("a", key="k"), scene.dead("b", no=2, key="k")
    scene.checker.ledger.jobs[first].redrive_run = 3
    answer = scene.lives(second)
    again = Revival(second, "b", answer.token, "one", 31, None, redrive_run=3)
    scene.show("revive", [answer], [again], DEED)


def a_conflict_with_one_of_another_run(scene: RunScene) -> None:
    scene.add_run(2)
    scene.add_run(3)
    scene.dead("a", key="k")
    second = scene.dead("b", no=2, key="k")
    token = scene.checker.ledger.jobs[second].token
    conflict = Conflict(second, "b", token, "a", alive=False)
    again = Revival(second, "b", token, "one", 31, None, redrive_run=3)
    scene.show("revive", [conflict], [again], DEED)


def a_new_life_in_a_cancelled_run(scene: RunScene) -> None:
    dead = scene.dead("a")
    cancelled = RunChange(1, RUNNING, RunStatus.CANCELLED)
    now = scene.world.clock.now()
    view = scene.view(status=RunStatus.CANCELLED, ended_at=now)
    scene.show("change_run", view, cancelled, DEED)
    answer = scene.lives(dead)
    scene.show("revive", [answer], [Revival(dead, "a", answer.token, "one", 11, None)], DEED)


def done_with_one_left(scene: RunScene) -> None:
    scene.dead("a")
    scene.bulk()
    scene.stands(BulkStatus.DONE)


def taken_on_twice(scene: RunScene) -> None:
    dead = scene.dead("a")
    scene.bulk()
    scene.redrive(refused=(dead,))
    scene.redrive(refused=(dead,), seen=dead)


def taken_on_though_it_died_later(scene: RunScene) -> None:
    scene.bulk()
    scene.redrive(scene.lives(scene.dead("a")))


def a_step_from_where_it_was(scene: RunScene) -> None:
    first, second = scene.dead("a"), scene.dead("b")
    scene.bulk()
    scene.redrive(refused=(second,))
    scene.redrive(scene.lives(first), seen=None)


def faster_than_its_rate(scene: RunScene) -> None:
    first, second = scene.dead("a"), scene.dead("b")
    scene.bulk(BulkSettings(rate_per_s=0.5))
    scene.redrive(scene.lives(first), scene.lives(second))


def more_than_its_canary(scene: RunScene) -> None:
    first, second = scene.dead("a"), scene.dead("b")
    scene.bulk(BulkSettings(canary=1))
    scene.redrive(scene.lives(first), scene.lives(second))


def stopped_twice(scene: RunScene) -> None:
    scene.bulk()
    scene.stands(BulkStatus.STOPPED)
    change = BulkChange(1, BulkStatus.RUNNING, BulkStatus.STOPPED)
    bulk, now = scene.checker.ledger.bulks[1], scene.world.clock.now()
    view = BulkView(
        1,
        "b",
        bulk.verb,
        BulkStatus.STOPPED,
        "",
        "ann",
        "",
        None,
        0,
        0,
        now,
        now,
        "",
        None,
        BulkPhase.ALL,
        "",
    )
    scene.show("change_bulk", view, change, DEED)


def claimed_for_a_later_stage(scene: RunScene) -> None:
    """A job of a run is claimed for a stage that comes later."""
    number = scene.put("a")
    scene.claim(no=number, lane=12, stage="two")


WRONG = [
    ("S15", counts_more_than_there_is),
    ("S15", another_kind_of_failure),
    ("S16", costs_more_than_was_said),
    ("S16", an_attempt_that_cost_nothing),
    ("S13", claimed_for_a_later_stage),
    ("S2", a_new_life_in_a_cancelled_run),
    ("E5", claimed_from_a_paused_run),
    ("E11", done_with_one_left),
    ("E11", taken_on_twice),
    ("E11", taken_on_though_it_died_later),
    ("E11", a_step_from_where_it_was),
    ("E11", faster_than_its_rate),
    ("E11", more_than_its_canary),
    ("E11", stopped_twice),
    ("E12", alive_twice),
    ("E12", a_conflict_with_nobody),
    ("E12", a_key_driven_twice_in_one_run),
    ("E12", a_conflict_with_one_of_another_run),
    ("E13", ended_with_an_open_item),
    ("E13", ended_unsealed),
    ("E13", ended_though_it_was_paused),
    ("E13", over_and_a_job_lives),
    ("E13", a_live_run_is_not_told),
    ("E13", called_completed_though_all_failed),
    ("E13", fed_by_somebody_else),
    ("E13", fed_by_one_that_has_ended),
    ("E14", sealed_before_all_is_in),
    ("E14", aborted_after_its_last_item_and_not_sealed),
    ("E15", an_item_outside_of_its_run),
    ("E15", advanced_out_of_its_run),
    ("E15", driven_again_in_the_lanes_of_before),
    ("E15", lanes_of_a_run_are_not_told),
    ("E16", aborted_within_its_budget),
    ("E16", aborted_before_the_sample),
    ("E16", aborted_between_two_checks),
    ("E16", noted_though_it_is_over_its_budget),
    ("L10", over_its_budget_for_long),
]


@pytest.mark.parametrize(
    ("invariant", "history"), WRONG, ids=[f"{name}: {one.__name__}" for name, one in WRONG]
)
def test_a_wrong_history_of_runs_and_dead_letters_is_named(invariant, history):
    with pytest.raises(Violation) as found:
        history(RunScene())
    assert found.value.invariant == invariant, str(found.value)
