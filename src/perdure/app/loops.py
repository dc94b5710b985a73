"""An event loop on a thread of its own, and the child processes that callers on any loop share."""

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from perdure.engine.context import Desk
from perdure.engine.hands import Asking, Hands
from perdure.engine.orders import Find, Order
from perdure.model.outcomes import Outcome

SEE_TO_S = 5.25  # for what runs there to be seen to when it is cancelled: a stage ends, a record is written

T = TypeVar("T")


class OwnLoop:
    """An event loop on a thread, for those who have none: one, so that clients can be kept on it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._one_at_a_time = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there, and wait; one that is interrupted waits until it has been seen to."""
        over = threading.Event()

        async def whole() -> T:
            try:
                return await coroutine
            finally:
                over.set()

        future = asyncio.run_coroutine_threadsafe(whole(), self.started())
        try:
            return future.result()
        finally:
            if not future.done():  # KeyboardInterrupt, or whatever a signal has raised here
                future.cancel()
                over.wait(SEE_TO_S)

    def close(self) -> None:
        """Cancel what runs there, let it be seen to, and end the thread."""
        with self._one_at_a_time:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_wind_up(), loop)
            thread.join(2 * SEE_TO_S)

    def started(self) -> asyncio.AbstractEventLoop:
        """The loop; its thread begins when it is first asked for."""
        with self._one_at_a_time:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_for_ever, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _wind_up() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=SEE_TO_S)
    asyncio.get_running_loop().stop()


class SharedHands(Hands):
    """Hands for callers on any event loop: they live on a loop of their own, and are kept between calls."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = OwnLoop("perdure-hands")

    async def perform(self, find: Find, order: Asking, desk: Desk) -> Outcome | None:
        """Run an order in a child. Cancelled, it kills the child."""
        here = asyncio.get_running_loop()

        async def asked() -> Order | None:
            answer = order()  # the caller's timers are those of its own loop
            return await answer if isinstance(answer, Awaitable) else answer

        def ask() -> Awaitable[Order | None]:
            return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked(), here))

        async def far() -> Outcome | None:
            return await super(SharedHands, self).perform(find, ask, desk)

        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(far(), self._loop.started())
        )

    def end(self) -> None:
        """End every child, and the loop."""
        if len(self):
            self._loop.run(super().close())
        self._loop.close()
