"""Files that are written anew, line by line.

Always true: a regular file is whole, or as it was before. What is new goes to a file beside it, whose name ends in
``.part``; that is on the disk before it takes the old one's place. Who writes has an exclusive lock on the part from
its making until then, so there is one writer of a file at a time, and a second one is told so at once. The lock
is the kernel's: whatever a writer dies of, the next one has it.

What is no regular file (a pipe, a device, a descriptor of our own) cannot be replaced and is written straight into.
It cannot be begun again either. A pipe is opened with its first line, because that waits for who reads it.
"""

import errno
import fcntl
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from perdure.model.errors import CallerError

_BUFFER_BYTES = 1 << 16
_OWN = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_OWN_NAMES = {"/dev/stdout": 1, "/dev/stderr": 2}


class RewrittenFile(Protocol):
    """A file under way. Its methods raise `OSError`."""

    rewinds: bool

    def write(self, line: str) -> None:
        """Add a line."""

    def flush(self) -> None:
        """Let others see what is there."""

    def begin_again(self) -> None:
        """Forget what is there, as far as it ``rewinds``."""

    def keep(self) -> None:
        """It is whole."""

    def leave(self) -> None:
        """It will not be."""


def open_rewritten(path: Path) -> RewrittenFile:
    """The file of that name, open for writing; `CallerError` when it cannot be."""
    place = str(path.absolute())
    own = _OWN.fullmatch(place)
    number = int(own[1]) if own else _OWN_NAMES.get(place)
    try:
        if number is not None:
            return StraightFile(path, os.dup(number))
        with suppress(FileNotFoundError):
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                raise CallerError(f"{path} is a folder; name a file in it")
            if not stat.S_ISREG(mode):
                return StraightFile(path)
        return PartFile(path)
    except OSError as error:
        raise CallerError(f"{path} cannot be written: {error.strerror}") from None


class PartFile:
    """A file beside the one that it replaces when it is whole."""

    rewinds = True

    def __init__(self, path: Path) -> None:
        self._whole = Path(os.path.realpath(path))  # a link stays a link
        self._part = self._whole.with_name(self._whole.name + ".part")
        self._file = os.fdopen(self._lock(path), "w", encoding="utf-8")
        self._file.truncate(0)

    def write(self, line: str) -> None:
        """Add a line."""
        self._file.write(line + "\n")

    def flush(self) -> None:
        """Let others see what is there."""
        self._file.flush()

    def begin_again(self) -> None:
        """Forget what is there."""
        self._file.seek(0)
        self._file.truncate()

    def keep(self) -> None:
        """Take the place of the old file; the lock is held until then."""
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._part.replace(self._whole)

    def leave(self) -> None:
        """Leave the part for whoever wants to look at it, if there is anything in it."""
        with self._file:
            self._file.flush()
            if self._file.tell() == 0:
                self._part.unlink(missing_ok=True)

    def _lock(self, path: Path) -> int:
        while True:
            number = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(number)
                raise CallerError(
                    f"another command is writing {path} now; wait for it, or write to another file"
                ) from None
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                    os.close(number)
                    raise
                return number  # a file system without locks
            # The one that had it may have renamed or removed it since we opened it.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(number), self._part.stat()):
                    return number
            os.close(number)


class StraightFile:
    """What cannot be replaced. Bytes are kept here, not in a file object: one whose reader does not read would
    keep whoever closes it from ending.
    """

    rewinds = False

    def __init__(self, path: Path, number: int | None = None) -> None:
        if number is None and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        self._path = path
        self._number = number
        self._pending = bytearray()
        self._writing = False

    def write(self, line: str) -> None:
        """Add a line."""
        self._pending += line.encode() + b"\n"
        if len(self._pending) >= _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand over what is there; waits for who reads."""
        self._writing = True
        try:
            while self._pending:
                if self._number is None:
                    self._number = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
                del self._pending[: os.write(self._number, self._pending[:_BUFFER_BYTES])]
        finally:
            self._writing = False

    def begin_again(self) -> None:
        """Nothing: what was handed over cannot be taken back."""

    def keep(self) -> None:
        """Say that it is all; a pipe of which nobody has read yet is left alone."""
        self.flush()
        if self._number is None:
            with suppress(OSError):
                self._number = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.leave()

    def leave(self) -> None:
        """Let go of it, unless a thread still waits for its reader."""
        if self._number is not None and not self._writing:
            os.close(self._number)
            self._number = None
