"""The checker on operators, callers and the upkeep: right histories pass, each wrong one is named."""

import pytest

from perdure.engine.record import Ending
from perdure.engine.upkeep.left_callers import record_of_left_caller
from perdure.model.errors import StageError
from perdure.model.events import Event, EventName
from perdure.model.jobs import (
    ZERO,
    Enqueued,
    IfFailed,
    NewJob,
    OnLost,
    Overrun,
    Receipt,
    Stale,
)
from perdure.model.nouns import replace
from perdure.model.operations import (
    LaneScope,
    Pruned,
    Retention,
    Target,
)
from perdure.model.outcomes import Death, Lost, Raised
from perdure.model.states import State
from perdure.rules.evidence import evidence_of
from tests.sim.invariants import Violation
from tests.sim.scenes import (
    DEED,
    DIED,
    DONE,
    FAILED,
    LINE,
    STAGES,
    Scene,
    a_dead_letter,
    a_life_with_a_caller,
    a_round_of_upkeep,
    a_whole_life,
    an_id_that_is_sent_again_when_its_job_is_pruned,
    an_operated_life,
    revival,
)


@pytest.mark.parametrize(
    "history",
    [
        an_operated_life,
        an_id_that_is_sent_again_when_its_job_is_pruned,
        a_life_with_a_caller,
        a_round_of_upkeep,
    ],
)
def test_a_right_history_of_operators_callers_and_the_upkeep_passes(history):
    history(Scene())


# -- wrong histories ---------------------------------------------------------------------


def pruned_too_soon(scene: Scene) -> None:
    a_whole_life(scene)
    scene.show("prune", Pruned(1, 4, None), Retention(succeeded_s=60.0), limit=9)


def revived_while_it_runs(scene: Scene) -> None:
    scene.enqueue()
    claim = scene.claim()
    scene.revive(claim.token)


def revived_under_an_old_token(scene: Scene) -> None:
    a_dead_letter(scene)
    scene.revive(1)


def discarded_twice(scene: Scene) -> None:
    token = a_dead_letter(scene)
    for one in (token, token + 1):
        target = Target(1, "a", one)
        receipt = Receipt(1, "a", one, State.FAILED, None)
        scene.show("discard", [receipt], [target], DEED)


def hurried(scene: Scene, token: int) -> None:
    receipt = Receipt(1, "a", token, State.QUEUED, None)
    scene.show("run_now", [receipt], [Target(1, "a", token)], DEED)


def run_now_before_its_upstream_wants_it(scene: Scene) -> None:
    scene.enqueue()
    record = scene.settled(scene.claim(), FAILED, delay_s=60.0)
    scene.world.clock.push(5.0)
    hurried(scene, record.token + 1)


def run_now_under_an_old_token(scene: Scene) -> None:
    scene.enqueue()
    hurried(scene, scene.settled(scene.claim(), FAILED).token)


def run_now_while_it_runs(scene: Scene) -> None:
    scene.enqueue()
    hurried(scene, scene.claim().token)


def not_run_now_though_it_waits(scene: Scene) -> None:
    scene.enqueue()
    token = scene.settled(scene.claim(), FAILED).token + 1
    scene.world.clock.push(5.0)
    scene.show("run_now", [Stale(1, "a", token)], [Target(1, "a", token)], DEED)


def refused_a_new_life(scene: Scene) -> None:
    token = a_dead_letter(scene)
    scene.show("revive", [Stale(1, "a", token)], [revival(token)], DEED)


def found_failed_and_left_so(scene: Scene) -> None:
    """Its key was enqueued again with the wish to retry it."""
    a_dead_letter(scene, key="k")
    job = NewJob("b", "p", 1, "one", "{}", key="k", if_failed=IfFailed.RETRY)
    scene.show("enqueue", [Enqueued("a", 1, created=False)], [job])


