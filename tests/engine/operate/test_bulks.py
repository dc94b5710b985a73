"""Dead letters by filter, driven again and discarded: each once, whoever else is at it, whenever we die."""

from random import Random

import msgspec
import pytest

from perdure.engine.batch.runs import Runs
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.operate import bulks as bulks_module
from perdure.engine.operate.bulk_settings import BulkSettings
from perdure.engine.operate.bulks import Bulks
from perdure.engine.operate.eligible import Previewing, dead_letters, source_check
from perdure.engine.operate.revival import Revivals
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.bulk_duty import BulkSteps, catch_up, revivals_waiting
from perdure.engine.upkeep.run_watch import RunWatch
from perdure.model.errors import CallerError, NotChangeable, NotRetriable, StoreUnavailable
from perdure.model.events import EventName
from perdure.model.filters import EVERY_JOB, JobFilter
from perdure.model.jobs import Claim, ClaimOrder, Stale
from perdure.model.nouns import replace
from perdure.model.operations import BulkPhase, BulkStatus, BulkVerb, BulkView, Deed, Target
from perdure.model.runs import NewRun, RunStatus
from perdure.model.states import FailedReason, State
from tests.engine.kit import Notes, line_on
from tests.engine.operate.dead_kit import Hurried, dead, retried
from tests.engine.upkeep.upkeeping import upkeep
from tests.stores.kit import DEED, Place, failure, retry, success, target

ID = "00000000-0000-7000-8000-00000000b01c"
OTHER = ID[:-1] + "d"


@pytest.fixture
def known(place):
    """Everything that this app knows."""
    return Catalogue([line_on(place)])


@pytest.fixture
def worker(place):
    return place.hire()


@pytest.fixture
def small_pages(monkeypatch):
    monkeypatch.setattr(bulks_module, "PAGE_ROWS", 3)


def hands(place, known, *, through=None, checks=None, notes=None) -> Bulks:
    return Bulks(
        place.store,
        through or place.control,
        place.reader,
        known,
        Observers([notes] if notes else []),
        checks or {},
    )


_chance = Random(1)


def ids_of(place) -> Ids:
    return Ids(place.clock, _chance)


def begun(place, known, chosen=EVERY_JOB, id=ID, **settings) -> BulkView:
    return hands(place, known).begin_redrive(
        chosen, BulkSettings(**settings), deed=DEED, ids=ids_of(place), bulk_id=id
    )


def driven(place, known, bulk=None, **options) -> BulkView:
    return hands(place, known, **options).through(bulk or begun(place, known))


def discarded(place, known, id=ID, **options) -> BulkView:
    here = hands(place, known, **options)
    return here.through(here.begin_discard(EVERY_JOB, deed=DEED, bulk_id=id))


def redriven(place: Place, worker: int, count: int = 100) -> list[Claim]:
    """Claim from the lanes of runs."""
    order = ClaimOrder(worker, count, tuple(place.store.run_lanes()))
    return list(place.store.turn([], order, by=worker).claims)


def states(place: Place) -> list[State]:
    return [job.state for job in reversed(place.reader.jobs(limit=500))]


def child_of(place: Place, bulk: BulkView):
    (run,) = place.reader.runs(no=bulk.run)
    return run


def watched(place: Place, known: Catalogue) -> None:
    RunWatch(place.store, place.control, place.reader, known, observers=Observers()).once()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 7])
def test_all_dead_letters_are_driven_again_whatever_the_pages(
    place, known, worker, small_pages, count
):
    dead(place, worker, count)
    place.put()
    bulk = driven(place, known)
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, count, 0)
    assert states(place) == [State.QUEUED] * (count + 1)
    assert len([one for one in place.reader.deeds() if one.verb == "revive job"]) == count
    place.clean()


def test_a_filter_that_means_nobody_is_done_at_once_and_its_run_completed(place, known, worker):
    bulk = driven(place, known, begun(place, known, JobFilter(pipeline="p")))
    assert (bulk.status, bulk.done) == (BulkStatus.DONE, 0)
    watched(place, known)
    assert child_of(place, bulk).status is RunStatus.COMPLETED


