"""The App: stages, pipelines, and the store that keeps their jobs."""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, overload

from perdure.app.calling.calls import terms_of
from perdure.app.dead_letters import DeadLetters
from perdure.app.files.policies import policy_at
from perdure.app.following import FollowThread
from perdure.app.job_refs import JobRef, job_at, name_or_number
from perdure.app.jobs import Jobs
from perdure.app.pipelines import Pipeline
from perdure.app.runs import Run
from perdure.app.session.gate_standing import GateStanding, standing_of
from perdure.app.session.session import Session
from perdure.app.session.settings import Settings, load_settings
from perdure.app.worker.embedded import EmbeddedWorker
from perdure.checks.missing_extras import check_extras
from perdure.engine.attempt.captures import TRACEBACK
from perdure.engine.batch.runs import find_run
from perdure.engine.gates.upstreams import DeclaredUpstream, upstream_limits
from perdure.engine.observe import Observers
from perdure.engine.operate.eligible import source_check
from perdure.engine.operate.feed_listeners import Listener
from perdure.engine.stage_parameters import function_behind
from perdure.engine.stages import LaidPipeline, Stage, check_name
from perdure.engine.upkeep.schedules import declare
from perdure.model.changes import Change
from perdure.model.errors import CallerError, ConfigError, UnknownName
from perdure.model.events import Event
from perdure.model.jobs import OnLost
from perdure.model.views import Stats
from perdure.observers.log import log_event
from perdure.ports import Observer
from perdure.rules.field_checks import instance
from perdure.rules.gate.gate import GateSettings
from perdure.rules.policy import Policy
from perdure.stores import urls

F = TypeVar("F", bound=Callable[..., Any])


