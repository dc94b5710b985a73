"""The supervisor, step by step, with real small processes: it starts, beats, buries and drains."""

import os
import signal
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from perdure.engine.observe import Observers
from perdure.engine.supervise.oom import OomCounter
from perdure.engine.supervise.supervisor import Restarts, Supervisor
from perdure.model.events import EventName
from perdure.model.outcomes import Death
from perdure.model.workers import EXIT_RECYCLED, Role
from tests.engine.kit import Notes, Unreliable, until
from tests.stores.kit import TTL_S, crash, retry

SLEEP = ["sleep", "600"]
IGNORE_ORDERS = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""
DEAF = [sys.executable, "-c", IGNORE_ORDERS]
GRACE_S = 30.0


class Watch:
    """A supervisor on a pushed clock, whose children are whatever the test says."""

    def __init__(self, place) -> None:
        self.place = place
        self.clock = place.clock
        self.notes = Notes()
        self.store = Unreliable(place.store)
        self.commands = dict.fromkeys(Role, SLEEP)
        self.spawned: list[subprocess.Popen[bytes]] = []
        self.errors: dict[Role, OSError] = {}  # what the system says in place of a process
        self.tries: Counter[Role] = Counter()
        self.supervisor = Supervisor(
            store=self.store,
            spawn=self._spawn,
            clock=self.clock,
            observers=Observers([self.notes]),
            name="host:1",
            ttl_s=TTL_S,
            grace_s=GRACE_S,
        )

    def _spawn(self, role: Role, worker: int) -> subprocess.Popen[bytes]:
        self.tries[role] += 1
        if role in self.errors:
            raise self.errors[role]
        process = subprocess.Popen(
            self.commands[role], stdout=subprocess.PIPE, start_new_session=True
        )
        self.spawned.append(process)
        return process

    def once(self) -> None:
        self.supervisor.once()

    @property
    def main(self):
        (child,) = [one for one in self.supervisor.children if one.role is Role.MAIN]
        return child

    def until(self, condition, what: str) -> None:
        """Rounds without time passing, until the condition holds."""

        def round_and_look() -> bool:
            self.once()
            return condition()

        until(round_and_look, what)

    def row(self, worker: int):
        (seen,) = [one for one in self.place.reader.workers() if one.no == worker]
        return seen

    def death(self, worker: int) -> Death | None:
        text = self.row(worker).death_json
        return None if text is None else msgspec.json.decode(text, type=Death)

    def buried(self, worker: int) -> Death:
        self.until(lambda: self.death(worker) is not None, f"worker {worker} is reported dead")
        return self.death(worker)

    def pass_time(self, seconds: float, *, step: float = 1.0) -> None:
        for _ in range(round(seconds / step)):
            self.clock.push(step)
            self.once()

    def close(self) -> None:
        for process in self.spawned:
            if process.returncode is None:
                os.kill(process.pid, signal.SIGKILL)
                os.waitpid(process.pid, 0)
                process.returncode = -9
            process.stdout.close()


@pytest.fixture
def watch(place):
    watch = Watch(place)
    yield watch
    watch.close()


# -- where the system has no process to give ------------------------------------------------


def test_a_process_that_is_not_to_be_had_is_told_once_and_tried_again_after_growing_waits(watch):
    watch.errors[Role.MAIN] = BlockingIOError(11, "Resource temporarily unavailable")
    watch.pass_time(60, step=0.25)
    tried = watch.tries[Role.MAIN]
    assert 8 <= tried <= 14  # at once, after 0.4, 0.8 … 6.4 s, then every 10 s
    assert watch.notes.of(EventName.WORKER_DELAYED) == [
        {"role": "main", "reason": "Resource temporarily unavailable"}
    ]
    assert not watch.supervisor.done
    rows = watch.place.reader.workers()
    assert all(one.dead_at is not None for one in rows)  # no row waits for a beat that never comes
    assert {watch.death(one.no) for one in rows} == {Death("stopped")}
    del watch.errors[Role.MAIN]
    watch.pass_time(11, step=0.25)
    assert watch.main.process.pid == watch.spawned[0].pid
    assert watch.notes.names().count(EventName.WORKER_DELAYED) == 1
    os.kill(watch.main.process.pid, signal.SIGKILL)
    watch.errors[Role.MAIN] = OSError(12, "Cannot allocate memory")
    watch.until(lambda: watch.tries[Role.MAIN] > tried + 1, "another try")
    assert watch.notes.of(EventName.WORKER_DELAYED)[-1]["reason"] == "Cannot allocate memory"


