"""The worker that `perdure run` hires: where the system has no process to give, it is waited for."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from perdure.app.batch.worker_process import Hired
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.workers import EXIT_RECYCLED, Role, WorkerView
from perdure.testing import VirtualClock

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=[True, False])
def hired(request, clock) -> Iterator[Hired]:
    command = [sys.executable, "-c", "import signal, sys; sys.stdin.read(); signal.pause()"]
    hired = Hired(command, b"{}", aside=request.param, monotonic=clock.monotonic)
    yield hired
    hired.close(0.0, lambda: clock.push(60.0))
    hired.forget()


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_worker_that_cannot_be_started_is_told_once_and_tried_again(hired, clock):
    files = open_files()
    hired._command, command = ["/nowhere/python"], hired._command
    for _ in range(240):
        hired.look()
        clock.push(0.25)
    assert not hired.running
    assert hired.take_words() == [
        "no worker can be started, and it is tried again: No such file or directory"
    ]
    assert open_files() == files
    hired._command = command
    clock.push(10.0)
    hired.look()
    assert hired.running
    assert hired.take_words() == []


def dead_worker(hired: Hired, no: int, death: Death | None) -> WorkerView:
    name, at = f"{socket.gethostname()}:{hired._process.pid}", EPOCH
    told = None if death is None else msgspec.json.encode(death).decode()
    return WorkerView(
        no, "b", name, Role.MAIN, 10.0, at, at, at, None if told is None else at, told
    )


def test_working_processes_that_died_are_told_once_each_and_counted(hired, clock):
    hired.look()
    found = [
        dead_worker(hired, 1, Death("out of memory", signal="SIGKILL")),
        dead_worker(hired, 2, Death("exited", exit_status=9)),
        dead_worker(hired, 3, Death("exited", exit_status=EXIT_RECYCLED)),
        dead_worker(hired, 4, Death("stopped", signal="SIGKILL")),
        dead_worker(hired, 5, None),
        replace(dead_worker(hired, 6, Death("silent")), name="elsewhere:1"),
    ]
    hired.look_at(list)
    hired.look_at(lambda: found)  # too soon
    assert hired.take_words() == []
    clock.push(1.0)
    hired.look_at(lambda: found)
    hired.look_at(lambda: found, at_once=True)
    assert hired.take_words() == [
        "a working process was killed by SIGKILL: out of memory; another one is started in its place",
        "a working process exited with status 9; another one is started in its place",
    ]
    assert hired.restarts == 2


def test_a_worker_that_is_killed_is_told_with_its_signal_and_started_anew(hired):
    hired.look()
    os.kill(hired._process.pid, signal.SIGKILL)
    hired._process.wait()
    hired.look()
    assert hired.running
    assert hired.take_words() == [
        "the worker was killed by SIGKILL; another one is started in its place"
    ]
    assert hired.restarts == 1
