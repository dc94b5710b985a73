"""Workers as the store knows them."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

EXIT_RECYCLED = 75  # of a process that wants another one in its place: some of its threads are lost


class Role(StrEnum):
    """Which jobs a working process takes, by how often they have crashed one."""

    MAIN = "main"
    SUSPECTS = "suspects"
    ALONE = "alone"
    CALLER = "caller"  # runs a job of its own while it waits for it; claims nothing

    @property
    def isolation(self) -> int:
        """The isolation level of the jobs that this role claims."""
        return {Role.SUSPECTS: 1, Role.ALONE: 2}.get(self, 0)


class NewWorker(Struct, frozen=True):
    """A working process about to start. ``boot`` is random, so no name is ever met twice."""

    boot: str
    name: str
    role: Role
    ttl_s: float


class WorkerView(Struct, frozen=True):
    """A worker's row."""

    no: int
    boot: str
    name: str
    role: Role
    ttl_s: float
    started_at: datetime
    beat_at: datetime
    steady_at: datetime
    dead_at: datetime | None
    death_json: str | None
