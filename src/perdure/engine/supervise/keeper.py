"""The keeper: a small process that beats for a worker which lives inside somebody else's process.

Always true:

* The host is not ours: it is never killed, stopped or signalled. All that the keeper does about it is to
  say to the store what it has seen of it.
* It beats while the host runs, whatever holds the host's interpreter. A host that has stopped is beaten
  for once more, because it ran until then, and then no longer; one that goes on is beaten for at once.
* A host that has ended is reported at once, with how it ended if that can be seen, so nobody waits for
  the lease. That is tried until the store has answered, or the lease is over all the same.

Who is authoritative: the store. A refused beat means that the worker was declared dead; then there is
nothing left to keep. The host's own pump is told the same by its next write, and begins anew.

What may happen at once: the host closes its worker in order, and says so; then the row is ended as
stopped by ourselves, and what may be left of it counts as nothing. If the host dies while we report its
end, or somebody else has declared it dead before, the second word is refused and changes nothing.

If we die on any line, the host's lease runs on for a while; the host sees that we are gone and starts
another keeper for the same row. If both die, the lease runs out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from signal import SIGKILL, Signals

from perdure.engine.observe import Observers
from perdure.engine.supervise.lease import Lease
from perdure.engine.supervise.oom import OomCounter
from perdure.engine.supervise.proc import Gone, Seen, Stopped
from perdure.model.errors import StoreError
from perdure.model.events import EventName
from perdure.model.outcomes import GONE, OUT_OF_MEMORY, Death
from perdure.ports import Clock, Store

# We try to report a death for so long, or for a lease if that is longer; then it ran out.
_TELL_S = 10.0
_LAST_S = 0.5  # from the moment at which a dying process lets go of its lines to its end


@dataclass(slots=True)
class Keeper:
    """Keeps the row of one worker. ``look`` says what its host does."""

    store: Store
    worker: int
    look: Callable[[], Seen]
    clock: Clock
    observers: Observers
    ttl_s: float
    oom: OomCounter | None = None
    done: bool = False
    _death: Death | None = None
    _stopped: bool = False
    _left_at: float | None = None
    _lease: Lease = field(init=False)

    def __post_init__(self) -> None:
        self._lease = Lease(self.store, self.clock, ttl_s=self.ttl_s)

    def note_closed(self) -> None:
        """The host has closed its worker, in order."""
        self._death = self._death or Death("stopped")

    def note_left(self) -> None:
        """The host has let go of us without a word: its program was replaced, or ends at this moment."""
        self._left_at = self.clock.monotonic() if self._left_at is None else self._left_at

    def once(self) -> None:
        """One round: look, then beat or report. A store that is away delays only the telling."""
        if self.oom is not None:
            self.oom.look(self.clock.monotonic())
        turned = self._death is None and self._look()
        try:
            if self._death is not None:
                self._report(self._death)
            else:
                self._beat(turned)
        except StoreError:  # the worker itself says that the store is away
            self.done = self._death is not None and self._lease.silent_s > max(self.ttl_s, _TELL_S)

    def _look(self) -> bool:
        """See what the host does; whether it has stopped, or gone on, since the last look."""
        was_stopped = self._stopped
        match self.look():
            case Gone(status):
                self._death = self._end(status)
            case seen:
                self._stopped = isinstance(seen, Stopped)
        if self._left_at is not None and self.clock.monotonic() >= self._left_at + _LAST_S:
            self._death = self._death or Death(GONE)
        return self._stopped != was_stopped

    def _beat(self, turned: bool) -> None:
        if turned or not self._stopped:
            self.done = bool(self._lease.once([self.worker], at_once=turned))

    def _report(self, death: Death) -> None:
        if self.store.end_worker(self.worker, death) and death.why != "stopped":
            self.observers.tell(
                EventName.WORKER_LOST,
                worker=self.worker,
                why=death.why,
                exit=death.signal or death.exit_status,
            )
        self.done = True

    def _end(self, status: int | None) -> Death:
        if status is None:
            return Death(GONE)
        if status >= 0:
            return Death("exited", exit_status=status)
        short = self.oom is not None and self.oom.rose(self.clock.monotonic())
        why = OUT_OF_MEMORY if -status == SIGKILL and short else "exited"
        return Death(why, signal=_signal_name(-status))


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"