def test_a_redrive_is_a_child_run_after_which_the_parent_is_recomputed(place, known, worker):
    parent = place.control.add_run(NewRun(OTHER, "ann", "p", "batch"))
    lanes = place.lanes_of("p", run=parent.no)
    place.put_many(4, run=parent.no, lane=lanes["one"], owner="ann")
    place.control.seal_run(parent.no)
    for claim in redriven(place, worker):
        place.settle(failure(claim, worker), by=worker)
    watched(place, known)
    assert place.reader.run(OTHER).status is RunStatus.FAILED

    bulk = driven(place, known, begun(place, known, JobFilter(run=parent.no)))
    child = child_of(place, bulk)
    assert (child.parent, child.counts.total, child.counts.open) == (parent.no, 4, 4)
    running = place.reader.run(OTHER)
    assert (running.status, running.counts.open, running.counts.failed) == (RunStatus.RUNNING, 4, 0)
    claims = redriven(place, worker)
    assert {place.store.run_lanes()[claim.lane].run for claim in claims} == {child.no}
    for claim in claims:
        place.settle(success(claim, worker), by=worker)
    watched(place, known)
    assert place.reader.run(OTHER).status is RunStatus.COMPLETED
    assert child_of(place, bulk).status is RunStatus.COMPLETED
    job = place.reader.jobs()[0]
    assert (job.run, job.redrive_run, job.life, job.retries_manual) == (parent.no, child.no, 2, 1)
    place.clean()


def test_a_redrive_goes_behind_the_gates_and_pauses_that_hold_its_lanes(place, known, worker):
    from perdure.model.operations import LaneScope

    dead(place, worker, 2)
    place.control.pause(LaneScope.PIPELINE, "p", DEED)
    driven(place, known)
    assert redriven(place, worker) == []
    place.control.resume(LaneScope.PIPELINE, "p", DEED)
    assert len(redriven(place, worker)) == 2


def test_a_canary_goes_first_and_nobody_follows_until_it_has_ended(place, known, worker):
    dead(place, worker, 10)
    bulk = driven(place, known, begun(place, known, canary=3))
    assert (bulk.phase, bulk.done) == (BulkPhase.PROVING, 3)
    for claim in redriven(place, worker):
        place.settle(success(claim, worker), by=worker)
    over = driven(place, known, bulk)
    assert (over.status, over.done) == (BulkStatus.DONE, 10)


def test_a_canary_that_fails_again_stops_the_operation_with_the_reason(place, known, worker):
    dead(place, worker, 10)
    bulk = driven(place, known, begun(place, known, canary=4, canary_share=0.5))
    claims = redriven(place, worker)
    place.settle(success(claims[0], worker), by=worker)
    for claim in claims[1:]:
        place.settle(failure(claim, worker), by=worker)
    stopped = driven(place, known, bulk)
    assert stopped.status is BulkStatus.STOPPED
    assert stopped.why == "of the canary of 4, 1 succeeded; at least 50 % must"
    assert states(place).count(State.FAILED) == 9
    watched(place, known)
    assert child_of(place, bulk).status is RunStatus.FAILED


def test_a_stopped_operation_does_no_more_until_it_is_resumed(place, known, worker, small_pages):
    dead(place, worker, 7)
    here = hands(place, known)
    bulk = here.once(begun(place, known))
    stopped = here.stop(bulk, DEED)
    assert (stopped.status, stopped.done) == (BulkStatus.STOPPED, 3)
    assert here.once(stopped) is None
    for claim in redriven(place, worker):
        place.settle(success(claim, worker), by=worker)
    watched(place, known)
    assert child_of(place, bulk).status is RunStatus.COMPLETED
    over = here.through(here.resume(stopped, DEED))
    assert (over.status, over.done) == (BulkStatus.DONE, 7)
    assert child_of(place, bulk).counts.total == 7
    with pytest.raises(NotChangeable, match="is done; only one that is running can be stopped"):
        here.stop(over, DEED)
    with pytest.raises(NotChangeable, match="is done; only one that is stopped can be resumed"):
        here.resume(over, DEED)
    place.clean()


def test_no_more_than_the_rate_allows_are_taken_on(place, known, worker):
    dead(place, worker, 10)
    bulk = driven(place, known, begun(place, known, rate_per_s=2.0))
    assert bulk.done == 0
    place.clock.push(0.5)
    bulk = driven(place, known, bulk)
    assert bulk.done == 1
    place.clock.push(0.4)
    assert hands(place, known).once(bulk) is None
    for _ in range(9):
        place.clock.push(0.5)
        bulk = driven(place, known, bulk)
    place.clock.push(0.5)
    assert bulk.done == 10
    assert driven(place, known, bulk).status is BulkStatus.DONE


