"""Where a failed job goes on: its stage, its lane, whose result it takes, and what is forgotten."""

import pytest

from perdure.engine.operate.revival import FAILED_STAGE, FROM_START, ChildRun, Restart, Revivals
from perdure.engine.stages import Catalogue, LaidPipeline
from perdure.model.errors import NotRetriable, UnknownName
from perdure.model.jobs import Claim, Lane
from perdure.model.operations import Revival
from perdure.model.runs import NewRun
from perdure.model.states import State
from tests.engine.kit import line_on, stage
from tests.stores.kit import DEED, MEMORY, Place, advance, failure, success

STAGES = ("one", "two", "three")


@pytest.fixture
def place():
    """A pipeline of three stages."""
    place = Place(MEMORY, stages=STAGES)
    yield place
    place.close()


@pytest.fixture
def worker(place):
    return place.hire()


def walk(place: Place, worker: int, claim: Claim, upto: str) -> None:
    """Take a claimed job through the stages and let it fail at one."""
    while claim.stage != upto:
        following = STAGES[STAGES.index(claim.stage) + 1]
        lane = place.lanes[following]
        (receipt,) = place.settle(
            advance(claim, worker, lane, stage=following, reclaim=True), by=worker
        )
        claim = receipt.claim
    place.settle(failure(claim, worker), by=worker)


def failed_at(place: Place, worker: int, name: str, **changes: object):
    id = place.put(**changes).id
    (claim,) = place.take(worker)
    walk(place, worker, claim, name)
    return place.see(id)


def revived(place: Place, job, restart: Restart = FAILED_STAGE, **options: object) -> Revival:
    known = options.pop("known", Catalogue([line_on(place)]))
    return Revivals(place.reader, known, restart, **options).of(job)


@pytest.mark.parametrize(
    ("failed", "restart", "stage", "input_from", "forgotten"),
    [
        ("one", FAILED_STAGE, "one", None, STAGES),
        ("two", FAILED_STAGE, "two", "one", ("two", "three")),
        ("three", FAILED_STAGE, "three", "two", ("three",)),
        ("three", FROM_START, "one", None, STAGES),
        ("three", Restart("two"), "two", "one", ("two", "three")),
        ("three", Restart("one"), "one", None, STAGES),
        ("three", Restart("three"), "three", "two", ("three",)),
        ("one", FROM_START, "one", None, STAGES),
    ],
)
def test_a_job_goes_on_where_it_is_told_to(
    place, worker, failed, restart, stage, input_from, forgotten
):
    job = failed_at(place, worker, failed)
    found = revived(place, job, restart)
    assert (found.stage, found.input_from, found.forgotten) == (stage, input_from, forgotten)
    assert (found.no, found.id, found.token) == (job.no, job.id, job.token)
    assert (found.lane, found.redrive_run) == (place.lanes[stage], None)


@pytest.mark.parametrize("restart", [FAILED_STAGE, FROM_START, Restart("two")])
def test_a_revived_job_runs_to_its_end_on_real_results(place, worker, restart):
    job = failed_at(place, worker, "three")
    place.control.revive([revived(place, job, restart)], DEED)
    (claim,) = place.take(worker)
    assert claim.input_json == ('{"n":1}' if claim.stage == "one" else '{"from":"one"}')
    while claim.stage != "three":
        following = STAGES[STAGES.index(claim.stage) + 1]
        record = advance(claim, worker, place.lanes[following], stage=following, reclaim=True)
        (receipt,) = place.settle(record, by=worker)
        claim = receipt.claim
    place.settle(success(claim, worker), by=worker)
    assert place.see(job.id).state is State.SUCCEEDED
    place.clean()


def test_a_stage_that_the_job_has_not_reached_is_refused(place, worker):
    job = failed_at(place, worker, "two")
    with pytest.raises(
        NotRetriable, match=r"has not reached 'three'; retry it from one of: one, two"
    ):
        revived(place, job, Restart("three"))


def test_a_stage_that_the_pipeline_does_not_have_is_named(place, worker):
    job = failed_at(place, worker, "two")
    with pytest.raises(UnknownName, match="has no stage 'four'; it has: one, two, three"):
        revived(place, job, Restart("four"))


@pytest.mark.parametrize("end", [success, None])
def test_only_a_failed_job_is_revived(place, worker, end):
    id = place.put().id
    if end is not None:
        (claim,) = place.take(worker)
        place.settle(end(claim, worker), by=worker)
    with pytest.raises(NotRetriable, match=r"is (succeeded|queued); only a failed job"):
        revived(place, place.see(id))


# -- pipelines that have changed, or are not ours --------------------------------------------


def changed(place: Place, *names: str) -> Catalogue:
    lanes = dict(place.lanes) | {name: 90 + n for n, name in enumerate(names) if name not in STAGES}
    return Catalogue([LaidPipeline("p", "q", "c", tuple(stage(name) for name in names), lanes)])


