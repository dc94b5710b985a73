"""Runs: made, found again, aborted when overspent, ended when all is in and nothing open, cancelled by pages."""

from random import Random

import pytest

from perdure.engine.batch.runs import (
    Runs,
    RunSettings,
    changed_settings,
    find_run,
    settings_of,
    tally_of,
)
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep import run_watch as chore
from perdure.engine.upkeep.run_watch import RunWatch
from perdure.engine.worker.lanes import RunLanes
from perdure.model.errors import (
    CallerError,
    NotChangeable,
    NotRetriable,
    RunAborted,
    UnknownName,
)
from perdure.model.events import EventName
from perdure.model.jobs import ClaimOrder
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.runs import NANO, RunStatus, RunView
from perdure.model.states import State
from tests.engine.kit import Notes, line_on, stage
from tests.engine.operate.dead_kit import Hurried, retried
from tests.stores.kit import DEED, Place, advance, failure, success

_chance = Random(2)


@pytest.fixture
def known(place):
    return Catalogue([line_on(place)])


@pytest.fixture
def worker(place):
    return place.hire()


def verbs(place, *, through=None, notes=None) -> Runs:
    observers = Observers([notes] if notes else [])
    return Runs(place.store, through or place.control, place.reader, observers)


def opened(place, known, name="batch", *, through=None, owner="ann", **options) -> RunView:
    return (
        verbs(place, through=through)
        .open(
            known.pipeline("p"),
            Ids(place.clock, _chance),
            name=name,
            owner=owner,
            options=options,
            deed=DEED,
        )
        .run
    )


def put(place: Place, known: Catalogue, run: RunView, count: int) -> None:
    known.learn(place.store.run_lanes())
    lanes = [no for no, lane in place.store.run_lanes().items() if lane.run == run.no]
    first = next(no for no in lanes if place.store.run_lanes()[no].stage == "one")
    place.put_many(count, run=run.no, lane=first, owner="ann")


def claimed(place: Place, worker: int, count: int = 500):
    order = ClaimOrder(worker, count, tuple(place.store.run_lanes()))
    return place.store.turn([], order, by=worker).claims


def ended(place: Place, worker: int, *, good: int, bad: int, kind: str = "network") -> None:
    claims = claimed(place, worker, good + bad)
    for claim in claims[:good]:
        place.settle(success(claim, worker), by=worker)
    for claim in claims[good:]:
        place.settle(replace(failure(claim, worker), error_kind=kind), by=worker)


def paid(claim, worker: int, cost_usd: float):
    done = success(claim, worker)
    return replace(done, attempt=replace(done.attempt, cost_nusd=round(cost_usd * NANO)))


def watch(place: Place, known: Catalogue, *, through=None, notes=None) -> RunWatch:
    observers = Observers([notes] if notes else [])
    return RunWatch(place.store, through or place.control, place.reader, known, observers=observers)


def now(place: Place, run: RunView) -> RunView:
    found = place.reader.run(run.id)
    assert found is not None
    return found


# -- making and finding --------------------------------------------------------------------


def test_a_run_has_a_lane_for_every_stage(place, known):
    run = opened(place, known)
    lanes = place.store.run_lanes()
    assert {(lane.stage, lane.run) for lane in lanes.values()} == {("one", run.no), ("two", run.no)}


def test_the_same_name_is_the_same_run_with_what_is_said_now(place, known):
    run = opened(place, known, failure_budget=0.2, check_every=50)
    again = opened(place, known, failure_budget=0.3)
    assert (again.id, settings_of(again).failure_budget, settings_of(again).check_every) == (
        run.id,
        0.3,
        50,
    )


def test_another_owner_or_no_name_is_another_run(place, known):
    run = opened(place, known)
    assert opened(place, known, owner="bob").id != run.id
    nameless = opened(place, known, name=None)
    assert nameless.name == nameless.id
    assert opened(place, known, name=None).id != nameless.id


def test_a_completed_run_takes_items_again_under_its_name(place, known):
    run = verbs(place).seal(opened(place, known))
    assert run.status is RunStatus.COMPLETED
    again = opened(place, known)
    assert (again.no, again.status, again.sealed_at) == (run.no, RunStatus.RUNNING, None)


