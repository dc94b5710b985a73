"""Feeding a run: streamed, bounded, resumable, and told when nothing moves."""

import threading
import time
from random import Random

import pytest

from perdure.engine.batch import feeding
from perdure.engine.batch.feeding import Fed, Feeder, feed, feed_whole
from perdure.engine.batch.item_jobs import FeedTerms, NothingNow, Unreadable
from perdure.engine.batch.runs import OpenRun, Runs, is_stranded, unfed_at, unfed_words
from perdure.engine.idempotency import key_from_position
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.model.errors import CallerError, PayloadRefused, StoreFull, StoreUnavailable
from perdure.model.events import EventName
from perdure.model.jobs import ClaimOrder
from perdure.model.limits import FEEDER_AWAY_S_MAX, FEEDER_SILENT_S
from perdure.model.runs import RunStatus
from tests.engine.kit import Notes, line_on
from tests.stores.kit import DEED, success

_chance = Random(3)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(feeding, "_CHUNK", 10)


@pytest.fixture
def line(place):
    return line_on(place)


def runs_of(place, *, store=None, notes=None) -> Runs:
    observers = Observers([notes] if notes else [])
    return Runs(store or place.store, place.control, place.reader, observers)


def opened(place, line) -> OpenRun:
    """The run of these tests, found again."""
    return runs_of(place).open(
        line, Ids(place.clock, _chance), name="batch", owner="", options={}, deed=DEED
    )


@pytest.fixture
def run(place, line):
    return opened(place, line).run


def feeder(
    place, line, run, items, *, store=None, notes=None, monotonic=None, seal=False, **terms
) -> Feeder:
    lanes = place.store.run_lanes()
    lane = next(no for no, one in lanes.items() if (one.run, one.stage) == (run.no, "one"))
    return Feeder(
        runs_of(place, store=store, notes=notes),
        line,
        OpenRun(run, lane, was_sealed=False),
        items,
        ids=Ids(place.clock, _chance),
        terms=FeedTerms(seal=seal, **terms),
        by="me",
        monotonic=monotonic or place.clock.monotonic,
    )


def test_an_item_may_bring_its_request_id(place, line, run):
    notes = Notes()
    items = [{"req": 7}, {"req": ""}, {"n": 1}, {"req": "b"}]
    fed = feed(feeder(place, line, run, items, notes=notes, request_id="req"))
    jobs = sorted(place.reader.jobs(), key=lambda job: job.no)
    assert fed.created == 4
    assert [job.request_id for job in jobs] == ["7", jobs[1].id, jobs[2].id, "b"]
    assert notes.of(EventName.JOB_ENQUEUED)[0]["request_id"] == "7"
    again = feeder(
        place, line, run, [{"req": 8}], key=lambda item: "k", request_id=lambda item: "r"
    )
    feed(again)
    assert place.reader.jobs(limit=1)[0].request_id == "r"


def test_an_item_with_a_bad_request_id_is_a_bad_item(place, line, run):
    heard = []
    items = [{"req": "a b"}, {"req": 1.5}, {"req": "c"}]
    with pytest.raises(PayloadRefused, match="item 1 of the run: its request_id 'a b' must have"):
        feed(feeder(place, line, run, items, request_id="req"))
    bad = lambda at, why: heard.append(at)  # noqa: E731
    fed = feed(feeder(place, line, run, items, request_id="req", bad=bad))
    assert (heard, fed.created, fed.skipped) == ([0, 1], 1, 2)


def counts(place, run):
    return place.reader.run(run.id).counts


def worked_off(place, worker, count):
    order = ClaimOrder(worker, count, tuple(place.store.run_lanes()))
    for claim in place.store.turn([], order, by=worker).claims:
        place.settle(success(claim, worker), by=worker)


