"""The results of a run, streamed: in the order of its items, or as they end.

Both read pages from the store and hold one of them. In order, an item that is still open holds back those behind
it, until the run has stopped. As they end, items are read by the moment of their end; two workers may commit in
another order than their moments say, so each look goes back a little, and what was given already is known from one
bit for each item. When the run has stopped, a last walk over all items gives what was still missed.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from perdure.model.limits import ITEM_PAGE_ROWS
from perdure.model.runs import ItemView, RunStatus, RunView
from perdure.model.states import TERMINAL
from perdure.ports import Reader

_LOOK_BACK = timedelta(seconds=10)  # a commit that takes longer is found by the last walk
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK_BITS = 4_096
_PAGE_ROWS_FIRST = 16  # results may have a megabyte each
_PAGE_BYTES = 8_388_608

Rest = Callable[[], None]  # between two looks; may raise to end the wait
Stopped = Callable[[], bool]  # whether what is open now is left out, and the last look the last


def has_stopped(run: RunView) -> bool:
    """Whether nothing more is to be expected of a run as it stands."""
    stopped = run.status in (RunStatus.ABORTED, RunStatus.CANCELLED)
    return run.ended_at is not None or stopped


class _Pages:
    """How many items to read at once: fewer where results are large, so that a page is bounded in bytes."""

    def __init__(self) -> None:
        self.limit = min(_PAGE_ROWS_FIRST, ITEM_PAGE_ROWS)

    def resize_after(self, page: list[ItemView]) -> list[ItemView]:
        """A page, after which the next one may be larger or must be smaller."""
        size_bytes = sum(len(one.result_json or "") for one in page)
        if size_bytes > _PAGE_BYTES:
            self.limit = max(1, self.limit * _PAGE_BYTES // (2 * size_bytes))
        elif size_bytes < _PAGE_BYTES // 4:
            self.limit = min(2 * self.limit, ITEM_PAGE_ROWS)
        return page


class Seen:
    """Numbers that were given already: one bit each, in chunks, since a run's numbers lie close together."""

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}

    def add(self, no: int) -> bool:
        """Remember a number; False when it was known."""
        place, bit = divmod(no, _CHUNK_BITS)
        chunk = self._chunks.setdefault(place, bytearray(_CHUNK_BITS // 8))
        byte, mask = bit // 8, 1 << bit % 8
        if chunk[byte] & mask:
            return False
        chunk[byte] |= mask
        return True


def in_order(
    reader: Reader, run: RunView, *, redriven: bool, rest: Rest, stopped: Stopped | None = None
) -> Iterator[ItemView]:
    """The ended items in their order; what is open when the run has ``stopped`` is left out."""
    is_over = stopped or (lambda: has_stopped(_now(reader, run)))
    after, pages = 0, _Pages()
    while True:
        last_look = is_over()  # before the page: it may stop in between
        limit = pages.limit
        page = pages.resize_after(reader.items(run.no, after=after, redriven=redriven, limit=limit))
        for item in page:
            if item.state in TERMINAL:
                yield item
            elif not last_look:
                break
            after = item.no
        else:
            if len(page) == limit:
                continue
        if last_look:
            return
        rest()


def as_ended(
    reader: Reader, run: RunView, *, redriven: bool, rest: Rest, stopped: Stopped | None = None
) -> Iterator[ItemView]:
    """The ended items, roughly by when they ended, each once."""
    is_over = stopped or (lambda: has_stopped(_now(reader, run)))
    seen, pages = Seen(), _Pages()
    newest = _EPOCH
    while True:
        last_look = is_over()
        since, after = max(newest - _LOOK_BACK, _EPOCH), 0
        while page := pages.resize_after(
            reader.items_ended(
                run.no, since=since, after=after, redriven=redriven, limit=pages.limit
            )
        ):
            yield from (item for item in page if seen.add(item.no))
            last = page[-1]
            assert last.finished_at is not None
            since, after = last.finished_at, last.no
            newest = max(newest, since)
        if last_look:
            break
        rest()
    whole = ended_so_far(reader, run, redriven=redriven)
    yield from (item for item in whole if seen.add(item.no))


def ended_so_far(reader: Reader, run: RunView, *, redriven: bool) -> Iterator[ItemView]:
    """The items that have ended by now, in their order; waits for none."""
    after, pages = 0, _Pages()
    while page := pages.resize_after(
        reader.items(run.no, after=after, redriven=redriven, limit=pages.limit)
    ):
        yield from (item for item in page if item.state in TERMINAL)
        after = page[-1].no


def _now(reader: Reader, run: RunView) -> RunView:
    found = reader.runs(no=run.no)
    return found[0] if found else run