def test_a_run_that_another_seals_as_it_is_opened_again_was_sealed(place, known, worker):
    """Or nobody would seal it again, if whoever opened it has nothing new."""
    run = opened(place, known)
    put(place, known, run, 1)
    line, ids = known.pipeline("p"), Ids(place.clock, _chance)
    for status in (RunStatus.RUNNING, RunStatus.COMPLETED):
        other = Hurried(place, change_run=[lambda: verbs(place).seal(run)])
        again = verbs(place, through=other).open(
            line, ids, name="batch", owner="ann", options={}, deed=DEED
        )
        assert (again.was_sealed, again.run.sealed_at, again.run.no) == (True, None, run.no)
        if status is RunStatus.RUNNING:
            ended(place, worker, good=1, bad=0)


def test_a_paused_run_stays_paused_while_items_are_added(place, known):
    run = verbs(place).pause(opened(place, known), Deed("ann", "lunch"))
    again = opened(place, known)
    assert (again.status, again.why) == (RunStatus.PAUSED, "lunch")
    assert run.no == again.no


def test_a_cancelled_run_is_not_taken_up_again(place, known):
    verbs(place).cancel(opened(place, known), DEED)
    with pytest.raises(NotChangeable, match="run 'batch' of pipeline 'p' was cancelled"):
        opened(place, known)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"failure_budget": 1.5}, "failure_budget is 1.5; it must be a number between 0 and 1"),
        ({"check_every": 0}, "check_every is 0"),
        ({"sample_min": -1}, "sample_min is -1"),
        (
            {"kinds": {"weather": 0.1}},
            "failure_budgets names 'weather', which is no kind of failure; ",
        ),
        ({"kinds": {"network": 7}}, r"failure_budgets\['network'\] is 7"),
        ({"partial_at": 0.99}, "partial_at is 0.99; it must be a number between 0 and 0.95"),
        ({"cost_max_usd": -1}, "cost_max_usd is -1"),
    ],
)
def test_settings_that_make_no_sense_are_named(place, known, options, words):
    with pytest.raises(CallerError, match=words):
        opened(place, known, **options)
    assert place.reader.runs() == []


def test_a_run_is_found_by_id_number_or_name(place, known):
    run = opened(place, known)
    for named in (run.id, str(run.no), "batch"):
        assert find_run(place.reader, named).id == run.id
    with pytest.raises(UnknownName, match="no run 'nothing'; see: perdure runs list"):
        find_run(place.reader, "nothing")
    opened(place, known, owner="bob")
    with pytest.raises(CallerError, match="2 runs are called 'batch'; name one by its id"):
        find_run(place.reader, "batch")


# -- its end -------------------------------------------------------------------------------


def test_a_run_without_items_is_completed_when_it_is_sealed(place, known):
    run = verbs(place).seal(opened(place, known))
    assert (run.status, run.why) == (RunStatus.COMPLETED, "0 of 0 succeeded, 0 failed")
    assert run.ended_at is not None
    assert place.store.run_lanes() == {}


@pytest.mark.parametrize(
    ("good", "bad", "status"),
    [
        (20, 0, RunStatus.COMPLETED),
        (19, 1, RunStatus.COMPLETED),
        (18, 2, RunStatus.PARTIAL_SUCCESS),
        (10, 10, RunStatus.PARTIAL_SUCCESS),
        (9, 11, RunStatus.FAILED),
        (0, 20, RunStatus.FAILED),
    ],
)
def test_a_run_is_called_by_its_share_of_success(place, known, worker, good, bad, status):
    run = opened(place, known)
    put(place, known, run, 20)
    verbs(place).seal(run)
    ended(place, worker, good=good, bad=bad)
    notes = Notes()
    watch(place, known, notes=notes).once()
    over = now(place, run)
    assert over.status is status
    assert over.why == f"{good} of 20 succeeded, {bad} failed"
    (told,) = notes.of(EventName.RUN_CHANGED)
    assert (told["status"], told["before"], told["total"]) == (status.value, "running", 20)
    place.clean()


def test_a_run_whose_items_are_not_all_in_does_not_end(place, known, worker):
    run = opened(place, known)
    put(place, known, run, 2)
    ended(place, worker, good=2, bad=0)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING
    assert verbs(place).seal(run).status is RunStatus.COMPLETED


def test_an_item_that_comes_in_between_keeps_the_run_from_ending(place, known, worker):
    run = opened(place, known)
    place.control.seal_run(run.no)
    other = Hurried(place, change_run=[lambda: put(place, known, run, 1)])
    watch(place, known, through=other).once()
    assert now(place, run).status is RunStatus.RUNNING
    place.clean()


