"""A table or a screen of an application's own goes after the jobs: a thread that follows the change feed, and begins anew where it must.

Always true: each time it begins, it listens first and then has the application look at how things stand, so nothing that was
missed while nobody listened is missed for good. What is told may be known already; a token that rises says so.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from perdure.engine.operate.feed_listeners import Listener
from perdure.model.changes import Change
from perdure.model.errors import CursorTooOld, StoreError

SILENCE_S_MAX = 60.0  # it hears of the feed twice a second, also that there is nothing new
_HEAR_S = 0.5
_REST_S = 1.0

_log = logging.getLogger("perdure")


class FollowThread(threading.Thread):
    """Follows until it is told to stop."""

    def __init__(
        self,
        listen: Callable[[], AbstractContextManager[Listener]],
        begin: Callable[[], Any],
        changed: Callable[[Sequence[Change]], Any],
        away: tuple[type[Exception], ...],
    ) -> None:
        super().__init__(name="perdure following")
        self._listen, self._begin, self._changed = listen, begin, changed
        self._passing: tuple[type[Exception], ...] = (StoreError, CursorTooOld, *away)
        self._stop_asked = threading.Event()
        self._heard_s = time.monotonic()

    def is_well(self) -> bool:
        """Whether it goes on, and has heard of the feed within the last minute."""
        return self.is_alive() and time.monotonic() < self._heard_s + SILENCE_S_MAX

    def stop(self) -> None:
        """Let it end what it does, and end."""
        self._stop_asked.set()
        self.join()

    def run(self) -> None:
        """Follow, and begin anew after what may pass."""
        while not self._stop_asked.is_set():
            try:
                self._follow()
            except self._passing as away:
                _log.warning("following begins anew: %s", type(away).__name__)
                self._stop_asked.wait(_REST_S)

    def _follow(self) -> None:
        with self._listen() as listener:
            self._begin()
            while not self._stop_asked.is_set():
                page = listener.take(wait_s=_HEAR_S)
                self._heard_s = time.monotonic()
                if page.entries:
                    self._changed(page.entries)