def test_without_a_process_for_suspects_the_main_child_is_kept_and_beaten_for(watch):
    judge, held = watch.place.hire(), watch.place.hire()
    watch.once()
    watch.place.put()
    (claim,) = watch.place.take(held)
    watch.place.settle(crash(claim, held), by=held)
    watch.errors[Role.SUSPECTS] = OSError(12, "Cannot allocate memory")
    for _ in range(60):
        watch.place.store.beat([judge, held])
        watch.pass_time(1)
        assert watch.place.store.mark_dead(by=judge) == ()
    assert [child.role for child in watch.supervisor.children] == [Role.MAIN]
    assert [one["role"] for one in watch.notes.of(EventName.WORKER_DELAYED)] == ["suspects"]
    del watch.errors[Role.SUSPECTS]
    watch.pass_time(11)
    assert {child.role for child in watch.supervisor.children} == {Role.MAIN, Role.SUSPECTS}


def test_told_to_stop_it_ends_while_no_process_is_to_be_had(watch):
    watch.errors[Role.MAIN] = BlockingIOError(11, "Resource temporarily unavailable")
    watch.pass_time(3)
    watch.supervisor.drain()
    watch.once()
    assert watch.supervisor.done


# -- starting and beating ----------------------------------------------------------------


def test_it_starts_one_main_child_with_a_row_of_its_own(watch):
    watch.once()
    watch.once()
    (child,) = watch.supervisor.children
    assert (child.role, len(watch.spawned)) == (Role.MAIN, 1)
    assert (watch.row(child.worker).role, watch.row(child.worker).ttl_s) == (Role.MAIN, TTL_S)
    assert watch.notes.of(EventName.WORKER_STARTED)[0]["pid"] == watch.spawned[0].pid
    assert not watch.supervisor.done


def test_it_beats_for_a_running_child_so_that_nobody_can_declare_it_dead(watch):
    judge = watch.place.hire()
    watch.once()
    for _ in range(60):
        watch.clock.push(1)
        watch.place.store.beat([judge])
        watch.once()
        assert watch.place.store.mark_dead(by=judge) == ()
    steady = watch.row(watch.main.worker)
    assert steady.steady_at == steady.started_at


def test_children_for_suspects_come_when_the_store_asks_for_them(watch):
    watch.once()
    held = watch.place.hire()
    watch.place.put_many(2)
    first, second = watch.place.take(held, 2)
    watch.place.settle(crash(first, held), by=held)
    watch.pass_time(1)
    assert {child.role for child in watch.supervisor.children} == {Role.MAIN, Role.SUSPECTS}
    (again,) = watch.place.take(held, isolation=1)
    watch.place.settle(crash(again, held), crash(second, held), by=held)
    watch.pass_time(2)
    assert {child.role for child in watch.supervisor.children} == set(Role) - {Role.CALLER}
    assert len(watch.spawned) == 3


def test_a_suspect_that_is_not_due_asks_for_no_child(watch):
    watch.once()
    held = watch.place.hire()
    watch.place.put()
    (claim,) = watch.place.take(held)
    watch.place.settle(crash(claim, held), by=held)
    (claim,) = watch.place.take(held, isolation=1)
    watch.place.settle(retry(claim, held, delay_s=60.0), by=held)
    watch.pass_time(5)
    assert len(watch.spawned) == 1


# -- several of them ---------------------------------------------------------------------


@pytest.fixture
def three(watch):
    """A supervisor that has started its three."""
    watch.supervisor.processes = 3
    watch.once()
    return watch