def test_cancelled_items_are_not_wanted_and_do_not_count(place, known, worker):
    run = opened(place, known)
    put(place, known, run, 4)
    verbs(place).seal(run)
    ended(place, worker, good=1, bad=0)
    from perdure.engine.operate.single_jobs import cancel

    for job in place.reader.jobs():
        if job.state is State.QUEUED:
            cancel(place.control, place.reader, known, job.id, deed=DEED)
    watch(place, known).once()
    over = now(place, run)
    assert (over.status, over.why) == (
        RunStatus.COMPLETED,
        "1 of 4 succeeded, 0 failed, 3 cancelled",
    )


# -- budgets -------------------------------------------------------------------------------


def test_a_run_over_its_budget_is_aborted_with_the_figures_and_keeps_the_rest(place, known, worker):
    run = opened(place, known, failure_budget=0.1, check_every=20, sample_min=10)
    put(place, known, run, 50)
    verbs(place).seal(run)
    ended(place, worker, good=17, bad=3)
    notes = Notes()
    watch(place, known, notes=notes).once()
    over = now(place, run)
    assert over.status is RunStatus.ABORTED
    assert over.why == (
        "aborted: the rate of failures is 15 %, the budget is 10 % (20 processed, 3 failed)"
    )
    assert over.counts.open == 30
    assert claimed(place, worker) == ()
    assert notes.of(EventName.RUN_CHANGED)[0]["reason"] == over.why
    place.clean()


def test_between_two_checks_nothing_is_aborted(place, known, worker):
    run = opened(place, known, failure_budget=0.1, check_every=20, sample_min=1)
    put(place, known, run, 50)
    ended(place, worker, good=1, bad=0)
    watch(place, known).once()
    ended(place, worker, good=0, bad=18)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING
    ended(place, worker, good=1, bad=0)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.ABORTED


def test_a_run_of_five_hundred_items_that_all_fail_is_aborted_after_the_sample(
    place, known, worker
):
    run = opened(place, known, failure_budget=0.1)
    put(place, known, run, 500)
    verbs(place).seal(run)
    ended(place, worker, good=0, bad=99)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING
    ended(place, worker, good=0, bad=1)
    watch(place, known).once()
    over = now(place, run)
    assert (over.status, over.counts.open) == (RunStatus.ABORTED, 400)
    assert "(100 processed, 100 failed)" in over.why


def test_a_sample_that_rate_limits_leave_too_small_is_looked_at_when_it_is_whole(
    place, known, worker
):
    run = opened(place, known, failure_budget=0.1, sample_min=10, rate_limits=False)
    put(place, known, run, 50)
    ended(place, worker, good=0, bad=9, kind="rate_limited")
    ended(place, worker, good=0, bad=9)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING
    ended(place, worker, good=0, bad=1)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.ABORTED


OWN, THEIRS = '{"origin":"own code"}', '{"origin":"library"}'


def fallen(
    place: Place,
    worker: int,
    count: int,
    *,
    evidence: str = OWN,
    mark: str | None = "f",
    kind: str = "unknown",
) -> None:
    """So many items fail with this evidence, fingerprint and kind."""
    for claim in claimed(place, worker, count):
        record = replace(failure(claim, worker), error_kind=kind, fingerprint=mark)
        attempt = replace(record.attempt, evidence_json=evidence)
        place.settle(replace(record, attempt=attempt), by=worker)


def test_a_run_whose_first_items_all_fail_alike_in_own_code_is_given_up_early_and_says_so(
    place, known, worker
):
    run = opened(place, known)
    put(place, known, run, 50)
    verbs(place).seal(run)
    fallen(place, worker, 19)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING
    fallen(place, worker, 1)
    watch(place, known).once()
    over = now(place, run)
    assert over.status is RunStatus.ABORTED
    assert over.why == (
        "aborted: the first 20 items have all failed in the same way, in the code of stage 'one' itself"
    )
    place.clean()


@pytest.mark.parametrize("kind", ["overloaded", "timeout", "invalid_output"])
def test_a_failure_that_a_stage_calls_by_its_kind_is_not_taken_for_a_defect_of_it(
    place, known, worker, kind
):
    run = opened(place, known)
    put(place, known, run, 50)
    fallen(place, worker, 20, kind=kind)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING


