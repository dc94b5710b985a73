"""The change feed on PostgreSQL, where transactions commit in another order than that in which they write.

Always true: a line is written in the transaction of what it tells of, after the rows that it tells of were locked. So of two
lines about one job the later has the higher number, and a snapshot that shows it shows the earlier too. A reader that
goes from snapshot to snapshot, and takes what is between two of them by number, hears of everything that was
committed, once, and in order for each job; what commits late is told late, and nobody waits for it.

A plain number would not do as a cursor: a line with a lower one may appear after it. Nor would the order of transactions:
an older one may change a job after a younger one has.

A cursor is a snapshot: everything that it shows was read. Inside a page the cursor holds two snapshots and a place, which
is a line and a number of its entries: everything in the first was read, and of what the second adds, everything up to
that place. It also holds the number of the last line that the second adds.

Who is authoritative: the server's list of what is open. If we die anywhere, nothing was written: reading is only reading.
Marks are snapshots with their moments. A line goes when every transaction before it had ended at a mark that is old
enough, never because it is old: one that is committed late can be read for as long as any other.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from perdure.model.changes import ChangeKind, ChangePage
from perdure.stores.change_lines import (
    MARKS,
    Entry,
    FeedPlace,
    columns_in,
    limit_of,
    not_a_cursor,
    page_of,
    too_old,
)
from perdure.stores.moments import seconds_us
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.record import json_answer
from perdure.stores.postgres.statements import SQL

# A cursor may be as long as the list of what is open: whatever the server lists and we give, we take back.
_NO = r"[1-9][0-9]{0,17}"
_SNAPSHOT = rf"{_NO}:{_NO}:(?:{_NO}(?:,{_NO})*)?"
_CURSOR = re.compile(
    rf"p1-({_SNAPSHOT})(?:-({_SNAPSHOT})-({_NO})-([0-9]{{1,9}})-({_NO}))?", re.ASCII
)


class _Cursor(NamedTuple):
    base: str
    until: str | None = None
    place: FeedPlace = FeedPlace(0)
    last: int | None = None  # the highest line between the two

    def __str__(self) -> str:
        if self.until is None:
            return f"p1-{self.base}"
        return f"p1-{self.base}-{self.until}-{self.place.line}-{self.place.entries}-{self.last}"


def tell(cx: Cx, kind: ChangeKind, entries: Sequence[Entry], now: int) -> None:
    """One line of the feed, in the transaction of what it tells of."""
    if entries:
        where = {
            "now": now,
            "what": kind.value,
            "size": len(entries),
            "entries": columns_in(zip(*entries, strict=True)),
        }
        cx.execute(SQL.change_add, where)


def changes(cx: Cx, after: str | None, until: str | None, limit: int) -> ChangePage:
    """The feed after a cursor, in one statement and so one snapshot."""
    end = None if until is None else _snapshot_between_pages(until)
    if after is None:
        row = cx.execute(SQL.changes_now).fetchone()
        assert row is not None
        return ChangePage((), str(_Cursor(end or row[0])), False)
    cursor, limit = _cursor(after), limit_of(limit)
    where = {
        "base": cursor.base,
        "until": cursor.until,
        "end": None if end is None else _later(end, cursor.base),
        "line": cursor.place.line,
        "done": cursor.place.entries,
        "last": cursor.last,
        "limit": limit,
    }
    found = json_answer(cx.execute(SQL.changes, where))
    if not found["whole"]:
        raise too_old(after)
    entries, cut = page_of(found["lines"] or (), cursor.place, limit)
    if cut is not None:
        inside = _Cursor(cursor.base, found["until"], cut, found["last"])
        return ChangePage(entries, str(inside), True)
    return ChangePage(entries, str(_Cursor(found["until"])), found["until"] != found["here"])


def prune(cx: Cx, kept_s: float, limit: int, now: int) -> int:
    """Mark where the feed stands, and let go what was there at a mark that is old enough."""
    kept_us = seconds_us(kept_s)
    cx.execute(SQL.change_mark, {"now": now, "every_us": kept_us // MARKS})
    cx.execute(SQL.change_marks_forget, {"now": now, "kept_us": kept_us})
    return cx.execute(SQL.prune_changes, {"limit": limit}).rowcount


def _snapshot_between_pages(text: object) -> str:
    """The snapshot of a cursor that is not inside a page."""
    cursor = _cursor(text)
    if cursor.until is not None:
        raise not_a_cursor(text)
    return cursor.base


def _cursor(text: object) -> _Cursor:
    found = _CURSOR.fullmatch(text) if isinstance(text, str) else None
    if found is None or not all(_is_snapshot(one) for one in found.group(1, 2) if one):
        raise not_a_cursor(text)
    base, until, line, entries, last = found.groups()
    if until is None:
        return _Cursor(base)
    return _Cursor(base, until, FeedPlace(int(line), int(entries)), int(last))


def _is_snapshot(text: str) -> bool:
    """Whether the server would read it as one: open transactions in rising order, between its ends."""
    low, high, open_then = text.split(":")
    xids = open_then.split(",") if open_then else []
    rising = [int(low), *map(int, xids), int(high)]
    return all(one <= two for one, two in pairwise(rising)) and high not in xids


def _later(one: str, two: str) -> str:
    """The later of two snapshots: it has seen a higher transaction end, or another of those that were open."""

    def progress_in(text: str) -> tuple[int, int]:
        _, high, open_then = text.split(":")
        return int(high), -open_then.count(",") - bool(open_then)

    return one if progress_in(one) > progress_in(two) else two
