"""A short-lived folder for a server: owned by the user that it runs as, guarded, gone after its last user."""

import fcntl
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.servers import guard

# The path of a Unix socket may take about 100 characters: the system's own folder may be too deep.
DISK = Path("/tmp")
MEMORY = Path("/dev/shm")
MEMORY_FREE_BYTES_MIN = 2 * 1024**3
REMOVAL_S_MAX = 30.0


def memory() -> Path:
    """A file system in memory with room for a cluster and its programs, or the disk's.

    A database is 300 files. Ext4 makes each slowly for half a minute after others were removed:
    creating one was seen to take 25 to 250 ms on disk and 12 in memory.
    """
    try:
        found = os.statvfs(MEMORY)
    except FileNotFoundError:
        return DISK
    roomy = found.f_bavail * found.f_frsize >= MEMORY_FREE_BYTES_MIN
    return MEMORY if roomy and not found.f_flag & os.ST_NOEXEC else DISK


class FolderGone(Exception):
    """The folder's last user has left: what ran in it has ended."""


def account() -> pwd.struct_passwd | None:
    """Whom a server runs as: ourselves (None), or for root, which servers refuse, somebody lesser."""
    if os.geteuid():
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LookupError("root may not run a server, and there is neither a user postgres nor nobody")


class ProgramFailed(Exception):
    """A server's program ended badly; the message holds what it said."""


def run(command: Sequence[str | Path], *, cwd: Path) -> str:
    """Run a server's program as the server's user, without our environment; what it prints."""
    user = account()
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={"PATH": os.defpath, "LC_ALL": "C", "HOME": str(cwd)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        umask=0o077,
        user=user.pw_uid if user else None,
        group=user.pw_gid if user else None,
        extra_groups=[] if user else None,
    )
    if ended.returncode:
        said = f"{ended.stdout}{ended.stderr}".strip()
        raise ProgramFailed(f"{command[0]} ended with {ended.returncode}: {said}")
    return ended.stdout


def give_away(path: Path) -> None:
    """Make a file, or a folder with all it holds, the server's user's own."""
    user = account()
    if user is None:
        return
    for each in [path, *path.rglob("*")]:
        os.chown(each, user.pw_uid, user.pw_gid, follow_symlinks=False)


class Folder:
    """Used from its making, or from `Folder(path)` for one that exists, until `leave`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._lock = (path / guard.LOCK).open()
        except FileNotFoundError:
            raise FolderGone(path) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            held = os.fstat(self._lock.fileno())
            if not os.path.samestat(held, (path / guard.LOCK).stat()):
                raise FolderGone(path)
        except (BlockingIOError, FileNotFoundError):
            self._lock.close()
            raise FolderGone(path) from None

    @classmethod
    def make(cls, prefix: str, *, parent: Path = DISK) -> "Folder":
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        (path / guard.LOCK).touch()
        give_away(path)
        made = cls(path)
        # -I and -S: nothing of the environment, and no hooks of tools that measure the tests.
        script = [sys.executable, "-I", "-S", guard.__file__, str(path)]
        try:
            quiet = subprocess.DEVNULL
            subprocess.run(script, check=True, stdin=quiet, stdout=quiet, stderr=quiet)
        except BaseException:
            made.leave()
            shutil.rmtree(path)
            raise
        return made

    def write(self, name: str, text: str) -> Path:
        """A file that only the server's user may read."""
        file = self.path / name
        file.touch(mode=0o600)
        file.write_text(text)
        give_away(file)
        return file

    def leave(self) -> None:
        """Use it no longer. Forked children share the lock, so it is freed, not only closed."""
        if not self._lock.closed:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()

    def remove(self) -> None:
        """Leave it as its only user, and wait until it is gone."""
        self.leave()
        wait_until_gone(self.path)


def wait_until_gone(path: Path) -> None:
    deadline = time.monotonic() + REMOVAL_S_MAX
    while path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is still there: someone uses it, or its guard was killed")
        time.sleep(guard.LOOK_EVERY_S)
