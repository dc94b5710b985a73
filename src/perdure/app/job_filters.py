"""Which jobs are meant, by filters as users give them; names that the store has never had are refused."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from perdure.app.job_refs import job_at
from perdure.app.session.session import Session
from perdure.engine.batch.runs import find_run
from perdure.engine.idempotency import check_key, is_key
from perdure.engine.operate.eligible import dead_letters
from perdure.model.errors import CallerError, UnknownName
from perdure.model.filters import JobFilter
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.states import FailedReason, State
from perdure.model.views import JobView
from perdure.ports import Reader
from perdure.rules.field_checks import nearest
from perdure.rules.hints.durations import duration_s

_TEXTS = (
    "pipeline",
    "stage",
    "queue",
    "category",
    "owner",
    "code",
    "text",
    "label",
    "fingerprint",
    "key",
)
_BOTH = (*_TEXTS[:-3], "run", "kind", "older_than", "newer_than")
_DEAD = (*_BOTH, "fingerprint", "key", "reason_failed", "discarded")
_OPEN = (*_BOTH, "state", "label")
_LISTED = (*_OPEN, "key")
_SAME_KEY_SHOWN = 10

# The states that lists show: those that are stored, and views of queued.
_VIEWS: Mapping[str, Mapping[str, bool]] = {
    "retrying": {"retrying": True},
    "scheduled": {"waiting": True, "retrying": False},
    "held": {"held": True},
}
SHOWN_STATES = (*(one.value for one in State), *_VIEWS)
OPEN_STATES = (State.QUEUED.value, State.PROCESSING.value, *_VIEWS)
WAITING_STATES = ("retrying", "scheduled")

E = TypeVar("E", bound=StrEnum)


def jobs_meant(session: Session, chosen: Mapping[str, Any]) -> JobFilter:
    """The jobs that are meant; ages are since they were enqueued."""
    meant = _filter_of(session.opened.reader, chosen, what="jobs", names=_OPEN)
    check_found(session.opened.reader, meant, lambda: session.catalogue)
    return meant


def check_chosen(chosen: Mapping[str, Any], what: str, *, every: bool) -> None:
    """Refuse a deed without a filter, which means all that there is, unless that is said."""
    if not every and all(value is None for value in chosen.values()):
        raise CallerError(
            f"no filter is given, which means {what} of this store; give one, such as pipeline=, or say every=True"
        )


def jobs_listed(
    reader: Reader, states: Sequence[str], chosen: Mapping[str, Any], *, strict: bool = True
) -> JobFilter:
    """The jobs of a list, by the states that it shows.

    Not ``strict``, a name that the store has never had finds nothing; to refuse it takes a look at all lanes.
    """
    meant = _filter_of(reader, chosen, what="jobs", names=_LISTED)
    if meant.key is not None:
        meant = with_key(reader, meant, meant.key)
    meant = replace(meant, **_shown(states))
    if strict:
        check_found(reader, meant)
    return meant


def _shown(states: Sequence[object]) -> dict[str, Any]:
    """The fields of a filter for the states that lists show."""
    for one in states:
        if str(one) not in SHOWN_STATES:
            near = nearest(one if isinstance(one, str) else "", SHOWN_STATES)
            raise CallerError(f"state is {one!r}; {near}")
    words = tuple(dict.fromkeys(map(str, states)))
    view = next((one for one in words if one in _VIEWS), None)
    if view is None:
        return {"states": tuple(map(State, words))}
    if words != (view,):
        raise CallerError(
            f"state {view!r} is a view of queued and is asked for alone; leave the others out, or ask for queued"
        )
    return {"states": (State.QUEUED,), **_VIEWS[view]}


def with_key(reader: Reader, meant: JobFilter, key: str) -> JobFilter:
    """Of these the job of a key, which is looked for with its owner: that of the run, or none."""
    check_key(key)
    owner = meant.owner
    if owner is None:
        owner = "" if meant.run is None else reader.runs(no=meant.run)[0].owner
    return replace(meant, key=key, owner=owner)


def job_named(reader: Reader, named: str) -> JobView:
    """A job by its id or its number; where there is none, by a key of no owner that only one job has."""
    try:
        return job_at(reader, named)
    except UnknownName as unknown:
        wanted = JobFilter(owner="", key=named)
        found = reader.jobs(wanted, limit=_SAME_KEY_SHOWN + 1) if is_key(named) else []
        if not found:
            raise UnknownName(
                f"{unknown}; by the key of an owner's item: perdure jobs list --key … --owner …"
            ) from None
    if len(found) > 1:
        ids = ", ".join(job.id for job in found[:_SAME_KEY_SHOWN])
        more = ", …" if len(found) > _SAME_KEY_SHOWN else ""
        raise CallerError(f"several jobs have the key {named!r}; name one by its id: {ids}{more}")
    return found[0]


def others_with_key(reader: Reader, named: str, found: JobView, *, owner: str = "") -> list[str]:
    """The ids of other jobs of this owner that have as their key what was named, where a number named this one."""
    if not is_key(named) or named == found.id:
        return []
    alike = reader.jobs(JobFilter(owner=owner, key=named), limit=_SAME_KEY_SHOWN)
    return [one.id for one in alike if one.id != found.id]


def dead_meant(session: Session, chosen: Mapping[str, Any], *, strict: bool = True) -> JobFilter:
    """The dead letters that are meant; ages are since they failed. ``strict`` as with `jobs_listed`."""
    reader = session.opened.reader
    meant = dead_letters(_filter_of(reader, chosen, what="dead letters", names=_DEAD))
    if meant.key is not None:
        meant = with_key(reader, meant, meant.key)
    if strict:
        check_found(reader, meant, lambda: session.catalogue)
    return meant


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


def _filter_of(
    reader: Reader, chosen: Mapping[str, Any], *, what: str, names: Sequence[str]
) -> JobFilter:
    """A filter by these names as a user gives it; ages are those of the end, or with ``state`` of the enqueueing."""
    wanted: dict[str, Any] = {}
    since = "enqueued" if "state" in names else "finished"
    for name, value in chosen.items():
        if name not in names:
            known = tuple(dict.fromkeys((*names, "key")))  # which some take apart from the others
            raise CallerError(f"{what} have no filter {name!r}; {nearest(name, known)}")
        if value is None:
            continue
        if name == "kind":
            wanted["kind"] = _choice(name, Kind, value).value
        elif name == "state":
            several = isinstance(value, list | tuple | set | frozenset)
            wanted |= _shown(tuple(value) if several else (value,))
        elif name == "reason_failed":
            wanted["reason"] = _choice(name, FailedReason, value)
        elif name in _TEXTS:
            wanted[name] = _text(name, value)
        elif name == "run":
            wanted["run"] = _run_no(reader, value)
        elif name == "discarded":
            wanted["discarded"] = _flag(name, value)
        else:
            moment = _moment(name, value, reader.now())
            wanted[f"{since}_until" if name == "older_than" else f"{since}_from"] = moment
    return JobFilter(**wanted)


def known_kind(what: str, value: str) -> str:
    """A failure kind by its name; ``what`` is where it was named."""
    words = tuple(one.value for one in Kind)
    if value not in words:
        raise CallerError(f"{what}: there is no failure kind {value!r}; {nearest(value, words)}")
    return value


def _choice(name: str, known: type[E], value: object) -> E:
    try:
        return known(str(value))
    except ValueError:
        words = tuple(one.value for one in known)
        near = nearest(value if isinstance(value, str) else "", words)
        raise CallerError(f"{name} is {value!r}; {near}") from None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise CallerError(f"{name} is {value!r}; give a text")
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise CallerError(f"{name} is {value!r}; give true or false")
    return value


def _run_no(reader: Reader, value: object) -> int:
    if isinstance(value, str):
        return find_run(reader, value).no
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise CallerError(f"run is {value!r}; give a run's id, number or name")
    return value


def _moment(name: str, value: object, now: datetime) -> datetime:
    """So long before now."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        found_s = float(value) if is_number else duration_s(str(value))  # type: ignore[arg-type]
        if found_s is None or not found_s >= 0:
            raise CallerError(f"{name} is {value!r}; write a duration such as 30m, 2h or 3d")
        return now - timedelta(seconds=found_s)
    except OverflowError:
        raise CallerError(
            f"{name} is {value!r}, which is longer ago than the year 1; write a duration such as 30m, "
            "2h or 3d"
        ) from None
