"""A worker inside somebody else's process: it works as any other, and leaves the process alone.

It takes no signals and never ends the process, so slots that it has lost stay lost (`shutdown.py`). Its event loop has
a thread of its own, which nobody has to wait for: what runs there may not end.

When the main thread ends, so does the work: the interpreter is on its way out, executors refuse what they are
given, and new threads and processes may not be had (Python 3.12 and later). Nothing more is claimed then;
what runs may finish while other threads of the host still do.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401  its hook for the end of the main thread has to be older than ours
import threading
from contextlib import suppress
from weakref import WeakSet

from perdure.engine.worker.shutdown import EXIT_DEAD
from perdure.engine.worker.worker import Worker

_END_S_MAX = 4.0  # for the event loop to end after the last write: cancelled stages tidy up


_embedded: WeakSet[Worker] = WeakSet()


def live(worker: Worker, over: threading.Event) -> bool:
    """Work until told to stop, or declared dead: then True. ``over`` is set after the last write."""
    ended: list[int | OSError | RuntimeError] = []

    def note_exit(status: int) -> None:
        ended.append(status)
        over.set()

    def turn() -> None:
        try:
            asyncio.run(worker.work(note_exit, recycles=False))
        except (OSError, RuntimeError) as error:
            if not over.is_set():  # it has not begun
                ended.append(error)
                over.set()
            elif threading.main_thread().is_alive():  # else there are no threads to tidy up with
                raise

    _embedded.add(worker)
    thread = threading.Thread(target=turn, name="perdure-events", daemon=True)
    thread.start()
    over.wait()
    how = ended[0]
    if isinstance(how, Exception):
        raise how
    if how != EXIT_DEAD:
        thread.join(_END_S_MAX)
    return how == EXIT_DEAD


def _main_thread_ends() -> None:
    for worker in list(_embedded):
        worker.drain()


def _watch_the_main_thread() -> None:
    """Be called when the main thread ends: `atexit` comes only when all other threads have ended, too."""
    register = getattr(threading, "_register_atexit", None)  # as executors do, as of 3.9
    if register is not None:
        with suppress(RuntimeError):  # it has ended already
            register(_main_thread_ends)


_watch_the_main_thread()
