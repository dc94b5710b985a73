"""A fresh store on a clock that the test pushes, and short words for what tests do with it."""

import itertools
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from perdure.model.jobs import (
    Busy,
    Claim,
    ClaimOrder,
    Enqueued,
    Lane,
    NewJob,
    Record,
    Revived,
    Settled,
    Turn,
)
from perdure.model.nouns import replace
from perdure.model.operations import Deed, Revival, Target
from perdure.model.runs import NewRun, RunChange, RunStatus, RunView
from perdure.model.views import JobView
from perdure.model.workers import NewWorker, Role, WorkerView
from perdure.ports import Control, Reader, Store
from perdure.testing.clock import VirtualClock
from perdure.testing.store_contract.attempt_ends import failure

TTL_S = 15.0
DEED = Deed("ann", "to see what happens")


class OpenedStore(Protocol):
    """One connection to a store, seen from its three sides."""

    @property
    def store(self) -> Store:
        """The writes of the walk."""
        ...

    @property
    def control(self) -> Control:
        """What operators and the upkeep do."""
        ...

    @property
    def reader(self) -> Reader:
        """The reads of screens and reports."""
        ...


class Place:
    """One connection to one store. Two places on one store need different ``series`` of ids."""

    def __init__(
        self,
        opened: OpenedStore,
        clock: VirtualClock,
        *,
        pipeline: str = "p",
        stages: tuple[str, ...] = ("one", "two"),
        series: int = 0,
    ) -> None:
        self.store = opened.store
        self.control = opened.control
        self.reader = opened.reader
        self.clock = clock
        self.pipeline = pipeline
        self.stages = stages
        self._series = series
        self._numbers = itertools.count(1)
        self.lanes = self.lanes_of(pipeline)

    def lanes_of(self, pipeline: str, **parts: Any) -> dict[str, int]:
        """The lanes of a pipeline's stages, by stage."""
        lanes = [replace(Lane("q", "c", pipeline, stage), **parts) for stage in self.stages]
        numbers = self.store.lanes(lanes)
        return {lane.stage: numbers[lane] for lane in lanes}

    # -- jobs --------------------------------------------------------------------------------

    def id_of(self, number: int) -> str:
        """The id of the n-th job."""
        return uuid_of(number, self._series)

    def new(self, **changes: Any) -> NewJob:
        """A job for stage one, with a payload of its own."""
        number = next(self._numbers)
        plain = NewJob(
            id=self.id_of(number),
            pipeline=self.pipeline,
            lane=self.lanes["one"],
            stage="one",
            payload_json=f'{{"n":{number}}}',
        )
        return replace(plain, **changes)

    def put(self, **changes: Any) -> Enqueued:
        """Enqueue one job."""
        return self.store.enqueue([self.new(**changes)])[0]

    def put_many(self, count: int, **changes: Any) -> list[Enqueued]:
        """Enqueue several alike in one call."""
        return self.store.enqueue([self.new(**changes) for _ in range(count)])

    def see(self, id: str) -> JobView:
        """A job that is there."""
        job = self.reader.job(id)
        assert job is not None, f"no job {id}"
        return job

    # -- workers and claims ------------------------------------------------------------------

    def hire(self, *, role: Role = Role.MAIN, ttl_s: float = TTL_S) -> int:
        """A worker that is alive."""
        return self.store.add_worker(NewWorker(secrets.token_hex(8), "host:1", role, ttl_s))

    def worker(self, no: int) -> WorkerView:
        """A worker's row."""
        (found,) = [one for one in self.reader.workers() if one.no == no]
        return found

    def live(self, workers: list[int], seconds: float, *, every_s: float = TTL_S / 3) -> None:
        """Let time pass while these workers are beaten for, as a supervisor would."""
        passed = 0.0
        while passed < seconds - 1e-9:
            step = min(every_s, seconds - passed)
            self.clock.push(step)
            passed += step
            assert self.store.beat(workers) == frozenset(workers)

    def order(self, worker: int, slots: int = 1, *, isolation: int = 0) -> ClaimOrder:
        """What this worker would ask for in all lanes of the place."""
        return ClaimOrder(worker, slots, tuple(self.lanes.values()), isolation)

    def take(self, worker: int, slots: int = 1, *, isolation: int = 0) -> list[Claim]:
        """Claim."""
        order = self.order(worker, slots, isolation=isolation)
        return list(self.store.turn([], order, by=worker).claims)

    def taken_ids(self, worker: int, slots: int = 1, *, isolation: int = 0) -> list[str]:
        """Claim, and say which."""
        return [claim.id for claim in self.take(worker, slots, isolation=isolation)]

    def settle(self, *records: Record, by: int | None) -> tuple[Settled, ...]:
        """Write records and claim nothing."""
        return self.store.turn(records, None, by=by).settled

    def turn(self, records: list[Record], worker: int, slots: int) -> Turn:
        """Write records, then claim."""
        return self.store.turn(records, self.order(worker, slots), by=worker)

    # -- dead letters and runs ---------------------------------------------------------------

    def dead_letter(
        self, worker: int, *, end: Callable[[Claim, int | None], Record] = failure, **changes: Any
    ) -> JobView:
        """A job that has just failed; nothing else may be waiting."""
        id = self.put(**changes).id
        (claim,) = self.take(worker)
        assert claim.id == id, "another job was waiting"
        self.settle(end(claim, worker), by=worker)
        return self.see(id)

    def revive(self, job: JobView, **changes: Any) -> Revived:
        """A new life at the stage where it failed."""
        again = Revival(job.no, job.id, job.token, job.stage, job.lane, job.input_from)
        return self.control.revive([replace(again, **changes)], DEED)[0]

    def discard(self, job: JobView) -> Settled | Busy:
        """Mark a dead letter as dealt with."""
        return self.control.discard([target(job)], DEED)[0]

    def begin_run(self, name: str = "nightly", **changes: Any) -> RunView:
        """A run of this pipeline."""
        id = uuid_of(next(self._numbers), self._series + 0x100)
        return self.control.add_run(replace(NewRun(id, "", self.pipeline, name), **changes))

    def see_run(self, run: RunView) -> RunView:
        """The run as it is now."""
        found = self.reader.run(run.id)
        assert found is not None, f"no run {run.id}"
        return found

    def change_run(self, run: RunView, status: RunStatus, **changes: Any) -> RunView | None:
        """Another status for a run, as it is now."""
        seen = self.see_run(run).status
        return self.control.change_run(replace(RunChange(run.no, seen, status), **changes), DEED)

    def standing(self, *places: str) -> int:
        """How many jobs stand in these places, whatever their stage."""
        return sum(getattr(one, place) for one in self.reader.depths() for place in places)

    # -- all of it ---------------------------------------------------------------------------

    def everything(self) -> dict[str, object]:
        """All that can be read, to see that nothing was written."""
        jobs = list(self.every_job())
        return {
            "jobs": jobs,
            "attempts": {job.id: self.reader.attempts(job.no) for job in jobs},
            "payloads": {job.id: self.reader.payloads(job.no) for job in jobs},
            "captures": {job.id: self.reader.captures(job.no) for job in jobs},
            "books": self.reader.books(),
            "depths": self.reader.depths(),
            "flows": self.reader.flows(),
            "minutes": self.reader.flows(minutes=True),
            "deaths": self.reader.deaths(),
            "lanes": self.reader.lanes(),
            "workers": self.reader.workers(),
            "pauses": self.reader.pauses(),
            "gates": self.reader.gates(),
            "runs": self.reader.runs(),
            "schedules": self.reader.schedules(),
            "bulks": self.reader.bulks(),
            "refusals": {one.id: self.reader.refusals(one.no) for one in self.reader.bulks()},
            "deeds": self.reader.deeds(),
        }

    def every_job(self) -> Iterator[JobView]:
        """All jobs, newest first, page by page."""
        page = self.reader.jobs(limit=200)
        while page:
            yield from page
            page = self.reader.jobs(limit=200, before=page[-1].no)

    def clean(self) -> None:
        """The audit finds nothing, and the books balance."""
        assert self.reader.audit() == []
        assert self.reader.books().balanced

    def close(self) -> None:
        """Disconnect."""
        self.store.close()
        self.reader.close()


