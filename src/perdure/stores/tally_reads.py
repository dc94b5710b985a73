"""What the tallies say: statements that add up a few rows and count no job, the same on every store.

They stand in ``stores/tally`` and are written so that both dialects read them alike; parameters are written ``:name``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from perdure.model.filters import DEAD_LETTERS, JobFilter
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.nouns import replace
from perdure.model.states import FailedReason, State
from perdure.model.views import OPEN, Books, DeadGroup, DeathCount, Depth, Flow, QueueHead
from perdure.stores.dead_groups import dead_groups as groups_counted
from perdure.stores.job_lists import Dialect
from perdure.stores.moments import MINUTE_US, from_us
from perdure.stores.rows import Row, dead_group_out
from perdure.stores.statements import texts

MINUTES = 60
TALLY: Mapping[str, str] = texts("perdure.stores", "tally")

Fetch = Callable[[str, Mapping[str, object]], Sequence[Row]]

Alike = tuple[str, str, str, str, str]

_GROUPED_BY = ("fingerprint", "pipeline", "stage", "kind", "code")
_KEPT_BY = ("pipeline", "stage", "reason", "kind", "code", "fingerprint", "owner")
_NEVER = 2**62
# The newest of a fingerprint, among which the example of a group usually is; in the end all of them.
_LOOKS_ROWS = (4, 200, 2**62)
# The inner statement leads by the index of fingerprints, whatever the planner thinks of the rest.
_NEWEST = """
SELECT CAST(id AS text), coalesce(error_detail, error_message)
FROM (SELECT * FROM perdure_jobs WHERE {alike} ORDER BY no DESC LIMIT :look) AS newest
WHERE failed_reason IS NOT NULL AND discarded_at IS NULL
AND (CAST(:owner AS text) IS NULL OR owner = :owner) AND pipeline = :pipeline AND stage = :stage
AND coalesce(error_kind, '') = :kind AND coalesce(error_code, '') = :code
ORDER BY no DESC LIMIT 1
"""


def depths(fetch: Fetch) -> list[Depth]:
    """How many jobs stand where, by queue, pipeline and stage."""
    return _summed(fetch(TALLY["depths"], {}))


def depths_and_heads(
    fetch: Fetch, closed: Mapping[int, str], now_us: int
) -> tuple[dict[str, list[Depth]], list[QueueHead]]:
    """The same apart by what closes the lanes, and since when the head of each queue's line is due."""
    lanes: dict[str, list[Row]] = {}
    queue_of: dict[int, tuple[str, str]] = {}
    for row in fetch(TALLY["depths"], {}):
        word = closed.get(row[0], OPEN)
        lanes.setdefault(word, []).append(row)
        queue_of[row[0]] = row[1], word
    heads: dict[tuple[str, str], int] = {}
    for lane, *moments in fetch(TALLY["heads"], {}):
        due = [one for one in moments if one is not None and one <= now_us]
        if due and lane in queue_of:
            queue = queue_of[lane]
            heads[queue] = min(*due, heads.get(queue, now_us))
    found = {word: _summed(rows) for word, rows in sorted(lanes.items())}
    return found, [QueueHead(*queue, from_us(at)) for queue, at in sorted(heads.items())]


