"""run: whatever a stage does, it ends as data."""

import asyncio
import json
import threading
import time
from datetime import UTC, datetime

import pytest

from perdure.engine import run as module
from perdure.engine.attempt.context import AttemptNotes, Context
from perdure.engine.attempt.perform import context_for
from perdure.engine.attempt.stage_processes import StageProcessPool
from perdure.engine.attempt.threads import Threads
from perdure.engine.run import Stopping, run
from perdure.engine.stages import Stage
from perdure.model.jobs import Counters
from perdure.model.kinds import Kind
from perdure.model.limits import RESULT_BYTES_MAX
from perdure.model.outcomes import (
    Interrupted,
    Origin,
    Raised,
    Returned,
    Snoozed,
    TimedOut,
    Unbegun,
    Unstorable,
    Usage,
    Withdrawn,
)
from perdure.model.signals import Cancel, Snooze, Succeeded
from perdure.rules.classify import classify_evidence
from tests.engine import plays
from tests.engine.kit import PLAIN, claim_of, stage, until

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ran(call, *, claim=None, timeout_s=30.0, threads=None, stopping=None, notes=None, begun=None):
    """The outcome of one stage, run on a loop of its own; with ``begun``, no time is over before that is set."""
    own, chosen = threads or Threads(2), stage(call=call, timeout_s=timeout_s)
    running = run(claim or claim_of(), chosen, own, stopping or Stopping(), notes=notes)

    async def held_up():
        outcome = asyncio.create_task(running)
        await asyncio.sleep(0)  # it has its timer and its thread
        assert begun.wait(30)  # on the loop, so that no timer can ring
        return await outcome

    return asyncio.run(running if begun is None else held_up())


def as_sync(answer):
    def call(item):
        return answer(item)

    return call


def as_async(answer):
    async def call(item):
        await asyncio.sleep(0)
        return answer(item)

    return call


both_ways = pytest.mark.parametrize("way", [as_sync, as_async])


# -- returning ---------------------------------------------------------------------------

ANSWERS = [
    (lambda item: {"got": item}, Returned('{"got":{"n":1}}')),
    (lambda _: None, Returned("null")),
    (lambda _: 0, Returned("0")),
    (lambda _: Succeeded([1], label="needs_review"), Returned("[1]", "needs_review")),
    (lambda _: Succeeded(None), Returned("null")),
    (lambda _: Snooze(5, "not ready"), Snoozed(5.0, "not ready")),
    (lambda _: Snooze(0.25), Snoozed(0.25)),
    (lambda _: Cancel("obsolete"), Withdrawn("obsolete")),
    (lambda _: Cancel(), Withdrawn()),
]


@both_ways
@pytest.mark.parametrize(("answer", "outcome"), ANSWERS)
def test_what_a_stage_returns_becomes_its_outcome(way, answer, outcome):
    assert ran(way(answer)) == outcome


def test_a_stage_gets_its_input_and_a_context_when_it_wants_one():
    async def call(item, context):
        return [item, context.job_id, context.attempt]

    outcome = ran(call, claim=claim_of(input_json='"checkpoint"'))
    assert outcome == Returned('["checkpoint","job-00001",1]')


def test_a_context_is_given_by_name_or_by_place_as_the_stage_takes_it():
    async def by_name(item, other=1, *, about: Context):
        return [item, other, about.attempt]

    async def by_place(item, context, /, other=1):
        return [item, other, context.attempt]

    assert {ran(call) for call in (by_name, by_place)} == {Returned('[{"n":1},1,1]')}