def test_all_items_become_jobs_in_their_order(place, line, run):
    fed = feed(feeder(place, line, run, ({"n": n} for n in range(25))))
    assert fed == Fed(items=25, created=25)
    items = place.reader.items(run.no)
    assert [one.key.split(":")[0] for one in items] == [str(n) for n in range(25)]
    assert counts(place, run).total == 25
    place.clean()


def test_the_same_items_again_are_known(place, line, run):
    feed(feeder(place, line, run, range(25)))
    again = feed(feeder(place, line, run, range(30)))
    assert again == Fed(items=30, created=5, known=25)
    assert counts(place, run).total == 30


def test_an_item_that_has_changed_is_another_item(place, line, run):
    feed(feeder(place, line, run, ["a", "b"]))
    again = feed(feeder(place, line, run, ["a", "c"]))
    assert (again.created, again.known) == (1, 1)


@pytest.mark.parametrize("key", ["id", lambda item: item["id"]], ids=["field", "function"])
def test_items_have_keys_of_their_own(place, line, run, key):
    items = [{"id": "a"}, {"id": 7}, {"id": "a"}]
    fed = feed(feeder(place, line, run, items, key=key))
    assert (fed.created, fed.known, fed.repeated) == (2, 0, 1)
    assert [one.key for one in place.reader.items(run.no)] == ["a", "7"]


@pytest.mark.parametrize("item", [{}, {"id": None}, {"id": ""}, {"id": True}, "text", {"id": [1]}])
def test_an_item_without_its_key_is_named_by_its_position(place, line, run, item):
    words = "item 2 of the run: (its field 'id' gives|it has no field 'id' to name it)"
    with pytest.raises(PayloadRefused, match=words):
        feed(feeder(place, line, run, [{"id": 1}, item], key="id"))


def test_a_bad_item_ends_the_feeding_and_what_went_before_stays(place, line, run):
    items = [*range(15), float("nan"), 99]
    with pytest.raises(PayloadRefused, match="item 16 of the run: "):
        feed(feeder(place, line, run, items))
    assert counts(place, run).total == 15


def test_a_source_that_fails_has_its_items_in_all_the_same(place, line, run):
    def source():
        yield from range(13)
        raise OSError("the disk is away")

    with pytest.raises(OSError, match="the disk is away"):
        feed(feeder(place, line, run, source()))
    assert counts(place, run).total == 13
    assert feed(feeder(place, line, run, range(20))).known == 13


def test_a_source_that_fails_while_the_store_is_away_is_not_taken_for_ended(place, line, run):
    def source():
        yield from range(3)
        raise OSError("the disk is away")

    store = Breaking(place.store, 1, after=False)
    with pytest.raises(CallerError, match="the source of the items failed after 3 of them"):
        feed(feeder(place, line, run, source(), store=store), rest=lambda s: None)
    assert counts(place, run).total == 3


def test_a_slow_source_does_not_keep_workers_waiting(place, line, run):
    def source():
        for n in range(20):
            place.clock.push(0.2)
            yield n

    one = feeder(place, line, run, source())
    assert one.once()
    assert counts(place, run).total == 3


def test_bad_items_are_heard_of_and_skipped(place, line, run):
    heard = []
    items = [1, Unreadable("line 2 is no JSON value"), float("nan"), 4]
    fed = feed(feeder(place, line, run, items, bad=lambda at, why: heard.append((at, str(why)))))
    assert fed == Fed(items=4, created=2, skipped=2)
    assert [at for at, _ in heard] == [1, 2]
    assert heard[0][1] == "line 2 is no JSON value"


def test_only_a_chunk_is_taken_from_the_source_at_once(place, line, run):
    taken = []

    def source():
        for n in range(1_000):
            taken.append(n)
            yield n

    one = feeder(place, line, run, source())
    assert one.once()
    assert len(taken) == 10


