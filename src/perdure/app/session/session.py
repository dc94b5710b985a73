"""What the handles of an App and the parts of its worker share: the store, and what the App declares.

Always true: the store is opened once in a process, on first use. A process that was forked off has a lock, ids, calls
and a feed of its own.
"""

import random
import threading
from collections.abc import Callable, Mapping

from perdure.app.calling.calls import Calls
from perdure.app.session.job_watch import JobWatch
from perdure.app.session.opening import open_store
from perdure.app.session.settings import Settings, load_settings
from perdure.engine.batch.runs import Runs
from perdure.engine.clock import SystemClock
from perdure.engine.gates.upstreams import Upstreams
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.operate.bulks import Bulks
from perdure.engine.operate.eligible import Check
from perdure.engine.operate.feed_listeners import FeedThread
from perdure.engine.stages import Catalogue, LaidPipeline
from perdure.engine.upkeep.schedules import Schedule
from perdure.model.errors import ConfigError
from perdure.model.jobs import Lane
from perdure.observers.process_figures import ProcessFigures
from perdure.rules.field_checks import check_aliases, nearest
from perdure.rules.policy import Policy
from perdure.rules.vocabulary import VOCABULARIES
from perdure.stores.forking import tell_of_forks
from perdure.stores.opening import Opened, refusal_to_write


class Session:
    """A store with the pipelines, checks, schedules and upstreams that somebody works on it with.

    Without any of them it is a store alone; what needs a stage is left to a worker that has it.
    """

    def __init__(
        self,
        url: str,
        observers: Observers,
        opened: Opened | None = None,
        *,
        read_only: bool = False,
        settings: Settings | None = None,
    ) -> None:
        self.url = url
        self.settings = settings or load_settings()
        self.read_only = read_only
        self.observers = observers
        self.ids = Ids(SystemClock(), random.SystemRandom())
        self.upstreams = Upstreams()
        self.laid_pipelines: dict[str, LaidPipeline] = {}
        self.checks: dict[str, Check] = {}  # whether the source of an item exists, by pipeline
        self.sync_policies: dict[str, Policy] = {}  # of pipelines that a server may call
        self.schedules: dict[str, Schedule] = {}
        self.fair_queues: set[str] = set()
        self.aliases: Mapping[str, str] = aliases_in(
            self.settings.config.aliases
        )  # at once: a wrong one is told here
        self.workers_here: list[Callable[[], str]] = []  # why each in this process claims nothing
        self._opened = opened
        self._calls: Calls | None = None
        self._feed: FeedThread | None = None
        self._watch: JobWatch | None = None
        self._figures: ProcessFigures | None = None
        self._laid: set[str] = set()
        self._opening = threading.Lock()
        tell_of_forks(self)

    def begin_anew(self) -> None:
        """In a process that was forked off: a thread of the parent's may have had the lock.

        The ids begin anew as well: two children that counted on from the same one would make the same.
        """
        self._opening = threading.Lock()
        self.ids = Ids(SystemClock(), random.SystemRandom())
        self.workers_here = []

    @property
    def opened(self) -> Opened:
        """The store, opened on first use."""
        with self._opening:
            if self._opened is None:
                connections = self.settings.config.connections
                self._opened = open_store(
                    self.url, read_only=self.read_only, connections=connections
                )
            return self._opened

    @property
    def calls(self) -> Calls:
        """What the calls of this process share."""
        with self._opening:
            if self._calls is None or not self._calls.is_of_this_process:
                config = self.settings.config
                self._calls = Calls(
                    clock=SystemClock(),
                    chance=random.SystemRandom(),
                    observers=self.observers,
                    upstreams=self.upstreams,
                    capture_kept_s=config.capture_kept_s,
                    tracebacks=config.keeps_tracebacks,
                )
            return self._calls

    @property
    def feed(self) -> FeedThread:
        """The one reader of changes that all listeners of this process share."""
        reader = self.opened.reader
        with self._opening:
            if self._feed is None or not self._feed.is_of_this_process:
                self._feed = FeedThread(reader, poll_s=self.settings.config.poll_s)
            return self._feed

    @property
    def watch(self) -> JobWatch:
        """The one who looks for the ends of jobs, for all of this process that wait for one."""
        reader = self.opened.reader
        with self._opening:
            if self._watch is None or not self._watch.is_of_this_process:
                self._watch = JobWatch(reader.jobs_ended)
            return self._watch

    @property
    def figures(self) -> ProcessFigures:
        """What this process does, counted from the first time that somebody asks for it."""
        with self._opening:
            if self._figures is None:
                self._figures = ProcessFigures()
                self.observers.add(self._figures, turns=self._figures.add_turn)
            return self._figures

    @property
    def runs(self) -> Runs:
        """The verbs of runs on this store."""
        opened = self.opened
        return Runs(opened.store, opened.control, opened.reader, self.observers)

    @property
    def bulks(self) -> Bulks:
        """Bulk operations on this store, for the pipelines that are known."""
        opened = self.opened
        return Bulks(
            opened.store,
            opened.control,
            opened.reader,
            self.catalogue,
            self.observers,
            self.checks,
        )

    def aliases_of(self, pipeline: object) -> Mapping[str, str]:
        """The second names of fields of a pipeline's jobs: those of its policies, in the order of its stages, and those of the settings."""
        laid = self.laid_pipelines.get(pipeline) if isinstance(pipeline, str) else None
        return self.aliases if laid is None else {**laid.aliases, **self.aliases}

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes of all pipelines."""
        return tuple(lane for laid in self.laid_pipelines.values() for lane in laid.lanes())

    @property
    def catalogue(self) -> Catalogue:
        """All pipelines on their lanes."""
        if not self.read_only:
            self.make_ready()
        return Catalogue(self.laid_pipelines.values())

    def check_writable(self) -> None:
        """Refuse to work on a store that is only read."""
        if self.read_only:
            raise refusal_to_write(self.url)

    def make_ready(self) -> None:
        """Make sure that every declared pipeline has its lanes."""
        missing = [laid for laid in self.laid_pipelines.values() if laid.name not in self._laid]
        if not missing:
            return
        wanted = [lane for laid in missing for lane in laid.lanes()]
        numbers = self.opened.store.lanes(wanted)
        for laid in missing:
            laid.lane_nos.update({lane.stage: numbers[lane] for lane in laid.lanes()})
            self._laid.add(laid.name)

    def close(self) -> None:
        """Disconnect from the store."""
        with self._opening:
            calls, self._calls = self._calls, None
            feed, self._feed = self._feed, None
            watch, self._watch = self._watch, None
        if calls is not None:
            calls.close()
        if feed is not None and feed.is_of_this_process:
            feed.close()
        if watch is not None and watch.is_of_this_process:
            watch.close()
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None


def aliases_in(setting: str) -> dict[str, str]:
    """The second names that a setting gives: by vocabularies, or each by itself."""
    found: dict[str, str] = {}
    for word in filter(None, (one.strip() for one in setting.split(","))):
        name, given, alias = word.partition("=")
        if not given and name not in VOCABULARIES:
            raise ConfigError(
                f"aliases (PERDURE_ALIASES) has {word!r}; write name=alias, or a vocabulary: {nearest(name, VOCABULARIES)}"
            )
        found |= {name.strip(): alias.strip()} if given else VOCABULARIES[name].aliases
    return check_aliases("aliases (PERDURE_ALIASES)", found)