def _summed(rows: Iterable[Row]) -> list[Depth]:
    """Rows of `depths.sql`, over all lanes of a queue, pipeline and stage."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for _, queue, pipeline, stage, *jobs in rows:
        found = sums.setdefault((queue, pipeline, stage), [0] * len(jobs))
        sums[queue, pipeline, stage] = [a + int(b) for a, b in zip(found, jobs, strict=True)]
    return [Depth(*place, *jobs) for place, jobs in sorted(sums.items()) if any(jobs)]


def words_of_closed(rows: Iterable[Row]) -> dict[int, str]:
    """What closes each lane of `depths_closed.sql`; a person's pause outlasts a gate's hold."""
    closed: dict[int, str] = {}
    for lane, gate in rows:
        closed[lane] = "paused" if gate is None else closed.get(lane, "held")
    return closed


def waiting_by_lane(fetch: Fetch) -> dict[int, tuple[int, int]]:
    """For each lane how many of its jobs can run now, and how many wait for their time."""
    rows = fetch(TALLY["depths"], {})
    return {row[0]: (int(row[4]), int(row[5]) + int(row[6])) for row in rows}


def first_due(fetch: Fetch) -> dict[int, datetime]:
    """For each lane with jobs that can run now, since when the first in line could."""
    return {lane: from_us(due) for lane, due in fetch(TALLY["first_due"], {}) if due is not None}


def held_lanes(fetch: Fetch, dialect: Dialect, lanes: Sequence[int]) -> frozenset[int]:
    """Of these lanes, those whose gate lets nothing pass."""
    sql = TALLY["held_lanes"].format(among=dialect.among.replace("j.no", "l.no"))
    return frozenset(row[0] for row in fetch(sql, {"nos": dialect.packed(lanes)}))


def flows(fetch: Fetch, now_us: int, *, minutes: bool) -> list[Flow]:
    """What has happened so far; with ``minutes``, in each of the last sixty of them."""
    since = now_us // MINUTE_US - MINUTES + 1
    where = {"since": since, "least": since} if minutes else {"since": 2**62, "least": 0}
    found = []
    for pipeline, stage, minute, *counts in fetch(TALLY["flows"], where):
        at = from_us(minute * MINUTE_US) if minutes else None
        found.append(Flow(pipeline, stage, at, *(int(one) for one in counts)))
    return sorted(found, key=lambda one: (one.at or from_us(0), one.pipeline, one.stage))


def deaths(fetch: Fetch, *, oldest_first: bool = False) -> list[DeathCount]:
    """What jobs have died of, by pipeline, stage, kind and code; most frequent first, or what struck first of all."""
    sums: dict[tuple[str, ...], list[int]] = {}
    for _, pipeline, stage, reason, kind, code, letters, ever, first, _ in _deaths(fetch):
        found = sums.setdefault((pipeline, stage, reason, kind, code), [0, 0, _NEVER])
        found[0] += int(letters)
        found[1] += int(ever)
        found[2] = min(found[2], _NEVER if first is None else first)
    place = 2 if oldest_first else 1
    sign = 1 if oldest_first else -1
    ordered = sorted(sums.items(), key=lambda item: (sign * item[1][place], item[0]))
    return [
        DeathCount(pipeline, stage, FailedReason(reason), kind, code, letters, ever)
        for (pipeline, stage, reason, kind, code), (letters, ever, _) in ordered
    ]


def open_jobs(fetch: Fetch, owner: str) -> int:
    """How many jobs of an owner are queued or in work."""
    ((found,),) = fetch(TALLY["open_jobs"], {"owner": owner})
    return int(found)


def books(fetch: Fetch, pipeline: str | None) -> Books:
    """How many jobs were accepted, where they stand, and how many were pruned."""
    ((accepted, pruned),) = fetch(TALLY["pruned"], {"pipeline": pipeline})
    found = [one for one in depths(fetch) if pipeline in (None, one.pipeline)]
    return Books(
        accepted=int(accepted),
        queued=sum(one.ready + one.waiting + one.retrying for one in found),
        processing=sum(one.processing for one in found),
        succeeded=sum(one.succeeded for one in found),
        failed=sum(one.failed for one in found),
        cancelled=sum(one.cancelled for one in found),
        pruned=int(pruned),
    )


def dead_groups(
    chosen: JobFilter, dialect: Dialect, fetch: Fetch, *, limit: int
) -> list[DeadGroup]:
    """The dead letters of a filter by what they have in common, most frequent first; the newest is the example.

    A filter that the tallies cannot answer (a run, a text, a moment) is answered by looking at the letters.
    """
    struck = _times_struck(fetch, chosen)
    if not is_kept(chosen):
        found = groups_counted(chosen, dialect, fetch, limit=limit)
        return [_with_times(one, struck) for one in found]
    alive = sorted((-row[0], alike, row) for alike, row in struck.items() if row[0])
    return list(_with_examples(alive[: max(0, min(limit, PAGE_ROWS_MAX))], fetch, chosen.owner))


def _times_struck(fetch: Fetch, chosen: JobFilter) -> dict[Alike, tuple[int, int, int]]:
    """How many letters of each group there are, and when it struck first and last."""
    sums: dict[Alike, tuple[int, int, int]] = {}
    for fingerprint, pipeline, stage, reason, kind, code, letters, _, first, last in _deaths(
        fetch, owner=chosen.owner, pipeline=chosen.pipeline
    ):
        alike = (fingerprint, pipeline, stage, kind, code)
        count, first_at, last_at = sums.get(alike, (0, first, last))
        fits = _fits(chosen, fingerprint, stage, reason, kind, code)
        count += int(letters) if fits else 0
        sums[alike] = (count, min(first_at, first), max(last_at, last))
    return sums


def _with_times(one: DeadGroup, struck: Mapping[Alike, tuple[int, int, int]]) -> DeadGroup:
    alike = (one.fingerprint, one.pipeline, one.stage, one.kind, one.code)
    if alike not in struck:  # damage, which the audit names
        return one
    _, first, last = struck[alike]
    return replace(one, first_at=from_us(first), last_at=from_us(last))


def _with_examples(
    groups: Iterable[tuple[int, Alike, tuple[int, int, int]]], fetch: Fetch, owner: str | None
) -> Iterator[DeadGroup]:
    for _, alike, row in groups:
        known = (
            "fingerprint = :fingerprint"
            if alike[0]
            else "fingerprint IS NULL AND failed_reason IS NOT NULL"
        )
        where = dict(zip(_GROUPED_BY, alike, strict=True)) | {"owner": owner}
        sql = _NEWEST.format(alike=known)
        looks = (fetch(sql, where | {"look": rows}) for rows in _LOOKS_ROWS)
        for id, example in next((found for found in looks if found), ()):
            yield dead_group_out((*alike, *row, id, example))


def _deaths(
    fetch: Fetch, *, owner: str | None = None, pipeline: str | None = None
) -> Sequence[Row]:
    return fetch(TALLY["deaths"], {"owner": owner or "", "pipeline": pipeline})


def is_kept(chosen: JobFilter) -> bool:
    """Whether it asks for nothing but what the tallies are kept by."""
    blank = replace(chosen, **dict.fromkeys(_KEPT_BY), states=(State.FAILED,))
    return blank == DEAD_LETTERS and set(chosen.states) <= {State.FAILED} and chosen.owner != ""


def _fits(
    chosen: JobFilter, fingerprint: str, stage: str, reason: str, kind: str, code: str
) -> bool:
    pairs = (
        (chosen.fingerprint, fingerprint),
        (chosen.stage, stage),
        (chosen.reason, reason),
        (chosen.kind, kind),
        (chosen.code, code),
    )
    return all(wanted is None or wanted == found for wanted, found in pairs)
