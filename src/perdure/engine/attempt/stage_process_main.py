"""The child's side of `stage_processes.py`: a process that runs one stage after another for its worker.

The main thread runs stages, so what they do about signals works as in any program; a second thread
reads the line. When the line closes the worker is gone, or does not want us any more, and the process
ends in the middle of whatever its stage does. On Linux the kernel is asked to kill it as well, for a
stage that never lets the interpreter go.

The signals that ask a worker to drain may be sent to its whole group (systemd does). They are not for
us: the worker says when we are done. They are caught rather than ignored, because programs that a
stage starts would inherit their being ignored.
"""

import asyncio
import ctypes
import importlib
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from perdure.engine.attempt.context import AttemptNotes, Progress, Said as Heard
from perdure.engine.attempt.perform import perform, try_call
from perdure.engine.attempt.stage_process_messages import (
    LENGTH_BYTES,
    Asked,
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
    read_asked,
)
from perdure.engine.stages import Callee
from perdure.model.errors import ConfigError
from perdure.model.outcomes import Raised, Usage

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class StageProcessMain:
    """Answers what the worker asks, one message at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._one_at_a_time = threading.Lock()  # a stage may speak from threads of its own
        self._callees: dict[tuple[str, str], Callee] = {}
        self._events = asyncio.Runner()

    def once(self, message: Asked) -> None:
        """Do what is asked, and say so."""
        match message:
            case FindStage():
                self._say(self._find(message))
            case StageOrder():
                self._say(StageBegun())
                self._say(self._perform(message))

    def _find(self, find: FindStage) -> StageFound | StageNotFound:
        sys.path[:] = find.path
        found = try_call(lambda: Callee.of(function_at(find.module, find.qualname)))
        if isinstance(found, Raised):
            return StageNotFound(found.evidence)
        self._callees[find.module, find.qualname] = found
        return StageFound()

    def _perform(self, order: StageOrder) -> StageEnded:
        notes = AttemptNotes(tell=self._tell, tracebacks=order.tracebacks)
        notes.begin(order.time_s)
        callee = self._callees[order.module, order.qualname]
        outcome = perform(callee, order.claim, order.attempts_max, notes, self._events)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # closed or replaced by the stage
                stream.flush()
        return StageEnded.of(outcome)

    def _tell(self, said: Heard) -> None:
        if isinstance(said, Progress):
            self._say(StageProgressed(said))
        else:
            self._say(StageSpent(said) if isinstance(said, Usage) else StageCaptured(said))

    def _say(self, message: Said) -> None:
        with self._one_at_a_time:
            self._connection.sendall(frame(message))


def function_at(module: str, qualname: str) -> Callable[..., Any]:
    """The function of that name, imported."""
    found: Any = importlib.import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise ConfigError(f"{module}.{qualname} is {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def main(number: int, parent: int) -> NoReturn:
    """Serve the worker at the other end of a socket until it is closed."""
    _end_with(parent)
    connection = socket.socket(fileno=number)
    connection.set_inheritable(False)  # a program that a stage starts may outlive us
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: None)
    messages: queue.SimpleQueue[Asked] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, messages), daemon=True).start()
    child = StageProcessMain(connection)
    while True:
        child.once(messages.get())


def _listen(connection: socket.socket, messages: "queue.SimpleQueue[Asked]") -> None:
    with suppress(OSError), connection.makefile("rb") as stream:
        while len(head := stream.read(LENGTH_BYTES)) == LENGTH_BYTES:
            messages.put(read_asked(stream.read(length_of(head))))
    os._exit(0)


def _end_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it had ended before we asked
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
