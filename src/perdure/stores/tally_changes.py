"""What a transaction changes in the counts of runs and in the tallies; for a store that counts in its own process."""

from collections.abc import Sequence
from typing import NamedTuple

from perdure.model.decisions import Counted
from perdure.model.jobs import NewJob, Record
from perdure.model.states import State
from perdure.stores.moments import MINUTE_US

# total, succeeded, failed, cancelled, attempts, retries, tokens_in, tokens_out, cost_nusd, calls
_RUN_COUNTS = 10
# created, succeeded, failed, cancelled, revived, attempts, retries, waits, tokens_in, tokens_out, cost_nusd
_FLOWS = 11
_ENDED = {State.SUCCEEDED: 1, State.FAILED: 2, State.CANCELLED: 3}  # the place in both of them

_PLACES = ("ready", "waiting", "retrying", "processing", "succeeded", "failed", "cancelled")
_DEPTH = {place: n for n, place in enumerate(_PLACES)}


def place_of(state: str, ready: object, error_kind: str | None) -> str:
    """Where a job stands: its state, and of a queued one whether it is ready, or waits after a failure."""
    if state != State.QUEUED:
        return str(state)
    if ready:
        return "ready"
    return "waiting" if error_kind is None else "retrying"


class JobBefore(NamedTuple):
    """What is to be known of a job as it was before its record was written."""

    run: int | None
    redrive_run: int | None
    owner: str
    pipeline: str
    lane: int
    place: str


class Letter(NamedTuple):
    """What the tallies of dead letters are kept by, for its owner and for all."""

    fingerprint: str | None
    owner: str
    pipeline: str
    stage: str
    reason: str | None
    kind: str | None
    code: str | None


