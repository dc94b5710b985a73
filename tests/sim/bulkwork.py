"""The line of execution in which a working process goes through bulk operations, as `app.bulkwork` has it."""

from typing import TYPE_CHECKING

from perdure.engine.operate.bulks import Bulks
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.bulk_duty import BulkSteps
from perdure.engine.upkeep.rounds import knowledge
from perdure.model.errors import StoreError
from perdure.model.views import JobView
from tests.sim.connected import Connected
from tests.sim.feeders import gone
from tests.sim.feeds import PIPELINES
from tests.sim.process import Process
from tests.sim.strand import Strand

if TYPE_CHECKING:
    from tests.sim.hosts import Machine

_ROUNDS_IDLE_MAX = 20  # as in the app


def check(job: JobView) -> str | None:
    """What the pipelines say of a source."""
    return "its source is gone" if gone(job.payload_json) else None


class BulkWork:
    """Lives while there are bulk operations, and dies with its process at any line."""

    def __init__(
        self, machine: "Machine", child: Process, catalogue: Catalogue, worker: int
    ) -> None:
        self._machine = machine
        self._child = child
        self._catalogue = catalogue
        self._worker = worker
        self._duty = f"bulks {knowledge(catalogue, ())}"
        self._alive = False

    def ring(self) -> None:
        """There are operations under way."""
        if self._alive or self._child.dead:
            return
        self._alive = True
        strand: Strand
        strand = self._machine.world.strand(
            f"{self._child.name} bulks", lambda: self._work(strand), self._child
        )

    def _work(self, strand: Strand) -> None:
        sides = self._machine.connect(strand, self._child)
        try:
            self._rounds(sides, strand)
        except StoreError:
            self._machine.world.seen["bulk work ended by the store"] += 1
        self._alive = False

    def _rounds(self, sides: Connected, strand: Strand) -> None:
        bulks = Bulks(
            sides.store,
            sides.control,
            sides.reader,
            self._catalogue,
            self._machine.observers,
            dict.fromkeys(PIPELINES, check),
        )
        steps = BulkSteps(bulks, sides.control, sides.reader, worker=self._worker, duty=self._duty)
        idle = 0
        while idle < _ROUNDS_IDLE_MAX:
            wait_s = steps.once()
            idle = 0 if wait_s == 0 else idle + 1
            strand.sleep(max(wait_s, 0.0001))