def test_time_in_which_nothing_could_be_done_is_not_made_up_for(place, known, worker):
    dead(place, worker, 30)
    bulk = begun(place, known, rate_per_s=4.0)
    place.clock.push(3_600)  # no worker was there
    bulk = driven(place, known, bulk)
    assert bulk.done == 4
    here = hands(place, known)
    bulk = here.stop(bulk, DEED)
    place.clock.push(3_600)
    bulk = here.through(here.resume(bulk, DEED))
    assert bulk.done == 4  # a rate counts from where a stopped operation goes on


def test_a_rate_below_one_a_second_is_kept(place, known, worker):
    dead(place, worker, 3)
    bulk = begun(place, known, rate_per_s=1 / 60)
    place.clock.push(59)
    assert driven(place, known, bulk).done == 0
    place.clock.push(600)
    assert driven(place, known, bulk).done == 1


def test_who_has_lost_the_duty_takes_no_further_step(place, known, worker):
    dead(place, worker, 7)
    asked = []

    def check(job):
        asked.append(job.no)

    here = hands(place, known, checks={"p": check})
    here.keep = lambda: len(asked) < 5
    bulk = begun(place, known)
    assert here.once(bulk) is None
    assert (len(asked), driven(place, known, bulk).done) == (5, 7)


def test_a_letter_that_cannot_be_read_is_refused_and_stops_nobody(place, known, worker):
    ids = dead(place, worker, 3)
    place.damage(f"UPDATE perdure_jobs SET payload = '{{' WHERE id = '{ids[1]}'")
    checks = {"p": source_check(lambda item: True)}
    bulk = driven(place, known, begun(place, known), checks=checks)
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, 2, 1)
    (refusal,) = place.reader.refusals(bulk.no)
    assert refusal.why.startswith("whether its source exists could not be told (")


def test_letters_of_a_child_that_is_cancelled_are_dead_again_as_they_were(place, known, worker):
    dead(place, worker, 5)
    before = {job.id: job.error_kind for job in place.reader.jobs()}
    bulk = driven(place, known)
    (running,) = redriven(place, worker, 1)
    Runs(place.store, place.control, place.reader, Observers()).cancel(child_of(place, bulk), DEED)
    watched(place, known)
    assert states(place).count(State.FAILED) == 4
    place.settle(retry(running, worker), by=worker)  # it wants to be tried again, in a closed lane
    watched(place, known)
    watched(place, known)
    watched(place, known)
    assert {job.id: job.error_kind for job in place.reader.jobs()} == before
    assert states(place) == [State.FAILED] * 5
    child = child_of(place, bulk)
    assert (child.counts.failed, child.counts.cancelled, child.ended_at is not None) == (5, 0, True)
    place.clean()
    again = driven(place, known, begun(place, known, JobFilter(pipeline="p"), id=OTHER))
    assert again.done == 5
    stopped = hands(place, known)
    with pytest.raises(NotChangeable, match="is done; only one that is stopped"):
        stopped.resume(bulk, DEED)


def test_a_letter_that_had_expired_is_expired_again_when_its_child_is_cancelled(place, known):
    id = place.put(deadline_s=10).id
    place.clock.push(11)
    upkeep(place, place.hire()).once()
    before = place.see(id)
    bulk = driven(place, known)
    assert place.see(id).state is State.QUEUED
    Runs(place.store, place.control, place.reader, Observers()).cancel(child_of(place, bulk), DEED)
    watched(place, known)
    after = place.see(id)
    told = ("state", "failed_reason", "error_kind", "error_code", "error_message", "fingerprint")
    assert [getattr(after, one) for one in told] == [getattr(before, one) for one in told]
    assert after.failed_reason is FailedReason.EXPIRED
    place.clean()
    place.damage("UPDATE perdure_jobs SET redrive_run = NULL")  # then nothing explains it
    assert "failure_without_attempt" in {one.check for one in place.reader.audit()}


