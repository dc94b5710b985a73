"""A worker's port for metrics: the supervisor has it, and a process of its own answers there.

Always true:

* The supervisor listens from before its first child to its own end. What asks while the answering process is started
  again waits in the line of the socket, and is answered then. The supervisor itself answers nobody: it has no threads, and
  beats whatever is asked of the port.
* What the working processes count stands in memory that they share with it (`observers/shared_figures.py`), a piece for each and
  one for the supervisor. A child that dies leaves its numbers there, and the next one goes on from them.
* The answering process imports no application. It has a connection to the store of its own, to read.

If the supervisor dies, the answering process sees its line close, and ends.
"""

import logging
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress

import msgspec

from perdure.config import Config
from perdure.engine.supervise.supervisor import Restarts
from perdure.model.errors import CallerError
from perdure.observers.process_figures import ProcessFigures
from perdure.observers.shared_figures import SharedCells, cells_in

log = logging.getLogger("perdure")

_COMMAND = ("-m", "perdure.app.worker.metrics_main")
_BACKLOG = 16
_END_S_MAX = 5.0
_SUSPECT_CHILDREN = 2  # beside those for ordinary jobs
_OWN = 0  # the supervisor's piece


class Answering(msgspec.Struct, frozen=True):
    """What the answering process has to know."""

    url: str
    listening: int
    figures: int
    log_format: str


class MetricsPort:
    """The port, the memory behind it, and the process that answers there."""

    def __init__(self, url: str, host: str, port: int, config: Config) -> None:
        self._listening = _listen(host, port)
        self._shared = SharedCells(1 + config.processes + _SUSPECT_CHILDREN)
        self._told = Answering(url, self._listening.fileno(), self._shared.file, config.log_format)
        self._had_by: dict[int, subprocess.Popen[bytes]] = {}  # pieces, by the child that has each
        self._offered = _OWN
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._restarts = Restarts()
        self._delayed = False
        self.figures = ProcessFigures(cells_in(self._shared.file, _OWN))

    @property
    def address(self) -> str:
        """Where it is asked."""
        host, port = self._listening.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def offer_piece(self) -> tuple[list[str], list[int]]:
        """A piece to which no living child writes: words that tell one of it, and the file that it has to have."""
        self._offered = next(
            piece
            for piece in range(1, self._shared.pieces)
            if piece not in self._had_by or self._had_by[piece].returncode is not None
        )
        return ["--figures", f"{self._shared.file}:{self._offered}"], [self._shared.file]

    def give_piece(self, child: subprocess.Popen[bytes]) -> None:
        """A child writes from now on to the piece that was offered last."""
        self._had_by[self._offered] = child

    def look(self) -> None:
        """See that somebody answers; one that has ended is replaced, after a wait that grows."""
        process, now = self._process, time.monotonic()
        if process is not None:
            if process.poll() is None:
                return
            log.warning(
                "the process that answers at %s ended with status %s; another one is started",
                self.address,
                process.returncode,
            )
            self._restarts.after(now - self._started_at, now, well=False)
            self._let_go()
        if now < self._restarts.next_at:
            return
        try:
            self._start(now)
            self._delayed = False
        except OSError as error:  # no process or file is to be had now
            self._restarts.after(0.0, now, well=False)
            if not self._delayed:
                log.warning("nobody answers at %s, and it is tried again: %s", self.address, error)
            self._delayed = True

    def close(self) -> None:
        """Answer no more."""
        process = self._process
        self._let_go()
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S_MAX)
        self._listening.close()
        self._shared.close()

    def _start(self, now: float) -> None:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
            [sys.executable, *_COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(self._listening.fileno(), self._shared.file),
            start_new_session=True,
            bufsize=0,
        )
        assert process.stdin is not None
        self._process, self._started_at = process, now
        # Not in the arguments: the URL may have a password, and everybody can read those.
        with suppress(BrokenPipeError):  # it has ended, which the next look finds
            os.write(process.stdin.fileno(), msgspec.json.encode(self._told) + b"\n")

    def _let_go(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()


def metrics_port_of(url: str, config: Config) -> MetricsPort | None:
    """The port that the settings ask for, if they do."""
    if config.metrics_port is None:
        return None
    return MetricsPort(url, config.metrics_host, config.metrics_port, config)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as wrong:
        why = str(getattr(wrong, "strerror", None) or wrong).partition(" (")[0]
        raise CallerError(
            f"cannot listen at --metrics-host {host} --metrics-port {port}: {why}; give another, or "
            "--metrics-port 0 for a free one"
        ) from None
