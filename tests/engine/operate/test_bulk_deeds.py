"""Jobs by filter, cancelled, run now and retried: each once, whoever else is at it, whenever we die."""

from datetime import timedelta

import pytest

from perdure.engine.observe import Observers
from perdure.engine.operate import bulks as bulks_module
from perdure.engine.operate.bulk_settings import BulkSettings
from perdure.engine.operate.bulks import Bulks
from perdure.engine.operate.eligible import Previewing
from perdure.engine.operate.revival import Revivals
from perdure.engine.stages import Catalogue
from perdure.model.errors import CallerError, NotCancellable, NotChangeable, StoreUnavailable
from perdure.model.events import EventName
from perdure.model.filters import EVERY_JOB, JobFilter
from perdure.model.operations import BulkStatus, BulkVerb, BulkView
from perdure.model.states import State
from tests.engine.kit import Notes, line_on
from tests.engine.operate.dead_kit import Hurried, dead
from tests.engine.operate.test_deeds import waiting
from tests.stores.kit import DEED, retry, success

ID = "00000000-0000-7000-8000-00000000b01c"


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


def begun(place, known, verb, chosen=EVERY_JOB, payloads=None, **settings) -> BulkView:
    return hands(place, known).begin(
        verb,
        chosen,
        BulkSettings(payloads=payloads is not None, **settings),
        deed=DEED,
        bulk_id=ID,
        payloads=payloads or {},
    )


def done(place, known, verb, chosen=EVERY_JOB, *, payloads=None, **options) -> BulkView:
    bulk = begun(place, known, verb, chosen, payloads)
    return hands(place, known, **options).through(bulk)


def states(place) -> list[State]:
    return [job.state for job in reversed(place.reader.jobs(limit=500))]


def later(place, **changes) -> str:
    return place.put(run_at=place.clock.now() + timedelta(hours=1), **changes).id


# -- cancel ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_all_open_jobs_are_cancelled_whatever_the_pages(place, known, worker, small_pages, count):
    ended = place.dead_letter(worker, end=success).id
    place.put_many(count)
    place.take(worker, 2)
    notes = Notes()
    bulk = done(place, known, BulkVerb.CANCEL, notes=notes)
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, count, 0)
    assert states(place) == [State.SUCCEEDED, *[State.CANCELLED] * count]
    assert len([one for one in place.reader.deeds() if one.verb == "cancel job"]) == count
    assert len(notes.of(EventName.JOB_CANCELLED)) == count
    assert place.see(ended).state is State.SUCCEEDED
    place.clean()


def test_a_job_that_is_enqueued_later_is_not_meant(place, known):
    place.put()
    bulk = begun(place, known, BulkVerb.CANCEL)
    place.clock.push(1)
    place.put()
    hands(place, known).through(bulk)
    assert states(place) == [State.CANCELLED, State.QUEUED]


def test_only_what_the_filter_means_is_cancelled(place, known, worker):
    mine, other = place.put(owner="ann").id, place.put(owner="bob").id
    bulk = done(place, known, BulkVerb.CANCEL, JobFilter(owner="ann"))
    assert bulk.done == 1
    assert (place.see(mine).state, place.see(other).state) == (State.CANCELLED, State.QUEUED)
    with pytest.raises(NotCancellable, match="jobs that are failed; only queued and processing"):
        begun(place, known, BulkVerb.CANCEL, JobFilter(states=(State.FAILED,)))


def test_a_job_that_is_claimed_in_between_is_cancelled_all_the_same(place, known, worker):
    place.put_many(3)
    moved = Hurried(place, cancel=[lambda: place.take(worker, 2)])
    bulk = done(place, known, BulkVerb.CANCEL, through=moved)
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, 3, 0)
    assert states(place) == [State.CANCELLED] * 3
    place.clean()


def test_a_job_that_ends_in_between_has_ended_and_is_not_counted(place, known, worker):
    place.put_many(2)

    def ends():
        (claim,) = place.take(worker)
        place.settle(success(claim, worker), by=worker)

    bulk = done(place, known, BulkVerb.CANCEL, through=Hurried(place, cancel=[ends]))
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, 1, 0)
    assert states(place) == [State.SUCCEEDED, State.CANCELLED]


def test_a_running_stage_that_is_not_known_here_is_left_to_who_knows_it(
    place, known, worker, small_pages
):
    place.put_many(3)
    place.take(worker)
    bulk = done(place, Catalogue([]), BulkVerb.CANCEL)
    assert (bulk.status, bulk.done) == (BulkStatus.RUNNING, 2)
    assert states(place) == [State.PROCESSING, State.CANCELLED, State.CANCELLED]
    over = hands(place, known).through(bulk)
    assert (over.status, over.done) == (BulkStatus.DONE, 3)
    place.clean()


def test_a_queued_job_that_a_stranger_claims_in_between_is_left_to_who_knows_it(
    place, known, worker
):
    place.put_many(3)
    moved = Hurried(place, cancel=[lambda: place.take(worker)])
    bulk = done(place, Catalogue([]), BulkVerb.CANCEL, through=moved)
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.RUNNING, 2, 0)
    assert hands(place, known).through(bulk).done == 3
    place.clean()


def test_an_operation_that_is_stopped_cancels_no_more(place, known, small_pages):
    place.put_many(7)
    here = hands(place, known)
    bulk = here.once(begun(place, known, BulkVerb.CANCEL))
    assert bulk is not None
    stopped = here.stop(bulk, DEED)
    assert here.through(stopped).done == 3
    assert here.through(here.resume(stopped, DEED)).done == 7