def test_while_too_many_items_are_open_it_waits_for_workers(place, line, run):
    worker = place.hire()
    notes = Notes()
    one = feeder(place, line, run, range(100), backlog_max=15, notes=notes)
    assert [one.once(), one.once(), one.once()] == [True, True, False]
    assert counts(place, run).open == 15
    worked_off(place, worker, 12)
    assert one.once()
    assert counts(place, run).open == 13
    assert one.once()
    assert not one.once()
    place.clock.push(31)
    assert not one.once()
    (told,) = notes.of(EventName.RUN_FEED_WAITING)
    assert (told["run"], told["run_name"]) == (run.no, "batch")
    assert (told["open"], told["backlog_max"]) == (15, 15)


def test_without_a_bound_it_never_waits(place, line, run):
    fed = feed(feeder(place, line, run, range(100), backlog_max=None), rest=pytest.fail)
    assert fed.created == 100


@pytest.mark.parametrize("bound", [0, -1, True])
def test_a_bound_that_makes_no_sense_is_named(place, line, run, bound):
    with pytest.raises(CallerError, match=f"backlog_max is {bound!r}"):
        feeder(place, line, run, [], backlog_max=bound)


@pytest.mark.parametrize(("status", "more"), [(RunStatus.ABORTED, 1), (RunStatus.CANCELLED, 0)])
def test_a_run_that_is_stopped_is_fed_no_more_than_what_was_taken(place, line, run, status, more):
    from perdure.model.runs import RunChange

    one = feeder(place, line, run, range(100))
    one.once()
    place.control.change_run(RunChange(run.no, RunStatus.RUNNING, status), DEED)
    fed = feed(one)
    assert (fed.created, fed.whole) == (10 + more, False)


class Breaking:
    """A store whose enqueue breaks a number of times, before or after the items have arrived."""

    def __init__(self, store, times, *, after):
        self._store = store
        self._times = times
        self._after = after

    def enqueue(self, jobs, *, within=None):
        self._times -= 1
        if self._times < 0:
            return self._store.enqueue(jobs, within=within)
        if self._after:
            self._store.enqueue(jobs, within=within)
        raise StoreUnavailable("the line broke")

    def lanes(self, wanted):
        return self._store.lanes(wanted)


def test_items_with_the_key_of_an_earlier_one_are_told_from_those_that_were_there(place, line, run):
    feed(feeder(place, line, run, [{"id": n} for n in range(5)], key="id"))
    again = [{"id": n % 12} for n in range(36)]
    fed = feed(feeder(place, line, run, again, key="id"))
    assert (fed.created, fed.known, fed.repeated) == (7, 15, 14)


def test_while_a_source_has_nothing_what_it_gave_is_fed(place, line, run):
    def source():
        yield from range(3)
        yield NothingNow()
        yield NothingNow()
        yield 3

    one = feeder(place, line, run, source())
    assert one.once()
    assert counts(place, run).total == 3
    feed(one)
    items = [item.key.split(":")[0] for item in place.reader.items(run.no)]
    assert items == ["0", "1", "2", "3"]


def test_a_chunk_ends_when_it_is_large(place, line, run, monkeypatch):
    monkeypatch.setattr(feeding, "ENQUEUE_BYTES_MAX", 100)
    one = feeder(place, line, run, ["x" * 40] * 10)
    one.once()
    assert counts(place, run).total == 3


@pytest.mark.parametrize("key", ["x" * 201, "a\nb", "a\x00"])
def test_a_key_that_cannot_be_stored_is_a_bad_item(place, line, run, key):
    heard = []
    items = [{"id": "good"}, {"id": key}]
    fed = feed(feeder(place, line, run, items, key="id", bad=lambda at, why: heard.append(at)))
    assert (fed.created, fed.skipped, heard) == (1, 1, [1])


@pytest.mark.parametrize("after", [False, True])
def test_a_store_that_is_away_is_waited_for_and_nothing_comes_twice(place, line, run, after):
    rests = []
    store = Breaking(place.store, 3, after=after)
    fed = feed(feeder(place, line, run, range(25), store=store), rest=rests.append)
    assert len(rests) == 3
    assert (fed.items, fed.created + fed.known) == (25, 25)
    assert counts(place, run).total == 25


