"""The change feed where transactions commit in another order than that in which they write.

Many connections enqueue, record, commit and roll back in an order that a seed decides, each in transactions of its own; a
reader follows its cursor meanwhile, in pages of any size. It must hear of every entry that was committed, once, in order
for each job, and as soon as it was committed, whoever has still something open.
"""

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest

from perdure.model.changes import ChangeKind, ChangePage
from perdure.model.errors import CursorTooOld
from perdure.model.jobs import Claim, Record
from perdure.stores.change_lines import FeedPlace, page_of
from perdure.stores.postgres.reader import PostgresReader
from perdure.stores.postgres.record import json_answer, parameters
from perdure.stores.postgres.statements import SQL
from perdure.testing.store_contract.attempt_ends import retry, success
from perdure.testing.store_contract.change_feed import FeedFollower
from tests.stores.postgres.kit import Place, alter, at_once, other, until
from tests.stores.postgres.plans import rows_touched

SEEDS = range(1, 4)
STEPS = 90
CONNECTIONS = 5

Told = dict[str, list[int]]  # the tokens of each job's entries, in the order in which they came


class Writer:
    """One connection, and what its open transaction would tell."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.raw = psycopg.connect(place.url)
        self.told: list[tuple[str, int]] = []
        self.claims: list[Claim] = []

    def enqueue(self, count: int) -> None:
        jobs = [self._place.new() for _ in range(count)]
        self._place.store.enqueue(jobs, within=self.raw)
        self.told += [(job.id, 0) for job in jobs]

    def record(self, claims: list[Claim], worker: int, ends: Callable[..., Record]) -> None:
        """As a turn does, in a transaction that stays open."""
        records = [ends(claim, worker) for claim in claims]
        cursor = self.raw.execute(SQL.record, parameters(records, worker, None))
        assert len(json_answer(cursor)["done"]) == len(claims)
        self.claims += claims
        self.told += [(claim.id, claim.token + 1) for claim in claims]

    def end(self, *, kept: bool) -> tuple[list[tuple[str, int]], list[Claim]]:
        """What is told now, and the claims that are still to be recorded."""
        told, claims, self.told, self.claims = self.told, self.claims, [], []
        if kept:
            self.raw.commit()
            return told, []
        self.raw.rollback()
        return [], claims


class Play:
    """One seed."""

    def __init__(self, place: Place, seed: int) -> None:
        self.chance = random.Random(seed)
        self.place = place
        self.worker = place.hire()
        self.writers = [Writer(place) for _ in range(CONNECTIONS)]
        self.claims: list[Claim] = []
        self.committed: Told = defaultdict(list)
        self.heard: Told = defaultdict(list)
        self.cursor = place.reader.changes().cursor

    def steps(self) -> None:
        for _ in range(STEPS):
            self.step(self.chance.choice(self.writers))
        for writer in self.chance.sample(self.writers, CONNECTIONS):
            self.end(writer)
            self.read_all()

    def step(self, writer: Writer) -> None:
        match self.chance.randrange(8):
            case 0 | 1:
                writer.enqueue(self.chance.randint(1, 3))
            case 2 | 3:
                self.claims += self.place.take(self.worker, 3)
                some = [self.claims.pop() for _ in range(min(2, len(self.claims)))]
                ends = self.chance.choice([success, partial(retry, delay_s=0.0)])
                if some:
                    writer.record(sorted(some, key=lambda one: one.no), self.worker, ends)
            case 4 | 5:
                self.end(writer)
            case 6:
                self.read(self.chance.randint(1, 4))
            case _:
                self.read_all()

    def end(self, writer: Writer) -> None:
        told, claims = writer.end(kept=self.chance.random() < 0.75)
        self.claims += claims
        for id, token in told:
            self.committed[id].append(token)

    def read(self, limit: int) -> bool:
        page = self.place.reader.changes(self.cursor, limit=limit)
        for one in page.entries:
            if one.kind is not ChangeKind.WORKER_CHANGED:
                assert one.token not in self.heard[one.id], f"{one.id} was told twice"
                assert one.token > max(self.heard[one.id], default=-1), f"{one.id} is out of order"
                self.heard[one.id].append(one.token)
        self.cursor = page.cursor
        return page.more

    def read_all(self) -> None:
        while self.read(self.chance.randint(1, 6)):
            pass
        self.read(100)  # what has come while a page was read
        missed = {id: told for id, told in self.committed.items() if self.heard[id] != told}
        assert missed == {}, f"missed or late: {missed}"

    def close(self) -> None:
        for writer in self.writers:
            writer.raw.rollback()
            writer.raw.close()


def played(place: Place, seed: int) -> int:
    """How many entries were heard."""
    play = Play(place, seed)
    try:
        play.steps()
    finally:
        play.close()
    return sum(map(len, play.heard.values()))


@pytest.mark.parametrize("seed", SEEDS)
def test_who_follows_misses_nothing_and_hears_nothing_twice_whatever_commits_when(place, seed):
    assert played(place, seed) > 20


# -- broken readers ------------------------------------------------------------------------------


def by_number(patch: pytest.MonkeyPatch) -> None:
    """A plain number for a cursor: the highest that was read."""

    def changes(self: Any, after: str | None = None, *, limit: int = 1000) -> ChangePage:
        with self._connection.autocommit() as cx:
            if after is None:
                row = cx.execute("SELECT coalesce(max(no), 0) FROM perdure_changes").fetchone()
                return ChangePage((), f"{row[0]}-0", False)
            begin = FeedPlace(*map(int, after.split("-")))
            lines = cx.execute(
                "SELECT no, changed_at, what, entries FROM perdure_changes "
                "WHERE no > %(no)s OR (no = %(no)s AND %(done)s > 0) ORDER BY no LIMIT 100",
                {"no": begin.line, "done": begin.entries},
            ).fetchall()
            entries, cut = page_of(lines, begin, limit)
            last = FeedPlace(lines[-1][0]) if lines else FeedPlace(begin.line)
            return ChangePage(entries, "{}-{}".format(*(cut or last)), cut is not None)

    patch.setattr(PostgresReader, "changes", changes)


def reworded(old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(patch: pytest.MonkeyPatch) -> None:
        assert old in SQL.changes, f"changes.sql no longer says {old!r}"
        patch.setattr(SQL, "changes", SQL.changes.replace(old, new))

    return plant


BROKEN = {
    "a plain number for a cursor": by_number,
    "what was open is forgotten": reworded(
        "ARRAY(SELECT pg_snapshot_xip(place) FROM base)", "'{}'::xid8[]"
    ),
    "what was open is read from the oldest of them on": reworded(
        "xid >= (SELECT pg_snapshot_xmax(place)", "xid >= (SELECT pg_snapshot_xmin(place)"
    ),
    "a page goes by the order of transactions": reworded("ORDER BY c.no)", "ORDER BY c.xid, c.no)"),
    "a page shows what has come since it was begun": reworded(
        "AND pg_visible_in_snapshot(xid, (SELECT place FROM until))", ""
    ),
    "a page that goes on tells what was told before": reworded("AND NOT pg_visible", "-- "),
}


@pytest.mark.parametrize("bug", BROKEN)
def test_a_reader_with_a_bug_is_found_out(place, bug, monkeypatch):
    with monkeypatch.context() as patch:
        BROKEN[bug](patch)
        for seed in SEEDS:
            try:
                played(place, seed)
            except AssertionError as error:
                print(f"{bug}: seed {seed}: {error}")
                return
    pytest.fail(f"not found in {len(SEEDS)} seeds: {bug}")


# -- what is open ---------------------------------------------------------------------------------


def test_what_commits_late_is_told_late_and_delays_nobody_else(place):
    follower = FeedFollower(place)
    with other(place.url) as cx:
        late = place.new()
        place.store.enqueue([late], within=cx)
        before = [one.id for one in place.put_many(2)]
        assert sorted(id for id, *_ in follower.jobs()) == sorted(before)
        after = place.put().id
        cx.commit()
        assert {id for id, *_ in follower.jobs()} == {after, late.id}
    assert follower.hear() == []


def test_what_is_rolled_back_is_never_told(place):
    follower = FeedFollower(place)
    with other(place.url) as cx:
        place.store.enqueue([place.new()], within=cx)
        assert follower.hear() == []
        cx.rollback()
        kept = place.new()
        with cx.transaction():
            place.store.enqueue([kept], within=cx)
            with cx.transaction():
                place.store.enqueue([place.new()], within=cx)
                raise psycopg.Rollback
    assert [id for id, *_ in follower.jobs()] == [kept.id]


def test_a_page_that_was_begun_is_read_to_its_end_whatever_commits_meanwhile(place):
    cursor = place.reader.changes().cursor
    with other(place.url) as cx:
        late = place.new()
        place.store.enqueue([late], within=cx)
        first = [one.id for one in place.put_many(4)]
        page = place.reader.changes(cursor, limit=2)
        cx.commit()
    rest = place.reader.changes(page.cursor, limit=2)
    assert {one.id for one in (*page.entries, *rest.entries)} == set(first)
    assert [one.id for one in place.reader.changes(rest.cursor).entries] == [late.id]


def test_pruning_leaves_no_reader_behind_while_a_transaction_stays_open(clocked):
    place = clocked
    place.control.prune_changes(60.0, limit=100)
    with other(place.url) as cx:
        place.clock.push(5)
        late = place.new()
        place.store.enqueue([late], within=cx)
        (own,) = cx.execute("SELECT pg_current_xact_id()").fetchone()

        def begun() -> str | None:
            """A cursor that waits for our transaction, and for none of other tests on the same server."""
            found = place.reader.changes().cursor
            return found if found.startswith(f"p1-{own}:") else None

        cursor = until(begun, "nothing older is open on this server")
        place.put()
        for _ in range(100):
            place.clock.push(5)
            place.control.prune_changes(60.0, limit=100)
        assert len(place.rows("SELECT 1 FROM perdure_change_marks")) < 70
        page = place.reader.changes(cursor)
        cx.commit()
    ids = [one.id for one in page.entries]
    follower = FeedFollower(place)
    follower.cursor = page.cursor
    assert late.id not in ids
    assert [id for id, *_ in follower.jobs()][-1] == late.id

    def let_go() -> bool:
        place.clock.push(5)
        place.control.prune_changes(60.0, limit=100)
        assert follower.hear() == []
        return place.rows("SELECT 1 FROM perdure_changes") == []

    for _ in range(30):
        let_go()
    until(let_go, "nothing older is open on this server")
    with pytest.raises(CursorTooOld):
        place.reader.changes(cursor)


def test_a_reader_that_was_long_away_goes_from_mark_to_mark(clocked):
    place = clocked
    follower = FeedFollower(place)
    ids = []
    for _ in range(20):
        ids.append(place.put().id)
        place.clock.push(5)
        place.control.prune_changes(300.0, limit=100)
    pages, cursor = [], follower.cursor
    while not pages or pages[-1].more:
        pages.append(place.reader.changes(cursor))
        cursor = pages[-1].cursor
    assert max(len(page.entries) for page in pages) <= 2
    assert [one.id for page in pages for one in page.entries] == ids
    assert [id for id, *_ in follower.jobs()] == ids


def test_a_dump_of_another_server_leaves_nothing_that_is_told_again(clocked):
    """Its transactions are numbered far ahead of ours."""
    place = clocked
    place.put()
    place.control.prune_changes(60.0, limit=100)
    alter(place.url, "UPDATE perdure_changes SET xid = '9000000000'")
    alter(place.url, "UPDATE perdure_change_marks SET place = '9000000000:9000000009:'")
    follower = FeedFollower(place)
    id = place.put().id
    assert [id for id, *_ in follower.jobs()] == [id]
    place.clock.push(5)
    place.control.prune_changes(60.0, limit=100)
    assert place.rows("SELECT no FROM perdure_changes WHERE xid >= '9000000000'") == []
    marks = place.rows("SELECT pg_snapshot_xmax(place)::text::bigint FROM perdure_change_marks")
    assert max(marks, default=(0,)) < (9_000_000_000,)
    assert follower.hear() == []


MANY_LINES = """
INSERT INTO perdure_changes (xid, changed_at, what, size, entries)
SELECT {xid}, 1, 'job_accepted', 1, '[[1],"a","","p","s","queued",null,0,null]'
FROM generate_series(1, 20000) AS n
"""
PLANS = ("generic", "custom")


def test_a_cursor_of_the_future_is_of_another_database_however_long_it_is(place):
    """Four thousand transactions were open, in a database that is ahead of ours."""
    first = 900_000_000_000
    snapshot = f"{first}:{first + 9000}:{','.join(str(first + 2 * n) for n in range(4000))}"
    for cursor in (f"p1-{first}:{first}:", f"p1-{snapshot}", f"p1-{snapshot}-{snapshot}-1-0-1"):
        with pytest.raises(CursorTooOld):
            place.reader.changes(cursor)


def test_pruning_touches_nothing_where_nothing_is_old(place):
    """However long the feed is."""
    alter(place.url, MANY_LINES.format(xid="pg_current_xact_id()"))
    place.control.prune_changes(3600.0, limit=100)
    with place.connection.autocommit() as cx:
        found = [rows_touched(cx, SQL.prune_changes, {"limit": 100}, mode=mode) for mode in PLANS]
    assert max(found) <= 10, found


def test_a_reader_that_keeps_up_touches_only_what_is_new(place):
    """However long the feed is, and whatever is open."""
    with other(place.url) as cx:
        place.store.enqueue([place.new()], within=cx)
        alter(place.url, MANY_LINES.format(xid="(n % 400 + 3)::text::xid8"))
        base = place.reader.changes().cursor.removeprefix("p1-")
        place.put_many(3)
        place.put()
        cx.commit()
    where = {"base": base, "line": 0, "done": 0, "limit": 100}
    where |= dict.fromkeys(("until", "end", "last"))
    with place.connection.autocommit() as lent:
        found = [rows_touched(lent, SQL.changes, where, mode=mode) for mode in PLANS]
    assert 3 <= min(found) <= max(found) <= 12, found


def test_threads_that_write_at_once_are_all_heard_once_and_in_order(place, open_place):
    """No seed decides here: the server does."""
    worker = place.hire()
    places = [open_place(place.url, series=n) for n in range(1, 4)]
    follower, over = FeedFollower(place, limit=3), threading.Event()
    told: Told = defaultdict(list)

    def write(one: Place) -> None:
        for _ in range(25):
            one.put_many(2)
            for claim in one.take(worker, 2):
                one.settle(success(claim, worker), by=worker)

    def listen() -> None:
        while not over.is_set():
            hear()

    def hear() -> None:
        for id, _, _, _, token in follower.jobs():
            told[id].append(token)

    reading = threading.Thread(target=listen)
    reading.start()
    try:
        at_once([partial(write, one) for one in places])
        until(lambda: not place.take(worker, 0), "all are written")
    finally:
        over.set()
        reading.join()
    hear()
    stored = {
        id: [0, *(token for (token,) in tokens)]
        for id, tokens in (
            (id, place.rows("SELECT token + 1 FROM perdure_attempts WHERE job = %s", no))
            for no, id in place.rows("SELECT no, id::text FROM perdure_jobs")
        )
    }
    assert len(stored) == 150
    assert dict(told) == stored
