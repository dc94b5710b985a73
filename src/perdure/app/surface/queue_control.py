"""Queues for people: what waits in each, whether it is paused and by whom; and how to pause and resume one."""

from datetime import datetime

from msgspec import Struct, structs

from perdure.app.surface.moments import Moment
from perdure.engine.operate.single_jobs import clean_deed
from perdure.model.errors import UnknownName
from perdure.model.nouns import replace
from perdure.model.operations import Deed, LaneScope
from perdure.rules.field_checks import nearest
from perdure.stores.opening import Opened


class QueueShown(Struct, frozen=True):
    """A queue as people see it. ``ready`` jobs may be claimed now, ``later`` ones wait for their time.

    ``oldest_due_at`` is since when the first in line of one of its lanes could have been claimed, the longest of them.
    """

    name: str
    pipelines: tuple[str, ...]
    ready: int
    later: int
    paused_at: datetime | None = None
    paused_by: str = ""
    reason: str = ""
    oldest_due_at: datetime | None = None

    @property
    def says(self) -> str:
        """Whether it is open, in words."""
        if self.paused_at is None:
            return "open"
        why = f" ({self.reason})" if self.reason else ""
        return f"paused since {self.paused_at:%Y-%m-%d %H:%M:%SZ} by {self.paused_by}{why}"


class QueueAnswer(Struct, frozen=True):
    """A queue. ``ready`` jobs may be claimed now, since ``oldest_due_at``; ``later`` ones wait for their time."""

    name: str
    pipelines: tuple[str, ...]
    ready: int
    later: int
    paused_at: Moment | None
    paused_by: str
    reason: str
    oldest_due_at: Moment | None
    says: str


def answer_of(queue: QueueShown) -> QueueAnswer:
    """A queue as JSON has it."""
    return QueueAnswer(**structs.asdict(queue), says=queue.says)


def queues(opened: Opened) -> list[QueueShown]:
    """Every queue that a pipeline has used, by name."""
    lanes, due = opened.reader.lanes(), opened.reader.first_due()
    paused = {one.name: one for one in opened.reader.pauses() if one.scope is LaneScope.QUEUE}
    found = []
    for name in sorted({one.lane.queue for one in lanes} | set(paused)):
        within = [one for one in lanes if one.lane.queue == name]
        pause = paused.get(name)
        queue = QueueShown(
            name,
            tuple(sorted({one.lane.pipeline for one in within})),
            sum(one.ready for one in within),
            sum(one.later for one in within),
            oldest_due_at=min((due[one.no] for one in within if one.no in due), default=None),
        )
        if pause is not None:
            paused_at, by, why = pause.paused_at, pause.paused_by, pause.reason
            queue = replace(queue, paused_at=paused_at, paused_by=by, reason=why)
        found.append(queue)
    return found


def pause(opened: Opened, name: str, deed: Deed) -> bool:
    """Let no job of a queue be claimed until it is resumed; False when it was paused already."""
    _check(opened, name)
    return opened.control.pause(LaneScope.QUEUE, name, clean_deed(deed))


def resume(opened: Opened, name: str, deed: Deed) -> bool:
    """Let the jobs of a queue be claimed again; False when it was not paused."""
    _check(opened, name)
    return opened.control.resume(LaneScope.QUEUE, name, clean_deed(deed))


def _check(opened: Opened, name: str) -> None:
    known = tuple(one.name for one in queues(opened))
    if not known:
        raise UnknownName(
            f"this store has no queue {name!r}: it has none before the first item of a pipeline or its first worker"
        )
    if name not in known:
        raise UnknownName(f"this store has no queue {name!r}; {nearest(name, known)}")