def test_the_context_says_what_the_attempt_is():
    claim = claim_of(counters=Counters(starts=5, failures=1, waits=3), deadline_s=60, token=9)
    context = context_for(claim, PLAIN.attempts_max, AttemptNotes())
    assert (context.request_id, context.attempt_id) == ("req-1", "job-00001:9")
    assert (context.attempt, context.attempts_left) == (5, PLAIN.attempts_max - 2)
    assert (context.token, context.owner, context.item) == (9, "ann", {"n": 1})
    assert context.deadline_at == claim.deadline_at
    again = context_for(
        claim_of(token=11, counters=Counters(starts=6, failures=2)),
        PLAIN.attempts_max,
        AttemptNotes(),
    )
    assert again.idempotency_key == context.idempotency_key == "job-00001:one:1"
    assert again.attempts_left == 0
    assert (again.request_id, again.attempt_id) == ("req-1", "job-00001:11")


# -- raising -----------------------------------------------------------------------------


def raising(error):
    def answer(_):
        raise error

    return answer


# What a stage raises, in the words of `plays.ERRORS`: one defined outcome each, wherever it runs.
RAISED = [
    ("ValueError", "builtins.ValueError", Kind.UNKNOWN),
    ("KeyError", "builtins.KeyError", Kind.UNKNOWN),
    ("MemoryError", "builtins.MemoryError", Kind.RESOURCE_EXHAUSTED),
    ("TimeoutError", "builtins.TimeoutError", Kind.TIMEOUT),
    ("SystemExit 1", "builtins.SystemExit", Kind.INTERNAL),
    ("SystemExit 404", "builtins.SystemExit", Kind.INTERNAL),
    ("KeyboardInterrupt", "builtins.KeyboardInterrupt", Kind.INTERNAL),
    ("GeneratorExit", "builtins.GeneratorExit", Kind.INTERNAL),
    ("CancelledError", "asyncio.exceptions.CancelledError", Kind.CANCELLED),
    ("StageError", "perdure.model.errors.StageError", Kind.BILLING),
    ("BaseException", "builtins.BaseException", Kind.UNKNOWN),
    ("ExceptionGroup", "builtins.ValueError", Kind.UNKNOWN),
]


@pytest.fixture(scope="module")
def children():
    """Runs stages in child processes, one of which all tests of this file share."""
    events, hands = asyncio.Runner(), StageProcessPool()

    def ran_in_a_child(call, item):
        claim = claim_of(input_json=json.dumps(item))
        chosen = Stage("one", call, PLAIN, 30.0, None, True)
        return events.run(run(claim, chosen, Threads(1), Stopping(), process_pool=hands))

    yield ran_in_a_child
    events.run(hands.close())
    events.close()


@pytest.mark.parametrize("way", ["sync", "async", "process", "process async"])
@pytest.mark.parametrize(("said", "name", "kind"), RAISED, ids=[row[0] for row in RAISED])
def test_whatever_a_stage_raises_is_kept_as_evidence(way, said, name, kind, request):
    call = plays.raises_async if "async" in way else plays.raises
    if "process" in way:
        outcome = request.getfixturevalue("children")(call, said)
    else:
        outcome = ran(call, claim=claim_of(input_json=json.dumps(said)))
    assert isinstance(outcome, Raised)
    assert outcome.evidence.names[0] == name
    assert classify_evidence(outcome.evidence, now=NOW).kind is kind


def test_every_error_of_the_plays_is_in_the_table():
    assert set(plays.ERRORS) == {row[0] for row in RAISED}


def test_a_base_exception_does_not_end_the_child_that_it_was_raised_in(children):
    before = children(plays.pid, None)
    children(plays.raises, "SystemExit 1")
    children(plays.raises_async, "KeyboardInterrupt")
    assert children(plays.pid, None) == before


def test_an_async_stage_that_runs_out_of_items_has_raised():
    outcome = ran(as_async(raising(StopIteration())))
    assert isinstance(outcome, Raised)
    assert outcome.evidence.names[0] == "builtins.RuntimeError"


def test_a_sync_stage_that_runs_out_of_items_has_raised():
    outcome = ran(as_sync(lambda _: next(iter(()))), timeout_s=0.5)
    assert isinstance(outcome, Raised)
    assert "StopIteration" in json.dumps([outcome.evidence.names, outcome.evidence.message])