def test_all_that_have_failed_are_looked_at_before_a_run_is_given_up_early(place, known, worker):
    run = opened(place, known, name="one differs")
    put(place, known, run, 50)
    fallen(place, worker, 1, mark="another")
    fallen(place, worker, 29)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING
    alike = opened(place, known, name="alike")
    cancelled = verbs(place).cancel(now(place, run), DEED)
    assert cancelled.status is RunStatus.CANCELLED
    put(place, known, alike, 50)
    fallen(place, worker, 30)
    watch(place, known).once()
    assert "the first 30 items have all failed" in now(place, alike).why


def test_a_run_that_was_given_up_early_goes_on_when_it_is_resumed(place, known, worker):
    run = opened(place, known)
    put(place, known, run, 50)
    fallen(place, worker, 20)
    watch(place, known).once()
    verbs(place).resume(now(place, run), DEED)
    fallen(place, worker, 1)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"evidence": THEIRS}, {}),
        ({"mark": "another"}, {}),
        ({}, {"evidence": "{}"}),
        ({"mark": None}, {"mark": None}),
    ],
)
def test_first_items_that_fail_otherwise_or_by_somebody_elses_fault_are_looked_at_once(
    place, known, worker, first, then
):
    run = opened(place, known)
    put(place, known, run, 50)
    fallen(place, worker, 1, **first)
    fallen(place, worker, 19, **then)
    watch(place, known).once()
    seen = now(place, run)
    assert (seen.status, seen.checked) == (RunStatus.RUNNING, 20)
    fallen(place, worker, 20)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING


def test_a_check_that_was_passed_is_not_made_again_by_another_worker(place, known, worker):
    run = opened(place, known, failure_budget=0.5, check_every=10, sample_min=1)
    put(place, known, run, 30)
    ended(place, worker, good=10, bad=0)
    watch(place, known).once()
    assert now(place, run).checked == 10
    ended(place, worker, good=0, bad=9)  # 9 of 19: not yet at the next check
    place.control.note_check(run.no, 3)
    assert now(place, run).checked == 10


def test_the_budget_looks_at_all_that_was_processed_and_not_at_the_last_chunk(place, known, worker):
    run = opened(place, known, failure_budget=0.2, check_every=10, sample_min=1)
    put(place, known, run, 100)
    for _ in range(4):  # two of each ten fail: 20 %, at the budget and not over it
        ended(place, worker, good=8, bad=2)
        watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING
    ended(place, worker, good=7, bad=3)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.ABORTED  # 11 of 50; of the last ten, 30 %


def test_single_kinds_have_budgets_of_their_own(place, known, worker):
    run = opened(
        place,
        known,
        failure_budget=1.0,
        kinds={"invalid_output": 0.1},
        check_every=10,
        sample_min=5,
    )
    put(place, known, run, 30)
    ended(place, worker, good=0, bad=10, kind="network")
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING
    ended(place, worker, good=7, bad=3, kind="invalid_output")
    watch(place, known).once()
    assert now(place, run).why == (
        "aborted: the rate of invalid_output failures is 15 %, the budget is 10 % "
        "(20 processed, 3 failed)"
    )


def test_rate_limits_can_be_left_out(place, known, worker):
    run = opened(place, known, failure_budget=0.1, rate_limits=False, check_every=10, sample_min=5)
    put(place, known, run, 30)
    ended(place, worker, good=0, bad=10, kind="rate_limited")
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING


def test_without_a_budget_failures_never_end_it(place, known, worker):
    run = opened(place, known, failure_budget=None, check_every=10, sample_min=5)
    put(place, known, run, 30)
    ended(place, worker, good=0, bad=20)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING


def test_without_a_budget_of_all_failures_that_of_a_kind_still_ends_it(place, known, worker):
    run = opened(
        place, known, failure_budget=None, kinds={"network": 0.5}, check_every=10, sample_min=5
    )
    put(place, known, run, 30)
    ended(place, worker, good=0, bad=10, kind="timeout")
    watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING
    ended(place, worker, good=0, bad=20, kind="network")
    watch(place, known).once()
    assert now(place, run).status is RunStatus.ABORTED


