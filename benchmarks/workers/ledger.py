"""What worker processes write down for the one who measures them: that they are there, and when a stage began.

Every process has files of its own in the folder, and a line is one write: nothing is shared, nothing is locked.
"""

import os
import time
from pathlib import Path

FOLDER = "PERDURE_BENCH_FOLDER"
URL = "PERDURE_BENCH_URL"


class Ledger:
    """The files of one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, int] = {}

    def ready(self) -> None:
        """This process is about to work."""
        self._write("ready", str(os.getpid()))

    def timed(self, sent_ns: int) -> None:
        """A stage begins for a job that was sent then, by the machine's clock."""
        self._write("timed", str(time.monotonic_ns() - sent_ns))

    def held(self) -> None:
        """A stage holds its job from now on."""
        self._write("held", "1")

    def _write(self, what: str, line: str) -> None:
        if what not in self._files:
            path = self._folder / f"{what}.{os.getpid()}"
            self._files[what] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(self._files[what], f"{line}\n".encode())


def mine() -> Ledger:
    """That of this process."""
    return Ledger(Path(os.environ[FOLDER]))


def lines(folder: Path, what: str) -> list[str]:
    """What all processes have written of one sort."""
    return [
        line for file in sorted(folder.glob(f"{what}.*")) for line in file.read_text().splitlines()
    ]
