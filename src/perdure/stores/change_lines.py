"""Entries of the change feed on their way in and out, the same on every store.

A line of the feed is what one statement, or one transaction, did to things of one kind: a moment, a kind, and its entries
as one JSON array with a column for each field of `Entry`: a list, or one value that they all have. (By columns it takes half
of the time that an array for each entry takes, in PostgreSQL as here.) A line is never changed. How a cursor is written is
each store's own; people pass it on and do not read it.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from perdure.model.changes import Change, ChangeKind
from perdure.model.errors import CallerError, CursorTooOld
from perdure.model.gates import GateRow
from perdure.model.limits import CHANGE_PAGE_ROWS
from perdure.model.states import TERMINAL
from perdure.stores.moments import from_us
from perdure.stores.rows import Row, encode

MARKS = 60  # where the feed stands is marked so often in the time for which it is kept


class Entry(NamedTuple):
    """What stands in a line about one thing; `ATTEMPT_ENDED` with a terminal state is read as `JOB_ENDED`."""

    no: int
    id: str
    owner: str
    pipeline: str
    stage: str
    state: str
    status: str | None
    token: int
    run: int | None


class FeedPlace(NamedTuple):
    """How far a reader is: through with all lines below this one, and with so many entries of it."""

    line: int
    entries: int = 0


def run_entry(no: int, id: str, owner: str, pipeline: str, status: str) -> Entry:
    """A run that was made, or has another status."""
    return Entry(no, id, owner, pipeline, "", status, None, 0, no)


def gate_entry(gate: GateRow) -> Entry:
    """A gate that has changed."""
    return Entry(0, gate.name, "", "", "", gate.state.value, None, gate.generation, None)


def worker_entry(no: int, boot: str, state: str) -> Entry:
    """A worker that has begun, or is dead."""
    return Entry(no, boot, "", "", "", state, None, 0, None)


def columns_in(columns: Iterable[Sequence[object]]) -> str:
    """The columns of some entries, as a line has them: what all have is said once."""
    numbers, *others = columns
    return encode([numbers, *(_fold_repeats(one) for one in others)])


def _fold_repeats(column: Sequence[object]) -> object:
    first = column[0]
    return first if column.count(first) == len(column) else column


def _entries(columns: Sequence[Any]) -> list[Row]:
    """The entries of a line."""
    size = len(columns[0])
    return list(
        zip(*(one if isinstance(one, list) else repeat(one, size) for one in columns), strict=True)
    )


def page_of(
    lines: Iterable[Row], place: FeedPlace, limit: int
) -> tuple[tuple[Change, ...], FeedPlace | None]:
    """So many entries of these lines, from a place on; the place where it was cut, if it was."""
    found: list[Change] = []
    for no, changed_at, what, columns in lines:
        entries = _entries(columns)
        begin = place.entries if no == place.line else 0
        room = limit - len(found)
        found += _changes(what, changed_at, entries[begin : begin + room])
        if len(entries) - begin > room:
            return tuple(found), FeedPlace(no, begin + room)
    return tuple(found), None


def _changes(what: str, changed_at: int, entries: Sequence[Row]) -> list[Change]:
    kind, moment = ChangeKind(what), from_us(changed_at)
    return [
        Change(
            ChangeKind.JOB_ENDED
            if kind is ChangeKind.ATTEMPT_ENDED and entry[5] in TERMINAL
            else kind,
            moment,
            *entry,
        )
        for entry in entries
    ]


def limit_of(limit: int) -> int:
    """How many entries a page has."""
    return max(1, min(limit, CHANGE_PAGE_ROWS))


def not_a_cursor(text: object) -> CallerError:
    """What is said to a cursor that no page of this store has had."""
    shown = repr(text) if len(repr(text)) <= 100 else f"{repr(text)[:100]}…"
    return CallerError(
        f"{shown} is not a cursor of this store's change feed; pass one that it has given, or none to begin now"
    )


def too_old(text: str) -> CursorTooOld:
    """What is said to a cursor after which entries are missing."""
    return CursorTooOld(
        f"the change feed no longer has all that came after {text[:100]!r}: it was read too long ago (retain_changes_s), "
        "or the store was restored since; begin anew without a cursor, and read how things stand"
    )
