"""Who waits for the end of a job in this process: one thread asks for all of them.

Always true: a look is one query, however many wait, and two looks are never closer than the shortest pause. Whoever
comes wakes the thread, so that a new wait does not begin with somebody else's long pause. The thread begins with the
first wait, and ends when nobody has waited for a while. A look that fails is told to all who wait; each then looks
for itself, so that one row that cannot be read does not stop the others. Who then comes back wakes nobody: while looks
fail, pauses grow.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import islice

from perdure.engine.pauses import SHORTEST_S, Pauses
from perdure.model.errors import BugError, CallerError, StoreError
from perdure.model.views import JobView

ASKED_MAX = 10_000  # jobs in one query; of more, the others have their turn in the next
_LINGER_S = 5.0  # the thread stays for the next wait

Ended = Mapping[str, JobView | None]
Wait = Future[JobView | None]


class JobWatch:
    """``look`` says which of these jobs have ended, and None of those that are not there."""

    def __init__(self, look: Callable[[Sequence[str]], Ended]) -> None:
        self._look = look
        self._one_at_a_time = threading.Lock()
        self._waits: dict[str, list[Wait]] = {}
        self._news = threading.Event()
        self._pauses = Pauses()  # of whichever thread looks
        self._thread: threading.Thread | None = None
        self._closed = False
        self._pid = os.getpid()

    @property
    def is_of_this_process(self) -> bool:
        """False in a process that was forked off: the thread is its parent's."""
        return self._pid == os.getpid()

    def wait_for(self, job_id: str, *, again: bool = False) -> Wait:
        """The job when it has ended, or None if it is not there; who cancels it does not wait any more.

        Who comes ``again``, after a look that failed, waits for the next look.
        """
        wait: Wait = Future()
        with self._one_at_a_time:
            if self._closed:
                raise CallerError("the app was closed")
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name="perdure-results", daemon=True)
                thread.start()
                self._thread = thread
            self._waits.setdefault(job_id, []).append(wait)
        if not again:
            self._news.set()
        return wait

    def close(self) -> None:
        """Tell all who wait that nobody looks any more."""
        with self._one_at_a_time:
            self._closed = True
            thread = self._thread
        self._news.set()
        if thread is not None:
            thread.join(_LINGER_S)

    def _watch(self) -> None:
        try:
            self._look_on()
        finally:  # nobody waits for a thread that is gone
            self._leave()

    def _leave(self) -> None:
        with self._one_at_a_time:
            if self._thread is not threading.current_thread():
                return  # it has ended as it should
            self._thread = None
            left = list(self._waits)
        gone = BugError("whoever looks for the ends of jobs has broken down; see its traceback")
        self._tell(left, lambda _, wait: wait.set_exception(gone))

    def _look_on(self) -> None:
        pauses, idle_at = self._pauses, time.monotonic()
        while True:
            if self._news.wait(pauses.next_s()):
                self._news.clear()
                pauses.begin()
                time.sleep(SHORTEST_S)  # those who come together are asked for together
            asked = self._ids_asked()
            if asked:
                idle_at = time.monotonic()
                if self._look_and_tell(asked):
                    pauses.begin()
            elif self._may_end(idle_at):
                return

    def _ids_asked(self) -> list[str]:
        """The jobs that are waited for, those first that were not asked for in the last look."""
        with self._one_at_a_time:
            for id in [id for id, waits in self._waits.items() if all(map(Future.done, waits))]:
                del self._waits[id]
            asked = list(islice(self._waits, ASKED_MAX))
            for id in asked if len(asked) < len(self._waits) else ():
                self._waits[id] = self._waits.pop(id)
            return [] if self._closed else asked

    def _look_and_tell(self, asked: Sequence[str]) -> bool:
        """Look once, and tell those whose job has ended; whether there were any."""
        try:
            ended = self._look(asked)
        except StoreError as error:
            failed = error
            self._tell(asked, lambda _, wait: wait.set_exception(failed))
            return False
        self._tell(list(ended), lambda id, wait: wait.set_result(ended[id]))
        return bool(ended)

    def _tell(self, ids: Sequence[str], tell: Callable[[str, Wait], None]) -> None:
        with self._one_at_a_time:
            told = [(id, wait) for id in ids for wait in self._waits.pop(id, ())]
        for id, wait in told:
            with suppress(InvalidStateError):  # who has gone meanwhile
                tell(id, wait)

    def _may_end(self, idle_at: float) -> bool:
        """Whether the thread is done: we were closed, or nobody has waited for a while."""
        if not self._closed and time.monotonic() - idle_at < _LINGER_S:
            return False
        closed = CallerError("the app was closed while the end of a job was waited for")
        if self._closed:
            self._tell(list(self._waits), lambda _, wait: wait.set_exception(closed))
        with self._one_at_a_time:
            if self._waits:
                return False
            self._thread = None
            return True
