"""The host's side of its keeper: starts the process, replaces one that ends too early, and lets it go."""

import logging
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from typing import IO

import msgspec

from perdure.config import Config
from perdure.engine.pauses import Pauses
from perdure.model.errors import ConfigError, StoreUnavailable

log = logging.getLogger("perdure")

CLOSED = b"closed\n"
DONE = b"done\n"  # the keeper's last word; its exit status may be taken by a host that reaps all children

_START_S_MAX = 30.0  # an interpreter and our imports, on a busy machine
_END_S_MAX = 5.0  # for its last write; it goes on by itself after that
_AGAIN_S = 0.05
_AGAIN_S_MAX = 5.0  # whoever has lived for longer did not fail at its start
_QUOTED_BYTES_MAX = 2_000
_COMMAND = ("-m", "perdure.app.worker.keeper_main")


class KeptWorker(msgspec.Struct, frozen=True):
    """What a keeper has to know."""

    url: str
    boot: str
    name: str
    pid: int
    ttl_s: float
    log_format: str


class KeeperProcess:
    """A worker's row that has a keeper."""

    def __init__(self, url: str, config: Config) -> None:
        pid, boot = os.getpid(), secrets.token_hex(16)
        name = f"{socket.gethostname()}:{pid}"
        self._kept_worker = KeptWorker(url, boot, name, pid, config.lease_ttl_s, config.log_format)
        self._one_at_a_time = threading.Lock()
        self._closing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start the keeper; the number of the row that it has made."""
        if not sys.executable:
            raise ConfigError(
                "a worker inside this process needs a Python beside it for its keeper, and sys.executable "
                "names none; set it, or start a worker beside this process: perdure worker APP"
            )
        with ExitStack() as undo:
            undo.callback(self.close, orderly=True)
            try:
                worker = self._start()
                threading.Thread(target=self._watch, name="perdure-keeping", daemon=True).start()
            except (OSError, RuntimeError) as error:  # no such file; no more files, or threads
                raise StoreUnavailable(
                    f"the keeper of a worker inside this process could not be started with "
                    f"{sys.executable!r}: {error}"
                ) from error
            undo.pop_all()
        return worker

    def close(self, *, orderly: bool) -> None:
        """Let the keeper go; if orderly, it ends the row as closed by ourselves."""
        self._closing.set()
        with self._one_at_a_time:
            process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        if orderly:
            with suppress(OSError):  # it has ended before
                os.write(process.stdin.fileno(), CLOSED)
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S_MAX)
        if process.stdout is not None:
            process.stdout.close()

    def _start(self) -> int:
        """The first keeper: what it says until it is up is ours to quote, and goes to our stderr after that."""
        with ExitStack() as undo:
            # Neither a pipe, which may be full, nor a file, which needs a folder to write in.
            words = os.memfd_create("perdure-keeper")
            undo.callback(os.close, words)
            aloud = os.dup(2) if _is_open(2) else os.open(os.devnull, os.O_WRONLY)
            undo.callback(os.close, aloud)
            process = self._spawn(words, aloud)
            assert process.stdout is not None
            answer = process.stdout.readline() if _readable(process.stdout, _START_S_MAX) else b""
            if answer.endswith(b"\n") and answer.strip().isdigit():  # else it is no keeper of ours
                return int(answer)
            self.close(orderly=True)  # waits for its end, and so for its words
            raise StoreUnavailable(self._why(process, _quote(words)))

    def _why(self, process: subprocess.Popen[bytes], words: str) -> str:
        how = (
            f"did not answer within {_START_S_MAX:g} s"
            if process.returncode is None
            else f"ended with status {process.returncode}"
        )
        return (
            f"the keeper of a worker inside this process did not come up: "
            f"{' '.join((sys.executable, *_COMMAND))} {how} and said: {words or 'nothing'}"
        )

    def _spawn(self, words: int | None = None, aloud: int | None = None) -> subprocess.Popen[bytes]:
        kept = () if aloud is None else (aloud,)
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
            [sys.executable, *_COMMAND, *(str(one) for one in kept)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            pass_fds=kept,
            start_new_session=True,
            bufsize=0,
        )
        assert process.stdin is not None
        with suppress(OSError):  # it has ended already, which is noticed by who waits for it
            # Not in the arguments: the URL may have a password, and everybody can read those.
            os.write(process.stdin.fileno(), msgspec.json.encode(self._kept_worker) + b"\n")
        self._process = process
        return process

    def _watch(self) -> None:
        """Replace a keeper that ends before it is done, for as long as the worker is not closed."""
        pauses, begun_at, delayed = Pauses(_AGAIN_S, _AGAIN_S_MAX, 2.0), time.monotonic(), False
        process = self._process
        while process is not None:
            process.wait()
            if time.monotonic() - begun_at > _AGAIN_S_MAX:
                pauses.begin()
            if self._is_done(process) or self._closing.wait(pauses.next_s()):
                return
            begun_at = time.monotonic()
            with self._one_at_a_time:
                if self._closing.is_set():
                    return
                try:
                    successor = self._spawn()
                except OSError as error:
                    # No process, or no file, is to be had now; the old one stands for it.
                    if not delayed:
                        log.warning("no keeper can be started, and it is tried again: %s", error)
                    delayed = True
                else:
                    _let_go(process)
                    process, delayed = successor, False

    def _is_done(self, process: subprocess.Popen[bytes]) -> bool:
        with self._one_at_a_time:
            if self._closing.is_set():
                return True
            assert process.stdout is not None
            said = process.stdout.read(64) if _readable(process.stdout, 0.0) else b""
            return said.endswith(DONE)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    for line in (process.stdin, process.stdout):
        if line is not None:
            line.close()


def _readable(line: IO[bytes], wait_s: float) -> bool:
    poll = select.poll()  # not select: with many files open, numbers are beyond its reach
    poll.register(line, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _quote(words: int) -> str:
    size = os.fstat(words).st_size
    last = os.pread(words, _QUOTED_BYTES_MAX, max(0, size - _QUOTED_BYTES_MAX))
    return last.decode(errors="replace").strip()
