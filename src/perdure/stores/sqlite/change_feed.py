"""The change feed on SQLite: lines are numbered under the write lock, so a cursor is a number.

Always true: a line is written in the transaction of what it tells of; transactions follow each other, so whoever has
read all lines below a number has missed nothing below it. Marks say where the feed stood when; what was there
at a mark that is old enough may go, and the oldest mark left says from where on the feed is whole.
"""

import re
import sqlite3
from collections.abc import Sequence

import msgspec

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
from perdure.stores.sqlite.statements import SQL

_CURSOR = re.compile(r"s1-([1-9][0-9]{0,17})-(0|[1-9][0-9]{0,8})", re.ASCII)
_columns = msgspec.json.Decoder()


def tell(cx: sqlite3.Connection, kind: ChangeKind, entries: Sequence[Entry], now: int) -> None:
    """One line of the feed, in the transaction of what it tells of."""
    if entries:
        tell_columns(cx, kind, list(zip(*entries, strict=True)), now)


def tell_columns(
    cx: sqlite3.Connection, kind: ChangeKind, columns: Sequence[Sequence[object]], now: int
) -> None:
    """As `tell`, where there are many: a list for each field of `Entry`, the numbers first."""
    cx.execute(SQL.change_add, (now, kind.value, len(columns[0]), columns_in(columns)))


def changes(cx: sqlite3.Connection, after: str | None, until: str | None, limit: int) -> ChangePage:
    """The feed after a cursor."""
    last, gone = cx.execute(SQL.changes_stand).fetchone()
    end = FeedPlace(last + 1) if until is None else _place(until)
    if end.entries:
        raise not_a_cursor(until)
    if after is None:
        return ChangePage((), _cursor(end), False)
    place = _place(after)
    if place.line <= gone or place.line > last + 1:
        raise too_old(after)
    limit = limit_of(limit)
    where = {"line": place.line, "done": place.entries, "end": end.line, "limit": limit}
    lines = [
        (no, changed_at, what, _columns.decode(entries))
        for no, changed_at, what, entries in cx.execute(SQL.changes, where).fetchall()
    ]
    found, cut = page_of(lines, place, limit)
    return ChangePage(found, _cursor(cut or max(end, place)), cut is not None)


def prune(cx: sqlite3.Connection, kept_s: float, limit: int, now: int) -> int:
    """Mark where the feed stands, and let go what was there at a mark that is old enough."""
    kept_us = seconds_us(kept_s)
    cx.execute(SQL.change_mark, {"now": now, "every_us": kept_us // MARKS})
    cx.execute(SQL.change_marks_forget, {"now": now, "kept_us": kept_us})
    return cx.execute(SQL.prune_changes, {"limit": limit}).rowcount


def _place(cursor: object) -> FeedPlace:
    found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise not_a_cursor(cursor)
    return FeedPlace(int(found[1]), int(found[2]))


def _cursor(place: FeedPlace) -> str:
    return f"s1-{place.line}-{place.entries}"
