"""Stages and pipelines as the engine knows them, and the catalogue in which it finds them."""

import hashlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from perdure.model.errors import ConfigError
from perdure.model.jobs import Lane
from perdure.model.limits import NAME_CHARS_MAX, PIPELINE_STAGES_MAX
from perdure.rules.checked import made, number
from perdure.rules.policy import Policy, Profile


@dataclass(frozen=True, slots=True)
class Stage:
    """A function with a policy and a time of its own."""

    name: str
    call: Callable[..., Any]
    policy: Policy
    timeout_s: float
    upstream: str | None = None
    is_async: bool = field(init=False)  # runs on the event loop, not on a thread
    wants_context: bool = field(init=False)
    config_hash: str = field(init=False)  # what the stage was when an attempt ran

    def __post_init__(self) -> None:
        check_name("stage", self.name)
        made(f"policy of stage {self.name!r}", self.policy, Policy)
        if inspect.isgeneratorfunction(self.call) or inspect.isasyncgenfunction(self.call):
            raise ConfigError(f"stage {self.name!r} is a generator; return one value instead")
        number(f"timeout_s of stage {self.name!r}", self.timeout_s, 0.0, 86_400.0)
        if self.timeout_s == 0:
            raise ConfigError(
                f"timeout_s of stage {self.name!r} is {self.timeout_s!r}; "
                "it must lie between 0 and 86400"
            )
        if self.policy.profile is Profile.SYNC:
            raise ConfigError(
                f"stage {self.name!r} has the policy {self.policy.name!r}, which is for callers "
                "that wait; a stage needs one of profile 'background'"
            )
        if _positional(self.call) not in (1, 2):
            raise ConfigError(f"stage {self.name!r} must take the item, or the item and a Context")

        seen = f"{self.name}|{self.policy!r}|{self.timeout_s}|{self.upstream}"
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.call))
        object.__setattr__(self, "wants_context", _positional(self.call) == 2)
        object.__setattr__(self, "config_hash", hashlib.sha256(seen.encode()).hexdigest()[:16])


@dataclass(frozen=True, slots=True)
class Line:
    """A pipeline laid out on its lanes, as a worker runs it."""

    name: str
    queue: str
    category: str
    stages: tuple[Stage, ...]
    lane_nos: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, name in (
            ("pipeline", self.name), ("queue", self.queue), ("category", self.category),
        ):  # fmt: skip
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

    def lanes(self) -> list[Lane]:
        """The lanes that the pipeline needs."""
        return [
            Lane(self.queue, self.category, self.name, stage.name, upstream=stage.upstream)
            for stage in self.stages
        ]

    def stage(self, name: str) -> Stage | None:
        """The stage of that name, as long as the pipeline still has it."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        return None

    def after(self, name: str) -> Stage | None:
        """The stage that follows, or None after the last."""
        names = [stage.name for stage in self.stages]
        place = names.index(name) + 1
        return self.stages[place] if place < len(names) else None


class Catalogue:
    """Every pipeline that this process knows."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = {line.name: line for line in lines}

    def line(self, pipeline: str) -> Line | None:
        """The pipeline of that name."""
        return self._lines.get(pipeline)

    def stage(self, pipeline: str, stage: str) -> Stage | None:
        """The stage of that name in that pipeline."""
        line = self._lines.get(pipeline)
        return None if line is None else line.stage(stage)

    def lane_nos(self) -> tuple[int, ...]:
        """The numbers of all known lanes."""
        return tuple(no for line in self._lines.values() for no in line.lane_nos.values())


def check_name(what: str, name: str) -> None:
    """Refuse a name that could not be stored or typed."""
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        raise ConfigError(
            f"{what} name {name!r} must have 1 to {NAME_CHARS_MAX} printable characters "
            "and no space at its ends"
        )


def _positional(call: Callable[..., Any]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(call).parameters.values()
    return sum(1 for one in parameters if one.kind in kinds and one.default is one.empty)
