"""One server for a whole run of tests, however many processes it has.

What is always true: a file in the run's own folder names the folder of the server that the run uses.
It is read and written only under a lock, so the first process that needs a server starts it and the
others join it. Each holds the server's folder in use (see guard) from then until it ends.

Who is authoritative: the server's folder. If the file names one whose last user has left, or whose
starter died before it was complete, the reader starts another server and writes its name.

If we die on any line: the lock is the kernel's, and the guard ends a server without users; so a
worker that crashes, a run that is interrupted and a run that ends well are cleared up alike.
"""

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.servers.folder import FolderGone, wait_until_gone
from tests.servers.postgres import Server
from tests.servers.s3 import S3Server

T = TypeVar("T", Server, S3Server)


def record(run: Path, version: int) -> Path:
    return run / f"postgres-{version}"


def join(run: Path, version: int) -> Server:
    """The run's server of a version, started if it must be. `leave` it when done."""
    return _join(record(run, version), Server.attach, lambda: Server(version, in_memory=True))


def join_s3(run: Path) -> S3Server:
    """The run's S3 server, in the same way."""
    return _join(run / "s3-server", S3Server.attach, S3Server)


def _join(name: Path, attach: Callable[[Path], T], make: Callable[[], T]) -> T:
    with name.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if name.exists():
            try:
                return attach(Path(name.read_text()))
            except FolderGone:
                pass
        server = make()
        server.start()
        name.write_text(str(server.folder))
        return server


def wait_for_end(run: Path) -> None:
    """Wait until the servers that a finished run has used are gone, with all that they wrote."""
    for name in [*run.glob("postgres-*"), *run.glob("s3-server")]:
        if name.suffix != ".lock":
            wait_until_gone(Path(name.read_text()))
