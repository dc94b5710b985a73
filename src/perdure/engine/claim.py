"""claim: what one worker asks of the store in one turn.

A claim covers one stage. The token that comes with it is the only proof of holding the job: every
later write must show it, and whoever finds another token in the store has lost the job. A worker
asks only for what it has free slots for, only from lanes it knows, and, while it drains, for
nothing.
"""

from perdure.engine.stages import Catalogue
from perdure.model.jobs import ClaimOrder
from perdure.model.limits import CLAIM_BATCH_MAX


def order_for(
    catalogue: Catalogue, *, worker: int, isolation: int, slots: int, draining: bool
) -> ClaimOrder | None:
    """The order of this turn, or None when nothing may be claimed."""
    lanes = catalogue.lane_nos()
    if draining or slots <= 0 or not lanes:
        return None
    return ClaimOrder(worker, min(slots, CLAIM_BATCH_MAX), lanes, isolation)
