"""A PostgreSQL server of our own: made in a temporary folder, reached over loopback and a Unix socket.

    with Server() as server:
        url = server.create_database()
        server.stop("immediate")
        server.start()

`stop` ends the process and keeps the rows; `close` (or the end of the `with`) removes everything, and
so does the folder's guard if we die. The superuser `postgres` and the plain role `perdure`, who owns
the databases, have random passwords over TCP; over the socket, which only the server's user and root
can reach, nobody is asked for one. It syncs to disk like any other; `in_memory` is quick to make
databases in, and its syncs cost nothing.
"""

import json
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote, urlencode, urlsplit

import psycopg
from psycopg import sql

from tests.servers import guard, programs
from tests.servers.folder import DISK, Folder, ProgramFailed, memory, run

HOST = "127.0.0.1"
SUPERUSER = "postgres"
ROLE = "perdure"
MAINTENANCE = "postgres"
START_S_MAX = 60
PORT_TRIES = 3
STATE = "server.json"
SETTINGS: dict[str, object] = {
    "max_connections": 200,
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

Mode = Literal["smart", "fast", "immediate"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def name_of(database: str) -> str:
    """The name of a database, given as such or as a URL of it."""
    return urlsplit(database).path.removeprefix("/") if "://" in database else database


class Server:
    """One cluster and its process. Nothing is made before `start`."""

    def __init__(
        self,
        version: int | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        in_memory: bool = False,
    ) -> None:
        self.version = version or programs.wanted_version()
        self.settings = {**SETTINGS, **(settings or {})}
        self.parent = memory() if in_memory else DISK
        self.port = 0
        self.passwords: dict[str, str] = {}
        self._folder: Folder | None = None
        self._bin = programs.postgres(self.version)

    @classmethod
    def attach(cls, path: Path) -> Self:
        """A server that another process has started. Raises FolderGone if it is no more."""
        folder = Folder(path)
        state = json.loads((path / STATE).read_text())
        server = cls(state["version"], settings=state["settings"])
        server.port, server.passwords = state["port"], state["passwords"]
        server._folder, server._bin = folder, Path(state["bin"])
        return server

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the server was not started, or is closed")
        return self._folder.path

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def bin(self) -> Path:
        """The folder of its programs (psql, pgbench, pg_dump, …), to be run with `folder.run`."""
        return self._bin

    @property
    def pid(self) -> int | None:
        """Its main process; None while it is stopped."""
        return guard.pid_in(self._cluster / "postmaster.pid")

    @property
    def _cluster(self) -> Path:
        return self.folder / "cluster"

    def start(self) -> None:
        """Make the cluster, the first time; start its process and wait until it answers."""
        if self._folder is None:
            self._folder = Folder.make(f"perdure-postgres-{self.version}-", parent=self.parent)
            try:
                self._initialise(self._folder)
            except BaseException:
                self.close()
                raise
        else:
            self._pg_ctl("start", "-l", self.log, "-t", START_S_MAX)

    def stop(self, mode: Mode = "fast") -> None:
        """End its process; `immediate` is a crash. The rows stay, `start` brings them back."""
        self._pg_ctl("stop", "-m", mode, "-t", START_S_MAX)

    def restart(self, mode: Mode = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """End it and remove all it has written, as its only user."""
        if self._folder is not None:
            folder, self._folder = self._folder, None
            folder.remove()

    def leave(self) -> None:
        """Use it no longer; when its last user has left, it is ended and removed."""
        if self._folder is not None:
            folder, self._folder = self._folder, None
            folder.leave()

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

    def url(
        self,
        database: str = MAINTENANCE,
        *,
        user: str = ROLE,
        password: str | None = None,
        through: Literal["tcp", "socket"] = "tcp",
    ) -> str:
        """Where a database is: over TCP with the role's password (or the given one), or the socket."""
        name = quote(name_of(database), safe="")
        if through == "socket":
            where = urlencode({"host": self.folder, "port": self.port}, safe="/")
            return f"postgresql://{quote(user, safe='')}@/{name}?{where}"
        known = self.passwords[user] if password is None else password
        who = f"{quote(user, safe='')}:{quote(known, safe='')}"
        return f"postgresql://{who}@{HOST}:{self.port}/{name}"

    def admin(self, database: str = MAINTENANCE) -> "psycopg.Connection[tuple[object, ...]]":
        """A connection of the superuser, in autocommit."""
        url = self.url(database, user=SUPERUSER, through="socket")
        return psycopg.connect(url, autocommit=True)

    def create_database(self, name: str | None = None, *, template: str = "template0") -> str:
        """An empty database, or a copy of `template`, that the role owns; its URL."""
        name = name or f"t_{secrets.token_hex(6)}"
        # By default each page goes through the log, which is twice the work for a few megabytes in memory.
        made = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY file_copy")
        with self.admin() as connection:
            connection.execute(
                made.format(
                    sql.Identifier(name), sql.Identifier(ROLE), sql.Identifier(name_of(template))
                )
            )
        return self.url(name)

    def drop_database(self, database: str) -> None:
        """Drop it, whoever is connected to it. It may be gone already."""
        dropped = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        with self.admin() as connection:
            connection.execute(dropped.format(sql.Identifier(name_of(database))))

    def create_role(self, name: str) -> str:
        """A role that may log in and has no other right; its password."""
        self.passwords[name] = secrets.token_hex(12)
        made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
        with self.admin() as connection:
            if self.version >= 16:
                # Whoever logs in works through them: by default 4,096, two milliseconds of each connection.
                connection.execute("SET scram_iterations = 1")
            connection.execute(made.format(sql.Identifier(name), sql.Literal(self.passwords[name])))
        return self.passwords[name]

    def drop_role(self, name: str) -> None:
        """Drop it. What it owns or was granted must be gone: drop that database first."""
        with self.admin() as connection:
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))
        self.passwords.pop(name, None)

    def _initialise(self, folder: Folder) -> None:
        self._bin = programs.within_reach(self._bin, folder)
        self.passwords = {SUPERUSER: secrets.token_hex(12)}
        word = folder.write("password", self.passwords[SUPERUSER])
        fixed = ["--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256"]
        # Nothing is worth a sync yet; the server itself syncs unless its settings say otherwise.
        hasty = ["--no-sync", "--no-instructions"]
        where = ["-D", str(self._cluster), "-U", SUPERUSER, f"--pwfile={word}"]
        run([self._bin / "initdb", *where, *fixed, *hasty], cwd=folder.path)
        word.unlink()
        self._first_start(folder)
        self.create_role(ROLE)
        state = {"version": self.version, "port": self.port, "bin": str(self._bin)}
        state |= {"settings": self.settings, "passwords": self.passwords}
        folder.write(STATE, json.dumps(state))

    def _first_start(self, folder: Folder) -> None:
        """A port is free when we look and may be taken when the server does: try a few."""
        for tries_left in reversed(range(PORT_TRIES)):
            self.port = free_port()
            self._configure(folder)
            try:
                self._pg_ctl("start", "-l", self.log, "-t", START_S_MAX)
            except ProgramFailed:
                if not tries_left or "Address already in use" not in self.log.read_text():
                    raise
            else:
                return

    def _configure(self, folder: Folder) -> None:
        place = {
            "listen_addresses": HOST,
            "port": self.port,
            "unix_socket_directories": str(self.folder),
        }
        lines = [f"{name} = '{value}'" for name, value in {**self.settings, **place}.items()]
        folder.write("cluster/postgresql.auto.conf", "\n".join([*lines, ""]))

    def _pg_ctl(self, verb: str, *words: object) -> None:
        quietly = ["-D", str(self._cluster), "-s", "-w"]
        try:
            run([self._bin / "pg_ctl", verb, *quietly, *map(str, words)], cwd=self.folder)
        except ProgramFailed as failure:
            tail = self.log.read_text()[-2000:] if self.log.exists() else "(no log)"
            raise ProgramFailed(f"{failure}\n{tail}") from None
