"""A process that enqueues, claims and settles jobs on a store, by hand, and keeps a ledger of it.

    python -m tests.stories.hand URL LEDGER SEED enqueue|drain

It says `ready`, waits for a line on its standard input and begins. Told to enqueue, it does so, beside claiming
and settling, until its standard input is closed; then, as when told to drain, it goes on until nothing waits.
Told to enqueue, it also bears outages: what the port promises is that the same call may be sent again, and that
the store then knows which claims are held, of which the news was lost.
"""

import random
import secrets
import select
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from perdure.engine.clock import SystemClock
from perdure.engine.ids import Ids
from perdure.model.errors import StoreUnavailable
from perdure.model.jobs import Claim, ClaimOrder, Lane, NewJob, Receipt, Record, Settled, Turn
from perdure.model.workers import NewWorker, Role
from perdure.stores.opening import Opened, open_store
from perdure.testing.store_contract.attempt_ends import release, retry, success
from tests.stories.hands import (
    AWAY,
    CLAIMED,
    ENQUEUED,
    RELEASED,
    RETRIED,
    SETTLED,
    SUCCEEDED,
    Line,
    Pen,
    now_ns,
)

T = TypeVar("T")

LANE = Lane("q", "c", "p", "only")
SLOTS = (1, 2, 5, 17, 50, 100)
HAND_MAX = 150
BATCHES = (1, 1, 3, 20)
LEASE_S = 3600.0  # nobody is declared dead here
PAUSE_S = 0.02  # between two tries while the store is away


def ending_of(job: str, token: int) -> str:
    """How this attempt ends: of twenty, three are tried again and one is given back."""
    drawn = zlib.crc32(f"{job}/{token}".encode()) % 20
    return RETRIED if drawn < 3 else RELEASED if drawn == 3 else SUCCEEDED


def record_of(claim: Claim, worker: int) -> Record:
    match ending_of(claim.id, claim.token):
        case "retried":
            return retry(claim, worker, delay_s=0.0)
        case "released":
            return release(claim, worker)
        case _:
            return success(claim, worker)


class Hand:
    """What it holds, and how it goes on."""

    def __init__(self, opened: Opened, pen: Pen, chance: random.Random, *, bears: bool) -> None:
        self._store = opened.store
        self._pen = pen
        self._chance = chance
        self._bears = bears
        self._ids = Ids(SystemClock(), chance)
        self._lane = self._store.lanes([LANE])[LANE]
        self._worker = self._store.add_worker(
            NewWorker(secrets.token_hex(8), "hand", Role.MAIN, LEASE_S)
        )
        self._held: dict[int, Claim] = {}
        self._short = False

    def enqueue(self) -> None:
        """A few jobs."""
        jobs = [
            NewJob(self._ids.next(), LANE.pipeline, self._lane, LANE.stage, "{}")
            for _ in range(self._chance.choice(BATCHES))
        ]
        asked_ns = now_ns()
        done = self._said(lambda: self._store.enqueue(jobs))
        known_ns = now_ns()
        assert [one.id for one in done] == [job.id for job in jobs]
        self._pen.write(Line(ENQUEUED, asked_ns, known_ns, one.id) for one in done)

    def turn(self) -> bool:
        """Settle some of what is held and claim some more; whether anything is left to do.

        When there was nothing to claim, all that is held is settled.
        """
        held = list(self._held.values())
        count = len(held) if self._short else self._chance.randint(0, len(held))
        ending = self._chance.sample(held, count)
        room = HAND_MAX - len(held) + len(ending)
        slots = min(room, self._chance.choice(SLOTS))
        order = ClaimOrder(self._worker, slots, (self._lane,)) if slots else None
        records = [record_of(claim, self._worker) for claim in ending]
        asked_ns = now_ns()
        try:
            turn = self._store.turn(records, order, by=self._worker)
        except StoreUnavailable:
            self._bear(asked_ns)
            turn = self._caught_up(records)
        self._write_down(turn, asked_ns, now_ns())
        self._short = order is not None and not turn.claims
        return not self._short or bool(self._held) or turn.next_due_s is not None

    def _caught_up(self, records: list[Record]) -> Turn:
        """The news of a turn was lost: send the records again, alone, and ask what we hold."""
        settled = self._said(lambda: self._store.turn(records, None, by=self._worker)).settled
        ended = {one.no for one in settled}
        held = self._said(lambda: self._store.claims_held(self._worker))
        known = {(claim.no, claim.token) for claim in self._held.values() if claim.no not in ended}
        new = tuple(one for one in held if (one.no, one.token) not in known)
        assert known <= {(one.no, one.token) for one in held}, "the store has lost a claim"
        return Turn(settled, new, 0.0)

    def _write_down(self, turn: Turn, asked_ns: int, known_ns: int) -> None:
        for one in turn.settled:
            del self._held[one.no]
        self._held.update({claim.no: claim for claim in turn.claims})
        self._pen.write(
            Line(SETTLED, asked_ns, known_ns, one.id, one.token, _ending(one))
            for one in turn.settled
        )
        self._pen.write(Line(CLAIMED, asked_ns, known_ns, one.id, one.token) for one in turn.claims)

    def _said(self, call: Callable[[], T]) -> T:
        """The answer to a call, which is sent again while the store is away."""
        while True:
            asked_ns = now_ns()
            try:
                return call()
            except StoreUnavailable:
                self._bear(asked_ns)

    def _bear(self, asked_ns: int) -> None:
        """The store is away: raise that again, or write it down and rest."""
        if not self._bears:
            raise  # noqa: PLE0704 - called while it is caught
        self._pen.write([Line(AWAY, asked_ns, now_ns(), "-")])
        time.sleep(PAUSE_S)


def _ending(one: Settled) -> str:
    return ending_of(one.id, one.token) if isinstance(one, Receipt) else type(one).__name__


def told_to_stop() -> bool:
    """Whether our standard input is closed."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready)


def main(url: str, ledger: str, seed: str, task: str) -> None:
    opened = open_store(url, SystemClock(), create=True, wait_s_max=10.0)
    enqueues = task == "enqueue"
    hand = Hand(opened, Pen(Path(ledger)), random.Random(int(seed)), bears=enqueues)
    print("ready", flush=True)
    sys.stdin.readline()
    while enqueues and not told_to_stop():
        hand.enqueue()
        hand.turn()
    while hand.turn():
        pass
    opened.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
