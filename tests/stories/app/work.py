"""The app of the stories: what a stage does stands in its item, so each story writes its own plot.

An item is ``{"work": {...}}``; the stage *work* does what the inner table says, the stages before
and after it do nothing but sign the ledger.
"""

import asyncio
import ctypes
import fcntl
import os
import re
import time
from pathlib import Path
from typing import Any

from pen import noted

import perdure

app = perdure.App()
quick = perdure.Policy(
    "quick",
    attempts_max=3,
    backoff=perdure.Backoff("fixed", base_s=0.2),
    otherwise=perdure.Rule("retry"),
)


@app.stage()
async def prepare(item: Any, context: perdure.Context) -> Any:
    with noted(context):
        return item


@app.stage(name="work", policy=quick)
async def work_async(item: Any, context: perdure.Context) -> Any:
    with noted(context):
        match context.item["work"]:
            case {"until": name}:
                while not _open(name):  # noqa: ASYNC110 - the gate is a file
                    await asyncio.sleep(0.02)
            case {"sleep_s": seconds}:
                await asyncio.sleep(seconds)
            case plot:
                _act(plot, context)
        return item


@app.stage(name="work", policy=quick)
def work_sync(item: Any, context: perdure.Context) -> Any:
    with noted(context):
        match context.item["work"]:
            case {"until": name}:
                _block_until(name)
            case plot:
                _act(plot, context)
        return item


@app.stage()
async def finish(item: Any, context: perdure.Context) -> str:
    with noted(context):
        return "done"


walk = app.pipeline("walk", prepare, work_async, finish)
walk_sync = app.pipeline("walk_sync", prepare, work_sync, finish)


def _act(plot: dict[str, Any], context: perdure.Context) -> None:
    match plot:
        case {"exit": status}:
            os._exit(status)
        case {"segfault": True}:
            ctypes.string_at(0)
        case {"hold_gil_s": seconds}:
            ctypes.PyDLL(None).usleep(round(seconds * 1_000_000))  # PyDLL keeps the GIL
        case {"hold_gil_in_line_s": seconds}:
            _hold_gil_in_line(seconds)
        case {"backtrack_s": seconds}:
            _backtrack(seconds)
        case {"fork_s": seconds}:
            if os.fork() == 0:  # as a pool of processes does; it outlives a killed parent
                time.sleep(seconds)
                os._exit(0)
        case {"block_s": seconds}:
            time.sleep(seconds)
        case {"block_until": name}:
            _block_until(name)
        case {"fail_times": times}:
            if context.attempt <= times:
                raise OSError("not yet")
        case {}:
            pass


def _open(gate: str) -> bool:
    return Path(gate).exists()


def _block_until(gate: str) -> None:
    while not _open(gate):
        time.sleep(0.02)


def _hold_gil_in_line(seconds: float) -> None:
    """Hold the GIL from an instant at which the line of the store's writers is taken."""
    libc = ctypes.PyDLL(None)
    lock = os.open("story.db-lock", os.O_RDWR)
    while libc.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB) == 0:
        libc.flock(lock, fcntl.LOCK_UN)
        time.sleep(0.001)
    libc.usleep(round(seconds * 1_000_000))
    os.close(lock)


def _backtrack(seconds: float) -> None:
    """One match that takes about twice ``seconds``: each letter more doubles the time."""
    letters, took_s = 18, 0.0
    while took_s < seconds / 4:
        letters += 1
        began_s = time.perf_counter()
        _match(letters)
        took_s = time.perf_counter() - began_s
    _match(letters + 2)


def _match(letters: int) -> None:
    re.match(r"(a|a)*$", "a" * letters + "b")
