"""What a store stands on: version, clock, file system, room, rights, and what keeps a server from clearing up."""

from perdure.model.diagnoses import Diagnosis, StoreCondition
from perdure.rules.diagnosis.lines import fail, first_few, ok, time_words, warn

SQLITE = "SQLite"

_WAL_RESET_MENDED = (3, 51, 3)
_TESTED_MAX = 18  # of PostgreSQL
_IN_MEMORY = ("tmpfs", "ramfs")
_CLOCK_S_WARN = 2.0  # a server that was set by NTP is within some milliseconds
_CLOCK_S_FAIL = 300.0  # what is signed with a time is refused elsewhere, too
_FREE_BYTES_FAIL = 128 * 1024**2  # the log alone may take 16 MB more before it is moved
_FREE_BYTES_WARN = 1024**3
_SNAPSHOT_S_WARN = 600.0  # a turn takes milliseconds, a report of ours at most half an hour


def version_diagnosis(found: StoreCondition) -> Diagnosis:
    """The version of the database against what is known of it."""
    name = f"{found.system} {'.'.join(map(str, found.version))}"
    if found.system == SQLITE and found.version < _WAL_RESET_MENDED:
        return warn(
            "version",
            f"{name} can damage a file when two connections write and checkpoint at the same instant; Perdure's own wait "
            "for each other, so only other programs that write to the file bring it about",
            "let nothing else write to the file, or use a Python with SQLite 3.51.3 or newer",
        )
    if found.system != SQLITE and found.version[0] > _TESTED_MAX:
        return warn(
            "version",
            f"{name} is newer than what Perdure was tested with, {_TESTED_MAX}",
            "look for a newer Perdure",
        )
    return ok("version", name)


def clock_diagnosis(found: StoreCondition, ahead_s: float, round_trip_s: float) -> Diagnosis:
    """This machine's clock against the store's, which alone decides about leases and due times.

    What was measured may be wrong by half of the way to the store and back.
    """
    off_s = max(0.0, abs(ahead_s) - round_trip_s / 2)
    if off_s < _CLOCK_S_WARN:
        whose = "is this machine's" if found.system == SQLITE else "agrees with this machine's"
        return ok("clock", f"the store's {whose}; those of other workers are not seen")
    how = "ahead of" if ahead_s > 0 else "behind"
    judged = fail if off_s >= _CLOCK_S_FAIL else warn
    return judged(
        "clock",
        f"the store's clock is {time_words(abs(ahead_s))} {how} this machine's: leases and due times go by the store's, but "
        "dates in answers of upstreams, and every line of a log, by this one's",
        "let both machines be set by NTP",
    )


def file_system_diagnosis(found: StoreCondition) -> Diagnosis:
    """The file system that a file of SQLite lies on."""
    kind = found.file_system
    if found.on_network:
        return fail(
            "file_system",
            f"the store lies on a file system of the network ({kind}); SQLite needs memory and locks that only one machine "
            "has, and the file is damaged sooner or later",
            "move the file to a local disk, or use PostgreSQL",
        )
    if kind in _IN_MEMORY:
        return warn(
            "file_system",
            f"the store lies in memory ({kind}), and is gone when the machine or the container restarts",
            "move the file to a disk",
        )
    return ok("file_system", kind or "it is not known here what the store lies on")


def disk_diagnosis(found: StoreCondition) -> Diagnosis:
    """The room that is left to a store."""
    if found.free_bytes is None:
        return ok("disk", "how much room the server has left is not seen from here")
    text = f"{found.free_bytes / 1024**3:.2f} GB are free"
    if found.free_bytes < _FREE_BYTES_WARN:
        judged = fail if found.free_bytes < _FREE_BYTES_FAIL else warn
        return judged(
            "disk",
            f"only {text}",
            "make room, or let jobs be kept for less long: retain_succeeded_s",
        )
    return ok("disk", text)


def rights_diagnosis(found: StoreCondition) -> Diagnosis:
    """What we may do to the tables of a store."""
    if found.read_only:
        return fail(
            "rights",
            "the store takes no writes: a file or folder that we may not write, a standby, or a read-only server",
            "make it writable, or name the server that takes writes",
        )
    if found.rights_missing:
        return fail(
            "rights",
            f"this role lacks {first_few(found.rights_missing)}",
            "have the owner of the tables grant it: docs/postgres.md#roles-and-rights",
        )
    return ok("rights", "the store can be read and written")


def vacuum_diagnosis(found: StoreCondition) -> Diagnosis:
    """Whether a server removes dead rows by itself."""
    if found.idle_vacuum:
        return warn(
            "autovacuum",
            f"dead rows stay, and claims become slower with every job: {first_few(found.idle_vacuum)}",
            "switch it on again: docs/postgres.md#old-snapshots-and-autovacuum",
        )
    return ok("autovacuum", "it is on")


def snapshot_diagnosis(found: StoreCondition) -> Diagnosis:
    """What keeps a server from removing dead rows."""
    if found.slots_left:
        return warn(
            "oldest_transaction",
            f"replication slots that nobody uses keep dead rows: {first_few(found.slots_left)}",
            "drop them: SELECT pg_drop_replication_slot('…')",
        )
    if found.snapshot_s is not None and found.snapshot_s >= _SNAPSHOT_S_WARN:
        return warn(
            "oldest_transaction",
            f"a transaction is open for {time_words(found.snapshot_s)} ({found.snapshot_of}), and dead rows stay for as long",
            "end it, or see: docs/postgres.md#old-snapshots-and-autovacuum",
        )
    hidden = (
        f"; {found.sessions_hidden} sessions of other roles are not seen (GRANT pg_read_all_stats shows them)"
        if found.sessions_hidden
        else ""
    )
    return ok("oldest_transaction", f"none is old{hidden}")


def pooler_diagnosis(found: StoreCondition, poll_s: float) -> Diagnosis:
    """What stands between us and a server."""
    if not found.pooled:
        return ok("pooler", "none: the connection leads straight to the server")
    if found.settings_lost:
        return warn(
            "pooler",
            f"a pooler stands before the server, and these settings are not in force: {', '.join(found.settings_lost)}",
            "give them to the role: docs/postgres.md#pgbouncer",
        )
    return ok(
        "pooler", f"one stands before the server: new work is found by polling, within {poll_s:g} s"
    )
