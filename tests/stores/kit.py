"""A store on a clock that the test pushes, jobs to put into it, and records to write about them."""

import itertools
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path

from perdure.model.decisions import Counted
from perdure.model.jobs import (
    ZERO,
    Attempt,
    Claim,
    ClaimOrder,
    Enqueued,
    Lane,
    NewJob,
    Record,
    Settled,
    Turn,
)
from perdure.model.states import AttemptStatus, FailedReason, Move, State
from perdure.model.workers import NewWorker, Role
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.reader import SqliteReader
from perdure.stores.sqlite.schema import SqliteSchema
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import VirtualClock

MEMORY = ":memory:"
TABLES = ("jobs", "attempts", "checkpoints", "workers", "lanes", "books")
TTL_S = 15.0


@dataclass
class Place:
    """One connection to one store, and short words for what tests do with it."""

    path: str
    clock: VirtualClock = field(default_factory=VirtualClock)
    wait_s_max: float = 10.0
    pipeline: str = "p"
    stages: tuple[str, ...] = ("one", "two")

    def __post_init__(self) -> None:
        self.connection = Connection(self.path, self.clock, wait_s_max=self.wait_s_max)
        self.schema = SqliteSchema(self.connection, f"sqlite:///{self.path}")
        self.schema.upgrade()
        self.store = SqliteStore(self.connection)
        self.reader = SqliteReader(self.connection)
        lanes = [Lane("q", "c", self.pipeline, stage) for stage in self.stages]
        numbers = self.store.lanes(lanes)
        self.lanes = {lane.stage: numbers[lane] for lane in lanes}
        self._numbers = itertools.count(1)

    # -- words -----------------------------------------------------------------------------

    def new(self, **changes: object) -> NewJob:
        number = next(self._numbers)
        plain = NewJob(
            id=f"job-{number:05d}", pipeline=self.pipeline, lane=self.lanes["one"], stage="one",
            payload_json=f'{{"n":{number}}}',
        )  # fmt: skip
        return replace(plain, **changes)  # type: ignore[arg-type]

    def put(self, **changes: object) -> Enqueued:
        return self.store.enqueue([self.new(**changes)])[0]

    def put_many(self, count: int, **changes: object) -> list[Enqueued]:
        return self.store.enqueue([self.new(**changes) for _ in range(count)])

    def hire(self, *, role: Role = Role.MAIN, ttl_s: float = TTL_S) -> int:
        return self.store.add_worker(NewWorker(secrets.token_hex(8), "host:1", role, ttl_s))

    def order(self, worker: int, slots: int = 1, *, isolation: int = 0) -> ClaimOrder:
        return ClaimOrder(worker, slots, tuple(self.lanes.values()), isolation)

    def take(self, worker: int, slots: int = 1, *, isolation: int = 0) -> list[Claim]:
        order = self.order(worker, slots, isolation=isolation)
        return list(self.store.turn([], order, by=worker).claims)

    def taken_ids(self, worker: int, slots: int = 1, *, isolation: int = 0) -> list[str]:
        return [claim.id for claim in self.take(worker, slots, isolation=isolation)]

    def settle(self, *records: Record, by: int | None) -> tuple[Settled, ...]:
        return self.store.turn(records, None, by=by).settled

    def turn(self, records: list[Record], worker: int, slots: int) -> Turn:
        return self.store.turn(records, self.order(worker, slots), by=worker)

    def see(self, id: str):
        job = self.reader.job(id)
        assert job is not None, f"no job {id}"
        return job

    def rows(self, sql: str, *values: object) -> list[tuple]:
        with self.connection.read() as (cx, _):
            return cx.execute(sql, values).fetchall()

    def damage(self, *statements: str) -> None:
        """Change the tables behind the store's back, as no code of ours would."""
        cx = self.connection.raw
        cx.execute("PRAGMA foreign_keys = OFF")
        cx.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            cx.execute(statement)
        cx.execute("PRAGMA ignore_check_constraints = OFF")
        cx.execute("PRAGMA foreign_keys = ON")

    def everything(self) -> dict[str, list[tuple]]:
        """All that is in the store, to see that nothing was written."""
        return {name: self.rows(f"SELECT * FROM perdure_{name} ORDER BY 1, 2") for name in TABLES}

    def clean(self) -> None:
        """The audit finds nothing, and the books balance."""
        assert self.reader.audit() == []
        assert self.reader.books().balanced

    def close(self) -> None:
        self.connection.close()


