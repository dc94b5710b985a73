"""cancel, retry, and re-drive and discard by filter: each done once, whoever else is at it."""

import msgspec
import pytest

from perdure.engine import control
from perdure.engine.control import begin, cancel, dead_letters, preview
from perdure.engine.observe import Observers
from perdure.engine.revival import FROM_START, Restart
from perdure.engine.stages import Catalogue
from perdure.model.errors import (
    BugError,
    CallerError,
    NotCancellable,
    NotRetriable,
    StoreUnavailable,
    UnknownName,
)
from perdure.model.events import EventName
from perdure.model.filters import DEAD_LETTERS, EVERY_JOB, JobFilter
from perdure.model.jobs import Stale
from perdure.model.operations import BulkStatus, BulkStep, BulkVerb, Deed, Target
from perdure.model.states import FailedReason, State
from tests.engine.kit import Notes, line_on
from tests.stores.kit import DEED, Place, advance, failure, release, retry, success, target


@pytest.fixture
def known(place):
    """Everything that this app knows."""
    return Catalogue([line_on(place)])


@pytest.fixture
def worker(place):
    return place.hire()


def cancelled(place, known, id, *, store=None, notes=None, reason=""):
    observers = Observers([notes] if notes else [])
    return cancel(store or place.store, place.reader, known, id, reason=reason, observers=observers)


def test_a_waiting_job_is_cancelled_and_never_starts(place, known, worker):
    id = place.put().id
    notes = Notes()
    receipt = cancelled(place, known, id, notes=notes)
    assert receipt.state is State.CANCELLED
    assert place.see(id).state is State.CANCELLED
    assert place.take(worker, 9) == []
    assert notes.names() == [EventName.JOB_CANCELLED]
    place.clean()


def test_a_job_that_waits_for_its_retry_is_cancelled_with_its_last_error(place, known, worker):
    id = place.put().id
    (claim,) = place.take(worker)
    place.settle(retry(claim, worker), by=worker)
    cancelled(place, known, id)
    job = place.see(id)
    assert (job.state, job.error_kind, job.counters.failures) == (State.CANCELLED, "network", 1)
    place.clock.push(60)
    assert place.take(worker) == []
    place.clean()


def test_a_running_job_is_cancelled_and_its_later_word_is_refused(place, known, worker):
    id = place.put().id
    (claim,) = place.take(worker)
    cancelled(place, known, id, reason="changed my mind")
    assert isinstance(place.settle(success(claim, worker), by=worker)[0], Stale)
    job = place.see(id)
    assert (job.state, job.result_json, job.worker) == (State.CANCELLED, None, None)
    (attempt,) = place.reader.attempts(job.no)
    assert (attempt.status, attempt.worker) == ("cancelled", worker)
    assert msgspec.json.decode(attempt.why_json)["text"] == (
        "cancelled by the caller (changed my mind)"
    )
    place.clean()


def test_the_reason_of_a_cancelled_wait_is_kept_cleaned(place, known):
    id = place.put().id
    cancelled(place, known, id, reason="two\nlines \ud800" + "x" * 10_000)
    message = place.see(id).error_message
    assert message.startswith("cancelled by the caller (two lines ?xxx")
    assert len(message) < 1_000


@pytest.mark.parametrize("reason", ["half \ud800", "nul\x00", "x" * 1_000_000])
def test_a_running_job_can_be_cancelled_for_any_reason(place, known, worker, reason):
    id = place.put().id
    place.take(worker)
    cancelled(place, known, id, reason=reason)
    assert place.see(id).state is State.CANCELLED
    place.clean()


def test_a_job_between_two_stages_is_cancelled(place, known, worker):
    id = place.put().id
    (claim,) = place.take(worker)
    place.settle(advance(claim, worker, place.lanes["two"]), by=worker)
    cancelled(place, known, id)
    assert place.see(id).stage == "two"
    assert place.take(worker) == []
    place.clean()


@pytest.mark.parametrize("end", [success, failure])
def test_a_finished_job_cannot_be_cancelled(place, known, worker, end):
    id = place.put().id
    (claim,) = place.take(worker)
    place.settle(end(claim, worker), by=worker)
    before = place.everything()
    with pytest.raises(NotCancellable, match=f"job {id} is already (succeeded|failed)"):
        cancelled(place, known, id)
    assert place.everything() == before


