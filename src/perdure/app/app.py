"""The App: stages, pipelines, and the store that keeps their jobs."""

import asyncio
import importlib
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from perdure.config import Config, load
from perdure.engine import control
from perdure.engine.clock import SystemClock
from perdure.engine.door import decode
from perdure.engine.enqueue import enqueue, new_job
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue, Line, Stage
from perdure.model.errors import (
    AppNotFound,
    ConfigError,
    JobFailed,
    JobUnfinished,
    StoreBusy,
    UnknownName,
)
from perdure.model.jobs import Enqueued
from perdure.model.states import TERMINAL, State
from perdure.model.views import JobView
from perdure.observers.log import log_event
from perdure.ports import Observer, Schema
from perdure.rules.policy import Policy
from perdure.rules.presets import preset
from perdure.stores import opening, urls
from perdure.stores.opening import Opened

F = TypeVar("F", bound=Callable[..., Any])

_SUSPECT_IDLE_S = 20.0


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


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job that was enqueued. ``created`` is False when its key belonged to a job already."""

    id: str
    created: bool
    _app: "App"

    def show(self) -> JobView:
        """The job as it is now."""
        job = self._app.opened.reader.job(self.id)
        if job is None:
            raise UnknownName(f"job {self.id} is no longer in the store")
        return job

    def result(self, *, wait_s: float = 60.0) -> Any:
        """The job's result; waits for it, raises `JobFailed` or `JobUnfinished`."""
        give_up_at = time.monotonic() + wait_s
        pause_s = 0.005
        while (job := self.show()).state not in TERMINAL:
            if time.monotonic() >= give_up_at:
                raise JobUnfinished(f"job {self.id} is {job.shown_state} after {wait_s:g} s")
            time.sleep(min(pause_s, max(0.0, give_up_at - time.monotonic())))
            pause_s = min(pause_s * 1.5, 0.25)
        return _result_of(job)

    async def result_async(self, *, wait_s: float = 60.0) -> Any:
        """As `result`, without blocking the event loop."""
        return await asyncio.to_thread(self.result, wait_s=wait_s)

    def cancel(self, *, reason: str = "") -> None:
        """Cancel the job; after this returns no new attempt starts."""
        opened = self._app.opened
        control.cancel(
            opened.store,
            opened.reader,
            self._app.catalogue,
            self.id,
            reason=reason,
            observers=self._app.observers,
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
        self.url = load(store=store).store
        opening.check_url(self.url)
        self.ids = Ids(SystemClock(), random.SystemRandom())
        self.observers = Observers([log_event, *observers])
        self._stages: dict[Callable[..., Any], Stage] = {}
        self._lines: dict[str, Line] = {}
        self._pipelines: dict[str, Pipeline] = {}
        self._opened: Opened | None = None
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
    ) -> Callable[[F], F]: ...

    def stage(
        self,
        call: Any = None,
        *,
        name: str | None = None,
        policy: str | Policy = "standard",
        timeout_s: float = 60.0,
        upstream: str | None = None,
    ) -> Any:
        """Declare a function, sync or async, to be a stage; the function itself stays as it is.

        Use it bare, ``@app.stage``, or with options, ``@app.stage(timeout_s=20)``.
        """
        chosen = preset(policy) if isinstance(policy, str) else policy

        def declare(call: F) -> F:
            own_name = name or getattr(call, "__name__", None)
            if own_name is None or not callable(call):
                raise ConfigError(f"{call!r} cannot be a stage; give a function, or a name with it")
            self._stages[call] = Stage(own_name, call, chosen, timeout_s, upstream)
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
    def opened(self) -> Opened:
        """The store, opened on first use."""
        with self._opening:
            if self._opened is None:
                self._opened = open_store(self.url)
            return self._opened

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

    def close(self) -> None:
        """Disconnect from the store."""
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


def _result_of(job: JobView) -> Any:
    if job.state is State.SUCCEEDED:
        return decode(job.result_json or "null")
    reason = f" ({job.failed_reason.value})" if job.failed_reason else ""
    what = f": {job.error_message}" if job.error_message else ""
    raise JobFailed(
        f"job {job.id} {job.state.value}{reason}{what}; see: perdure jobs show {job.id}"
    )