def test_a_run_that_costs_too_much_is_aborted(place, known, worker):
    run = opened(place, known, cost_max_usd=0.10)
    put(place, known, run, 10)
    for cost_usd in (0.06, 0.04):
        (claim,) = claimed(place, worker, 1)
        place.settle(paid(claim, worker, cost_usd), by=worker)
        watch(place, known).once()
    assert now(place, run).status is RunStatus.RUNNING
    assert now(place, run).counts.cost_usd == pytest.approx(0.10)
    (claim,) = claimed(place, worker, 1)
    place.settle(paid(claim, worker, 0.01), by=worker)
    watch(place, known).once()
    assert now(place, run).why == (
        "aborted: the cost is $0.1100, the budget is $0.1000 (3 processed, 0 failed)"
    )
    with pytest.raises(RunAborted, match="the cost is"):
        verbs(place).resume(now(place, run), DEED)
    assert verbs(place).resume(now(place, run), DEED, {"cost_max_usd": 1.0}).status == "running"


def test_an_aborted_run_is_resumed_with_a_larger_budget_and_not_without(place, known, worker):
    run = opened(place, known, failure_budget=0.1, check_every=10, sample_min=5)
    put(place, known, run, 30)
    verbs(place).seal(run)
    ended(place, worker, good=5, bad=5)
    watch(place, known).once()
    with pytest.raises(RunAborted, match="the rate of failures is 50 %, the budget is 40 %"):
        verbs(place).resume(now(place, run), DEED, {"failure_budget": 0.4})
    with pytest.raises(RunAborted, match="give it a larger budget to go on with it"):
        opened(place, known)
    resumed = verbs(place).resume(now(place, run), DEED, {"failure_budget": 0.6})
    assert (resumed.status, resumed.why, resumed.sealed_at is not None) == ("running", "", True)
    ended(place, worker, good=20, bad=0)
    watch(place, known).once()
    assert now(place, run).status is RunStatus.PARTIAL_SUCCESS


def test_the_same_call_with_a_larger_budget_goes_on_with_an_aborted_run(place, known, worker):
    run = opened(place, known, failure_budget=0.1, check_every=10, sample_min=5)
    put(place, known, run, 30)
    ended(place, worker, good=5, bad=5)
    watch(place, known).once()
    again = opened(place, known, failure_budget=0.6)
    assert (again.no, again.status) == (run.no, RunStatus.RUNNING)
    assert len(claimed(place, worker)) == 20


def test_a_kind_that_is_not_known_here_is_counted_as_unknown(place, known):
    run = opened(place, known)
    odd = replace(run, kinds={"from_the_future": 2, "unknown": 1, "network": 4})
    assert dict(tally_of(odd).failures) == {Kind.UNKNOWN: 3, Kind.NETWORK: 4}


# -- verbs ---------------------------------------------------------------------------------


def test_a_paused_run_is_claimed_from_when_it_is_resumed(place, known, worker):
    run = opened(place, known)
    put(place, known, run, 1)
    paused = verbs(place).pause(run, Deed("ann", "lunch"))
    assert (paused.status, paused.why) == (RunStatus.PAUSED, "lunch")
    assert claimed(place, worker) == ()
    watch(place, known).once()
    assert verbs(place).resume(paused, DEED).status is RunStatus.RUNNING
    assert len(claimed(place, worker)) == 1


def test_verbs_that_do_not_fit_say_what_the_run_is(place, known):
    run = opened(place, known)
    with pytest.raises(NotChangeable, match="is running; it cannot be resumed; only a paused or"):
        verbs(place).resume(run, DEED)
    over = verbs(place).seal(run)
    with pytest.raises(NotChangeable, match="is completed; it cannot be paused; only a running"):
        verbs(place).pause(over, DEED)
    with pytest.raises(NotChangeable, match="is completed; it cannot be cancelled, because it is"):
        verbs(place).cancel(over, DEED)


def test_a_verb_looks_again_when_the_run_has_moved_on(place, known):
    run = opened(place, known)
    other = Hurried(place, change_run=[lambda: verbs(place).pause(run, DEED)])
    assert verbs(place, through=other).cancel(run, DEED).status is RunStatus.CANCELLED


def test_a_cancelled_run_is_cleared_page_by_page_and_then_over(place, known, worker, monkeypatch):
    monkeypatch.setattr(chore, "_PAGE", 3)
    run = opened(place, known)
    put(place, known, run, 8)
    ended(place, worker, good=1, bad=1)
    (running,) = claimed(place, worker, 1)
    verbs(place).cancel(run, Deed("ann", "wrong file"))
    assert claimed(place, worker) == ()
    notes = Notes()
    looking = watch(place, known, notes=notes)
    swept = [looking.once() for _ in range(4)]
    assert [(one.jobs, one.more) for one in swept] == [(3, True), (3, True), (0, False), (0, False)]
    over = now(place, run)
    assert (over.counts.cancelled, over.counts.succeeded, over.counts.failed) == (6, 1, 1)
    assert over.ended_at is not None
    assert place.settle(success(running, worker), by=worker)[0].__class__.__name__ == "Stale"
    assert len(notes.of(EventName.JOB_CANCELLED)) == 6
    assert place.store.run_lanes() == {}
    place.clean()


