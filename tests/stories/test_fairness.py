"""One owner's hundred thousand jobs beside another's hundred, in a fair queue and with a real worker.

Two owners share the worker, so the small one waits twice as long as alone, a tenth more for what is lost on the
way, and once for a task that is under way when it comes. The short stories are the same with fewer jobs, counted
in turns: a second is not the same on a busy machine.
"""

import math
import time
from dataclasses import dataclass

import pytest

from perdure.simulate.fairness import TIMES_MAX, Fairness
from tests.stories.kit import Story, on_both_long, until

pytestmark = pytest.mark.story


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many jobs each owner has, and how fast they are worked off."""

    large: int
    small: int
    concurrency: int
    task_s: float


LARGE = Sizes(large=100_000, small=100, concurrency=4, task_s=0.2)
SHORT = Sizes(large=5_000, small=20, concurrency=1, task_s=0.1)


def begun_s(story: Story, owner: str) -> list[float]:
    """How long each job of an owner has waited for its first attempt, of those that have ended one."""
    rows = story.rows(
        "SELECT min(a.claimed_at) - j.enqueued_at FROM perdure_jobs AS j "
        "JOIN perdure_attempts AS a ON a.job = j.no WHERE j.owner = ? GROUP BY j.no, j.enqueued_at",
        owner,
    )
    return sorted(waited_us / 1e6 for (waited_us,) in rows)


def p99_s(story: Story, owner: str, jobs: int, *, within_s: float) -> float:
    """The 99th percentile of an owner's waits, once all of its jobs are through."""
    until(
        f"the jobs of {owner} are through",
        lambda: len(begun_s(story, owner)) == jobs,
        within_s=within_s,
    )
    return begun_s(story, owner)[math.ceil(0.99 * jobs) - 1]


def played(story: Story, sizes: Sizes, pipeline: str) -> float:
    """The small owner has come alone, and then the large one; how long the small one waited alone."""
    story.settings["STORY_TASK_S"] = str(sizes.task_s)
    story.worker("only", module="calls", concurrency=sizes.concurrency).child()
    story.enqueue(pipeline, [0] * sizes.small, module="calls", owner="alone")
    alone_s = p99_s(story, "alone", sizes.small, within_s=60)
    story.enqueue(pipeline, [0] * sizes.large, module="calls", owner="large")
    until(
        "the worker is busy with the large owner",
        lambda: len(begun_s(story, "large")) > sizes.concurrency,
        within_s=60,
    )
    story.enqueue(pipeline, [0] * sizes.small, module="calls", owner="small")
    return alone_s


def last_place(story: Story, owner: str) -> int:
    """How many attempts, anybody's, had begun when the last job of an owner did, since its jobs came."""
    (came_us,) = story.rows("SELECT min(enqueued_at) FROM perdure_jobs WHERE owner = ?", owner)[0]
    rows = story.rows(
        "SELECT j.owner FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job "
        "WHERE a.claimed_at >= ? ORDER BY a.claimed_at, a.job",
        came_us,
    )
    return max(place for place, row in enumerate(rows, 1) if row["owner"] == owner)


def beside_the_large_one(story: Story, sizes: Sizes) -> Fairness:
    """Play it; in turns, which no load changes, the small owner has had its share."""
    alone_s = played(story, sizes, "fair")
    beside_s = p99_s(story, "small", sizes.small, within_s=120)
    found = Fairness(alone_s, beside_s, sizes.task_s)
    place = last_place(story, "small")
    print(
        f"FIGURE {sizes}: {found}, {beside_s / alone_s:.2f} x, limit {found.limit_s:.2f} s; "
        f"last in place {place}"
    )
    assert place <= TIMES_MAX * sizes.small
    assert story.states()["queued"] > sizes.large / 2  # else the large one was not there
    return found


@on_both_long
def test_twenty_jobs_beside_five_thousand_wait_their_share(story):
    beside_the_large_one(story, SHORT)


def test_in_a_queue_that_is_not_fair_the_small_owner_waits_for_the_large_one(story):
    alone_s = played(story, SHORT, "unfair")
    limit_s = Fairness(alone_s, 0.0, SHORT.task_s).limit_s
    (came_us,) = story.rows("SELECT max(enqueued_at) FROM perdure_jobs WHERE owner = 'small'")[0]
    over_s = came_us / 1e6 + limit_s
    until("its share of time is over", lambda: time.time() > over_s, within_s=60)
    assert begun_s(story, "small") == []


@pytest.mark.long
@on_both_long
def test_a_hundred_jobs_beside_a_hundred_thousand_wait_their_share(story):
    beside_the_large_one(story, LARGE)