@pytest.mark.parametrize("nth", range(7))
def test_whenever_we_die_each_job_is_cancelled_and_counted_once(place, known, small_pages, nth):
    place.put_many(7)
    bulk = begun(place, known, BulkVerb.CANCEL)

    def dies():
        raise StoreUnavailable("the line broke")

    moves = {"cancel": [lambda: None] * (nth // 2), "step_bulk": [lambda: None] * (nth // 2)}
    moves["cancel" if nth % 2 else "step_bulk"].append(dies)
    with pytest.raises(StoreUnavailable):
        hands(place, known, through=Hurried(place, **moves)).through(bulk)
    (seen,) = place.reader.bulks()
    over = hands(place, known).through(seen)
    assert (over.status, over.done, over.refused) == (BulkStatus.DONE, 7, 0)
    assert len([one for one in place.reader.deeds() if one.verb == "cancel job"]) == 7
    place.clean()


# -- run now -----------------------------------------------------------------------------


def test_all_that_wait_are_due_now_and_the_others_are_not_meant(place, known, worker, small_pages):
    retrying = waiting(place, worker)
    scheduled = [later(place) for _ in range(4)]
    ready = place.put().id
    bulk = done(place, known, BulkVerb.RUN_NOW)
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, 5, 0)
    assert sorted(place.taken_ids(worker, 9)) == sorted([retrying, *scheduled, ready])
    place.clean()


def test_what_an_upstream_has_ordered_to_wait_is_refused_and_says_so(place, known, worker):
    id = waiting(place, worker, hint_s=60)
    bulk = done(place, known, BulkVerb.RUN_NOW)
    assert (bulk.done, bulk.refused) == (0, 1)
    (refusal,) = place.reader.refusals(bulk.no)
    assert refusal.job_id == id
    assert refusal.why.startswith("its upstream has asked to wait until")


def test_no_more_are_run_now_than_the_rate_allows(place, known):
    for _ in range(5):
        later(place)
    bulk = begun(place, known, BulkVerb.RUN_NOW, rate_per_s=2)
    here = hands(place, known)
    counts = []
    for _ in range(4):
        place.clock.push(1)
        bulk = here.through(bulk)
        counts.append(bulk.done)
    assert counts == [2, 4, 5, 5]
    assert bulk.status is BulkStatus.DONE


def test_only_queued_jobs_wait(place, known):
    with pytest.raises(NotChangeable, match="only queued ones wait"):
        begun(place, known, BulkVerb.RUN_NOW, JobFilter(states=(State.PROCESSING,)))


# -- retry -------------------------------------------------------------------------------


def test_dead_letters_are_retried_where_they_stand(place, known, worker, small_pages):
    run = place.begin_run()
    dead(place, worker, 2)
    inside = place.dead_letter(worker, run=run.no).id
    bulk = done(place, known, BulkVerb.RETRY)
    assert (bulk.status, bulk.done, bulk.run) == (BulkStatus.DONE, 3, None)
    assert (place.see(inside).run, place.see(inside).redrive_run) == (run.no, None)
    assert [job.lane for job in place.reader.jobs()] == [place.lanes["one"]] * 3
    place.clean()


def test_payloads_are_given_to_the_dead_letters_with_their_keys(place, known, worker, small_pages):
    one, two = (place.dead_letter(worker, key=key).id for key in ("a", "b"))
    left = [place.dead_letter(worker, key="c").id, place.dead_letter(worker).id]
    bulk = done(place, known, BulkVerb.RETRY, payloads={"a": "1", "b": "2", "z": "3"})
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.DONE, 2, 0)
    assert [place.see(id).payload_json for id in (one, two)] == ["1", "2"]
    assert {place.see(id).state for id in left} == {State.FAILED}
    assert place.reader.bulk_payloads(bulk.no, ["a", "b", "z"]) == {}
    place.clean()


def test_payloads_survive_the_death_of_whoever_brought_them(place, known, worker, small_pages):
    for n in range(5):
        place.dead_letter(worker, key=f"k{n}")
    bulk = begun(place, known, BulkVerb.RETRY, payloads={f"k{n}": f"{n}" for n in range(5)})
    assert hands(place, known).once(bulk) is not None  # and then it dies
    (seen,) = place.reader.bulks()
    assert hands(place, known).through(seen).done == 5
    assert [job.payload_json for job in place.reader.jobs()] == ["4", "3", "2", "1", "0"]


def test_a_retry_that_fails_again_is_not_taken_on_twice(place, known, worker, small_pages):
    dead(place, worker, 4)
    here = hands(place, known)
    bulk = here.once(begun(place, known, BulkVerb.RETRY))
    assert bulk is not None
    place.clock.push(1)
    for claim in place.take(worker, 9):
        place.settle(retry(claim, worker, delay_s=0), by=worker)
    assert here.through(bulk).done == 4
    assert {job.life for job in place.reader.jobs()} == {2}


def test_a_retry_is_of_one_pipeline(place, known):
    with pytest.raises(CallerError, match=r"a retry is of one pipeline; name one of .* none"):
        begun(place, known, BulkVerb.RETRY)


def test_a_preview_with_payloads_means_their_keys_and_names_those_of_nobody(place, known, worker):
    place.dead_letter(worker, key="a")
    place.dead_letter(worker, key="b")
    revivals = Revivals(place.reader, known, lanes_later=True)
    asking = Previewing(place.reader, revivals, {}, {"a": "1", "z": "2"})
    found = asking.of(EVERY_JOB, count_max=100)
    assert (found.count, found.eligible, found.keys_unknown) == (1, 1, ("z",))
