"""The items of a run and the jobs that they become, before the run gives them a place."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from msgspec import Struct

from perdure.engine.enqueue import Item, bad_request_id, is_request_id, new_job
from perdure.engine.idempotency import Key, key_from_item, value_from_item
from perdure.engine.ids import Ids
from perdure.engine.stages import LaidPipeline
from perdure.model.errors import CallerError, PayloadRefused
from perdure.model.jobs import NewJob

BACKLOG_MAX = 100_000  # open items of a run, beyond which feeding waits for its workers

Bad = Callable[[int, PayloadRefused], None]


class Unreadable(Struct, frozen=True):
    """Stands for an item that its source could not read, and says why."""

    why: str


class FileItem(Struct, frozen=True):
    """An item with the file and the line that it was read from."""

    item: Any
    where: str


class NothingNow:
    """Stands for no item: the source has none at the moment, and may have more later."""


class FeedTerms(Struct, frozen=True):
    """How items become jobs. ``bad`` hears of an item that cannot be stored; without it the feeding ends there.

    ``key`` and ``request_id`` say which field of an item, or which function of it, gives its own. ``seal`` says that
    after the last item the run has all.
    """

    owner: str = ""
    key: Key | None = None
    priority: int = 0
    deadline_s: float | None = None
    tokens: int | None = None
    fair: bool = False
    backlog_max: int | None = BACKLOG_MAX
    bad: Bad | None = None
    request_id: Key | None = None
    seal: bool = True

    def __post_init__(self) -> None:
        backlog_max = self.backlog_max
        if backlog_max is not None and (isinstance(backlog_max, bool) or backlog_max < 1):
            raise CallerError(f"backlog_max is {backlog_max!r}; it must be 1 or more, or None")


def check_first(
    items: Iterable[Any], laid: LaidPipeline, ids: Ids, terms: FeedTerms
) -> Iterator[Any]:
    """The same items, when the first of them can be fed; else what it is refused for, before a run is made for it."""
    rest = iter(items)
    for first in rest:
        if terms.bad is None and not isinstance(first, NothingNow):
            try:
                job_from(first, laid, ids, terms)
            except PayloadRefused as refused:
                raise refused_at(0, refused) from None
        return chain([first], rest)
    return rest


def refused_at(position: int, refused: PayloadRefused) -> PayloadRefused:
    """The same refusal, by the place of the item."""
    return PayloadRefused(f"item {position + 1} of the run: {refused}")


def job_from(item: Any, laid: LaidPipeline, ids: Ids, terms: FeedTerms) -> NewJob:
    """A job without a place in a run yet; what is refused of a file names the line."""
    if not isinstance(item, FileItem):
        return _new_job(item, laid, ids, terms)
    try:
        return _new_job(item.item, laid, ids, terms)
    except PayloadRefused as refused:
        raise PayloadRefused(f"{item.where}: {refused}") from None


def _new_job(item: Any, laid: LaidPipeline, ids: Ids, terms: FeedTerms) -> NewJob:
    if isinstance(item, Unreadable):
        raise PayloadRefused(item.why)
    own = _own_options(item) if isinstance(item, Item) else {}
    payload = item.payload if isinstance(item, Item) else item
    key = None if "key" in own else key_from_item(terms.key, payload)
    request_id = None if "request_id" in own else _request_id(terms.request_id, payload)
    options: dict[str, Any] = {
        "owner": terms.owner,
        "key": key,
        "priority": terms.priority,
        "deadline_s": terms.deadline_s,
        "tokens": terms.tokens,
        "fair": terms.fair,
        "request_id": request_id,
    }
    return new_job(ids, laid, payload, **{**options, **own})


def _own_options(item: Item) -> dict[str, Any]:
    """What an item of a run brings; some of it is the run's to say."""
    own = item.options()
    remedies = {"owner": "give it to run()", "if_failed": "re-drive its dead letters"}
    for name, instead in remedies.items():
        if name in own:
            raise CallerError(f"an Item of a run cannot have {name}={own[name]!r}; {instead}")
    return own


def _request_id(wanted: Key | None, item: Any) -> str | None:
    """The request id that an item's own field, or the caller's function, gives it; one may have none."""
    found = None if wanted is None else value_from_item(wanted, item)
    if found is None or found == "":  # an empty cell of a table
        return None
    if is_request_id(found):
        return str(found)
    raise PayloadRefused(f"its {bad_request_id(found)}")
