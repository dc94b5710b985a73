"""Policy is data: a frozen, versioned value that says what to do about each failure kind."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from perdure.model.errors import ConfigError
from perdure.model.kinds import GROUPS, Kind
from perdure.model.limits import DELAY_S_MAX, HINT_S_MAX
from perdure.model.nouns import replace
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.field_checks import flag, instance, nearest, number, one_of, text, whole_number
from perdure.rules.matchers import Match
from perdure.rules.vocabulary import KIND_NAMES, Vocabulary

COUNT_MAX = 1_000_000


class Action(StrEnum):
    """What a rule does about a failure kind."""

    RETRY = "retry"  # try again, counted as a failure
    WAIT = "wait"  # try again, ordered by the upstream: counted as a wait, not as a failure
    HOLD = "hold"  # as wait, and hold everything that shares the upstream or credential
    FAIL = "fail"  # give up: a dead letter
    HAND_OVER = "hand_over"  # leave it to a durable job; for the sync profile


ActionName = Literal["retry", "wait", "hold", "fail", "hand_over"]


class HintMode(StrEnum):
    """What a server's wait hint does to the computed delay."""

    FLOOR = "floor"  # never earlier than the hint
    EXACT = "exact"  # the hint replaces the computed delay
    IGNORE = "ignore"  # the computed delay alone


class Scope(StrEnum):
    """Whose counters the limits look at."""

    STAGE = "stage"  # those of the stage, which begin again with each stage
    JOB = "job"  # those of the job, over all its stages


class Profile(StrEnum):
    """Where the waiting happens: in the store, or inside a caller's request."""

    BACKGROUND = "background"  # in the store: a worker goes on when it is time
    SYNC = "sync"  # inside the call of somebody who waits


HINTED = frozenset({Kind.RATE_LIMITED, Kind.QUOTA_WINDOW, Kind.OVERLOADED})


