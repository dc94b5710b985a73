"""A scene: jobs, a fleet of workers and the upstream that they call; and its time."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perdure.simulate.replies import Form
from perdure.simulate.upstream import UpstreamModel

START_AT = datetime(2030, 1, 1, tzinfo=UTC)


def at(now_s: float) -> datetime:
    """The moment so many seconds after the start."""
    return START_AT + timedelta(seconds=now_s)


def since_s(moment: datetime) -> float:
    """Seconds from the start to that moment."""
    return (moment - START_AT).total_seconds()


@dataclass(frozen=True, slots=True)
class Defect:
    """What is wrong with a ``share`` of the jobs: an answer to them comes to this ``form``, each time.

    ``calls`` is what such a job costs before it is given up.
    """

    share: float
    form: Form
    calls: int

    def strikes(self, no: int) -> bool:
        """Whether the job of that number is one of them; they are spread evenly."""
        return int((no + 1) * self.share) > int(no * self.share)


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs of one owner that arrive together."""

    owner: str
    jobs: int
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Workers, and how long things take in them.

    ``poll_s`` is the longest rest between two looks at the store, ``pick_s`` the time from a claim to
    its call. A worker that is killed is back after ``restart_s``, and its jobs with it.
    """

    workers: int = 4
    concurrency: int = 25
    poll_s: float = 1.0
    pick_s: float = 0.01
    restart_s: float = 1.0

    @property
    def calls_max(self) -> int:
        """The most calls that can be in flight."""
        return self.workers * self.concurrency


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a run needs but its seed and the strategy.

    ``killed_s``: when all workers are killed. ``person_s``: when a person releases what is held.
    ``stop_owner``: the run may end when this owner's jobs are done. ``horizon_s``: it ends anyway.
    """

    name: str
    title: str
    upstream: UpstreamModel
    batches: tuple[Batch, ...]
    horizon_s: float
    fleet: Fleet = Fleet()
    fair: bool = False
    killed_s: tuple[float, ...] = ()
    person_s: tuple[float, ...] = ()
    stop_owner: str | None = None
    defect: Defect | None = None

    @property
    def jobs(self) -> int:
        """How many jobs there are in all."""
        return sum(batch.jobs for batch in self.batches)

    @property
    def drain_from_s(self) -> float:
        """From when on a drain is measured: the end of an outage that was there at the start."""
        begins_down = any(from_s <= 0.0 for from_s, _ in self.upstream.outages_s)
        return self.upstream.back_s if begins_down else 0.0
