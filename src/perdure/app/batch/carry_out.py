"""A run from its first item to its results, carried out in front of somebody: fed, worked on, watched, written.

Always true: this process holds nothing that the store does not have. Items are kept before they are counted as fed,
results are read from the store, and the file of results is made anew by every call. So whatever ends us, the
same call goes on: what was fed is known by its key, what was done is not done again.

Who does what: one thread feeds, one writes results as they are there, a worker in a process of its own works (and
others may, elsewhere), and the caller's thread watches. The run in the store is authoritative about whether it is
over; we only ask. It is over for us when it is finished and we have no more items for it, or when it was aborted or
cancelled by anybody.

How it ends: the feeding stops between two chunks, the worker finishes what it has in hand, and only then the last
look at the results is made, so that what was in hand is in the file. Stopped for good (`asked` says 2), we leave at
once, and the worker, which sees our end of its pipe close, gives back what it has. Told to stop while the store is away,
we ask it for nothing more: what is not in the files yet is written by the next call.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from perdure.app.batch.outcome import LeftAtOnce, RunOutcome
from perdure.app.batch.results_writer import AWAY_S_MAX, Writer
from perdure.app.batch.snapshot import RunSnapshot, Watch
from perdure.app.batch.worker_process import Hired
from perdure.app.pipelines import Pipeline
from perdure.app.runs import Sink
from perdure.engine.attempt.threads import Pool
from perdure.engine.batch.feeding import Fed, Feeder, feed_whole
from perdure.engine.batch.item_jobs import BACKLOG_MAX, Bad, FeedTerms, check_first
from perdure.engine.batch.results import has_stopped
from perdure.engine.batch.runs import OpenRun, find_run, is_stranded, unfed_words
from perdure.engine.idempotency import Key
from perdure.engine.pauses import Absence
from perdure.engine.upkeep.bulk_duty import catch_up, waiting_words
from perdure.model.errors import PerdureError, RunAborted, RunUnfinished, StoreUnavailable
from perdure.model.filters import DEAD_LETTERS
from perdure.model.jobs import Lane
from perdure.model.nouns import replace
from perdure.model.operations import BulkVerb, Deed
from perdure.model.runs import CLOSED, FINISHED, RunStatus, RunView
from perdure.model.views import DeadGroup

_LOOK_S = 0.25
_NAP_S = 0.05  # an order to stop is noticed that soon
_FED_S_MAX = 2.0  # for the chunk under way; a source that blocks is left alone
_CANCEL_S_MAX = 30.0  # for a worker to cancel what is open

Show = Callable[[RunSnapshot], None]
Asked = Callable[[], int]  # how often we were told to stop


class RunRequest(Struct, frozen=True):
    """What to run and how. ``worker`` is the command of a worker to start; without one, others work.

    ``knows`` gives what the worker is told of the app, and of lanes of the run that its pipeline has left since.
    ``options`` are settings of the run, as far as they are given. ``aside`` keeps what the worker says for ``hear``.
    ``retry_failed`` lets what has failed in the run before be tried again.
    """

    items: Iterable[Any]
    name: str | None = None
    owner: str = ""
    key: Key | None = None
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    backlog_max: int | None = BACKLOG_MAX
    bad: Bad | None = None
    results: Path | None = None
    failures: Path | None = None
    order: Literal["items", "ended"] = "items"
    worker: Sequence[str] | None = None
    knows: Callable[[Sequence[Lane]], bytes] = lambda _: b""
    grace_s: float = 30.0
    aside: bool = False
    hear: Callable[[str], None] = print
    retry_failed: bool = False


def carry_out(pipe: Pipeline, order: RunRequest, show: Show, asked: Asked) -> RunOutcome:
    """Feed, work, watch and write until the run is over or somebody wants us to stop."""
    pipe._session.make_ready()
    with ExitStack() as sinks:
        results = sinks.enter_context(Sink(order.results)) if order.results else None
        failures = sinks.enter_context(Sink(order.failures)) if order.failures else None
        batch = _Batch(pipe, order, show, asked)
        reader, settled = batch.opened.reader, batch.settled
        aliases = pipe._session.aliases_of(pipe.name)
        outcome = batch.carry_out(
            Writer(reader, batch.run, order.order, settled, results, failures, aliases, asked)
        )
        if outcome.is_empty:
            for sink in (results, failures):
                if sink is not None:
                    sink.withdraw()
        return outcome


def with_first_checked(pipe: Pipeline, order: RunRequest) -> RunRequest:
    """The same, for a run that is certainly new: an item that is refused at the very beginning leaves no run behind."""
    pipe._session.make_ready()
    ids, terms = pipe._session.ids, _terms(pipe, order)
    return replace(order, items=check_first(order.items, pipe._laid, ids, terms))


def _terms(pipe: Pipeline, order: RunRequest) -> FeedTerms:
    return FeedTerms(
        owner=order.owner,
        key=order.key,
        fair=pipe._is_fair,
        backlog_max=order.backlog_max,
        bad=order.bad,
    )


def _never() -> bool:
    return False


class _Stopped(Exception):
    """The feeding is to end."""


class _Batch:
    def __init__(self, pipe: Pipeline, order: RunRequest, show: Show, asked: Asked) -> None:
        self._session = pipe._session
        self.opened = self._session.opened
        self.order = order
        self._pipe = pipe
        self._laid = pipe._laid
        self._show = show
        self._asked = asked
        self._runs = self._session.runs
        self._began_at = time.monotonic()
        self._stopping = threading.Event()
        self.settled = threading.Event()  # nothing more will end: the last look at the results
        self._hired: Hired | None = None
        self._refused = ""
        self._away: StoreUnavailable | None = None  # what the last question met
        self._begun: OpenRun | None = None
        self._is_fed = False  # when the run was last looked at
        self._revived = 0
        self.run = self._open_run()
        self._known_before = self.run.counts.total
        self._watch = Watch(
            self.opened, self.run.id, laid=self._laid, hired=order.worker is not None
        )
        self._feeder: Feeder | None = None
        self._shot: RunSnapshot | None = None

    def _open_run(self) -> RunView:
        """The run, made or gone on with; what is to be tried again lives again, and then counts no longer as failed."""
        run = self._find_or_make_run()
        self._revived = self._revive(run)
        if self._revived and self._begun is None:
            run = self._find_or_make_run()
        if self._begun is None:
            self._refused += waiting_words(self._session.bulks, run)
        return run

    def _revive(self, run: RunView) -> int:
        bulks = replace(self._session.bulks, keep=lambda: not self._asked())
        if self.order.retry_failed and run.counts.failed:
            failed = replace(DEAD_LETTERS, run=run.no, pipeline=run.pipeline)
            deed, bulk_id = Deed("perdure run"), self._session.ids.next()
            bulks.begin(BulkVerb.RETRY, failed, deed=deed, bulk_id=bulk_id)
        return catch_up(bulks, run)

    def _find_or_make_run(self) -> RunView:
        order, self._refused = self.order, ""
        try:
            self._begun = self._runs.open(
                self._laid,
                self._session.ids,
                name=order.name,
                owner=order.owner,
                options=order.options,
                deed=Deed("perdure run"),
            )
        except RunAborted as refused:  # it was over its budget before, and still is
            self._refused = str(refused)
            reader, name = self.opened.reader, order.name or ""
            found = reader.runs(name=name, pipeline=self._laid.name, owner=order.owner, limit=1)
            return found[0] if found else find_run(reader, name, pipeline=self._laid.name)
        return self._begun.run

    # -- the caller's thread ---------------------------------------------------------------

    def carry_out(self, writer: Writer) -> RunOutcome:
        pool = Pool(2, "perdure-run")
        writing = pool.submit(writer.write)
        feeding: Future[Fed] = pool.submit(self._feed)
        error: PerdureError | None = None
        try:
            if not self._refused:
                self._watch_on(feeding, writing)
        except PerdureError as trouble:
            error = trouble
        fed, late = self._end(feeding)
        self.settled.set()
        if not writing.done():
            self._nap(math.inf, until=writing.done)
        for other in (late, writing.exception()):
            if other is not None and not isinstance(other, PerdureError):
                raise other
            error = error or other
        most, most_key = None, None
        try:
            if not self._gives_up:
                self.run = self._watch.run()
                most, most_key = self._most_frequent_failure()
        except StoreUnavailable as away:
            self._away = away
        error = error or self._away
        interrupted = self._asked() > 0 and not self._is_over(self.run, feeding)
        return RunOutcome(
            self.run,
            fed,
            self._elapsed_s(),
            interrupted,
            self._refused,
            error,
            writer.results,
            writer.failures,
            self._known_before,
            most,
            most_key,
            self._revived,
            0 if self._hired is None else self._hired.restarts,
        )

    def _most_frequent_failure(self) -> tuple[DeadGroup | None, str | None]:
        """What most of its failed items have in common, and the key of one of them."""
        reader = self.opened.reader
        chosen = replace(DEAD_LETTERS, run=self.run.no)
        found = reader.dead_groups(chosen, limit=1) if self.run.counts.failed else []
        job = reader.job(found[0].example_id) if found else None
        return (found[0] if found else None), (job.key if job else None)

    def _watch_on(self, feeding: "Future[Fed]", writing: "Future[None]") -> None:
        """Look on until the run is over or somebody wants to stop; raises what feeding or writing did."""
        absence = Absence(AWAY_S_MAX)
        while not self._asked():
            if feeding.done():
                feeding.result()
            if writing.done():
                writing.result()
            try:
                self._look_at_run(feeding)
                if self._is_over(self.run, feeding):
                    return
                self._check_fed(self.run)
                self._see_to_work(self.run)
                self._show_progress(feeding)
                absence.end()
                self._away = None
            except StoreUnavailable as away:
                self._away = away
                if absence.is_too_long():
                    raise
                if self._shot is not None:
                    self._show(replace(self._shot, note=f"the store is away: {away}"))
            self._nap(_LOOK_S, until=_never if feeding.done() else feeding.done)

    def _look_at_run(self, feeding: "Future[Fed]") -> None:
        """Read the run, but ask first whether the feeding has ended: a feeder that ends has sealed it before."""
        self._is_fed = feeding.done()
        self.run = self._watch.run()

    def _is_over(self, run: RunView, feeding: "Future[Fed]") -> bool:
        if run.status is RunStatus.CANCELLED:
            late = (self.opened.reader.now() - run.changed_at).total_seconds() > _CANCEL_S_MAX
            return run.ended_at is not None or late
        return has_stopped(run) and (feeding.done() or run.status in CLOSED)

    def _check_fed(self, run: RunView) -> None:
        """Raise if nobody feeds the rest: the run was aborted while we fed it, and resumed after we had stopped."""
        if self._is_fed and is_stranded(run, now := self.opened.reader.now()):
            raise RunUnfinished(f"run {run.name!r} is {unfed_words(run, now)}")

    def _see_to_work(self, run: RunView) -> None:
        order = self.order
        if order.worker is None or (self._hired is None and not run.counts.open):
            return
        if self._hired is None:
            elsewhere = self._lanes_elsewhere()
            words = [*order.worker]
            for queue, category in sorted({(one.queue, one.category) for one in elsewhere}):
                words += ["--queue", queue, "--category", category]
            self._hired = Hired(words, order.knows(elsewhere), aside=order.aside)
        self._hired.look()
        self._hired.look_at(self.opened.reader.workers)

    def _lanes_elsewhere(self) -> list[Lane]:
        """Lanes in which the run began, before its pipeline moved to another queue or category."""
        home = (self._laid.queue, self._laid.category)
        lanes = (one.lane for one in self.opened.reader.lanes())
        return [
            one for one in lanes if one.run == self.run.no and (one.queue, one.category) != home
        ]

    def _show_progress(self, feeding: "Future[Fed]") -> None:
        self._hear()
        note = ""
        if self.order.worker is None and not self._watch.anybody_works:
            note = "no worker is alive; start one with: perdure worker APP"
        elif self._is_fed and self.run.sealed_at is None:
            unfed = unfed_words(self.run, self.opened.reader.now())
            note = f"the run is {unfed}" if unfed else ""
        is_stopping = self._stopping.is_set()
        self._shot = self._watch.look(
            self.run,
            self._fed_now(),
            feeding=not feeding.done() and not is_stopping,
            stopping=is_stopping and self.run.status not in FINISHED,
            note=note,
        )
        self._show(self._shot)

    def _end(self, feeding: "Future[Fed]") -> tuple[Fed, BaseException | None]:
        """Stop feeding and working, in this order; what was in hand has ended afterwards."""
        self._stopping.set()
        if self.run.status in FINISHED and self._is_over(self.run, feeding):
            self.settled.set()
        if self._hired is not None:
            if self._hired.running and not self._gives_up:
                with suppress(StoreUnavailable):
                    self._hired.look_at(self.opened.reader.workers, at_once=True)
            self._hired.order()
            self._hired.close(self.order.grace_s, lambda: self._drain(feeding))
            self._hear()
            self._hired.forget()
        if not feeding.done():
            self._nap(_FED_S_MAX, until=feeding.done)
        if not feeding.done():
            return replace(self._fed_now(), whole=False), None
        error = feeding.exception()
        if error is None:
            return feeding.result(), None
        return replace(self._fed_now(), whole=False), error

    @property
    def _gives_up(self) -> bool:
        """Whether the store is asked for nothing more: it is away, and we were told to stop."""
        return self._away is not None and self._asked() > 0

    def _drain(self, feeding: "Future[Fed]") -> None:
        try:
            if not self._gives_up:
                self._look_at_run(feeding)
                self._show_progress(feeding)
                self._away = None
        except StoreUnavailable as away:
            self._away = away
        self._hear()  # the worker tells what it makes of a store that is away
        self._nap(_LOOK_S, until=lambda: self._hired is None or not self._hired.running)

    def _nap(self, seconds: float, until: Callable[[], bool] = _never) -> None:
        """Rest a little; leave at once when that is wanted."""
        give_up_at = time.monotonic() + seconds
        while True:
            if self._asked() > 1:
                if self._hired is not None:
                    self._hired.order()
                fed, elapsed_s = replace(self._fed_now(), whole=False), self._elapsed_s()
                raise LeftAtOnce(
                    RunOutcome(
                        self.run, fed, elapsed_s, interrupted=True, known_before=self._known_before
                    )
                )
            left_s = give_up_at - time.monotonic()
            if left_s <= 0 or until() or (self._asked() and not self._stopping.is_set()):
                return
            time.sleep(min(_NAP_S, left_s))

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_at

    def _hear(self) -> None:
        for line in () if self._hired is None else self._hired.take_words():
            self.order.hear(line)

    def _fed_now(self) -> Fed:
        return Fed() if self._feeder is None else self._feeder.fed

    # -- the thread that feeds -------------------------------------------------------------

    def _feed(self) -> Fed:
        if self._begun is None:
            return Fed(whole=False)
        terms = _terms(self._pipe, self.order)
        self._feeder = Feeder(
            self._runs, self._laid, self._begun, self._items(), ids=self._session.ids, terms=terms
        )
        try:
            feed_whole(self._feeder, rest=self._rest)
        except _Stopped:
            return replace(self._feeder.fed, whole=False)
        return self._feeder.fed

    def _items(self) -> Iterator[Any]:
        for item in self.order.items:
            if self._stopping.is_set():
                raise _Stopped
            yield item

    def _rest(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise _Stopped
