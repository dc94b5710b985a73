"""Stages that calls run in a process of their own; it has to find them by module and name."""

import os
import time
from pathlib import Path

from perdure import StageError


def where(item):
    """The process it runs in, and that it can be asked again."""
    return os.getpid()


def ends(item):
    os._exit(7)


def ends_at_first(item):
    """Ends its process so many times, and then returns."""
    times, file = item
    seen = Path(file).read_text() if Path(file).exists() else ""
    Path(file).write_text(seen + "x")
    if len(seen) < times:
        os._exit(9)
    return len(seen) + 1


def writes_and_waits(item):
    Path(item).write_text(str(os.getpid()))
    time.sleep(600)


def counts(item, context):
    for done in range(3):
        context.progress(done + 1, 3, note=f"page {done + 1}")
        time.sleep(0.3)
    return "counted"


def refuses(item):
    raise StageError("invalid_request", "not like that")


def takes(item, context):
    """Takes something, and ends as it is told to."""
    context.capture("taken")
    if item == "unfit":
        error = StageError("invalid_output", "no total")
        error.raw = b"\xff{"  # type: ignore[attr-defined]
        raise error
    if item == "die":
        os._exit(7)
    return "done"


def lingers(item, context):
    """Takes something, and does not come to an end."""
    context.capture("taken")
    while not context.cancelled:
        time.sleep(0.01)
    context.capture("too late")


def returns_a_set(item):
    """Returns what no JSON can hold."""
    return {item}


def looks_up(item):
    """Has a defect: not every item has it."""
    return {"known": 1}[item]
