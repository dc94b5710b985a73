"""From a filter to jobs, newest first, in steps of bounded size; the same on every store.

A filter may mean one job in ten million, and no statement may walk the table to find that out. So the chosen
jobs are looked for in steps that each look at no more than `LOOK_ROWS_MAX` rows, down one of five ways:

* a *key* and an owner, or none: the numbers come from the unique index of keys;
* the *few*: what is queued, in work or failed stands in partial indexes. When there are no more than
  `LOOK_ROWS_MAX` of them, their numbers are taken from there. That there are too many costs as much to find out, and then
  the newest thousand of all jobs have a page of them: so those are looked at first;
* an *owner*: the numbers of its jobs, or of those that failed, come from `perdure_owned`. Of these steps no statement
  touches more than 1,000 rows, whatever else the filter says;
* a *run*: the numbers of its jobs, and of those that are driven again in it, come from their own indexes;
* *all*: down the primary key, by ranges of numbers; gaps are jumped over.

If a filter names both an owner and a run, the run leads if it is the owner's own; otherwise the owner does.

The first step is small, as most pages are full at once; the later ones grow. A listing goes on until its page
is full or nothing is left: a page that is shorter than was asked for is the last one, and going on below
the last number of a full one neither leaves out nor repeats. A preview (`dead_groups.py`) gives up
after some steps and says so.

The text of a filter is compared here and not in SQL, which knows upper and lower case for ASCII only
(SQLite) or as the server's locale has it (PostgreSQL). Values are always bound; the pieces of SQL below and
those of the `Dialect` are all there is. Parameters are written ``:name``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice

from msgspec import Struct

from perdure.model.errors import CallerError, StoreDamaged
from perdure.model.filters import JobFilter
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.states import State
from perdure.model.views import ChangedJob, JobView
from perdure.stores.columns import JOB
from perdure.stores.moments import from_us, to_us
from perdure.stores.rows import Row, job_out

LOOK_ROWS_MAX = 20_000  # tens of milliseconds on either store
NEWEST_ROWS = 1_000  # in which the chosen are looked for before anybody asks whether they are few
OWNED_ROWS_MAX = 250  # up to four rows are touched for each, such as a job, its lane and its input
NO_MAX = 2**63 - 1

Fetch = Callable[[str, Mapping[str, object]], Sequence[Row]]
FetchWhole = Callable[[list[int]], Sequence[Row]]
Step = tuple[str, dict[str, object]]  # which rows to look at, and the values that say so
Numbers = Callable[[Fetch, int, int], tuple[list[int], int]]

_SEEN = """
SELECT j.no, CAST(j.id AS text), j.pipeline, j.stage, j.failed_reason, j.error_kind, j.error_message,
    j.error_detail, j.error_code, j.fingerprint, j.finished_at
FROM {rows}{conditions}
ORDER BY j.no DESC
"""
NO, ID, PIPELINE, STAGE, REASON, KIND, MESSAGE, DETAIL, CODE, FINGERPRINT, ENDED = range(11)

_RANGE = "j.no >= :floor AND j.no < :before"
_TOP = "SELECT max(no) FROM perdure_jobs WHERE no < :before"
_OF_RUN = """
SELECT no FROM perdure_jobs WHERE run = :run AND no < :before ORDER BY no DESC LIMIT :limit
"""
_AGAIN_IN_RUN = """
SELECT no FROM perdure_jobs WHERE redrive_run = :run AND no < :before ORDER BY no DESC LIMIT :limit
"""
_OF_OWNER = """
SELECT job FROM perdure_owned WHERE owner = :owner AND job < :before{failed} ORDER BY job DESC LIMIT :limit
"""
# From one to the next by the index of names: every run has lanes of its own, and pipelines are few.
_PIPELINES = """
WITH RECURSIVE found (pipeline) AS (
    SELECT min(pipeline) FROM perdure_lanes
    UNION ALL
    SELECT (SELECT min(l.pipeline) FROM perdure_lanes AS l WHERE l.pipeline > found.pipeline)
    FROM found WHERE found.pipeline IS NOT NULL
)
SELECT pipeline FROM found WHERE pipeline IS NOT NULL
"""
# So written, the primary key is no temptation; and PostgreSQL may not join the pipelines to all keys of an owner.
_OF_KEY = """
SELECT no FROM perdure_jobs
WHERE owner = :owner AND pipeline = :pipeline AND key = :key AND no + 0 < :before
ORDER BY no + 0 DESC LIMIT :limit
"""
_OWN_RUN = "SELECT 1 FROM perdure_runs WHERE no = :run AND owner = :owner"
# What has changed by the end of an attempt and what otherwise; the last column is whether it was the job's last change.
_ENDED_ATTEMPTS = """
SELECT a.settled_at, a.job, a.token = (SELECT max(t.token) FROM perdure_attempts AS t WHERE t.job = a.job)
    AND a.settled_at >= (SELECT o.changed_at FROM perdure_owned AS o WHERE o.owner = a.owner AND o.job = a.job)
