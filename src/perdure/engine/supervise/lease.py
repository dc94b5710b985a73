"""The lease: one row per working process, beaten by its supervisor.

Always true: a lease belongs to a working process, not to a job, so 5,000 jobs in flight cost one
update. The supervisor beats every third of the lease for as long as the process runs, and not at
all while it is stopped or gone. Who is dead is the store's word: a refused beat means that the
process has been declared dead and has to be killed. A beat that cannot be sent means nothing.

A stopped process may stand in the line of the store's writers and keep everybody from writing.
So while a child of ours is stopped, we beat even if there is nobody to beat for: a beat that gets no
answer shows that the store is blocked. While the store is away we beat at every round: only an answer
shows that it is back.
"""

from collections.abc import Sequence

from perdure.ports import Clock, Store

_AGAIN_S = 0.25


class Lease:
    """The beating step for all working processes of one supervisor."""

    def __init__(self, store: Store, clock: Clock, *, ttl_s: float) -> None:
        self._store = store
        self._clock = clock
        self._ttl_s = ttl_s
        self._next_at = self._accepted_at = clock.monotonic()

    @property
    def silent_s(self) -> float:
        """How long no beat has been accepted."""
        return self._clock.monotonic() - self._accepted_at

    def once(
        self, workers: Sequence[int], *, at_once: bool = False, for_nobody: bool = False
    ) -> frozenset[int]:
        """Beat when it is time; the workers that were refused."""
        now = self._clock.monotonic()
        if not workers and not for_nobody:
            self._accepted_at = now
            return frozenset()
        if now < self._next_at and not at_once:
            return frozenset()
        self._next_at = now + min(_AGAIN_S, self._ttl_s / 3)  # unless the store answers
        accepted = self._store.beat(workers)
        self._next_at, self._accepted_at = now + self._ttl_s / 3, self._clock.monotonic()
        return frozenset(workers) - accepted