def test_a_job_is_cancelled_once(place, known):
    id = place.put().id
    cancelled(place, known, id)
    with pytest.raises(NotCancellable, match="already cancelled"):
        cancelled(place, known, id)


def test_an_unknown_job_is_named(place, known):
    with pytest.raises(UnknownName, match="no job 'nobody'"):
        cancelled(place, known, "nobody")


def test_a_running_job_of_another_app_is_left_to_it(place, worker):
    id = place.put().id
    place.take(worker)
    with pytest.raises(UnknownName, match="cancel it from the app that does"):
        cancelled(place, Catalogue([]), id)
    assert place.see(id).state is State.PROCESSING


def test_a_waiting_job_of_another_app_can_be_cancelled(place):
    id = place.put().id
    cancelled(place, Catalogue([]), id)
    assert place.see(id).state is State.CANCELLED


class Racing:
    """A store in which somebody else is quicker, a number of times."""

    def __init__(self, place, moves):
        self._place = place
        self._moves = list(moves)

    def turn(self, records, order, *, by):
        if self._moves:
            self._moves.pop(0)()
        return self._place.store.turn(records, order, by=by)


def test_a_job_that_is_claimed_in_between_is_cancelled_all_the_same(place, known, worker):
    id = place.put().id
    held = []
    store = Racing(place, [lambda: held.extend(place.take(worker))])
    cancelled(place, known, id, store=store)
    assert place.see(id).state is State.CANCELLED
    assert isinstance(place.settle(success(held[0], worker), by=worker)[0], Stale)
    assert [one.status for one in place.reader.attempts(1)] == ["cancelled"]
    place.clean()


def test_a_job_that_moves_on_again_and_again_is_cancelled_in_the_end(place, known, worker):
    id = place.put().id

    def claim_and_release() -> None:
        (claim,) = place.take(worker)
        place.settle(release(claim, worker), by=worker)

    cancelled(place, known, id, store=Racing(place, [claim_and_release] * 5))
    assert place.see(id).state is State.CANCELLED
    place.clean()


def test_a_job_that_never_holds_still_is_given_up_with_a_report(place, known, worker):
    id = place.put().id

    def claim_and_release() -> None:
        (claim,) = place.take(worker)
        place.settle(release(claim, worker), by=worker)

    with pytest.raises(BugError, match=r"moved on 100 times"):
        cancelled(place, known, id, store=Racing(place, [claim_and_release] * 200))
    assert place.see(id).state is State.QUEUED


def test_a_job_that_finishes_in_between_has_finished(place, known, worker):
    id = place.put().id
    (claim,) = place.take(worker)
    store = Racing(place, [lambda: place.settle(success(claim, worker), by=worker)])
    with pytest.raises(NotCancellable, match="already succeeded"):
        cancelled(place, known, id, store=store)
    assert place.see(id).state is State.SUCCEEDED
    place.clean()


# -- retry -------------------------------------------------------------------------------


def retried(place, known, id, *, through=None, deed=DEED, **options):
    return control.retry(through or place.control, place.reader, known, id, deed=deed, **options)


def test_a_new_life_is_told_after_it_is_durable_with_who_gave_it_and_why(place, worker, known):
    (id,) = dead(place, worker)
    seen = []

    def look(event):
        seen.append((event.name, event.fields, place.see(id).state))

    retried(place, known, id, deed=Deed("ann", "the disk is back"), observers=Observers([look]))
    fields = {"job_id": id, "stage": "one", "by_whom": "ann", "reason": "the disk is back"}
    assert seen == [(EventName.JOB_REVIVED, fields, State.QUEUED)]


def test_a_retry_that_is_refused_tells_nothing(place, known):
    notes = Notes()
    id = place.put().id
    with pytest.raises(NotRetriable):
        retried(place, known, id, observers=Observers([notes]))
    assert notes.names() == []


def dead(place: Place, worker: int, count: int = 1, **changes: object) -> list[str]:
    """Dead letters, oldest first."""
    ids = [one.id for one in place.put_many(count, **changes)]
    for claim in place.take(worker, count):
        place.settle(failure(claim, worker), by=worker)
    return ids


