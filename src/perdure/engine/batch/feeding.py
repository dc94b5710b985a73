"""Feeding a run: items from any iterable become its jobs, chunk by chunk, as fast as they are worked off.

Only one chunk is in memory. Before each chunk we look at the run: while more of its items are open than may be, we
wait for workers; when it has been aborted or cancelled, we stop, and what was not fed is fed by the next call.
A key names an item within its run, so feeding the same items again finds them instead of making them twice;
without a key of its own, an item is known by its position and a hash of its content.

Always true: a feeder that has reached the end of its items seals the run, whatever its status is by then: an aborted
run goes on when it is resumed, and could not end unsealed. Only asking for another item shows that there is none
left, so the source of an aborted run is asked once more. If it gives an item, that one is fed: the next feeder of the
same iterator would not get it again. A cancelled run needs no seal. While we feed, we leave signs of life on the run;
if we die, the last one gets old.
"""

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct, structs

from perdure.engine.batch.item_jobs import FeedTerms, NothingNow, job_from, refused_at
from perdure.engine.batch.runs import OpenRun, Runs
from perdure.engine.batch.unattended import Attendance
from perdure.engine.enqueue import enqueue
from perdure.engine.idempotency import key_from_position
from perdure.engine.ids import Ids
from perdure.engine.pauses import Absence, Pauses
from perdure.engine.stages import LaidPipeline
from perdure.model.errors import (
    CallerError,
    PayloadRefused,
    StoreError,
    StoreUnavailable,
    UnknownName,
)
from perdure.model.events import EventName
from perdure.model.jobs import NewJob
from perdure.model.limits import (
    ENQUEUE_BYTES_MAX,
    FEEDER_AWAY_S_MAX,
    FEEDER_SIGN_S,
)
from perdure.model.nouns import replace
from perdure.model.runs import RunStatus, RunView

_CHUNK = 1_000
_CHUNK_S = 0.5
_PAUSES = (0.05, 1.0, 2.0)
_SAY_EVERY_S = 30.0


class Fed(Struct, frozen=True):
    """What came of feeding: items seen, those that are new, those that the run had, and those that were skipped.

    ``repeated`` had the key of an earlier item of this very call, and count once. ``whole`` is False when the run was
    stopped before the last item.
    """

    items: int = 0
    created: int = 0
    known: int = 0
    repeated: int = 0
    skipped: int = 0
    whole: bool = True