def test_a_child_that_is_aborted_stops_its_operation(place, known, worker, small_pages):
    dead(place, worker, 7)
    here = hands(place, known)
    bulk = here.once(begun(place, known))
    from perdure.model.runs import RunChange

    place.control.change_run(
        RunChange(bulk.run, RunStatus.RUNNING, RunStatus.ABORTED, why="aborted: too much"), DEED
    )
    stopped = here.through(bulk)
    assert (stopped.status, stopped.why) == (
        BulkStatus.STOPPED,
        "its run was aborted: aborted: too much",
    )
    with pytest.raises(NotChangeable, match="resume it first: perdure runs resume"):
        here.resume(stopped, DEED)


def test_jobs_whose_key_is_alive_again_are_reported_and_stay_dead(place, known, worker):
    first = place.control.add_run(NewRun(OTHER, "ann", "p", "first"))
    lanes = place.lanes_of("p", run=first.no)
    place.put(run=first.no, lane=lanes["one"], key="a", owner="ann")
    place.put(run=first.no, lane=lanes["one"], key="b", owner="ann")
    for claim in redriven(place, worker):
        place.settle(failure(claim, worker), by=worker)
    alive = place.put(key="a", owner="ann")
    seen = Previewing(place.reader, Revivals(place.reader, known), {}).of(EVERY_JOB, count_max=10)
    assert (seen.count, seen.eligible) == (2, 1)
    assert [(one.why, one.count) for one in seen.refused] == [
        ("its key is alive again in another job", 1)
    ]
    bulk = driven(place, known)
    assert (bulk.done, bulk.refused) == (1, 1)
    (refusal,) = place.reader.refusals(bulk.no)
    assert refusal.why == f"its key is alive again as job {alive.id}"
    assert place.see(refusal.job_id).state is State.FAILED
    for dry_run in (True, False):
        with pytest.raises(NotRetriable, match=f"its key 'a' is alive again as job {alive.id}"):
            retried(place, known, refusal.job_id, dry_run=dry_run)
    place.clean()


def test_of_two_dead_letters_with_one_key_one_lives(place, known, worker):
    for name in (OTHER, ID):
        run = place.control.add_run(NewRun(name, "ann", "p", name))
        lanes = place.lanes_of("p", run=run.no)
        place.put(run=run.no, lane=lanes["one"], key="k", owner="ann")
    for claim in redriven(place, worker):
        place.settle(failure(claim, worker), by=worker)
    seen = Previewing(place.reader, Revivals(place.reader, known), {}).of(EVERY_JOB, count_max=10)
    assert (seen.eligible, seen.refused[0].why) == (
        1,
        "another dead letter with its key comes first",
    )
    bulk = driven(place, known)
    assert (bulk.done, bulk.refused) == (1, 1)


def test_a_preview_says_what_then_happens(place, known, worker, small_pages):
    dead(place, worker, 9)
    checks = {"p": lambda job: "its source is gone" if job.no % 3 == 0 else None}
    seen = Previewing(place.reader, Revivals(place.reader, known), checks).of(
        EVERY_JOB, count_max=100
    )
    assert (seen.count, seen.eligible, seen.capped, seen.pipelines) == (9, 6, False, ("p",))
    assert [(one.why, one.count) for one in seen.refused] == [("its source is gone", 3)]
    assert states(place) == [State.FAILED] * 9
    bulk = driven(place, known, checks=checks)
    assert (bulk.done, bulk.refused) == (seen.eligible, seen.count - seen.eligible)
    assert {one.why for one in place.reader.refusals(bulk.no)} == {"its source is gone"}


def test_a_preview_looks_no_further_than_it_is_told(place, known, worker):
    dead(place, worker, 5)
    preview = Previewing(place.reader, Revivals(place.reader, known), {})
    assert (
        preview.of(EVERY_JOB, count_max=3).count,
        preview.of(EVERY_JOB, count_max=3).capped,
    ) == (3, True)
    assert preview.of(EVERY_JOB, count_max=5).capped is False


def test_a_redrive_is_of_one_pipeline(place, known, worker):
    with pytest.raises(CallerError, match="name one of those that have dead letters: none"):
        begun(place, known)
    dead(place, worker)
    dead(place, worker, pipeline="q", lane=place.lanes["one"])
    with pytest.raises(CallerError, match="name one of those that have dead letters: p, q"):
        begun(place, known)
    assert place.reader.bulks() == []
    assert begun(place, known, JobFilter(pipeline="p")).verb == "redrive"


