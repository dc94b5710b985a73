"""Stages and pipelines as the engine knows them, and the catalogue in which it finds them."""

import hashlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from msgspec import Struct

from perdure.engine.stage_parameters import (
    ItemType,
    check_parameters,
    context_parameter,
    function_behind,
)
from perdure.model.errors import BugError, ConfigError
from perdure.model.jobs import Claim, Lane
from perdure.model.limits import NAME_CHARS_MAX, PIPELINE_STAGES_MAX, TIMEOUT_S_MAX
from perdure.model.nouns import replace
from perdure.model.views import JobView
from perdure.rules.field_checks import instance, number
from perdure.rules.foreign_code import member_of, text_of
from perdure.rules.policy import Policy, Profile, Scope

_MODULE_CHARS_MAX = 4_096  # of a module's name


def package_of(module: object) -> str:
    """The outermost package of a module, by its name."""
    return (text_of(module, _MODULE_CHARS_MAX) or "").partition(".")[0]


class Callee(Struct, frozen=True):
    """What has to be known of a function to call it as a stage; ``home`` is the package that it is defined in."""

    call: Callable[..., Any]
    is_async: bool
    context: inspect.Parameter | None  # which parameter it has for the Context
    shape: ItemType
    home: str

    @classmethod
    def of(cls, call: Callable[..., Any]) -> "Callee":
        """What a function says of itself."""
        return cls(
            call,
            is_async=inspect.iscoroutinefunction(call),
            context=context_parameter(call),
            shape=ItemType(call),
            home=package_of(member_of(function_behind(call), "__module__")),
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """A function with a policy and a time of its own.

    With ``process`` it runs in a child of the worker's process, which imports it by its name.
    """

    name: str
    call: Callable[..., Any]
    policy: Policy
    timeout_s: float
    upstream: str | None = None
    process: bool = False
    callee: Callee = field(init=False, repr=False, compare=False)
    config_hash: str = field(init=False)  # what the stage was when an attempt ran

    def __post_init__(self) -> None:
        check_name("stage", self.name)
        instance(f"policy of stage {self.name!r}", self.policy, Policy)
        if inspect.isgeneratorfunction(self.call) or inspect.isasyncgenfunction(self.call):
            raise ConfigError(f"stage {self.name!r} is a generator; return one value instead")
        number(f"timeout_s of stage {self.name!r}", self.timeout_s, 0.0, TIMEOUT_S_MAX)
        if self.timeout_s == 0:
            raise ConfigError(
                f"timeout_s of stage {self.name!r} is {self.timeout_s!r}; "
                f"it must be more than 0 and at most {TIMEOUT_S_MAX:g}"
            )
        if self.policy.profile is Profile.SYNC:
            raise ConfigError(
                f"stage {self.name!r} has the policy {self.policy.name!r}, which is for callers "
                "that wait; a stage needs one of profile 'background'"
            )
        if self.upstream is not None:
            check_name("upstream", self.upstream)
        check_parameters(self.name, self.call)
        if self.process:
            _check_importable(self.name, self.call)
            _check_returns(self.name, function_behind(self.call))

        seen = f"{self.name}|{self.policy!r}|{self.timeout_s}|{self.upstream}|{self.process}"
        object.__setattr__(self, "callee", Callee.of(self.call))
        object.__setattr__(self, "config_hash", hashlib.sha256(seen.encode()).hexdigest()[:16])

    @property
    def is_async(self) -> bool:
        """Whether it runs on an event loop, not on a thread."""
        return self.callee.is_async

    @property
    def wants_context(self) -> bool:
        """Whether it takes a Context."""
        return self.callee.context is not None


@dataclass(frozen=True, slots=True)
class LaidPipeline:
    """A pipeline laid out on its lanes, as a worker runs it.

    ``deadline_s`` is the total time of a job that brings none of its own: the smallest of the stages' policies. ``aliases``
    are the second names of fields that the vocabularies of these policies bring; where two differ, the earlier stage's.
    """

    name: str
    queue: str
    category: str
    stages: tuple[Stage, ...]
    lane_nos: dict[str, int] = field(default_factory=dict)
    _beside: dict[int, dict[str, int]] = field(default_factory=dict, repr=False, compare=False)
    _places: dict[str, int] = field(init=False, repr=False, compare=False)
    deadline_s: float | None = field(init=False, repr=False, compare=False)
    aliases: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for what, name in (
            ("pipeline", self.name),
            ("queue", self.queue),
            ("category", self.category),
        ):
            check_name(what, name)
        names = [stage.name for stage in self.stages]
        if not 1 <= len(names) <= PIPELINE_STAGES_MAX:
            raise ConfigError(
                f"pipeline {self.name!r} has {len(names)} stages; "
                f"it must have 1 to {PIPELINE_STAGES_MAX}"
            )
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"pipeline {self.name!r} has the stage {name!r} twice; name them apart"
                )
        object.__setattr__(self, "_places", {name: place for place, name in enumerate(names)})
        object.__setattr__(self, "deadline_s", shortest_s(one.policy for one in self.stages))
        aliases: dict[str, str] = {}
        for one in reversed(self.stages):
            aliases |= one.policy.vocabulary.aliases
        object.__setattr__(self, "aliases", aliases)

    def lanes(self, run: int | None = None) -> list[Lane]:
        """The lanes that the pipeline needs, for its jobs outside of runs or for those of one."""
        return [self.lane(stage, run) for stage in self.stages]

    def lane(self, stage: Stage, run: int | None = None) -> Lane:
        """The lane of one stage."""
        return Lane(
            self.queue, self.category, self.name, stage.name, run=run, upstream=stage.upstream
        )

    def lay(self, beside: dict[int, dict[str, int]]) -> None:
        """Know the lanes of runs, each with those of its run by stage, and no others."""
        object.__setattr__(self, "_beside", beside)  # at once, for whoever reads it meanwhile

    def lane_beside(self, lane: int, stage: str) -> int:
        """The lane of a stage in the run whose lane this one is; outside of runs, if it is none's."""
        return self._beside.get(lane, self.lane_nos)[stage]

    def stage(self, name: str) -> Stage | None:
        """The stage of that name, as long as the pipeline still has it."""
        place = self._places.get(name)
        return None if place is None else self.stages[place]

    def after(self, name: str) -> Stage | None:
        """The stage that follows, or None after the last."""
        place = self._places[name] + 1
        return self.stages[place] if place < len(self.stages) else None

    def counts_past(self, stage: Stage) -> bool:
        """Whether this stage or a later one counts what happened to a job in the stages before it."""
        return any(one.policy.scope is Scope.JOB for one in self.stages[self._places[stage.name] :])


