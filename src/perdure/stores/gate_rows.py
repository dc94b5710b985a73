"""Between the rows of gates and their nouns, the same for every store."""

from collections.abc import Iterable
from datetime import datetime

from perdure.model.gates import GateChange, GateLook, Samples, Slices
from perdure.model.jobs import Claim
from perdure.model.limits import SAMPLES_S_MAX
from perdure.model.operations import Deed
from perdure.stores.columns import GATE
from perdure.stores.moments import from_us, seconds_us
from perdure.stores.rows import Row

SAMPLES_US_MAX = seconds_us(SAMPLES_S_MAX)


class NoProbe(Exception):
    """No job waits that could be the probe: the change of the gate is taken back."""


def change_in(change: GateChange, deed: Deed, now: int) -> dict[str, object]:
    """A change, as `gate_add.sql` and `gate_change.sql` bind it."""
    held_for_s = change.held_for_s
    return {
        "name": change.name,
        "parent": change.parent,
        "state": change.state.value,
        "generation": change.generation,
        "reason": change.reason,
        "by_whom": deed.by_whom,
        "held_until": None if held_for_s is None else now + seconds_us(held_for_s),
        "control": change.control_json,
        "now": now,
    }


def failing_in(claim: Claim) -> dict[str, object]:
    """A claim, as `failing_since.sql` binds it."""
    return {"job": claim.no, "life": claim.life, "stage": claim.stage}


def failing_since(first: Row | None) -> datetime | None:
    """When the call of that attempt ended; it may have been settled later."""
    return None if first is None else from_us(first[0] + seconds_us(first[1]))


def slices_in(slices: Slices) -> dict[str, object]:
    """A parting of limits, as `slices_add.sql` and `slices_change.sql` bind it."""
    return {"gate": slices.gate, "generation": slices.generation, "slices": slices.slices_json}


def look_out(
    now: int,
    rows: Iterable[Row],
    samples: Iterable[Row],
    slices: Iterable[Row],
    alive: Iterable[int],
) -> GateLook:
    """All that was read about some gates."""
    return GateLook(
        from_us(now),
        tuple(GATE.read_all(rows)),
        tuple(Samples(gate, worker, told, from_us(at)) for gate, worker, told, at in samples),
        tuple(Slices(gate, generation, told) for gate, generation, told in slices),
        frozenset(alive),
    )