def test_dead_letters_are_discarded_and_stay_in_the_books(place, known, worker, small_pages):
    dead(place, worker, 7)
    notes = Notes()
    bulk = discarded(place, known, notes=notes)
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, 7, 0)
    assert place.reader.preview(dead_letters(EVERY_JOB)).count == 0
    assert place.reader.books().failed == 7
    assert len(notes.of(EventName.JOB_DISCARDED)) == 7
    place.clean()


def test_a_bulk_tells_each_job_that_it_has_moved_and_no_other(place, worker, known):
    ids = dead(place, worker, 3)
    place.clock.push(1)
    place.control.discard([target(place.see(ids[0]))], DEED)
    notes = Notes()
    driven(place, known, notes=notes)
    assert {one["job_id"] for one in notes.of(EventName.JOB_REVIVED)} == set(ids[1:])
    assert [one["status"] for one in notes.of(EventName.BULK_CHANGED)] == ["done"]


def test_a_filter_without_dead_letters_is_refused(place, known):
    with pytest.raises(NotRetriable, match="asks for jobs that are succeeded, queued"):
        begun(place, known, JobFilter(states=(State.SUCCEEDED, State.QUEUED)))
    assert place.reader.bulks() == []


def test_discarded_ones_are_driven_again_when_they_are_asked_for(place, known, worker):
    ids = dead(place, worker, 2)
    place.control.discard([target(place.see(ids[0]))], DEED)
    bulk = driven(place, known, begun(place, known, JobFilter(discarded=True)))
    assert bulk.done == 1
    assert states(place) == [State.QUEUED, State.FAILED]


def test_a_filter_survives_being_written_down(place, known):
    now = place.clock.now()
    run = place.control.add_run(NewRun(OTHER, "ann", "p", "r"))
    chosen = JobFilter(
        states=(State.FAILED,),
        pipeline="p",
        stage="one",
        queue="q",
        category="c",
        owner="ann",
        run=run.no,
        reason=FailedReason.CRASHED,
        kind="network",
        code="GW_5XX",
        fingerprint="ab12",
        text='"%_\\',
        enqueued_from=now,
        enqueued_until=now,
        finished_from=now,
        finished_until=now,
        discarded=True,
    )
    bulk = begun(place, known, chosen)
    assert msgspec.json.decode(bulk.filter_json, type=JobFilter) == dead_letters(chosen) == chosen


def test_only_what_the_filter_means_is_driven_again(place, known, worker):
    dead(place, worker, 2, owner="ann")
    dead(place, worker, 2, owner="bob")
    assert driven(place, known, begun(place, known, JobFilter(owner="bob"))).done == 2
    assert states(place) == [State.FAILED, State.FAILED, State.QUEUED, State.QUEUED]


def test_jobs_that_cannot_go_on_there_are_written_down_and_left(place, known, worker):
    dead(place, worker, 2)
    bulk = driven(place, known, begun(place, known, stage="two"))
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, 0, 2)
    assert states(place) == [State.FAILED, State.FAILED]
    whys = {one.why for one in place.reader.refusals(bulk.no)}
    assert whys == {"it failed at stage 'one' and has not reached 'two'; retry it from one of: one"}


def test_a_stage_and_the_start_are_not_said_at_once():
    with pytest.raises(CallerError, match="not both"):
        BulkSettings("two", from_start=True)


def test_a_job_that_moves_on_in_between_is_counted_as_refused(place, known, worker):
    ids = dead(place, worker, 2)
    bulk = begun(place, known)
    other = Hurried(place, revive=[lambda: retried(place, known, ids[0])])
    bulk = driven(place, known, bulk, through=other)
    assert (bulk.done, bulk.refused) == (1, 1)
    assert [place.see(id).life for id in ids] == [2, 2]
    assert [one.why for one in place.reader.refusals(bulk.no)] == ["has moved on since"]


def test_a_job_that_fails_again_meanwhile_is_not_driven_twice(place, known, worker, small_pages):
    dead(place, worker, 7)
    bulk = begun(place, known)
    place.clock.push(1)
    here = hands(place, known)
    while (moved := here.once(bulk)) is not None:
        bulk = moved
        for claim in redriven(place, worker):
            place.settle(failure(claim, worker), by=worker)
    bulk = here._now(bulk)
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, 7, 0)
    assert {job.life for job in place.reader.jobs()} == {2}
    assert states(place) == [State.FAILED] * 7


def broken() -> None:
    raise StoreUnavailable("the line broke")


