"""A caller that is killed in the middle of its call: a worker finds the job and does what was asked."""

import signal
import subprocess
import sys

import pytest

from tests.stories.kit import Story, on_both_long, until

pytestmark = pytest.mark.story

# The limit of a call is its wait and a quarter of a minute more, which no story should take.
CALLER = """
import sys
import work
from perdure.engine import call

call.HARD_MORE_S = 0.5
work.walk.call({"work": {"until": "go"}}, wait_s=6.0, on_lost=sys.argv[1])
"""


def killed_in_the_middle(story: Story, on_lost: str) -> str:
    """The job of a caller that was killed while its stage ran."""
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, on_lost],
        cwd=story.folder,
        env=story.environment(),
        start_new_session=True,
    ) as caller:
        try:
            entries = until(
                "the caller is in the middle of it",
                lambda: [one for one in story.ledger().entries if one.stage == "work"],
                within_s=30,
            )
        finally:
            caller.send_signal(signal.SIGKILL)
    assert entries[0].pid == caller.pid
    assert story.job(entries[0].job)["state"] == "processing"
    return entries[0].job


@on_both_long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("on_lost", "state", "status"),
    [("hand_over", "succeeded", "handed_over"), ("drop", "cancelled", "cancelled")],
)
def test_the_job_of_a_killed_caller_ends_as_was_asked(story, on_lost, state, status):
    # It judges after two looks, unless a look is later than its lease: on a busy machine a short one is never kept.
    story.worker("a", lease_s=2.0, grace_s=0.5)
    job = killed_in_the_middle(story, on_lost)
    story.open_gate("go")
    assert story.all_ended(within_s=150) == {state: 1}
    attempts = [(one["stage"], one["status"]) for one in story.attempts(job)]
    assert attempts[:2] == [("prepare", "success"), ("work", status)]
    rest = [("work", "success"), ("finish", "success")] if on_lost == "hand_over" else []
    assert attempts[2:] == rest
    row = story.job(job)
    assert (row["failures"], row["crashes"]) == (0, 0)
    assert len(story.ledger().pids(job, "prepare")) == 1
    story.assert_audit_is_clean()