def test_a_failed_job_is_retried_with_counters_from_zero(place, known, worker):
    (id,) = dead(place, worker)
    place.clock.push(60)
    receipt = retried(place, known, id)
    assert (receipt.state, receipt.due_at) == (State.QUEUED, place.clock.now())
    job = place.see(id)
    assert (job.life, job.retries_manual, job.counters.failures) == (2, 1, 0)
    assert (job.failed_reason, job.error_kind, job.finished_at) == (None, None, None)
    assert place.taken_ids(worker) == [id]
    place.clean()


def test_who_retried_a_job_and_why_is_written_down_cleaned(place, known, worker):
    (id,) = dead(place, worker)
    retried(place, known, id, deed=Deed("ann\x00", "two\nlines \ud800" + "x" * 10_000))
    (line,) = place.reader.deeds()
    assert (line.by_whom, line.verb, line.subject) == ("ann", "revive job", id)
    assert line.reason.startswith("two lines ?xxx")
    assert len(line.reason) < 1_000


def test_a_job_is_retried_from_an_earlier_stage(place, known, worker):
    id = place.put().id
    (claim,) = place.take(worker)
    place.settle(advance(claim, worker, place.lanes["two"]), by=worker)
    (claim,) = place.take(worker)
    place.settle(failure(claim, worker), by=worker)
    retried(place, known, id, restart=FROM_START)
    job = place.see(id)
    assert (job.stage, job.input_from, job.input_json) == ("one", None, job.payload_json)
    place.clean()


@pytest.mark.parametrize("end", [success, None])
def test_a_job_that_has_not_failed_is_not_retried(place, known, worker, end):
    id = place.put().id
    if end is not None:
        (claim,) = place.take(worker)
        place.settle(end(claim, worker), by=worker)
    before = place.everything()
    with pytest.raises(NotRetriable, match=f"job {id} is (succeeded|queued); only a failed job"):
        retried(place, known, id)
    assert place.everything() == before


def test_a_job_is_retried_once(place, known, worker):
    (id,) = dead(place, worker)
    retried(place, known, id)
    with pytest.raises(NotRetriable, match="is queued"):
        retried(place, known, id)


def test_an_unknown_job_cannot_be_retried(place, known):
    with pytest.raises(UnknownName, match="no job 'nobody'"):
        retried(place, known, "nobody")


def test_a_stage_that_is_not_there_is_named(place, known, worker):
    (id,) = dead(place, worker)
    with pytest.raises(UnknownName, match="has no stage 'four'; it has: one, two"):
        retried(place, known, id, restart=Restart("four"))
    assert place.see(id).state is State.FAILED


def test_a_source_that_is_gone_refuses_the_retry_in_its_own_words(place, known, worker):
    (id,) = dead(place, worker)
    with pytest.raises(NotRetriable, match=f"job {id} cannot be retried: its file is gone"):
        retried(place, known, id, check=lambda job: "its file is gone")
    assert place.see(id).state is State.FAILED
    retried(place, known, id, check=lambda job: None)


class Hurried:
    """A control in which somebody else is quicker, before certain calls."""

    def __init__(self, place, **moves):
        self._control = place.control
        self._moves = moves

    def __getattr__(self, name):
        moves = self._moves.get(name)
        if moves:
            moves.pop(0)()
        return getattr(self._control, name)


def test_a_job_that_is_discarded_in_between_is_retried_all_the_same(place, known, worker):
    (id,) = dead(place, worker)

    def discards() -> None:
        place.control.discard([target(place.see(id))], DEED)

    retried(place, known, id, through=Hurried(place, revive=[discards]))
    assert (place.see(id).state, place.see(id).discarded_at) == (State.QUEUED, None)
    place.clean()


def test_of_two_who_retry_a_job_one_is_told_that_it_came_too_late(place, known, worker):
    (id,) = dead(place, worker)
    other = Hurried(place, revive=[lambda: retried(place, known, id)])
    with pytest.raises(NotRetriable, match="is queued"):
        retried(place, known, id, through=other)
    assert place.see(id).life == 2
    assert len(place.reader.deeds()) == 1


# -- by filter ---------------------------------------------------------------------------

ID = "00000000-0000-7000-8000-00000000b01c"