class App:
    """Stages, pipelines and the store that keeps their jobs.

    ``store`` is a URL; without one it is PERDURE_STORE, the ``store`` of perdure.toml, or ``perdure.db`` beside you.
    ``settings`` are those of `load_settings`, for an application that has names of its own for them; without any they
    are read now, from perdure.toml beside you and the environment. With ``read_only`` the store
    must be there, and whatever would write to it is refused: for old files and backups, and for eyes only.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        observers: Iterable[Observer] = (),
        read_only: bool = False,
        settings: Settings | None = None,
    ) -> None:
        if settings is not None:
            instance("settings of an App", settings, Settings)
        found = (settings or load_settings()).with_given({"store": store})
        self._session = Session(
            urls.settled_url(found.config.store),
            Observers([self._log, *observers]),
            read_only=read_only,
            settings=found,
        )
        self._stages: dict[Callable[..., Any], Stage] = {}
        self._pipelines: dict[str, Pipeline] = {}

    @overload
    def stage(self, call: F) -> F: ...

    @overload
    def stage(
        self,
        *,
        name: str | None = None,
        policy: str | os.PathLike[str] | Policy = "standard",
        timeout_s: float = 60.0,
        upstream: str | None = None,
        process: bool = False,
    ) -> Callable[[F], F]: ...

    def stage(
        self,
        call: Any = None,
        *,
        name: str | None = None,
        policy: str | os.PathLike[str] | Policy = "standard",
        timeout_s: float = 60.0,
        upstream: str | None = None,
        process: bool = False,
    ) -> Any:
        """Declare a function, sync or async, to be a stage; the function itself stays as it is.

        Use it bare, ``@app.stage``, or with options, ``@app.stage(timeout_s=20)``. ``policy`` is a preset's name, a
        `Policy`, or the path of a policy file (.toml, .json), from the working directory. With ``process`` it
        runs in a child process, which a timeout kills and a crash takes with it: for code that holds
        the interpreter, cannot be trusted to end, or may crash.
        """
        try:
            chosen = policy_at(policy) if isinstance(policy, str | os.PathLike) else policy
        except CallerError as wrong:
            raise ConfigError(str(wrong)) from None

        def declare(call: F) -> F:
            own_name = name or getattr(call, "__name__", None)
            if own_name is None or not callable(call):
                raise ConfigError(f"{call!r} cannot be a stage; give a function, or a name with it")
            stage = Stage(own_name, call, chosen, timeout_s, upstream, process)
            check_extras(own_name, function_behind(call))
            self._stages[call] = stage
            return call

        return declare if call is None else declare(call)

    def upstream(
        self,
        name: str,
        *,
        credential: str | None = None,
        rate: str | float | None = None,
        concurrency: int | None = None,
        tokens: str | float | None = None,
        tokens_per_call: int = 0,
        gate: GateSettings | None = None,
        health: Callable[[], Any] | None = None,
        health_timeout_s: float = 30.0,
    ) -> str:
        """Declare what stages call: ``app.upstream("openai:gpt-5", credential="key-1", rate="500/min")``.

        All limits are for all workers together. ``credential`` names what several upstreams share: a bill, a
        key. ``tokens`` is a rate of tokens, ``tokens_per_call`` a first guess. ``health`` is asked instead
        of a job whether the upstream is back. The answer is the name, for ``@app.stage(upstream=…)``; one
        that is only used there has a gate with the usual settings and no limits.
        """
        limits = upstream_limits(name, rate=rate, concurrency=concurrency, tokens=tokens)
        self._session.upstreams.declare(
            DeclaredUpstream(
                name,
                credential,
                gate or GateSettings(),
                limits,
                tokens_per_call,
                health,
                health_timeout_s,
            )
        )
        return name

    def queue(self, name: str, *, fair: bool) -> None:
        """Say that owners take turns in a queue: one with a million jobs does not keep ten of another waiting.

        Neither priority nor age counts there. What was enqueued before stays where it stands.
        """
        check_name("queue", name)
        if fair:
            self._session.fair_queues.add(name)
        else:
            self._session.fair_queues.discard(name)

    def pipeline(
        self,
        name: str,
        *stages: Callable[..., Any],
        queue: str = "default",
        category: str = "default",
        source_exists: Callable[[Any], Any] | None = None,
        sync_policy: str | os.PathLike[str] | Policy | None = None,
    ) -> Pipeline:
        """Declare a pipeline: items walk through the stages in this order.

        ``source_exists``, sync or async, is asked with the item before a dead letter is given a new life: whether
        what the item refers to is still there. With a ``sync_policy``, as "gateway-sync", an HTTP request that waits for its job's result
        (``Prefer: wait``) has it called in the server's process, by that policy; otherwise a worker does it.
        """
        if name in self._pipelines:
            raise ConfigError(f"pipeline {name!r} is declared twice; names must differ")
        laid = LaidPipeline(
            name, queue, category, tuple(self._stage_of(name, call) for call in stages)
        )
        if sync_policy is not None:
            self._session.sync_policies[name] = _sync_policy(name, sync_policy)
        self._session.laid_pipelines[name] = laid
        if source_exists is not None:
            self._session.checks[name] = source_check(source_exists)
        self._pipelines[name] = Pipeline(self._session, laid)
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
        priority: int = 0,
    ) -> None:
        """Enqueue an item again and again: at an interval, or as a cron expression says.

        ``app.every("15m", pipe, item)`` counts from midnight UTC, ``app.every("0 7 * * 1-5", pipe,
        timezone="Europe/Berlin")`` goes by the clocks there. A worker of this app ticks it; each moment makes
        one job, however many workers there are. ``name`` tells the schedules of one pipeline apart; ``owner`` and
        ``priority`` are those of `Pipeline.enqueue`.
        """
        instance("what a schedule enqueues", pipe, Pipeline)
        if self._pipelines.get(pipe.name) is not pipe:
            raise ConfigError(f"pipeline {pipe.name!r} of a schedule belongs to another app")
        schedule = declare(
            spec, pipe._laid, item, name=name, owner=owner, timezone=timezone, priority=priority
        )
        if schedule.name in self._session.schedules:
            raise ConfigError(
                f"schedule {schedule.name!r} is declared twice; tell them apart with name="
            )
        self._session.schedules[schedule.name] = schedule

    @property
    def dead(self) -> DeadLetters:
        """The dead letters of this store."""
        return DeadLetters(self._session)

    @property
    def jobs(self) -> Jobs:
        """The jobs of this store, to be cancelled, run now or retried in bulk."""
        return Jobs(self._session)

    def job(self, id: str | int, *, owner: str | None = None) -> JobRef:
        """The job of an id or number, as `Pipeline.enqueue` has given it. With ``owner``, a job of any other owner is unknown, as if it did not exist."""
        return JobRef(
            job_at(self._session.opened.reader, id, owner).id, False, self._session, owner
        )

    async def job_async(self, id: str | int, *, owner: str | None = None) -> JobRef:
        """As `job`, without blocking the event loop."""
        return await asyncio.to_thread(self.job, id, owner=owner)

    def get_run(self, named: str | int, *, owner: str | None = None) -> Run:
        """A run by its id, its number or its name. With ``owner``, a run of any other owner is unknown, as if it did not exist."""
        known_as = name_or_number("the name of a run", named)
        return Run(self._session, find_run(self._session.opened.reader, known_as, owner=owner))

    def runs(
        self, *, pipeline: str | None = None, owner: str | None = None, limit: int = 50
    ) -> list[Run]:
        """Runs, of one pipeline and one owner or of all, newest first; ``limit`` of them at most."""
        found = self._session.opened.reader.runs(pipeline=pipeline, owner=owner, limit=limit)
        return [Run(self._session, one) for one in found]

    def get_pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name; `UnknownName` says which there are."""
        if name not in self._pipelines:
            known = ", ".join(sorted(self._pipelines)) or "none"
            raise UnknownName(f"this app has no pipeline {name!r}; it has: {known}")
        return self._pipelines[name]

    def stats(self) -> Stats:
        """How many jobs stand where, what has happened since the store was made, and what jobs have died of.

        From tallies that are kept as jobs move: it costs the same, however many jobs there are. The fields are those of
        ``GET /api/stats``.
        """
        reader = self._session.opened.reader
        return Stats(reader.depths(), reader.flows(), reader.deaths())

    @property
    def pipelines(self) -> tuple[str, ...]:
        """The names of all pipelines."""
        return tuple(self._pipelines)

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self._session.url

    @property
    def settings(self) -> Settings:
        """The settings in force, and where each comes from."""
        return self._session.settings

    def gate(self, name: str) -> GateStanding:
        """How the gate of an upstream or a credential stands now, for a line to those who wait while it is held."""
        return standing_of(self._session, name)

    async def gate_async(self, name: str) -> GateStanding:
        """As `gate`, without blocking the event loop."""
        return await asyncio.to_thread(self.gate, name)

    def ready(self) -> None:
        """Connect to the store, and give every pipeline that is declared by now its place in it.

        A store that cannot be opened is told here, also where no pipeline is declared yet. It is done with the first enqueue, too. Call it yourself before you enqueue within a transaction of your own.
        """
        self._session.opened.reader.now()
        if not self._session.read_only:
            self._session.make_ready()

    def working(
        self,
        *,
        concurrency: int | None = None,
        queues: Collection[str] = (),
        categories: Collection[str] = (),
        **tuning: Any,
    ) -> EmbeddedWorker:
        """A worker inside this process: ``with app.working(concurrency=8): ...``, or ``async with``.

        It works from the beginning of the block to its end, which lets running stages finish within the
        grace and gives the rest back. ``tuning`` are settings: ``lease_ttl_s``, ``grace_s``, ``poll_s``.
        It serves the pipelines that are declared when it starts. Needs /proc. Jobs that were in hand when a
        process died are left to ``perdure worker``.
        """
        if "processes" in tuning:
            raise ConfigError(
                "a worker inside this process is this one process; for more of them, start beside it: "
                "perdure worker APP --processes N"
            )
        given = {"store": self.url, "concurrency": concurrency, **tuning}
        config = self.settings.with_given(given).config
        return EmbeddedWorker(self._session, config, queues=queues, categories=categories)

    @contextmanager
    def follow(self, *, owner: str | None = None, after: str | None = None) -> Iterator[Listener]:
        """Hear what happens: ``with app.follow() as listener: page = listener.take(wait_s=30)``.

        The entries of one owner's jobs and runs, or of everything; from now on, or after the cursor of a page that was
        taken before, in this process or another. All who listen share one reader of the store.
        """
        with self._session.feed.listening(owner, after) as listener:
            yield listener

    @contextmanager
    def following(
        self,
        changed: Callable[[Sequence[Change]], Any],
        *,
        begin: Callable[[], Any],
        away: tuple[type[Exception], ...] = (),
    ) -> Iterator[Callable[[], bool]]:
        """Have a table or a screen of yours go after the jobs, on a thread of its own, while the block runs.

        Each time it begins, ``begin()`` is to look at how things stand; then ``changed(entries)`` hears what has happened since,
        in order. It begins anew where the store is away, and after whatever you name in ``away``, as
        ``psycopg.OperationalError``; anything else that the two raise ends it. The block is given a function that says
        whether it goes on: for your health check.
        """
        thread = FollowThread(self.follow, begin, changed, away)
        thread.start()
        try:
            yield thread.is_well
        finally:
            thread.stop()

    def read_capture(self, id: str, *, owner: str | None = None) -> bytes:
        """Raw output that a stage has put aside; see `JobRef.captures` for the ids.

        With ``owner``, output of another owner's job is unknown, as if it did not exist; so are tracebacks, which are
        for those who look after the server.
        """
        found = self._session.opened.reader.capture(id, owner=owner)
        if found is None or (owner is not None and found[0].kind == TRACEBACK):
            raise UnknownName(f"there is no capture {id!r}; it may have been kept for long enough")
        return found[1]

    def close(self) -> None:
        """Disconnect from the store. An app is not used up by that: what is asked of it later connects it again."""
        self._session.close()

    def _log(self, event: Event) -> None:
        log_event(event, self._session.aliases_of)

    def _stage_of(self, pipeline: str, call: Callable[..., Any]) -> Stage:
        if not callable(call):
            raise ConfigError(
                f"pipeline {pipeline!r} was given {call!r:.80} for a stage; name its stages one after the other: "
                f"app.pipeline({pipeline!r}, first, second)"
            )
        if call not in self._stages:
            name = getattr(call, "__name__", repr(call))
            raise ConfigError(
                f"{name!r} in pipeline {pipeline!r} is not a stage of this app; "
                "put @app.stage above it"
            )
        return self._stages[call]


def _sync_policy(pipeline: str, policy: str | os.PathLike[str] | Policy) -> Policy:
    try:
        return terms_of(policy, 1.0, OnLost.HAND_OVER).policy
    except CallerError as wrong:
        raise ConfigError(f"sync_policy of pipeline {pipeline!r}: {wrong}") from None