def mains(watch: Watch):
    return [child for child in watch.supervisor.children if child.role is Role.MAIN]


def test_each_of_several_has_a_process_and_a_row_of_its_own(three):
    three.once()
    assert [child.role for child in three.supervisor.children] == [Role.MAIN] * 3
    assert len({child.process.pid for child in mains(three)}) == 3
    assert len({child.worker for child in mains(three)}) == 3
    assert len(three.spawned) == 3


def test_one_statement_renews_the_leases_of_all(three):
    judge = three.place.hire()
    asked = []
    beat = three.store.beat

    def counted(workers):
        asked.append(sorted(workers))
        return beat(workers)

    three.store.beat = counted
    for _ in range(3 * round(TTL_S)):
        three.place.store.beat([judge])
        three.pass_time(1)
        assert three.place.store.mark_dead(by=judge) == ()
    assert asked
    assert all(one == sorted(child.worker for child in mains(three)) for one in asked)


def test_one_that_dies_is_replaced_alone_and_its_jobs_alone_are_lost(three):
    first, second, third = mains(three)
    three.place.put_many(3)
    for child in (first, second, third):
        three.place.take(child.worker)
    os.kill(second.process.pid, signal.SIGKILL)
    three.buried(second.worker)
    three.until(lambda: len(three.spawned) == 4, "the next child")
    assert [one.worker for one in three.place.store.lost_claims(limit=9)] == [second.worker]
    assert first in mains(three)
    assert third in mains(three)
    assert len(mains(three)) == 3
    assert three.death(first.worker) is three.death(third.worker) is None


def test_one_that_cannot_start_waits_longer_and_longer_while_another_is_replaced_at_once(three):
    broken = mains(three)[0]
    three.commands[Role.MAIN] = ["sh", "-c", "exit 3"]
    os.kill(broken.process.pid, signal.SIGKILL)
    three.until(lambda: len(three.spawned) == 4, "its successor, which ends at once")
    three.buried(4)
    three.once()
    assert len(three.spawned) == 4  # the next one has to wait
    three.commands[Role.MAIN] = SLEEP
    worker = mains(three)[0].worker
    os.kill(mains(three)[0].process.pid, signal.SIGKILL)
    three.buried(worker)
    three.until(lambda: len(three.spawned) == 5, "the successor of the other, at once")
    three.pass_time(1, step=0.25)
    assert len(mains(three)) == 3


def test_one_that_is_stopped_is_not_beaten_for_and_its_siblings_are(three):
    stopped, *others = mains(three)
    os.kill(stopped.process.pid, signal.SIGSTOP)
    three.until(lambda: stopped.stopped, "the stop is noticed")
    stopped_at = three.row(stopped.worker).beat_at
    three.pass_time(TTL_S)
    assert three.row(stopped.worker).beat_at == stopped_at
    assert all(three.row(child.worker).beat_at > stopped_at for child in others)


def test_suspects_have_one_child_however_many_there_are_for_the_others(three):
    held = three.place.hire()
    three.place.put_many(2)
    first, second = three.place.take(held, 2)
    three.place.settle(crash(first, held), crash(second, held), by=held)
    three.pass_time(2)
    roles = Counter(child.role for child in three.supervisor.children)
    assert roles == {Role.MAIN: 3, Role.SUSPECTS: 1}


def test_where_no_process_is_to_be_had_for_several_that_is_told_once(watch):
    watch.supervisor.processes = 3
    watch.errors[Role.MAIN] = OSError(12, "Cannot allocate memory")
    watch.once()
    assert watch.tries[Role.MAIN] == 3
    assert len(watch.notes.of(EventName.WORKER_DELAYED)) == 1
    del watch.errors[Role.MAIN]
    watch.pass_time(1)
    assert len(mains(watch)) == 3


def test_told_to_drain_all_of_them_are_told_and_all_ends_are_reported(three):
    workers = [child.worker for child in mains(three)]
    three.supervisor.drain()
    three.until(lambda: three.supervisor.done, "the end")
    assert {three.death(worker) for worker in workers} == {Death("exited", signal="SIGTERM")}
    assert len(three.spawned) == 3
    assert three.supervisor.exit_status is None


