"""The checker itself: it lets a right history pass and names what is wrong with each wrong one."""

import inspect
from importlib import import_module

import pytest

from perdure.engine.record import Ending, record_of
from perdure.engine.settle import settle
from perdure.model.decisions import CancelJob, Why
from perdure.model.events import Event, EventName
from perdure.model.jobs import (
    ZERO,
    Enqueued,
    NewJob,
    Receipt,
    RecordRefused,
    Stale,
    Turn,
)
from perdure.model.nouns import replace
from perdure.model.outcomes import Death, Lost
from perdure.model.states import Move
from tests.sim.bugs import MORE
from tests.sim.checker import Checker
from tests.sim.completing import Completing
from tests.sim.deeds import Deeds
from tests.sim.following import Feed
from tests.sim.gatebugs import GATES
from tests.sim.gates import Gates
from tests.sim.invariants import INVARIANTS, Violation
from tests.sim.letters import Letters
from tests.sim.mutants import OTHERS, THE_FOUR
from tests.sim.probes import Probes
from tests.sim.remote import READS, WRITES, Remote
from tests.sim.roster import Roster
from tests.sim.run import Simulation
from tests.sim.runbugs import BOOKS
from tests.sim.runs import Runs
from tests.sim.scenes import (
    DIED,
    DONE,
    FAILED,
    LINE,
    STAGES,
    Scene,
    a_whole_life,
)
from tests.sim.test_deeds import WRONG as WRONG_DEEDS


def test_a_right_history_passes():
    scene = Scene()
    a_whole_life(scene)
    (job,) = scene.checker.ledger.jobs.values()
    assert job.state.value == "succeeded"
    assert (job.counted("starts"), job.counted("failures"), job.counted("crashes")) == (4, 1, 1)


# -- wrong histories -----------------------------------------------------------------------


def acknowledged_and_unknown(scene: Scene) -> None:
    scene.checker.acknowledged(NewJob("x", "p", 1, "one", "{}"), Enqueued("x", 9, created=True))


def answered_for_another(scene: Scene) -> None:
    scene.enqueue("a", answer=Enqueued("z", 1, created=True))


def written_after_its_end(scene: Scene) -> None:
    a_whole_life(scene)
    job = scene.checker.ledger.jobs[1]
    record = job.settled[max(job.settled)]
    scene.send(replace(record, token=job.token, attempt=None, move=Move.CANCEL), by=None)


def claimed_after_its_end(scene: Scene) -> None:
    a_whole_life(scene)
    scene.claim(worker=2)


def cancelled_only_in_words(scene: Scene) -> None:
    scene.enqueue()
    scene.checker.cancelled("a")


def written_under_an_old_token(scene: Scene) -> None:
    scene.enqueue()
    claim = scene.claim()
    scene.settled(claim, FAILED)
    scene.settled(claim, DONE)


def written_by_another_worker(scene: Scene) -> None:
    scene.enqueue()
    scene.settled(scene.claim(worker=1), DONE, by=2, worker=2)


def refused_under_its_own_token(scene: Scene) -> None:
    scene.enqueue()
    scene.settled(scene.claim(), DONE, answer=Stale(1, "a", 1))


def receipt_of_another_record(scene: Scene) -> None:
    scene.enqueue()
    claim = scene.claim()
    why = CancelJob(Why("cancelled", "cancel", "p"))
    scene.send(record_of(Ending(claim, DONE, 0.0, 1), why, LINE, STAGES[0]), by=None)
    again = Receipt(1, "a", 1, scene.checker.ledger.jobs[1].state, None, repeated=True)
    scene.settled(claim, DONE, answer=again)


def token_skipped(scene: Scene) -> None:
    scene.enqueue()
    scene.claim(token=5)


def beat_of_the_dead(scene: Scene) -> None:
    scene.show("end_worker", True, 1, DIED)
    scene.show("beat", frozenset({1, 2}), [1, 2])


