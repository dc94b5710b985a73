"""An asyncio event loop in virtual time: one per simulated working process.

It has no selector and no threads; its callbacks and timers are events of the world, so stages run
under the real `engine.run` with its real timeouts and cancellations. When the process dies, its
coroutines are closed without having run on.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.ports import Clock
    from tests.sim.process import Process
    from tests.sim.world import World


class VirtualLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as stages, timeouts and tasks need."""

    def __init__(self, world: "World", process: "Process", clock: "Clock") -> None:
        self._world = world
        self._clock = clock
        self._booted_s = clock.monotonic() - world.clock.monotonic()
        self._process = process
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._armed = False
        self._blocked = False
        self._overdue: list[asyncio.Handle] = []  # timers that came up while we were blocked
        world.loops.append(self)

    def time(self) -> float:
        """Virtual seconds."""
        return self._clock.monotonic()

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """In this loop's next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._armed:
            self._armed = True
            self._world.after(0.0, self._turn, self._process)
        return handle

    call_soon_threadsafe = call_soon  # one thing runs at a time

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """At a moment of virtual time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        due_us = math.ceil((when - self._booted_s) * 1_000_000)
        while due_us / 1_000_000 + self._booted_s < when:  # never early, not even by a rounding
            due_us += 1
        self._world.at_us(due_us, lambda: self._ring(handle), self._process)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """After some virtual time."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        """A task of this loop."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        """Never."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Nothing may go wrong here: a stage's error is an outcome, everything else is a bug."""
        error = context.get("exception")
        if not self._process.dead and self._world.violation is None:
            self._world.broken("E1", f"event loop of {self._process.name}: {error!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        return

    def discard(self) -> None:
        """The process is dead: let no coroutine of it run on, and none complain."""
        self._ready.clear()
        self._overdue.clear()
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                task.get_coro().close()

    def block(self, for_s: float) -> None:
        """A stage computes and lets nothing else run; the pump's thread goes on."""
        self._blocked = True
        self._world.after(for_s, self._unblock, self._process)

    def _unblock(self) -> None:
        self._blocked = False
        overdue, self._overdue = self._overdue, []
        self._run(overdue)
        self._turn()

    def _ring(self, handle: asyncio.Handle) -> None:
        if self._blocked:
            self._overdue.append(handle)
        else:
            self._run([handle])

    def _turn(self) -> None:
        if not self._blocked:
            self._armed = False
            now, self._ready = self._ready, deque()
            self._run(now)

    def _run(self, handles: Any) -> None:
        asyncio._set_running_loop(self)
        try:
            for handle in handles:
                if not handle.cancelled() and not self._process.dead:
                    handle._run()
        finally:
            asyncio._set_running_loop(None)