def test_a_config_error_of_one_ends_them_all_with_its_status(watch):
    watch.supervisor.processes = 2
    watch.once()
    watch.commands[Role.MAIN] = ["sh", "-c", "exit 2"]
    os.kill(mains(watch)[0].process.pid, signal.SIGKILL)
    watch.until(lambda: watch.supervisor.done, "the end")
    assert watch.supervisor.exit_status == 2


# -- deaths ------------------------------------------------------------------------------


def test_a_child_that_exits_is_reported_with_its_status_and_started_again(watch):
    watch.commands[Role.MAIN] = ["sh", "-c", "exit 3"]
    watch.once()
    first = watch.main.worker
    watch.commands[Role.MAIN] = SLEEP
    assert watch.buried(first) == Death("exited", exit_status=3)
    watch.until(lambda: len(watch.spawned) == 2, "the next child")
    assert watch.main.worker != first
    assert watch.notes.of(EventName.WORKER_LOST)[0]["exit"] == 3


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        signal.SIGSEGV,
        40,
    ],
)  # fmt: skip
def test_a_child_that_is_killed_is_reported_with_the_signal(watch, number):
    watch.once()
    first = watch.main
    os.kill(first.process.pid, number)
    death = watch.buried(first.worker)
    assert death.why == "exited"
    assert death.signal in {"SIGKILL", "SIGSEGV", "SIG40", "signal 40"}
    assert death.exit_status is None


def oom_counter(folder) -> OomCounter:
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text("0::/\n")
    (folder / "sys/fs/cgroup").mkdir(parents=True)
    (folder / "sys/fs/cgroup/memory.events").write_text("oom_kill 4\n")
    return OomCounter(folder)


def test_a_child_killed_when_the_kernel_had_no_memory_left_is_reported_so(watch, tmp_path):
    watch.supervisor.oom = oom_counter(tmp_path)
    watch.once()
    first = watch.main
    os.kill(first.process.pid, signal.SIGKILL)
    (tmp_path / "sys/fs/cgroup/memory.events").write_text("oom_kill 5\n")
    death = watch.buried(first.worker)
    assert death == Death("out of memory", signal="SIGKILL")
    assert death.in_words() == "was killed by SIGKILL: out of memory"


@pytest.mark.parametrize("ours", [False, True])
def test_memory_is_not_blamed_for_another_signal_or_for_what_we_kill(watch, tmp_path, ours):
    watch.supervisor.oom = oom_counter(tmp_path)
    watch.once()
    child = watch.main
    (tmp_path / "sys/fs/cgroup/memory.events").write_text("oom_kill 5\n")
    if ours:
        watch.supervisor._kill(child)
    else:
        os.kill(child.process.pid, signal.SIGSEGV)
    assert watch.buried(child.worker).why == "exited"


def test_a_child_that_wants_another_in_its_place_gets_it_at_once_every_time(watch):
    watch.commands[Role.MAIN] = ["sh", "-c", f"exit {EXIT_RECYCLED}"]
    watch.until(lambda: len(watch.spawned) == 6, "six children, without any time passing")
    assert watch.notes.of(EventName.WORKER_LOST) == []
    assert watch.notes.of(EventName.WORKER_STOPPED)[0]["exit"] == EXIT_RECYCLED
    assert watch.death(1) == Death("exited", exit_status=EXIT_RECYCLED)


def test_a_stage_that_exits_with_that_status_is_a_crash_all_the_same(watch):
    watch.commands[Role.MAIN] = ["sh", "-c", f"read line; exit {EXIT_RECYCLED}"]
    watch.once()
    worker = watch.main.worker
    watch.place.put()
    watch.place.take(worker)
    watch.commands[Role.MAIN] = SLEEP
    assert watch.buried(worker).exit_status == EXIT_RECYCLED
    assert len(watch.place.store.lost_claims(limit=9)) == 1
    assert len(watch.notes.of(EventName.WORKER_LOST)) == 1


