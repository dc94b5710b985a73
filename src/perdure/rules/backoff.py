"""How long to wait after the n-th failure: four curves, four jitters, clamp first, then jitter.

The cap bounds the *base* delay. Jitter is added after it, so that clients at the cap still spread
out instead of all sleeping the identical time; a delay may therefore exceed the cap by the
jitter's own share.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, assert_never

from perdure.model.errors import ConfigError
from perdure.model.limits import DELAY_S_MAX
from perdure.rules.field_checks import number, one_of

_N_MAX = 2**62  # far above every counter, and still a number that a float can hold


class Curve(StrEnum):
    """The shape of a backoff."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"
    SCHEDULE = "schedule"


class Spread(StrEnum):
    """The shape of a jitter."""

    NONE = "none"
    PROPORTIONAL = "proportional"
    ADDITIVE = "additive"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Backoff:
    """A curve: ``base_s`` after the first failure, growing by the curve's rule up to ``cap_s``.

    ``steps_s`` belongs to ``schedule`` alone: the n-th step after the n-th failure, the last one
    from then on.
    """

    curve: Curve = Curve.EXPONENTIAL
    base_s: float = 2.0
    factor: float = 2.0
    cap_s: float | None = 300.0
    steps_s: tuple[float, ...] = ()

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(
            self,
            curve: Curve | Literal["exponential", "linear", "fixed", "schedule"] = ...,
            base_s: float = 2.0,
            factor: float = 2.0,
            cap_s: float | None = 300.0,
            steps_s: tuple[float, ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "curve", one_of("backoff.curve", Curve, self.curve))
        number("backoff.base_s", self.base_s, 0.0, DELAY_S_MAX)
        number("backoff.factor", self.factor, 1.0, 100.0)
        if self.cap_s is not None:
            number("backoff.cap_s", self.cap_s, 0.0, DELAY_S_MAX)
        for step_s in self.steps_s:
            number("backoff.steps_s", step_s, 0.0, DELAY_S_MAX)
        if (self.curve is Curve.SCHEDULE) != bool(self.steps_s):
            raise ConfigError(
                f"backoff.steps_s is {self.steps_s!r} with curve {self.curve.value!r}; "
                "give steps for 'schedule', and only for it"
            )


@dataclass(frozen=True, slots=True)
class Jitter:
    """A spread around the base delay.

    ``proportional``: ± ``ratio`` of it. ``additive``: up to ``add_s_max`` more. ``full``: anything
    from nothing to all of it.
    """

    spread: Spread = Spread.PROPORTIONAL
    ratio: float = 0.25
    add_s_max: float = 0.0

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(
            self,
            spread: Spread | Literal["none", "proportional", "additive", "full"] = ...,
            ratio: float = 0.25,
            add_s_max: float = 0.0,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "spread", one_of("jitter.spread", Spread, self.spread))
        number("jitter.ratio", self.ratio, 0.0, 1.0)
        number("jitter.add_s_max", self.add_s_max, 0.0, DELAY_S_MAX)


def base_delay_s(backoff: Backoff, failures: int) -> float:
    """The clamped delay after the ``failures``-th failure, counted from 1."""
    cap_s = DELAY_S_MAX if backoff.cap_s is None else min(backoff.cap_s, DELAY_S_MAX)
    return min(_unclamped_s(backoff, min(max(failures, 1), _N_MAX)), cap_s)


def jittered_s(jitter: Jitter, base_s: float, chance: float) -> float:
    """The delay with its jitter; ``chance`` is uniform in [0, 1)."""
    match jitter.spread:
        case Spread.NONE:
            return base_s
        case Spread.PROPORTIONAL:
            return base_s * (1.0 + jitter.ratio * (2.0 * chance - 1.0))
        case Spread.ADDITIVE:
            return base_s + jitter.add_s_max * chance
        case Spread.FULL:
            return base_s * chance
        case _:  # pragma: no cover
            assert_never(jitter.spread)


def _unclamped_s(backoff: Backoff, n: int) -> float:
    match backoff.curve:
        case Curve.EXPONENTIAL:
            return _exponential_s(backoff.base_s, backoff.factor, n)
        case Curve.LINEAR:
            return backoff.base_s * n
        case Curve.FIXED:
            return backoff.base_s
        case Curve.SCHEDULE:
            return backoff.steps_s[min(n, len(backoff.steps_s)) - 1]
        case _:  # pragma: no cover
            assert_never(backoff.curve)


def _exponential_s(base_s: float, factor: float, n: int) -> float:
    try:
        return base_s * factor ** (n - 1)
    except OverflowError:
        return DELAY_S_MAX if base_s else 0.0
