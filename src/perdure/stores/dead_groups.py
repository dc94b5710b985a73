"""Dead letters in groups, counted by looking at them: for filters that the tallies cannot answer; the same on every store.

Groups are of all dead letters, however many steps that takes; up to `DEAD_ROWS_MAX` are still few, so that the steps do not
lead over what has succeeded. A preview counts what a filter means, and gives up after `STEPS_MAX` steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.model.filters import JobFilter
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.nouns import replace
from perdure.model.states import State
from perdure.model.views import DeadGroup, FailureGroup, Preview
from perdure.stores.job_lists import (
    CODE,
    DETAIL,
    ENDED,
    FINGERPRINT,
    ID,
    KIND,
    LOOK_ROWS_MAX,
    MESSAGE,
    OWNED_ROWS_MAX,
    PIPELINE,
    REASON,
    STAGE,
    Choice,
    Dialect,
    Fetch,
)
from perdure.stores.rows import Row, dead_group_out

STEPS_MAX = 12  # of a preview, the first ones small
DEAD_ROWS_MAX = 1_000_000  # numbers alone, from an index: a second or so


def dead_groups(
    chosen: JobFilter, dialect: Dialect, fetch: Fetch, *, limit: int
) -> list[DeadGroup]:
    """The failed jobs of a filter by what they have in common, most frequent first; the newest is the example."""
    if chosen.states and State.FAILED not in chosen.states:
        return []
    failed = replace(chosen, states=(State.FAILED,))
    groups: dict[tuple[str, ...], _Group] = {}
    for rows in Choice(failed, dialect, DEAD_ROWS_MAX).rows(
        fetch, limit=LOOK_ROWS_MAX, before=None
    ):
        for row in rows:
            alike = (
                row[FINGERPRINT] or "",
                row[PIPELINE],
                row[STAGE],
                row[KIND] or "",
                row[CODE] or "",
            )
            groups.setdefault(alike, _Group(row, row[ENDED], row[ENDED])).add(row[ENDED])
    first = sorted(groups.items(), key=lambda item: (-item[1].count, item[0]))
    return [
        dead_group_out(
            (
                *alike,
                one.count,
                one.first_at,
                one.last_at,
                one.newest[ID],
                one.newest[DETAIL] or one.newest[MESSAGE],
            )
        )
        for alike, one in first[: max(0, min(limit, PAGE_ROWS_MAX))]
    ]


@dataclass(slots=True)
class _Group:
    """Dead letters alike; rows come newest first."""

    newest: Row
    first_at: int
    last_at: int
    count: int = 0

    def add(self, ended_at: int) -> None:
        self.count += 1
        self.first_at = min(self.first_at, ended_at)
        self.last_at = max(self.last_at, ended_at)


def preview(choice: Choice, fetch: Fetch, *, count_max: int) -> Preview:
    """How many jobs a filter means and how those have ended; capped when there may be more."""
    seen: list[Row] = []
    capped = False
    steps_max = STEPS_MAX + (count_max // OWNED_ROWS_MAX if choice.chosen.owner else 0)
    for steps, rows in enumerate(choice.rows(fetch, limit=count_max + 1, before=None), start=1):
        seen += rows
        capped = len(seen) > count_max or steps >= steps_max
        if capped:
            break
    return Preview(min(len(seen), count_max), capped, _groups(seen[:count_max]))


def _groups(rows: Sequence[Row]) -> tuple[FailureGroup, ...]:
    """Failed jobs that ended alike, most frequent first."""
    ids: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        if row[REASON] is not None:
            place = (row[PIPELINE], row[STAGE], row[REASON], row[KIND] or "")
            ids.setdefault(place, []).append(row[ID])
    groups = [FailureGroup(*place, len(some), min(some)) for place, some in ids.items()]
    return tuple(
        sorted(groups, key=lambda one: (-one.count, one.pipeline, one.stage, one.reason, one.kind))
    )