def tried_too_often_in_its_second_life(scene: Scene) -> None:
    scene.revive(a_dead_letter(scene))
    for _ in range(2):
        scene.settled(replace(scene.claim(), counters=ZERO), FAILED)
        scene.world.clock.push(60.0)


def told_of_a_new_life(scene: Scene) -> None:
    a_dead_letter(scene)
    scene.checker.told(Event(EventName.JOB_REVIVED, {"job_id": "a"}))


def told_of_a_discard(scene: Scene) -> None:
    a_dead_letter(scene)
    scene.checker.told(Event(EventName.JOB_DISCARDED, {"job_id": "a"}))


def second_stage_first(scene: Scene) -> None:
    scene.enqueue()
    scene.checker.ledger.jobs[1].stage = "two"
    scene.claim()


def begun_anew_on_a_result_that_is_gone(scene: Scene) -> None:
    token = a_dead_letter(scene)
    chosen = replace(revival(token), stage="two", input_from="one")
    scene.show("revive", [Receipt(1, "a", token, State.QUEUED, None)], [chosen], DEED)


def retried_without_a_pause(scene: Scene) -> None:
    scene.enqueue()
    broken = Raised(evidence_of(StageError("network", "gone")))
    scene.settled(scene.claim(), broken, delay_s=0.0)


def rescued_much_too_late(scene: Scene) -> None:
    scene.checker.roster.quiet_us, scene.checker.roster.rescue_s_max = 0, 50.0
    scene.enqueue()
    claim = scene.claim()
    scene.show("end_worker", True, 1, DIED)
    scene.world.clock.push(51.0)
    scene.settled(claim, Lost(DIED), by=2, worker=1)


def claimed_from_a_closed_lane(scene: Scene) -> None:
    scene.enqueue()
    scene.show("pause", True, LaneScope.QUEUE, "q", DEED)
    scene.claim()


def paused_and_not_told(scene: Scene) -> None:
    scene.show("pause", False, LaneScope.PIPELINE, "p", DEED)


def resumed_and_was_not_paused(scene: Scene) -> None:
    scene.show("resume", True, LaneScope.PIPELINE, "p", DEED)


def begun_in_a_closed_lane(scene: Scene) -> None:
    scene.show("pause", True, LaneScope.PIPELINE, "p", DEED)
    scene.begin()


def carried_on_into_a_closed_lane(scene: Scene) -> None:
    scene.enqueue()
    claim = scene.claim()
    scene.show("pause", True, LaneScope.PIPELINE, "p", DEED)
    following = replace(claim, stage="two", token=3)
    receipt = Receipt(1, "a", 1, State.PROCESSING, None, following)
    scene.settled(claim, DONE, answer=receipt, reclaim=True, state=State.PROCESSING)


def ticked_twice(scene: Scene) -> None:
    scene.schedule()
    scene.world.clock.push(60.0)
    scene.tick(60)
    scene.tick(60, id="b")


def a_second_job_of_a_moment(scene: Scene) -> None:
    """The schedule was dropped and put again by somebody who was slow."""
    scene.schedule()
    scene.world.clock.push(60.0)
    scene.tick(60)
    scene.show("drop_schedule", True, "s")
    scene.schedule()
    scene.tick(60, id="b")


def ticked_before_its_time(scene: Scene) -> None:
    scene.schedule()
    scene.world.clock.push(59.0)
    scene.tick(60)


def missed_moments_left_out(scene: Scene) -> None:
    """Three moments have passed, and the row moves to a fourth that has not come."""
    scene.schedule()
    scene.world.clock.push(190.0)
    scene.tick(60, next_s=300)


def a_job_for_every_missed_moment(scene: Scene) -> None:
    """The same moment again, after the row has come to it in one step."""
    scene.schedule()
    scene.world.clock.push(190.0)
    scene.tick(60, next_s=240)
    scene.tick(120, next_s=180, id="b")


