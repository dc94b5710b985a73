"""Child processes of a worker in which stages with ``process=True`` run.

Always true:

* A child runs one stage at a time. What is asked and answered is data; the function is found by its
  module and name, which come from the code that declared it and never from the store.
* A child is started when none is idle, and is kept for the next order. So a worker has no more children
  than it has had stages running at once. All of them end when they are closed.
* A child whose order is given up, because its time is over, its job was taken away or the worker is
  shutting down, is killed at once. Whatever it was about to say is not heard.
* A child that ends by itself while it has an order has lost the attempt: the outcome is `Lost`, with
  the signal or the exit status, and counts as a crash. Nobody else was harmed, so it makes no suspect: the job
  runs again in a new child, of whatever worker. One that ends before its order has arrived there is replaced, and nobody is blamed.
* Only so many children start at once as there are processors, because each has a limited time for that. One that
  is not ready in time has its order given back, which counts as nothing, unless that goes on and on. Where the system
  has no process to give, that is said once, and tried again after growing pauses within the same time.

If the worker dies, its end of each line closes: the child reads that, whatever its stage does, and
ends; where the kernel can be asked to (Linux), it kills the child even if the interpreter is stuck.
"""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from signal import SIGKILL, Signals

from perdure.engine.attempt.context import AttemptNotes
from perdure.engine.attempt.stage_process_messages import (
    LENGTH_BYTES,
    FindStage,
    Said,
    StageBegun,
    StageCaptured,
    StageEnded,
    StageFound,
    StageNotFound,
    StageOrder,
    StageProgressed,
    StageSpent,
    frame,
    length_of,
    read_said,
)
from perdure.engine.pauses import Pauses
from perdure.engine.supervise.oom import OomCounter
from perdure.model.errors import BugError
from perdure.model.kinds import Kind
from perdure.model.outcomes import (
    OUT_OF_MEMORY,
    Evidence,
    Interrupted,
    Lost,
    Outcome,
    Raised,
    StageDeath,
)

_START_S_MAX = 30.0  # an interpreter and the application's imports, on a busy machine
_STARTS_MAX = max(2, os.cpu_count() or 1)
_LATE_MAX = 3 * _STARTS_MAX  # in a row, for one function: then it is not the machine
# To read what a child wrote before it ended, if a child of its own holds the line.
_LAST_WORDS_S = 0.1
_AGAIN = (0.1, 5.0, 2.0)  # the pauses between tries where the system has no process to give
_END_S_MAX = 0.8  # for a child to leave by itself; the worker's own last second is longer

log = logging.getLogger("perdure")

Asking = Callable[[], StageOrder | Awaitable[StageOrder | None] | None]


class StageProcessGone(Exception):
    """The process has ended, or closed its line."""


