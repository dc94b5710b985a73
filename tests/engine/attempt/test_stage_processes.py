"""Stages in child processes: what they do ends as data, and what kills a child kills nothing else."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from perdure.engine.attempt import stage_processes as hands_module
from perdure.engine.attempt.context import AttemptNotes, Progress
from perdure.engine.attempt.stage_processes import StageProcess, StageProcessPool
from perdure.engine.attempt.threads import Threads
from perdure.engine.run import Stopping, run
from perdure.engine.stages import Stage
from perdure.model.kinds import Kind
from perdure.model.outcomes import (
    OUT_OF_MEMORY,
    Interrupted,
    Lost,
    Raised,
    Returned,
    Snoozed,
    StageDeath,
    TimedOut,
    Unbegun,
    Unstorable,
    Usage,
    Withdrawn,
)
from tests.engine import plays
from tests.engine.kit import PLAIN, claim_of, until
from tests.house.tree import ROOT


class Troupe:
    """Hands on an event loop that lives as long as the tests of this file."""

    def __init__(self) -> None:
        self.events = asyncio.Runner()
        self.hands = StageProcessPool()
        self.threads = Threads(1)

    def ran(self, call, item=None, *, timeout_s=30.0, notes=None, stopping=None, **changes):
        return self.events.run(
            self.run(call, item, timeout_s=timeout_s, notes=notes, stopping=stopping, **changes)
        )

    async def run(self, call, item=None, *, timeout_s=30.0, notes=None, stopping=None, **changes):
        stage = Stage("one", call, PLAIN, timeout_s, None, True)
        claim = claim_of(**{"input_json": json.dumps(item), **changes})
        return await run(
            claim, stage, self.threads, stopping or Stopping(), notes=notes, process_pool=self.hands
        )

    def close(self) -> None:
        self.events.run(self.hands.close())
        self.events.close()


@pytest.fixture(scope="module")
def troupe():
    troupe = Troupe()
    yield troupe
    troupe.close()


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_in(file: Path) -> int:
    until(lambda: file.exists() and file.read_text() != "", f"{file.name} is written")
    return int(file.read_text())


# -- what a stage gives ------------------------------------------------------------------


def test_a_stage_in_a_child_is_not_in_this_process(troupe):
    outcome = troupe.ran(plays.pid)
    assert isinstance(outcome, Returned)
    assert int(outcome.value_json) != os.getpid()


def test_what_a_stage_in_a_child_returns_becomes_its_outcome(troupe):
    assert troupe.ran(plays.echo, {"a": [1, "ü"]}) == Returned('{"a":[1,"ü"]}')
    assert troupe.ran(plays.signals, "snooze") == Snoozed(5.0, "not ready")
    assert troupe.ran(plays.signals, "cancel") == Withdrawn("obsolete")
    assert troupe.ran(plays.signals, "label") == Returned("[1]", "needs_review")


def test_a_large_item_and_a_large_result_go_through(troupe):
    text = "x" * 1_000_000
    assert troupe.ran(plays.echo, text) == Returned(f'"{text}"')


def test_a_child_gets_the_type_that_its_stage_asks_for(troupe):
    outcome = troupe.ran(plays.typed, {"total": 1, "lines": []})
    assert outcome == Returned('{"total":2,"lines":["Bill"]}')
    outcome = troupe.ran(plays.typed, {"total": 1, "lines": [2]})
    assert isinstance(outcome, Raised)
    assert outcome.evidence.kind is Kind.INPUT_INVALID
    assert outcome.evidence.fact("path") == "$.lines[0]"


def test_a_result_that_cannot_be_stored_is_the_same_outcome_in_a_child(troupe):
    outcome = troupe.ran(plays.signals, "object")
    assert isinstance(outcome, Unstorable)
    assert "the result is of type object" in outcome.reason


def test_a_child_knows_its_attempt(troupe):
    outcome = troupe.ran(plays.known, payload_json='"first"', token=9)
    assert json.loads(outcome.value_json) == {
        "job": "job-00001",
        "attempt": 1,
        "left": 2,
        "token": 9,
        "key": "job-00001:one:1",
        "request": "req-1",
        "attempt_id": "job-00001:9",
        "item": "first",
        "time_left": True,
        "cancelled": False,
    }


def test_what_a_child_says_is_heard_here(troupe):
    heard = []
    notes = AttemptNotes(tell=heard.append)
    assert troupe.ran(plays.says, "fine", notes=notes) == Returned('"said"')
    assert notes.progress == Progress(1, 4, "a quarter")
    assert notes.usage == Usage(15, 2, 0.5)
    assert len(heard) == 3


def test_what_a_child_has_used_up_is_known_even_if_it_dies(troupe):
    notes = AttemptNotes()
    assert troupe.ran(plays.says, "die", notes=notes) == Lost(StageDeath("exited", exit_status=7))
    assert notes.usage == Usage(15, 2, 0.5)


# -- children ----------------------------------------------------------------------------


def test_a_child_is_used_again_and_an_async_stage_finds_its_loop_again(troupe):
    first, second = troupe.ran(plays.pid_async), troupe.ran(plays.pid_async)
    assert first == second
    assert troupe.ran(plays.pid) == Returned(str(json.loads(first.value_json)[0]))


def test_there_are_as_many_children_as_stages_at_once(tmp_path):
    troupe = Troupe()

    async def three_at_once():
        items = [
            {"file": str(tmp_path / str(number)), "until": str(tmp_path / "go")}
            for number in range(3)
        ]
        running = [asyncio.create_task(troupe.run(plays.waits, item)) for item in items]
        for item in items:
            await asyncio.to_thread(pid_in, Path(item["file"]))
        (tmp_path / "go").touch()
        outcomes = await asyncio.gather(*running)
        return outcomes, len(troupe.hands)

    outcomes, count = troupe.events.run(three_at_once())
    assert outcomes == [Returned('"waited"')] * 3
    assert count == 3
    pids = {int((tmp_path / str(number)).read_text()) for number in range(3)}
    assert len(pids) == 3
    assert int(troupe.ran(plays.pid).value_json) in pids
    troupe.close()
    assert not any(alive(pid) for pid in pids)


def test_a_child_that_ended_while_it_was_idle_is_replaced_and_nobody_is_blamed(troupe):
    pid = int(troupe.ran(plays.pid).value_json)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the child has ended")
    outcome = troupe.ran(plays.pid)
    assert isinstance(outcome, Returned)
    assert int(outcome.value_json) != pid


def test_a_function_that_is_not_there_is_a_failure_of_the_stage(troupe):
    def outcome_of(module, qualname):
        def lost(item):
            return item

        lost.__module__, lost.__qualname__ = module, qualname
        return troupe.ran(lost)

    for module, qualname, name in (
        ("tests.engine.plays", "gone", "builtins.AttributeError"),
        ("tests.engine.nowhere", "gone", "builtins.ModuleNotFoundError"),
        ("tests.engine.broken_play", "gone", "builtins.ValueError"),
        ("tests.engine.plays", "not_a_function", "perdure.model.errors.ConfigError"),
    ):
        outcome = outcome_of(module, qualname)
        assert isinstance(outcome, Raised)
        assert outcome.evidence.names[0] == name


def test_a_child_that_is_not_ready_in_time_gives_its_order_back_unless_that_goes_on(monkeypatch):
    monkeypatch.setattr(hands_module, "_START_S_MAX", 0.001)
    monkeypatch.setattr(hands_module, "_LATE_MAX", 2)
    troupe = Troupe()
    try:
        first, second, third = (troupe.ran(plays.echo) for _ in range(3))
        monkeypatch.setattr(hands_module, "_START_S_MAX", 30.0)
        assert isinstance(troupe.ran(plays.echo), Returned)
        monkeypatch.setattr(hands_module, "_START_S_MAX", 0.001)
        troupe.events.run(troupe.hands.close())
        again = troupe.ran(plays.echo)
    finally:
        troupe.close()
    late = Interrupted("its process was not ready within 0.001 s", begun=False)
    assert first == second == again == late
    assert isinstance(third, Raised)
    assert third.evidence.kind is Kind.RESOURCE_EXHAUSTED
    assert "not ready" in third.evidence.message
    assert len(troupe.hands) == 0


def test_where_no_process_is_to_be_had_it_is_said_once_and_tried_again(monkeypatch, caplog):
    monkeypatch.setattr(hands_module, "_AGAIN", (0.001, 0.001))
    troupe = Troupe()
    tries = 0
    start = StageProcess.start

    async def counted():
        nonlocal tries
        tries += 1
        if tries == 5:
            monkeypatch.setattr(sys, "executable", python)
        return await start()

    python = sys.executable
    monkeypatch.setattr(StageProcess, "start", counted)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    try:
        assert isinstance(troupe.ran(plays.echo, "x"), Returned)
    finally:
        troupe.close()
    assert tries == 5
    assert caplog.text.count("no process can be started for a stage") == 1
    assert "No such file" in caplog.text


def test_where_no_process_is_to_be_had_for_long_the_order_is_given_back(monkeypatch, caplog):
    """As with one that is not ready in time: it counts as nothing, unless that goes on and on."""
    monkeypatch.setattr(hands_module, "_START_S_MAX", 0.0)
    monkeypatch.setattr(hands_module, "_LATE_MAX", 2)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    troupe = Troupe()
    try:
        first, second, third = (troupe.ran(plays.echo) for _ in range(3))
    finally:
        troupe.close()
    assert first == second == Interrupted("its process was not ready within 0 s", begun=False)
    assert isinstance(third, Raised)
    assert third.evidence.kind is Kind.RESOURCE_EXHAUSTED
    assert len(troupe.hands) == 0
    assert caplog.text.count("no process can be started for a stage") == 1


def test_only_so_many_children_start_at_once_and_each_has_its_own_time(monkeypatch):
    starting: set[object] = set()
    most = 0
    unable = StageProcessPool._unable

    async def watched(hands, hand, find):
        nonlocal most
        starting.add(hand)
        most = max(most, len(starting) + len(hands._starting))
        try:
            return await unable(hands, hand, find)
        finally:
            starting.discard(hand)

    monkeypatch.setattr(StageProcessPool, "_unable", watched)
    monkeypatch.setattr(hands_module, "_STARTS_MAX", 2)
    troupe = Troupe()

    async def six_at_once():
        return await asyncio.gather(*(troupe.run(plays.pid) for _ in range(6)))

    try:
        outcomes = troupe.events.run(six_at_once())
    finally:
        troupe.close()
    assert all(isinstance(one, Returned) for one in outcomes)
    assert most == 2


def test_without_hands_to_lend_a_stage_has_a_child_of_its_own():
    async def alone():
        stage = Stage("one", plays.pid, PLAIN, 30.0, None, True)
        return await run(claim_of(), stage, Threads(1), Stopping())

    outcome = asyncio.run(alone())
    assert not alive(int(outcome.value_json))


def test_programs_that_a_stage_starts_hear_their_signals(troupe):
    assert troupe.ran(plays.ends_a_program) == Returned(str(-signal.SIGTERM))


# -- deaths ------------------------------------------------------------------------------

DEATHS = [
    ({"exit": 0}, StageDeath("exited", exit_status=0)),
    ({"exit": 3}, StageDeath("exited", exit_status=3)),
    ({"segfault": True}, StageDeath("exited", signal="SIGSEGV")),
    ({"signal": signal.SIGKILL}, StageDeath("exited", signal="SIGKILL")),
    ({"signal": signal.SIGRTMIN + 3}, StageDeath("exited", signal=f"signal {signal.SIGRTMIN + 3}")),
]


@pytest.mark.parametrize(("item", "death"), DEATHS, ids=str)
def test_a_child_that_dies_has_lost_the_attempt(troupe, item, death):
    assert troupe.ran(plays.dies, item) == Lost(death)
    assert isinstance(troupe.ran(plays.pid), Returned)


def test_a_child_killed_when_the_kernel_had_no_memory_left_says_so(tmp_path):
    troupe = Troupe()
    counter = tmp_path / "memory.events"
    counter.write_text("oom 0\noom_kill 0\n")
    troupe.hands._oom._file, troupe.hands._oom._seen = counter, 0

    async def killed_by_the_kernel():
        item = {"file": str(tmp_path / "pid"), "until": str(tmp_path / "never")}
        running = asyncio.create_task(troupe.run(plays.waits, item))
        pid = await asyncio.to_thread(pid_in, tmp_path / "pid")
        counter.write_text("oom 1\noom_kill 1\n")
        os.kill(pid, signal.SIGKILL)
        return await running

    outcome = troupe.events.run(killed_by_the_kernel())
    assert outcome == Lost(StageDeath(OUT_OF_MEMORY, signal="SIGKILL"))
    assert outcome.death.in_words() == "was killed by SIGKILL: out of memory"
    troupe.close()


def test_a_child_whose_own_child_holds_the_line_is_still_seen_to_die(troupe, tmp_path):
    file = tmp_path / "pid"
    outcome = troupe.ran(plays.leaves_a_child, {"file": str(file)}, timeout_s=15.0)
    os.kill(pid_in(file), signal.SIGKILL)
    assert outcome == Lost(StageDeath("exited", signal="SIGKILL"))


def test_a_signal_for_the_worker_s_group_does_not_end_a_stage(troupe, tmp_path):
    async def signalled():
        item = {"file": str(tmp_path / "pid"), "until": str(tmp_path / "go")}
        running = asyncio.create_task(troupe.run(plays.waits, item))
        pid = await asyncio.to_thread(pid_in, tmp_path / "pid")
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        (tmp_path / "go").touch()
        return await running

    assert troupe.events.run(signalled()) == Returned('"waited"')


# -- time and stopping -------------------------------------------------------------------


def test_a_child_is_killed_at_its_stage_s_timeout_whatever_it_does(troupe, tmp_path):
    file = tmp_path / "pid"
    outcome = troupe.ran(plays.stuck, {"file": str(file)}, timeout_s=0.3)
    assert outcome == TimedOut(0.3)
    pid = pid_in(file)
    until(lambda: not alive(pid), "the child has been killed")
    assert isinstance(troupe.ran(plays.pid), Returned)


def test_the_time_in_which_a_child_starts_is_not_the_stage_s(troupe):
    from tests.engine import slow_play

    assert troupe.ran(slow_play.echo, 1, timeout_s=0.8) == Returned("1")


def test_a_deadline_that_passes_while_a_child_starts_keeps_the_stage_from_beginning():
    troupe = Troupe()
    assert troupe.ran(plays.echo, 1, deadline_s=0.01) == Unbegun()
    assert isinstance(troupe.ran(plays.pid), Returned)
    assert len(troupe.hands) == 1
    troupe.close()


def test_a_stage_in_a_child_that_was_told_to_stop_is_interrupted_and_killed(troupe, tmp_path):
    stopping = Stopping()

    async def stopped():
        item = {"file": str(tmp_path / "pid"), "until": str(tmp_path / "never")}
        running = asyncio.create_task(troupe.run(plays.waits, item, stopping=stopping))
        pid = await asyncio.to_thread(pid_in, tmp_path / "pid")
        stopping.order()
        running.cancel()
        return await running, pid

    outcome, pid = troupe.events.run(stopped())
    assert outcome == Interrupted()
    until(lambda: not alive(pid), "the child has been killed")


def test_a_child_that_was_started_for_nobody_is_kept_for_the_next():
    troupe = Troupe()

    async def stopped_at_once():
        stopping = Stopping()
        running = asyncio.create_task(troupe.run(plays.echo, stopping=stopping))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stopping.order()
        running.cancel()
        return await running

    assert troupe.events.run(stopped_at_once()) == Interrupted(begun=False)
    assert isinstance(troupe.ran(plays.pid), Returned)
    assert len(troupe.hands) <= 2
    troupe.close()
    assert len(troupe.hands) == 0


# -- the worker's end --------------------------------------------------------------------

PARENT = """
import asyncio, json, sys
from perdure.engine.attempt.stage_processes import StageProcess, StageProcessPool
from perdure.engine.run import Stopping, run
from perdure.engine.attempt.threads import Threads
from perdure.engine.stages import Stage
from tests.engine import plays
from tests.engine.kit import PLAIN, claim_of