def turn_of_the_dead(scene: Scene) -> None:
    scene.show("end_worker", True, 1, DIED)
    scene.show("turn", Turn((), ()), [], None, by=1)


def rescued_from_the_living(scene: Scene) -> None:
    scene.enqueue()
    scene.settled(scene.claim(worker=1), Lost(DIED), by=2, worker=1)


def claimed_while_held(scene: Scene) -> None:
    scene.enqueue()
    scene.claim(worker=1)
    scene.claim(worker=2)


def called_dead_too_soon(scene: Scene) -> None:
    scene.world.clock.push(15.0)
    scene.show("mark_dead", (2,), by=1)


def called_dead_while_well(scene: Scene) -> None:
    scene.show("beat", frozenset({2}), [2])
    scene.world.clock.push(15.1)
    scene.show("mark_dead", (2,), by=1)


def tried_too_often(scene: Scene) -> None:
    scene.enqueue()
    for _ in range(2):
        scene.settled(replace(scene.claim(), counters=ZERO), FAILED)
        scene.world.clock.push(60.0)


def counted_as_something_else(scene: Scene) -> None:
    scene.enqueue()
    claim = scene.claim()
    record = settle(Ending(claim, FAILED, 1.0, 1), LINE, STAGES[0], chance=0.5)
    assert record.attempt is not None
    scene.send(replace(record, attempt=replace(record.attempt, counted="waits")), by=1)


def crashed_beside_others(scene: Scene) -> None:
    """Three crashes, but never alone."""
    scene.enqueue()
    for crashes in range(3):
        claim = scene.claim(worker=1)
        scene.checker.ledger.workers[1].die(DIED, 0)
        counters = replace(ZERO, crashes=crashes)
        scene.settled(replace(claim, counters=counters), Lost(DIED), by=2, isolation=0)
        scene.checker.ledger.workers[1].death = None


def claimed_by_the_wrong_role(scene: Scene) -> None:
    scene.enqueue()
    scene.claim(worker=4)


def started_before_the_hint(scene: Scene) -> None:
    scene.enqueue()
    scene.settled(scene.claim(), FAILED, delay_s=1.0)
    scene.world.clock.push(5.0)
    scene.claim()


def started_before_it_was_due(scene: Scene) -> None:
    scene.enqueue()
    scene.settled(scene.claim(), FAILED)
    scene.claim()


def more_than_its_concurrency(scene: Scene) -> None:
    for no in (1, 2, 3):
        scene.enqueue(f"job{no}")
        scene.claim(no=no)


def two_jobs_of_one_key(scene: Scene) -> None:
    scene.enqueue("a", key="k")
    scene.enqueue("b", key="k")


def stage_done_again(scene: Scene) -> None:
    scene.enqueue()
    scene.settled(scene.claim(), DONE)
    scene.claim(stage="one")


def another_input(scene: Scene) -> None:
    scene.enqueue()
    scene.settled(scene.claim(), DONE)
    scene.claim(input_json='{"ok":false}')


def holds_what_it_does_not(scene: Scene) -> None:
    scene.enqueue()
    scene.claim()
    scene.show("tokens_held", {}, 1)


def left_with_a_job(scene: Scene) -> None:
    scene.enqueue()
    scene.claim()
    scene.show("end_worker", True, 1, Death("exited", exit_status=0))


def could_not_be_written(scene: Scene) -> None:
    scene.enqueue()
    scene.settled(scene.claim(), DONE, answer=RecordRefused(1, "a", 1, "UNIQUE"))


def told_and_not_so(scene: Scene) -> None:
    scene.enqueue()
    told = {"job_id": "a", "stage": "one", "attempt": 1}
    scene.checker.told(Event(EventName.JOB_FAILED, told))


def run_by_somebody_else(scene: Scene) -> None:
    scene.enqueue()
    scene.claim(worker=1)
    scene.checker.began("a", 1, 2)


