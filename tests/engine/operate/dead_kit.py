"""Dead letters for the tests of the engine, and somebody who is quicker than we are."""

from typing import Any

from perdure.engine.operate import single_jobs
from perdure.engine.stages import Catalogue
from tests.stores.kit import DEED, Place, failure


def dead(place: Place, worker: int, count: int = 1, **changes: object) -> list[str]:
    """Dead letters, oldest first."""
    ids = [one.id for one in place.put_many(count, **changes)]
    for claim in place.take(worker, count):
        place.settle(failure(claim, worker), by=worker)
    return ids


def retried(
    place: Place,
    known: Catalogue,
    id: str,
    *,
    through: Any = None,
    deed: Any = DEED,
    **options: Any,
) -> str:
    """A new life for one job."""
    return single_jobs.retry(
        through or place.control, place.reader, known, id, deed=deed, **options
    )


class Hurried:
    """A control in which somebody else is quicker, before certain calls."""

    def __init__(self, place: Place, **moves: Any) -> None:
        self._control = place.control
        self._moves = moves

    def __getattr__(self, name: str) -> Any:
        moves = self._moves.get(name)
        if moves:
            moves.pop(0)()
        return getattr(self._control, name)
