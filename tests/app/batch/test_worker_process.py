"""The worker that `perdure run` hires: where the system has no process to give, it is waited for."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.app.batch.worker_process import Hired
from perdure.testing import VirtualClock


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
