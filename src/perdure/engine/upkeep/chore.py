"""What a chore is, and how it writes what it has settled."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from perdure.engine.observe import Observers
from perdure.model.jobs import Busy, Record, Stale
from perdure.ports import Store


class Swept(Struct, frozen=True):
    """What one step did: how many jobs it moved, and whether it stopped at its bound with more to do."""

    jobs: int = 0
    more: bool = False

    def plus(self, other: "Swept") -> "Swept":
        """What two steps did."""
        return Swept(self.jobs + other.jobs, self.more or other.more)


NOTHING = Swept()


class Chore(Protocol):
    """A step that is taken again and again."""

    @property
    def name(self) -> str:
        """What it is called when it fails."""
        ...

    def once(self) -> Swept:
        """Do a bounded piece of work."""
        ...


def write(store: Store, records: Sequence[Record], *, by: int | None, observers: Observers) -> int:
    """Write what was settled, and tell it; how many jobs that was.

    What is stale was settled by another hand, who tells it. What an open transaction of a stage holds is not waited for:
    the next round finds it again.
    """
    if not records:
        return 0
    answers = {answer.no: answer for answer in store.settle(records, by=by)}
    for record in records:
        answer = answers[record.no]
        if not isinstance(answer, Stale | Busy):
            observers.tell_settled(record, answer)
    return sum(not isinstance(answer, Busy) for answer in answers.values())
