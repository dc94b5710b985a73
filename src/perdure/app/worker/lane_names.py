"""Which lanes a worker serves, by the names of queues and categories; whether they are there at all."""

from collections.abc import Collection, Sequence

from perdure.model.errors import ConfigError, UnknownName
from perdure.model.jobs import Lane


def lanes_served(
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
    if not lanes_served(lanes, queues, categories):
        pairs = ", ".join(f"{queue}/{category}" for queue, category in places)
        raise UnknownName(
            f"{whose} has no pipeline in such a queue with such a category; it has: {pairs}"
        )


def names(what: str, given: Collection[str]) -> Sequence[str]:
    """Several names, and not the letters of one."""
    if isinstance(given, str):
        raise ConfigError(f"{what} is {given!r}, which is one name; write [{given!r}]")
    return tuple(given)
