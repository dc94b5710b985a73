"""What the tests of gates share: a start of time, gates in each state, windows of given results."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from perdure.model.kinds import KINDS, Kind, Sign
from perdure.model.nouns import replace
from perdure.rules.gate.gate import Gate, GateMove, GateSettings, Step
from perdure.rules.gate.hold import hint, trip
from perdure.rules.gate.probe import end_probe, lease
from perdure.rules.gate.signs import WELL, Word
from perdure.rules.gate.window import Sample, Window

START = datetime(2030, 1, 1, tzinfo=UTC)
MIDDLE = 0.5  # the chance at which a proportional jitter adds nothing
SETTINGS = GateSettings()
DOWN = Kind.UPSTREAM_UNAVAILABLE
SIGNS = {True: Sign.BAD, False: Sign.GOOD, None: None}


def said(kind: Kind | None) -> Word:
    """What a call says that ended so, with nothing known but its kind; None is a success."""
    return WELL if kind is None else Word(KINDS[kind].sign, kind)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def window_of(
    results: Iterable[bool | None], *, generation: int = 0, took_s: float = 0.0
) -> Window:
    """Calls sent a second apart: True failed, False succeeded, None is in flight."""
    return Window(
        tuple(
            Sample(generation, at(number), f"{number:04}", SIGNS[failed], took_s)
            for number, failed in enumerate(results)
        )
    )


def sick(generation: int = 0) -> Window:
    return window_of([True] * 20, generation=generation)


def tripped(gate: Gate | None = None, settings: GateSettings = SETTINGS, t: float = 0.0) -> Gate:
    gate = gate or Gate("model")
    step = trip(gate, settings, sick(gate.generation), at(t), MIDDLE)
    assert step.move is GateMove.TRIP
    return step.gate


def probing(gate: Gate | None = None, settings: GateSettings = SETTINGS) -> tuple[Gate, datetime]:
    """A gate whose probe has just been leased, and that moment."""
    gate = gate or tripped(settings=settings)
    assert gate.held_until is not None
    step = lease(gate, settings, gate.held_until)
    assert step.move is GateMove.LEASE
    return step.gate, gate.held_until


def hinted(gate, until, *, kind=Kind.RATE_LIMITED, generation=None, t=0.0, settings=SETTINGS):
    generation = gate.generation if generation is None else generation
    return hint(gate, settings, kind=kind, generation=generation, until=until, now=at(t))


def recovered(gap, t):
    """A gate that flows since ``t``, after so many gaps."""
    gate, _ = probing(replace(tripped(), gap=gap))
    step = end_probe(
        gate, SETTINGS, word=WELL, generation=gate.generation, now=at(t), chance=MIDDLE
    )
    return step.gate


class Row:
    """The control row: a step is written only over the generation that it was made from."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def write(self, read: Gate, step: Step) -> bool:
        if step.move is None or self.gate.generation != read.generation:
            return False
        self.gate = step.gate
        return True