def ticked_for_a_moment_that_is_not_the_latest(scene: Scene) -> None:
    scene.schedule()
    scene.world.clock.push(190.0)
    scene.show("now", scene.world.clock.now())
    scene.tick(60)


def ticked_for_another_moment(scene: Scene) -> None:
    scene.schedule()
    scene.world.clock.push(60.0)
    scene.tick(60, key="s at noon")


def refused_a_tick(scene: Scene) -> None:
    scene.schedule()
    scene.world.clock.push(60.0)
    scene.tick(60, refused=True)


def two_with_one_duty(scene: Scene) -> None:
    scene.show("take_duty", True, "upkeep", worker=1, ttl_s=3.0)
    scene.show("take_duty", True, "upkeep", worker=2, ttl_s=3.0)


def duty_of_the_dead(scene: Scene) -> None:
    scene.show("end_worker", True, 1, DIED)
    scene.show("take_duty", True, "upkeep", worker=1, ttl_s=3.0)


def duty_that_nobody_gets(scene: Scene) -> None:
    scene.show("take_duty", True, "upkeep", worker=1, ttl_s=3.0)
    scene.world.clock.push(3.0)
    scene.show("take_duty", False, "upkeep", worker=2, ttl_s=3.0)


def handed_over_against_its_wish(scene: Scene) -> None:
    claim = scene.begin(OnLost.DROP)
    scene.show("end_worker", True, 5, Death("stopped"))
    record = record_of_left_caller(
        Ending(claim, Lost(DIED), 1.0, 5), OnLost.HAND_OVER, LINE, STAGES[0]
    )
    scene.send(record, by=2)


def taken_from_its_caller_too_soon(scene: Scene) -> None:
    claim = scene.begin()
    scene.world.clock.push(20.0)
    found = [Overrun(claim, 5, scene.world.clock.now(), OnLost.HAND_OVER)]
    scene.show("overrun", found, {1: 1.0}, limit=9)


WRONG = [
    ("S1", pruned_too_soon),
    ("S2", revived_while_it_runs),
    ("S3", revived_under_an_old_token),
    ("S2", discarded_twice),
    ("S3", refused_a_new_life),
    ("S9", run_now_before_its_upstream_wants_it),
    ("S3", run_now_under_an_old_token),
    ("S2", run_now_while_it_runs),
    ("S3", not_run_now_though_it_waits),
    ("S2", found_failed_and_left_so),
    ("S7", tried_too_often_in_its_second_life),
    ("E2", told_of_a_new_life),
    ("E2", told_of_a_discard),
    ("S13", second_stage_first),
    ("S13", begun_anew_on_a_result_that_is_gone),
    ("S9", retried_without_a_pause),
    ("L2", rescued_much_too_late),
    ("E5", claimed_from_a_closed_lane),
    ("E5", paused_and_not_told),
    ("E5", resumed_and_was_not_paused),
    ("E5", begun_in_a_closed_lane),
    ("E5", carried_on_into_a_closed_lane),
    ("E6", ticked_twice),
    ("E6", a_second_job_of_a_moment),
    ("E6", ticked_before_its_time),
    ("E6", missed_moments_left_out),
    ("E6", a_job_for_every_missed_moment),
    ("E6", ticked_for_a_moment_that_is_not_the_latest),
    ("E6", ticked_for_another_moment),
    ("E6", refused_a_tick),
    ("E7", two_with_one_duty),
    ("E7", duty_of_the_dead),
    ("E7", duty_that_nobody_gets),
    ("E8", handed_over_against_its_wish),
    ("S5", taken_from_its_caller_too_soon),
]


@pytest.mark.parametrize(
    ("invariant", "history"), WRONG, ids=[f"{name}: {one.__name__}" for name, one in WRONG]
)
def test_a_wrong_history_is_named(invariant, history):
    with pytest.raises(Violation) as found:
        history(Scene())
    assert found.value.invariant == invariant, str(found.value)
