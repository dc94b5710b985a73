"""The idempotency key: how one is checked, how one is made, and what it is compared with.

A key names an item. Within one owner, one pipeline and one run (or outside of runs) the same key means the same job:
asking again gives the job that is there, whatever its state, and the new item and options are not looked at. The store
compares, in the transaction that accepts the job, by the unique index ``perdure_jobs_key``; so two callers at once,
and one that asks again because it never heard the answer, get one job. What a dead letter's key does is said by
``if_failed``; the key of a job that was pruned is free.

A caller gives the key with the item, or names the field or the function of an item that gives it. Items of a run
that have none are known by their position and content, jobs of a schedule by its name and moment.

The other way round, a stage hands a key of ours to outside systems: the same for each attempt at this stage in this
life of the job.
"""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from perdure.model.errors import CallerError, PayloadRefused
from perdure.model.jobs import Claim
from perdure.model.limits import KEY_CHARS_MAX

Key = str | Callable[[Any], object]  # a field of an item, or a function of it

_FIELDS_SHOWN = 20
_RULE = f"must have 1 to {KEY_CHARS_MAX} printable characters; hash what is longer"


def check_key(key: str | None) -> None:
    """Refuse a key that a caller gives and that is none."""
    if key is not None and not is_key(key):
        raise CallerError(f"key {key[:40]!r} {_RULE}")


def key_from_item(wanted: Key | None, item: Any) -> str | None:
    """The key that an item's own field, or the caller's function, gives it."""
    if wanted is None:
        return None
    found = value_from_item(wanted, item)
    if found is None and not callable(wanted) and not (isinstance(item, dict) and wanted in item):
        raise PayloadRefused(f"it has no field {wanted!r} to name it; {_fields(item)}")
    if not isinstance(found, str) or not found:
        what = "its key function" if callable(wanted) else f"its field {wanted!r}"
        raise PayloadRefused(
            f"{what} gives {found!r}; it must give text or a whole number, which names the item"
        )
    if not is_key(found):
        raise PayloadRefused(f"its key {found[:40]!r} {_RULE}")
    return found


def key_from_position(position: int, payload_json: str) -> str:
    """How an item without a key of its own is known in its run: by its position and its content."""
    mark = hashlib.sha256(payload_json.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{position}:{mark}"


def key_from_moment(schedule: str, moment: datetime) -> str:
    """The key of the job that a schedule makes for one moment."""
    return f"{schedule} at {moment.astimezone(UTC).isoformat()}"


def key_for_outside(claim: Claim) -> str:
    """What a stage hands to outside systems, so that they can refuse to do the same twice."""
    return f"{claim.id}:{claim.stage}:{claim.life}"


def value_from_item(wanted: Key, item: Any) -> Any:
    """What a field of the item, or a function of it, gives; a whole number as text."""
    try:
        found = wanted(item) if callable(wanted) else item[wanted]
    except (KeyError, TypeError, IndexError, AttributeError):
        return None
    return str(found) if isinstance(found, int) and not isinstance(found, bool) else found


def _fields(item: Any) -> str:
    """What could name an item instead, in words."""
    if not isinstance(item, dict):
        return "it is no object, and has no fields"
    names = [str(name) for name in islice(item, _FIELDS_SHOWN)]
    more = ["…"] if len(item) > _FIELDS_SHOWN else []
    return f"its fields are: {', '.join(names + more) or 'none'}"


def is_key(text: str) -> bool:
    """Whether a text can be a key."""
    return 0 < len(text) <= KEY_CHARS_MAX and text.isprintable()