def begun(place, verb=BulkVerb.REDRIVE, chosen=EVERY_JOB, id=ID):
    return begin(place.control, verb, chosen, deed=DEED, bulk_id=id)


def driven(place, known, bulk=None, *, through=None, **options):
    return control.redrive(
        through or place.control, place.reader, known, bulk or begun(place), deed=DEED, **options
    )


def discarded(place, bulk=None, *, through=None, **options):
    bulk = bulk or begun(place, BulkVerb.DISCARD)
    return control.discard(through or place.control, place.reader, bulk, deed=DEED, **options)


def test_a_bulk_tells_each_job_that_it_has_moved_and_no_other(place, worker, known):
    ids = dead(place, worker, 3)
    place.clock.push(1)
    place.control.discard([target(place.see(ids[0]))], DEED)
    notes = Notes()
    driven(place, known, observers=Observers([notes]))
    assert {one["job_id"] for one in notes.of(EventName.JOB_REVIVED)} == set(ids[1:])
    for claim in place.take(worker, 2):
        place.settle(failure(claim, worker), by=worker)
    place.clock.push(1)
    discarded(place, begun(place, BulkVerb.DISCARD, id=ID[:-1] + "d"), observers=Observers([notes]))
    told = notes.of(EventName.JOB_DISCARDED)
    assert {one["job_id"] for one in told} == set(ids[1:])
    assert {one["by_whom"] for one in told} == {DEED.by_whom}


def test_the_end_of_a_waiting_job_is_told_after_it_is_durable(place, known):
    id = place.put().id
    seen = []

    def look(event):
        seen.append((event.name, event.fields["job_id"], place.see(id).state))

    cancelled(place, known, id, notes=look)
    assert seen == [(EventName.JOB_CANCELLED, id, State.CANCELLED)]


def states(place: Place) -> list[State]:
    return [job.state for job in reversed(place.reader.jobs(limit=500))]


@pytest.fixture
def small_pages(monkeypatch):
    monkeypatch.setattr(control, "_PAGE_ROWS", 3)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 6, 7])
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


def test_dead_letters_are_discarded_and_stay_in_the_books(place, worker, small_pages):
    dead(place, worker, 7)
    bulk = discarded(place)
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, 7, 0)
    assert preview(place.reader, EVERY_JOB).count == 0
    assert place.reader.books().failed == 7
    place.clean()


def test_a_preview_counts_what_would_be_touched(place, known, worker):
    dead(place, worker, 3)
    place.put()
    place.control.discard([target(place.reader.jobs(DEAD_LETTERS)[0])], DEED)
    seen = preview(place.reader, JobFilter(pipeline="p"))
    assert (seen.count, [group.count for group in seen.groups]) == (2, [2])
    assert driven(place, known).done == 2


def test_a_filter_without_dead_letters_is_refused(place):
    with pytest.raises(NotRetriable, match="asks for jobs that are succeeded, queued"):
        begun(place, chosen=JobFilter(states=(State.SUCCEEDED, State.QUEUED)))
    assert place.reader.bulks() == []


def test_discarded_ones_are_driven_again_when_they_are_asked_for(place, known, worker):
    ids = dead(place, worker, 2)
    place.control.discard([target(place.see(ids[0]))], DEED)
    bulk = driven(place, known, begun(place, chosen=JobFilter(discarded=True)))
    assert bulk.done == 1
    assert states(place) == [State.QUEUED, State.FAILED]


def test_a_filter_survives_being_written_down(place):
    now = place.clock.now()
    chosen = JobFilter(
        states=(State.FAILED,), pipeline="p", stage="one", queue="q", category="c", owner="ann",
        run=7, reason=FailedReason.CRASHED, kind="network", text='"%_\\', enqueued_from=now,
        enqueued_until=now, discarded=True,
    )  # fmt: skip
    bulk = begun(place, chosen=chosen)
    assert msgspec.json.decode(bulk.filter_json, type=JobFilter) == dead_letters(chosen) == chosen


def test_only_what_the_filter_means_is_driven_again(place, known, worker):
    dead(place, worker, 2, owner="ann")
    dead(place, worker, 2, owner="bob")
    assert driven(place, known, begun(place, chosen=JobFilter(owner="bob"))).done == 2
    assert states(place) == [State.FAILED, State.FAILED, State.QUEUED, State.QUEUED]


