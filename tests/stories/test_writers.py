"""A second process writes while a pump is at full speed: it waits its turn, not for the end."""

import statistics
import subprocess
import sys

import pytest

from tests.stories.kit import Story, WorkerProcess, until

pytestmark = pytest.mark.story

BACKLOG = 12_000
ENQUEUES = 30

CLIENT = f"""
import time, work
work.walk.enqueue({{"work": {{}}}})
for _ in range({ENQUEUES}):
    began = time.perf_counter()
    work.walk.enqueue({{"work": {{}}}})
    print(time.perf_counter() - began)
    time.sleep(0.02)
"""


def enqueued_beside_a_pump(story: Story) -> tuple[WorkerProcess, list[float]]:
    """How long each enqueue of the second process took, shortest first."""
    story.enqueue("walk", [{"work": {}}] * BACKLOG)
    worker = story.worker("a", lease_s=5.0, concurrency=500)
    until(
        "the pump is at full speed", lambda: story.states().get("succeeded", 0) > 500, within_s=60
    )
    done = subprocess.run(
        [sys.executable, "-c", CLIENT],
        cwd=story.folder,
        env=story.environment(),
        timeout=100,
        capture_output=True,
        text=True,
        check=True,
    )
    return worker, sorted(float(line) for line in done.stdout.split())


def test_a_second_process_waits_its_turn_beside_a_saturated_pump(story):
    worker, waits = enqueued_beside_a_pump(story)
    left = story.states().get("queued", 0)
    p50, p99 = statistics.median(waits), waits[round(len(waits) * 0.99) - 1]
    print(
        f"FIGURE enqueue beside a saturated pump: p50 {p50:.3f}, p99 {p99:.3f}, max {waits[-1]:.3f} s"
    )
    print(f"FIGURE jobs still queued after the last of {len(waits)} enqueues: {left}")
    assert len(waits) == ENQUEUES
    assert left > 0  # else the pump was not saturated all the time
    worker.kill(15)
    assert worker.exit_status(within_s=30) == 0
    story.assert_audit_is_clean()
