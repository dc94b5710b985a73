"""A program of a wheel that serves over loopback: started in a short-lived folder, awaited, and gone with its last user.

What `postgres.py` says of its folder holds here, too: a guard ends the program and removes the folder when
nobody holds the folder in use any more, however that came about.
"""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from tests.servers import guard
from tests.servers.folder import Folder, ProgramFailed, memory

START_S_MAX = 120.0
TRIES = 3
STATE = "part.json"


class Part:
    """One program and its folder. A kind of part says its `name`, its `command` and when it `answers`."""

    name: ClassVar[str]  # of its pid file, which the guard knows

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}  # what others need to know to use it
        self._folder: Folder | None = None

    def command(self, folder: Folder) -> Sequence[str]:
        """The command line; the folder's path stands in it, so that the guard knows the process again."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether it is ready to be used."""
        raise NotImplementedError

    @classmethod
    def attach(cls, path: Path) -> Self:
        """One that another process has started. Raises FolderGone if it is no more."""
        folder = Folder(path)
        part = cls()
        part.state, part._folder = json.loads((path / STATE).read_text()), folder
        return part

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError(f"{self.name} was not started, or is closed")
        return self._folder.path

    @property
    def pid(self) -> int | None:
        return guard.pid_in(self.folder / f"{self.name}.pid")

    def start(self) -> None:
        """Start it and wait until it answers. A port is free when we look and may be taken when it does: try a few."""
        for tries_left in reversed(range(TRIES)):
            self._folder = Folder.make(f"perdure-{self.name}-", parent=memory())
            try:
                self._run(self._folder)
                self._folder.write(STATE, json.dumps(self.state))
            except BaseException as error:
                self.close()
                if not tries_left or not isinstance(error, ProgramFailed):
                    raise
            else:
                return

    def leave(self) -> None:
        """Use it no longer; when its last user has left, it is ended and removed."""
        if self._folder is not None:
            folder, self._folder = self._folder, None
            folder.leave()

    def close(self) -> None:
        """End it and remove all it has written, as its only user."""
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

    def _run(self, folder: Folder) -> None:
        """Start it as nobody's child: whoever started it may end before its other users do."""
        log, pid_file = folder.path / f"{self.name}.log", f"{self.name}.pid"
        started = subprocess.run(
            ["/bin/sh", "-c", '"$@" >"$0" 2>&1 & echo $!', str(log), *self.command(folder)],
            cwd=folder.path,
            env={"PATH": os.defpath, "HOME": str(folder.path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            start_new_session=True,
        )
        folder.write(pid_file, started.stdout)
        give_up_at = time.monotonic() + START_S_MAX
        while not self.answers():
            if self.pid is None or time.monotonic() > give_up_at:
                said = log.read_text(errors="replace")[-2000:]
                raise ProgramFailed(f"{self.name} does not answer; its last words:\n{said}")
            time.sleep(guard.LOOK_EVERY_S)
