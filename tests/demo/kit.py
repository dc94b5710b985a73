"""Waiting, and finding processes by a mark in their environment, orphans included."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def until(what: str, question: Callable[[], T], *, within_s: float) -> T:
    """Ask until the answer is true; fail, naming the question, when the time is over."""
    give_up_at = time.monotonic() + within_s
    while not (answer := question()):
        assert time.monotonic() < give_up_at, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)
    return answer


def state_of(pid: int) -> str | None:
    """The letter that the kernel has for a process, or None when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    letter = stat.rpartition(")")[2].split()[0]
    return None if letter in "ZX" else letter


def marked(mark: str) -> dict[int, str]:
    """Running processes whose environment holds the mark, and their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if not entry.name.isdecimal() or mark.encode() not in (entry / "environ").read_bytes():
                continue
            pid = int(entry.name)
            if pid != os.getpid() and state_of(pid) is not None:
                found[pid] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


@contextmanager
def swept(mark: str) -> Iterator[None]:
    """Whatever a test leaves behind under its mark is ended by its id."""
    try:
        yield
    finally:
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