FROM perdure_attempts AS a
WHERE a.owner = :owner AND (a.settled_at, a.job) > (CAST(:since AS bigint), CAST(:after AS bigint))
ORDER BY a.settled_at, a.job LIMIT :limit
"""
_CHANGED_OTHERWISE = """
SELECT o.changed_at, o.job, o.changed_at >= coalesce((
    SELECT a.settled_at FROM perdure_attempts AS a WHERE a.job = o.job ORDER BY a.token DESC LIMIT 1
), 0)
FROM perdure_owned AS o
WHERE o.owner = :owner AND (o.changed_at, o.job) > (CAST(:since AS bigint), CAST(:after AS bigint))
ORDER BY o.changed_at, o.job LIMIT :limit
"""
_FEW = "SELECT no FROM ({few}) AS few LIMIT :limit"
_OF_STATE = {
    State.QUEUED: "SELECT no FROM perdure_jobs WHERE ready = 1 "
    "UNION ALL SELECT no FROM perdure_jobs WHERE ready = 0",
    State.PROCESSING: "SELECT no FROM perdure_jobs WHERE worker IS NOT NULL",
    State.FAILED: "SELECT no FROM perdure_jobs AS f WHERE f.failed_reason IS NOT NULL{conditions}",
}

_CONDITIONS = {
    "pipeline": "{job}.pipeline = :pipeline",
    "stage": "{job}.stage = :stage",
    "reason": "{job}.failed_reason = :reason",
    "kind": "{job}.error_kind = :kind",
    "code": "{job}.error_code = :code",
    "fingerprint": "{job}.fingerprint = :fingerprint",
    "owner": "{job}.owner = :owner",
    "key": "{job}.key = :key",
    "run": ":run IN ({job}.run, {job}.redrive_run)",  # so written, no index is tempted
    "queue": "(SELECT l.queue FROM perdure_lanes AS l WHERE l.no = {job}.lane) = :queue",
    "category": "(SELECT l.category FROM perdure_lanes AS l WHERE l.no = {job}.lane) = :category",
    "label": "{job}.label = :label",
    "enqueued_from": "{job}.enqueued_at >= :enqueued_from",
    "enqueued_until": "{job}.enqueued_at < :enqueued_until",
    "finished_from": "{job}.finished_at >= :finished_from",
    "finished_until": "{job}.finished_at < :finished_until",
}
_HELD = """j.state = 'queued' AND EXISTS (
    SELECT 1 FROM perdure_lanes AS l JOIN perdure_gates AS g ON g.name = l.upstream
    LEFT JOIN perdure_gates AS k ON k.name = g.parent
    WHERE l.no = j.lane AND (g.state <> 'flowing' OR k.state <> 'flowing')
)"""
_INDEXED = ("pipeline", "stage", "reason", "kind", "fingerprint")  # in the indexes of failed jobs


class Dialect(Struct, frozen=True):
    """What one store writes otherwise than the other: walking by primary key, and lists of numbers."""

    rows: str
    among: str
    packed: Callable[[Sequence[int]], str]
    packed_texts: Callable[[Sequence[str]], object]


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter as SQL."""

    chosen: JobFilter
    dialect: Dialect
    few_max: int | None = None
    values: dict[str, object] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _values(self.chosen))

    def rows(self, fetch: Fetch, *, limit: int, before: int | None) -> Iterator[list[Row]]:
        """The chosen, newest first, step by step; a step may find none."""
        below = NO_MAX if before is None else min(before, NO_MAX)
        window = limit if self.chosen.owner else max(200, 2 * limit)
        for step, values in self._steps(fetch, below, self._bound(window)):
            yield self._find(fetch, step, values)

    def by_last_change(
        self, fetch: Fetch, start: tuple[int, int], limit: int
    ) -> Iterator[tuple[int, int]]:
        """The chosen of an owner by their last change: the moments and the numbers."""
        if not self.chosen.owner:
            raise CallerError(
                f"jobs are listed by change for one owner, and the filter names {self.chosen.owner!r}; "
                "give it an owner"
            )
        end: tuple[int, int] | None = start
        window = self._bound(limit)
        while end is not None:
            moved, end = self._next_changes(fetch, end, min(window, max(1, OWNED_ROWS_MAX // 2)))
            step, values = self._among([no for _, no in moved])
            kept = {row[NO] for row in self._find(fetch, step, values)} if moved else set()
            yield from (one for one in moved if one[1] in kept)
            window = self._bound(4 * window)

    def _next_changes(
        self, fetch: Fetch, start: tuple[int, int], window: int
    ) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
        """The next last changes in their order, and where to go on; None when that was all."""
        where = {"owner": self.chosen.owner, "since": start[0], "after": start[1], "limit": window}
        lists = [fetch(sql, where) for sql in (_ENDED_ATTEMPTS, _CHANGED_OTHERWISE)]
        ends = [(some[-1][0], some[-1][1]) for some in lists if len(some) == window]
        end = min(ends, default=None)
        moved = {(moment, no) for some in lists for moment, no, is_last in some if is_last}
        return sorted(one for one in moved if end is None or one <= end), end

    def _find(self, fetch: Fetch, step: str, values: Mapping[str, object]) -> list[Row]:
        """Of the rows of a step, those that are meant."""
        found = list(fetch(self._statement(step), {**self.values, **values}))
        text = self.chosen.text
        return found if text is None else [row for row in found if _says(row, text.casefold())]

    def _bound(self, window: int) -> int:
        return max(1, min(window, OWNED_ROWS_MAX if self.chosen.owner else LOOK_ROWS_MAX))

    def _steps(self, fetch: Fetch, below: int, window: int) -> Iterator[Step]:
        looked = 0
        while self._may_be_few and below > 1 and looked + window <= NEWEST_ROWS:
            step, below = self._next_range(fetch, below, window)
            yield step
            looked, window = looked + window, self._bound(4 * window)
        few = self._few_nos(fetch) if self._may_be_few and below > 1 else None
        if few is not None:
            rest = sorted((no for no in few if no < below), reverse=True)
            while rest:
                yield self._among(rest[:window])
                rest, window = rest[window:], self._bound(4 * window)
            return
        numbers = self._numbers(fetch)
        while below > 1:
            if numbers is None:
                step, floor = self._next_range(fetch, below, window)
                yield step
            else:
                found, floor = numbers(fetch, below, window)
                if found:
                    yield self._among(found)
            below, window = floor, self._bound(4 * window)

    def _next_range(self, fetch: Fetch, below: int, window: int) -> tuple[Step, int]:
        """The next numbers down the primary key, and the number down to which none is missing."""
        ((top,),) = fetch(_TOP, {"before": below})
        floor = max(0, (top or 0) + 1 - window)
        return (_RANGE, {"floor": floor, "before": below}), floor

    @property
    def _has_key(self) -> bool:
        """Whether the index of keys leads to the jobs."""
        return self.chosen.key is not None and self.chosen.owner is not None

    def _numbers(self, fetch: Fetch) -> Numbers | None:
        """Where the numbers of the jobs come from; None when nothing leads to them."""
        if self._has_key:
            return self._of_key
        own = not self.chosen.owner or (
            self.chosen.run is not None and bool(fetch(_OWN_RUN, self.values))
        )
        if not own:
            return self._of_owner
        return None if self.chosen.run is None else self._of_run

    @property
    def _may_be_few(self) -> bool:
        """Whether the chosen are in partial indexes, and no owner, run or key leads there more directly."""
        states = _states(self.chosen)
        led = self.chosen.run is not None or bool(self.chosen.owner) or self._has_key
        return not led and bool(states) and set(states) <= set(_OF_STATE)

    def _few_nos(self, fetch: Fetch) -> list[int] | None:
        """The numbers of the few, unless they are many."""
        narrowed = "".join(
            f" AND {_CONDITIONS[name].format(job='f')}" for name in _INDEXED if name in self.values
        )
        few = " UNION ALL ".join(
            _OF_STATE[state].format(conditions=narrowed) for state in _states(self.chosen)
        )
        few_max = LOOK_ROWS_MAX if self.few_max is None else self.few_max
        found = fetch(_FEW.format(few=few), {**self.values, "limit": few_max + 1})
        return [no for (no,) in found] if len(found) <= few_max else None

    def _of_run(self, fetch: Fetch, below: int, window: int) -> tuple[list[int], int]:
        """The next job numbers of a run, and the number down to which none is missing."""
        where = {"run": self.chosen.run, "before": below, "limit": window}
        return _join_lists([fetch(sql, where) for sql in (_OF_RUN, _AGAIN_IN_RUN)], window)

    def _of_key(self, fetch: Fetch, below: int, window: int) -> tuple[list[int], int]:
        """The next numbers of the jobs with a key, and the number down to which none is missing."""
        where = {
            "owner": self.chosen.owner,
            "key": self.chosen.key,
            "before": below,
            "limit": window,
        }
        named = self.chosen.pipeline
        pipelines = [one for (one,) in fetch(_PIPELINES, {})] if named is None else [named]
        return _join_lists(
            [fetch(_OF_KEY, {**where, "pipeline": one}) for one in pipelines], window
        )

    def _of_owner(self, fetch: Fetch, below: int, window: int) -> tuple[list[int], int]:
        """The next numbers of an owner's jobs, and the number down to which none is missing."""
        failed = " AND failed" if _states(self.chosen) == (State.FAILED,) else ""
        where = {"owner": self.chosen.owner, "before": below, "limit": window}
        found = [no for (no,) in fetch(_OF_OWNER.format(failed=failed), where)]
        return found, found[-1] if len(found) == window else 0

    def _among(self, nos: Sequence[int]) -> Step:
        return self.dialect.among, {"nos": self.dialect.packed(nos)}

    def _statement(self, step: str) -> str:
        conditions = [
            sql.format(job="j") for name, sql in _CONDITIONS.items() if name in self.values
        ]
        if self.chosen.states:
            names = ", ".join(f":state_{place}" for place in range(len(self.chosen.states)))
            conditions.append(f"j.state IN ({names})")
        if self.chosen.discarded is not None:
            conditions.append(f"j.discarded_at IS {'NOT ' if self.chosen.discarded else ''}NULL")
        if self.chosen.waiting is not None:
            conditions.append(f"coalesce(j.ready, 1) = {0 if self.chosen.waiting else 1}")
        if self.chosen.retrying is not None:
            failed_before = "j.state = 'queued' AND j.error_kind IS NOT NULL"
            conditions.append(f"{'' if self.chosen.retrying else 'NOT '}({failed_before})")
        if self.chosen.held is not None:
            conditions.append(f"{'' if self.chosen.held else 'NOT '}({_HELD})")
        if self.chosen.text is not None:
            conditions.append("(j.error_message IS NOT NULL OR j.error_detail IS NOT NULL)")
        joined = "".join(f"\nAND {one}" for one in conditions)
        return _SEEN.format(rows=self.dialect.rows.format(step=step), conditions=joined)


def _join_lists(lists: Sequence[Sequence[Row]], window: int) -> tuple[list[int], int]:
    """The numbers of several lists, each down to a bound, and the number down to which none is missing."""
    floor = max((some[-1][0] for some in lists if len(some) == window), default=0)
    return [no for some in lists for (no,) in some if no >= floor], floor


def page(
    choice: Choice, fetch: Fetch, whole: FetchWhole, *, limit: int, before: int | None
) -> list[JobView]:
    """A page of jobs, newest first.

    A row that somebody has damaged does not spoil it: it is shown with what can be read of it. One
    whose very state cannot be read is left out; the audit names both.
    """
    limit = min(limit, PAGE_ROWS_MAX)
    seen = chain.from_iterable(choice.rows(fetch, limit=limit, before=before))
    return _views((row[NO] for row in seen), whole, limit)


def changes(
    choice: Choice,
    fetch: Fetch,
    whole: FetchWhole,
    *,
    since: datetime,
    after: int,
    limit: int,
) -> list[ChangedJob]:
    """A page of an owner's jobs by their last change, the oldest change first; otherwise as `page`."""
    limit = min(limit, PAGE_ROWS_MAX)
    moments: dict[int, int] = {}

    def nos() -> Iterator[int]:
        start = (to_us(since), min(after, NO_MAX))
        for moment, no in choice.by_last_change(fetch, start, limit):
            moments[no] = moment
            yield no

    return [ChangedJob(from_us(moments[one.no]), one) for one in _views(nos(), whole, limit)]


def _views(nos: Iterator[int], whole: FetchWhole, limit: int) -> list[JobView]:
    """So many of these jobs, in this order."""
    found: list[JobView] = []
    while some := list(islice(nos, max(0, min(limit - len(found), OWNED_ROWS_MAX)))):
        views = {view.no: view for view in map(_readable, whole(some)) if view is not None}
        found += [views[no] for no in some if no in views]
    return found


def _says(row: Row, wanted: str) -> bool:
    return any(
        row[place] is not None and wanted in row[place].casefold() for place in (MESSAGE, DETAIL)
    )


def _states(chosen: JobFilter) -> tuple[State, ...]:
    """The states that a filter can mean, by what it says of failures too."""
    if chosen.reason is not None or chosen.fingerprint is not None or chosen.discarded is True:
        return (State.FAILED,)
    return tuple(dict.fromkeys(chosen.states))


def _values(chosen: JobFilter) -> dict[str, object]:
    given: dict[str, object | None] = {
        "pipeline": chosen.pipeline,
        "stage": chosen.stage,
        "queue": chosen.queue,
        "category": chosen.category,
        "owner": chosen.owner,
        "run": chosen.run,
        "reason": None if chosen.reason is None else chosen.reason.value,
        "kind": chosen.kind,
        "code": chosen.code,
        "fingerprint": chosen.fingerprint,
        "key": chosen.key,
        "label": chosen.label,
    }
    moments = {
        "enqueued_from": chosen.enqueued_from,
        "enqueued_until": chosen.enqueued_until,
        "finished_from": chosen.finished_from,
        "finished_until": chosen.finished_until,
    }
    given |= {name: to_us(moment) for name, moment in moments.items() if moment is not None}
    values = {name: value for name, value in given.items() if value is not None}
    return values | {f"state_{n}": state.value for n, state in enumerate(chosen.states)}


def _readable(row: Row) -> JobView | None:
    try:
        return job_out(row)
    except StoreDamaged:
        without_past = JOB.blank(row, "past")
    try:
        return job_out(without_past)
    except StoreDamaged:
        return None
