"""cancel and retry: each done once, whoever else is at it."""

import msgspec
import pytest

from perdure.engine.observe import Observers
from perdure.engine.operate.revival import FROM_START, Restart
from perdure.engine.operate.single_jobs import cancel
from perdure.engine.stages import Catalogue
from perdure.model.errors import (
    NotCancellable,
    NotRetriable,
    StoreBusy,
    UnknownName,
)
from perdure.model.events import EventName
from perdure.model.jobs import Busy, Stale
from perdure.model.operations import Deed
from perdure.model.states import State
from tests.engine.kit import Notes, line_on
from tests.engine.operate.dead_kit import Hurried, dead, retried
from tests.stores.kit import DEED, advance, failure, release, retry, success, target


@pytest.fixture
def known(place):
    """Everything that this app knows."""
    return Catalogue([line_on(place)])


@pytest.fixture
def worker(place):
    return place.hire()


def cancelled(place, known, id, *, through=None, notes=None, reason="", **options):
    return cancel(
        through or place.control,
        place.reader,
        known,
        id,
        deed=Deed("ann", reason),
        observers=Observers([notes] if notes else []),
        **options,
    )


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
    place.clock.push(2.5)
    cancelled(place, known, id, reason="changed my mind")
    assert isinstance(place.settle(success(claim, worker), by=worker)[0], Stale)
    job = place.see(id)
    assert (job.state, job.result_json, job.worker) == (State.CANCELLED, None, None)
    (attempt,) = place.reader.attempts(job.no)
    assert (attempt.status, attempt.worker, attempt.elapsed_s) == ("cancelled", worker, 2.5)
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


def test_who_cancelled_a_job_and_why_is_written_down(place, known, worker):
    waits, runs = place.put().id, place.put().id
    place.take(worker)
    for id in (waits, runs):
        cancelled(place, known, id, reason="wrong file")
    told = [(one.by_whom, one.verb, one.subject, one.reason) for one in place.reader.deeds()]
    assert told == [("ann", "cancel job", id, "wrong file") for id in (runs, waits)]
    place.clean()


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
    with pytest.raises(
        UnknownName,
        match=r"takes the app that has this stage: perdure jobs cancel .* --app module:app",
    ):
        cancelled(place, Catalogue([]), id)
    assert place.see(id).state is State.PROCESSING


def test_a_waiting_job_of_another_app_can_be_cancelled(place):
    id = place.put().id
    cancelled(place, Catalogue([]), id)
    assert place.see(id).state is State.CANCELLED


def test_a_job_that_is_claimed_in_between_is_cancelled_all_the_same(place, known, worker):
    id = place.put().id
    held = []
    hurried = Hurried(place, cancel=[lambda: held.extend(place.take(worker))])
    cancelled(place, known, id, through=hurried)
    assert place.see(id).state is State.CANCELLED
    assert isinstance(place.settle(success(held[0], worker), by=worker)[0], Stale)
    assert [one.status for one in place.reader.attempts(1)] == ["cancelled"]
    place.clean()


def test_a_job_that_moves_on_again_and_again_is_cancelled_in_the_end(place, known, worker):
    id = place.put().id

    def claim_and_release() -> None:
        (claim,) = place.take(worker)
        place.settle(release(claim, worker), by=worker)

    cancelled(place, known, id, through=Hurried(place, cancel=[claim_and_release] * 5))
    assert place.see(id).state is State.CANCELLED
    place.clean()


def test_a_job_that_never_holds_still_is_given_up_with_a_word_to_try_again(place, known, worker):
    id = place.put().id

    def claim_and_release() -> None:
        (claim,) = place.take(worker)
        place.settle(release(claim, worker), by=worker)

    with pytest.raises(StoreBusy, match=rf"job {id} was changed by others 100 times"):
        cancelled(place, known, id, through=Hurried(place, cancel=[claim_and_release] * 200))
    assert place.see(id).state is State.QUEUED


class Held:
    """A control that finds the job in somebody's open transaction, so often."""

    def __init__(self, place, times: int) -> None:
        self._control = place.control
        self.times = times

    def cancel(self, records, deed, **options):
        if self.times == 0:
            return self._control.cancel(records, deed, **options)
        self.times -= 1
        return [Busy(one.no, one.id, one.token) for one in records]


def test_who_cancels_a_job_that_a_transaction_holds_rests_between_two_tries(place, known):
    id, rests = place.put().id, []
    cancelled(place, known, id, through=Held(place, 3), rest=rests.append)
    assert place.see(id).state is State.CANCELLED
    assert rests == [0.01] * 3


def test_a_job_in_a_transaction_that_stays_open_is_soon_given_up(place, known):
    id, rests, held = place.put().id, [], Held(place, 1_000)
    with pytest.raises(StoreBusy, match="which is still open; try again when that has ended"):
        cancelled(place, known, id, through=held, rest=rests.append)
    assert (held.times, len(rests)) == (980, 19)
    assert place.see(id).state is State.QUEUED


def test_a_job_that_finishes_in_between_has_finished(place, known, worker):
    id = place.put().id
    (claim,) = place.take(worker)
    hurried = Hurried(place, cancel=[lambda: place.settle(success(claim, worker), by=worker)])
    with pytest.raises(NotCancellable, match="already succeeded"):
        cancelled(place, known, id, through=hurried)
    assert place.see(id).state is State.SUCCEEDED
    place.clean()


# -- retry -------------------------------------------------------------------------------


def test_a_new_life_is_told_after_it_is_durable_with_who_gave_it_and_why(place, worker, known):
    (id,) = dead(place, worker)
    seen = []

    def look(event):
        seen.append((event.name, event.fields, place.see(id).state))

    retried(place, known, id, deed=Deed("ann", "the disk is back"), observers=Observers([look]))
    fields = {
        "job_id": id,
        "request_id": id,
        "owner": None,
        "stage": "one",
        "by_whom": "ann",
        "reason": "the disk is back",
    }
    assert seen == [(EventName.JOB_REVIVED, fields, State.QUEUED)]


def test_a_retry_that_is_only_looked_at_does_nothing(place, known, worker):
    notes = Notes()
    (id,) = dead(place, worker)
    before = place.see(id)
    assert retried(place, known, id, dry_run=True, observers=Observers([notes])) == "one"
    assert (place.see(id), place.reader.deeds(), notes.names()) == (before, [], [])


def test_a_retry_that_is_refused_tells_nothing(place, known):
    notes = Notes()
    id = place.put().id
    with pytest.raises(NotRetriable):
        retried(place, known, id, observers=Observers([notes]))
    assert notes.names() == []


def test_a_failed_job_is_retried_with_counters_from_zero(place, known, worker):
    (id,) = dead(place, worker)
    place.clock.push(60)
    begins_at = retried(place, known, id)
    job = place.see(id)
    assert (begins_at, job.stage) == ("one", "one")
    assert (job.state, job.due_at) == (State.QUEUED, place.clock.now())
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


def test_the_end_of_a_waiting_job_is_told_after_it_is_durable(place, known):
    id = place.put().id
    seen = []

    def look(event):
        seen.append((event.name, event.fields["job_id"], place.see(id).state))

    cancelled(place, known, id, notes=look)
    assert seen == [(EventName.JOB_CANCELLED, id, State.CANCELLED)]
