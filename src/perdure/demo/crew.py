"""The worker processes of the tour: started, killed on purpose, and ended whatever happens."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from types import TracebackType
from typing import Self

_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
_END_S_MAX = 8.0  # more than a supervisor takes to give up on its children


@dataclass(slots=True)
class DemoWorker:
    """One ``perdure worker``: a supervisor of working processes."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    killed: bool = False

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether the supervisor lives."""
        return self.process.poll() is None


class Crew:
    """All workers of one tour; leaving the context ends every process of theirs."""

    def __init__(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._command = command
        self._folder = folder
        self._environment = environment
        self.workers: list[DemoWorker] = []

    def hire(self) -> DemoWorker:
        """Start one more worker. It has a session of its own: Ctrl-C is for the tour to handle."""
        name = f"worker {ascii_uppercase[len(self.workers)]}"  # the store numbers processes
        log = self._folder / f"{name.replace(' ', '-')}.log"
        command = [sys.executable, str(_DIE_WITH_PARENT), str(os.getpid()), *self._command]
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
                command,
                cwd=self._folder,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        demo_worker = DemoWorker(name, process, log)
        self.workers.append(demo_worker)
        return demo_worker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for demo_worker in self.workers:
            # Its group too: it may be asking a process of its own about the app.
            if demo_worker.running:
                _signal(-demo_worker.pid, signal.SIGTERM)
        give_up_at = time.monotonic() + _END_S_MAX
        for demo_worker in self.workers:
            try:
                demo_worker.process.wait(max(0.0, give_up_at - time.monotonic()))
            except subprocess.TimeoutExpired:
                strike(demo_worker)


class Grip:
    """A worker held still, all of its processes, so that its hands can be looked at."""

    def __init__(self, demo_worker: DemoWorker) -> None:
        self._demo_worker = demo_worker
        self._children: list[int] = []

    def __enter__(self) -> Self:
        # The supervisor first: it must not see its children stop, die, or be missed.
        _signal(self._demo_worker.pid, signal.SIGSTOP)
        self._children = list(descendants(self._demo_worker.pid))
        for child in self._children:
            _signal(child, signal.SIGSTOP)
        return self

    def strike(self) -> None:
        """Kill them all, the children first, so that nobody is left to report the death."""
        self._demo_worker.killed = True
        for pid in (*self._children, self._demo_worker.pid):
            _signal(pid, signal.SIGKILL)
        self._demo_worker.process.wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._demo_worker.running:
            for pid in (*self._children, self._demo_worker.pid):
                _signal(pid, signal.SIGCONT)


def strike(demo_worker: DemoWorker) -> None:
    """Kill a worker and everything it started, at once."""
    with Grip(demo_worker) as grip:
        grip.strike()


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    parents = parents_of_all()
    grown = {pid}
    while True:
        found = {child for child, parent in parents.items() if parent in grown} - grown
        if not found:
            return
        yield from sorted(found)
        grown |= found


def parents_of_all() -> dict[int, int]:
    """Every process that still runs, and its parent."""
    if not Path("/proc/self/stat").exists():
        return _parents_by_ps()
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has just ended, or is not ours to see
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(entry.name)] = int(parent)
    return found


def _parents_by_ps() -> dict[int, int]:
    asked = ("ps", "-A", "-o", "pid=,ppid=,state=")  # systems without /proc
    said = subprocess.run(asked, stdout=subprocess.PIPE, check=True, text=True).stdout  # noqa: S603
    rows = [line.split() for line in said.splitlines()]
    return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
