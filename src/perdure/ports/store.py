"""The guarded writes of the walk, by noun; each says which files of `testing/store_contract/` define what it has to do."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from perdure.model.gates import GateChange, GateLook, Probe, Slices
from perdure.model.jobs import (
    Busy,
    Claim,
    ClaimOrder,
    Enqueued,
    Expired,
    Lane,
    LostClaim,
    NewJob,
    OnLost,
    Overrun,
    Record,
    Settled,
    Turn,
)
from perdure.model.operations import Deed
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus
from perdure.model.workers import NewWorker


class Store(Protocol):
    """Guarded writes."""

    # Jobs that come in: `enqueue.py`, `request_ids.py`, `callers.py`, `payloads.py`.

    def lanes(self, wanted: Sequence[Lane]) -> dict[Lane, int]:
        """The numbers of these lanes, made where they are missing."""
        ...

    def enqueue(self, jobs: Sequence[NewJob], *, within: object = None) -> list[Enqueued]:
        """Accept jobs, all or none; the same key gives the same job.

        ``within`` is a connection of the caller's own to the same database: the jobs are then part
        of its transaction, and come and go with it.
        """
        ...

    def begin(
        self, job: NewJob, *, worker: int, hard_s: float, on_lost: OnLost
    ) -> Claim | Enqueued:
        """Accept a job that its caller, a worker of its own, runs at once; after ``hard_s`` it is overrun.

        The answer is the job that had the key before, if there is one; or the job itself, queued,
        where its lane is closed. The limit and the wish for when the caller is lost stay with the
        job for as long as the caller holds it, through its re-claims.
        """
        ...

    # Claims and records: `claim.py`, `lane_slots.py`, `fair_queues.py`, `record.py`, `shortcuts.py` (whose jobs
    # have been through `journeys.py`), `complete.py`, `token_guard.py`.

    def turn(self, records: Sequence[Record], order: ClaimOrder | None, *, by: int | None) -> Turn:
        """Write the records, then promote and claim from those of the lanes that are open.

        One transaction. A record that asks for a re-claim in a closed lane is queued instead.
        ``by`` is the writing worker; `WorkerDead` when it has been declared dead, and then nothing
        is written. None is a person or a caller, who holds no lease.
        """
        ...

    def settle(self, records: Sequence[Record], *, by: int | None) -> tuple[Settled | Busy, ...]:
        """As a turn that claims nothing, and waits for no job: one that an open transaction holds is `Busy`.

        For everybody but the worker that holds the jobs: a stage may have one in a transaction of its own.
        """
        ...

    def complete(self, record: Record, *, by: int, within: object) -> Settled | Busy:
        """Write a record in its stage's own transaction, with which it comes and goes; on any thread.

        ``within`` is a connection as in `enqueue`. The token guards it, and the worker must be alive, as in
        `turn`; but the worker's row is not locked, so that it can be declared dead while the transaction is
        open: the token alone decides then. Nothing is claimed again. The same record again has the same receipt.
        """
        ...

    def ends_of(self, claims: Sequence[tuple[int, int]]) -> dict[tuple[int, int], AttemptStatus]:
        """How these attempts, each a job and its token, have ended; those that have not are left out."""
        ...

    def waiting(self, order: ClaimOrder) -> float | None:
        """Seconds until the order could be served: 0 for now, None when nothing waits. Reads only."""
        ...

    def tokens_held(self, worker: int) -> dict[int, int]:
        """Job numbers and tokens that the store says this worker holds."""
        ...

    def claims_held(self, worker: int) -> list[Claim]:
        """The claims that the store says this worker holds, whole."""
        ...

    def suspects(self, lanes: Sequence[int] | None = None) -> frozenset[int]:
        """Isolation levels above 0 at which jobs wait to be run in open lanes; of these, if given.

        A lane that only a gate closes counts as open when that gate's hold is over: a suspect may have to be its probe.
        """
        ...

    # Jobs that take too long: `callers.py`.

    def expired_jobs(self, *, limit: int) -> list[Expired]:
        """Waiting jobs whose deadline has passed, in closed lanes too."""
        ...

    def overrun(self, limits_s: Mapping[int, float], *, limit: int) -> list[Overrun]:
        """Claims of these lanes that are held for longer than their lane's limit, or than their own."""
        ...

    # Gates: `gates.py`, `probes.py`.

    def look_at_gates(
        self, names: Sequence[str], *, worker: int, samples: Mapping[str, str]
    ) -> GateLook:
        """Keep this worker's samples, by gate, and read all there is about these gates and their parents.

        A dead worker's samples are not kept. Without samples nothing is written, and no writer waited for.
        """
        ...

    def change_slices(self, slices: Slices) -> bool:
        """Part an upstream's limits anew where the generation is as seen; False when it has moved on."""
        ...

    def probe(self, order: ClaimOrder, change: GateChange, deed: Deed) -> Probe | None:
        """Change a gate where its generation is as seen, and claim one job from behind it, in one transaction.

        The job is the least-tried of the first hundred that could run now in those of the order's lanes that
        only this gate closes, as their upstream's or as their credential's. None, and nothing is changed, when
        the gate has moved on or no such job waits. `WorkerDead` as in `turn`.
        """
        ...

    # Workers: `workers.py`.

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

    def lost_claims(self, *, limit: int, lanes: Sequence[int] | None = None) -> list[LostClaim]:
        """Claims still held by dead workers; with ``lanes``, only those of these lanes."""
        ...

    # Runs: `run_ends.py`.

    def run_lanes(self) -> dict[int, Lane]:
        """The lanes of all runs that are not over, by their numbers."""
        ...

    # The connection: `shared_connections.py`.

    def has_changed(self) -> bool:
        """Whether somebody else may have written since the last call; cheap, and only a hint."""
        ...

    def wake_fd(self) -> int | None:
        """A descriptor that is readable when `has_changed` may be true; None where only asking helps."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
