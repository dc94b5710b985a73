"""Stages that let nothing else in their process run: the lease is beaten elsewhere, so it holds."""

import itertools
import time

import pytest

from tests.stories.kit import Story, on_both_long, until

pytestmark = pytest.mark.story

LEASE_S = 1.0
HOLD_S = 3 * LEASE_S + 0.3


def beats_until_the_end(story: Story, job: str) -> list[int]:
    """Every beat of the worker that holds the job, in microseconds, until the job has ended."""
    number = story.job(job)["worker"]
    beats: list[int] = []

    def ended() -> bool:
        (at,) = story.rows("SELECT beat_at FROM perdure_workers WHERE no = ?", number)[0]
        if at not in beats:
            beats.append(at)
        return story.job(job)["finished_at"] is not None

    until("the job has ended", ended, within_s=60)
    return beats


def assert_nobody_took_it(story: Story, job: str) -> None:
    """The job ran once, where it began, for as long as it wanted to."""
    ledger = story.ledger()
    [start], [end] = ledger.of(job, "work", "start"), ledger.of(job, "work", "end")
    assert start.pid == end.pid
    assert end.at_s - start.at_s >= HOLD_S
    assert [(one["status"], one["counted"]) for one in story.attempts(job)] == [
        ("success", None)
    ] * 3
    assert not story.rows("SELECT 1 FROM perdure_workers WHERE dead_at IS NOT NULL")


@on_both_long
@pytest.mark.parametrize(
    ("pipeline", "work"),
    [
        ("walk", {"hold_gil_s": HOLD_S}),
        ("walk_sync", {"hold_gil_s": HOLD_S}),
        ("walk", {"block_s": HOLD_S}),
        pytest.param("walk_sync", {"backtrack_s": HOLD_S}, marks=pytest.mark.long),
        pytest.param("walk", {"backtrack_s": HOLD_S}, marks=pytest.mark.long),
    ],
    ids=["async, GIL", "sync, GIL", "async, loop", "sync, regex", "async, regex"],
)
def test_a_stage_that_lets_nothing_else_run_for_three_leases_keeps_its_job(story, pipeline, work):
    for worker in [story.worker(name, lease_s=LEASE_S) for name in ("a", "b")]:
        story.judging(worker)  # whichever gets the job, the other one could take it
    [job] = story.enqueue(pipeline, [{"work": work}])
    story.started(job, "work")
    beats = beats_until_the_end(story, job)
    gap_s = max(late - early for early, late in itertools.pairwise(beats)) / 1e6
    print(f"FIGURE widest gap between beats: {gap_s:.2f} s, lease {LEASE_S:g} s")
    assert len(beats) >= 3  # it was heard while it let nothing else run
    assert_nobody_took_it(story, job)
    story.assert_audit_is_clean()


@pytest.mark.long
def test_a_stage_that_holds_the_gil_while_its_pump_holds_the_store_loses_nothing(story):
    idle = story.worker("a", lease_s=LEASE_S, concurrency=1)
    [kept] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(kept, "work")
    story.judging(idle)
    busy = story.worker("b", lease_s=LEASE_S, concurrency=40)
    story.judging(busy)
    story.enqueue("walk", [{"work": {}}] * 3_000)
    [job] = story.enqueue("walk_sync", [{"work": {"hold_gil_in_line_s": HOLD_S}}])
    story.started(job, "work", within_s=60)
    asked_at = time.monotonic()
    story.enqueue("walk", [{"work": {}}])
    waited_s = time.monotonic() - asked_at
    print(f"FIGURE enqueue beside a pump that waits for the GIL: {waited_s:.2f} s")
    until("the job has ended", lambda: story.job(job)["finished_at"], within_s=60)
    until("the rest has ended", lambda: story.states().get("succeeded") == 3_002, within_s=60)
    story.open_gate("go")
    assert story.all_ended(within_s=30) == {"succeeded": 3_003}
    assert_nobody_took_it(story, job)
    story.assert_audit_is_clean()
