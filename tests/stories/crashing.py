"""Crashing a process at any of its writes and syncs, or failing one of them, by strace.

    with Nursery() as nursery:
        points = nursery.points("tests.stories.life:live", str(folder), False)
        for point in points:
            status = nursery.crashed_at(point, "tests.stories.life:live", …)

The kill comes as the call is entered: what was written before it is in the kernel's hands and stays. A loss of
power, in which the kernel dies too, is not shown by this.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO, Self

from tests.stories.kit import process, until

ROOT = Path(__file__).parents[2]
KILLED = -9
CALLS = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink", "write")


def strace() -> str | None:
    """The program, unless it is missing."""
    return shutil.which("strace")


@dataclass(frozen=True, slots=True)
class Point:
    """The n-th call of a name."""

    call: str
    number: int


class Nursery:
    """A warm process whose children are traced; ended with the block."""

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory(prefix="perdure-strace-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stories.nursery"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.__exit__(kind, error, trace)
        self._folder.cleanup()

    def points(self, called: str, *arguments: object) -> list[Point]:
        """Every write and sync of a run in peace, in no order; the run must end well."""
        status, log = self._traced([], called, *arguments)
        assert status == 0
        counted = Counter(line.split("(")[0] for line in log.splitlines() if "(" in line)
        return [Point(call, n + 1) for call in CALLS for n in range(counted[call])]

    def crashed_at(self, point: Point, called: str, *arguments: object) -> int:
        """The exit status of a run that is killed as it enters this call."""
        return self._injected(point, "signal=SIGKILL", called, *arguments)

    def failed_at(self, point: Point, error: str, called: str, *arguments: object) -> int:
        """The exit status of a run in which this one call fails with this error."""
        return self._injected(point, f"error={error}", called, *arguments)

    def _injected(self, point: Point, what: str, called: str, *arguments: object) -> int:
        inject = ["-e", f"inject={point.call}:{what}:when={point.number}"]
        status, _ = self._traced(inject, called, *arguments)
        return status

    def _traced(self, inject: list[str], called: str, *arguments: object) -> tuple[int, str]:
        """Let a child run under a tracer; its exit status and what the tracer has seen."""
        child = int(self._said([called, *arguments]))
        log = Path(self._folder.name) / "log"
        with _tracing(child, log, inject):
            status = int(self._line())
        return status, log.read_text()

    def _said(self, order: list[object]) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        out: IO[str] | None = self._process.stdout
        assert out is not None
        line = out.readline()
        assert line, "the nursery has ended"
        return line


@contextmanager
def _tracing(child: int, log: Path, inject: list[str]) -> Iterator[None]:
    """Put a tracer on a child that has stopped itself, let it go on, and see the tracer end."""
    until("the child has stopped itself", lambda: _is_stopped(child), within_s=30)
    program = strace()
    assert program is not None
    words = ["-p", str(child), "-o", str(log), "-e", f"trace={','.join(CALLS)}", *inject]
    with subprocess.Popen([program, *words], stderr=subprocess.PIPE, text=True) as tracer:
        try:
            assert tracer.stderr is not None
            said = tracer.stderr.readline()
            assert "attached" in said, said
            os.kill(child, signal.SIGCONT)
            yield
            tracer.wait(30)
        except BaseException:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            raise
        finally:
            tracer.kill()


def _is_stopped(child: int) -> bool:
    seen = process(child)
    return seen is not None and seen.state == "T"
