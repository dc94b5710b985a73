"""Whether a duty has to be written, from what is seen of it; the same on every store."""

from perdure.stores.rows import Row


def standing(seen: Row | None, *, worker: int, ttl_us: int) -> bool | None:
    """Whether this worker has the duty; None when it may take or has to renew it, which is a write.

    ``seen`` is a row of `duty_seen.sql`: who has it, for how long yet, and whether that one is alive. A
    duty is renewed when less than half of its time is left. What is seen may be old when it is
    acted upon: the write has the same guards.
    """
    if seen is None:
        return None
    holder, left_us, alive = seen
    if holder != worker:
        return False if alive and left_us > 0 else None
    if not alive:
        return False
    return None if left_us * 2 < ttl_us else True
