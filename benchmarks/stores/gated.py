"""What a million jobs behind a held gate cost: claims of another lane, looks at the gates, probes.

Two stores stand side by side and are measured in turns, one with a million held jobs and one with a few: a noisy
second disturbs both alike. Each claims from an open lane, while the lane of the held ones is asked for too.
"""

import time
from typing import Any

from benchmarks.stores.growth import Field, Times
from benchmarks.stores.ours import record
from benchmarks.stores.places import Places
from benchmarks.stores.work import FAILURE
from msgspec.structs import replace

from perdure.model.decisions import Counted
from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import Claim, ClaimOrder, Record
from perdure.model.operations import Deed

FEW = 200  # the first hundred are what a probe chooses from
WARM_UP = 20
GATE = "slow"
DEED = Deed("bench", "to see how long it takes")
_SAMPLES = {GATE: '{"samples":[]}'}


class GatedField(Field):
    """A store with so many held jobs; what it does for gates is timed beside its claims."""

    def __init__(self, url: str, *, rows: int) -> None:
        super().__init__(url, kind="held", rows=rows)
        self.looks, self.probes = Times(), Times()
        self._generation = 1

    def look(self) -> tuple[float, float]:
        """One look at the gates, with a word about our own calls; in ms."""
        return self._timed(self._looked)

    def probe(self) -> tuple[float, float]:
        """One probe out, on the clock; then it fails, and the gate is held again."""
        found: list[Any] = []
        times = self._timed(lambda: found.append(self._leased()))
        (probe,) = found
        if probe is None:
            raise AssertionError("no job was claimed as a probe")
        self.ours.store.turn([self._failed(probe.claim)], None, by=self.ours.worker)
        change = GateChange(GATE, self._generation + 1, GateState.HELD, reason="bench")
        assert self.ours.opened.control.change_gate(change, DEED) is not None
        self._generation += 2
        return times

    def _failed(self, claim: Claim) -> Record:
        """As the engine writes it: a probe's failure is counted as that, and the job waits on."""
        failed = record(claim, FAILURE, self.ours.worker)
        assert failed.attempt is not None
        attempt = replace(failed.attempt, status="waiting", counted=Counted.PROBES)
        counters = claim.counters.after_event(Counted.PROBES)
        return replace(failed, counters=counters, attempt=attempt)

    def _timed(self, call: Any) -> tuple[float, float]:
        cpu_ns, begun_s = self._cpu_ns(), time.perf_counter()
        call()
        wall_ms = (time.perf_counter() - begun_s) * 1e3
        return wall_ms, (self._cpu_ns() - cpu_ns) / 1e6

    def _looked(self) -> None:
        seen = self.ours.store.look_at_gates((GATE,), worker=self.ours.worker, samples=_SAMPLES)
        if [row.name for row in seen.rows] != [GATE]:
            raise AssertionError(f"saw {seen.rows}")

    def _leased(self) -> Any:
        order = ClaimOrder(self.ours.worker, 1, self.asked_lanes)
        change = GateChange(GATE, self._generation, GateState.PROBING, reason="bench")
        return self.ours.store.probe(order, change, DEED)


def measured(places: Places, scheme: str, held: int, samples: int) -> dict[str, Any]:
    """Each deed beside few held jobs and beside many, in turns; the first few rounds are left out."""
    with places.fresh(scheme) as few_url, places.fresh(scheme) as many_url:
        fields = {
            str(FEW): GatedField(few_url, rows=FEW),
            str(held): GatedField(many_url, rows=held),
        }
        try:
            places.rest()
            for number in range(min(WARM_UP, samples) + samples):
                for one in fields.values():
                    _round(one, kept=number >= min(WARM_UP, samples))
        finally:
            for one in fields.values():
                one.close()
        return {
            "claim of 100": {name: one.times.summary() for name, one in fields.items()},
            "look at gates": {name: one.looks.summary() for name, one in fields.items()},
            "probe": {name: one.probes.summary() for name, one in fields.items()},
        }


def _round(field: GatedField, *, kept: bool) -> None:
    for times, (wall_ms, cpu_ms) in (
        (field.times, field.measure()),
        (field.looks, field.look()),
        (field.probes, field.probe()),
    ):
        if kept:
            times.wall.append(wall_ms)
            times.cpu.append(cpu_ms)
