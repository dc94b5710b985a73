"""How a gate comes to be held, and how it ceases to be without a probe. See `gate.py`."""

from datetime import datetime

from perdure.model.gates import GateState
from perdure.model.kinds import KINDS, Kind, PauseScope, Sign
from perdure.rules.gate.gate import (
    UNDECIDED_MAX,
    Gate,
    GateMove,
    GateSettings,
    HoldCause,
    Step,
    after,
    gap_s,
    latest,
    step_along,
)
from perdure.rules.gate.window import Window, answered_at, reading, sickness
from perdure.rules.sentence import because, seconds

_STRENGTH = tuple(HoldCause)


def trip(gate: Gate, settings: GateSettings, window: Window, now: datetime, chance: float) -> Step:
    """Hold the queue if the merged window is sick. Ask after every result, before its hint."""
    found = reading(window, settings.window, counts_from=gate.counts_from, now=now)
    why = sickness(found, settings.window)
    if why is None:
        return Step(gate)
    gap = _gap_so_far(gate, settings, now) + 1
    wait_s = gap_s(settings, gap, chance)
    return step_along(
        gate,
        GateMove.TRIP,
        now,
        f"held: {why}; a probe is due in {seconds(wait_s)}",
        cause=HoldCause.TRIP,
        reason=why,
        held_until=after(now, wait_s),
        probe_first=True,
        gap=gap,
        counts_from=gate.generation + 1,
        undecided=0,
        answered_at=latest(gate.answered_at, answered_at(window)),
    )


def hint(
    gate: Gate,
    settings: GateSettings,
    *,
    kind: Kind,
    generation: int,
    until: datetime | None,
    now: datetime,
    claimed_at: datetime | None = None,
) -> Step:
    """The upstream asked for a pause of the whole gate; None for one that only a person can end.

    ``kind``, ``generation`` and ``claimed_at`` are those of the call that was answered so. A credential's
    gate is told in the same way: it waits for the reset that was given, however far, or for a person.
    """
    overruled = generation < gate.hints_from and not _is_later(claimed_at, gate.spoken_at)
    if overruled or (until is not None and until <= now):
        return Step(gate)
    cause = HoldCause.HINT
    if KINDS[kind].scope is PauseScope.CREDENTIAL:
        cause = HoldCause.CREDENTIAL
    proof = gate.probe_first or KINDS[kind].sign is Sign.BAD or cause is HoldCause.CREDENTIAL
    endless = gate.until_person or until is None or _too_long(cause, until, settings, now)
    told_until = latest(gate.told_until, until)
    held_until = None if endless else latest(gate.held_until, told_until)
    keyed = gate.needs_answer or cause is HoldCause.CREDENTIAL
    asked = (held_until, told_until, endless, proof, keyed)
    known = (gate.held_until, gate.told_until, gate.until_person, gate.probe_first)
    if asked == (*known, gate.needs_answer):
        return Step(gate)
    return step_along(
        gate,
        GateMove.HINT,
        now,
        f"held {_how_long(held_until, now)}: {kind.value}",
        **_name_of_hold(gate, cause, kind.value),
        for_credential=keyed,
        held_until=held_until,
        told_until=told_until,
        until_person=endless,
        probe_first=proof,
        gap=_gap_so_far(gate, settings, now),
    )


def hold(gate: Gate, *, reason: str, until: datetime | None, now: datetime) -> Step:
    """A person holds the gate, until then or until a person releases it.

    The person's word replaces what was there, sooner or later, but not what the upstream asked
    for: to pass before that, release the gate.
    """
    held_until = None if until is None else latest(until, gate.told_until)
    if held_until is not None and held_until <= now:
        return Step(gate)
    return step_along(
        gate,
        GateMove.HOLD,
        now,
        because(f"held by a person {_how_long(held_until, now)}", reason),
        cause=HoldCause.PERSON,
        for_credential=gate.needs_answer,
        reason=reason,
        held_until=held_until,
        until_person=held_until is None,
        kept_until=None,
        gap=0 if gate.state is GateState.FLOWING else gate.gap,
    )


def release(gate: Gate, *, reason: str, now: datetime) -> Step:
    """A person lets the gate flow, whatever held it; it starts slowly all the same.

    Calls that are still out cannot undo it: neither their results nor their hints are heard.
    """
    era = gate.generation + 1
    return step_along(
        gate,
        GateMove.RELEASE,
        now,
        because("released by a person", reason),
        gap=0,
        proved_at=None,
        counts_from=era,
        hints_from=era,
        spoken_at=now,
    )


def resume(gate: Gate, now: datetime) -> Step:
    """The time of the hold is over and nothing has to be proved: flow again.

    After a rate limit the window and the pace go on as they were; nothing was wrong with them.
    """
    if gate.held_until is None or now < gate.held_until or gate.probe_first:
        return Step(gate)
    gave_up = gate.undecided >= UNDECIDED_MAX and not gate.needs_answer
    goes_on = gate.cause is HoldCause.HINT and not gave_up
    text = "flowing: the time of the hold is over"
    if gave_up:
        text = f"flowing: {gate.undecided} probes in a row said nothing about the upstream"
    return step_along(
        gate,
        GateMove.RESUME,
        now,
        text,
        counts_from=gate.counts_from if goes_on else gate.generation + 1,
    )


def _is_later(moment: datetime | None, than: datetime | None) -> bool:
    return moment is not None and than is not None and moment > than


def _too_long(cause: HoldCause, until: datetime, settings: GateSettings, now: datetime) -> bool:
    return cause is HoldCause.HINT and until > after(now, settings.hint_s_max)


def _name_of_hold(gate: Gate, cause: HoldCause, reason: str) -> dict[str, object]:
    """The stronger of two causes gives the hold its name; of equals, the newer."""
    if gate.cause is not None and _STRENGTH.index(gate.cause) > _STRENGTH.index(cause):
        return {"cause": gate.cause, "reason": gate.reason}
    return {"cause": cause, "reason": reason}


def _gap_so_far(gate: Gate, settings: GateSettings, now: datetime) -> int:
    """The gaps used up by this outage; one that comes back soon after a recovery is the same.

    But something did work in between, so half of them are forgiven: an upstream that fails every
    third call would otherwise be held for ever longer, and serve nobody.
    """
    if gate.state is not GateState.FLOWING:
        return gate.gap
    if gate.proved_at is None or (now - gate.proved_at).total_seconds() >= settings.relapse_s:
        return 0
    return gate.gap // 2


def _how_long(until: datetime | None, now: datetime) -> str:
    if until is None:
        return "until a person releases it"
    return f"for {seconds((until - now).total_seconds())}"