stage = Stage("one", getattr(plays, sys.argv[1]), PLAIN, 60.0, None, True)
asyncio.run(run(claim_of(input_json=sys.argv[2]), stage, Threads(1), Stopping(), process_pool=StageProcessPool()))
"""


@pytest.mark.parametrize("play", ["stuck", "waits"])
def test_children_end_when_their_worker_is_killed(tmp_path, play):
    file = tmp_path / "pid"
    item = json.dumps({"file": str(file), "until": str(tmp_path / "never")})
    parent = subprocess.Popen([sys.executable, "-c", PARENT, play, item], cwd=ROOT)
    try:
        child = pid_in(file)
        assert alive(child)
    finally:
        parent.kill()
        parent.wait(20)
    until(lambda: not alive(child), "the child has ended with its parent")


def test_a_child_reads_of_its_worker_s_end_without_the_kernel_s_help(troupe, tmp_path):
    """As on a system that cannot be asked to kill it: the line alone says it."""
    file = tmp_path / "pid"

    async def let_go():
        item = {"file": str(file), "until": str(tmp_path / "never")}
        running = asyncio.create_task(troupe.run(plays.waits, item))
        pid = await asyncio.to_thread(pid_in, file)
        (hand,) = [one for one in troupe.hands._all if one._process.pid == pid]
        hand._writer.transport.abort()
        return await running, pid

    outcome, pid = troupe.events.run(let_go())
    assert outcome == Lost(StageDeath("exited", exit_status=0))
    assert not alive(pid)


def test_closing_kills_what_still_runs(tmp_path):
    troupe = Troupe()
    file = tmp_path / "pid"

    async def closed_meanwhile():
        running = asyncio.create_task(troupe.run(plays.stuck, {"file": str(file)}))
        await asyncio.to_thread(pid_in, file)
        await troupe.hands.close()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    troupe.events.run(closed_meanwhile())
    troupe.events.close()
    assert not alive(pid_in(file))
