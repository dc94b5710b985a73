"""Pipelines as a user holds them: items are enqueued here, or called."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any, Literal, Protocol

from perdure.app.calls import Calls, terms_of
from perdure.app.refs import Called, Home, JobRef, called
from perdure.engine.enqueue import enqueue, new_job
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import Line
from perdure.model.errors import StoreBusy
from perdure.model.jobs import Enqueued, NewJob
from perdure.rules.policy import Policy


class Desks(Home, Protocol):
    """What a pipeline needs of its App."""

    ids: Ids
    observers: Observers

    @property
    def calls(self) -> Calls:
        """What the calls of this process share."""
        ...

    def ready(self) -> None:
        """Make sure that every declared pipeline has its lanes."""
        ...

    def is_fair(self, queue: str) -> bool:
        """Whether owners take turns in that queue."""
        ...


class Pipeline:
    """An ordered list of stages that items walk through."""

    def __init__(self, app: Desks, line: Line) -> None:
        self._app = app
        self._line = line

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self._line.name

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
        within: object = None,
    ) -> JobRef:
        """Enqueue one item; when this returns, it is on stable storage.

        The same ``key`` gives the same job, as it was enqueued first: the new item and options are
        not looked at. With ``if_failed="retry"`` one that has failed is given a new life. ``tokens`` is how
        many its calls are thought to take, where an upstream has a limit on them.
        ``within`` is a connection of your own to the store's database (psycopg, sqlite3, or SQLAlchemy on
        one of these): the job is then part of its transaction, and is there when that commits. Call
        `App.ready` once before the first such transaction.
        """
        self._ready(within)
        job = new_job(
            self._app.ids, self._line, item,
            owner=owner, key=key, priority=priority, run_at=run_at, deadline_s=deadline_s,
            if_failed=if_failed, tokens=tokens, fair=self._app.is_fair(self._line.queue),
        )  # fmt: skip
        return self._refs(enqueue(self._app.opened.store, [job], within=within), within)[0]

    def enqueue_many(
        self,
        items: Iterable[Any],
        *,
        owner: str = "",
        priority: int = 0,
        tokens: int | None = None,
        within: object = None,
    ) -> list[JobRef]:
        """Enqueue items in order, in transactions of up to 10,000, or ``within`` one of your own."""
        self._ready(within)
        fair = self._app.is_fair(self._line.queue)
        jobs = (
            new_job(
                self._app.ids,
                self._line,
                item,
                owner=owner,
                priority=priority,
                tokens=tokens,
                fair=fair,
            )
            for item in items
        )
        return self._refs(enqueue(self._app.opened.store, jobs, within=within), within)

    async def enqueue_async(self, item: Any, **options: Any) -> JobRef:
        """As `enqueue`, without blocking the event loop."""
        return await asyncio.to_thread(self.enqueue, item, **options)

    async def enqueue_many_async(self, items: Iterable[Any], **options: Any) -> list[JobRef]:
        """As `enqueue_many`, without blocking the event loop."""
        return await asyncio.to_thread(self.enqueue_many, list(items), **options)

    async def call(
        self,
        item: Any,
        *,
        policy: str | Policy = "gateway-sync",
        wait_s: float = 30.0,
        owner: str = "",
        key: str | None = None,
        on_lost: Literal["hand_over", "drop"] = "hand_over",
    ) -> Called:
        """Run one item now, here, and wait for it at most ``wait_s``.

        What cannot be done by then is handed over to a durable job, whose id the answer has. Raises
        `JobFailed` when the policy gives up. ``on_lost`` says what becomes of the job when this task is
        cancelled or this process dies: a worker goes on with it, or it is cancelled.
        """
        terms = terms_of(policy, wait_s, on_lost)
        job = partial(self._new_job, item, owner=owner, key=key)
        app = self._app
        return called(await app.calls.call(lambda: app.opened, self._line, job, terms), app)

    def call_blocking(self, item: Any, **options: Any) -> Called:
        """As `call`, for callers without an event loop; async stages run on one that the app keeps."""
        return self._app.calls.blocking(lambda: self.call(item, **options))

    def _new_job(self, item: Any, *, owner: str, key: str | None) -> NewJob:
        self._app.ready()
        return new_job(
            self._app.ids, self._line, item,
            owner=owner, key=key, fair=self._app.is_fair(self._line.queue),
        )  # fmt: skip

    def _ready(self, within: object) -> None:
        try:
            self._app.ready()
        except StoreBusy as busy:
            if within is None:
                raise
            raise StoreBusy(
                f"the lanes of the app's pipelines are made outside of your transaction, which may be "
                f"what holds the store ({busy}); call App.ready before it begins"
            ) from busy

    def _refs(self, done: list[Enqueued], within: object) -> list[JobRef]:
        if within is None:  # else it is not durable yet, and may never be
            self._app.observers.enqueued(self.name, done)
        return [JobRef(one.id, one.created, self._app) for one in done]