class Cursed(Exception):
    """An exception whose own text raises something that nobody has heard of."""

    class Unheard(Exception):
        pass

    def __str__(self):
        raise self.Unheard


@both_ways
def test_an_exception_that_cannot_be_read_is_still_an_outcome(way):
    outcome = ran(way(raising(Cursed())))
    assert isinstance(outcome, Raised)
    assert outcome.evidence.names[0].endswith("Cursed")


@both_ways
@pytest.mark.parametrize("value", [object(), float("nan"), {1: 2}, b"x", "x" * RESULT_BYTES_MAX])
def test_a_result_that_cannot_be_stored_is_an_outcome_of_its_own(way, value):
    outcome = ran(way(lambda _: value))
    assert isinstance(outcome, Unstorable)
    assert outcome.reason.startswith("the result")


@both_ways
def test_a_labelled_result_that_cannot_be_stored_is_one_too(way):
    outcome = ran(way(lambda _: Succeeded({1, 2}, label="fine")))
    assert isinstance(outcome, Unstorable)
    assert "of type set" in outcome.reason


@pytest.mark.parametrize("way", ["sync", "async", "process", "process async"])
@pytest.mark.parametrize(
    ("said", "origin"), [("KeyError", Origin.OWN), ("TimeoutError", Origin.UNKNOWN)]
)
def test_whose_code_raised_it_is_told_wherever_a_stage_runs(way, said, origin, request):
    call = plays.raises_async if "async" in way else plays.raises
    if "process" in way:
        outcome = request.getfixturevalue("children")(call, said)
    else:
        outcome = ran(call, claim=claim_of(input_json=json.dumps(said)))
    assert classify_evidence(outcome.evidence, now=NOW).origin is origin


@both_ways
def test_a_signal_that_makes_no_sense_is_a_defect_of_the_stage(way):
    outcome = ran(way(lambda _: Snooze(float("nan"))))
    assert classify_evidence(outcome.evidence, now=NOW).kind is Kind.INTERNAL


# -- time --------------------------------------------------------------------------------


def test_an_async_stage_ends_at_its_timeout():
    ended = []

    async def call(_):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    assert ran(call, timeout_s=0.02) == TimedOut(0.02)
    assert ended == [True]


def test_a_timeout_that_the_stage_raises_itself_is_its_own():
    async def call(_):
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    outcome = ran(call, timeout_s=30.0)
    assert isinstance(outcome, Raised)
    assert outcome.evidence.names[0] == "builtins.TimeoutError"


def test_a_stage_that_tidies_up_after_its_timeout_has_still_timed_out():
    async def call(_):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise TimeoutError("my own words") from None

    assert ran(call, timeout_s=0.02) == TimedOut(0.02)


def test_a_sync_stage_is_given_up_at_its_timeout_and_keeps_its_thread():
    begun, let_go, threads = threading.Event(), threading.Event(), Threads(2)

    def call(_):
        begun.set()
        let_go.wait(30)

    try:
        assert ran(call, timeout_s=0.02, threads=threads, begun=begun) == TimedOut(0.02)
        assert threads.lost_count == 1
        assert threads.lost_at <= time.monotonic()
    finally:
        let_go.set()
    until(lambda: threads.lost_count == 0, "the thread has ended by itself")
    assert threads.lost_at is None


class Crowd:
    """One thread, which is taken until it is let go, and a stage that comes too late for it."""

    def __init__(self) -> None:
        self.threads, self.let_go = Threads(1), threading.Event()

    def outcome(self, call, *, before=lambda: None, claim=None, timeout_s=30.0):
        """What becomes of the late stage; ``before`` is awaited while it waits for the thread."""

        async def both():
            busy = asyncio.create_task(
                run(
                    claim_of(), stage(call=lambda _: self.let_go.wait(30)), self.threads, Stopping()
                )
            )
            await asyncio.sleep(0)
            chosen = stage(call=call, timeout_s=timeout_s)
            late = asyncio.create_task(run(claim or claim_of(), chosen, self.threads, Stopping()))
            await before(late)
            self.let_go.set()
            assert await busy == Returned("true")
            return await late

        return asyncio.run(both())


