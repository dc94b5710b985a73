"""Threads of our own, for work that must not keep the process from ending.

Those of `ThreadPoolExecutor` are joined when the main thread ends, before anything that is registered with
`atexit`, and refuse all work from then on: a stage that hangs would keep its host from ever ending, and a worker
that is told of the end too late would fail job after job. Ours are daemons: nobody waits for them.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class NoThread(RuntimeError):
    """There is no thread to be had: the interpreter is about to end, or the system gives none."""


Task = tuple["Future[Any]", Callable[[], Any], Callable[[], None] | None]


class _Bench:
    """What the threads of a pool share with it; they do not hold the pool itself, so it can be dropped.

    ``balance`` is how many threads are free, less the tasks that wait for one.
    """

    __slots__ = ("balance", "one_at_a_time", "todo")

    def __init__(self) -> None:
        self.balance = 0
        self.one_at_a_time = threading.Lock()
        self.todo: SimpleQueue[Task | None] = SimpleQueue()


class Pool(Executor):
    """So many daemon threads at most, started when they are needed. They end when the pool is dropped."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._started = 0
        self._bench = _Bench()
        weakref.finalize(self, self._bench.todo.put, None).atexit = False

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> "Future[T]":
        """Call the function on a thread; `NoThread` when there is none."""
        return self.take(partial(function, *arguments, **named))[0]

    def take(
        self, call: Callable[[], T], late: Callable[[], None] | None = None
    ) -> "tuple[Future[T], bool]":
        """As `submit`, and whether the call has to wait for a free thread. That thread then calls ``late`` first."""
        future: Future[T] = Future()
        bench = self._bench
        with bench.one_at_a_time:
            waits = bench.balance <= 0 and not self._grow()
            bench.balance -= 1
            bench.todo.put((future, call, late if waits else None))
        return future, waits

    def _grow(self) -> bool:
        """Whether there is one more thread now."""
        if self._started == self._count:
            return False
        name = f"{self._name}-{self._started}"
        try:
            threading.Thread(target=_work, args=(self._bench,), name=name, daemon=True).start()
        except RuntimeError as error:
            if self._started == 0:
                raise NoThread(f"no thread can be started: {error}") from error
            return False  # one of the others will do it
        self._started += 1
        self._bench.balance += 1
        return True


def _work(bench: _Bench) -> None:
    while (task := bench.todo.get()) is not None:
        _do(bench, *task)
        del task  # nothing of it stays while we wait
    bench.todo.put(None)  # for the next of us


def _do(
    bench: _Bench, future: "Future[Any]", call: Callable[[], Any], late: Callable[[], None] | None
) -> None:
    if not future.set_running_or_notify_cancel():
        _free(bench)
        return
    try:
        if late is not None:
            late()
        answer = call()
    except StopIteration as ended:  # asyncio cannot carry it, as of 3.11
        error = RuntimeError("the stage raised StopIteration")
        error.__cause__ = ended
        _free(bench)
        future.set_exception(error)
    except BaseException as error:  # it belongs to whoever waits for the call
        _free(bench)
        future.set_exception(error)
    else:
        _free(bench)  # before it is said: the next call finds this thread, and starts no other
        future.set_result(answer)


def _free(bench: _Bench) -> None:
    with bench.one_at_a_time:
        bench.balance += 1


class Threads:
    """Threads for sync stages. One that is given up on keeps its thread until it ends by itself.

    ``lost_count`` is how many such there are: slots that the worker must not fill again.
    """

    def __init__(self, count: int) -> None:
        self._pool = Pool(count, "perdure-stage")
        self._given_up: dict[Future[Any], float] = {}

    @property
    def lost_count(self) -> int:
        """Threads still busy with calls that nobody waits for."""
        return len(self._given_up)

    @property
    def lost_at(self) -> float | None:
        """When the first of those was given up, by the clock of the event loop."""
        return min(list(self._given_up.values()), default=None)

    async def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        waits: Callable[[], None] | None = None,
        late: Callable[[], None] | None = None,
    ) -> Any:
        """Call the function on a thread and wait for it.

        When all are taken, ``waits`` is called here at once, and ``late`` on the thread when it begins.
        """
        future, no_thread_yet = self._pool.take(partial(function, *arguments), late)
        if no_thread_yet and waits is not None:
            waits()
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():
                self._given_up[future] = asyncio.get_running_loop().time()
                future.add_done_callback(self._came_back)
            raise

    def _came_back(self, future: "Future[Any]") -> None:
        self._given_up.pop(future, None)
