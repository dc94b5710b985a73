"""A store with one job in each situation, to be damaged."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from perdure.model.jobs import Enqueued
from perdure.model.operations import BulkStep, BulkVerb, NewBulk, Refusal
from perdure.model.runs import RunStatus, RunView
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import spending
from perdure.testing.store_contract.captures import putting_aside
from perdure.testing.store_contract.fresh_store import DEED, Place, uuid_of
from tests.stores.kit import advance, cancellation, crash, failure, retry, success
from tests.stores.rigs import Rig


@dataclass
class Busy:
    """A store with one job in each situation, whose numbers and ids are known by place.

    Jobs 1 and 2 are done, 3 failed, 4 cancelled, 5 retrying, 6 running, 7 ready again, 8 a suspect;
    job 1 went through both stages, and job 9 waits in a run. Job 10 failed in that run, after an attempt that cost
    something and left a capture; the other run is over, with job 11, and so is the one bulk operation.
    """

    rig: Rig
    place: Place
    worker: int
    nos: dict[int, int]
    ids: dict[int, str]
    run: int
    over: int
    bulk: int
    texts: dict[str, str]

    def told(self, text: str) -> str:
        """A text that speaks of jobs by place, in numbers and ids."""
        names = {f"no{n}": no for n, no in self.nos.items()}
        return text.format(
            lane=self.place.lanes["one"],
            **names,
            **{f"id{n}": id for n, id in self.ids.items()},
            **self.texts,
            run=self.run,
            over=self.over,
            bulk=self.bulk,
        )

    def damage(self, *statements: str) -> None:
        self.rig.damage(*(self.told(one) for one in statements))

    def found(self, check: str, run: int | None = None) -> list[tuple[str, str]]:
        found = self.place.reader.audit(run=run)
        return [(one.subject, one.text) for one in found if one.check == check]


@contextmanager
def busy_store(rig: Rig, clock: VirtualClock | None = None) -> Iterator[Busy]:
    """Made, and closed at the end."""
    clock = clock or VirtualClock()
    place = Place(rig.open(clock), clock)
    worker = place.hire()
    made = place.put_many(8)
    claims = place.take(worker, 8)
    one, two, three, four, five, _, seven, eight = claims
    place.settle(
        advance(one, worker, place.lanes["two"]),
        success(two, worker),
        failure(three, worker),
        cancellation(four, worker),
        retry(five, worker),
        retry(seven, worker, delay_s=0.0),
        crash(eight, worker),
        by=worker,
    )
    (one,) = place.take(worker, 1)
    place.settle(success(one, worker), by=worker)
    run = place.begin_run()
    made.append(place.put(run=run.no))
    made.append(failed_in(place, worker, run))
    over = place.begin_run("over")
    made.append(failed_in(place, worker, over))
    place.control.seal_run(over.no)
    assert place.change_run(over, RunStatus.FAILED)
    bulk = place.control.add_bulk(NewBulk(uuid_of(5), BulkVerb.DISCARD, "{}", DEED))
    refusals = (Refusal(made[9].no, "why not"),)
    place.control.step_bulk(BulkStep(bulk.no, None, 1, refusals=refusals))
    clock.push(1)
    nos = {n: job.no for n, job in enumerate(made, 1)}
    texts = {"run_id": run.id, "over_id": over.id, "bulk_id": bulk.id}
    ids = {n: job.id for n, job in enumerate(made, 1)}
    yield Busy(rig, place, worker, nos, ids, run.no, over.no, bulk.no, texts)
    place.close()


def failed_in(place: Place, worker: int, run: RunView) -> Enqueued:
    """A dead letter of a run, with costs and a capture; it goes before all that waits."""
    made = place.put(run=run.no, priority=9)
    (claim,) = place.take(worker)
    record = spending(failure(claim, worker), tokens_in=5, tokens_out=3, cost_nusd=7)
    place.settle(putting_aside(record, b"raw"), by=worker)
    return made
