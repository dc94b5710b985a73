"""What somebody who looks on wants to know of a run: read from its counters and lanes, and a page of what is retried."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

from msgspec import Struct

from perdure.app.surface import gate_control
from perdure.app.surface.gate_figures import figures
from perdure.engine.batch.feeding import Fed
from perdure.engine.batch.runs import settings_of, tally_of
from perdure.engine.batch.unattended import workers_alive
from perdure.engine.operate.closed_lanes import release_commands
from perdure.engine.stages import LaidPipeline
from perdure.model.errors import UnknownName
from perdure.model.filters import JobFilter
from perdure.model.jobs import Lane
from perdure.model.runs import RunCounts, RunStatus, RunView
from perdure.model.states import State
from perdure.model.views import LaneView
from perdure.stores.opening import Opened

_WINDOW_S = 60.0
_SAMPLE_S = 0.5
_STILL_S = 10.0  # without any movement, nobody can say when it will be over
_PACED = 0.3  # of the rate that is allowed; with fewer calls something else holds it back
_TELLING_PER_S = 0.2  # below this rate a minute has too few calls to tell
_LANES_S = 1.0  # between looks at the lanes: they cost more than the counters
_STARTED_S = 3.0  # within these a worker has usually started
_CAUSE_S = 10.0  # between looks at jobs that are retried: these may have to be looked for
_CAUSE_JOBS = 100


class Held(Struct, frozen=True):
    """Something that keeps items of the run from being claimed, why, and how many wait for it.

    ``commands`` are what to type so that they are claimed again, where something helps.
    """

    what: str
    why: str
    waiting: int
    commands: tuple[str, ...] = ()


class PacedUpstream(Struct, frozen=True):
    """An upstream behind which items are ready and whose calls start at a rate, and what is said of that."""

    name: str
    rate_per_s: float
    says: str


class BudgetLeft(Struct, frozen=True):
    """The failures that count, what they are counted among, and the share of them that is allowed."""

    failed: int
    processed: int
    share_max: float

    @property
    def share(self) -> float:
        """The share of failures so far."""
        return self.failed / self.processed if self.processed else 0.0

    @property
    def used(self) -> float:
        """How much of the budget is used up, from 0 to 1."""
        if self.share_max <= 0:
            return 1.0 if self.failed else 0.0
        return min(1.0, self.share / self.share_max)


class RunPace(Struct, frozen=True):
    """How fast it goes, over the last minute; requests are calls of stages that name an upstream."""

    items_per_s: float = 0.0
    requests_per_min: float = 0.0
    tokens_per_min: float = 0.0


class RunSnapshot(Struct, frozen=True):
    """A run at one moment. ``feeding`` while more items may come; ``stopping`` while hands are emptied.

    ``note``: what a watcher should also know, such as that the store is away. ``still_s`` is for how long nothing has
    moved, ``free_s`` for how long nothing has held items. ``paced`` are the upstreams whose pace holds it back.
    ``cause``: the commonest error kind among jobs waiting to retry, set when most open jobs are.
    """

    run: RunView
    elapsed_s: float
    feeding: bool
    fed: Fed
    retrying: int
    held: tuple[Held, ...]
    pace: RunPace
    allowance: BudgetLeft | None
    stopping: bool = False
    note: str = ""
    still_s: float = 0.0
    paced: tuple[PacedUpstream, ...] = ()
    free_s: float = math.inf
    cause: str = ""

    @property
    def ended(self) -> int:
        """Items that have reached their end."""
        return self.run.counts.total - self.run.counts.open

    @property
    def eta_s(self) -> float | None:
        """When the items that are known will have ended, at this pace; None when nothing tells."""
        if self.run.counts.open == 0:
            return 0.0
        if self.still_s >= _STILL_S or self.free_s < _STILL_S:
            return None
        return self.run.counts.open / self.pace.items_per_s if self.pace.items_per_s > 0 else None

    @property
    def projected_usd(self) -> float | None:
        """What all known items will cost, if each costs as much as an ended one did; None if nothing has cost yet."""
        cost = self.run.counts.cost_usd
        return cost / self.ended * self.run.counts.total if self.ended and cost else None


class Watch:
    """Looks at one run again and again; ``laid`` is its pipeline as it is now.

    ``hired`` says that a worker of ours serves all lanes of the run, wherever they are.
    """

    def __init__(
        self,
        opened: Opened,
        run_id: str,
        *,
        laid: LaidPipeline | None = None,
        hired: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opened = opened
        self._run_id = run_id
        self._laid = laid
        self._hired = hired
        self._monotonic = monotonic
        self._began_at = monotonic()
        self._samples: deque[tuple[float, RunCounts]] = deque()
        self._moved: tuple[float, RunCounts | None] = (self._began_at, None)
        self._lanes_at = -_LANES_S
        self._waiting: tuple[int, tuple[Held, ...], bool] = (0, (), True)
        self._paced: tuple[PacedUpstream, ...] = ()
        self._held_at = -math.inf
        self._cause: tuple[float, str] = (-_CAUSE_S, "")

    @property
    def anybody_works(self) -> bool:
        """Whether a worker was alive at the last look, of this app or another."""
        return self._waiting[2]

    def run(self) -> RunView:
        """The run now."""
        found = self._opened.reader.run(self._run_id)
        if found is None:
            raise UnknownName(f"run {self._run_id} is no longer in the store")
        return found

    def look(
        self, run: RunView, fed: Fed, *, feeding: bool, stopping: bool = False, note: str = ""
    ) -> RunSnapshot:
        """All of it, as it is now."""
        now = self._monotonic()
        if now - self._lanes_at >= _LANES_S:
            self._lanes_at = now
            self._waiting = self._look_at_lanes(run)
        if self._moved[1] != run.counts:
            self._moved = (now, run.counts)
        retrying, held, _ = self._waiting
        self._held_at = now if held else self._held_at
        pace = self._pace(now, run.counts)
        awaited = self._hired and run.counts.open and not stopping and not self.anybody_works
        if awaited and now - self._began_at >= _STARTED_S:
            note = note or "the worker is starting"
        return RunSnapshot(
            run,
            now - self._began_at,
            feeding,
            fed,
            min(retrying, run.counts.open),
            held,
            pace,
            allowance_of(run),
            stopping,
            note,
            now - self._moved[0],
            tuple(one for one in self._paced if self._is_slowed(one, pace, now)),
            now - self._held_at,
            self._find_cause(run, retrying, now),
        )

    def _find_cause(self, run: RunView, retrying: int, now: float) -> str:
        """What the newest of the retried jobs have failed of most; nothing where most of what is open goes on."""
        if not retrying or 2 * retrying < run.counts.open:
            return ""
        if now - self._cause[0] >= _CAUSE_S:
            # by what is queued and not by the run, whose jobs may be millions that have ended
            chosen = JobFilter(states=(State.QUEUED,), pipeline=run.pipeline, retrying=True)
            found = self._opened.reader.jobs(chosen, limit=_CAUSE_JOBS)
            kinds = Counter(one.error_kind or "" for one in found if one.run == run.no)
            self._cause = (now, min(kinds, key=lambda kind: (-kinds[kind], kind), default=""))
        return self._cause[1]

    def _is_slowed(self, one: PacedUpstream, pace: RunPace, now: float) -> bool:
        """Whether it is the pace that holds the run back, and not the slots of its workers; at first nobody can tell."""
        new = now - self._began_at < _STILL_S or one.rate_per_s < _TELLING_PER_S
        return new or pace.requests_per_min / 60 >= one.rate_per_s * _PACED

    def _pace(self, now: float, counts: RunCounts) -> RunPace:
        samples = self._samples
        if not samples or now - samples[-1][0] >= _SAMPLE_S:
            samples.append((now, counts))
        while len(samples) > 2 and now - samples[1][0] >= _WINDOW_S:
            samples.popleft()
        then, before = samples[0]
        past_s = now - then
        if past_s < _SAMPLE_S:
            return RunPace()
        ended = (counts.total - counts.open) - (before.total - before.open)
        tokens = counts.tokens_in + counts.tokens_out - before.tokens_in - before.tokens_out
        return RunPace(
            max(0, ended) / past_s,
            (counts.calls - before.calls) * 60 / past_s,
            tokens * 60 / past_s,
        )

    def _look_at_lanes(self, run: RunView) -> tuple[int, tuple[Held, ...], bool]:
        reader = self._opened.reader
        lanes = [one for one in reader.lanes() if one.lane.run == run.no]
        alive = workers_alive(reader) > 0
        held: tuple[Held, ...] = ()
        # Why it was aborted says what to do; nothing is to be released.
        if run.status is not RunStatus.ABORTED:
            held = self._held_lanes(run, lanes) + self._astray(run, lanes)
        self._paced = self._paced_upstreams(lanes)
        return sum(one.later for one in lanes), held, alive

    def _astray(self, run: RunView, lanes: list[LaneView]) -> tuple[Held, ...]:
        """What waits in lanes that the pipeline has no longer: its code has changed since the run began."""
        waiting: dict[tuple[str, str], int] = {}
        for one in lanes:
            where, count = self._why_gone(run, one.lane), one.ready + one.later
            if where is not None and count:
                waiting[where] = waiting.get(where, 0) + count
        return tuple(Held(what, why, count) for (what, why), count in sorted(waiting.items()))

    def _why_gone(self, run: RunView, lane: Lane) -> tuple[str, str] | None:
        laid = self._laid
        if laid is None:
            return None
        if laid.stage(lane.stage) is None:
            cancel = f"perdure runs cancel {run.no}"
            return (
                f"stage {lane.stage!r} is not in the pipeline any more",
                f"bring it back, or give up what waits for it: {cancel}",
            )
        if (lane.queue, lane.category) == (laid.queue, laid.category) or self._hired:
            return None
        return (
            f"the pipeline is no longer in {lane.queue}/{lane.category}",
            "only a worker without --queue and --category takes these",
        )

    def _held_lanes(self, run: RunView, lanes: list[LaneView]) -> tuple[Held, ...]:
        waiting: dict[str, int] = {}
        for one in lanes:
            if one.closed_by is not None and one.ready + one.later:
                waiting[one.closed_by] = waiting.get(one.closed_by, 0) + one.ready + one.later
        if not waiting:
            return ()
        why = self._reasons(run) | {
            f"{one.kind} {one.name} is {one.state.value}": one.says
            for one in gate_control.gates(self._opened)
        }
        return tuple(
            Held(
                text.replace(f"run {run.no} is", "the run is"),
                "; ".join(why[part] for part in text.split("; ") if why.get(part)),
                count,
                release_commands(text),
            )
            for text, count in sorted(waiting.items())
        )

    def _paced_upstreams(self, lanes: list[LaneView]) -> tuple[PacedUpstream, ...]:
        names = sorted({one.lane.upstream or "" for one in lanes if one.open and one.ready} - {""})
        if not names:
            return ()
        told = figures(self._opened.reader.look(names), {})
        return tuple(
            PacedUpstream(name, told[name].rate_per_s or 0.0, told[name].pace_says)
            for name in names
            if name in told and told[name].pace_says
        )

    def _reasons(self, run: RunView) -> dict[str, str]:
        """Why things are paused, by the words in which lanes say what closes them."""
        said: dict[str, str] = {}
        for pause in self._opened.reader.pauses():
            said[f"{pause.scope.value} {pause.name} is paused"] = pause.reason
        said[f"run {run.no} is paused"] = run.why
        return said


def look_once(opened: Opened, run: RunView) -> tuple[RunSnapshot, bool]:
    """A run as it is at this moment, and whether a worker is alive."""
    watch = Watch(opened, run.id)
    return watch.look(run, Fed(), feeding=False), watch.anybody_works


def words_for_kept_back(opened: Opened, runs: Iterable[RunView]) -> dict[int, list[str]]:
    """Of runs by their numbers: that a gate or a pause holds items of one, and that nobody works, in a word or two."""
    going = [one.no for one in runs if one.status is RunStatus.RUNNING and one.counts.open]
    if not going:
        return {}
    lanes = opened.reader.lanes()
    held = {one.lane.run for one in lanes if not one.open and one.ready + one.later}
    alone = workers_alive(opened.reader) == 0
    return {no: ["held"] * (no in held) + ["no worker"] * alone for no in going}


def allowance_of(run: RunView) -> BudgetLeft | None:
    """What is left of a run's failure budget; None for one that has none."""
    settings = settings_of(run)
    if settings.failure_budget is None:
        return None
    tally = tally_of(run)
    judged = tally if settings.rate_limits else tally.without_rate_limits()
    return BudgetLeft(judged.failed, judged.processed, settings.failure_budget)
