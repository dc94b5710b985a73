"""Upstreams as an app names them: what is behind a gate, how that gate judges, and what limits are known."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from perdure.engine.stages import Stage, check_name
from perdure.model.errors import ConfigError
from perdure.model.nouns import replace
from perdure.rules.field_checks import whole_number
from perdure.rules.gate.gate import GateSettings
from perdure.rules.gate.limit_allowance import UpstreamLimits
from perdure.rules.presets import gate_for

_PERIODS_S = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "min": 60.0,
    "m": 60.0,
    "minute": 60.0,
    "h": 3_600.0,
    "hour": 3_600.0,
    "day": 86_400.0,
    "d": 86_400.0,
}
CONCURRENCY_MAX = 100_000
PROBE_MORE_S = 30.0  # a probe is lost when its stage has had its time, and a little more
_RATE = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*(?:/|per)\s*([a-z]+)\s*")


class DeclaredUpstream(Struct, frozen=True):
    """Something outside that stages call. ``credential`` names the gate that it shares with others.

    ``health`` is asked instead of a job when the gate looks whether the upstream is back: it raises, or
    returns False, while that is not so.
    """

    name: str
    credential: str | None = None
    gate: GateSettings = GateSettings()
    limits: UpstreamLimits = UpstreamLimits()
    tokens_per_call: int = 0
    health: Callable[[], Any] | None = None
    health_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        check_name("upstream", self.name)
        if self.credential is not None:
            check_name("credential", self.credential)
        if self.tokens_per_call < 0:
            raise ConfigError(
                f"upstream {self.name!r}: tokens_per_call is {self.tokens_per_call}; "
                "it must not be below 0"
            )


@dataclass(slots=True)
class Upstreams:
    """Every upstream that this process knows; one that nobody has declared has the defaults."""

    declared: dict[str, DeclaredUpstream] = field(default_factory=dict)

    def declare(self, upstream: DeclaredUpstream) -> None:
        """Add one; a second word about the same name is refused."""
        if upstream.name in self.declared:
            raise ConfigError(f"upstream {upstream.name!r} is declared twice; declare it once")
        self.declared[upstream.name] = upstream
        self._check_apart()

    def of(self, stage: Stage) -> DeclaredUpstream | None:
        """The upstream that a stage is behind."""
        if stage.upstream is None:
            return None
        return self.declared.get(stage.upstream) or DeclaredUpstream(
            stage.upstream, gate=gate_for(stage.policy)
        )

    def all(self, stages: Iterable[Stage]) -> Mapping[str, DeclaredUpstream]:
        """The upstreams that these stages call, by name; an undeclared one has the gate of its first stage's policy.

        A probe's lease is at least as long as the longest of the stages may take.
        """
        found: dict[str, DeclaredUpstream] = {}
        for stage in stages:
            upstream = self.of(stage)
            if upstream is not None:
                known = found.setdefault(upstream.name, upstream)
                lease_s = max(known.gate.lease_s, stage.timeout_s + PROBE_MORE_S)
                found[known.name] = replace(known, gate=replace(known.gate, lease_s=lease_s))
        return dict(sorted(found.items()))

    def _check_apart(self) -> None:
        credentials = {one.credential for one in self.declared.values() if one.credential}
        for name in sorted(credentials & self.declared.keys()):
            raise ConfigError(
                f"{name!r} is the name of an upstream and of a credential; both have a gate, so name "
                "them apart"
            )


def upstream_limits(
    name: str,
    *,
    rate: str | float | None,
    concurrency: int | None,
    tokens: str | float | None,
) -> UpstreamLimits:
    """The stated limits of an upstream, checked."""
    if concurrency is not None:
        whole_number(f"upstream {name!r}: concurrency", concurrency, 1, CONCURRENCY_MAX)
    return UpstreamLimits(
        rate_per_s(f"upstream {name!r}: rate", rate),
        concurrency,
        rate_per_s(f"upstream {name!r}: tokens", tokens),
    )


def rate_per_s(what: str, rate: str | float | None) -> float | None:
    """A rate such as ``"500/min"``, ``"20/s"`` or a number per second, as a number per second."""
    if rate is None:
        return None
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        per_s = float(rate)
    else:
        found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
        period_s = None if found is None else _PERIODS_S.get(found[2])
        if found is None or period_s is None:
            raise ConfigError(
                f"{what} is {rate!r}; write it as '500/min', '20/s', '1000/hour' or as a number a second"
            )
        per_s = float(found[1].replace("_", "")) / period_s
    if not 0 < per_s < 1e9:
        raise ConfigError(
            f"{what} is {rate!r}; it must be more than nothing and less than 1e9 a second"
        )
    return per_s