async def longer_than_its_time(late):
    await asyncio.sleep(0.2)
    assert not late.done()


def test_the_time_of_a_sync_stage_does_not_run_while_it_waits_for_a_thread():
    crowd = Crowd()

    def call(_, context):
        return 0 < context.time_left_s() <= 0.1

    outcome = crowd.outcome(call, before=longer_than_its_time, timeout_s=0.1)
    assert outcome == Returned("true")
    assert crowd.threads.lost_count == 0


def test_it_runs_from_the_moment_in_which_the_thread_is_there():
    crowd, ends = Crowd(), threading.Event()
    outcome = crowd.outcome(lambda _: ends.wait(30), before=longer_than_its_time, timeout_s=0.1)
    assert (outcome, crowd.threads.lost_count) == (TimedOut(0.1), 1)
    ends.set()
    until(lambda: crowd.threads.lost_count == 0, "the thread has ended by itself")


def test_a_deadline_that_passes_while_a_stage_waits_for_a_thread_is_not_its_timeout():
    crowd, called = Crowd(), []

    async def over(late):
        await asyncio.wait([late], timeout=20)

    outcome = crowd.outcome(called.append, before=over, claim=claim_of(deadline_s=0.1))
    assert (outcome, called, crowd.threads.lost_count) == (Unbegun(), [], 0)


def test_a_stage_for_which_there_is_no_thread_has_not_failed(monkeypatch):
    """As when the interpreter is about to end, or the system has no more."""
    monkeypatch.setattr(module, "_REFUSED_S", 0.0)

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert ran(lambda _: 1) == Interrupted("there is no thread for it", begun=False)
    assert ran(lambda _: 1) == Returned("1")


def test_a_sync_stage_has_a_thread_and_an_async_one_the_loop():
    async def on_the_loop(_):
        return threading.current_thread() is threading.main_thread()

    assert ran(on_the_loop) == Returned("true")
    name = json.loads(ran(lambda _: threading.current_thread().name).value_json)
    assert name.startswith("perdure-stage")


def test_a_sync_stage_does_not_hold_up_the_loop():
    begun, let_go = threading.Event(), threading.Event()

    def slow(_):
        begun.set()
        return let_go.wait(30)

    async def release(_):
        await asyncio.to_thread(begun.wait, 20)
        let_go.set()

    async def side_by_side():
        threads = Threads(2)
        return await asyncio.gather(
            run(claim_of(), stage(call=slow), threads, Stopping()),
            run(claim_of(), stage(call=release), threads, Stopping()),
        )

    assert asyncio.run(side_by_side()) == [Returned("true"), Returned("null")]


def test_a_sync_stage_can_see_that_it_was_given_up():
    begun, seen, threads = threading.Event(), threading.Event(), Threads(1)

    def call(_, context):
        begun.set()
        until(lambda: context.cancelled, "the context says so")
        seen.set()

    assert ran(call, timeout_s=0.02, threads=threads, begun=begun) == TimedOut(0.02)
    assert seen.wait(20)


def test_a_stage_that_runs_is_not_cancelled_and_sees_its_time_run_out():
    async def call(_, context):
        before = context.time_left_s()
        await asyncio.sleep(0.002)
        return [context.cancelled, 30 >= before > context.time_left_s() > 20]

    assert ran(call) == Returned("[false,true]")


def test_the_time_of_a_stage_ends_at_the_deadline_of_its_job():
    async def call(_, context):
        return context.time_left_s() <= 5

    assert ran(call, claim=claim_of(deadline_s=5)) == Returned("true")


@both_ways
@pytest.mark.parametrize("deadline_s", [0, -5])
def test_a_job_whose_deadline_has_passed_is_not_begun(way, deadline_s):
    called = []
    outcome = ran(way(called.append), claim=claim_of(deadline_s=deadline_s))
    assert outcome == Unbegun()
    assert called == []


