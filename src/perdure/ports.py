"""What the engine needs of the world.

The store port is synchronous and speaks the domain. Every method is one transaction, every moment
in it is by the store's own clock, and each raises only errors of `model.errors.StoreError`. After
``StoreUnavailable`` the caller does not know whether the write took place: it sends the same call
again, and the store answers as if it had been the first time.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from perdure.model.events import Event
from perdure.model.jobs import (
    Claim,
    ClaimOrder,
    Enqueued,
    Lane,
    LostClaim,
    NewJob,
    Record,
    Turn,
)
from perdure.model.outcomes import Death
from perdure.model.views import (
    AttemptView,
    Books,
    FailureGroup,
    Finding,
    JobView,
    SchemaStatus,
)
from perdure.model.workers import NewWorker, WorkerView


class Clock(Protocol):
    """Time: wall for people and for stores that have no clock of their own, monotonic for waits."""

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        ...


class Observer(Protocol):
    """Somebody to be told what has become durable."""

    def __call__(self, event: Event) -> None:
        """Take note; may not hurt the walk."""
        ...


class Store(Protocol):
    """Guarded writes."""

    def lanes(self, wanted: Sequence[Lane]) -> dict[Lane, int]:
        """The numbers of these lanes, made where they are missing."""
        ...

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Accept jobs, all or none; the same key gives the same job."""
        ...

    def turn(self, records: Sequence[Record], order: ClaimOrder | None, *, by: int | None) -> Turn:
        """Write the records, then promote and claim; one transaction.

        ``by`` is the writing worker; `WorkerDead` when it has been declared dead, and then nothing
        is written. None is a person or a caller, who holds no lease.
        """
        ...

    def waiting(self, order: ClaimOrder) -> float | None:
        """Seconds until the order could be served: 0 for now, None when nothing waits. Reads only."""
        ...

    def changed(self) -> bool:
        """Whether somebody else may have written since the last call; cheap, and only a hint."""
        ...

    def add_worker(self, worker: NewWorker) -> int:
        """Register a working process that is about to start."""
        ...

    def beat(self, workers: Sequence[int]) -> frozenset[int]:
        """Renew the leases of these workers; the answer names those accepted."""
        ...

    def end_worker(self, worker: int, death: Death) -> bool:
        """Its own supervisor says that this worker has ended; False when that was known."""
        ...

    def mark_dead(self, *, by: int) -> tuple[int, ...]:
        """Declare dead every worker whose lease has run out, if ``by`` is in a position to say so."""
        ...

    def lost(self, *, limit: int, lanes: Sequence[int] | None = None) -> list[LostClaim]:
        """Claims still held by dead workers; with ``lanes``, only those of these lanes."""
        ...

    def held(self, worker: int) -> dict[int, int]:
        """Job numbers and tokens that the store says this worker holds."""
        ...

    def claims_held(self, worker: int) -> list[Claim]:
        """The claims that the store says this worker holds, whole."""
        ...

    def suspects(self) -> frozenset[int]:
        """Isolation levels above 0 at which jobs wait to be run."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class Reader(Protocol):
    """Plain reads for screens and reports."""

    def job(self, id: str) -> JobView | None:
        """One job."""
        ...

    def jobs(
        self,
        *,
        states: Iterable[str] = (),
        pipeline: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[JobView]:
        """Jobs, newest first; ``before`` continues below a job number."""
        ...

    def attempts(self, job_no: int) -> list[AttemptView]:
        """The attempts of one job, oldest first."""
        ...

    def books(self, *, pipeline: str | None = None) -> Books:
        """How many items came in, and where they are."""
        ...

    def failures(self, *, pipeline: str | None = None) -> list[FailureGroup]:
        """Failed jobs grouped by how they ended, most frequent first."""
        ...

    def workers(self) -> list[WorkerView]:
        """All workers that are alive or have unsettled jobs, then the newest dead ones."""
        ...

    def audit(self) -> list[Finding]:
        """Everything in the tables that ought not to be so."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class Schema(Protocol):
    """The schema of a store, and how to bring it up to date."""

    def status(self) -> SchemaStatus:
        """Where it stands."""
        ...

    def upgrade(self) -> tuple[str, ...]:
        """Apply what is pending; the names of what was applied."""
        ...
