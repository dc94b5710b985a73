"""One reader of the change feed for many listeners: each hears what it may see, once, however slow it is."""

import pytest

from perdure.engine.operate import feed_listeners
from perdure.engine.operate.feed_listeners import ChangeFeed, Listener
from perdure.model.changes import ChangeKind
from perdure.model.errors import CallerError, CursorTooOld, StoreUnavailable
from perdure.model.gates import GateChange, GateState
from perdure.testing.store_contract.fresh_store import DEED


class Counted:
    """A reader that counts how often the feed is read, and may be away."""

    def __init__(self, reader):
        self._reader = reader
        self.reads = 0
        self.away = False
        self.limit = None

    def changes(self, after=None, **how):
        self.reads += 1
        if self.away:
            raise StoreUnavailable("the store is away")
        if self.limit is not None:
            how["limit"] = self.limit
        return self._reader.changes(after, **how)


# On a server that others use, their transactions may hold the pruning up.
where_pruning_is_prompt = pytest.mark.parametrize("anywhere", ["sqlite"], indirect=True)


@pytest.fixture
def reader(either):
    return Counted(either.reader)


@pytest.fixture
def feed(reader):
    return ChangeFeed(reader)


def step(feed: ChangeFeed) -> None:
    """Until nothing is to be had."""
    for _ in range(100):
        if not feed.once():
            return
    raise AssertionError("there is always more")


def heard(listener: Listener) -> list[str]:
    """The ids of all that was waiting."""
    ids, page = [], listener.take()
    while page.entries:
        ids += [one.id for one in page.entries]
        page = listener.take()
    return ids


def test_all_who_listen_hear_the_same_and_the_store_is_read_once(either, feed, reader):
    listeners = [feed.listen() for _ in range(50)]
    step(feed)
    before = reader.reads
    ids = [either.put().id for _ in range(3)]
    step(feed)
    assert reader.reads == before + 1
    assert [heard(one) for one in listeners] == [ids] * 50
    step(feed)
    assert [heard(one) for one in listeners] == [[]] * 50


def test_an_owner_hears_of_its_own_jobs_and_runs_and_of_nothing_else(either, feed):
    ann, bob, operator = feed.listen(owner="ann"), feed.listen(owner="bob"), feed.listen()
    nobody = feed.listen(owner="")
    run = either.begin_run(owner="ann")
    either.clock.push(1)
    one = either.put(owner="ann", run=run.no).id
    two = either.put(owner="bob").id
    three = either.put().id
    either.control.change_gate(GateChange("vendor", 0, GateState.HELD, None), DEED)
    either.hire()
    step(feed)
    assert heard(ann) == [run.id, one]
    assert heard(bob) == [two]
    assert heard(nobody) == [three]
    kinds = [entry.kind for entry in operator.take().entries]
    assert ChangeKind.GATE_CHANGED in kinds
    assert ChangeKind.WORKER_CHANGED in kinds
    assert len(kinds) == 6


def test_who_goes_on_after_a_cursor_hears_what_came_since(either, feed):
    first = feed.listen()
    either.put()
    step(feed)
    cursor = first.take().cursor
    ids = [either.put().id for _ in range(3)]
    step(feed)
    late = feed.listen(after=cursor)
    ids.append(either.put().id)
    step(feed)
    assert heard(late) == ids
    assert heard(first) == ids


def test_a_cursor_that_is_ahead_of_this_process_hears_nothing_twice(either, feed, reader):
    """It comes from another process, whose reader was quicker."""
    mine = feed.listen()
    step(feed)
    either.put()
    ahead = either.reader.changes().cursor
    listener = feed.listen(after=ahead)
    feed._reader = reader  # what it has read is from before
    id = either.put().id
    step(feed)
    assert heard(listener) == [id]
    assert len(heard(mine)) == 2


def test_an_empty_page_says_how_far_a_quiet_listener_is(either, feed):
    quiet = feed.listen(owner="ann")
    either.put(owner="bob")
    step(feed)
    page = quiet.take()
    assert (page.entries, page.more) == ((), False)
    assert either.reader.changes(page.cursor).entries == ()


