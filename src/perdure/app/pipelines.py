"""Pipelines as a user holds them: items are enqueued here, or called."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal

from perdure.app.calling.calls import terms_of
from perdure.app.files.items import items_of
from perdure.app.job_refs import Called, JobRef, called_of
from perdure.app.runs import Run, given_options
from perdure.app.session.session import Session
from perdure.engine.batch.feeding import Feeder, feed_whole
from perdure.engine.batch.item_jobs import BACKLOG_MAX, FeedTerms, check_first
from perdure.engine.call import CallTerms
from perdure.engine.enqueue import enqueue, new_job, new_jobs
from perdure.engine.stages import LaidPipeline, shortest_s
from perdure.model.errors import CallerError, PayloadRefused, StoreBusy
from perdure.model.jobs import Enqueued, NewJob
from perdure.model.operations import Deed
from perdure.rules.policy import Policy


class Pipeline:
    """An ordered list of stages that items walk through."""

    def __init__(self, session: Session, laid: LaidPipeline) -> None:
        self._session = session
        self._laid = laid

    def __repr__(self) -> str:
        return f"<Pipeline {self.name!r}>"

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self._laid.name

    @property
    def queue(self) -> str:
        """The queue in which its items wait."""
        return self._laid.queue

    @property
    def category(self) -> str:
        """The category of its items."""
        return self._laid.category

    def enqueue(
        self,
        item: Any,
        *,
        owner: str = "",
        key: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
        deadline_s: float | None = None,
        if_failed: Literal["keep", "retry"] = "keep",
        tokens: int | None = None,
        request_id: str | None = None,
        ordered_at: datetime | None = None,
        within: object = None,
    ) -> JobRef:
        """Enqueue one item; when this returns, it is on stable storage.

        The same ``key`` gives the same job, as it was enqueued first: the new item and options are
        not looked at. With ``if_failed="retry"`` one that has failed is given a new life. ``tokens`` is how
        many its calls are thought to take, where an upstream has a limit on them. ``deadline_s`` is the total
        time of each life of the job, from when it may begin (``run_at``, if that is later than now); without it, the
        smallest that the policies of its stages allow. ``request_id`` is in each log line of the job and given to its stages;
        without it, the job's id is. ``ordered_at`` is the moment by which the job stands in line, the date of a submission
        say, whenever it may begin; what is later than the store's now counts as now.
        ``within`` is a connection of your own to the store's database (psycopg, sqlite3, or SQLAlchemy on
        one of these): the job is then part of its transaction, and is there when that commits. Call
        `App.ready` once before the first such transaction.
        """
        self._make_ready(within)
        job = new_job(
            self._session.ids,
            self._laid,
            item,
            owner=owner,
            key=key,
            priority=priority,
            run_at=run_at,
            deadline_s=deadline_s,
            if_failed=if_failed,
            tokens=tokens,
            fair=self._is_fair,
            request_id=request_id,
            ordered_at=ordered_at,
        )
        done = enqueue(self._session.opened.store, [job], within=within)
        return self._refs(done, within, request_id, owner)[0]

    def enqueue_many(
        self,
        items: Iterable[Any],
        *,
        owner: str = "",
        priority: int = 0,
        run_at: datetime | None = None,
        deadline_s: float | None = None,
        tokens: int | None = None,
        request_id: str | None = None,
        ordered_at: datetime | None = None,
        within: object = None,
    ) -> list[JobRef]:
        """Enqueue items in order, in transactions of up to 10,000, or ``within`` one of your own.

        The options are those of each item; see `enqueue`. An item with options of its own, a ``key`` say, is an
        `Item`: ``pipe.enqueue_many(Item(one, key=one["id"]) for one in orders)``.
        """
        _check_many(items)
        self._make_ready(within)
        jobs = new_jobs(
            self._session.ids,
            self._laid,
            items,
            owner=owner,
            priority=priority,
            run_at=run_at,
            deadline_s=deadline_s,
            tokens=tokens,
            fair=self._is_fair,
            request_id=request_id,
            ordered_at=ordered_at,
        )
        own: dict[str, tuple[str | None, str]] = {}  # by job, for those that bring either
        noted = _note_own(jobs, owner, own)
        done = enqueue(self._session.opened.store, noted, within=within)
        plain = (None, owner)
        first = next((own.get(one.id, plain) for one in done if one.created), plain)
        return self._refs(done, within, *first)

    def run(
        self,
        items: Iterable[Any] | str | os.PathLike[str],
        *,
        name: str | None = None,
        owner: str = "",
        key: str | Callable[[Any], object] | None = None,
        failure_budget: float | None = None,
        failure_budgets: Mapping[str, float] | None = None,
        check_every: int | None = None,
        sample_min: int | None = None,
        count_rate_limits: bool | None = None,
        completed_at: float | None = None,
        partial_at: float | None = None,
        cost_max_usd: float | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        tokens: int | None = None,
        request_id: str | Callable[[Any], object] | None = None,
        backlog_max: int | None = BACKLOG_MAX,
        bad: Callable[[int, PayloadRefused], None] | None = None,
        seal: bool = True,
    ) -> Run:
        """Put a batch of items in: any iterable, or the path of a .jsonl or .csv file. Returns when all are in.

        Items are streamed, and while ``backlog_max`` of them are open this waits for workers. Neither this nor `Run.wait`
        works on them: when nobody does for 10 s, a warning says so. With a ``name``,
        the same call goes on with the same run: items are known by their ``key`` (a field's name or a
        function; else by position and content), and none is done twice; another field than before is refused. An `Item` has options of its own, a key say,
        as in `enqueue_many`. ``request_id`` says in the same way what an
        item's request id is; one that gives none has its job's id.

        The run is aborted when more than ``failure_budget`` (0.10) of the processed items have failed, looked at
        every ``check_every`` (1000) of them and never before ``sample_min`` (100); or more than ``failure_budgets``
        says for a kind; with ``count_rate_limits=False``, rate limits left out; or when it has cost more than
        ``cost_max_usd``. It is completed from ``completed_at`` (0.95) on, a partial success from
        ``partial_at`` (0.50) on, else failed. ``bad`` hears of items that cannot be stored, which end the
        feeding otherwise. Without ``seal`` more items may follow.
        """
        options = given_options(
            failure_budget=failure_budget,
            kinds=failure_budgets,
            check_every=check_every,
            sample_min=sample_min,
            rate_limits=count_rate_limits,
            completed_at=completed_at,
            partial_at=partial_at,
            cost_max_usd=cost_max_usd,
            key=key if isinstance(key, str) else None,  # two functions cannot be compared
        )
        fair = self._is_fair
        terms = FeedTerms(
            owner, key, priority, deadline_s, tokens, fair, backlog_max, bad, request_id, seal
        )
        return self._feed(items_of(items), terms, options, name)

    async def run_async(self, items: Iterable[Any] | str | os.PathLike[str], **options: Any) -> Run:
        """As `run`, without blocking the event loop; the items are taken on another thread."""
        return await asyncio.to_thread(self.run, items, **options)

    async def enqueue_async(self, item: Any, **options: Any) -> JobRef:
        """As `enqueue`, without blocking the event loop."""
        return await asyncio.to_thread(self.enqueue, item, **options)

    async def enqueue_many_async(self, items: Iterable[Any], **options: Any) -> list[JobRef]:
        """As `enqueue_many`, without blocking the event loop."""
        return await asyncio.to_thread(self.enqueue_many, list(items), **options)

    def call(
        self,
        item: Any,
        *,
        policy: str | os.PathLike[str] | Policy | None = None,
        wait_s: float = 30.0,
        owner: str = "",
        key: str | None = None,
        request_id: str | None = None,
        on_lost: Literal["hand_over", "drop"] = "hand_over",
    ) -> Called:
        """Run one item now, here, and wait for it at most ``wait_s``; async stages run on a loop that the app keeps.

        What cannot be done by then is handed over to a durable job, whose id the answer has. Raises
        `JobFailed` when the policy gives up, which is ``gateway-sync`` unless you name one. A named one's
        wire vocabulary is read where the stage's policy has none. ``on_lost`` says what becomes of the job when this call is
        interrupted or this process dies: a worker goes on with it, or it is cancelled.
        """
        terms = terms_of(policy, wait_s, on_lost)
        return self._session.calls.blocking(
            lambda: self._make_call(item, terms, owner=owner, key=key, request_id=request_id)
        )

    async def call_async(
        self,
        item: Any,
        *,
        policy: str | os.PathLike[str] | Policy | None = None,
        wait_s: float = 30.0,
        owner: str = "",
        key: str | None = None,
        request_id: str | None = None,
        on_lost: Literal["hand_over", "drop"] = "hand_over",
    ) -> Called:
        """As `call`, on the caller's own event loop, async stages too; ``on_lost`` also counts when its task is cancelled."""
        terms = terms_of(policy, wait_s, on_lost)
        return await self._make_call(item, terms, owner=owner, key=key, request_id=request_id)

    async def _make_call(
        self,
        item: Any,
        terms: CallTerms,
        *,
        owner: str,
        key: str | None,
        request_id: str | None,
        begun: Callable[[str], object] = lambda id: None,
    ) -> Called:
        policies = (terms.policy, *(stage.policy for stage in self._laid.stages))
        job = partial(
            self._new_job,
            item,
            owner=owner,
            key=key,
            request_id=request_id,
            policies_s=shortest_s(policies),
        )
        session = self._session
        over = await session.calls.call(lambda: session.opened, self._laid, job, terms, begun)
        return called_of(over, session)

    def _feed(
        self,
        items: Iterable[Any],
        terms: FeedTerms,
        options: Mapping[str, Any],
        name: str | None,
    ) -> Run:
        session, runs = self._session, self._session.runs
        session.make_ready()
        if name is None:  # nobody could go on with a run that has no item
            items = check_first(items, self._laid, session.ids, terms)
        begun = runs.open(
            self._laid, session.ids, name=name, owner=terms.owner, options=options, deed=Deed("app")
        )
        feeder = Feeder(runs, self._laid, begun, items, ids=session.ids, terms=terms)
        run = feed_whole(feeder)
        return Run(session, run, feeder.fed)

    def _new_job(
        self,
        item: Any,
        *,
        owner: str,
        key: str | None,
        request_id: str | None,
        policies_s: float | None,
    ) -> NewJob:
        self._session.make_ready()
        return new_job(
            self._session.ids,
            self._laid,
            item,
            owner=owner,
            key=key,
            request_id=request_id,
            policies_s=policies_s,
            fair=self._is_fair,
        )

    @property
    def _is_fair(self) -> bool:
        return self._laid.queue in self._session.fair_queues

    def _make_ready(self, within: object) -> None:
        try:
            self._session.make_ready()
        except StoreBusy as busy:
            if within is None:
                raise
            raise StoreBusy(
                f"the lanes of the app's pipelines are made outside of your transaction, which may be "
                f"what holds the store ({busy}); call App.ready before it begins"
            ) from busy

    def _refs(
        self, done: list[Enqueued], within: object, request_id: str | None, owner: str
    ) -> list[JobRef]:
        if within is None:  # else it is not durable yet, and may never be
            self._session.observers.tell_enqueued(
                self.name, done, request_id=request_id, owner=owner
            )
        return [JobRef(one.id, one.created, self._session) for one in done]


def _check_many(items: object) -> None:
    """Refuse what would be taken apart into letters or keys, and what is no row of items at all."""
    if isinstance(items, str | bytes | bytearray | Mapping) or not isinstance(items, Iterable):
        raise CallerError(
            f"items are {items!r:.80}, of type {type(items).__name__}; pass a list of items, or anything else to walk "
            "over; one item goes into enqueue, the path of a file into run"
        )


def _note_own(
    jobs: Iterable[NewJob], owner: str, own: dict[str, tuple[str | None, str]]
) -> Iterator[NewJob]:
    """The same jobs, the request ids and owners that are their own written down."""
    for job in jobs:
        if job.request_id is not None or job.owner != owner:
            own[job.id] = (job.request_id, job.owner)
        yield job