def test_a_dead_letter_of_a_cancelled_run_is_not_put_back_into_it(place, known, worker):
    run = opened(place, known)
    put(place, known, run, 1)
    ended(place, worker, good=0, bad=1)
    verbs(place).cancel(run, DEED)
    watch(place, known).once()
    with pytest.raises(NotRetriable, match="its run 'batch' was cancelled; drive it again in"):
        retried(place, known, place.reader.jobs()[0].id)


def test_a_cancelled_run_of_another_app_is_left_to_it(place, known, worker):
    run = opened(place, known)
    put(place, known, run, 2)
    verbs(place).cancel(run, DEED)
    watch(place, Catalogue([])).once()
    assert now(place, run).counts.open == 2


# -- lanes ---------------------------------------------------------------------------------


def test_a_job_of_a_run_goes_on_in_the_lanes_of_its_run(place, known, worker):
    run = opened(place, known)
    put(place, known, run, 1)
    (claim,) = claimed(place, worker)
    line = known.pipeline("p")
    lane = line.lane_beside(claim.lane, "two")
    assert place.store.run_lanes()[lane].stage == "two"
    place.settle(advance(claim, worker, lane=lane), by=worker)
    (second,) = claimed(place, worker)
    assert (second.stage, second.lane, second.run) == ("two", lane, run.no)
    assert line.lane_beside(place.lanes["one"], "two") == place.lanes["two"]


def test_a_worker_learns_of_new_runs_and_forgets_those_that_are_over(place, known):
    lanes = RunLanes(place.store, known, None)
    own = known.lane_nos()
    assert not lanes.learn(0.0, told=False)
    run = opened(place, known)
    assert not lanes.learn(0.1, told=False)  # a moment ago
    assert lanes.learn(0.1, told=True)
    (one, two) = sorted(set(known.lane_nos()) - set(own))
    assert (known.run_of(one), known.run_of(two)) == (run.no, run.no)
    assert known.timeouts_s()[one] == 60.0
    verbs(place).seal(run)
    assert not lanes.learn(9.0, told=False)
    assert known.lane_nos() == own
    assert known.run_of(one) is None


def test_a_stage_that_a_pipeline_has_got_since_has_a_lane_in_its_runs_too(place, known):
    run = opened(place, known)
    newer = line_on(place, stage("one"), stage("two"), stage("three"))
    newer.lane_nos.update(
        place.store.lanes(newer.lanes())
        and {lane.stage: no for lane, no in place.store.lanes(newer.lanes()).items()}
    )
    catalogue = Catalogue([newer])
    RunLanes(place.store, catalogue, None).learn(0.0, told=False)
    stages = {lane.stage for lane in place.store.run_lanes().values() if lane.run == run.no}
    assert stages == {"one", "two", "three"}
    assert len(catalogue.lane_nos()) == 6


def test_a_worker_of_other_queues_leaves_the_lanes_of_a_run(place, known):
    opened(place, known)
    elsewhere = Catalogue([line_on(place)]).only(queues=["other"])
    RunLanes(place.store, elsewhere, None).learn(0.0, told=False)
    assert elsewhere.lane_nos() == ()


def test_runs_are_looked_after_soon_and_not_all_the_time(place, known):
    looks = []
    lanes = RunLanes(place.store, known, lambda: looks.append(1))
    lanes.learn(0.0, told=False)
    lanes.look(0.0, 0)
    assert not looks  # no job has ended
    lanes.look(0.0, 1)
    assert len(looks) == 1
    lanes.look(0.1, 2)
    assert len(looks) == 1
    assert lanes.rest_s_max(0.1, 2) == pytest.approx(0.1)
    lanes.look(0.2, 2)
    assert len(looks) == 2
    assert lanes.rest_s_max(0.3, 2) > 0.1


def test_settings_are_changed_by_what_is_given_alone():
    before = RunSettings(failure_budget=0.3, kinds={"network": 0.2})
    assert changed_settings(before, {"check_every": 7}) == RunSettings(
        failure_budget=0.3, kinds={"network": 0.2}, check_every=7
    )
