"""enqueue: `NewJob` → `Job` on stable storage."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, Literal

from msgspec import structs

from perdure.engine.idempotency import check_key
from perdure.engine.ids import Ids
from perdure.engine.payloads import admit
from perdure.engine.stage_parameters import ItemMisfit
from perdure.engine.stages import LaidPipeline, Stage, check_name
from perdure.model.errors import CallerError, ConfigError, PayloadRefused
from perdure.model.jobs import Enqueued, IfFailed, NewJob
from perdure.model.limits import (
    ENQUEUE_BATCH_MAX,
    ENQUEUE_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    REQUEST_ID_CHARS_MAX,
    TOKENS_MAX,
)
from perdure.ports import Store

PRIORITY_MAX = 1_000_000
_KINDS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("owner", (str,)),
    ("key", (str, NoneType)),
    ("priority", (int,)),
    ("run_at", (datetime, NoneType)),
    ("deadline_s", (int, float, NoneType)),
    ("tokens", (int, NoneType)),
    ("request_id", (str, NoneType)),
    ("ordered_at", (datetime, NoneType)),
)
_REQUEST_ID = re.compile(rf"[!-~]{{1,{REQUEST_ID_CHARS_MAX}}}")
# What is earlier is a mistake; what is later has no moment in every time zone.
_ORDERED_YEARS = (1970, 9998)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One of the items of `Pipeline.enqueue_many` or `Pipeline.run`, with options of its own; what is None is as the call says.

    ``Item(payload, key="order-7", run_at=…)``: the options are those of `Pipeline.enqueue`. In a run, ``owner`` and
    ``if_failed`` are the run's to say.
    """

    payload: Any = field(kw_only=False)
    owner: str | None = None
    key: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    deadline_s: float | None = None
    if_failed: Literal["keep", "retry"] | None = None
    tokens: int | None = None
    request_id: str | None = None
    ordered_at: datetime | None = None

    def options(self) -> dict[str, Any]:
        """The options that it brings."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "payload"}
        return {name: value for name, value in found.items() if value is not None}


def new_job(
    ids: Ids,
    laid: LaidPipeline,
    item: Any,
    *,
    owner: str = "",
    key: str | None = None,
    priority: int = 0,
    run_at: datetime | None = None,
    deadline_s: float | None = None,
    if_failed: str = "keep",
    tokens: int | None = None,
    fair: bool = False,
    request_id: str | None = None,
    ordered_at: datetime | None = None,
    policies_s: float | None = None,
) -> NewJob:
    """A job for the first stage of a pipeline, with all that it brings checked.

    Without a ``deadline_s`` its total time is that of its pipeline's policies, or ``policies_s`` if another policy
    judges it first, as in a call. Either counts from when the job may begin: the later of the moment of enqueue and
    ``run_at``, by the store's clock.
    """
    _check_types(owner, key, priority, run_at, deadline_s, tokens, request_id, ordered_at)
    if owner:
        check_name("owner", owner)
    check_key(key)
    if not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        raise CallerError(f"priority {priority} must lie between ±{PRIORITY_MAX}")
    if deadline_s is not None and not 0 < deadline_s <= 10 * 366 * 86_400:
        raise CallerError(f"deadline_s {deadline_s!r} must be more than 0 s, and at most ten years")
    if tokens is not None and not 0 <= tokens <= TOKENS_MAX:
        raise CallerError(f"tokens {tokens} must lie between 0 and {TOKENS_MAX}")
    if request_id is not None and not is_request_id(request_id):
        raise CallerError(bad_request_id(request_id))
    if if_failed not in tuple(IfFailed):
        raise CallerError(f"if_failed is {if_failed!r}; one of: {', '.join(IfFailed)}")
    if if_failed != IfFailed.KEEP and key is None:
        raise CallerError("if_failed goes with a key: without one there is no earlier job to find")
    first, policies_s = laid.stages[0], laid.deadline_s if policies_s is None else policies_s
    return NewJob(
        id=ids.next(),
        pipeline=laid.name,
        lane=laid.lane_nos[first.name],
        stage=first.name,
        payload_json=admit_item(item, first),
        owner=owner,
        key=key,
        priority=priority,
        run_at=_run_at(run_at, policies_s if deadline_s is None else deadline_s),
        deadline_s=deadline_s,
        policies_s=policies_s,
        if_failed=IfFailed(if_failed),
        tokens=tokens,
        fair=fair,
        request_id=request_id,
        ordered_at=_ordered_at(ordered_at),
    )


def new_jobs(
    ids: Ids, laid: LaidPipeline, items: Iterable[Any], **options: Any
) -> Iterator[NewJob]:
    """A job for each item, with the same options, which are checked with the first; an `Item` has its own besides."""
    like: NewJob | None = None
    for place, item in enumerate(items, start=1):
        if isinstance(item, Item):
            yield _job_of(ids, laid, item, place, options)
            continue
        try:
            if like is None:
                like = job = new_job(ids, laid, item, **options)
            else:
                payload_json = admit_item(item, laid.stages[0])
                job = structs.replace(like, id=ids.next(), payload_json=payload_json)
        except PayloadRefused as refused:
            raise PayloadRefused(f"item {place}: {refused}") from None
        yield job


def _job_of(
    ids: Ids, laid: LaidPipeline, item: Item, place: int, options: Mapping[str, Any]
) -> NewJob:
    try:
        return new_job(ids, laid, item.payload, **{**options, **item.options()})
    except (CallerError, ConfigError) as wrong:
        key = "" if item.key is None else f" (key {item.key!r})"
        raise type(wrong)(f"item {place}{key}: {wrong}") from None


def _check_types(*given: object) -> None:
    for value, (what, kinds) in zip(given, _KINDS, strict=True):
        if not isinstance(value, kinds) or isinstance(value, bool):  # which is an int to Python
            wanted = " or ".join("None" if one is NoneType else one.__name__ for one in kinds)
            raise CallerError(f"{what} is {value!r}, of type {type(value).__name__}; pass {wanted}")


def is_request_id(text: object) -> bool:
    """Whether this can be a request id: it must not break the log line that it stands in."""
    return isinstance(text, str) and _REQUEST_ID.fullmatch(text) is not None


def bad_request_id(text: object) -> str:
    """Why a text cannot be a request id."""
    return (
        f"request_id {text!r} must have 1 to {REQUEST_ID_CHARS_MAX} visible ASCII characters and no space; "
        "leave it out, and the job's id serves"
    )


def _ordered_at(moment: datetime | None) -> datetime | None:
    """The moment in UTC; whether it is still to come is for the store's clock to say."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise CallerError(f"ordered_at {moment} has no time zone; pass an aware datetime")
    if not _ORDERED_YEARS[0] <= moment.year <= _ORDERED_YEARS[1]:
        raise CallerError(f"ordered_at {moment} must lie from 1970 on, before the year 9999")
    return moment.astimezone(UTC)


