"""The supervisor: a small process that starts working processes, beats for them, and buries them.

It runs no stage, imports no app and has no threads, so it beats whatever its children do. It keeps
as many children for ordinary jobs as it was told to, each with a row and a lease of its own. Two more
come and go as jobs for them wait in open lanes that we serve: one for suspects (jobs that were in hand
when a child died), and one for jobs that were in hand when the child of suspects died, too. There is
never more than one of each, however many other children there are. A job that
kills a process while it is alone in it is poison, and no innocent job is ever failed for it.

What it does when: a child that ends is reported at once with its exit status, and a main one is
started again under a new row, while its siblings go on; a child that has stopped is beaten for once more, because it ran
until then, and then no longer; a child whose beat is refused is killed, as is one that stays
stopped for a whole lease while it keeps the store from being written. A child that ended with a job
in its hands was ended by its work; one that ended without may be unable to start, so the next one
is started after a growing wait, unless it ended with the status that asks for another. Where the
system has no process to give, that is told once and tried again after the same growing wait, while
the other children are kept. One that was
killed and not by us may have been too large: the kernel's counters know. Told to drain, it passes
the order on and goes on beating until the children are gone; after the grace it kills them and says
that it was our doing, so that no crash is counted. A store that is away by then is told nothing more, and one that
is silent is not waited for: the leases run out by themselves, and whoever settles them counts a crash.

If it dies itself, its children see their pipe close and give back what they hold.
"""

import os
import secrets
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec import Struct

from perdure.engine.observe import Observers
from perdure.engine.supervise.lease import Lease
from perdure.engine.supervise.oom import OomCounter
from perdure.model.errors import StoreError, StoreUnavailable
from perdure.model.events import EventName
from perdure.model.outcomes import OUT_OF_MEMORY, Death
from perdure.model.workers import EXIT_RECYCLED, NewWorker, Role
from perdure.ports import Clock, Store

_LOOK_S = 0.5
_RESTART_S_MAX = 10.0
_HEALTHY_S = 30.0
_KILL_MARGIN_S = 3.0
_CONFIG_EXIT = 2
_WELL = (0, EXIT_RECYCLED)

Spawn = Callable[[Role, int], subprocess.Popen[bytes]]
Lanes = Callable[[], Sequence[int]]
Post = tuple[Role, int]  # a role, and which of the children that have it


@dataclass(slots=True)
class Child:
    """A working process of ours."""

    post: Post
    worker: int
    process: subprocess.Popen[bytes]
    started_at: float
    stopped: bool = False
    turned: bool = False  # stopped, or gone on, since the last beat
    killed: bool = False
    orders: int = 0  # passed on to it

    @property
    def role(self) -> Role:
        """What it is for."""
        return self.post[0]


class ChildEnded(Struct, frozen=True):
    """A child that is no more, and of which the store does not know yet."""

    child: Child
    status: int
    death: Death
    lived_s: float


@dataclass(slots=True)
class Restarts:
    """How long to wait before a child is started again at its post."""

    quick: int = 0
    next_at: float = 0.0

    def after(self, lived_s: float, now: float, *, well: bool) -> None:
        """Another one has ended."""
        self.quick = 0 if well or lived_s >= _HEALTHY_S else self.quick + 1
        wait_s = 0.0 if self.quick <= 1 else min(0.1 * 2.0**self.quick, _RESTART_S_MAX)
        self.next_at = now + wait_s