class Feeder:
    """Feeds one run; ``once`` takes one chunk of its items, and seals it after the last if its terms say so."""

    def __init__(
        self,
        runs: Runs,
        laid: LaidPipeline,
        opened: OpenRun,
        items: Iterable[Any],
        *,
        ids: Ids,
        terms: FeedTerms,
        by: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = runs
        self._laid = laid
        self._opened = opened
        self.run = opened.run  # as it was when we began, or when we sealed it
        self._items = iter(items)
        self._position = 0
        self._first_no = math.inf  # of the jobs that this call has made
        self._ids = ids
        self._terms = terms
        self._by = by or f"{socket.gethostname()}:{os.getpid()}"
        self._monotonic = monotonic
        self._attendance = Attendance(runs.reader, runs.observers, monotonic=monotonic)
        self._held_at: float | None = None
        self._signed_at = -math.inf
        self._signing = threading.Lock()  # no sign after the end
        self._unsent: list[NewJob] = []  # of a chunk that may not have arrived
        self._taking = False  # still so after a chunk, when its source has failed
        self._exhausted = False
        self.fed = Fed()
        self.over = False  # nothing more is to be done: all items are in, or the run was stopped

    def once(self) -> bool:
        """Feed a chunk, if the run may have more, or seal it after the last; whether it did.

        After `StoreUnavailable` the same is done again: the ids and keys of a chunk find what had arrived.
        """
        self.sign()
        if not self._all_in:
            return self._feed_chunk()
        self._end()
        return True

    def sign(self) -> None:
        """Leave a sign of life on the run, if the last one is old; a store that is away hears of us later."""
        if self._monotonic() - self._signed_at < FEEDER_SIGN_S:
            return
        with self._signing, suppress(StoreError):
            if not self.over:
                self._runs.control.note_feeding(self.run.no, self._by)
                self._signed_at = self._monotonic()

    def leave(self) -> None:
        """Say that we feed no more. A run that was sealed before, and got no item from us, is sealed again."""
        with self._signing:
            was_over, self.over = self.over, True
            if (
                self._opened.was_sealed
                and not self.fed.created
                and not (was_over and self.fed.whole)
            ):
                self.run = self._runs.seal(self.run)
            elif self.run.sealed_at is None:
                with suppress(StoreError):
                    self._runs.control.note_feeding(self.run.no, self._by, ended=True)

    @property
    def _all_in(self) -> bool:
        return self._exhausted and not self._unsent

    def _end(self) -> None:
        with self._signing:
            if self._terms.seal:
                self.run = self._runs.seal(self.run)
            self.over = True

    def _feed_chunk(self) -> bool:
        """Whether there was something to do: a chunk, what is left of the last one, or an end."""
        run = self._now()
        self._attendance.look(run)
        if run.status is RunStatus.CANCELLED:
            self._stop()
        elif self._unsent:
            self._send()
            self._check_source()
        elif run.status is RunStatus.ABORTED:
            self._held_at = None
            return self._stop_if_more()
        elif (room := self._room(run)) > 0:
            self._take_and_send(min(room, _CHUNK))
        else:
            self._say_waiting(run)
            return False
        self._held_at = None
        return True

    def _stop(self) -> None:
        self.fed, self.over = replace(self.fed, whole=False), True

    def _stop_if_more(self) -> bool:
        """Feed one more item, then stop; if there is none, go on to the end. False while the source has nothing yet."""
        before = self.fed.items
        self._take_and_send(1)
        if self.fed.items > before and not self._exhausted:
            self._stop()
        return self.over or self._exhausted

    def _take_and_send(self, count: int) -> None:
        try:
            self._exhausted = not self._take(count)
        finally:  # what its source gave before it failed is in all the same
            self._send()

    def _check_source(self) -> None:
        """A source that failed while the store was away may seem to have ended by now; it has not."""
        if self._taking:
            raise CallerError(
                f"the source of the items failed after {self.fed.items} of them; what it gave is in run "
                f"{self.run.name!r}, and feeding it anew goes on there"
            )

    def _take(self, count: int) -> bool:
        """Make jobs of the next items, as many as come within a while; False when those were the last."""
        began_s = self._monotonic()
        size_bytes, self._taking = 0, True
        for item in self._items:
            if isinstance(item, NothingNow):
                break
            job = self._next_job(item)
            if job is not None:
                self._unsent.append(job)
                size_bytes += len(job.payload_json)
            if len(self._unsent) >= count or size_bytes >= ENQUEUE_BYTES_MAX:
                break
            if self._monotonic() - began_s > _CHUNK_S:  # a slow source: let workers have these
                break
        else:
            self._taking = False
            return False
        self._taking = False
        return True

    def _next_job(self, item: Any) -> NewJob | None:
        position, self._position = self._position, self._position + 1
        self.fed = replace(self.fed, items=self.fed.items + 1)
        return self._job(position, item)

    def _send(self) -> None:
        done = enqueue(self._runs.store, self._unsent)
        sent = zip(self._unsent, done, strict=True)
        request_id = next((job.request_id for job, one in sent if one.created), None)
        self._unsent.clear()
        told, owner, run = self._runs.observers, self._terms.owner, self.run.no
        told.tell_enqueued(self._laid.name, done, request_id=request_id, owner=owner, run=run)
        created = [one.no for one in done if one.created]
        self._first_no = min([self._first_no, *created])
        repeated = sum(not one.created and one.no >= self._first_no for one in done)
        self.fed = replace(
            self.fed,
            created=self.fed.created + len(created),
            known=self.fed.known + len(done) - len(created) - repeated,
            repeated=self.fed.repeated + repeated,
        )

    def _job(self, position: int, item: Any) -> NewJob | None:
        try:
            job = job_from(item, self._laid, self._ids, self._terms)
        except PayloadRefused as refused:
            if self._terms.bad is None:
                raise refused_at(position, refused) from None
            self._terms.bad(position, refused)
            self.fed = replace(self.fed, skipped=self.fed.skipped + 1)
            return None
        key = job.key or key_from_position(position, job.payload_json)
        return structs.replace(job, run=self.run.no, lane=self._opened.lane, key=key)

    def _room(self, run: RunView) -> int:
        backlog_max = self._terms.backlog_max
        return _CHUNK if backlog_max is None else backlog_max - run.counts.open

    def _now(self) -> RunView:
        found = self._runs.reader.runs(no=self.run.no)
        if not found:
            raise UnknownName(f"run {self.run.name!r} is no longer in the store")
        return found[0]

    def _say_waiting(self, run: RunView) -> None:
        """Tell now and then that nothing is fed because nothing is worked off."""
        now = self._monotonic()
        if self._held_at is None:
            self._held_at = now
        elif now - self._held_at >= _SAY_EVERY_S:
            self._held_at = now
            self._runs.observers.tell(
                EventName.RUN_FEED_WAITING,
                run=run.no,
                run_id=run.id,
                run_name=run.name,
                pipeline=run.pipeline,
                open=run.counts.open,
                backlog_max=self._terms.backlog_max,
                status=run.status.value,
            )


def feed(
    feeder: Feeder,
    *,
    rest: Callable[[float], object] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Fed:
    """Feed until the items are in and the run is sealed, or it is stopped; a store that is away is waited for, for a while."""
    pauses, away = Pauses(*_PAUSES), Absence(FEEDER_AWAY_S_MAX, monotonic)
    while not feeder.over:
        try:
            went_on = feeder.once()
            away.end()
        except StoreUnavailable:
            if away.is_too_long():
                raise
            went_on = False
        if went_on:
            pauses.begin()
        else:
            rest(pauses.next_s())
    return feeder.fed


def feed_whole(feeder: Feeder, *, rest: Callable[[float], object] = time.sleep) -> RunView:
    """Feed a run, leaving signs of life meanwhile, however slow its source is; the run afterwards."""
    try:
        with _signs(feeder):
            feed(feeder, rest=rest)
    finally:
        feeder.leave()
    return feeder.run


@contextmanager
def _signs(feeder: Feeder) -> Iterator[None]:
    over = threading.Event()

    def sign() -> None:
        while not over.wait(FEEDER_SIGN_S):
            feeder.sign()

    with suppress(RuntimeError):  # no thread is to be had: what we feed is sign enough
        threading.Thread(target=sign, name="perdure-feeding", daemon=True).start()
    try:
        yield
    finally:
        over.set()
