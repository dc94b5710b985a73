"""How a held gate finds out that its upstream is back: one leased probe at a time. See `gate.py`.

The k-th probe is due min(2 s × k, 120 s) ± 20 % after the last one ended: 7 in the first minute of
an outage, 51 in 45 minutes, 329 in ten hours, however many jobs are waiting.
"""

from datetime import datetime

from perdure.model.gates import GateState
from perdure.model.kinds import KINDS, PauseScope, Sign
from perdure.model.nouns import replace
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
from perdure.rules.gate.hold import hint
from perdure.rules.gate.signs import Word
from perdure.rules.gate.window import Window, answered_at
from perdure.rules.sentence import because, seconds


def probe_due(gate: Gate, now: datetime) -> bool:
    """Whether some worker should ask for the probe's lease."""
    return (
        gate.state is GateState.HELD
        and gate.probe_first
        and gate.held_until is not None
        and now >= gate.held_until
    )


def lease(gate: Gate, settings: GateSettings, now: datetime, *, by: int | None = None) -> Step:
    """Take the probe. It carries the generation of the gate that this leads to."""
    if not probe_due(gate, now):
        return Step(gate)
    lease_until = after(now, settings.lease_s)
    return step_along(
        gate, GateMove.LEASE, now, "a probe is out", lease_until=lease_until, lease_by=by
    )


def word_about(word: Word, gate: Gate, window: Window, *, failing_since: datetime | None) -> Word:
    """What a probe says whose job had been ``failing_since``: about the job, where others were answered after that.

    Where nothing else waits, an item that always fails would otherwise hold the gate for ever, and never end.
    """
    answered = latest(gate.answered_at, answered_at(window))
    if word.sign is not Sign.BAD or failing_since is None or answered is None:
        return word
    return Word(Sign.NEITHER, word.kind, of_job=True) if failing_since < answered else word


def end_probe(
    gate: Gate,
    settings: GateSettings,
    *,
    word: Word,
    generation: int,
    until: datetime | None = None,
    answered_at: datetime | None = None,
    now: datetime,
    chance: float,
) -> Step:
    """The probe ended; ``word`` is what it says, ``until`` the pause that it was told to make.

    It ended at ``answered_at``, or else just now: whoever had it may have been late to say so.

    The result of a probe that is no longer the one that is out says nothing, except for its hint.
    """
    kind = word.kind
    if gate.state is not GateState.PROBING or generation != gate.generation:
        if kind is None or until is None:
            return Step(gate)
        return hint(gate, settings, kind=kind, generation=generation, until=until, now=now)
    if word.sign is Sign.GOOD or kind is None:
        return _pass_step(gate, settings, word, answered_at or now, now)
    if gate.needs_answer and KINDS[kind].scope is PauseScope.CREDENTIAL:
        return hint(gate, settings, kind=kind, generation=generation, until=until, now=now)
    step = _miss_step(gate, settings, word, now, chance)
    if until is None:
        return step
    told = hint(step.gate, settings, kind=kind, generation=generation, until=until, now=now)
    if told.move is None:
        return step
    keep = word.sign is Sign.BAD or KINDS[kind].scope is PauseScope.CREDENTIAL
    proof = told.gate.probe_first if keep else step.gate.probe_first
    gate = replace(told.gate, generation=step.gate.generation, probe_first=proof)
    return Step(gate, step.move, told.text)


def lose_probe(
    gate: Gate,
    settings: GateSettings,
    now: datetime,
    chance: float,
    *,
    died: int | None = None,
) -> Step:
    """The probe's lease ran out, or the worker that had it has ``died``.

    Another is due after the same gap, and a late result is stale.
    """
    orphaned = died is not None and gate.lease_by == died
    if gate.lease_until is None or (now < gate.lease_until and not orphaned):
        return Step(gate)
    return _hold_again(gate, settings, GateMove.LOSE, "the probe was lost", now, chance)