def test_a_dead_childs_jobs_are_lost_at_once(watch):
    watch.once()
    watch.place.put()
    watch.place.take(watch.main.worker)
    worker = watch.main.worker
    os.kill(watch.main.process.pid, signal.SIGKILL)
    watch.buried(worker)
    (lost,) = watch.place.store.lost_claims(limit=9)
    assert (lost.worker, lost.death.signal) == (worker, "SIGKILL")


def test_a_child_that_cannot_start_is_started_again_after_growing_waits(watch):
    watch.commands[Role.MAIN] = ["sh", "-c", "exit 3"]
    waits = []
    for n in range(1, 7):
        began = watch.clock.monotonic()
        while len(watch.spawned) < n:
            watch.once()
            if len(watch.spawned) < n:
                watch.clock.push(0.05)
        waits.append(round(watch.clock.monotonic() - began, 2))
        watch.buried(max(one.no for one in watch.place.reader.workers()))
    assert waits[:2] == [0.0, 0.0]
    assert waits[2:] == sorted(waits[2:])
    assert waits[2] >= 0.35
    assert waits[-1] >= 4 * waits[2]


def test_a_child_that_died_at_work_is_started_again_at_once(watch):
    for n in range(1, 6):
        watch.until(lambda n=n: len(watch.spawned) == n, "a child")
        watch.place.put()
        watch.place.take(watch.main.worker)
        os.kill(watch.main.process.pid, signal.SIGKILL)
        watch.buried(watch.main.worker if watch.supervisor.children else n)
    watch.until(lambda: len(watch.spawned) == 6, "the sixth child, without any time passing")


@pytest.mark.parametrize(
    ("lives", "waits"),
    [
        ([(0.1, False)] * 4, [0.0, 0.4, 0.8, 1.6]),
        ([(0.1, False)] * 12, [0.0, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]),
        ([(0.1, False), (40.0, False), (0.1, False)], [0.0, 0.0, 0.0]),
        ([(0.1, False), (0.1, True), (0.1, False)], [0.0, 0.0, 0.0]),
    ],
)
def test_only_quick_deaths_in_a_row_make_the_wait_grow(lives, waits):
    restarts = Restarts()
    seen = []
    for lived_s, well in lives:
        restarts.after(lived_s, 100.0, well=well)
        seen.append(round(restarts.next_at - 100.0, 6))
    assert seen == waits


def test_a_main_child_that_refuses_its_configuration_ends_the_supervisor(watch):
    watch.commands[Role.MAIN] = ["sh", "-c", "exit 2"]
    watch.until(lambda: watch.supervisor.done, "the end")
    assert watch.supervisor.exit_status == 2
    assert len(watch.spawned) == 1


def test_a_stage_that_exits_with_the_same_status_does_not(watch):
    watch.commands[Role.MAIN] = ["sh", "-c", "read line; exit 2"]
    watch.once()
    worker = watch.main.worker
    watch.place.put()
    watch.place.take(worker)
    watch.commands[Role.MAIN] = SLEEP
    assert watch.buried(worker).exit_status == 2
    watch.until(lambda: len(watch.spawned) == 2, "the next child")
    assert not watch.supervisor.done


def test_a_child_whose_beat_is_refused_is_killed(watch):
    watch.once()
    child = watch.main
    watch.place.store.end_worker(child.worker, Death("silent"))
    watch.pass_time(TTL_S / 3 + 1)
    watch.until(lambda: child.process.returncode is not None, "the end of the refused child")
    assert child.process.returncode == -signal.SIGKILL
    assert watch.death(child.worker) == Death("silent")
    watch.until(lambda: len(watch.spawned) == 2, "the next child")


# -- stopped children --------------------------------------------------------------------


def test_a_stopped_child_is_not_beaten_for_and_one_that_goes_on_is(watch):
    watch.once()
    child = watch.main
    os.kill(child.process.pid, signal.SIGSTOP)
    watch.until(lambda: child.stopped, "the stop is noticed")
    stopped_at = watch.row(child.worker).beat_at
    watch.pass_time(TTL_S)
    assert watch.row(child.worker).beat_at == stopped_at
    os.kill(child.process.pid, signal.SIGCONT)
    watch.until(lambda: not child.stopped, "the child goes on")
    watch.pass_time(TTL_S / 3)
    assert watch.row(child.worker).beat_at > stopped_at


