"""Stages that a child process imports by name: what one does stands in its item."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.engine.attempt.context import Context
from perdure.model.errors import StageError
from perdure.model.signals import Cancel, Snooze, Succeeded

ERRORS: dict[str, BaseException] = {
    "ValueError": ValueError("no total"),
    "KeyError": KeyError("total"),
    "MemoryError": MemoryError(),
    "TimeoutError": TimeoutError("its own"),
    "SystemExit 1": SystemExit(1),
    "SystemExit 404": SystemExit(404),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "GeneratorExit": GeneratorExit(),
    "CancelledError": asyncio.CancelledError(),
    "StageError": StageError("billing", "no credit"),
    "BaseException": BaseException("odd"),
    "ExceptionGroup": ExceptionGroup("both", [ValueError()]),
}


def raises(name: str) -> None:
    raise ERRORS[name]


async def raises_async(name: str) -> None:
    await asyncio.sleep(0)
    raise ERRORS[name]


@dataclass
class Bill:
    total: int
    lines: list[str]


def typed(bill: Bill) -> Bill:
    return Bill(bill.total + 1, [*bill.lines, type(bill).__name__])


def echo(item: Any) -> Any:
    return item


def pid(item: Any) -> int:
    return os.getpid()


async def pid_async(item: Any) -> list[int]:
    return [os.getpid(), id(asyncio.get_running_loop())]


def signals(item: Any) -> Any:
    return {
        "snooze": Snooze(5, "not ready"),
        "cancel": Cancel("obsolete"),
        "label": Succeeded([1], label="needs_review"),
        "object": object(),
    }[item]


def known(item: Any, context: Context) -> Any:
    return {
        "job": context.job_id,
        "attempt": context.attempt,
        "left": context.attempts_left,
        "token": context.token,
        "key": context.idempotency_key,
        "request": context.request_id,
        "attempt_id": context.attempt_id,
        "item": context.item,
        "time_left": 0 < context.time_left_s() <= 30,
        "cancelled": context.cancelled,
    }


def says(item: Any, context: Context) -> Any:
    context.progress(1, 4, "a quarter")
    context.usage(tokens_in=10, tokens_out=2, cost_usd=0.5)
    context.usage(tokens_in=5)
    if item == "die":
        os._exit(7)
    return "said"


def unfit(item: Any, context: Context) -> None:
    """Takes what it has asked, and fails for what it was given."""
    context.capture("asked")
    error = StageError("invalid_output", "no total")
    error.raw = f"{item} is no JSON"  # type: ignore[attr-defined]
    raise error


async def unfit_async(item: Any, context: Context) -> None:
    await asyncio.sleep(0)
    unfit(item, context)


def takes_and_waits(item: str, context: Context) -> None:
    context.capture(item)
    time.sleep(60)


def takes_and_dies(item: str, context: Context) -> None:
    context.capture(item)
    os._exit(7)


def dies(item: Any) -> None:
    match item:
        case {"exit": status}:
            os._exit(status)
        case {"segfault": True}:
            ctypes.string_at(0)
        case {"signal": number}:
            os.kill(os.getpid(), number)


def stuck(item: dict[str, str]) -> None:
    """Says who it is, and holds the interpreter for a minute."""
    Path(item["file"]).write_text(str(os.getpid()))
    ctypes.PyDLL(None).usleep(60_000_000)


def waits(item: dict[str, str]) -> str:
    """Says who it is, and waits for a file."""
    Path(item["file"]).write_text(str(os.getpid()))
    while not Path(item["until"]).exists():
        time.sleep(0.01)
    return "waited"


def leaves_a_child(item: dict[str, str]) -> None:
    """Forks a child that holds every file of ours open, says who that is, and is killed."""
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    Path(item["file"]).write_text(str(child))
    os.kill(os.getpid(), signal.SIGKILL)


def ends_a_program(item: Any) -> int:
    """Starts a program and asks it to end, as it would anywhere."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    program.terminate()
    return program.wait(20)


not_a_function = 5