def test_a_deadline_that_is_near_shortens_the_timeout():
    async def call(_):
        await asyncio.Event().wait()

    assert ran(call, claim=claim_of(deadline_s=0.02), timeout_s=30.0) == TimedOut(0.02)


# -- stopping ----------------------------------------------------------------------------


async def stopped_midway(call, *, ordered: bool):
    stopping, threads = Stopping(), Threads(1)
    task = asyncio.create_task(run(claim_of(), stage(call=call), threads, stopping))
    for _ in range(5):
        await asyncio.sleep(0)
    if ordered:
        stopping.order()
    task.cancel()
    return await task


def test_a_stage_that_was_told_to_stop_is_interrupted():
    async def call(_):
        await asyncio.Event().wait()

    assert asyncio.run(stopped_midway(call, ordered=True)) == Interrupted()


def test_a_cancellation_that_nobody_ordered_is_a_failure():
    async def call(_):
        await asyncio.Event().wait()

    outcome = asyncio.run(stopped_midway(call, ordered=False))
    assert isinstance(outcome, Raised)
    assert classify_evidence(outcome.evidence, now=NOW).kind is Kind.CANCELLED


def test_a_stage_that_finishes_in_spite_of_the_order_has_finished():
    async def call(_):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved"

    assert asyncio.run(stopped_midway(call, ordered=True)) == Returned('"saved"')


def test_a_sync_stage_that_was_told_to_stop_is_given_up():
    let_go = threading.Event()
    try:
        outcome = asyncio.run(stopped_midway(lambda _: let_go.wait(30), ordered=True))
    finally:
        let_go.set()
    assert outcome == Interrupted()


# -- saying ------------------------------------------------------------------------------


def test_what_a_stage_has_used_up_is_known_whatever_becomes_of_it():
    def call(_, context):
        context.usage(tokens_in=3, cost_usd=0.25)
        context.usage(tokens_in=4, tokens_out=1)
        raise ValueError

    notes = AttemptNotes()
    ran(call, notes=notes)
    assert notes.usage == Usage(7, 1, 0.25)


def test_a_thread_that_was_given_up_has_nothing_more_to_say():
    begun, late, notes, threads = threading.Event(), threading.Event(), AttemptNotes(), Threads(1)

    def call(_, context):
        context.usage(tokens_in=1)
        begun.set()
        until(lambda: context.cancelled, "the context says so")
        context.usage(tokens_in=100)
        context.progress(1)
        late.set()

    outcome = ran(call, timeout_s=0.05, threads=threads, notes=notes, begun=begun)
    assert outcome == TimedOut(0.05)
    assert late.wait(20)
    assert (notes.usage, notes.progress) == (Usage(1), None)


# -- types -------------------------------------------------------------------------------


@both_ways
def test_an_input_that_does_not_fit_is_named_by_path_and_rule(way):
    called = []
    plain = way(called.append)

    def call(item: plays.Bill):
        return plain(item)

    outcome = ran(call, claim=claim_of(input_json='{"total":1,"lines":["a",2]}'))
    assert isinstance(outcome, Raised)
    assert (outcome.evidence.fact("path"), outcome.evidence.fact("rule")) == (
        "$.lines[1]",
        "Expected `str`, got `int`",
    )
    assert "stage 'one'" in outcome.evidence.message
    assert classify_evidence(outcome.evidence, now=NOW).kind is Kind.INPUT_INVALID
    assert called == []


def test_a_stage_is_called_with_an_object_of_its_type_and_may_return_one():
    async def call(bill: plays.Bill) -> plays.Bill:
        return plays.Bill(bill.total * 2, bill.lines)

    outcome = ran(call, claim=claim_of(input_json='{"total":2,"lines":[]}'))
    assert outcome == Returned('{"total":4,"lines":[]}')