def run_twice(scene: Scene) -> None:
    scene.enqueue()
    scene.claim()
    scene.checker.began("a", 1, 1)
    scene.checker.began("a", 1, 1)


WRONG = [
    ("S1", acknowledged_and_unknown),
    ("S1", answered_for_another),
    ("S2", written_after_its_end),
    ("S2", claimed_after_its_end),
    ("S2", cancelled_only_in_words),
    ("S3", written_under_an_old_token),
    ("S3", written_by_another_worker),
    ("S3", refused_under_its_own_token),
    ("S3", receipt_of_another_record),
    ("S3", token_skipped),
    ("S4", beat_of_the_dead),
    ("S4", turn_of_the_dead),
    ("S5", rescued_from_the_living),
    ("S5", claimed_while_held),
    ("S6", called_dead_too_soon),
    ("S6", called_dead_while_well),
    ("S7", tried_too_often),
    ("S7", counted_as_something_else),
    ("S8", crashed_beside_others),
    ("S8", claimed_by_the_wrong_role),
    ("S9", started_before_the_hint),
    ("S9", started_before_it_was_due),
    ("S10", more_than_its_concurrency),
    ("S12", two_jobs_of_one_key),
    ("S14", stage_done_again),
    ("S14", another_input),
    ("S15", holds_what_it_does_not),
    ("L6", left_with_a_job),
    ("E1", could_not_be_written),
    ("E2", told_and_not_so),
    ("E3", run_by_somebody_else),
    ("E3", run_twice),
]


@pytest.mark.parametrize(
    ("invariant", "history"), WRONG, ids=[f"{name}: {one.__name__}" for name, one in WRONG]
)
def test_a_wrong_history_is_named(invariant, history):
    with pytest.raises(Violation) as found:
        history(Scene())
    assert found.value.invariant == invariant, str(found.value)


JUDGES = {
    "Checker": Checker, "Deeds": Deeds, "Gates": Gates, "Letters": Letters, "Roster": Roster,
    "Feed": Feed, "Probes": Probes, "Runs": Runs, "Simulation": Simulation, "Completing": Completing, "Remote": Remote,
}  # fmt: skip


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_an_invariant_is_checked_where_it_is_said_to_be(invariant):
    for place in INVARIANTS[invariant].checked_by:
        owner, _, name = place.partition(".")
        judge = getattr(JUDGES.get(owner) or import_module(f"tests.sim.{owner}"), name)
        assert f'"{invariant}"' in inspect.getsource(judge), place


JUDGED = """
add_bulk add_run add_worker beat begin bulks cancel change_bulk change_gate change_run change_slices claims_held discard
drop_schedule end_worker enqueue lanes lost_claims mark_dead note_check note_feeding now overrun pause probe prune
prune_workers put_schedule resume revive run run_lanes run_now runs seal_run settle step_bulk take_duty tick tokens_held turn
"""


def test_a_call_that_was_renamed_has_not_lost_its_judge():
    """A judge is found by the name of the call; one that nobody finds would judge nothing, and say so to nobody."""
    judges = [one for name, one in JUDGES.items() if name not in ("Probes", "Simulation", "Remote")]
    found = {call for call in WRITES | READS if any(hasattr(judge, f"_{call}") for judge in judges)}
    assert found == set(JUDGED.split())


def test_the_invariants_that_were_promised_are_all_there():
    promised = {f"S{n}" for n in (*range(1, 17), 19)} | {"L1", "L2"}
    assert promised <= set(INVARIANTS)


def test_every_invariant_has_a_wrong_history_or_a_mutant():
    by_mutants = {
        name for one in (*THE_FOUR, *OTHERS, *MORE, *GATES, *BOOKS) for name in one.caught_by
    }
    assert {name for name, _ in (*WRONG, *WRONG_DEEDS)} | by_mutants == set(INVARIANTS)
