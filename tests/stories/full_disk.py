"""A store on a file system that runs full, and gets room again; says in JSON what happened.

    python -m tests.stories.full_disk FOLDER

The folder is a small file system of its own. A ballast file is what somebody removes later to make room.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from perdure.engine.clock import SystemClock
from perdure.model.errors import StoreError
from perdure.model.jobs import ClaimOrder, Lane, NewJob, Receipt
from perdure.model.workers import NewWorker, Role
from perdure.stores.opening import Opened, open_store
from perdure.testing.store_contract.attempt_ends import success
from perdure.testing.store_contract.fresh_store import uuid_of

LANE = Lane("q", "c", "p", "one")
BALLAST_BYTES = 24 * 1024 * 1024  # more than the log may grow to before it is moved
HELD = 20
SIZES_BYTES = (200_000, 20_000, 500)  # ever smaller jobs, until nothing at all fits


class Store:
    """The store, what it has acknowledged, and what it has refused."""

    def __init__(self, folder: Path) -> None:
        self._url = f"sqlite:///{folder / 'work.db'}"
        self.opened = self._open()
        self.lane = self.opened.store.lanes([LANE])[LANE]
        self.worker = self.opened.store.add_worker(NewWorker("boot", "host:1", Role.MAIN, 3600.0))
        self.order = ClaimOrder(self.worker, 50, (self.lane,))
        self.accepted: list[str] = []
        self.errors: Counter[str] = Counter()

    def _open(self) -> Opened:
        return open_store(self._url, SystemClock(), create=True, wait_s_max=5.0)

    def put(self, size_bytes: int) -> bool:
        job = NewJob(uuid_of(len(self.accepted)), "p", self.lane, "one", f'"{"x" * size_bytes}"')
        done = self.tried(lambda: self.opened.store.enqueue([job]))
        if done:
            self.accepted.append(job.id)
        return done

    def tried(self, call: Callable[[], object]) -> bool:
        """Whether a call succeeds; an error of ours is counted, any other ends us."""
        try:
            call()
        except StoreError as error:
            self.errors[type(error).__name__] += 1
            return False
        return True

    def assert_nothing_is_lost(self) -> None:
        """By a look of a second connection, too."""
        for opened in (self.opened, self._open()):
            books = opened.reader.books()
            assert (books.accepted, books.balanced) == (len(self.accepted), True)
            assert opened.reader.audit() == []
            if opened is not self.opened:
                opened.close()


def main(folder: Path) -> None:
    ballast = folder / "ballast"
    ballast.write_bytes(b"\0" * BALLAST_BYTES)
    store = Store(folder)
    for _ in range(HELD):
        assert store.put(500)
    held = store.opened.store.turn([], store.order, by=store.worker).claims
    assert len(held) == HELD
    for size_bytes in SIZES_BYTES:
        while store.put(size_bytes):
            pass
    records = [success(claim, store.worker, result_json=f'"{"y" * 2000}"') for claim in held]
    settled_while_full = store.tried(
        lambda: store.opened.store.turn(records, None, by=store.worker)
    )
    while_full = dict(store.errors)
    accepted_while_full = len(store.accepted)
    store.assert_nothing_is_lost()

    ballast.unlink()
    assert store.put(200_000)
    receipts = store.opened.store.turn(records, None, by=store.worker).settled
    assert all(isinstance(one, Receipt) for one in receipts)
    while claims := store.opened.store.turn([], store.order, by=store.worker).claims:
        store.opened.store.turn(
            [success(one, store.worker) for one in claims], None, by=store.worker
        )
    store.assert_nothing_is_lost()
    succeeded = store.opened.reader.books().succeeded
    store.opened.close()
    print(
        json.dumps(
            {
                "errors_while_full": while_full,
                "settled_while_full": settled_while_full,
                "accepted_while_full": accepted_while_full,
                "errors": dict(store.errors),
                "accepted": len(store.accepted),
                "succeeded": succeeded,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
