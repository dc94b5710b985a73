"""What people do by hand: run a job now, retry it with a corrected payload; and whose jobs they may touch."""

from datetime import timedelta

import msgspec
import pytest

from perdure.engine.observe import Observers
from perdure.engine.operate.revival import FROM_START, Restart, admit_correction
from perdure.engine.operate.single_jobs import cancel, run_now
from perdure.engine.stages import Catalogue
from perdure.model.errors import (
    CallerError,
    NotChangeable,
    NotRetriable,
    PayloadRefused,
    UnknownName,
)
from perdure.model.events import EventName
from perdure.model.limits import PAYLOAD_BYTES_MAX
from perdure.model.nouns import replace
from perdure.model.operations import Deed, LaneScope
from perdure.model.states import State
from perdure.model.views import PayloadView
from tests.engine.kit import Notes, line_on, stage
from tests.engine.operate.dead_kit import Hurried, dead, retried
from tests.stores.kit import DEED, advance, failure, retry, snooze, success


class Invoice(msgspec.Struct):
    """A typed item."""

    total: int


def priced(item: Invoice) -> int:
    return item.total


@pytest.fixture
def known(place):
    """Everything that this app knows."""
    return Catalogue([line_on(place)])


@pytest.fixture
def typed(place):
    """The same pipeline, whose first stage wants invoices."""
    return Catalogue([line_on(place, stage("one", priced), stage("two"))])


@pytest.fixture
def worker(place):
    return place.hire()


def hurried(place, id, *, through=None, deed=DEED, **options):
    return run_now(through or place.control, place.reader, id, deed=deed, **options)


def waiting(place, worker, *, hint_s=None, delay_s=600.0):
    """A job after a failure; the upstream may have asked for a wait."""
    id = place.put().id
    (claim,) = place.take(worker)
    record = retry(claim, worker, delay_s=delay_s)
    why = msgspec.json.encode({"text": "because", "hint_s": hint_s}).decode()
    place.settle(replace(record, attempt=replace(record.attempt, why_json=why)), by=worker)
    return id


# -- run now -----------------------------------------------------------------------------


def test_the_pause_after_a_failure_is_overruled(place, worker):
    id = waiting(place, worker)
    receipt = hurried(place, id)
    assert (receipt.state, receipt.due_at) == (State.QUEUED, place.clock.now())
    assert place.taken_ids(worker) == [id]
    place.clean()


def test_a_time_that_was_asked_for_is_overruled(place, worker):
    id = place.put(run_at=place.clock.now() + timedelta(hours=1)).id
    hurried(place, id)
    assert place.taken_ids(worker) == [id]
    place.clean()


def test_a_snooze_is_overruled(place, worker):
    id = place.put().id
    (claim,) = place.take(worker)
    place.settle(snooze(claim, worker, delay_s=600), by=worker)
    hurried(place, id)
    assert place.taken_ids(worker) == [id]
    place.clean()


def test_a_wait_that_the_upstream_has_asked_for_is_not_cut_short(place, worker):
    id = waiting(place, worker, hint_s=60.0)
    before = place.everything()
    with pytest.raises(NotChangeable, match=r"its upstream has asked to wait until 20.*\+00:00"):
        hurried(place, id)
    assert place.everything() == before
    place.clock.push(61)
    hurried(place, id)  # the rest of the pause was our own
    assert place.taken_ids(worker) == [id]
    place.clean()


def test_a_hint_that_was_not_waited_for_is_no_order(place, worker):
    id = waiting(place, worker, hint_s=60.0, delay_s=5.0)
    place.clock.push(6)
    hurried(place, id)
    assert place.taken_ids(worker) == [id]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda place, worker: place.put().id, "it is due already$"),
        (lambda place, worker: place.see(dead(place, worker)[0]).id,
         "it is failed; retry it instead"),
        (lambda place, worker: place.dead_letter(worker, end=success).id,
         "it is succeeded; enqueue its item again$"),
        (lambda place, worker: place.dead_letter(worker, end=success, key="k").id,
         "it is succeeded; enqueue its item again, under another key$"),
    ],
)  # fmt: skip
def test_a_job_that_does_not_wait_gets_a_clear_answer(place, worker, make, words):
    id = make(place, worker)
    before = place.everything()
    with pytest.raises(NotChangeable, match=f"job {id} cannot be run now: {words}"):
        hurried(place, id)
    assert place.everything() == before


def test_a_running_job_gets_a_clear_answer(place, worker):
    id = place.put().id
    place.take(worker)
    with pytest.raises(NotChangeable, match="it is running stage 'one'"):
        hurried(place, id)


def test_a_job_behind_a_closed_lane_says_what_closes_it(place, worker):
    id = place.put(run_at=place.clock.now() + timedelta(hours=1)).id
    place.control.pause(LaneScope.QUEUE, "q", DEED)
    hurried(place, id)
    assert place.take(worker) == []
    with pytest.raises(
        NotChangeable, match=r"and queue q is paused \(to release it: perdure queues resume q\)"
    ):
        hurried(place, id)


def test_a_job_that_is_claimed_in_between_needs_nobody_to_run_it(place, worker):
    id = waiting(place, worker)

    def claims():
        place.clock.push(600)
        place.take(worker)

    with pytest.raises(NotChangeable, match="it is running"):
        hurried(place, id, through=Hurried(place, run_now=[claims]))