@dataclass(frozen=True, slots=True)
class Hints:
    """What wait hints do. ``counted`` says whether a hinted retry spends an attempt.

    A hint over ``s_max`` is never shortened: the job fails, and the upstream is held until a person
    releases it. The backoff's cap never limits a hint.
    """

    mode: HintMode = HintMode.FLOOR
    counted: bool = True
    s_max: float = HINT_S_MAX
    kinds: frozenset[Kind] = HINTED

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(
            self,
            mode: HintMode | Literal["floor", "exact", "ignore"] = ...,
            counted: bool = True,
            s_max: float = HINT_S_MAX,
            kinds: Collection[Kind | str] = HINTED,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", one_of("hint.mode", HintMode, self.mode))
        flag("hint.counted", self.counted)
        number("hint.s_max", self.s_max, 0.0, DELAY_S_MAX)
        if not isinstance(self.kinds, frozenset | set | list | tuple):
            raise ConfigError(f"hint.kinds is {self.kinds!r}; it must be a set of kinds")
        kinds = frozenset(one_of("hint.kinds", Kind, kind) for kind in self.kinds)
        object.__setattr__(self, "kinds", kinds)


def _parts(prefix: str, backoff: object, jitter: object, hint: object) -> None:
    for name, value, cls in (
        ("backoff", backoff, Backoff),
        ("jitter", jitter, Jitter),
        ("hint", hint, Hints),
    ):
        if value is not None or not prefix:
            instance(prefix + name, value, cls)


@dataclass(frozen=True, slots=True)
class Rule:
    """What to do about one kind; what is None is taken from the policy.

    But where the action is hold, and it holds more than the job, ``heed_server`` is False unless it is said here.
    """

    action: Action
    attempts_max: int | None = None
    backoff: Backoff | None = None
    jitter: Jitter | None = None
    hint: Hints | None = None
    heed_server: bool | None = None

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(
            self,
            action: Action | ActionName,
            attempts_max: int | None = None,
            backoff: Backoff | None = None,
            jitter: Jitter | None = None,
            hint: Hints | None = None,
            heed_server: bool | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", one_of("rule.action", Action, self.action))
        _parts("rule.", self.backoff, self.jitter, self.hint)
        if self.attempts_max is not None:
            whole_number("rule.attempts_max", self.attempts_max, 1, COUNT_MAX)
        if self.heed_server is not None:
            flag("rule.heed_server", self.heed_server)


RETRY = Rule(Action.RETRY)
WAIT = Rule(Action.WAIT)
FAIL = Rule(Action.FAIL)
HAND_OVER = Rule(Action.HAND_OVER)

KindName = TypeVar("KindName", bound=str)  # a kind, or the name of one or of a group of them
Retriable = Literal["all", "none"] | tuple[int | str, ...] | None
OwnDelay = Callable[[int, Kind], float]


class FilePath(Protocol):
    """The path of a file, as `pathlib` has them."""

    def __fspath__(self) -> str:
        """The path as text."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """How failures of a stage are answered. ``attempts_max`` counts total tries, the first included.

    Three things have limits of their own: failures (``attempts_max``), waits that the upstream
    ordered (``waits_max``, ``wait_s_max`` in all) and crashes of the worker (``crashes_max``).

    With ``weak_share`` a failure that the upstream is to blame for is a wait while at least that share of the
    latest calls of everybody fails: it says more about the upstream than about the item.

    ``deadline_s`` is the total time of a job that brings none of its own, waits and holds included: the
    smallest of its pipeline's policies, fixed when it is enqueued. It counts from when the job may begin (``run_at``,
    for a job that has one), and from the start again for each new life.

    A kind with a rule follows its rule; ``rules`` may also name a group of kinds (``transient``), which stands
    for those of its kinds that are not named beside it. Any other follows ``retriable``, if that is given: ``all``,
    ``none``, or a list of HTTP statuses, exception names, kinds and groups of kinds; what the list does not name fails. Without a
    ``retriable``, any other follows ``otherwise``; the two do not go together. ``matches`` come before the built-in table that names kinds. ``own_delay`` is a
    function of your own, (failures, kind) → seconds; it exists in Python only.
    """

    name: str
    version: int = 1
    profile: Profile = Profile.BACKGROUND
    scope: Scope = Scope.STAGE
    attempts_max: int = 3
    waits_max: int = 20
    wait_s_max: float = 7 * 86_400.0
    weak_share: float | None = None
    crashes_max: int = 3
    snoozes_max: int = 1_000
    crash_is_failure: bool = False
    deadline_s: float | None = None
    inline_s_max: float | None = None
    exhausted: Action = Action.FAIL
    heed_server: bool = True
    backoff: Backoff = Backoff()
    jitter: Jitter = Jitter()
    hint: Hints = Hints()
    rules: Mapping[Kind, Rule] = field(default_factory=dict)
    retriable: Retriable = None
    otherwise: Rule = FAIL
    matches: tuple[Match, ...] = ()
    vocabulary: Vocabulary = KIND_NAMES
    own_delay: OwnDelay | None = None

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(
            self,
            name: str,
            version: int = 1,
            profile: Profile | Literal["background", "sync"] = Profile.BACKGROUND,
            scope: Scope | Literal["stage", "job"] = Scope.STAGE,
            attempts_max: int = 3,
            waits_max: int = 20,
            wait_s_max: float = 7 * 86_400.0,
            weak_share: float | None = None,
            crashes_max: int = 3,
            snoozes_max: int = 1_000,
            crash_is_failure: bool = False,
            deadline_s: float | None = None,
            inline_s_max: float | None = None,
            exhausted: Action | Literal["fail", "hand_over"] = Action.FAIL,
            heed_server: bool = True,
            backoff: Backoff = ...,
            jitter: Jitter = ...,
            hint: Hints = ...,
            rules: Mapping[KindName, Rule | str] = ...,
            retriable: Retriable | list[int | str] = None,
            otherwise: Rule | ActionName = FAIL,
            matches: Sequence[Match] = (),
            vocabulary: Vocabulary = KIND_NAMES,
            own_delay: OwnDelay | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        text("name", self.name, 100)
        whole_number("version", self.version, 1, COUNT_MAX)
        whole_number("attempts_max", self.attempts_max, 1, COUNT_MAX)
        whole_number("waits_max", self.waits_max, 0, COUNT_MAX)
        whole_number("crashes_max", self.crashes_max, 1, COUNT_MAX)
        whole_number("snoozes_max", self.snoozes_max, 0, COUNT_MAX)
        number("wait_s_max", self.wait_s_max, 0.0, DELAY_S_MAX)
        if self.weak_share is not None:
            number("weak_share", self.weak_share, 0.01, 1.0)
        flag("crash_is_failure", self.crash_is_failure)
        flag("heed_server", self.heed_server)
        for name in ("deadline_s", "inline_s_max"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), 0.0, DELAY_S_MAX)
        if self.deadline_s == 0:
            raise ConfigError(
                "deadline_s is 0, so nothing would ever begin; give more, or leave it out"
            )
        for name, names in (("profile", Profile), ("scope", Scope), ("exhausted", Action)):
            object.__setattr__(self, name, one_of(name, names, getattr(self, name)))
        if self.exhausted not in (Action.FAIL, Action.HAND_OVER):
            raise ConfigError(f"exhausted is {self.exhausted.value!r}; one of: fail, hand_over")
        _parts("", self.backoff, self.jitter, self.hint)
        object.__setattr__(self, "rules", MappingProxyType(rules_by_kind(self.rules)))
        object.__setattr__(self, "otherwise", _rule("otherwise", self.otherwise))
        if not isinstance(self.matches, list | tuple):
            raise ConfigError(f"matches is {self.matches!r}; it must be a list of Match")
        for match in self.matches:
            instance("matches", match, Match)
        object.__setattr__(self, "matches", tuple(self.matches))
        if self.own_delay is not None and not callable(self.own_delay):
            raise ConfigError(f"own_delay is {self.own_delay!r}; it must be a function")
        instance("vocabulary", self.vocabulary, Vocabulary)
        self._check_profile()
        object.__setattr__(self, "retriable", _retriable(self.retriable))
        if self.retriable is not None and self.otherwise != FAIL:
            raise ConfigError(
                f"retriable is {self.retriable!r}, which answers every kind without a rule, so otherwise "
                f"({self.otherwise.action.value}) would never be asked; leave one of them out"
            )

    def _check_profile(self) -> None:
        actions = {rule.action for rule in (*self.rules.values(), self.otherwise)}
        hands_over = Action.HAND_OVER in (actions | {self.exhausted})
        if self.profile is Profile.BACKGROUND and (hands_over or self.inline_s_max is not None):
            raise ConfigError(
                "hand_over and inline_s_max belong to profile 'sync'; this policy's profile is "
                "'background'"
            )
        if self.profile is Profile.SYNC and self.weak_share is not None:
            raise ConfigError(
                f"weak_share is {self.weak_share!r}, and this policy's profile is 'sync': a caller does not wait "
                "until an upstream is better; leave weak_share out"
            )

    @classmethod
    def based_on(
        cls,
        other: "str | Policy",
        *,
        name: str,
        rules: Mapping[KindName, Rule | str] | None = None,
        **changes: Any,
    ) -> "Policy":
        """A preset, or another policy, with some fields changed and ``rules`` laid over its own.

        A group in ``rules`` is laid over every rule of its kinds. The version is 1 unless another is given. A policy
        that is made ``sync`` does not inherit ``weak_share``.
        """
        known = {one.name for one in fields(cls)}
        for field_name in changes:
            if field_name not in known:
                raise ConfigError(
                    f"policy has no field {field_name!r}; {nearest(field_name, tuple(known))}"
                )
        found = policy_of(other)
        if changes.get("profile") == Profile.SYNC:
            changes = {"weak_share": None, **changes}
        changes = {"version": 1, **changes}
        over = rules_by_kind({} if rules is None else rules)
        return replace(found, name=name, rules={**found.rules, **over}, **changes)

    @classmethod
    def load(cls, path: str | FilePath) -> "Policy":
        """The policy in a TOML or JSON file, as `perdure policy check` reads it."""
        if not LOADERS:
            raise ConfigError(
                f"cannot read {path!r}: nobody here reads files; import perdure first"
            )
        return LOADERS[0](path)

    @property
    def label(self) -> str:
        """Name and version, as stored with every attempt."""
        return f"{self.name}/{self.version}"


# The presets, which are made of this file's classes and put here by theirs.
NAMED: dict[str, Policy] = {}
LOADERS: list[Callable[[str | FilePath], Policy]] = []  # put here by whoever may read files

# The kinds of which rules speak.
RULED = tuple(kind for kind in Kind if kind is not Kind.WORKER_LOST)
_NO_RULE = (
    "'worker_lost', which no rule answers; how often a crash is tried again is crashes_max, "
    "and crash_is_failure counts it among the failures"
)


def policy_of(policy: object) -> Policy:
    """The policy that another one is based on: a preset's name, or a policy."""
    if isinstance(policy, str) and policy in NAMED:
        return NAMED[policy]
    if not isinstance(policy, Policy):
        known = nearest(policy if isinstance(policy, str) else "", NAMED)
        raise ConfigError(f"based_on is {policy!r}; {known}; or give a Policy")
    return policy


def rules_by_kind(rules: Mapping[Any, Any]) -> dict[Kind, Rule]:
    """The rule of each kind; a kind's own goes before its group's, wherever it stands."""
    own: dict[Kind, Rule] = {}
    grouped: dict[Kind, Rule] = {}
    instance("rules", rules, Mapping)
    for name, value in rules.items():
        if name in GROUPS:
            grouped |= dict.fromkeys(sorted(GROUPS[name]), _rule(f"rules.{name}", value))
        elif name == Kind.WORKER_LOST:
            raise ConfigError(f"rules names {_NO_RULE}")
        elif name in tuple(Kind):
            own[Kind(name)] = _rule(f"rules.{name}", value)
        else:
            raise ConfigError(
                f"rules names {name!r}, which is no kind of failure; {nearest(str(name), RULED)}; "
                f"or a group of kinds: {', '.join(GROUPS)}"
            )
    return grouped | own


def _rule(field: str, value: object) -> Rule:
    if isinstance(value, str):
        return Rule(one_of(field, Action, value))
    instance(field, value, Rule)
    assert isinstance(value, Rule)
    return value


def _retriable(value: object) -> Retriable:
    if value is None or value == "all" or value == "none":  # noqa: PLR1714 - narrows the type
        return value
    if not isinstance(value, list | tuple):
        raise ConfigError(f"retriable is {value!r}; give 'all', 'none' or a list")
    listed: list[str | int] = []
    for one in value:
        status = isinstance(one, int) and not isinstance(one, bool) and 100 <= one <= 599
        if not status and not (isinstance(one, str) and one):
            raise ConfigError(
                f"retriable holds {one!r}; give HTTP statuses, exception names, failure kinds or groups of them"
            )
        if one == Kind.WORKER_LOST:
            raise ConfigError(f"retriable holds {_NO_RULE}")
        listed += sorted(GROUPS[one]) if one in GROUPS else [one]
    return tuple(listed)
