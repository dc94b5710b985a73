"""Going through bulk operations: of the living workers that know their stages, one at a time takes their steps.

This has a thread and a connection of its own: a pipeline's check of whether a source exists may take as long as
it likes, and must not hold up the pump.
"""

from collections.abc import Callable

from perdure.engine.operate.bulk_settings import filter_of
from perdure.engine.operate.bulks import Bulks
from perdure.engine.upkeep.chore import NOTHING, Swept
from perdure.model.nouns import replace
from perdure.model.operations import BulkVerb, BulkView
from perdure.model.runs import RunView
from perdure.ports import Control, Reader

DUTY_TTL_S = 10.0  # a page whose sources are looked for may take a while
_STEPS_MAX = 20  # of one operation, before the next one has its turn
_BUSY_S = 0.1
_IDLE_S = 0.5


class BulkSteps:
    """A round over all bulk operations under way."""

    def __init__(
        self, bulks: Bulks, control: Control, reader: Reader, *, worker: int, duty: str
    ) -> None:
        self._bulks = replace(bulks, keep=self._keep)
        self._control = control
        self._reader = reader
        self._worker = worker
        self._duty = duty

    def once(self) -> float:
        """Take the steps that are due; how long nothing will be."""
        running = [one for one in self._reader.bulks(running=True) if self._bulks.knows(one)]
        if not running or not self._keep():
            return _IDLE_S
        busy = [self._steps(bulk) for bulk in running]
        return 0.0 if any(busy) else _BUSY_S

    def _keep(self) -> bool:
        """Take the duty, or keep it: one look for a source may take seconds."""
        return self._control.take_duty(self._duty, worker=self._worker, ttl_s=DUTY_TTL_S)

    def _steps(self, bulk: BulkView) -> bool:
        """Some steps of one operation; whether there was one to take."""
        for steps in range(_STEPS_MAX):
            moved = self._bulks.once(bulk)
            if moved is None:
                return steps > 0
            bulk = moved
        return True


def revivals_waiting(bulks: Bulks, run: RunView) -> list[BulkView]:
    """The operations under way that may give dead letters of a run a new life, oldest first."""
    found = []
    for one in reversed(bulks.reader.bulks(running=True)):
        chosen, revives = filter_of(one), one.verb in (BulkVerb.RETRY, BulkVerb.REDRIVE)
        if revives and chosen.run in (None, run.no) and chosen.pipeline == run.pipeline:
            found.append(one)
    return found


def waiting_words(bulks: Bulks, run: RunView) -> str:
    """That an operation has more dead letters of a run to revive, as the end of a sentence; nothing where none has."""
    waiting = revivals_waiting(bulks, run)
    if not waiting:
        return ""
    return (
        f"; bulk operation {waiting[0].id} has more to try again: give the command once more, or start a worker "
        "(perdure worker APP)"
    )


def catch_up(bulks: Bulks, run: RunView) -> int:
    """Do what can be done at once of the operations that a run waits for, as a worker would; how many live again."""
    known = [one for one in revivals_waiting(bulks, run) if bulks.knows(one)]
    return sum(bulks.through(one).done - one.done for one in known)


class BulkCall:
    """Looks whether bulk operations are under way, and wakes the thread that takes their steps."""

    name = "bulks"

    def __init__(self, reader: Reader, ring: Callable[[], None]) -> None:
        self._reader = reader
        self._ring = ring

    def once(self) -> Swept:
        """Ring, if there is one."""
        if self._reader.bulks(running=True, limit=1):
            self._ring()
        return NOTHING
