"""The change feed: somebody who follows it over the wire, and who judges what is heard there.

What the feed has to tell is made from the store's own answers at the instants of their commits. A page of which the
answer was lost is asked for again after the same cursor.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from perdure.model.changes import Change, ChangeKind, ChangePage
from perdure.model.errors import StoreUnavailable
from perdure.model.jobs import Claim, Enqueued, NewJob, Receipt, Record, Revived, Settled, Turn
from perdure.model.operations import Revival, Target, Tick
from perdure.model.states import TERMINAL, State
from perdure.ports import Reader
from tests.sim.connected import Connected
from tests.sim.strand import Strand
from tests.sim.world import World

Told = tuple[ChangeKind, int, str]  # what happened to a job, its token after it, and its state

_OTHERS = (ChangeKind.RUN_CHANGED, ChangeKind.GATE_CHANGED, ChangeKind.WORKER_CHANGED)


class _Judge(Protocol):
    def broken(self, invariant: str, text: str) -> None: ...


class Feed:
    """What was committed, by job, and how much of it was heard."""

    def __init__(self, checker: _Judge) -> None:
        self._checker = checker
        self._committed: dict[int, list[Told]] = {}
        self._owners: dict[int, str] = {}
        self._heard: dict[int, int] = {}

    def heard(self, page: ChangePage) -> None:
        """A page has come."""
        for one in page.entries:
            if one.kind not in _OTHERS:
                self._hear(one)

    def _hear(self, one: Change) -> None:
        before = self._heard.get(one.no, 0)
        next_ones = self._committed.get(one.no, [])[before:]
        told = (one.kind, one.token, one.state)
        if not next_ones or next_ones[0] != told:
            self._checker.broken("E17", f"#{one.no}: heard {told}, next is {next_ones[:1]}")
        if one.owner != self._owners[one.no]:
            meant = self._owners[one.no]
            self._checker.broken("E17", f"#{one.no}: heard of owner {one.owner!r}, it is {meant!r}")
        self._heard[one.no] = before + 1

    def heard_all(self, reader: Reader, cursor: str) -> None:
        """Nothing comes any more: the rest is read at the store itself, and nothing is missing."""
        page = reader.changes(cursor)
        self.heard(page)
        while page.more:
            page = reader.changes(page.cursor)
            self.heard(page)
        missed = {
            no: told[self._heard.get(no, 0) :]
            for no, told in self._committed.items()
            if len(told) != self._heard.get(no, 0)
        }
        if missed:
            self._checker.broken("E17", f"these were never told: {missed}")

    # -- what is committed ---------------------------------------------------------------

    def _enqueue(
        self, answers: list[Enqueued], jobs: Sequence[NewJob], *, within: object = None
    ) -> None:
        for answer, job in zip(answers, jobs, strict=True):
            self._accepted(answer, job)

    def _tick(self, answer: Enqueued | None, tick: Tick) -> None:
        if answer is not None:
            self._accepted(answer, tick.job)

    def _begin(self, answer: Claim | Enqueued, job: NewJob, **_: Any) -> None:
        if isinstance(answer, Enqueued):
            self._accepted(answer, job)
        elif isinstance(answer, Claim) and answer.no not in self._committed:
            self._owners[answer.no] = job.owner
            self._committed[answer.no] = [(ChangeKind.JOB_ACCEPTED, 1, "processing")]

    def _accepted(self, answer: Enqueued, job: NewJob) -> None:
        if answer.no not in self._committed:
            self._owners[answer.no] = job.owner
            self._committed[answer.no] = [(ChangeKind.JOB_ACCEPTED, 0, "queued")]
        elif answer.revived:
            told = self._committed[answer.no]
            told.append((ChangeKind.JOB_REVIVED, told[-1][1] + 1, "queued"))

    def _turn(self, answer: Turn, records: Sequence[Record], *_: Any, **__: Any) -> None:
        self._settle(answer.settled if isinstance(answer, Turn) else ())

    def _settle(self, answers: Any, *_: Any, **__: Any) -> None:
        for one in answers if isinstance(answers, tuple) else ():
            if isinstance(one, Receipt) and not one.repeated:
                kind = ChangeKind.JOB_ENDED if one.state in TERMINAL else ChangeKind.ATTEMPT_ENDED
                token = one.token + (2 if one.state is State.PROCESSING else 1)
                self._committed[one.no].append((kind, token, one.state.value))

    def _complete(self, answer: Settled, *_: Any, **__: Any) -> None:
        self._settle((answer,))

    def _cancel(self, answers: Any, *_: Any, **__: Any) -> None:
        self._settle(tuple(answers) if isinstance(answers, list) else ())

    def _revive(
        self, answers: list[Revived], chosen: Sequence[Revival], *_: Any, **__: Any
    ) -> None:
        self._dealt_with(answers, ChangeKind.JOB_REVIVED, "queued")

    def _discard(
        self, answers: list[Settled], chosen: Sequence[Target], *_: Any, **__: Any
    ) -> None:
        self._dealt_with(answers, ChangeKind.JOB_DISCARDED, "failed")

    def _dealt_with(
        self, answers: Sequence[Revived | Settled], kind: ChangeKind, state: str
    ) -> None:
        for one in answers:
            if isinstance(one, Receipt):
                self._committed[one.no].append((kind, one.token + 1, state))


class Follower:
    """Goes on after the cursor of each page that has reached it."""

    def __init__(self, world: World, feed: Feed, cursor: str) -> None:
        self._world = world
        self._feed = feed
        self.cursor = cursor

    def body(self, sides: Connected, strand: Strand) -> None:
        """Read small pages, now and then, until the chaos is over."""
        rng = self._world.rng
        while self._world.chaos:
            strand.sleep(rng.uniform(0.1, 3.0))
            more = True
            while more and self._world.chaos:
                more = self._read(sides.reader, rng.choice((1, 3, 50)))

    def _read(self, reader: Reader, limit: int) -> bool:
        try:
            page = reader.changes(self.cursor, limit=limit)
        except StoreUnavailable:
            self._world.seen["pages of the feed of which nothing was heard"] += 1
            return False
        self._feed.heard(page)
        self.cursor = page.cursor
        return page.more