def shortest_s(policies: Iterable[Policy]) -> float | None:
    """The smallest total time that policies allow a job, or None."""
    return min((one.deadline_s for one in policies if one.deadline_s is not None), default=None)


def _every(lane: Lane) -> bool:
    return True


class Catalogue:
    """Every pipeline that this process knows, and which of their lanes it serves.

    What is known and not served is neither claimed nor swept here, and left to other workers. The lanes of runs
    come and go: `learn` says which there are.
    """

    def __init__(
        self, pipelines: Iterable[LaidPipeline], *, serves: Callable[[Lane], bool] = _every
    ) -> None:
        # Lines of our own: what one worker of a process knows of runs is not what another one does.
        self._pipelines = {laid.name: replace(laid, _beside={}) for laid in pipelines}
        self._serves = serves
        # Lane: whose it is, and of which run.
        self._runs: dict[int, tuple[LaidPipeline, Stage, int]] = {}

    def only(
        self, *, queues: Collection[str] = (), categories: Collection[str] = ()
    ) -> "Catalogue":
        """The same, serving only these queues and categories; none named means all."""

        def serves(lane: Lane) -> bool:
            return (not queues or lane.queue in queues) and (
                not categories or lane.category in categories
            )

        return Catalogue(self._pipelines.values(), serves=serves)

    def lanes(self) -> list[Lane]:
        """All known lanes outside of runs, served or not."""
        return [lane for laid in self._pipelines.values() for lane in laid.lanes()]

    def learn(self, found: Mapping[int, Lane]) -> list[Lane]:
        """Serve these lanes of runs and no others; those that stages of such a run still lack.

        A pipeline may have got another stage since a run of it began.
        """
        by_run: dict[tuple[str, int], dict[str, int]] = {}
        old: dict[tuple[str, int], list[int]] = {}  # of a run that began in another queue
        served: dict[int, tuple[LaidPipeline, Stage, int]] = {}
        for no, lane in found.items():
            laid = self._pipelines.get(lane.pipeline)
            if laid is None or lane.run is None:
                continue
            lanes = by_run.setdefault((laid.name, lane.run), {})
            if (lane.queue, lane.category) == (laid.queue, laid.category):
                lanes[lane.stage] = no
            else:
                lanes.setdefault(lane.stage, no)
                old.setdefault((laid.name, lane.run), []).append(no)
            stage = laid.stage(lane.stage)
            if stage is not None and self._serves(lane):
                served[no] = (laid, stage, lane.run)
        beside: dict[str, dict[int, dict[str, int]]] = {name: {} for name in self._pipelines}
        for (name, run), lanes in by_run.items():
            beside[name].update(dict.fromkeys((*old.get((name, run), ()), *lanes.values()), lanes))
        for name, laid in self._pipelines.items():
            laid.lay(beside[name])
        self._runs = served
        return [
            lane
            for (name, run), lanes in by_run.items()
            for lane in self._pipelines[name].lanes(run)
            if lane.stage not in lanes
        ]

    def run_of(self, lane: int) -> int | None:
        """The run whose lane this is."""
        known = self._runs.get(lane)
        return None if known is None else known[2]

    def pipeline(self, pipeline: str) -> LaidPipeline | None:
        """The pipeline of that name."""
        return self._pipelines.get(pipeline)

    def stage(self, pipeline: str, stage: str) -> Stage | None:
        """The stage of that name in that pipeline."""
        laid = self._pipelines.get(pipeline)
        return None if laid is None else laid.stage(stage)

    def place_of(self, job: Claim | JobView) -> tuple[LaidPipeline, Stage] | None:
        """The pipeline and the stage that a job is in, if this app has them."""
        laid = self._pipelines.get(job.pipeline)
        stage = None if laid is None else laid.stage(job.stage)
        return None if laid is None or stage is None else (laid, stage)

    def place_of_ours(self, claim: Claim) -> tuple[LaidPipeline, Stage]:
        """As `place_of`, for a job that was claimed here: only lanes that are known are claimed from."""
        place = self.place_of(claim)
        if place is None:
            raise BugError(f"claimed stage {claim.stage!r} of {claim.pipeline!r}, unknown here")
        return place

    def lane_nos(self) -> tuple[int, ...]:
        """The numbers of all lanes that are served."""
        if self._serves is _every:
            own = tuple(no for laid in self._pipelines.values() for no in laid.lane_nos.values())
        else:
            own = tuple(
                laid.lane_nos[lane.stage]
                for laid in self._pipelines.values()
                for lane in laid.lanes()
                if lane.stage in laid.lane_nos and self._serves(lane)
            )
        return own + tuple(self._runs) if self._runs else own

    def stages(self) -> list[Stage]:
        """All stages whose lanes are served."""
        served = set(self.lane_nos())
        return [
            stage
            for laid in self._pipelines.values()
            for stage in laid.stages
            if laid.lane_nos.get(stage.name) in served
        ]

    def lanes_behind(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the lanes that are served, by the upstream that they are behind."""
        behind: dict[str, list[int]] = {}
        for no, stage in self._stage_by_lane():
            if stage.upstream is not None:
                behind.setdefault(stage.upstream, []).append(no)
        return {upstream: tuple(lanes) for upstream, lanes in behind.items()}

    def timeouts_s(self) -> dict[int, float]:
        """How long a stage may take, by the numbers of the lanes that are served."""
        return {no: stage.timeout_s for no, stage in self._stage_by_lane()}

    def carries_on(self, pipeline: str, stage: str) -> bool:
        """Whether the stage after this one, if there is one, is served here, too."""
        if self._serves is _every:
            return True
        laid = self._pipelines.get(pipeline)
        following = None if laid is None else laid.after(stage)
        return laid is None or following is None or self._serves(laid.lane(following))

    def _stage_by_lane(self) -> Iterator[tuple[int, Stage]]:
        served = set(self.lane_nos())
        for laid in self._pipelines.values():
            for stage in laid.stages:
                no = laid.lane_nos.get(stage.name)
                if no in served and no is not None:
                    yield no, stage
        for no, (_, stage, _) in self._runs.items():
            yield no, stage


def check_name(what: str, name: str) -> None:
    """Refuse a name that could not be stored or typed."""
    if not isinstance(name, str):
        raise ConfigError(f"{what} name {name!r:.80} is no text; give it a name first")
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        raise ConfigError(
            f"{what} name {name!r} must have 1 to {NAME_CHARS_MAX} printable characters "
            "and no space at its ends"
        )


def _check_importable(name: str, call: Callable[..., Any]) -> None:
    """Refuse what another process cannot find by module and name."""
    why = ""
    if not inspect.isfunction(call):
        why = f"{type(call).__name__} is no plain function"
    elif "<lambda>" in call.__qualname__:
        why = "a lambda has no name"
    elif "<locals>" in call.__qualname__:
        why = f"{call.__qualname__} is defined inside a function"
    elif call.__module__ == "__main__":
        why = "its module is the program itself, __main__, which nobody can import"
    if why:
        raise ConfigError(
            f"stage {name!r} has process=True and would be imported by name in a child process, "
            f"but {why}; define it with def at the top of a module that can be imported"
        )


def _check_returns(name: str, call: object) -> None:
    """Refuse a stage whose code completes its job itself: a child process has no way to the store.

    What a stage calls elsewhere is not seen here, and is refused when it is called.
    """
    if any("complete" in code.co_names and has_word(code, "within") for code in codes_in(call)):
        raise ConfigError(
            f"stage {name!r} has process=True and calls complete(within=...), but a child process has no "
            "way to the store; declare it without process=True, or let the next stage write the rows"
        )


def codes_in(call: object) -> Iterator[CodeType]:
    """The code of a function, and of those that are defined in it."""
    left = [getattr(call, "__code__", None)]
    while left:
        code = left.pop()
        if isinstance(code, CodeType):
            yield code
            left += [one for one in code.co_consts if isinstance(one, CodeType)]


def has_word(code: CodeType, word: str) -> bool:
    """Whether it passes an argument of this name: the names of a call's arguments are one constant."""
    return any(isinstance(one, tuple) and word in one for one in code.co_consts)
