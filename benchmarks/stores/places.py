"""Fresh databases and files to measure on, and what is known of the machine below them."""

import importlib.metadata
import os
import platform
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers.postgres import Server

# As on a small server of its own. No checkpoint falls into a measurement by the clock, and files of the log are
# kept to be used again: a server that has run for a day has them, a fresh one makes each in the middle of a commit.
SETTINGS = {
    "shared_buffers": "512MB",
    "min_wal_size": "2GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
}
LOG_FILES = 64


class Places:
    """Makes databases on one server and files in one folder, each gone after its use."""

    def __init__(self, server: Server, folder: Path, *, log_files: int = LOG_FILES) -> None:
        self.server = server
        self.folder = folder
        self._made = 0
        with server.admin() as cx:
            for _ in range(log_files):
                cx.execute("SELECT pg_logical_emit_message(true, 'bench', 'x')")
                cx.execute("SELECT pg_switch_wal()")
        self.rest()

    def rest(self) -> None:
        """Let the server write out what it has, and make its log's files ready to be used again."""
        with self.server.admin() as cx:
            cx.execute("CHECKPOINT")

    @contextmanager
    def fresh(self, scheme: str) -> Iterator[str]:
        """The URL of an empty store: ``postgresql`` or ``sqlite``."""
        with self._database() if scheme == "postgresql" else self._file() as url:
            yield url

    @contextmanager
    def _database(self) -> Iterator[str]:
        url = self.server.create_database()
        try:
            yield url
        finally:
            self.server.drop_database(url)

    @contextmanager
    def _file(self) -> Iterator[str]:
        self._made += 1
        file = self.folder / f"{self._made}.db"
        try:
            yield f"sqlite:///{file}"
        finally:
            for left in self.folder.glob(f"{self._made}.db*"):
                left.unlink()


def versions(server: Server) -> dict[str, str]:
    """What is measured, on what."""
    with server.admin() as cx:
        (postgres,) = cx.execute("SHOW server_version").fetchone() or ("?",)
    packages = ("perdure", "psycopg", "psycopg-binary", "msgspec", "pgqueuer", "asyncpg")
    found = {}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return {
        "python": platform.python_version(),
        "postgresql": str(postgres),
        "sqlite": sqlite3.sqlite_version,
        "cores": str(os.cpu_count()),
        **found,
    }


def calibration(folder: Path) -> dict[str, float]:
    """What the machine gives at this moment: steps of a Python loop and syncs of a small write."""
    begun_s = time.perf_counter()
    for _ in range(2_000_000):
        pass
    loop_s = time.perf_counter() - begun_s
    taken = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(100):
            begun_s = time.perf_counter()
            file.write(b"x" * 8192)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begun_s)
    return {
        "python_mops": round(2 / loop_s, 1),
        "syncs_s": round(1 / statistics.median(taken)),
        "load": round(os.getloadavg()[0], 2),
    }