def uuid_of(number: int, series: int = 0xFFF) -> str:
    """An id that people see: a UUID, since a store may keep it as one."""
    return f"00000000-0000-7000-8{series:03x}-{number:012x}"


def target(job: JobView) -> Target:
    """A job as it was seen."""
    return Target(job.no, job.id, job.token)


@contextmanager
def raises(kind: type[Exception], *, saying: str = "") -> Iterator[None]:
    """What stands inside must raise this; its message must hold these words."""
    said = None
    try:
        yield
    except kind as error:
        said = str(error)
    assert said is not None, f"{kind.__name__} was not raised"
    assert saying in said, f"{kind.__name__} says {said!r}, not {saying!r}"


class OnAFreshStore:
    """What each part of the contract stands on: an empty store before every test.

    ``place`` has the lanes of a pipeline of two stages; ``worker`` is alive, and hired when it is needed.
    """

    clock: VirtualClock
    place: Place
    _worker: int | None

    def open(self, clock: VirtualClock) -> OpenedStore:
        """A fresh, empty store whose time is the clock's; each author of a store writes this."""
        raise NotImplementedError

    def close(self, place: Place) -> None:
        """Called after each test."""
        place.close()

    def setup_method(self) -> None:
        """Open the store."""
        self.clock = VirtualClock()
        self.place = Place(self.open(self.clock), self.clock)
        self._worker = None

    def teardown_method(self) -> None:
        """Close it."""
        self.close(self.place)

    @property
    def worker(self) -> int:
        """A worker that is alive, the same throughout a test."""
        if self._worker is None:
            self._worker = self.place.hire()
        return self._worker

    def one_claim(self, **changes: Any) -> Claim:
        """A new job in the hands of the worker."""
        id = self.place.put(**changes).id
        (claim,) = self.place.take(self.worker)
        assert claim.id == id, "another job was waiting"
        return claim