def test_a_stopped_child_is_killed_only_when_it_keeps_the_store_from_being_written(watch):
    watch.once()
    child = watch.main
    os.kill(child.process.pid, signal.SIGSTOP)
    watch.until(lambda: child.stopped, "the stop is noticed")
    watch.pass_time(2 * TTL_S)
    assert child.process.returncode is None
    watch.store.away = True
    watch.pass_time(TTL_S - 1)
    assert not child.killed
    watch.pass_time(TTL_S)
    watch.until(lambda: child.process.returncode is not None, "the end of the stopped child")
    watch.store.away = False
    assert watch.buried(child.worker).signal == "SIGKILL"


# -- a store that is away ----------------------------------------------------------------


def test_a_store_that_is_away_delays_only_the_telling(watch):
    watch.once()
    child = watch.main
    watch.store.away = True
    watch.pass_time(3 * TTL_S)
    assert child.process.poll() is None
    os.kill(child.process.pid, signal.SIGKILL)
    watch.until(lambda: watch.supervisor.children == [], "the child is buried")
    assert watch.death(child.worker) is None
    assert not watch.supervisor.done
    watch.store.away = False
    assert watch.buried(child.worker).signal == "SIGKILL"
    assert EventName.STORE_BACK in watch.notes.names()


def test_the_return_of_a_store_is_told_only_when_it_has_answered(watch):
    watch.once()
    watch.store.away = True
    watch.pass_time(TTL_S)
    assert watch.notes.names()[-1] is EventName.STORE_AWAY
    for _ in range(3):  # no time passes: nothing is due, so nothing is asked
        watch.once()
    assert EventName.STORE_BACK not in watch.notes.names()


@pytest.mark.parametrize("step", [0.05, 0.3, 1.0])
def test_an_outage_is_told_once_by_a_store_that_has_nothing_to_say_about_changes(watch, step):
    """As on PostgreSQL, where looking for a hint never fails."""
    watch.store.has_changed = lambda: False
    watch.once()
    watch.store.away = True
    watch.pass_time(2 * TTL_S, step=step)
    watch.store.away = False
    watch.pass_time(2 * TTL_S, step=step)
    names = [one for one in watch.notes.names() if one.startswith("store_")]
    assert names == [EventName.STORE_AWAY, EventName.STORE_BACK]


def test_suspects_of_lanes_that_it_does_not_serve_start_no_child(watch):
    worker = watch.place.hire()
    watch.place.put()
    (claim,) = watch.place.take(worker)
    watch.place.settle(crash(claim, worker), by=worker)
    served = [claim.lane + 1]
    watch.supervisor.lanes = lambda: served
    watch.pass_time(3)
    assert [one.role for one in watch.supervisor.children] == [Role.MAIN]
    served.append(claim.lane)
    watch.pass_time(1)
    assert [one.role for one in watch.supervisor.children] == [Role.MAIN, Role.SUSPECTS]


# -- the end -----------------------------------------------------------------------------


def test_told_to_drain_it_passes_the_order_on_and_starts_nobody(watch):
    watch.once()
    worker = watch.main.worker
    watch.supervisor.drain()
    watch.until(lambda: watch.supervisor.done, "the end")
    assert watch.death(worker) == Death("exited", signal="SIGTERM")
    assert len(watch.spawned) == 1
    assert watch.supervisor.exit_status is None


def test_one_that_leaves_in_order_after_the_order_was_stopped_by_us_and_has_not_crashed(watch):
    """It may have left a job in a transaction that its stage keeps open: that counts as a release (L6)."""
    watch.commands[Role.MAIN] = [
        "sh",
        "-c",
        "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done",
    ]
    watch.once()
    child = watch.main
    assert child.process.stdout.readline() == b"ready\n"
    watch.supervisor.drain()
    watch.until(lambda: watch.supervisor.done, "the end")
    assert watch.death(child.worker) == Death("stopped", exit_status=0)


