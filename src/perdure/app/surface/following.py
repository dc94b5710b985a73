"""The reader of the change feed in this process: one thread, while somebody listens."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.engine.operate.change_feed import ChangeFeed, Listener
from perdure.model.errors import PerdureError, StoreUnavailable
from perdure.ports import Reader


class Following:
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
    def listening(self, owner: str | None, after: str | None) -> Iterator[Listener]:
        """A listener, for as long as the block lasts."""
        with self._one_at_a_time:
            listener = self._feed.listen(owner=owner, after=after)
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
