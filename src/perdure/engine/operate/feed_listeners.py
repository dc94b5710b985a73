"""One reader of the change feed for any number of listeners in a process.

Always true: a listener is handed every entry that came after its cursor and that it may see, once, and those of one job
in their order; or it is told that it cannot be (`CursorTooOld`). What is waiting for a listener is bounded.

Who is authoritative: the store. One step reads what is new, and hands it to each listener that has heard all before it.
A listener that began further back, or did not take what was waiting for it, is *behind*: each step reads a page for it
alone, from its own cursor on, as soon as it has room, until it has caught up with the others. So a slow listener holds
up nobody, and misses nothing for as long as the store keeps it.

What may happen at once: any thread listens, takes and leaves; one at a time takes the step. If the store is away, the step
fails and nothing is lost: the cursors stay where they are.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from perdure.model.changes import Change, ChangeKind, ChangePage
from perdure.model.errors import CallerError, CursorTooOld, PerdureError, StoreUnavailable
from perdure.ports import Reader

WAITING_MAX = 10_000  # entries that wait for one listener, a few MB; it is behind from then on
_OPERATORS = (ChangeKind.GATE_CHANGED, ChangeKind.WORKER_CHANGED)


class Listener:
    """Somebody who is handed the entries of one owner, or, as an operator, all of them.

    ``wake`` is called, in the feed's thread, whenever there is something to take: for those who must not block.
    """

    def __init__(
        self, cursor: str, owner: str | None, wake: Callable[[], None] | None = None
    ) -> None:
        self.owner = owner
        self._wake = wake
        self.behind = True
        self._cursor = cursor  # everything up to here was handed over, or is waiting
        self._waiting: deque[ChangePage] = deque()
        self._size = 0
        self._error: PerdureError | None = None
        self._news = threading.Condition()

    def take(self, wait_s: float = 0.0) -> ChangePage:
        """What comes next; an empty page when nothing has come for so long. Its cursor is where to go on elsewhere.

        `CursorTooOld` when the listener was behind for longer than the feed is kept.
        """
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._error, wait_s)
            if self._waiting:
                page = self._waiting.popleft()
                self._size -= len(page.entries)
                return ChangePage(page.entries, page.cursor, bool(self._waiting))
            if self._error is not None:
                raise self._error
            return ChangePage((), self._cursor, False)

    @property
    def cursor(self) -> str:
        """As far as it was handed entries, or has them waiting."""
        return self._cursor

    @property
    def has_room(self) -> bool:
        """Whether more may be handed to it."""
        return self._size < WAITING_MAX and self._error is None

    def hand(self, entries: Iterable[Change], cursor: str) -> None:
        """Hand it those that it may see, and move it on."""
        seen = tuple(one for one in entries if self._may_see(one))
        with self._news:
            self._cursor = cursor
            if seen:
                self._waiting.append(ChangePage(seen, cursor, False))
                self._size += len(seen)
                self._news.notify_all()
        if seen and self._wake is not None:
            self._wake()

    def fail(self, error: PerdureError) -> None:
        """Tell it that it hears nothing more."""
        with self._news:
            self._error = error
            self._news.notify_all()
        if self._wake is not None:
            self._wake()

    def _may_see(self, entry: Change) -> bool:
        if self.owner is None:
            return True
        return entry.owner == self.owner and entry.kind not in _OPERATORS


class ChangeFeed:
    """Reads once and hands to many; `once` is called again and again."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._cursor: str | None = None
        self._listeners: list[Listener] = []
        self._list = threading.Lock()

    def listen(
        self,
        *,
        owner: str | None = None,
        after: str | None = None,
        wake: Callable[[], None] | None = None,
    ) -> Listener:
        """Somebody new, from now on or after a cursor; without ``owner`` it is an operator, who sees all."""
        page = self._reader.changes(after, limit=1)  # so that a bad cursor is refused here
        listener = Listener(page.cursor if after is None else after, owner, wake)
        with self._list:
            self._listeners.append(listener)
        return listener

    def leave(self, listener: Listener) -> bool:
        """It is handed nothing more; whether anybody is left."""
        with self._list:
            if listener in self._listeners:
                self._listeners.remove(listener)
            return bool(self._listeners)

    def once(self) -> bool:
        """Read what is new and hand it on; True when there is more to be had at once."""
        with self._list:
            listeners = list(self._listeners)
        page = self._next_page(listeners)
        for listener in listeners:
            if listener.behind or not listener.has_room:
                listener.behind = True
            else:
                listener.hand(page.entries, page.cursor)
        self._cursor = page.cursor
        until = None if page.more else page.cursor
        left = [self._catch_up(one, until) for one in listeners if one.behind and one.has_room]
        return page.more or any(left)

    def fail(self, error: PerdureError) -> None:
        """Tell everybody that they hear nothing more. Whoever listens from now on is served afresh."""
        with self._list:
            failed, self._listeners = self._listeners, []
        self._cursor = None
        for listener in failed:
            listener.fail(error)

    def _next_page(self, listeners: Iterable[Listener]) -> ChangePage:
        try:
            return self._reader.changes(self._cursor)
        except CursorTooOld:  # this process has slept; each listener is told for itself
            for listener in listeners:
                listener.behind = True
            return self._reader.changes()

    def _catch_up(self, listener: Listener, until: str | None) -> bool:
        """Read a page for one that is behind; True when more can be read for it at once.

        Without ``until`` the others are in the middle of something: it may get ahead of them, and joins them later.
        """
        try:
            page = self._reader.changes(listener.cursor, until=until)
        except CallerError as error:  # too old, mostly: its own trouble, and nobody else's
            listener.fail(error)
            return False
        listener.hand(page.entries, page.cursor)
        listener.behind = page.cursor != until
        return page.more


class FeedThread:
    """Starts the thread with the first listener, and ends it with the last."""

    def __init__(self, reader: Reader, *, poll_s: float) -> None:
        self._feed = ChangeFeed(reader)
        self._poll_s = poll_s
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._one_at_a_time = threading.Lock()

    @property
    def is_of_this_process(self) -> bool:
        """False in a process that was forked off: the thread has stayed with its parent."""
        return self._process == os.getpid()

    @contextmanager
    def listening(
        self, owner: str | None, after: str | None, wake: Callable[[], None] | None = None
    ) -> Iterator[Listener]:
        """A listener, for as long as the block lasts."""
        with self._one_at_a_time:
            listener = self._feed.listen(owner=owner, after=after, wake=wake)
            self._start()
        try:
            yield listener
        finally:
            with self._one_at_a_time:
                if not self._feed.leave(listener):
                    self._end()

    def close(self) -> None:
        """End the thread; whoever still listens hears nothing more."""
        with self._one_at_a_time:
            self._end()

    def _start(self) -> None:
        """Start a thread, unless one is alive. A bug may have ended the last one."""
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._read, args=(self._stop,), name="perdure changes", daemon=True
            )
            self._thread.start()

    def _end(self) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def _read(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                more = self._feed.once()
            except StoreUnavailable:  # it comes back, and nothing is lost meanwhile
                more = False
            except PerdureError as error:  # the thread goes on, for those who listen from now on
                self._feed.fail(error)
                more = False
            if not more:
                stop.wait(self._poll_s)
