"""How a process is set up: its settings, its times, the retries of others, the address that it listens at."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from perdure.model.diagnoses import Diagnosis
from perdure.rules.diagnosis.lines import fail, first_few, ok, warn

_PAGE = "docs/howto-policies.md#switch-other-retries-off"
_BEATS_S_SHARE = 0.1  # a beat that takes longer than this of a lease leaves two chances, not three
_NESTED_MAX = 20
_GRACES_MAX = 2.0  # the default timeout is two default graces; few attempts run to their limit


def settings_diagnosis(
    file: str | None, at_odds: Sequence[str], misspelt: Sequence[tuple[str, str]]
) -> Diagnosis:
    """Settings that do not fit together, or that set nothing."""
    if at_odds:
        return fail("settings", first_few(at_odds), "no worker starts before that is mended")
    if misspelt:
        text = first_few([f"{name} sets nothing" for name, _ in misspelt])
        meant = ", ".join(f"{one} in place of {name}" for name, one in misspelt)
        return warn("settings", text, f"name it as the setting is named: {meant}")
    return ok("settings", "no settings file is read" if file is None else f"from {file}")


def lease_diagnosis(
    *,
    lease_ttl_s: float,
    grace_s: float,
    overrun_s: float,
    overrun_said: bool,
    round_trip_s: float,
) -> Diagnosis:
    """The lease against what it has to outlast. Beats come from a process of their own, so stages may outlast it."""
    margin_s = grace_s + lease_ttl_s
    if round_trip_s > _BEATS_S_SHARE * lease_ttl_s:
        return warn(
            "lease",
            f"the store takes {round_trip_s:.2g} s to answer, and a worker is dead after {lease_ttl_s:g} s without a beat",
            f"set lease_ttl_s to at least {round_trip_s / _BEATS_S_SHARE:.2g}, or bring the store nearer",
        )
    if overrun_said and overrun_s < margin_s:
        return warn(
            "lease",
            f"overrun_s is {overrun_s:g} and has no effect: it is never less than grace_s and lease_ttl_s together, "
            f"{margin_s:g} s",
            "leave overrun_s out, or shorten the other two",
        )
    return ok(
        "lease",
        f"{lease_ttl_s:g} s, and a beat every {lease_ttl_s / 3:.3g} s from a process of its own: a stage may take longer",
    )


def grace_diagnosis(grace_s: float, timeouts_s: Mapping[str, float]) -> Diagnosis:
    """The grace at shutdown against the timeouts of stages."""
    longest = max(timeouts_s.values(), default=0.0)
    cut = [f"{name!r} {one:g} s" for name, one in timeouts_s.items() if one > _GRACES_MAX * grace_s]
    if cut:
        return warn(
            "grace",
            f"grace_s is {grace_s:g} and stages may take much longer: {first_few(cut)}; what is cut off at a shutdown "
            "counts as nothing, and is paid for again",
            f"set grace_s to {longest:g}, and let whoever stops the worker wait as long",
        )
    return ok(
        "grace", f"{grace_s:g} s at a shutdown; the longest timeout of a stage is {longest:g} s"
    )


def retries_diagnosis(nested: Sequence[str]) -> Diagnosis:
    """Retries that others make inside of an attempt."""
    if nested:
        return warn("retries", first_few(nested, _NESTED_MAX), f"switch these off: {_PAGE}")
    return ok(
        "retries",
        "none is to be seen inside of the stages; clients that libraries make themselves, and retries of a proxy, are not seen",
    )


def listen_diagnosis(host: str, *, tokens: int, good: int) -> Diagnosis:
    """The address of the HTTP API against the tokens of the store."""
    if is_loopback(host):
        return ok("listen", f"{host} is reached from this machine only")
    if not good:
        what = "the store has no token" if not tokens else "no token of the store is good any more"
        return fail(
            "listen",
            f"{host} is reached from other machines, and {what}",
            "make one: perdure token create --name … --owner … --scope submit; or listen at 127.0.0.1",
        )
    return ok(
        "listen",
        f"{host} is reached from other machines, by {good} good {'token' if good == 1 else 'tokens'}; "
        "whether TLS stands before it is not seen",
    )


def is_loopback(host: str) -> bool:
    """Whether an address is reached from its own machine only."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
