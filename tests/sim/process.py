"""Simulated processes, and the part of the operating system that the supervisor talks to.

The real supervisor runs against this kernel: it spawns, signals and waits as it would on a machine,
and sees the same status words. A process is a pid, perhaps frozen, perhaps dead, with the strands
and the event loop that stand for its threads.
"""

import os
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.loop import VirtualLoop
    from tests.sim.strand import Strand
    from tests.sim.world import World

_CONTINUED = 0xFFFF


def _nothing() -> None:
    return


@dataclass(slots=True, eq=False)
class Process:
    """A process; what it does is told by its callbacks."""

    pid: int
    name: str
    parent: "Process | None" = None
    children: "list[Process]" = field(default_factory=list)
    returncode: int | None = None  # written by the supervisor, as it does to a Popen
    worker: int | None = None
    dead: bool = False
    frozen: bool = False
    kept: list[Callable[[], None]] = field(default_factory=list)
    strands: "list[Strand]" = field(default_factory=list)
    loop: "VirtualLoop | None" = None
    idle: Callable[[], bool] = lambda: True
    on_terminate: Callable[[], None] | None = None  # None: not ready for it, so it dies
    on_child: Callable[[], None] = _nothing
    on_orphaned: Callable[[], None] = _nothing
    on_death: Callable[[], None] = _nothing
    reports: deque[int] = field(default_factory=deque)  # status words not yet waited for


class Kernel:
    """Stands in for the module `os` inside `engine.supervisor`."""

    WNOHANG, WUNTRACED, WCONTINUED = os.WNOHANG, os.WUNTRACED, os.WCONTINUED
    WIFSTOPPED = staticmethod(os.WIFSTOPPED)
    WIFCONTINUED = staticmethod(os.WIFCONTINUED)
    waitstatus_to_exitcode = staticmethod(os.waitstatus_to_exitcode)

    def __init__(self, world: "World") -> None:
        self._world = world
        self._by_pid: dict[int, Process] = {}
        self._last_pid = 100
        self.on_trouble: Callable[[Process], None] = lambda process: None

    def process(self, name: str, parent: Process | None = None) -> Process:
        """A new process."""
        self._last_pid += 1
        made = Process(self._last_pid, f"{name}.{self._last_pid}", parent)
        self._by_pid[made.pid] = made
        if parent is not None:
            parent.children.append(made)
        return made

    def troubled(self, worker: int) -> bool:
        """Whether a worker is stopped or gone, or whoever beats for it is."""
        for one in self._by_pid.values():
            if one.worker == worker:
                return any(p is None or p.dead or p.frozen for p in (one, one.parent))
        return True

    def alive(self) -> list[Process]:
        """Every process that is not dead."""
        return [one for one in self._by_pid.values() if not one.dead]

    # -- what the supervisor calls -------------------------------------------------------

    def kill(self, pid: int, number: int) -> None:
        """Send a signal."""
        process = self._by_pid[pid]
        if number == signal.SIGKILL:
            self.die(process, signal.SIGKILL)
        elif number in (signal.SIGTERM, signal.SIGINT):
            self._world.after(0.001, lambda: self._terminate(process), process)
        else:
            raise NotImplementedError(number)

    def _terminate(self, process: Process) -> None:
        if process.on_terminate is None:
            self.die(process, signal.SIGTERM)
        else:
            process.on_terminate()

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        """The next status word of a child, if there is one."""
        process = self._by_pid[pid]
        return (pid, process.reports.popleft()) if process.reports else (0, 0)

    # -- what happens to processes -------------------------------------------------------

    def exit(self, process: Process, status: int) -> None:
        """It leaves by itself."""
        self.die(process, status << 8)

    def die(self, process: Process, word: int) -> None:
        """It is gone, with everything that was only in its memory."""
        if process.dead:
            return
        process.dead = True
        process.frozen = False
        process.kept.clear()
        self._world.died(process)
        self.on_trouble(process)
        self._report(process, word)
        for child in process.children:
            self._world.after(0.001, child.on_orphaned, child)
        process.on_death()

    def freeze(self, process: Process) -> None:
        """SIGSTOP."""
        if not process.dead and not process.frozen:
            process.frozen = True
            self.on_trouble(process)
            self._report(process, (signal.SIGSTOP << 8) | 0x7F)

    def thaw(self, process: Process) -> None:
        """SIGCONT."""
        if not process.dead and process.frozen:
            process.frozen = False
            self._report(process, _CONTINUED)
            self._world.thaw(process)

    def _report(self, process: Process, word: int) -> None:
        process.reports.append(word)
        if process.parent is not None:
            self._world.after(0.001, process.parent.on_child, process.parent)
