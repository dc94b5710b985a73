"""Bugs of gates, put back on purpose: as other breakers had them, or as ours once did."""

from typing import Any

import pytest

from perdure.engine.gates import gatekeeper as gatekeeper_module
from perdure.engine.gates.gatekeeper import Gatekeeper
from perdure.engine.gates.limit_shares import LimitShares
from perdure.engine.gates.traffic import Traffic
from perdure.model.gates import GateState
from perdure.model.kinds import Sign
from perdure.model.nouns import replace
from perdure.rules.decide import FLOWING
from perdure.rules.gate import hold as hold_module, probe as probe_module
from perdure.rules.gate.gate import Gate, Step
from perdure.rules.gate.signs import Word
from tests.sim import storms
from tests.sim.mutants import Mutant, both, reworded

_VIEW = "FROM perdure_closed_lanes"


def probing_counts_as_flowing(patch: pytest.MonkeyPatch) -> None:
    """Whoever finds a probe out takes the gate for open."""
    held = GateState.HELD

    def flowing(passage: Traffic) -> bool:
        above = passage.credential
        return passage.gate.state is not held and (above is None or above.state is not held)

    patch.setattr(Traffic, "flowing", property(flowing))


def late_results_count(patch: pytest.MonkeyPatch) -> None:
    """The result of any probe is taken for that of the one that is out."""
    right = gatekeeper_module.end_probe

    def probed(gate: Gate, settings: Any, *, generation: int, **rest: Any) -> Step:
        return right(gate, settings, generation=gate.generation, **rest)

    patch.setattr(gatekeeper_module, "end_probe", probed)


def the_last_hint_stands(patch: pytest.MonkeyPatch) -> None:
    """Of two pauses the one that was heard last is made."""

    def latest(*moments: Any) -> Any:
        return next((one for one in reversed(moments) if one is not None), None)

    patch.setattr(hold_module, "latest", latest)


def probes_are_never_lost(patch: pytest.MonkeyPatch) -> None:
    """A probe is waited for, for as long as it takes."""
    patch.setattr(gatekeeper_module, "lose_probe", lambda gate, *_, **__: Step(gate))


def failures_count_while_held(patch: pytest.MonkeyPatch) -> None:
    """Who settles does not look at the gate."""
    right = Gatekeeper.end_call

    def ended(gatekeeper: Gatekeeper, *args: Any) -> Any:
        seen = right(gatekeeper, *args)
        return seen if seen.probe else FLOWING

    patch.setattr(Gatekeeper, "end_call", ended)


def hints_are_kept_to_oneself(patch: pytest.MonkeyPatch) -> None:
    """A pause that was asked for is made by the job that heard of it, and by no other."""
    patch.setattr(Gatekeeper, "hear_decision", lambda *_: None)


def nothing_is_set_aside(patch: pytest.MonkeyPatch) -> None:
    """What goes on to its next stage is forgotten when the next jobs are claimed."""
    right = Gatekeeper.may_carry_on

    def may_carry_on(gatekeeper: Gatekeeper, upstream: str | None) -> bool:
        may = right(gatekeeper, upstream)
        gatekeeper.forget_promises()
        return may

    patch.setattr(Gatekeeper, "may_carry_on", may_carry_on)


def only_the_innocent_probe(patch: pytest.MonkeyPatch) -> None:
    """Where only suspects wait behind a gate, nobody looks whether the upstream is back."""
    right = Gatekeeper.probe

    def probe(gatekeeper: Gatekeeper, *, isolation: int, check: Any) -> Any:
        return None if isolation else right(gatekeeper, isolation=isolation, check=check)

    patch.setattr(Gatekeeper, "probe", probe)


def suspects_have_no_slices(patch: pytest.MonkeyPatch) -> None:
    """What waits for suspects' workers is not seen when limits are parted."""
    right = LimitShares.once

    def once(slicing: LimitShares, *args: Any, isolation: int = 0, free: int = 0) -> bool:
        return right(slicing, *args, free=free)

    patch.setattr(LimitShares, "once", once)


