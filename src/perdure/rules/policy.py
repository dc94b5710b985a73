"""Policy is data: a frozen, versioned value that says what to do about each failure kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind
from perdure.model.limits import DELAY_S_MAX, HINT_S_MAX
from perdure.rules.backoff import Backoff, Jitter, one_of, within


class Action(StrEnum):
    """What a rule does about a failure kind."""

    RETRY = "retry"  # counted as a failure
    WAIT = "wait"  # ordered by the upstream: counted as a wait, not as a failure
    FAIL = "fail"


class HintMode(StrEnum):
    """What a server's wait hint does to the computed delay."""

    FLOOR = "floor"  # never earlier than the hint
    EXACT = "exact"  # the hint replaces the computed delay
    IGNORE = "ignore"


class Scope(StrEnum):
    """Whose counters the limits look at."""

    STAGE = "stage"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Rule:
    """What to do about one kind; what is None is taken from the policy."""

    action: Action
    attempts_max: int | None = None
    backoff: Backoff | None = None
    jitter: Jitter | None = None
    hint: HintMode | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", one_of("rule.action", Action, self.action))
        if self.hint is not None:
            object.__setattr__(self, "hint", one_of("rule.hint", HintMode, self.hint))
        if self.attempts_max is not None:
            _count("rule.attempts_max", self.attempts_max, 1)


RETRY = Rule(Action.RETRY)
FAIL = Rule(Action.FAIL)


@dataclass(frozen=True, slots=True)
class Policy:
    """How failures of a stage are answered. ``attempts_max`` counts total tries, the first included.

    Three things have limits of their own: failures (``attempts_max``), waits that the upstream
    ordered (``waits_max``, ``wait_s_max`` in all) and crashes of the worker (``crashes_max``).
    """

    name: str
    version: int = 1
    attempts_max: int = 3
    waits_max: int = 20
    wait_s_max: float = 86_400.0
    crashes_max: int = 3
    snoozes_max: int = 1_000
    backoff: Backoff = Backoff()
    jitter: Jitter = Jitter()
    hint: HintMode = HintMode.FLOOR
    hint_s_max: float = HINT_S_MAX
    rules: Mapping[Kind, Rule] = field(default_factory=dict)
    otherwise: Rule = FAIL
    scope: Scope = Scope.STAGE
    crash_is_failure: bool = False

    def __post_init__(self) -> None:
        _count("attempts_max", self.attempts_max, 1)
        _count("waits_max", self.waits_max, 0)
        _count("crashes_max", self.crashes_max, 1)
        _count("snoozes_max", self.snoozes_max, 0)
        within("wait_s_max", self.wait_s_max, 0.0, 100 * DELAY_S_MAX)
        within("hint_s_max", self.hint_s_max, 0.0, DELAY_S_MAX)
        object.__setattr__(self, "hint", one_of("hint", HintMode, self.hint))
        object.__setattr__(self, "scope", one_of("scope", Scope, self.scope))
        rules = {one_of("rules", Kind, kind): rule for kind, rule in self.rules.items()}
        object.__setattr__(self, "rules", MappingProxyType(rules))

    def rule(self, kind: Kind) -> Rule:
        """The rule for a kind."""
        return self.rules.get(kind, self.otherwise)

    @property
    def label(self) -> str:
        """Name and version, as stored with every attempt."""
        return f"{self.name}/{self.version}"


def _count(field_name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or not least <= value <= 1_000_000:
        raise ConfigError(f"{field_name} is {value!r}; it must lie between {least} and 1000000")
