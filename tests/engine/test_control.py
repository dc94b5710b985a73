"""cancel: acknowledged once, and nothing starts afterwards."""

import msgspec
import pytest

from perdure.engine.control import cancel
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.model.errors import BugError, NotCancellable, UnknownName
from perdure.model.events import EventName
from perdure.model.jobs import Stale
from perdure.model.states import State
from tests.engine.kit import Notes, line_on
from tests.stores.kit import advance, failure, release, retry, success


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