@pytest.mark.parametrize("call", ["revive", "step_bulk", "seal_run"])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_an_operation_that_was_cut_off_is_gone_on_with(
    place, known, worker, small_pages, call, before
):
    dead(place, worker, 7)
    bulk = begun(place, known)
    place.clock.push(1)
    here = hands(place, known, through=Hurried(place, **{call: [lambda: None] * before + [broken]}))
    if before == 0 or call == "revive":
        with pytest.raises(StoreUnavailable):
            here.through(bulk)
    for claim in redriven(place, worker):  # what was revived fails again, after the beginning
        place.settle(failure(claim, worker), by=worker)
    over = driven(place, known, here._now(bulk))
    assert (over.status, over.done, over.refused) == (BulkStatus.DONE, 7, 0)
    assert {job.life for job in place.reader.jobs()} == {2}
    place.clean()


def test_two_hands_on_one_operation_do_it_once(place, known, worker, small_pages):
    dead(place, worker, 7)
    one, other = hands(place, known), hands(place, known)
    bulk = begun(place, known)
    first = one.once(bulk)
    assert other.once(bulk) == first  # the cursor was elsewhere: it looks, and goes on from there
    over = other.through(first)
    assert (over.done, over.refused) == (7, 0)


def test_the_same_id_is_the_same_operation(place, known, worker):
    dead(place, worker, 2)
    driven(place, known, begun(place, known))
    dead(place, worker, 1)
    again = driven(place, known, begun(place, known, JobFilter(pipeline="p")))
    assert (again.status, again.done) == (BulkStatus.DONE, 2)
    assert len(place.reader.bulks()) == 1


def test_a_discard_shows_the_token_it_saw(place, known, worker):
    ids = dead(place, worker, 2)
    other = Hurried(place, discard=[lambda: retried(place, known, ids[1])])
    bulk = discarded(place, known, through=other)
    assert (bulk.done, bulk.refused) == (1, 1)
    assert [place.see(id).state for id in ids] == [State.FAILED, State.QUEUED]
    assert place.see(ids[1]).discarded_at is None
    assert isinstance(place.control.discard([Target(1, ids[0], 99)], DEED)[0], Stale)


def test_a_worker_takes_the_steps_of_what_it_knows_while_it_has_the_duty(place, known, worker):
    dead(place, worker, 2)
    bulk = begun(place, known)
    stranger = Catalogue([])
    second = place.hire()

    def steps(catalogue, who):
        here = hands(place, catalogue)
        return BulkSteps(here, place.control, place.reader, worker=who, duty="bulks x")

    assert steps(stranger, second).once() > 0
    assert hands(place, known)._now(bulk).done == 0
    assert steps(known, worker).once() == 0.0
    assert hands(place, known)._now(bulk).status is BulkStatus.DONE
    dead(place, worker, 1)
    begun(place, known, JobFilter(pipeline="p"), id=OTHER)
    assert steps(known, second).once() > 0  # the duty is another's
    assert steps(known, worker).once() == 0.0


def test_who_began_it_is_who_revives(place, known, worker):
    (id,) = dead(place, worker)
    here = hands(place, known)
    bulk = here.begin_redrive(
        EVERY_JOB, BulkSettings(), deed=Deed("eve", "the key is new"), ids=ids_of(place), bulk_id=ID
    )
    here.through(bulk)
    (line,) = [one for one in place.reader.deeds() if one.subject == id]
    assert (line.by_whom, line.reason) == ("eve", "the key is new")


def test_whoever_goes_on_with_a_run_does_what_waits_for_its_dead_letters(place, known, worker):
    run = place.control.add_run(NewRun(OTHER, "", place.pipeline, "a"))
    dead(place, worker, 2)
    here, nobody = hands(place, known), hands(place, Catalogue([]))
    anywhere = JobFilter(pipeline=place.pipeline)
    elsewhere = replace(anywhere, run=run.no + 1)
    bulk = here.begin(BulkVerb.RETRY, anywhere, deed=DEED, bulk_id=ID)
    here.begin(BulkVerb.RETRY, elsewhere, deed=DEED, bulk_id=OTHER)
    assert [one.id for one in revivals_waiting(here, run)] == [bulk.id]
    assert catch_up(nobody, run) == 0
    assert catch_up(here, run) == 2
    assert (revivals_waiting(here, run), catch_up(here, run)) == ([], 0)
    assert states(place) == [State.QUEUED] * 2
