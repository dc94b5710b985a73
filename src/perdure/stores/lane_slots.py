"""How the slots of an order are parted among its lanes; the same on every store."""

from perdure.model.jobs import ClaimOrder, Part
from perdure.model.limits import CLAIM_BATCH_MAX


def slots_of(order: ClaimOrder) -> int:
    """How many jobs one turn hands out at most."""
    return min(order.slots, CLAIM_BATCH_MAX)


def parts_of(order: ClaimOrder) -> list[Part]:
    """The parts that may take something, each with what it may take, in the order of serving."""
    left, parts = slots_of(order), []
    for part in order.parts:
        slots = min(part.slots, left)
        if slots > 0:
            parts.append(Part(tuple(dict.fromkeys(part.lanes)), slots))
            left -= slots
    return parts


def lanes_of(order: ClaimOrder) -> tuple[int, ...]:
    """All lanes from which the order may be served, each once."""
    if not order.parts:
        return tuple(dict.fromkeys(order.lanes))
    asked = (lane for part in order.parts if part.slots > 0 for lane in part.lanes)
    return tuple(dict.fromkeys((*asked, *order.lanes)))
