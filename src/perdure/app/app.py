"""The App: stages, pipelines, and the store that keeps their jobs."""

import asyncio
import importlib
import random
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from perdure.app.calls import Calls, terms_of
from perdure.app.refs import Called, JobRef, called
from perdure.app.working import Working
from perdure.config import Config, load
from perdure.engine.clock import SystemClock
from perdure.engine.enqueue import enqueue, new_job
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.schedules import Schedule, declared
from perdure.engine.stages import Catalogue, Line, Stage
from perdure.model.errors import (
    AppNotFound,
    ConfigError,
    StoreBusy,
    UnknownName,
)
from perdure.model.jobs import Enqueued, Lane, NewJob
from perdure.observers.log import log_event
from perdure.ports import Observer, Schema
from perdure.rules.checked import made
from perdure.rules.policy import Policy
from perdure.rules.presets import preset
from perdure.stores import opening, urls
from perdure.stores.opening import Opened

F = TypeVar("F", bound=Callable[..., Any])


def configured(**given: Any) -> Config:
    """The settings in force, for surfaces: what is given beats the environment."""
    return load(**given)


def shown_url(url: str) -> str:
    """The URL of a store without its password."""
    return urls.shown_url(url)


def schema_of(url: str, *, create: bool = True) -> Schema:
    """The schema behind a URL."""
    return opening.schema_of(url, SystemClock(), create=create)


def open_store(url: str, *, create: bool = True, wait_s_max: float = 10.0) -> Opened:
    """Open a store; a fresh one gets its schema, an outdated one is refused with advice."""
    return opening.open_store(
        url, SystemClock(), create=create, wait_s_max=wait_s_max, connections=load().connections
    )


