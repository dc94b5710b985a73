"""A PgBouncer of our own in front of a Server, on loopback, as strict as it comes.

Debian 12 has 1.18, which knows nothing of prepared statements; that is the hard case, and the one to
pass. `stop` and `start` keep its port; `close` removes everything, and so does its guard if we die.
"""

import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

from tests.servers import guard, programs
from tests.servers.folder import Folder, ProgramFailed, run
from tests.servers.postgres import HOST, ROLE, SUPERUSER, Server, free_port, name_of

PoolMode = Literal["session", "transaction", "statement"]
CONSOLE = "pgbouncer"
START_S_MAX = 60.0
SETTINGS: dict[str, object] = {
    "auth_type": "scram-sha-256",
    "default_pool_size": 20,
    "max_client_conn": 500,
    "admin_users": SUPERUSER,
    # Only TCP: an empty value turns its Unix socket off.
    "unix_socket_dir": "",
}


class Bouncer:
    """One pooler and its process. Nothing is made before `start`."""

    def __init__(
        self,
        server: Server,
        pool_mode: PoolMode = "transaction",
        *,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.server = server
        self.settings = {**SETTINGS, "pool_mode": pool_mode, **(settings or {})}
        self.port = 0
        self._folder: Folder | None = None
        self._program = programs.pgbouncer()

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the pooler was not started, or is closed")
        return self._folder.path

    @property
    def log(self) -> Path:
        return self.folder / "pgbouncer.log"

    @property
    def pid(self) -> int | None:
        return guard.pid_in(self.folder / "pgbouncer.pid")

    def start(self) -> None:
        """Start its process and wait until it listens."""
        if self._folder is None:
            self._folder = Folder.make("perdure-pgbouncer-")
            self.port = free_port()
        try:
            self._configure(self._folder)
            run([self._program, "-q", "-d", self.folder / "pgbouncer.ini"], cwd=self.folder)
            self._listens()
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """End its process at once, with every connection through it."""
        guard.end(self.folder / "pgbouncer.pid", signal.SIGTERM)

    def close(self) -> None:
        """End it and remove all it has written."""
        if self._folder is not None:
            folder, self._folder = self._folder, None
            folder.remove()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def url(self, database: str, *, user: str = ROLE) -> str:
        """Where a database (its name, or its URL on the server) is through the pooler.

        The database `pgbouncer` is its console, for the superuser: `SHOW POOLS` and the like.
        """
        who = f"{quote(user, safe='')}:{quote(self.server.passwords[user], safe='')}"
        return f"postgresql://{who}@{HOST}:{self.port}/{quote(name_of(database), safe='')}"

    def _configure(self, folder: Folder) -> None:
        """The roles are those that the server has now: a later one needs a `stop` and `start`."""
        words = self.server.passwords.items()
        users = folder.write("users.txt", "".join(f'"{name}" "{word}"\n' for name, word in words))
        place = {
            "listen_addr": HOST,
            "listen_port": self.port,
            "auth_file": users,
            "logfile": self.log,
            "pidfile": folder.path / "pgbouncer.pid",
        }
        lines = [f"{name} = {value}" for name, value in {**self.settings, **place}.items()]
        target = f"* = host={self.server.folder} port={self.server.port}"
        folder.write("pgbouncer.ini", "\n".join(["[databases]", target, "[pgbouncer]", *lines, ""]))

    def _listens(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
                return
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    said = self.log.read_text() if self.log.exists() else "(no log)"
                    raise ProgramFailed(f"PgBouncer does not listen:\n{said}") from None
                time.sleep(guard.LOOK_EVERY_S)
