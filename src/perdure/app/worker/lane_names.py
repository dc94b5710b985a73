"""Which lanes are meant by names: those that a worker serves, and those of a filter; whether they are there at all."""

from collections.abc import Callable, Collection, Sequence

from perdure.model.errors import ConfigError, UnknownName
from perdure.model.filters import JobFilter
from perdure.model.jobs import Lane
from perdure.ports import Reader
from perdure.rules.policy_form import nearest


def served(
    lanes: Collection[Lane], queues: Collection[str], categories: Collection[str]
) -> list[Lane]:
    """The lanes of these queues and categories; of all, where none is named."""
    return [
        lane
        for lane in lanes
        if (not queues or lane.queue in queues) and (not categories or lane.category in categories)
    ]


def check_served(
    whose: str, lanes: Collection[Lane], queues: Collection[str], categories: Collection[str]
) -> None:
    """Refuse names that the app does not have, and names that have no pipeline in common."""
    places = sorted({(lane.queue, lane.category) for lane in lanes})
    for what, asked, known in (
        ("queue", queues, sorted({queue for queue, _ in places})),
        ("category", categories, sorted({category for _, category in places})),
    ):
        for name in asked:
            if name not in known:
                raise UnknownName(f"{whose} has no {what} {name!r}; it has: {', '.join(known)}")
    if not served(lanes, queues, categories):
        pairs = ", ".join(f"{queue}/{category}" for queue, category in places)
        raise UnknownName(
            f"{whose} has no pipeline in such a queue with such a category; it has: {pairs}"
        )


def names(what: str, given: Collection[str]) -> Sequence[str]:
    """Several names, and not the letters of one."""
    if isinstance(given, str):
        raise ConfigError(f"{what} is {given!r}, which is one name; write [{given!r}]")
    return tuple(given)


def check_found(
    reader: Reader, meant: JobFilter, learn: Callable[[], object] = lambda: None
) -> None:
    """Refuse a filter that finds nothing because it names what the store has never had.

    ``learn`` makes the store know what an app has declared. A store that is empty has had nothing, and says nothing.
    """
    asked = {
        name: value
        for name in ("pipeline", "stage", "queue", "category")
        if (value := getattr(meant, name)) is not None
    }
    if not asked or reader.jobs(meant, limit=1):
        return
    learn()
    every = lanes = [one.lane for one in reader.lanes()]
    within = ""
    for name, value in asked.items():
        known = tuple({getattr(lane, name) for lane in lanes})
        if known and value not in known:
            others = sorted({lane.pipeline for lane in every if getattr(lane, name) == value})
            there = f" (but pipeline {', '.join(others)} has it)" if others else ""
            raise UnknownName(
                f"this store has no {name} {value!r}{within if others else ''}{there}; {nearest(value, known)}"
            )
        lanes = [lane for lane in lanes if getattr(lane, name) == value] or lanes
        within = f"{within} in {name} {value!r}"
