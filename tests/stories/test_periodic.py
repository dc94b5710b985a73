"""A schedule and two workers, one of which is killed: each moment makes one job, and ticks go on."""

import os
import signal
from datetime import datetime

import pytest

from tests.stories.kit import Story, until

pytestmark = pytest.mark.story

APP = """
import perdure

app = perdure.App()


@app.stage
def sign(item):
    return item


signed = app.pipeline("signed", sign)
app.every("1s", signed, {"from": "the clock"}, name="tick")
"""


def moments(story: Story) -> list[int]:
    """The seconds for which there are jobs, in the order in which they came in."""
    rows = story.rows("SELECT key FROM perdure_jobs ORDER BY no")
    return [
        round(datetime.fromisoformat(row["key"].removeprefix("tick at ")).timestamp())
        for row in rows
    ]


def ticked(story: Story, times: int) -> bool:
    """Whether there is a store yet, and so many moments in it."""
    tables = "SELECT 1 FROM sqlite_master WHERE name = 'perdure_jobs'"
    return story.file.exists() and bool(story.rows(tables)) and len(moments(story)) >= times


def duty_holders(story: Story) -> set[int]:
    return {row["worker"] for row in story.rows("SELECT worker FROM perdure_duties")}


def test_each_moment_makes_one_job_while_workers_come_and_go(story):
    (story.folder / "work.py").write_text(APP)
    first = story.worker("a")
    until("the first worker ticks", lambda: ticked(story, 2), within_s=30)
    second = story.worker("b")
    second.child()
    (holder,) = duty_holders(story)
    assert holder == first.child().worker
    for one in (first.child().pid, first.pid):
        os.kill(one, signal.SIGKILL)
    heir = second.child().worker
    until("the second worker has the duties", lambda: duty_holders(story) == {heir}, within_s=30)
    seen = len(moments(story))
    until("ticks go on", lambda: ticked(story, seen + 3), within_s=30)
    second.kill(signal.SIGTERM)
    assert second.exit_status(within_s=30) == 0
    found = moments(story)
    assert found == sorted(set(found))
    assert [row["ticks"] for row in story.rows("SELECT ticks FROM perdure_schedules")] == [
        len(found)
    ]
    story.assert_audit_is_clean()