def hurry(gate: Gate, *, reason: str, now: datetime) -> Step:
    """A person wants to know now: a probe is due at once, whatever the upstream asked for.

    If it fails, the gate is held as before: until a person, as long as a person has said, or for the gap.
    """
    by_person = gate.cause is HoldCause.PERSON
    return step_along(
        gate,
        GateMove.HURRY,
        now,
        because("a probe is due: a person asked for it", reason),
        held_until=now,
        kept_until=latest(gate.kept_until, gate.held_until) if by_person else None,
        told_until=None,
        probe_first=True,
        hints_from=gate.generation + 1,
        spoken_at=now,
    )


def _pass_step(
    gate: Gate, settings: GateSettings, word: Word, answered_at: datetime, now: datetime
) -> Step:
    passes = gate.passes + 1
    proof = "succeeded" if word.kind is None else f"was answered ({word.label})"
    text = f"probe {passes} of {settings.flow_after} {proof}"
    if passes < settings.flow_after:
        due_at = latest(now, gate.held_until)
        return step_along(
            gate,
            GateMove.PASS,
            now,
            text,
            passes=passes,
            held_until=due_at,
            undecided=0,
            answered_at=answered_at,
        )
    era = gate.generation + 1
    text = f"flowing: {text}"
    return step_along(
        gate, GateMove.FLOW, now, text, proved_at=now, counts_from=era, answered_at=answered_at
    )


def _miss_step(
    gate: Gate, settings: GateSettings, word: Word, now: datetime, chance: float
) -> Step:
    if word.sign is Sign.BAD:
        return _hold_again(
            gate, settings, GateMove.MISS, f"the probe failed: {word.label}", now, chance
        )
    undecided = gate.undecided + 1
    asked = "credential" if gate.needs_answer else "upstream"
    text = f"the probe says nothing about the {asked}: {word.label}"
    by_person = gate.until_person or gate.kept_until is not None
    if undecided < UNDECIDED_MAX or by_person or gate.needs_answer:
        step = _hold_again(gate, settings, GateMove.UNDECIDED, text, now, chance)
        return replace(step, gate=replace(step.gate, undecided=undecided))
    text = f"{text}; {undecided} in a row, so calls start again, slowly"
    due_at = latest(now, gate.told_until)
    changes = {"held_until": due_at, "probe_first": False, "undecided": undecided}
    return step_along(gate, GateMove.UNDECIDED, now, text, **changes)


def _hold_again(
    gate: Gate, settings: GateSettings, move: GateMove, text: str, now: datetime, chance: float
) -> Step:
    """Held again. Only a failure of the upstream makes the gap longer and the count start anew.

    After a probe that says nothing another job soon says more. Behind a credential that does not go on for
    ever: nothing but a good answer frees it.
    """
    missed = move is GateMove.MISS
    gap, passes, undecided = max(gate.gap, 1), gate.passes, gate.undecided
    if missed:
        gap, passes, undecided = gate.gap + 1, 0, 0
    if gate.until_person:
        text = f"{text}; held until a person releases it"
        return step_along(
            gate, move, now, text, held_until=None, gap=gap, passes=passes, undecided=undecided
        )
    soon = move is GateMove.UNDECIDED and undecided + 1 < UNDECIDED_MAX
    if move is GateMove.UNDECIDED and not soon:
        gap += 1
    wait_s = gap_s(settings, 1 if soon else gap, chance)
    due_at = after(now, wait_s)
    if gate.kept_until is not None and gate.kept_until > due_at:
        due_at, wait_s = gate.kept_until, (gate.kept_until - now).total_seconds()
    text = f"{text}; the next is due in {seconds(wait_s)}"
    changes = {"held_until": latest(due_at, gate.held_until), "kept_until": None}
    return step_along(gate, move, now, text, **changes, gap=gap, passes=passes, undecided=undecided)
