"""End what runs in a folder, and the folder, once nobody uses it any more.

What is always true: whoever uses the servers of a folder holds a shared `flock` on its `users.lock`.
The guard is a process of its own that waits for the exclusive one. It gets it when the last user let
go or died, however that came about: the kernel frees the locks of the dead. Then it ends every process
whose pid file lies in the folder and removes the folder.

Who is authoritative: the lock. A newcomer that cannot have it at once, or finds that the file it has
locked is no longer the one at its path, came too late and makes a folder of its own.

What may happen at once: several users come and go; the guard sees only the first moment without any.
It holds the lock until the folder is gone, so nobody joins while it clears up.

If a user dies on any line, its lock goes with it. If the guard is killed, the folder and what runs in
it stay; nothing else depends on it. It is in a session of its own, so Ctrl-C in a terminal passes it by.

Run as a script, with only the standard library: `python guard.py FOLDER`. It returns when the guard
waits, so a folder whose maker goes on is guarded.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

LOCK = "users.lock"
# SIGQUIT is PostgreSQL's immediate shutdown: its rows are about to be removed. PgBouncer ends on SIGTERM.
# SeaweedFS takes 25 s to say goodbye to itself, and a model has nothing to save.
LAST_CALL = {
    "postmaster.pid": signal.SIGQUIT,
    "pgbouncer.pid": signal.SIGTERM,
    "s3.pid": signal.SIGKILL,
    "model.pid": signal.SIGKILL,
}
PATIENCE_S = 10.0
LOOK_EVERY_S = 0.01


def command_of(pid: int) -> str:
    """The command line of a process that runs; empty when there is none (a zombie has none)."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            return ""
    asked = ["ps", "-ww", "-p", str(pid), "-o", "command="]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def pid_in(file: Path) -> int | None:
    """The running process that a pid file means.

    A file that outlived its process may hold a number that is someone else's by now: only a process
    that was started with the file's folder in its command line is meant.
    """
    try:
        first = file.read_text().split("\n", 1)[0].strip()
    except FileNotFoundError:
        return None
    if not first.isdigit() or str(file.parent) not in command_of(int(first)):
        return None
    return int(first)


def gone(file: Path, *, within_s: float) -> bool:
    """Wait until no process runs that the pid file means."""
    deadline = time.monotonic() + within_s
    while pid_in(file) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def end(file: Path, by: signal.Signals, *, within_s: float = PATIENCE_S) -> None:
    """End the process that a pid file means, with SIGKILL when it takes too long."""
    for last in (by, signal.SIGKILL):
        pid = pid_in(file)
        if pid is None:
            return
        os.kill(pid, last)
        if gone(file, within_s=within_s):
            return
    raise TimeoutError(f"the process of {file} does not end")


def clear(folder: Path) -> None:
    for name, by in LAST_CALL.items():
        for file in [folder / name, *folder.glob(f"*/{name}")]:
            end(file, by)
    # A server's last child may still write while its parent is gone.
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(LOOK_EVERY_S)


def watch(folder: Path) -> None:
    with (folder / LOCK).open() as lock:
        if os.fork():
            os._exit(0)
        os.setsid()
        os.chdir("/")
        fcntl.flock(lock, fcntl.LOCK_EX)
        clear(folder)


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
