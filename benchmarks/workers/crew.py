"""Worker processes of one contender: started, waited for, measured, stopped."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.workers import ledger
from benchmarks.workers.contender import Contender

ROOT = Path(__file__).parents[2]
START_S_MAX = 60.0
STOP_S_MAX = 15.0
SETTLE_S = 1.0  # between the word that a process is there and the first job
LOOK_S = 0.02
LOCKS = Path("/proc/locks")


class Crew:
    """The processes, and the folder of their ledgers."""

    def __init__(self, folder: Path, processes: list["subprocess.Popen[bytes]"], log: Path) -> None:
        self.folder = folder
        self._processes = processes
        self._log = log

    def until(self, question: Callable[[], bool], *, within_s: float) -> float:
        """When the answer was yes, by the machine's clock; fail if a process ends before."""
        give_up_at = time.monotonic() + within_s
        while not question():
            if any(one.poll() is not None for one in self._processes):
                raise AssertionError(f"a worker has ended:\n{self._log.read_text()[-2000:]}")
            if time.monotonic() > give_up_at:
                said = self._log.read_text()[-2000:]
                raise AssertionError(f"not within {within_s:g} s; the log says:\n{said}")
            time.sleep(LOOK_S)
        return time.monotonic()

    def memory_mib(self) -> float:
        """What all processes of the crew have taken at most, each for itself, in sum."""
        peak = 0.0
        for pid in self._family():
            status = Path(f"/proc/{pid}/status").read_text()
            (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
            peak += int(line.split()[1]) / 1024
        return round(peak, 1)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """All processes of the crew stand still for the length of the block."""
        give_up_at = time.monotonic() + STOP_S_MAX
        stopped: list[int] = []
        try:
            self._freeze(stopped)
            while _writing(
                stopped
            ):  # a file that one of them has locked would be closed to us as well
                if time.monotonic() > give_up_at:
                    raise AssertionError("somebody always holds a lock")
                _thaw(stopped)
                time.sleep(LOOK_S)
                self._freeze(stopped)
            yield
        finally:
            _thaw(stopped)

    def _freeze(self, stopped: list[int]) -> None:
        while fresh := [pid for pid in reversed(self._family()) if pid not in stopped]:
            stopped += fresh
            for pid in fresh:  # a child first: who watches over it must not see it stand still
                _signal(pid, signal.SIGSTOP)  # and then again, for whom one has started meanwhile
        for pid in stopped:
            _until_still(pid)

    def _family(self) -> list[int]:
        """Our processes and all below them."""
        found = [one.pid for one in self._processes if one.poll() is None]
        for pid in found:  # which grows meanwhile
            found += _children(pid)
        return found

    def stop(self) -> None:
        """Tell all to stop, and kill whom that does not move."""
        for one in self._processes:
            one.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        for one in self._processes:
            one.send_signal(signal.SIGTERM)  # the second order: now
        for one in self._processes:
            try:
                one.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                for pid in self._family():
                    _signal(pid, signal.SIGKILL)
                one.wait()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _thaw(stopped: list[int]) -> None:
    while stopped:
        _signal(stopped.pop(), signal.SIGCONT)


def _writing(pids: list[int]) -> bool:
    """Whether one of them holds a lock for writing, by `/proc/locks` (Linux, proc_locks(5))."""
    held = [line.split() for line in LOCKS.read_text().splitlines() if "->" not in line]
    return any(words[3] == "WRITE" and int(words[4]) in pids for words in held)


def _until_still(pid: int) -> None:
    """A stop order is obeyed at the next moment at which every thread can."""
    give_up_at = time.monotonic() + STOP_S_MAX
    while state_of(pid) not in ("T", "gone"):
        if time.monotonic() > give_up_at:
            raise AssertionError(f"process {pid} does not stand still")
        time.sleep(0.001)


def state_of(pid: int) -> str:
    """The letter that the kernel gives a process: T when it stands still."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    letter = stat.rpartition(")")[2].split()[0]
    return "gone" if letter in "ZX" else letter


def _children(pid: int) -> list[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return [
            int(word)
            for file in Path(f"/proc/{pid}/task").glob("*/children")
            for word in file.read_text().split()
        ]
    return []


@contextmanager
def crew(
    contender: Contender, url: str, *, count: int, concurrency: int | None = None
) -> Iterator[Crew]:
    """So many worker processes, ready and idle."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, ledger.FOLDER: name, ledger.URL: url}
        command = contender.command(concurrency)
        log = folder / "log"
        with log.open("wb") as output:
            processes = [
                subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
                for _ in range(count)
            ]
        made = Crew(folder, processes, log)
        try:
            made.until(lambda: len(ledger.lines(folder, "ready")) >= count, within_s=START_S_MAX)
            time.sleep(SETTLE_S)
            yield made
        finally:
            made.stop()