def test_a_slow_listener_holds_up_nobody_and_misses_nothing(either, feed, monkeypatch):
    monkeypatch.setattr(feed_listeners, "WAITING_MAX", 4)
    slow, quick = feed.listen(), feed.listen()
    ids = []
    for _ in range(10):
        ids += [one.id for one in either.put_many(2)]
        step(feed)
        assert set(heard(quick)) <= set(ids)
    assert slow.behind
    assert sum(len(page.entries) for page in slow._waiting) <= 6
    found = []
    for _ in range(20):
        found += heard(slow)
        step(feed)
    assert sorted(found) == sorted(ids)
    assert not slow.behind
    either.put()
    step(feed)
    assert len(heard(slow)) == 1


def test_a_slow_listener_is_served_while_the_others_never_come_to_an_end(
    either, reader, feed, monkeypatch
):
    monkeypatch.setattr(feed_listeners, "WAITING_MAX", 1)
    slow = feed.listen()
    ids, found = [], []
    for _ in range(2):  # the first waits for it, the second does not
        ids.append(either.put().id)
        step(feed)
    assert slow.behind
    reader.limit = 2
    found += heard(slow)
    for _ in range(5):  # three come, two are read
        ids += [one.id for one in either.put_many(3)]
        assert feed.once() is True
        found += heard(slow)
    assert len(found) >= 6
    for _ in range(20):
        feed.once()
        found += heard(slow)
    assert sorted(found) == sorted(ids)
    assert not slow.behind


def test_who_fails_is_told_and_who_listens_afterwards_is_served(either, feed):
    failed = feed.listen()
    step(feed)
    feed._cursor = "not one of ours"
    with pytest.raises(CallerError) as error:
        feed.once()
    feed.fail(error.value)
    with pytest.raises(CallerError, match="is not a cursor"):
        failed.take()
    fresh = feed.listen()
    id = either.put().id
    step(feed)
    assert heard(fresh) == [id]
    assert feed.leave(failed) is True
    assert feed.leave(fresh) is False


def test_a_cursor_that_is_refused_later_is_the_trouble_of_one_listener(either, feed):
    one, two = feed.listen(), feed.listen()
    one._cursor = "not one of ours"
    id = either.put().id
    step(feed)
    assert heard(two) == [id]
    with pytest.raises(CallerError, match="is not a cursor"):
        one.take()


@where_pruning_is_prompt
def test_who_was_behind_for_too_long_is_told_so(either, feed, monkeypatch):
    monkeypatch.setattr(feed_listeners, "WAITING_MAX", 1)
    slow, quick = feed.listen(), feed.listen()
    either.control.prune_changes(60.0, limit=100)
    for _ in range(30):
        either.put()
        either.clock.push(5)
        either.control.prune_changes(60.0, limit=100)
        step(feed)
        quick.take()
    heard(slow)
    step(feed)
    with pytest.raises(CursorTooOld):
        heard(slow)
    either.put()
    step(feed)
    assert quick.take().entries


@where_pruning_is_prompt
def test_a_process_that_has_slept_tells_each_listener_for_itself(either, feed):
    asleep = feed.listen()
    step(feed)
    either.control.prune_changes(60.0, limit=100)
    for _ in range(30):
        either.put()
        either.clock.push(5)
        either.control.prune_changes(60.0, limit=100)
    fresh = feed.listen()
    id = either.put().id
    step(feed)
    assert heard(fresh) == [id]
    with pytest.raises(CursorTooOld):
        asleep.take()


def test_while_the_store_is_away_nothing_is_lost(either, feed, reader):
    listener = feed.listen()
    step(feed)
    id = either.put().id
    reader.away = True
    with pytest.raises(StoreUnavailable):
        feed.once()
    assert listener.take().entries == ()
    reader.away = False
    step(feed)
    assert heard(listener) == [id]


def test_what_is_no_cursor_is_refused_before_anybody_listens(feed):
    with pytest.raises(CallerError, match="is not a cursor"):
        feed.listen(after="yesterday")
    assert feed._listeners == []


def test_who_has_left_is_handed_nothing_more(either, feed):
    one, two = feed.listen(), feed.listen()
    step(feed)
    assert feed.leave(one) is True
    assert feed.leave(one) is True
    either.put()
    step(feed)
    assert heard(one) == []
    assert len(heard(two)) == 1
    assert feed.leave(two) is False
