"""The total time that policies give to jobs which bring none: fixed at enqueue, from the start again in each life."""

from datetime import datetime, timedelta, timezone
from random import Random

import pytest

from perdure.engine.enqueue import enqueue, new_job
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.operate.bulk_settings import BulkSettings
from perdure.engine.operate.bulks import Bulks
from perdure.engine.operate.single_jobs import retry
from perdure.engine.record import Ending
from perdure.engine.settle import settle
from perdure.engine.stages import Catalogue, LaidPipeline
from perdure.engine.upkeep.schedules import Declaring, Ticking, declare
from perdure.model.errors import CallerError
from perdure.model.filters import EVERY_JOB
from perdure.model.jobs import NewJob
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.operations import LaneScope
from perdure.model.outcomes import Evidence, Raised
from perdure.model.states import FailedReason, State
from perdure.rules.backoff import Backoff
from perdure.testing.clock import VirtualClock
from perdure.testing.store_contract.attempt_ends import failure
from perdure.testing.store_contract.fresh_store import DEED
from tests.engine.kit import PLAIN, line_on, stage
from tests.engine.upkeep.upkeeping import upkeep

HOURLY = replace(PLAIN, backoff=Backoff("fixed", base_s=3600.0, cap_s=None))
CHANCE = Random(1)
RESET = Raised(Evidence(("ConnectionResetError",), "reset", kind=Kind.AMBIGUOUS))


def line(place, *deadlines_s: float | None) -> LaidPipeline:
    stages = [
        stage(name, policy=replace(HOURLY, deadline_s=deadline_s))
        for name, deadline_s in zip(("one", "two"), deadlines_s, strict=True)
    ]
    return line_on(place, *stages)


def made(place, on: LaidPipeline, **options) -> NewJob:
    return new_job(Ids(place.clock, CHANCE), on, {"n": 1}, **options)


def put(place, on: LaidPipeline, **options):
    (done,) = enqueue(place.store, [made(place, on, **options)])
    return place.see(done.id)


def left(place, id: str) -> float:
    return (place.see(id).deadline_at - place.clock.now()).total_seconds()


@pytest.mark.parametrize(
    ("deadlines_s", "wanted"),
    [((None, None), None), ((90.0, None), 90.0), ((90.0, 60.0), 60.0), ((None, 60.0), 60.0)],
)
def test_a_job_without_a_deadline_has_the_smallest_of_its_stages(place, deadlines_s, wanted):
    job = put(place, line(place, *deadlines_s))
    assert job.deadline_at == (wanted and place.clock.now() + timedelta(seconds=wanted))


@pytest.mark.parametrize("own_s", [5.0, 500.0])
def test_a_deadline_that_the_job_brings_is_the_jobs(place, own_s):
    assert left(place, put(place, line(place, 90.0, 60.0), deadline_s=own_s).id) == own_s


def test_a_retry_that_would_come_too_late_expires_the_job_instead_of_waiting_an_hour(either):
    decided = {}
    for deadline_s in (60.0, None):
        on = line(either, deadline_s, None)
        put(either, on)
        worker = either.hire()
        (claim,) = either.take(worker)
        record = settle(Ending(claim, RESET, 0.5, worker), on, on.stages[0], chance=0.5)
        either.settle(record, by=worker)
        decided[deadline_s] = either.see(claim.id)
    assert (decided[60.0].state, decided[60.0].failed_reason) == (
        State.FAILED,
        FailedReason.EXPIRED,
    )
    assert decided[None].state is State.QUEUED
    assert decided[None].due_at == either.clock.now() + timedelta(hours=1)
    either.clean()


def test_time_in_a_held_lane_counts(place):
    job = put(place, line(place, 60.0, None))
    place.control.pause(LaneScope.QUEUE, "q", DEED)
    place.clock.push(61)
    assert upkeep(place, place.hire()).once() == 1
    assert place.see(job.id).failed_reason is FailedReason.EXPIRED


@pytest.mark.parametrize("own_s", [None, 30.0])
def test_the_total_time_of_a_job_for_later_begins_when_it_may_begin(place, own_s):
    at = place.clock.now() + timedelta(days=2)
    job = put(place, line(place, 60.0, None), run_at=at, deadline_s=own_s)
    assert job.deadline_at == at + timedelta(seconds=own_s or 60)


def test_a_clients_clock_has_no_say_in_a_deadline(place):
    behind = VirtualClock(place.clock.now() - timedelta(days=3))
    at = place.clock.now() + timedelta(days=2)
    job = new_job(Ids(behind, CHANCE), line(place, 60.0, None), 1, run_at=at)
    enqueue(place.store, [job])
    assert place.see(job.id).deadline_at == at + timedelta(seconds=60)


@pytest.mark.parametrize(("own_s", "policy_s"), [(60.0, None), (None, 60.0), (None, None)])
def test_a_deadline_beyond_the_last_moment_is_refused_by_name(place, own_s, policy_s):
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone(timedelta(hours=-5)))
    on = line(place, policy_s, None)
    with pytest.raises(CallerError, match=r"run_at 9999.* ends beyond the year 9999") as refused:
        made(place, on, run_at=last, deadline_s=own_s)
    assert ("deadline_s of 60.0" in str(refused.value)) == bool(own_s or policy_s)