def test_a_stage_that_was_taken_out_is_no_place_to_go_on(place, worker):
    job = failed_at(place, worker, "two")
    known = changed(place, "one", "three")
    with pytest.raises(UnknownName, match="has no stage 'two'; it has: one, three"):
        revived(place, job, known=known)
    assert revived(place, job, FROM_START, known=known).stage == "one"
    assert revived(place, job, Restart("three"), known=known).input_from == "one"


def test_a_stage_that_was_put_in_before_has_left_no_result(place, worker):
    job = failed_at(place, worker, "three")
    known = changed(place, "one", "new", "two", "three")
    with pytest.raises(
        NotRetriable, match="no result of stage 'new', which stage 'two' begins with"
    ):
        revived(place, job, Restart("two"), known=known)
    again = revived(place, job, Restart("new"), known=known)
    assert (again.input_from, again.lane) == ("one", 91)


def test_the_failed_stage_keeps_the_result_it_stood_on_whatever_comes_before_it_now(place, worker):
    job = failed_at(place, worker, "three")
    found = revived(place, job, known=changed(place, "one", "two", "new", "three"))
    assert (found.stage, found.input_from, found.forgotten) == ("three", "two", ("three",))


def test_a_result_that_is_needed_is_not_forgotten_when_the_order_has_changed(place, worker):
    job = failed_at(place, worker, "two")
    found = revived(place, job, known=changed(place, "two", "one", "three"))
    assert (found.input_from, found.forgotten) == ("one", ("two", "three"))


def test_a_job_of_another_app_is_revived_at_its_failed_stage_only(place, worker):
    job = failed_at(place, worker, "two")
    found = revived(place, job, known=Catalogue([]))
    assert (found.stage, found.lane, found.input_from, found.forgotten) == (
        "two",
        place.lanes["two"],
        "one",
        (),
    )
    for restart in (FROM_START, Restart("one")):
        with pytest.raises(UnknownName, match="from the app that has it"):
            revived(place, job, restart, known=Catalogue([]))


def test_a_job_whose_lane_was_moved_to_another_queue_goes_where_workers_look(place, worker):
    job = failed_at(place, worker, "one")
    moved = LaidPipeline(
        "p", "other", "c", tuple(stage(name) for name in STAGES), dict.fromkeys(STAGES, 77)
    )
    assert revived(place, job, known=Catalogue([moved])).lane == 77


# -- runs ------------------------------------------------------------------------------------


@pytest.fixture
def run(place):
    return place.control.add_run(NewRun(place.id_of(900), "", "p", "first"))


def in_run(place, worker, run, name: str, lanes: dict[str, int]):
    """A job of a run, failed in the run's own lane of that stage."""
    id = place.put(run=run.no, lane=lanes["one"]).id
    place.lanes, own = lanes, place.lanes
    (claim,) = place.take(worker)
    walk(place, worker, claim, name)
    place.lanes = own
    return place.see(id)


def test_a_job_of_a_run_stays_in_its_lanes(place, worker, run):
    wanted = [Lane("q", "c", "p", name, run.no, f"model of {name}") for name in STAGES]
    lanes = {lane.stage: no for lane, no in place.store.lanes(wanted).items()}
    job = in_run(place, worker, run, "two", lanes)
    assert revived(place, job).lane == lanes["two"]
    assert revived(place, job, FROM_START).lane == lanes["one"]


def test_a_run_without_a_lane_for_the_stage_is_told(place, worker, run):
    lanes = place.lanes_of("p", run=run.no)
    job = in_run(place, worker, run, "two", lanes)
    place.damage(f"DELETE FROM perdure_lanes WHERE no = {lanes['one']}")
    with pytest.raises(NotRetriable, match="no lane for stage 'one'; retry it at its failed stage"):
        revived(place, job, FROM_START)


def test_a_dead_letter_that_is_driven_again_counts_in_both_runs(place, worker, run):
    lanes = place.lanes_of("p", run=run.no)
    job = in_run(place, worker, run, "two", lanes)
    second = place.control.add_run(NewRun(place.id_of(901), "", "p", "again", parent=run.no))
    child = ChildRun(second.no, "p", place.lanes_of("p", run=second.no))
    found = revived(place, job, child=child)
    assert (found.lane, found.redrive_run) == (child.lane_nos["two"], second.no)
    place.control.revive([found], DEED)
    job = place.see(job.id)
    assert (job.run, job.redrive_run, job.lane) == (run.no, second.no, child.lane_nos["two"])
    counts = [place.reader.run(one.id).counts for one in (run, second)]
    assert [(one.total, one.failed, one.open) for one in counts] == [(1, 0, 1), (1, 0, 1)]
    place.clean()


def test_a_run_of_another_pipeline_drives_nothing_of_ours(place, worker):
    job = failed_at(place, worker, "one")
    with pytest.raises(NotRetriable, match="in run 7, which is of pipeline 'other'"):
        revived(place, job, child=ChildRun(7, "other", {"one": 5}))