def _run_at(run_at: datetime | None, total_s: float | None) -> datetime | None:
    """The moment in UTC, if there are moments for it and for the deadline that counts from it."""
    if run_at is None:
        return None
    if run_at.tzinfo is None:
        raise CallerError(f"run_at {run_at} has no time zone; pass an aware datetime")
    try:
        moment = run_at.astimezone(UTC)
        _ = moment + timedelta(seconds=total_s or 0, microseconds=1)  # the store rounds it up
    except OverflowError:
        deadline = "" if total_s is None else f" with a deadline_s of {total_s!r} after it"
        raise CallerError(
            f"run_at {run_at}{deadline} ends beyond the year 9999; give an earlier run_at"
        ) from None
    return moment


def admit_item(item: Any, first: Stage) -> str:
    """The item as JSON text that fits the first stage of its pipeline, or `PayloadRefused`."""
    if isinstance(item, Item):
        raise CallerError(
            "an Item goes into enqueue_many or run; here, pass its payload, with the options beside it"
        )
    text = admit(item, what="the item", bytes_max=PAYLOAD_BYTES_MAX)
    try:
        first.callee.shape.check(text)
    except ItemMisfit as misfit:
        raise PayloadRefused(
            f"the item does not fit stage {first.name!r}: {misfit.path}: {misfit.rule}; pass what "
            "its first parameter is annotated with"
        ) from None
    return text


def enqueue(store: Store, jobs: Iterable[NewJob], *, within: object = None) -> list[Enqueued]:
    """Accept jobs, in transactions of bounded size, in order; or all in the caller's own."""
    done: list[Enqueued] = []
    batch: list[NewJob] = []
    size_bytes = 0
    for job in jobs:
        batch.append(job)
        size_bytes += len(job.payload_json)
        if len(batch) == ENQUEUE_BATCH_MAX or size_bytes >= ENQUEUE_BYTES_MAX:
            done += _accept(store, batch, within)
            batch, size_bytes = [], 0
    return done + _accept(store, batch, within)


def _accept(store: Store, batch: Sequence[NewJob], within: object) -> list[Enqueued]:
    return store.enqueue(batch, within=within) if batch else []
