"""The host's side of its keeper: what is said when none comes up, and when another one is started."""

import os
import signal
import stat
import sys
import threading
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure.app.session.opening import open_store
from perdure.app.worker import keeper_process, supervision
from perdure.app.worker.keeper_process import KeeperProcess
from perdure.config import load
from perdure.model.errors import StoreUnavailable
from perdure.model.outcomes import Death
from tests.engine.kit import until


class Noted(threading.Event):
    """An event that notes how long it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits_s.append(timeout)
        return super().wait(timeout)


@pytest.fixture
def url(tmp_path) -> str:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    open_store(url).close()
    return url


@pytest.fixture
def kept(url):
    kept = KeeperProcess(url, load({}, lease_ttl_s=3.0))
    kept._closing = Noted()
    yield kept
    kept.close(orderly=True)


def kill(kept: KeeperProcess) -> int:
    process = kept._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    return process.pid


def is_up(kept: KeeperProcess, *, but: int) -> bool:
    """Whether another keeper than that one runs, and has said so."""
    process = kept._process
    return process is not None and process.pid != but and bool(beating(process.pid))


def beating(pid: int) -> list[str]:
    try:
        files = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()]
    except FileNotFoundError:
        return []
    return [one for one in files if one.endswith("work.db")]


def test_a_keeper_that_is_killed_is_replaced_soon_however_often(kept, monkeypatch):
    monkeypatch.setattr(
        keeper_process, "_AGAIN_S_MAX", 0.01
    )  # whoever comes up has lived for longer
    kept.start()
    for _ in range(3):
        killed = kill(kept)
        until(lambda killed=killed: is_up(kept, but=killed), "another keeper")
    assert kept._closing.waits_s == [0.05] * 3


def test_where_none_can_be_started_it_is_tried_again_less_and_less_often(kept, monkeypatch, caplog):
    kept.start()
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/nowhere/python")
        killed = kill(kept)
        until(lambda: len(kept._closing.waits_s) >= 4, "tries that fail")
    until(lambda: is_up(kept, but=killed), "another keeper")
    assert kept._closing.waits_s[:4] == [0.05, 0.1, 0.2, 0.4]
    assert caplog.text.count("no keeper can be started") == 1


def test_one_that_is_killed_in_a_host_that_reaps_all_children_is_replaced(kept):
    """There its exit status cannot be had, and looks like that of one which was done."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        kept.start()
        process = kept._process
        killed = kill(kept)
        until(lambda: is_up(kept, but=killed), "another keeper")
        assert process.returncode == 0
    finally:
        kept.close(orderly=True)
        signal.signal(signal.SIGCHLD, before)


def test_one_that_is_done_is_not_replaced(kept, url):
    worker = kept.start()
    opened = open_store(url)
    process = kept._process
    os.kill(process.pid, signal.SIGSTOP)
    opened.store.end_worker(worker, Death("exited", exit_status=0))
    os.kill(process.pid, signal.SIGCONT)
    until(
        lambda: "perdure-keeping" not in [one.name for one in threading.enumerate()], "it is left"
    )
    assert process.returncode == 0
    assert kept._closing.waits_s == []
    opened.close()


def program(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_what_a_program_says_that_is_no_python_is_quoted_with_its_name(kept, tmp_path, monkeypatch):
    said = program(tmp_path, "echo odd option $1 >&2; exit 3")
    monkeypatch.setattr(sys, "executable", said)
    with pytest.raises(StoreUnavailable) as raised:
        kept.start()
    assert (
        f"{said} -m perdure.app.worker.keeper_main ended with status 3 and said: odd option -m"
        in str(raised.value)
    )


def test_one_that_says_nothing_at_all_is_given_up(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(keeper_process, "_START_S_MAX", 0.05)
    monkeypatch.setattr(sys, "executable", program(tmp_path, "cat > /dev/null"))
    with pytest.raises(StoreUnavailable, match="did not come up"):
        kept.start()
    assert kept._process is None


def test_one_that_says_something_else_is_given_up_and_not_quoted(tmp_path, monkeypatch):
    """It may say what it was told, and the URL has a password."""
    monkeypatch.setattr(sys, "executable", program(tmp_path, "exec cat"))
    with pytest.raises(StoreUnavailable, match="ended with status 0 and said: nothing"):
        KeeperProcess("postgresql://ann:SECRET@127.0.0.1:1/none", load({})).start()


def test_what_a_keeper_says_of_the_store_is_quoted():
    kept = KeeperProcess("postgresql://nobody@127.0.0.1:1/none", load({}, lease_ttl_s=0.5))
    with pytest.raises(StoreUnavailable, match=r"ended with status 1 and said: .*127\.0\.0\.1"):
        kept.start()


def test_a_host_without_an_interpreter_is_told_what_to_do(kept, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(ConfigError, match=r"sys\.executable names none"):
        kept.start()


def test_once_it_is_up_a_keeper_speaks_where_its_host_does(url, capfd, monkeypatch):
    """What it has said before as well; here by an interpreter that has something to say at its start."""
    monkeypatch.setenv("PYTHONVERBOSE", "1")
    kept = KeeperProcess(url, load({}))
    kept.start()
    kept.close(orderly=True)
    assert "import 'perdure" in capfd.readouterr().err


def test_a_supervisor_rests_at_a_pipe_whose_number_is_high(many_files):
    wake, rings = os.pipe()
    assert min(wake, rings) > 1024
    supervision._rest(wake, 0.0)
    os.write(rings, b"!")
    supervision._rest(wake, 60.0)
    with os.fdopen(wake, "rb") as line:
        assert not keeper_process._readable(line, 0.0)  # it was read
    os.close(rings)