def deaf(watch: Watch):
    """A child that hears no order, once it says so."""
    watch.commands[Role.MAIN] = DEAF
    watch.once()
    assert watch.main.process.stdout.readline() == b"deaf\n"
    return watch.main


def test_after_the_grace_it_kills_and_says_that_it_was_our_doing(watch):
    child = deaf(watch)
    watch.supervisor.drain()
    watch.pass_time(GRACE_S + 2)
    assert not child.killed
    assert watch.row(child.worker).beat_at > watch.row(child.worker).started_at
    watch.pass_time(2)
    watch.until(lambda: watch.supervisor.done, "the end")
    assert watch.death(child.worker) == Death("stopped", signal="SIGKILL")


def test_the_second_order_shortens_the_grace(watch):
    child = deaf(watch)
    watch.supervisor.drain()
    watch.once()
    watch.supervisor.drain()
    watch.pass_time(2)
    assert not child.killed
    watch.pass_time(2)
    watch.until(lambda: watch.supervisor.done, "the end")
    assert watch.death(child.worker) == Death("stopped", signal="SIGKILL")


def test_it_is_done_only_when_every_death_is_told(watch):
    watch.once()
    worker = watch.main.worker
    watch.store.away = True
    watch.supervisor.drain()
    watch.until(lambda: watch.supervisor.children == [], "the child is buried")
    assert not watch.supervisor.done
    watch.store.away = False
    watch.until(lambda: watch.supervisor.done, "the end")
    assert watch.death(worker) is not None


@pytest.mark.parametrize("orders", [1, 2])
def test_a_store_that_is_away_for_good_does_not_keep_it_beyond_the_grace(watch, orders):
    watch.once()
    worker = watch.main.worker
    watch.store.away = True
    for _ in range(orders):
        watch.supervisor.drain()
    watch.until(lambda: watch.supervisor.children == [], "the child is buried")
    grace_s = {1: GRACE_S, 2: 0.0}[orders]
    watch.pass_time(grace_s + 2)
    assert not watch.supervisor.done
    watch.pass_time(1)
    assert watch.supervisor.done
    assert watch.supervisor.untold == (worker,)
    assert EventName.WORKER_STOPPED not in watch.notes.names()  # we say only what is stored


def test_a_death_that_is_told_in_the_last_round_is_not_left_untold(watch):
    child = deaf(watch)
    watch.supervisor.drain()
    watch.pass_time(GRACE_S + 3)
    watch.until(lambda: watch.supervisor.done, "the end")
    assert watch.supervisor.untold == ()
    assert watch.death(child.worker) == Death("stopped", signal="SIGKILL")


def test_an_order_is_passed_on_while_the_store_is_silent_and_that_is_not_waited_for(watch):
    watch.once()
    child = watch.main
    beat = watch.store.beat

    def silent_beat(workers):
        watch.supervisor.drain()  # as the handler of a signal does, in the middle of it
        ended = os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOWAIT)
        assert ended.si_status == signal.SIGTERM
        watch.supervisor.interrupt()
        raise AssertionError("it waits on")

    watch.store.beat = silent_beat
    watch.pass_time(TTL_S / 3)
    watch.store.beat = beat
    watch.until(lambda: watch.supervisor.done, "the end")
    watch.supervisor.interrupt()  # while nothing is asked it means nothing
    assert EventName.STORE_AWAY in watch.notes.names()


def test_a_child_that_was_being_started_when_the_order_came_hears_of_it(watch):
    spawn = watch.supervisor.spawn

    def spawn_and_order(role, worker):
        process = spawn(role, worker)
        watch.supervisor.drain()
        watch.supervisor.interrupt()  # a half-started child would be nobody's
        return process

    watch.supervisor.spawn = spawn_and_order
    watch.until(lambda: watch.supervisor.done, "the end")
    assert watch.spawned[0].returncode == -signal.SIGTERM
