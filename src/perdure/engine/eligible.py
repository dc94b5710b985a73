"""Which dead letters may be driven again, and what a re-drive would do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.engine.revival import Revivals
from perdure.model.errors import CallerError, NotRetriable
from perdure.model.filters import JobFilter
from perdure.model.operations import Revival
from perdure.model.states import State
from perdure.model.views import JobView
from perdure.ports import Reader

_PAGE_ROWS = 200

# Why this job may not be driven again ("its source is gone"), or None.
Check = Callable[[JobView], str | None]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why jobs would be left as they are, how many, and one of them."""

    why: str
    count: int
    example_id: str


@dataclass(frozen=True, slots=True)
class RedrivePreview:
    """What a re-drive would do now; ``capped`` when there are more than were looked at."""

    count: int
    eligible: int
    refused: tuple[Refused, ...]
    capped: bool
    pipelines: tuple[str, ...]


def dead_letters(chosen: JobFilter) -> JobFilter:
    """The dead letters that a filter means; discarded ones only if it asks for them."""
    if chosen.states and State.FAILED not in chosen.states:
        states = ", ".join(chosen.states)
        raise NotRetriable(
            f"the filter asks for jobs that are {states}; only failed ones are meant"
        )
    return replace(chosen, states=(State.FAILED,), discarded=chosen.discarded or False)


def eligible(job: JobView, revivals: Revivals, checks: Mapping[str, Check]) -> Revival | str:
    """The new life of a dead letter, or why there can be none."""
    try:
        revival = revivals.of(job)
    except CallerError as refused:
        return str(refused).replace(f"job {job.id}", "it")
    check = checks.get(job.pipeline)
    return (None if check is None else check(job)) or revival


@dataclass(slots=True)
class Previewing:
    """Asks of each dead letter what would become of it; changes nothing."""

    reader: Reader
    revivals: Revivals
    checks: Mapping[str, Check]

    def of(self, chosen: JobFilter, *, count_max: int) -> RedrivePreview:
        """What a re-drive of these would do, looked at up to a bound."""
        meant = dead_letters(chosen)
        reasons: dict[str, list[str]] = {}
        keys: set[tuple[str, str, str]] = set()
        pipelines: dict[str, None] = {}
        count, before, more = 0, None, True
        while more and count < count_max:
            limit = min(_PAGE_ROWS, count_max - count)
            page = self.reader.jobs(meant, limit=limit, before=before)
            for job, why in self._whys(page, keys):
                pipelines[job.pipeline] = None
                if why is not None:
                    reasons.setdefault(why, []).append(job.id)
            count, more = count + len(page), len(page) == limit
            before = page[-1].no if page else before
        capped = more and bool(self.reader.jobs(meant, limit=1, before=before))
        refused = [Refused(why, len(ids), ids[0]) for why, ids in reasons.items()]
        refused.sort(key=lambda one: (-one.count, one.why))
        able = count - sum(one.count for one in refused)
        return RedrivePreview(count, able, tuple(refused), capped, tuple(pipelines))

    def _whys(
        self, page: Sequence[JobView], keys: set[tuple[str, str, str]]
    ) -> list[tuple[JobView, str | None]]:
        rivals = self.reader.rivals([job.no for job in page]) if page else {}
        found: list[tuple[JobView, str | None]] = []
        for job in page:
            answer = eligible(job, self.revivals, self.checks)
            why = answer if isinstance(answer, str) else _rival(job, rivals, keys)
            found.append((job, why))
        return found


def _rival(job: JobView, rivals: Mapping[int, str], keys: set[tuple[str, str, str]]) -> str | None:
    """Why a key stands in the way: it is alive, or another dead letter with it comes first."""
    if job.key is None:
        return None
    if job.no in rivals:
        return "its key is alive again in another job"
    place = (job.owner, job.pipeline, job.key)
    if place in keys:
        return "another dead letter with its key comes first"
    keys.add(place)
    return None