class StageProcess:
    """One child process, and the line to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.knows: set[tuple[str, str]] = set()
        self.killed = False
        self.ended = asyncio.create_task(self._end())

    @classmethod
    async def start(cls) -> "StageProcess":
        """A new process; it has not said anything yet."""
        ours, theirs = socket.socketpair()
        with ExitStack() as undo, theirs:
            undo.callback(ours.close)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "perdure.engine.attempt.stage_process_main",
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
            undo.pop_all()
        return cls(process, *await asyncio.open_unix_connection(sock=ours))

    @property
    def alive(self) -> bool:
        """Whether it can be given an order."""
        return self._process.returncode is None and not self._reader.at_eof()

    async def tell(self, message: FindStage | StageOrder) -> None:
        """Send a message; one that does not arrive is noticed by the answer that does not come."""
        self._writer.write(frame(message))
        with suppress(ConnectionError):
            await self._writer.drain()

    async def hear(self) -> Said:
        """The next message, or `StageProcessGone`."""
        try:
            head = await self._reader.readexactly(LENGTH_BYTES)
            return read_said(await self._reader.readexactly(length_of(head)))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise StageProcessGone from None

    async def status(self) -> int:
        """How it has ended; one that only closed its line is made to."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._process.wait()), _END_S_MAX)
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    def kill(self) -> None:
        """End it at once."""
        self.killed = True
        self._writer.transport.abort()
        with suppress(ProcessLookupError):
            self._process.kill()

    def let_go(self) -> None:
        """Close the line, so that it leaves by itself."""
        self._writer.close()

    async def _end(self) -> None:
        await self._process.wait()
        await asyncio.sleep(_LAST_WORDS_S)
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class StageProcessPool:
    """All children of one worker; made and used on its event loop."""

    def __init__(self) -> None:
        self._idle: list[StageProcess] = []
        self._all: set[StageProcess] = set()
        self._starting: set[asyncio.Task[StageProcess]] = set()
        self._starts = asyncio.Semaphore(_STARTS_MAX)
        self._late: dict[tuple[str, str], int] = {}
        self._oom = OomCounter()
        self._delayed = False  # whether the last start found no process, which is logged once

    def __len__(self) -> int:
        return len(self._all) + len(self._starting)

    async def perform(self, find: FindStage, order: Asking, notes: AttemptNotes) -> Outcome | None:
        """Run an order in a child; ``order`` is asked for when the child is ready.

        None when there is no order any more. Cancelled, it kills the child.
        """
        while True:
            child = self._idle.pop() if self._idle else None
            fresh = child is None
            if child is not None and not child.alive:
                continue
            async with AsyncExitStack() as start:
                if child is None:
                    await start.enter_async_context(self._starts)
                    if self._idle:
                        continue  # one has come free meanwhile
                    child = await self._started_in_time()
                    if child is None:
                        return self._too_late((find.module, find.qualname))
                settled = False
                try:
                    outcome = await self._perform(child, find, order, notes, start)
                    settled = True
                except StageProcessGone:
                    settled = True
                    if fresh:
                        return Lost(await self._death(child))
                    continue  # it had ended while nobody looked
                finally:
                    if not settled:
                        child.kill()
            if child.alive:
                self._idle.append(child)
            return outcome

    async def close(self) -> None:
        """End every child: idle ones leave by themselves, the others are killed."""
        if self._starting:
            await asyncio.wait(self._starting)
        for child in self._all:
            if child in self._idle:
                child.let_go()
            else:
                child.kill()
        self._idle.clear()
        endings = {child.ended: child for child in self._all}
        if endings:
            _, late = await asyncio.wait(endings, timeout=_END_S_MAX)
            for ending in late:
                endings[ending].kill()
            await asyncio.wait(endings)

    async def _started_in_time(self) -> StageProcess | None:
        """A new child, as soon as the system has a process to give; None if that takes too long."""
        pauses, give_up_at = Pauses(*_AGAIN), time.monotonic() + _START_S_MAX
        while True:
            try:
                child = await self._start()
            except OSError as error:
                self._say_delayed(error)
            else:
                self._delayed = False
                return child
            pause_s = pauses.next_s()
            if time.monotonic() + pause_s > give_up_at:
                return None
            await asyncio.sleep(pause_s)

    def _say_delayed(self, error: OSError) -> None:
        if not self._delayed:
            self._delayed = True
            why = error.strerror or error
            log.warning("no process can be started for a stage, and it is tried again: %s", why)

    async def _start(self) -> StageProcess:
        """A new child. If nobody waits for it any more, it is kept for the next order."""
        starting = asyncio.create_task(StageProcess.start())
        self._starting.add(starting)
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._keep)
            raise
        finally:
            if starting.done():
                self._starting.discard(starting)
        return self._adopt(child)

    def _keep(self, started: "asyncio.Task[StageProcess]") -> None:
        self._starting.discard(started)
        if not started.cancelled() and started.exception() is None:
            self._idle.append(self._adopt(started.result()))

    def _adopt(self, child: StageProcess) -> StageProcess:
        self._all.add(child)
        child.ended.add_done_callback(lambda _: self._all.discard(child))
        return child

    async def _perform(
        self,
        child: StageProcess,
        find: FindStage,
        order: Asking,
        notes: AttemptNotes,
        start: AsyncExitStack,
    ) -> Outcome | None:
        unable = await self._unable(child, find)
        await start.aclose()  # the next one may start
        if unable is not None:
            return unable
        asked = order()
        if isinstance(asked, Awaitable):  # by a caller on another event loop
            asked = await asked
        if asked is None:
            return None
        self._oom.look(time.monotonic())
        await child.tell(asked)
        if not isinstance(await child.hear(), StageBegun):
            raise BugError("a stage's process answered before it had begun")
        try:
            return await _outcome(child, notes)
        except StageProcessGone:
            return Lost(await self._death(child))

    async def _unable(self, child: StageProcess, find: FindStage) -> Raised | Interrupted | None:
        """Why the function cannot be called there; None when it can."""
        name = (find.module, find.qualname)
        if name in child.knows:
            return None
        try:
            async with asyncio.timeout(_START_S_MAX):
                await child.tell(find)
                answer = await child.hear()
        except TimeoutError:
            child.kill()
            return self._too_late(name)
        self._late.pop(name, None)
        match answer:
            case StageNotFound(evidence):
                return Raised(evidence)
            case StageFound():
                child.knows.add(name)
                return None
            case _:
                raise BugError(f"a stage's process answered {answer!r} when asked to find it")

    def _too_late(self, name: tuple[str, str]) -> Raised | Interrupted:
        self._late[name] = self._late.get(name, 0) + 1
        message = f"its process was not ready within {_START_S_MAX:g} s"
        if self._late[name] <= _LATE_MAX:
            return Interrupted(message, begun=False)
        names = ("perdure.ProcessNotReady",)
        return Raised(Evidence(names, message, kind=Kind.RESOURCE_EXHAUSTED))

    async def _death(self, child: StageProcess) -> StageDeath:
        status = await child.status()
        if status >= 0:
            return StageDeath("exited", exit_status=status)
        ours = child.killed or -status != SIGKILL
        why = "exited" if ours or not self._oom.rose(time.monotonic()) else OUT_OF_MEMORY
        return StageDeath(why, signal=_signal_name(-status))


async def _outcome(child: StageProcess, notes: AttemptNotes) -> Outcome:
    while True:
        match await child.hear():
            case StageProgressed(progress):
                notes.hear(progress)
            case StageSpent(usage):
                notes.hear(usage)
            case StageCaptured(aside):
                notes.hear(aside)
            case StageEnded() as ended:
                return ended.outcome
            case unexpected:
                raise BugError(f"a stage's process said {unexpected!r} while it ran")


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"
