"""An event loop on a thread of its own, and the child processes that callers on any loop share."""

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import CancelledError, Future
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, TypeVar

from perdure.engine.attempt.context import AttemptNotes
from perdure.engine.attempt.stage_process_messages import FindStage, StageOrder
from perdure.engine.attempt.stage_processes import Asking, StageProcessPool
from perdure.model.errors import CallerError
from perdure.model.outcomes import Outcome

SEE_TO_S = 5.25  # for what runs there to be seen to when it is cancelled: a stage ends, a record is written

T = TypeVar("T")


class OwnLoop:
    """An event loop on a thread, for those who have none: one, so that clients can be kept on it.

    One lock guards both sending work there and closing the loop: work comes before the end and is finished or
    cancelled, or it comes to another loop. Whoever waits for it is never left without an answer.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._one_at_a_time = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ending: set[asyncio.AbstractEventLoop] = set()
        self._sent: dict[asyncio.AbstractEventLoop, set[Future[Any]]] = {}

    @property
    def is_ending_here(self) -> bool:
        """Whether this is being called on a loop of ours that is being closed."""
        return asyncio.get_running_loop() in self._ending

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there, and wait; one that is interrupted waits until it has been seen to."""
        over = threading.Event()

        async def run_and_tell() -> T:
            try:
                return await coroutine
            finally:
                over.set()

        future = self.send(run_and_tell())
        try:
            return future.result()
        except CancelledError as cancelled:
            if getcoroutinestate(coroutine) == CORO_CREATED:
                coroutine.close()  # or there is a warning that nobody has waited for it
            raise CallerError("the app was closed meanwhile") from cancelled
        finally:
            if not future.done():  # KeyboardInterrupt, or whatever a signal has raised here
                future.cancel()
                over.wait(SEE_TO_S)

    def send(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run it there; its thread begins when it is first asked for."""
        with self._one_at_a_time:
            loop = self._start()
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
            sent = self._sent[loop]
            sent.add(future)
        future.add_done_callback(sent.discard)
        return future

    def close(self) -> None:
        """Cancel what runs there, let it be seen to, and end the thread."""
        with self._one_at_a_time:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            if loop is None or thread is None:
                return
            self._ending.add(loop)
            asyncio.run_coroutine_threadsafe(_wind_up(), loop)
        thread.join(2 * SEE_TO_S)

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(
                target=self._run_for_ever, args=(loop,), name=self._name, daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                loop.close()
                raise
            self._sent[loop] = set()
            self._loop, self._thread = loop, thread
        return self._loop

    def _run_for_ever(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            for left in list(self._sent.pop(loop)):  # what would not end when it was cancelled
                left.cancel()
            self._ending.discard(loop)
            loop.close()


async def _wind_up() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=SEE_TO_S)
    asyncio.get_running_loop().stop()


class SharedStageProcesses(StageProcessPool):
    """Hands for callers on any event loop: they live on a loop of their own, and are kept between calls."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = OwnLoop("perdure-hands")

    async def perform(self, find: FindStage, order: Asking, notes: AttemptNotes) -> Outcome | None:
        """Run an order in a child. Cancelled, it kills the child."""
        here = asyncio.get_running_loop()

        async def answer_here() -> StageOrder | None:
            answer = order()  # the caller's timers are those of its own loop
            return await answer if isinstance(answer, Awaitable) else answer

        def ask() -> Awaitable[StageOrder | None]:
            return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answer_here(), here))

        async def far() -> Outcome | None:
            return await super(SharedStageProcesses, self).perform(find, ask, notes)

        return await asyncio.wrap_future(self._loop.send(far()))

    def end(self) -> None:
        """End every child, and the loop."""
        if len(self):
            self._loop.run(super().close())
        self._loop.close()