def test_a_store_that_stays_away_is_told_to_the_caller(place, line, run):
    with pytest.raises(StoreUnavailable):
        feed(
            feeder(place, line, run, range(25), store=Breaking(place.store, 10**9, after=False)),
            rest=place.clock.push,
            monotonic=place.clock.monotonic,
        )


def test_a_default_key_has_the_position_and_the_content():
    assert key_from_position(3, '{"a":1}') == key_from_position(3, '{"a":1}')
    assert (
        len({key_from_position(3, "1"), key_from_position(4, "1"), key_from_position(3, "2")}) == 3
    )


def fed_whole(place, line, items, *, seal=True):
    one = Feeder(
        runs_of(place),
        line,
        opened(place, line),
        items,
        ids=Ids(place.clock, _chance),
        by="me",
        terms=FeedTerms(seal=seal),
        monotonic=place.clock.monotonic,
    )
    return feed_whole(one)


def test_a_run_is_sealed_when_all_of_its_items_are_in(place, line):
    assert fed_whole(place, line, range(3)).sealed_at is not None
    assert fed_whole(place, line, range(4), seal=False).sealed_at is None


def test_a_run_whose_source_fails_is_not(place, line, run):
    with pytest.raises(PayloadRefused):
        fed_whole(place, line, [1, float("nan")])
    assert place.reader.run(run.id).sealed_at is None


def test_a_run_that_was_over_is_so_still_when_nothing_new_has_come(place, line, run):
    assert fed_whole(place, line, []).status is RunStatus.COMPLETED
    with pytest.raises(PayloadRefused):
        fed_whole(place, line, [float("nan")])
    assert place.reader.run(run.id).status is RunStatus.COMPLETED
    with pytest.raises(PayloadRefused):
        fed_whole(place, line, [1, float("nan")])
    assert place.reader.run(run.id).status is RunStatus.RUNNING


# -- signs of life, and the seal -------------------------------------------------------------


def test_a_run_that_is_aborted_after_its_last_item_is_sealed_all_the_same(place, line):
    begun = opened(place, line)
    one = feeder(place, line, begun.run, range(10), seal=True)
    assert one.once()  # a whole chunk: nobody knows yet that it was the last
    runs_of(place).abort(begun.run, "aborted: enough")
    feed(one)
    assert (one.fed.whole, one.fed.created) == (True, 10)
    aborted = place.reader.run(begun.run.id)
    assert (aborted.status, aborted.sealed_at is not None) == (RunStatus.ABORTED, True)


def test_a_run_whose_items_have_all_ended_is_over_when_it_is_resumed(place, line):
    begun, worker = opened(place, line), place.hire()
    one = feeder(place, line, begun.run, range(10), seal=True)
    one.once()
    worked_off(place, worker, 10)
    runs_of(place).abort(begun.run, "aborted: enough")
    feed(one)
    assert runs_of(place).resume(one.run, DEED).status is RunStatus.COMPLETED


@pytest.mark.parametrize("after", [False, True])
def test_a_store_that_is_away_at_the_seal_is_waited_for(place, line, after, monkeypatch):
    begun, right, times = opened(place, line), place.control.seal_run, [1, 2]

    def seal_run(no):
        sealed = right(no) if after or not times else None
        if times:
            times.pop()
            raise StoreUnavailable("the line broke")
        return sealed

    monkeypatch.setattr(place.control, "seal_run", seal_run)
    rests = []
    feed(feeder(place, line, begun.run, range(3), seal=True), rest=rests.append)
    assert len(rests) == 2
    assert place.reader.run(begun.run.id).sealed_at is not None


