"""The stages' own ledger: one line per event, written with one call, in the order of the machine."""

import functools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from perdure import Context


@functools.cache
def _ledger() -> int:
    return os.open("ledger.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def note(context: Context, event: str) -> None:
    """Append one line; a line is short enough to be written whole or not at all."""
    line = (
        f"{time.monotonic():.6f} {os.getpid()} {context.job_id} {context.stage} "
        f"{context.token} {event}\n"
    )
    os.write(_ledger(), line.encode())


@contextmanager
def noted(context: Context) -> Iterator[None]:
    """The start of a stage, and its end if it gets there."""
    note(context, "start")
    yield
    note(context, "end")