def test_what_is_run_now_is_told_and_written_down_with_who_and_why(place):
    later = place.clock.now() + timedelta(hours=1)
    id = place.put(run_at=later, request_id="req-7", owner="eve").id
    notes = Notes()
    hurried(place, id, deed=Deed("ann\x00", "it is\nurgent"), observers=Observers([notes]))
    (told,) = notes.of(EventName.JOB_BROUGHT_FORWARD)
    assert told == {
        "job_id": id,
        "request_id": "req-7",
        "owner": "eve",
        "by_whom": "ann",
        "reason": "it is urgent",
    }
    (line,) = place.reader.deeds()
    assert (line.by_whom, line.verb, line.subject, line.reason) == (
        "ann",
        "run job now",
        id,
        "it is urgent",
    )


# -- whose they are ----------------------------------------------------------------------


def test_another_owners_job_is_unknown_as_one_that_never_was(place, known, worker):
    own = [
        place.dead_letter(worker, owner="ann").id,
        place.dead_letter(worker, owner="ann", end=success).id,
        place.put(owner="ann", run_at=place.clock.now() + timedelta(hours=1)).id,
        place.put(owner="ann").id,
    ]
    before = place.everything()
    said = set()
    for id in (*own, "nobody"):
        for act in (
            lambda id: cancel(place.control, place.reader, known, id, deed=DEED, owner="bob"),
            lambda id: retried(place, known, id, owner="bob"),
            lambda id: hurried(place, id, owner="bob"),
        ):
            with pytest.raises(UnknownName) as refused:
                act(id)
            said.add(str(refused.value).replace(id, "it"))
    assert said == {"no job 'it'"}
    assert place.everything() == before


def test_an_owner_may_touch_what_is_theirs(place, known, worker):
    failed = place.dead_letter(worker, owner="ann").id
    later = place.put(owner="ann", run_at=place.clock.now() + timedelta(hours=1)).id
    retried(place, known, failed, owner="ann")
    hurried(place, later, owner="ann")
    for id in (failed, later):
        cancel(place.control, place.reader, known, id, deed=DEED, owner="ann")
    place.clean()


# -- another payload ---------------------------------------------------------------------


def failed_at_two(place, worker):
    """A dead letter whose first stage is done."""
    id = place.put(key="k", payload_json='{"total":"1,50"}').id
    (claim,) = place.take(worker)
    place.settle(advance(claim, worker, place.lanes["two"]), by=worker)
    (claim,) = place.take(worker)
    place.settle(failure(claim, worker), by=worker)
    return id


def test_a_corrected_payload_begins_at_the_first_stage_and_uses_no_earlier_result(
    place, typed, worker
):
    id = failed_at_two(place, worker)
    text = admit_correction(typed, "p", Invoice(150))
    retried(place, typed, id, payload_json=text)
    job = place.see(id)
    assert (job.stage, job.input_from, job.input_json) == ("one", None, '{"total":150}')
    assert (job.key, job.payload_json, job.life) == ("k", '{"total":150}', 2)
    assert place.reader.payloads(job.no) == [PayloadView(1, '{"total":"1,50"}')]
    (claim,) = place.take(worker)
    place.settle(advance(claim, worker, place.lanes["two"]), by=worker)  # its result is news
    place.clean()


def test_what_a_stage_of_an_older_pipeline_has_made_is_dropped_as_well(place, worker):
    id = failed_at_two(place, worker)
    other = Catalogue([line_on(place, stage("two"))])
    retried(place, other, id, payload_json="1")
    assert place.see(id).stage == "two"
    (claim,) = place.take(worker)
    assert claim.input_json == "1"
    place.clean()


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"total": "much"}, "does not fit stage 'one'"),
        (float("nan"), "which JSON cannot hold"),
        ("x" * PAYLOAD_BYTES_MAX, "bytes long"),
    ],
)
def test_a_corrected_payload_is_checked_at_the_door_as_a_new_item_is(typed, item, words):
    with pytest.raises(PayloadRefused, match=words):
        admit_correction(typed, "p", item)


def test_only_an_app_that_knows_the_pipeline_can_check_a_payload(place, known, worker):
    with pytest.raises(UnknownName, match="retry with the app that has it"):
        admit_correction(Catalogue([]), "p", 1)
    id = failed_at_two(place, worker)
    with pytest.raises(UnknownName, match="cannot be checked"):
        retried(place, Catalogue([]), id, payload_json="1")


def test_a_corrected_payload_goes_with_no_later_stage(place, known, worker):
    id = failed_at_two(place, worker)
    with pytest.raises(CallerError, match="begins at the first stage, 'one', and not at 'two'"):
        retried(place, known, id, payload_json="1", restart=Restart("two"))
    assert place.see(id).state is State.FAILED
    retried(place, known, id, payload_json="1", restart=FROM_START)


def test_whether_the_source_exists_is_asked_with_the_corrected_payload(place, known, worker):
    id = failed_at_two(place, worker)
    asked = []

    def check(job):
        asked.append(job.payload_json)
        return "it is gone"

    with pytest.raises(NotRetriable, match="it is gone"):
        retried(place, known, id, payload_json="1", check=check)
    assert asked == ["1"]
    assert place.reader.payloads(place.see(id).no) == []