@dataclass(slots=True)
class Supervisor:
    """Keeps the working processes of one machine's worker alive."""

    store: Store
    spawn: Spawn
    clock: Clock
    observers: Observers
    name: str
    ttl_s: float
    grace_s: float
    processes: int = 1  # children for ordinary jobs
    oom: OomCounter | None = None
    lanes: Lanes | None = None  # those that our children serve; None for all
    children: list[Child] = field(default_factory=list)
    exit_status: int | None = None
    _orders: int = 0
    _passed_on: int = 0
    _kill_at: float = 0.0
    _asking: bool = False  # the store, and nothing is under way that would have to be undone
    _looked_at: float = -_LOOK_S
    _restarts: defaultdict[Post, Restarts] = field(default_factory=lambda: defaultdict(Restarts))
    _delayed: set[Post] = field(default_factory=set)  # where no child could be started; told once
    _unreported: list[ChildEnded] = field(default_factory=list)
    _lease: Lease = field(init=False)

    def __post_init__(self) -> None:
        self._lease = Lease(self.store, self.clock, ttl_s=self.ttl_s)

    def drain(self) -> float:
        """Pass the order on, though we may be waiting for the store; how long the children have. For signal handlers."""
        self._orders += 1
        self._pass_on_orders()
        return self._kill_at - self.clock.monotonic()

    def interrupt(self) -> None:
        """Wait no longer for a store that is silent. For signal handlers, after the grace."""
        if self._asking:
            raise StoreUnavailable("the store has not answered until the end of the grace")

    @property
    def done(self) -> bool:
        """Whether everything is over and told, or cannot be told in time."""
        ending = self._orders > 0 or self.exit_status is not None
        told = not self._unreported or (self._passed_on > 0 and self._is_grace_over)
        return ending and not self.children and told

    @property
    def untold(self) -> tuple[int, ...]:
        """The workers whose end the store does not know."""
        return tuple(one.child.worker for one in self._unreported)

    @property
    def _is_grace_over(self) -> bool:
        return self.clock.monotonic() >= self._kill_at

    def once(self) -> None:
        """One round: bury, report, start, beat. A store that is away delays only the telling."""
        self._bury()
        if self.oom is not None:
            self.oom.look(self.clock.monotonic())
        self._pass_on_orders()
        try:
            self._asking = True
            self._report()
            self._start_missing()
            self._beat()
            self._asking = False
            self.observers.store_answers()  # while it is away, every round has asked it
        except StoreError as away:  # a full disk may have room again tomorrow
            self._asking = False
            self.observers.store_is_away(away)
            self._unblock()

    # -- children ------------------------------------------------------------------------

    def _bury(self) -> None:
        for child in list(self.children):
            stopped = child.stopped
            status = _exit_status(child)
            child.turned = child.turned or child.stopped != stopped
            if status is None:
                continue
            self.children.remove(child)
            lived_s = self.clock.monotonic() - child.started_at
            self._unreported.append(ChildEnded(child, status, self._death(child, status), lived_s))

    def _death(self, child: Child, status: int) -> Death:
        if child.killed and self._orders:
            return Death("stopped", signal="SIGKILL")
        if status == 0 and self._orders:  # what it left behind, a transaction of its stage's had
            return Death("stopped", exit_status=0)
        if status == -signal.SIGKILL and not child.killed and self._out_of_memory():
            return Death(OUT_OF_MEMORY, signal="SIGKILL")
        if status < 0:
            return Death("exited", signal=signal_name(-status))
        return Death("exited", exit_status=status)

    def _out_of_memory(self) -> bool:
        return self.oom is not None and self.oom.rose(self.clock.monotonic())

    def _report(self) -> None:
        while self._unreported:
            ended = self._unreported[0]
            at_work = bool(self.store.tokens_held(ended.child.worker))
            self.store.end_worker(ended.child.worker, ended.death)
            self._unreported.pop(0)
            self._tell_end(ended, at_work=at_work)
            self._restarts[ended.child.post].after(
                ended.lived_s, self.clock.monotonic(), well=at_work or ended.status in _WELL
            )
            if ended.status == _CONFIG_EXIT and ended.child.role is Role.MAIN and not at_work:
                self.exit_status = _CONFIG_EXIT
                self._orders = max(self._orders, 1)

    def _tell_end(self, ended: ChildEnded, *, at_work: bool) -> None:
        well = self._orders > 0 or (ended.status in _WELL and not at_work)
        self.observers.tell(
            EventName.WORKER_STOPPED if well else EventName.WORKER_LOST,
            worker=ended.child.worker,
            role=ended.child.role.value,
            pid=ended.child.process.pid,
            exit=ended.status,
        )

    def _start_missing(self) -> None:
        if self._orders:
            return
        now = self.clock.monotonic()
        wanted: set[Post] = {(Role.MAIN, number) for number in range(self.processes)}
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            levels = self.store.suspects(None if self.lanes is None else self.lanes())
            suspects = (Role.SUSPECTS, Role.ALONE)
            wanted |= {(role, 0) for role in suspects if role.isolation in levels}
        missing = wanted - {child.post for child in self.children}
        for post in sorted(missing, key=lambda one: (one[0].isolation, one[1])):
            if now >= self._restarts[post].next_at:
                self._start(post)

    def _start(self, post: Post) -> None:
        role, boot = post[0], secrets.token_hex(16)
        worker = self.store.add_worker(NewWorker(boot, self.name, role, self.ttl_s))
        self._asking = False
        try:
            process = self.spawn(role, worker)
        except OSError as error:  # no process, memory or file is to be had now
            self._asking = True
            self._delay(post, worker, error)
            return
        if post in self._delayed:
            self._delayed.discard(post)
            self._restarts[post] = Restarts()
        self.children.append(Child(post, worker, process, self.clock.monotonic()))
        self._asking = True
        self.observers.tell(
            EventName.WORKER_STARTED, worker=worker, role=role.value, pid=process.pid
        )

    def _delay(self, post: Post, worker: int, error: OSError) -> None:
        role = post[0]
        self._restarts[post].after(0.0, self.clock.monotonic(), well=False)
        known = role in {delayed for delayed, _ in self._delayed}
        self._delayed.add(post)
        if not known:
            self.observers.tell(
                EventName.WORKER_DELAYED, role=role.value, reason=error.strerror or str(error)
            )
        self.store.end_worker(worker, Death("stopped"))  # nobody has ever worked under it

    def _beat(self) -> None:
        heard = [child for child in self.children if child.turned or not child.stopped]
        away = self.observers.store_away
        refused = self._lease.once(
            [child.worker for child in heard],
            at_once=away or any(child.turned for child in heard),
            for_nobody=away or any(child.stopped for child in self.children),
        )
        for child in heard:
            child.turned = False
            if child.worker in refused:
                self._kill(child)

    def _unblock(self) -> None:
        """A stopped child may hold the store's write lock; after a whole lease it has to go."""
        if self._lease.silent_s > self.ttl_s:
            for child in self.children:
                if child.stopped:
                    self._kill(child)

    # -- the end -------------------------------------------------------------------------

    def _pass_on_orders(self) -> None:
        now = self.clock.monotonic()
        if self._orders > self._passed_on:
            self._passed_on = self._orders
            grace_s = self.grace_s if self._orders == 1 else 0.0
            self._kill_at = now + grace_s + _KILL_MARGIN_S
        for child in self.children:  # one of them may have been started since
            if child.orders < self._orders:
                child.orders = self._orders
                _send(child, signal.SIGTERM)
                if self._orders > 1:  # two equal signals may arrive as one
                    _send(child, signal.SIGINT)
        if self._orders and self._is_grace_over:
            for child in self.children:
                self._kill(child)

    def _kill(self, child: Child) -> None:
        child.killed = True
        _send(child, signal.SIGKILL)


def _send(child: Child, number: signal.Signals) -> None:
    """Signal a child, without Popen, which would reap it; one that we are just burying is left alone."""
    if child.process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(child.process.pid, number)


def signal_name(number: int) -> str:
    """What a signal is called."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def _exit_status(child: Child) -> int | None:
    """The child's exit status (negative: a signal) when it has ended; notes stop and go."""
    while True:
        pid, status = os.waitpid(child.process.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(status):
            child.stopped = True
        elif os.WIFCONTINUED(status):
            child.stopped = False
        else:
            child.process.returncode = os.waitstatus_to_exitcode(status)
            return child.process.returncode