def test_a_key_that_asks_for_a_new_life_gives_the_policies_time_and_not_its_own(either):
    worker, before, today = either.hire(), line(either, None, None), line(either, 60.0, None)
    id = put(either, before, key="k").id
    (claim,) = either.take(worker)
    either.settle(failure(claim, worker), by=worker)
    enqueue(either.store, [made(either, today, key="k", if_failed="retry", deadline_s=5)])
    assert left(either, id) == 60


def test_a_retried_job_has_the_whole_time_again(either):
    worker, on = either.hire(), line(either, 60.0, None)
    id = put(either, on).id
    for _ in range(3):
        either.clock.push(50)
        (claim,) = either.take(worker)
        either.settle(failure(claim, worker), by=worker)
        retry(either.control, either.reader, Catalogue([on]), id, deed=DEED)
        assert left(either, id) == 60


def test_a_job_from_before_the_policy_had_a_deadline_has_it_in_its_next_life(either):
    worker, before, today = either.hire(), line(either, None, None), line(either, 60.0, None)
    by_hand, by_key = put(either, before).id, put(either, before, key="k").id
    for claim in either.take(worker, 2):
        either.settle(failure(claim, worker), by=worker)
    retry(either.control, either.reader, Catalogue([today]), by_hand, deed=DEED)
    enqueue(either.store, [made(either, today, key="k", if_failed="retry")])
    assert [left(either, id) for id in (by_hand, by_key)] == [60, 60]


@pytest.mark.parametrize(("own_s", "wanted"), [(None, 90.0), (7.0, 7.0)])
def test_a_new_life_has_the_policies_time_of_today_or_what_its_caller_brought(
    either, own_s, wanted
):
    worker, before, today = either.hire(), line(either, 60.0, None), line(either, 90.0, None)
    by_hand = put(either, before, deadline_s=own_s).id
    by_key = put(either, before, key="k", deadline_s=own_s).id
    for claim in either.take(worker, 2):
        either.settle(failure(claim, worker), by=worker)
    retry(either.control, either.reader, Catalogue([today]), by_hand, deed=DEED)
    enqueue(either.store, [made(either, today, key="k", if_failed="retry")])
    assert [left(either, id) for id in (by_hand, by_key)] == [wanted, wanted]


def test_policies_that_give_no_time_any_more_give_none_to_a_new_life(either):
    worker, before, today = either.hire(), line(either, 60.0, None), line(either, None, None)
    id = put(either, before).id
    (claim,) = either.take(worker)
    either.settle(failure(claim, worker), by=worker)
    retry(either.control, either.reader, Catalogue([today]), id, deed=DEED)
    assert either.see(id).deadline_at is None


def test_without_the_app_a_new_life_has_as_long_as_the_policies_gave_the_last_one(either):
    worker, on = either.hire(), line(either, 60.0, None)
    id = put(either, on, ordered_at=either.clock.now() - timedelta(days=1)).id
    for _ in range(2):
        either.clock.push(50)
        (claim,) = either.take(worker)
        either.settle(failure(claim, worker), by=worker)
        retry(either.control, either.reader, Catalogue([]), id, deed=DEED)
        assert left(either, id) == 60


def test_a_job_that_is_driven_again_has_the_whole_time_again(either):
    worker, on = either.hire(), line(either, 60.0, None)
    id = put(either, on).id
    either.clock.push(50)
    (claim,) = either.take(worker)
    either.settle(failure(claim, worker), by=worker)
    ids = Ids(either.clock, Random(2))
    bulks = Bulks(either.store, either.control, either.reader, Catalogue([on]), Observers(), {})
    bulk = bulks.begin_redrive(EVERY_JOB, BulkSettings(), deed=DEED, ids=ids, bulk_id=ids.next())
    assert bulks.through(bulk).done == 1
    assert left(either, id) == 60


def test_a_key_that_is_enqueued_again_gives_the_whole_time_again(either):
    worker, on = either.hire(), line(either, 60.0, None)
    for own_s, wanted in ((None, 60.0), (7.0, 7.0)):
        check_again(either, worker, on, own_s, wanted)


def check_again(either, worker, on, own_s, wanted):
    id = put(either, on, key=f"k {own_s}", deadline_s=own_s).id
    either.clock.push(3)
    (claim,) = either.take(worker)
    either.settle(failure(claim, worker), by=worker)
    again = made(either, on, key=f"k {own_s}", if_failed="retry", deadline_s=own_s)
    (done,) = enqueue(either.store, [again])
    assert (done.id, done.revived) == (id, True)
    assert left(either, id) == wanted
    either.take(worker)  # out of the way of the next


def test_a_periodic_job_has_the_total_time_of_its_pipeline(either):
    on = line(either, 60.0, 30.0)
    every = declare("15m", on, None)
    Declaring(either.control, either.reader, [every]).once()
    either.clock.push(900)
    ticking = Ticking(
        either.control,
        either.reader,
        Catalogue([on]),
        [every],
        ids=Ids(either.clock, Random(1)),
        observers=Observers(),
    )
    assert ticking.once().jobs == 1
    (job,) = either.reader.jobs(limit=10)
    assert left(either, job.id) == 30