class Pipeline:
    """An ordered list of stages that items walk through."""

    def __init__(self, app: "App", line: Line) -> None:
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
        within: object = None,
    ) -> JobRef:
        """Enqueue one item; when this returns, it is on stable storage.

        The same ``key`` gives the same job, as it was enqueued first: the new item and options are
        not looked at. With ``if_failed="retry"`` one that has failed is given a new life. ``within`` is a connection of your own to the store's database (psycopg,
        sqlite3, or SQLAlchemy on one of these): the job is then part of its transaction, and is
        there when that commits. Call `App.ready` once before the first such transaction.
        """
        self._ready(within)
        job = new_job(
            self._app.ids, self._line, item,
            owner=owner, key=key, priority=priority, run_at=run_at, deadline_s=deadline_s,
            if_failed=if_failed,
        )  # fmt: skip
        return self._refs(enqueue(self._app.opened.store, [job], within=within), within)[0]

    def enqueue_many(
        self, items: Iterable[Any], *, owner: str = "", priority: int = 0, within: object = None
    ) -> list[JobRef]:
        """Enqueue items in order, in transactions of up to 10,000, or ``within`` one of your own."""
        self._ready(within)
        jobs = (
            new_job(self._app.ids, self._line, item, owner=owner, priority=priority)
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
        return new_job(self._app.ids, self._line, item, owner=owner, key=key)

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


class App:
    """Stages, pipelines and the store that keeps their jobs.

    ``store`` is a URL; without one it is PERDURE_STORE, else ``perdure.db`` beside you.
    """

    def __init__(self, store: str | None = None, *, observers: Iterable[Observer] = ()) -> None:
        self.url = urls.settled_url(load(store=store).store)
        self.ids = Ids(SystemClock(), random.SystemRandom())
        self.observers = Observers([log_event, *observers])
        self._stages: dict[Callable[..., Any], Stage] = {}
        self._lines: dict[str, Line] = {}
        self._pipelines: dict[str, Pipeline] = {}
        self._schedules: dict[str, Schedule] = {}
        self._opened: Opened | None = None
        self._calls: Calls | None = None
        self._laid: set[str] = set()
        self._opening = threading.Lock()

    @overload
    def stage(self, call: F) -> F: ...

    @overload
    def stage(
        self,
        *,
        name: str | None = None,
        policy: str | Policy = "standard",
        timeout_s: float = 60.0,
        upstream: str | None = None,
        process: bool = False,
    ) -> Callable[[F], F]: ...

    def stage(
        self,
        call: Any = None,
        *,
        name: str | None = None,
        policy: str | Policy = "standard",
        timeout_s: float = 60.0,
        upstream: str | None = None,
        process: bool = False,
    ) -> Any:
        """Declare a function, sync or async, to be a stage; the function itself stays as it is.

        Use it bare, ``@app.stage``, or with options, ``@app.stage(timeout_s=20)``. With ``process`` it
        runs in a child process, which a timeout kills and a crash takes with it: for code that holds
        the interpreter, cannot be trusted to end, or may crash.
        """
        chosen = preset(policy) if isinstance(policy, str) else policy

        def declare(call: F) -> F:
            own_name = name or getattr(call, "__name__", None)
            if own_name is None or not callable(call):
                raise ConfigError(f"{call!r} cannot be a stage; give a function, or a name with it")
            self._stages[call] = Stage(own_name, call, chosen, timeout_s, upstream, process)
            return call

        return declare if call is None else declare(call)

    def pipeline(
        self,
        name: str,
        *stages: Callable[..., Any],
        queue: str = "default",
        category: str = "default",
    ) -> Pipeline:
        """Declare a pipeline: items walk through the stages in this order."""
        if name in self._lines:
            raise ConfigError(f"pipeline {name!r} is declared twice; names must differ")
        line = Line(name, queue, category, tuple(self._stage_of(name, call) for call in stages))
        self._lines[name] = line
        self._pipelines[name] = Pipeline(self, line)
        return self._pipelines[name]

    def every(
        self,
        spec: str,
        pipe: Pipeline,
        item: Any = None,
        *,
        name: str | None = None,
        owner: str = "",
        timezone: str | None = None,
    ) -> None:
        """Enqueue an item again and again: at an interval, or as a cron expression says.

        ``app.every("15m", pipe, item)`` counts from midnight UTC, ``app.every("0 7 * * 1-5", pipe,
        timezone="Europe/Berlin")`` goes by the clocks there. A worker of this app ticks it; each moment makes
        one job, however many workers there are. ``name`` tells the schedules of one pipeline apart.
        """
        made("what a schedule enqueues", pipe, Pipeline)
        if self._pipelines.get(pipe.name) is not pipe:
            raise ConfigError(f"pipeline {pipe.name!r} of a schedule belongs to another app")
        schedule = declared(spec, pipe._line, item, name=name, owner=owner, timezone=timezone)
        if schedule.name in self._schedules:
            raise ConfigError(
                f"schedule {schedule.name!r} is declared twice; tell them apart with name="
            )
        self._schedules[schedule.name] = schedule

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """What is to be enqueued again and again."""
        return tuple(self._schedules.values())

    def find(self, name: str) -> Pipeline:
        """The pipeline of that name."""
        if name not in self._pipelines:
            known = ", ".join(sorted(self._pipelines)) or "none"
            raise UnknownName(f"this app has no pipeline {name!r}; it has: {known}")
        return self._pipelines[name]

    @property
    def pipelines(self) -> tuple[str, ...]:
        """The names of all pipelines."""
        return tuple(self._pipelines)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes of all pipelines."""
        return tuple(lane for line in self._lines.values() for lane in line.lanes())

    @property
    def opened(self) -> Opened:
        """The store, opened on first use."""
        with self._opening:
            if self._opened is None:
                self._opened = open_store(self.url)
            return self._opened

    @property
    def calls(self) -> Calls:
        """What the calls of this process share."""
        with self._opening:
            if self._calls is None or not self._calls.is_of_this_process:
                self._calls = Calls(
                    clock=SystemClock(), chance=random.SystemRandom(), observers=self.observers
                )
            return self._calls

    @property
    def catalogue(self) -> Catalogue:
        """All pipelines on their lanes."""
        self.ready()
        return Catalogue(self._lines.values())

    def ready(self) -> None:
        """Make sure that every declared pipeline has its lanes."""
        missing = [line for line in self._lines.values() if line.name not in self._laid]
        if not missing:
            return
        wanted = [lane for line in missing for lane in line.lanes()]
        numbers = self.opened.store.lanes(wanted)
        for line in missing:
            line.lane_nos.update({lane.stage: numbers[lane] for lane in line.lanes()})
            self._laid.add(line.name)

    def working(
        self,
        *,
        concurrency: int | None = None,
        queues: Collection[str] = (),
        categories: Collection[str] = (),
        **tuning: Any,
    ) -> Working:
        """A worker inside this process: ``with app.working(concurrency=8): ...``, or ``async with``.

        It works from the beginning of the block to its end, which lets running stages finish within the
        grace and gives the rest back. ``tuning`` are settings: ``lease_ttl_s``, ``grace_s``, ``poll_s``.
        It serves the pipelines that are declared when it starts. Needs /proc. Jobs that were in hand when a
        process died are left to ``perdure worker``.
        """
        config = load(store=self.url, concurrency=concurrency, **tuning)
        return Working(self, config, queues=queues, categories=categories)

    def close(self) -> None:
        """Disconnect from the store."""
        with self._opening:
            calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _stage_of(self, pipeline: str, call: Callable[..., Any]) -> Stage:
        if call not in self._stages:
            name = getattr(call, "__name__", repr(call))
            raise ConfigError(
                f"{name!r} in pipeline {pipeline!r} is not a stage of this app; "
                "put @app.stage above it"
            )
        return self._stages[call]


def load_app(reference: str) -> App:
    """The App behind ``module:attribute``, looked up from the working directory."""
    module_name, _, attribute = reference.partition(":")
    attribute = attribute or "app"
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise AppNotFound(
            f"{reference!r} names no module; write module:attribute, as in work:app, without .py"
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if not f"{module_name}.".startswith(f"{missing.name}."):
            raise  # a module that the app's module wants
        raise AppNotFound(
            f"no module {module_name!r} here; write module:attribute, as in work:app, and run "
            "the command where the module can be imported"
        ) from None
    if not hasattr(module, attribute):
        raise AppNotFound(f"{reference}: the module has no {attribute!r}; write module:attribute")
    found = getattr(module, attribute)
    if not isinstance(found, App):
        raise AppNotFound(
            f"{module_name}:{attribute} is {type(found).__name__}, not a perdure.App; "
            "write module:attribute"
        )
    return found