def test_jobs_that_a_check_refuses_are_counted_and_left(place, known, worker, small_pages):
    dead(place, worker, 7)
    bulk = driven(place, known, check=lambda job: "no source" if job.no % 2 else None)
    assert (bulk.done, bulk.refused) == (3, 4)
    assert states(place).count(State.FAILED) == 4


def test_jobs_that_cannot_go_on_there_are_counted_and_left(place, known, worker):
    dead(place, worker, 2)
    bulk = driven(place, known, restart=Restart("two"))
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, 0, 2)
    assert states(place) == [State.FAILED, State.FAILED]


def test_a_job_that_moves_on_in_between_is_counted_as_refused(place, known, worker):
    ids = dead(place, worker, 2)
    other = Hurried(place, revive=[lambda: retried(place, known, ids[0])])
    bulk = driven(place, known, through=other)
    assert (bulk.done, bulk.refused) == (1, 1)
    assert [place.see(id).life for id in ids] == [2, 2]


def test_a_job_that_fails_again_meanwhile_is_not_driven_twice(place, known, worker, small_pages):
    dead(place, worker, 7)
    bulk = begun(place)
    place.clock.push(1)

    def fails_again() -> None:
        for claim in place.take(worker, 9):
            place.settle(failure(claim, worker), by=worker)

    bulk = driven(place, known, bulk, through=Hurried(place, step_bulk=[fails_again] * 9))
    assert (bulk.done, bulk.refused) == (7, 0)
    assert {job.life for job in place.reader.jobs()} == {2}
    assert states(place) == [State.FAILED] * 7


def broken() -> None:
    raise StoreUnavailable("the line broke")


@pytest.mark.parametrize("call", ["revive", "step_bulk"])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_an_operation_that_was_cut_off_is_gone_on_with(
    place, known, worker, small_pages, call, before
):
    dead(place, worker, 7)
    bulk = begun(place)
    place.clock.push(1)
    moves = [lambda: None] * before + [broken]
    with pytest.raises(StoreUnavailable):
        driven(place, known, bulk, through=Hurried(place, **{call: moves}))
    for claim in place.take(worker, 9):  # what was revived fails again, after the beginning
        place.settle(failure(claim, worker), by=worker)
    (left,) = place.reader.bulks(running=True)
    over = driven(place, known, left)
    assert over.status is BulkStatus.DONE
    lost = 3 if call == "step_bulk" and before < 2 else 1 if call == "step_bulk" else 0
    assert (over.done, over.refused) == (7 - lost, 0)
    assert {job.life for job in place.reader.jobs()} == {2}
    place.clean()


def test_the_same_id_is_the_same_operation(place, known, worker):
    dead(place, worker, 2)
    driven(place, known, begun(place))
    dead(place, worker, 1)
    again = driven(place, known, begun(place))
    assert (again.status, again.done) == (BulkStatus.DONE, 2)
    assert len(place.reader.bulks()) == 1


def test_an_operation_that_somebody_stops_does_no_more(place, known, worker, small_pages):
    dead(place, worker, 7)
    bulk = begun(place)

    def stopped() -> None:
        place.control.step_bulk(BulkStep(bulk.no, None, None, status=BulkStatus.STOPPED))

    over = driven(place, known, bulk, through=Hurried(place, step_bulk=[stopped]))
    assert over.status is BulkStatus.STOPPED
    assert states(place).count(State.QUEUED) == 3
    assert driven(place, known, over) == over


def test_an_operation_is_gone_through_by_its_own_verb_only(place, known):
    with pytest.raises(CallerError, match="is a discard, not a redrive"):
        driven(place, known, begun(place, BulkVerb.DISCARD))


def test_a_discard_shows_the_token_it_saw(place, known, worker):
    ids = dead(place, worker, 2)
    other = Hurried(place, discard=[lambda: retried(place, known, ids[1])])
    bulk = discarded(place, through=other)
    assert (bulk.done, bulk.refused) == (1, 1)
    assert [place.see(id).state for id in ids] == [State.FAILED, State.QUEUED]
    assert place.see(ids[1]).discarded_at is None
    assert isinstance(place.control.discard([Target(1, ids[0], 99)], DEED)[0], Stale)