def test_whoever_feeds_leaves_a_sign_now_and_then_also_while_it_waits(place, line, run):
    one = feeder(place, line, run, range(100), backlog_max=10)
    began_at = place.clock.now()
    signs = []
    for _ in range(4):
        one.once()
        signs.append((place.reader.run(run.id).fed_at - began_at).total_seconds())
        place.clock.push(3)
    assert signs == [0, 0, 6, 6]
    seen = place.reader.run(run.id)
    assert (seen.fed_by, seen.feeding_at) == ("me", began_at)
    assert unfed_at(seen, place.clock.now()) is None
    place.clock.push(FEEDER_SILENT_S)  # it has died
    assert unfed_at(seen, place.clock.now()) == seen.fed_at


def test_a_source_that_is_slow_is_a_sign_of_life_too(place, line, run, monkeypatch):
    """Signs are left beside the feeding, on a thread of their own."""
    monkeypatch.setattr(feeding, "FEEDER_SIGN_S", 0.001)
    signs, enough = [], threading.Event()

    def note_feeding(no, by, *, ended=False):
        signs.append(ended)
        if len(signs) == 4:
            enough.set()

    def source():
        yield 1
        assert enough.wait(30)
        yield 2

    monkeypatch.setattr(place.control, "note_feeding", note_feeding)
    feed_whole(feeder(place, line, run, source(), monotonic=time.monotonic))
    assert signs.count(True) == 1
    assert signs[-1]


def test_a_feeder_that_is_interrupted_says_at_once_that_it_feeds_no_more(place, line, run):
    def source():
        yield 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        feed_whole(feeder(place, line, run, source(), seal=True))
    seen = place.reader.run(run.id)
    assert (seen.fed_by, seen.feeding_at, seen.sealed_at) == ("me", None, None)
    assert unfed_at(seen, place.clock.now()) == place.clock.now()
    assert unfed_words(seen, place.clock.now()).endswith(f"are in: perdure runs seal {seen.no}")
    assert not is_stranded(seen, place.clock.now())  # its item is open, and there is hope
    worked_off(place, place.hire(), 1)
    place.clock.push(FEEDER_SILENT_S)
    assert is_stranded(place.reader.run(run.id), place.clock.now())


def test_a_sign_that_cannot_be_left_keeps_nobody_from_feeding(place, line, run, monkeypatch):
    def note_feeding(no, by, *, ended=False):
        raise StoreFull("no space is left")

    monkeypatch.setattr(place.control, "note_feeding", note_feeding)
    assert feed_whole(feeder(place, line, run, range(3), seal=True)).sealed_at is not None


def test_a_feeder_that_waits_for_a_store_that_is_away_is_not_given_up(place, line, run):
    """It leaves no sign meanwhile, and all that it has fed has been worked off."""
    one = feeder(place, line, run, range(20))
    one.once()
    worked_off(place, place.hire(), 10)
    store, one._runs = one._runs, runs_of(place, store=Breaking(place.store, 10**6, after=False))
    rests = []

    def rest(seconds):
        rests.append(seconds)
        place.clock.push(seconds)
        assert not is_stranded(place.reader.run(run.id), place.clock.now())

    real = one.sign
    one.sign = lambda: None  # nor can a sign be left
    with pytest.raises(StoreUnavailable):
        feed(one, rest=rest, monotonic=place.clock.monotonic)
    assert sum(rests) >= FEEDER_AWAY_S_MAX
    one._runs, one.sign = store, real
    assert feed(one).whole


def test_a_run_that_was_never_fed_says_so_after_a_while(place, run):
    assert unfed_at(run, place.clock.now()) is None
    place.clock.push(FEEDER_SILENT_S)
    assert unfed_at(run, place.clock.now()) == run.created_at


def test_a_run_that_is_over_or_sealed_needs_nobody(place, line, run):
    place.clock.push(FEEDER_SILENT_S)
    assert unfed_at(runs_of(place).cancel(run, DEED), place.clock.now()) is None
    assert unfed_at(place.control.seal_run(run.no), place.clock.now()) is None
