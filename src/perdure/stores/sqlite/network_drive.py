"""Where a store's file lies: one on a file system of the network is warned of, once a path.

All connections to a file in WAL mode share the index of its log through mapped memory, and their locks through
the kernel. Between two machines neither holds, and the file is damaged sooner or later; on one machine alone
it depends on the client. `/proc/self/mountinfo` (Linux, proc_pid_mountinfo(5)) says what is mounted where.
"""

import logging
import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
        "fuse.beegfs",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.seaweedfs",
        "fuse.smbnetfs",
        "fuse.sshfs",
    }
)

_log = logging.getLogger("perdure")
_looked_at: set[str] = set()


def warn_of_network(path: str) -> None:
    """Say so when the file lies on a file system of the network."""
    place = os.path.realpath(path)
    if place in _looked_at:
        return
    _looked_at.add(place)
    kind = file_system_of(place)
    if kind in NETWORK:
        _log.warning(
            "store %r lies on a file system of the network (%s); SQLite needs memory and locks that "
            "only one machine has: move the file to a local disk, or use PostgreSQL",
            path,
            kind,
        )


def file_system_of(path: str) -> str | None:
    """The type of the file system that a file lies on; None where that is not to be known."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux, or /proc is hidden: nothing is known, so nothing is said
        return None
    return file_system(mounts, os.path.realpath(path))


def file_system(mounts: str, place: str) -> str | None:
    """The type of the file system that an absolute path without links lies on.

    The longest mount point that the path is under; of two on the same point, the later hides the earlier.
    """
    found, longest = None, -1
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _unescape(fields[4])
        if len(point) >= longest and _is_under(place, point):
            found, longest = after.split(" ")[0], len(point)
    return found


def _is_under(place: str, point: str) -> bool:
    return place == point or place.startswith(point.rstrip("/") + "/")


def _unescape(point: str) -> str:
    r"""The kernel writes space, tab, newline and backslash as ``\040`` and the like."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