class TallyChanges:
    """Changes of counts by run and by run and kind, and of the tallies, to be added to rows in one transaction."""

    def __init__(self) -> None:
        self._by_run: dict[int, list[int]] = {}
        self._by_kind: dict[tuple[int, str], int] = {}
        self._depths: dict[int, list[int]] = {}
        self._flows: dict[tuple[str, str], list[int]] = {}
        self._deaths: dict[Letter, list[int]] = {}
        self._open: dict[str, int] = {}

    def add_accepted(self, job: NewJob, place: str) -> None:
        """A job has come in."""
        self.move(job.lane, None, place)
        self._flow(job.pipeline, job.stage)[0] += 1
        self._count_open(job.owner, 1)
        if job.run is not None:
            self._of(job.run)[0] += 1

    def move(
        self,
        lane: int,
        left: str | None,
        place: str | None,
        *,
        to: int | None = None,
        jobs: int = 1,
    ) -> None:
        """Jobs have left one place and come to another, of their lane or of lane ``to``."""
        if left in _DEPTH:  # else it is new, or in no state that there is
            self._depth(lane)[_DEPTH[left]] -= jobs
        if place in _DEPTH:
            self._depth(lane if to is None else to)[_DEPTH[place]] += jobs

    def add_settled(self, record: Record, before: JobBefore) -> None:
        """An attempt ended, or a wait was cancelled."""
        attempt, ended = record.attempt, _ENDED.get(record.state)
        place = place_of(record.state, not record.delay_s, record.error_kind)
        self.move(before.lane, before.place, place, to=record.lane)
        stage = record.stage if attempt is None else attempt.stage
        flow = self._flow(before.pipeline, stage)
        if ended is not None:
            flow[ended] += 1
            self._count_open(before.owner, -1)
        if attempt is not None:
            flow[5] += 1
            flow[6] += attempt.counted == Counted.FAILURES and ended is None
            flow[7] += attempt.counted == Counted.WAITS and ended is None
            flow[8] += attempt.tokens_in
            flow[9] += attempt.tokens_out
            flow[10] += attempt.cost_nusd
        if record.state is State.FAILED:
            letter = Letter(
                record.fingerprint,
                before.owner,
                before.pipeline,
                stage,
                record.failed_reason,
                record.error_kind,
                record.error_code,
            )
            self._count_death(letter, 1, 1)
        for run in (before.run, before.redrive_run):
            if run is not None:
                self._settle_in_run(run, record)

    def add_to_run(self, run: int | None) -> None:
        """A job is driven again in a run."""
        if run is not None:
            self._of(run)[0] += 1

    def return_to_run(self, run: int | None, kind: str | None) -> None:
        """A job of a run that had failed with that kind has a new life."""
        if run is not None:
            self._of(run)[2] -= 1
            self._count_failure(run, kind, -1)

    def add_revived(self, letter: Letter, lane: int, *, to: int, discarded: bool) -> None:
        """A dead letter has a new life."""
        self.move(lane, "failed", "ready", to=to)
        self._flow(letter.pipeline, letter.stage)[4] += 1
        self._count_open(letter.owner, 1)
        if not discarded:
            self._count_death(letter, -1, 0)

    def add_discarded(self, letter: Letter) -> None:
        """Somebody has dealt with a dead letter."""
        self._count_death(letter, -1, 0)

    def rows(self, writer: int, now: int) -> tuple[Sequence[tuple[object, ...]], ...]:
        """As the tables take them: counts of runs, their kinds, depths, flows, deaths, owners."""
        minute = now // MINUTE_US
        return (
            [(run, writer, *counts) for run, counts in sorted(self._by_run.items())],
            [(run, writer, kind, n) for (run, kind), n in sorted(self._by_kind.items()) if n],
            [(lane, *jobs) for lane, jobs in self._depths.items() if any(jobs)],
            [(*names, minute, *counts) for names, counts in self._flows.items() if any(counts)],
            self._death_rows(now),
            [(owner, jobs) for owner, jobs in self._open.items() if jobs],
        )

    def _death_rows(self, now: int) -> Sequence[tuple[object, ...]]:
        return [
            (
                owner,
                letter.fingerprint or "",
                *(one or "" for one in letter[2:]),
                letters,
                ever,
                *((now, now) if ever else (None, None)),
            )
            for letter, (letters, ever) in self._deaths.items()
            for owner in sorted({"", letter.owner})
        ]

    def _settle_in_run(self, run: int, record: Record) -> None:
        counts, attempt, ended = self._of(run), record.attempt, _ENDED.get(record.state)
        if ended is not None:
            counts[ended] += 1
        if record.state is State.FAILED:
            self._count_failure(run, record.error_kind, 1)
        if attempt is not None:
            counts[4] += 1
            counts[5] += attempt.counted == Counted.FAILURES and ended is None
            counts[6] += attempt.tokens_in
            counts[7] += attempt.tokens_out
            counts[8] += attempt.cost_nusd
            counts[9] += attempt.called

    def _count_failure(self, run: int, kind: str | None, count: int) -> None:
        place = (run, kind or "")
        self._by_kind[place] = self._by_kind.get(place, 0) + count

    def _count_death(self, letter: Letter, letters: int, ever: int) -> None:
        counts = self._deaths.setdefault(letter, [0, 0])
        counts[0] += letters
        counts[1] += ever

    def _count_open(self, owner: str, jobs: int) -> None:
        if owner:
            self._open[owner] = self._open.get(owner, 0) + jobs

    def _of(self, run: int) -> list[int]:
        found = self._by_run.get(run)
        if found is None:
            found = self._by_run[run] = [0] * _RUN_COUNTS
        return found

    def _depth(self, lane: int) -> list[int]:
        found = self._depths.get(lane)
        if found is None:
            found = self._depths[lane] = [0] * len(_PLACES)
        return found

    def _flow(self, pipeline: str, stage: str) -> list[int]:
        found = self._flows.get((pipeline, stage))
        if found is None:
            found = self._flows[pipeline, stage] = [0] * _FLOWS
        return found
