"""Be a keeper: the process that is started beside each worker inside another process.

The host writes one line about itself, and a second one when it has closed its worker. What it said before
its end may come late or, if a process that it has forked holds the line, never: /proc says more.
"""

import os
import selectors
import signal
import sys
from contextlib import suppress
from io import FileIO
from typing import NoReturn

import msgspec

from perdure.app.session.opening import open_store
from perdure.app.worker.keeper_process import CLOSED, DONE, KeptWorker
from perdure.engine.clock import SystemClock
from perdure.engine.observe import Observers
from perdure.engine.supervise.keeper import Keeper
from perdure.engine.supervise.oom import OomCounter
from perdure.engine.supervise.proc import ProcessTable
from perdure.model.errors import StoreError
from perdure.model.workers import NewWorker, Role
from perdure.observers.log import flush_logs, log_event, write_logs

_SAID_BYTES_MAX = 65_536


def main() -> NoReturn:
    """Keep until the worker is closed or its host has ended."""
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # sent to the whole group; we leave when our host does
    line = FileIO(sys.stdin.fileno(), closefd=False).readline()  # not one byte more
    kept_worker = msgspec.json.decode(line, type=KeptWorker)
    aloud = int(sys.argv[1]) if sys.argv[1:] else None  # our host's stderr, for when we are up
    host = ProcessTable(kept_worker.pid)
    write_logs(form=kept_worker.log_format, level="WARNING")
    new = NewWorker(kept_worker.boot, kept_worker.name, Role.MAIN, kept_worker.ttl_s)
    try:
        wait_s_max = max(kept_worker.ttl_s / 3, 0.1)
        store = open_store(kept_worker.url, wait_s_max=wait_s_max, connections=1).store
        worker = store.add_worker(new)  # the same one, if a keeper before us has made it
    except StoreError as error:  # our host finds that out as well, and starts another one
        if aloud is not None:
            os.write(2, f"{error}\n".encode())
        sys.exit(1)
    keeper = Keeper(
        store,
        worker,
        host.look,
        SystemClock(),
        Observers([log_event]),
        kept_worker.ttl_s,
        OomCounter(),
    )
    keeper.once()
    if aloud is not None:
        _speak(aloud)
    _say(f"{worker}\n".encode())
    _keep(keeper, kept_worker)
    store.close()
    _say(DONE)
    sys.exit(0)


def _speak(aloud: int) -> None:
    """Write to the host's standard error from now on, beginning with what we have written so far."""
    flush_logs()
    said = os.pread(2, _SAID_BYTES_MAX, 0)
    os.dup2(aloud, 2)
    os.close(aloud)
    with suppress(OSError):  # nobody may listen
        os.write(2, said)


def _say(words: bytes) -> None:
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), words)


def _keep(keeper: Keeper, kept_worker: KeptWorker) -> None:
    with selectors.DefaultSelector() as waiting:
        waiting.register(sys.stdin.fileno(), selectors.EVENT_READ, "line")
        pidfd = _pidfd(kept_worker.pid)
        if pidfd is not None:
            waiting.register(pidfd, selectors.EVENT_READ, "host")  # readable when it has ended
        while not keeper.done:
            beats_s = min(0.25, kept_worker.ttl_s / 20)  # so that beats are punctual
            for key, _ in waiting.select(beats_s):
                waiting.unregister(key.fileobj)
                if key.data == "line":
                    said = os.read(sys.stdin.fileno(), len(CLOSED))
                    (keeper.note_closed if said == CLOSED else keeper.note_left)()
            keeper.once()


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel, or it has ended
        return None


if __name__ == "__main__":
    main()
