"""Which dead letters may be driven again, and what a re-drive would do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from perdure.engine.operate.revival import Revivals
from perdure.engine.payloads import decode
from perdure.engine.run import ask_check
from perdure.model.errors import CallerError, NotCancellable, NotChangeable, NotRetriable
from perdure.model.filters import JobFilter
from perdure.model.nouns import replace
from perdure.model.operations import Revival
from perdure.model.outcomes import Evidence
from perdure.model.states import State
from perdure.model.views import JobView
from perdure.ports import Reader

_PAGE_ROWS = 200

# Why this job may not be driven again ("its source is gone"), or None.
Check = Callable[[JobView], str | None]


class RefusalGroup(Struct, frozen=True):
    """Why jobs would be left as they are, how many, and one of them."""

    why: str
    count: int
    example_id: str


class RedrivePreview(Struct, frozen=True):
    """What a re-drive or a retry would do now; ``capped`` when there are more than were looked at.

    ``keys_unknown`` are those of corrected payloads for which no dead letter was found.
    """

    count: int
    eligible: int
    refused: tuple[RefusalGroup, ...]
    capped: bool
    pipelines: tuple[str, ...]
    keys_unknown: tuple[str, ...] = ()


def source_check(exists: Callable[[Any], Any]) -> Check:
    """A pipeline's ``source_exists`` as a check: it is called with the item as it was enqueued."""

    def check(job: JobView) -> str | None:
        answer = ask_check(lambda text: exists(decode(text)), job.payload_json)
        if isinstance(answer, Evidence):
            name = answer.names[0] if answer.names else "an error"
            return f"whether its source exists could not be told ({name})"
        return None if answer else "its source is gone"

    return check


def dead_letters(chosen: JobFilter) -> JobFilter:
    """The dead letters that a filter means; discarded ones only if it asks for them."""
    if chosen.states and State.FAILED not in chosen.states:
        states = ", ".join(chosen.states)
        raise NotRetriable(
            f"the filter asks for jobs that are {states}; only failed ones are meant"
        )
    return replace(chosen, states=(State.FAILED,), discarded=chosen.discarded or False)


def only_open(chosen: JobFilter) -> JobFilter:
    """The jobs that a filter means and that have not ended."""
    states = chosen.states or (State.QUEUED, State.PROCESSING)
    if not set(states) <= {State.QUEUED, State.PROCESSING}:
        raise NotCancellable(
            f"the filter asks for jobs that are {', '.join(states)}; only queued and processing ones are meant"
        )
    return replace(chosen, states=states)


def waiting_jobs(chosen: JobFilter) -> JobFilter:
    """The jobs that a filter means and whose time has not come."""
    if chosen.states not in ((), (State.QUEUED,)):
        raise NotChangeable(
            f"the filter asks for jobs that are {', '.join(chosen.states)}; only queued ones wait for their time"
        )
    return replace(chosen, states=(State.QUEUED,), waiting=True)


def eligible(
    job: JobView,
    revivals: Revivals,
    checks: Mapping[str, Check],
    payload_json: str | None = None,
) -> Revival | str:
    """The new life of a dead letter, perhaps with another payload, or why there can be none."""
    try:
        revival = revivals.of(job, payload_json)
    except CallerError as refused:
        return str(refused).replace(f"job {job.id}", "it")
    return why_not(job, checks.get(job.pipeline), payload_json) or revival


def why_not(job: JobView, check: Check | None, payload_json: str | None) -> str | None:
    """What a pipeline's own check has against a new life of this job, with the payload that it would have."""
    if check is None:
        return None
    return check(job if payload_json is None else replace(job, payload_json=payload_json))


@dataclass(slots=True)
class Previewing:
    """Asks of each dead letter what would become of it; changes nothing."""

    reader: Reader
    revivals: Revivals
    checks: Mapping[str, Check]
    payloads: Mapping[str, str] | None = None

    def of(self, chosen: JobFilter, *, count_max: int) -> RedrivePreview:
        """What a re-drive of these would do, looked at up to a bound."""
        meant = dead_letters(chosen)
        reasons: dict[str, list[str]] = {}
        keys: set[tuple[str, str, str]] = set()
        pipelines: dict[str, None] = {}
        unknown = dict.fromkeys(self.payloads or ())
        count, looked, before, more = 0, 0, None, True
        while more and looked < count_max:
            limit = min(_PAGE_ROWS, count_max - looked)
            page = self.reader.jobs(meant, limit=limit, before=before)
            for job, why in self._whys(page, keys):
                count += 1
                pipelines[job.pipeline] = None
                unknown.pop(job.key or "", None)
                if why is not None:
                    reasons.setdefault(why, []).append(job.id)
            looked, more = looked + len(page), len(page) == limit
            before = page[-1].no if page else before
        capped = more and bool(self.reader.jobs(meant, limit=1, before=before))
        refused = [RefusalGroup(why, len(ids), ids[0]) for why, ids in reasons.items()]
        refused.sort(key=lambda one: (-one.count, one.why))
        able = count - sum(one.count for one in refused)
        return RedrivePreview(count, able, tuple(refused), capped, tuple(pipelines), tuple(unknown))

    def _whys(
        self, page: Sequence[JobView], keys: set[tuple[str, str, str]]
    ) -> list[tuple[JobView, str | None]]:
        rivals = self.reader.rivals([job.no for job in page]) if page else {}
        found: list[tuple[JobView, str | None]] = []
        for job in page:
            if self.payloads is not None and job.key not in self.payloads:
                continue
            payload = None if self.payloads is None else self.payloads[job.key or ""]
            answer = eligible(job, self.revivals, self.checks, payload)
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