def attempt_of(
    claim: Claim, status: AttemptStatus, worker: int | None, **changes: object
) -> Attempt:
    plain = Attempt(
        stage=claim.stage, number=claim.counters.starts, life=claim.life, status=status,
        worker=worker, claimed_at=claim.claimed_at, elapsed_s=0.5, counted=None, kind=None,
        message="", policy="plain/1", why_json='{"text":"because"}', evidence_json=None,
        config_hash="0" * 16,
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def _plain(claim: Claim, move: Move, state: State) -> Record:
    return Record(
        no=claim.no, id=claim.id, token=claim.token, move=move, state=state, stage=claim.stage,
        lane=claim.lane, counters=claim.counters, past=claim.past, isolation=claim.isolation,
    )  # fmt: skip


def success(claim: Claim, worker: int | None, *, result_json: str = '"done"') -> Record:
    return replace(
        _plain(claim, Move.SUCCEED, State.SUCCEEDED),
        result_json=result_json,
        attempt=attempt_of(claim, AttemptStatus.SUCCESS, worker),
    )


def retry(claim: Claim, worker: int | None, *, delay_s: float = 5.0) -> Record:
    return replace(
        _plain(claim, Move.RETRY, State.QUEUED),
        counters=claim.counters.raised(Counted.FAILURES),
        delay_s=delay_s,
        error_kind="network",
        error_message="The connection failed.",
        attempt=attempt_of(
            claim, AttemptStatus.RETRYING, worker, counted="failures", kind="network"
        ),
    )


def failure(claim: Claim, worker: int | None) -> Record:
    return replace(
        _plain(claim, Move.FAIL, State.FAILED),
        counters=claim.counters.raised(Counted.FAILURES),
        failed_reason=FailedReason.FATAL,
        error_kind="input_invalid",
        error_message="The item is broken.",
        attempt=attempt_of(
            claim, AttemptStatus.FAILED, worker, counted="failures", kind="input_invalid"
        ),
    )


def crash(claim: Claim, worker: int | None) -> Record:
    counters = claim.counters.raised(Counted.CRASHES)
    return replace(
        _plain(claim, Move.RETRY, State.QUEUED),
        counters=counters,
        isolation=min(counters.crashes, 2),
        delay_s=0.0,
        error_kind="worker_lost",
        error_message="The worker died.",
        attempt=attempt_of(
            claim, AttemptStatus.INTERRUPTED, worker, counted="crashes", kind="worker_lost"
        ),
    )


def release(claim: Claim, worker: int | None) -> Record:
    return replace(
        _plain(claim, Move.RELEASE, State.QUEUED),
        counters=claim.counters.raised(Counted.RELEASES),
        delay_s=0.0,
        attempt=attempt_of(claim, AttemptStatus.INTERRUPTED, worker, counted="releases"),
    )


def advance(
    claim: Claim, worker: int | None, lane: int, *, stage: str = "two", reclaim: bool = False,
    value_json: str = '{"from":"one"}',
) -> Record:  # fmt: skip
    """The stage is done; the next one waits, or is claimed in the same breath."""
    return replace(
        _plain(
            claim,
            Move.CARRY_ON if reclaim else Move.ADVANCE,
            State.PROCESSING if reclaim else State.QUEUED,
        ),
        stage=stage,
        lane=lane,
        counters=ZERO,
        past=claim.past.plus(claim.counters),
        delay_s=0.0,
        checkpoint_stage=claim.stage,
        checkpoint_json=value_json,
        reclaim=reclaim,
        attempt=attempt_of(claim, AttemptStatus.SUCCESS, worker),
    )


def cancelled(claim: Claim, worker: int | None) -> Record:
    return replace(
        _plain(claim, Move.CANCEL, State.CANCELLED),
        attempt=attempt_of(claim, AttemptStatus.CANCELLED, worker),
    )


def file_in(folder: Path) -> str:
    return str(folder / "work.db")