def nobody_gives_up(patch: pytest.MonkeyPatch) -> None:
    """Probes that say nothing of the upstream are followed by others, however many there were."""
    patch.setattr(probe_module, "UNDECIDED_MAX", 1_000_000)


def every_gate_needs_an_answer(patch: pytest.MonkeyPatch) -> None:
    """Whatever it is held for, only a good answer frees it, and it says so of itself."""
    patch.setattr(Gate, "needs_answer", property(lambda gate: gate.probe_first))


def every_probe_tells_of_its_job(patch: pytest.MonkeyPatch) -> None:
    """A probe that fails is held against its job, whether others were answered or not."""

    def about(word: Word, *_: Any, **__: Any) -> Word:
        return Word(Sign.NEITHER, word.kind, of_job=True) if word.sign is Sign.BAD else word

    patch.setattr(gatekeeper_module, "word_about", about)


def failures_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Probes that say nothing are counted in all, not in a row."""
    right = probe_module._hold_again

    def again(gate: Gate, *args: Any) -> Step:
        step = right(gate, *args)
        return replace(step, gate=replace(step.gate, undecided=gate.undecided))

    patch.setattr(probe_module, "_hold_again", again)


GATES = (
    Mutant(
        "half-open without limit", ("S11",),
        both(
            probing_counts_as_flowing,
            reworded("closed_lane_nos", _VIEW, f"{_VIEW} WHERE closed_by NOT LIKE '% is probing'"),
        ),
        storms.only_upstreams,
    ),
    Mutant("a late result lets the gate flow", ("S11",), late_results_count, storms.short_probes),
    Mutant(
        "a second hint shortens the first", ("S11",), the_last_hint_stands, storms.only_upstreams
    ),
    Mutant("a lost probe freezes the gate", ("L1", "L9"), probes_are_never_lost, storms.upstreams_and_kills),
    Mutant(
        "silent probes go on for ever", ("L11",), nobody_gives_up, storms.defects_behind_a_gate
    ),
    Mutant(
        "every gate says that it needs an answer", ("L11",), every_gate_needs_an_answer,
        storms.defects_behind_a_gate,
    ),
    Mutant(
        "the store lets pass what a gate holds", ("S11",),
        reworded("closed_lane_nos", _VIEW, f"{_VIEW} WHERE gate IS NULL"),
        storms.upstreams_and_a_slow_store,
    ),
    Mutant(
        "a failure counts while its gate is held", ("E10",), failures_count_while_held,
        storms.only_upstreams,
    ),
    Mutant(
        "a hint is kept to oneself", ("S11",), hints_are_kept_to_oneself, storms.only_upstreams
    ),
    Mutant(
        "a gate is written whatever it has become", ("E9", "S11"),
        reworded("gate_change", "AND generation = :generation", "AND :generation IS :generation"),
        storms.only_upstreams,
    ),
    Mutant(
        "limits are parted whoever was quicker", ("E9", "S10"),
        reworded("slices_change", "AND generation = :generation", "AND :generation IS :generation"),
        storms.only_upstreams,
    ),
    Mutant(
        "the living are taken for dead when limits are parted", ("S10",),
        reworded("workers_alive", "dead_at IS NULL", "dead_at IS NOT NULL"),
        storms.only_upstreams,
    ),
    Mutant(
        "what carries on is not counted", ("S10",), nothing_is_set_aside, storms.only_limits
    ),
    Mutant(
        "only the innocent probe", ("L1",), only_the_innocent_probe, storms.suspects_behind_a_gate
    ),
    Mutant(
        "a probe that failed is forgotten", ("S11",), failures_are_forgotten,
        storms.defects_behind_a_gate,
    ),
    Mutant(
        "every probe that fails is held against its job", ("S7", "S11", "E10"), every_probe_tells_of_its_job,
        storms.only_upstreams,
    ),
    Mutant("suspects have no slices", ("L1",), suspects_have_no_slices, storms.upstreams_and_kills),
)  # fmt: skip
