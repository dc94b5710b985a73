"""The host's side of its keeper: starts the process, replaces one that ends too early, and lets it go."""

import os
import secrets
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import msgspec

from perdure.config import Config
from perdure.model.errors import StoreUnavailable

CLOSED = b"closed\n"

_START_S_MAX = 30.0  # an interpreter and our imports, on a busy machine
_END_S_MAX = 5.0  # for its last write; it goes on by itself after that
_AGAIN_S = 0.05
_AGAIN_S_MAX = 5.0


class Charge(msgspec.Struct, frozen=True):
    """What a keeper has to know."""

    url: str
    boot: str
    name: str
    pid: int
    ttl_s: float
    log_format: str


class Kept:
    """A worker's row that has a keeper."""

    def __init__(self, url: str, config: Config) -> None:
        pid, boot = os.getpid(), secrets.token_hex(16)
        name = f"{socket.gethostname()}:{pid}"
        self._charge = Charge(url, boot, name, pid, config.lease_ttl_s, config.log_format)
        self._one_at_a_time = threading.Lock()
        self._closing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start the keeper; the number of the row that it has made."""
        process = self._spawned()
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _START_S_MAX)
        said = process.stdout.readline() if ready else b""
        if not said.endswith(b"\n"):
            self.close(orderly=True)
            raise StoreUnavailable(
                "the keeper of a worker inside this process cannot reach the store, or did not come up; "
                "what it may have said stands above"
            )
        threading.Thread(target=self._watch, name="perdure-keeping", daemon=True).start()
        return int(said)

    def close(self, *, orderly: bool) -> None:
        """Let the keeper go; if orderly, it ends the row as closed by ourselves."""
        self._closing.set()
        with self._one_at_a_time:
            process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):  # it has ended before
            if orderly:
                os.write(process.stdin.fileno(), CLOSED)
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S_MAX)
        if process.stdout is not None:
            process.stdout.close()

    def _spawned(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "perdure.app.keeper"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0,
        )  # fmt: skip
        assert process.stdin is not None
        with suppress(OSError):  # it has ended already, which is noticed by who waits for it
            # Not in the arguments: the URL may have a password, and everybody can read those.
            os.write(process.stdin.fileno(), msgspec.json.encode(self._charge) + b"\n")
        self._process = process
        return process

    def _watch(self) -> None:
        """Replace a keeper that ends before it is done, for as long as the worker is not closed."""
        pause_s = _AGAIN_S
        process = self._process
        while process is not None and process.wait() != 0 and not self._closing.wait(pause_s):
            pause_s = min(2 * pause_s, _AGAIN_S_MAX)
            with self._one_at_a_time:
                if self._closing.is_set():
                    return
                for line in (process.stdin, process.stdout):
                    if line is not None:
                        line.close()
                process = self._spawned()
