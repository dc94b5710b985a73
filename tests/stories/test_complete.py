"""Rows of a stage's own and its job's record in one transaction: killed anywhere, they are as many as the successes."""

import os
import random
import sqlite3
import time
from contextlib import closing

import psycopg
import pytest

from tests.stories.kit import Story, on_both
from tests.stories.nemesis import Nemesis

pytestmark = pytest.mark.story

TABLE = "CREATE TABLE saved (n INTEGER, stage TEXT)"
BEFORE_THE_COMMIT = ("begin", "rows", "complete")


@pytest.fixture
def shop(story: Story) -> Story:
    """A story with a table of its app's own beside the store's."""
    story.enqueue("once", [], module="saving")  # makes the store
    if story.url.startswith("sqlite"):
        with closing(sqlite3.connect(story.file)) as cx:
            cx.execute(TABLE)
    else:
        with psycopg.connect(story.url, autocommit=True) as cx:
            cx.execute(TABLE)
    return story


def assert_rows_are_the_successes(story: Story, *stages: str) -> int:
    """Exactly: one row of the app for each success of a stage, and none without; how many jobs have succeeded.

    So of the last stage there are as many rows as jobs that have succeeded, and those of the same jobs.
    """
    rows = [(n, stage) for n, stage in story.rows("SELECT n, stage FROM saved")]
    done = story.rows(
        "SELECT j.payload, a.stage FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job "
        "WHERE a.status = 'success'"
    )
    assert sorted(rows) == sorted((number_in(payload), stage) for payload, stage in done)
    assert len(rows) == len(set(rows))
    ended = story.rows("SELECT payload FROM perdure_jobs WHERE state = 'succeeded'")
    assert {(number_in(payload), stage) for (payload,) in ended for stage in stages} <= set(rows)
    last = [n for n, stage in rows if stage == stages[-1]]
    assert sorted(last) == sorted(number_in(payload) for (payload,) in ended)
    if len(stages) == 1:
        assert len(rows) == len(ended)
    story.assert_audit_is_clean()
    return len(ended)


def number_in(payload: str) -> int:
    return int(payload.partition('"n":')[2].split(",")[0].rstrip("}"))


@on_both
def test_killed_between_any_two_steps_a_stage_leaves_both_or_neither(shop):
    steps = (*BEFORE_THE_COMMIT, "commit", None)
    items = [{"n": n, "die": step} for n, step in enumerate(steps)]
    ids = shop.enqueue("once", items, module="saving")
    shop.worker("a", module="saving", concurrency=1)
    assert shop.all_ended(within_s=60) == {"succeeded": len(steps)}
    assert assert_rows_are_the_successes(shop, "save") == len(steps)
    tried = dict(zip(steps, ([a["status"] for a in shop.attempts(id)] for id in ids), strict=True))
    again = ["interrupted", "success"]
    assert {step: tried[step] for step in BEFORE_THE_COMMIT} == dict.fromkeys(
        BEFORE_THE_COMMIT, again
    )
    assert (tried["commit"], tried[None]) == (["success"], ["success"])  # nothing is run again


def raged(story: Story, pipeline: str, *, jobs: int, every: int, within_s: float) -> int:
    """Random kills while jobs are completed, one after every so many; how many have succeeded."""
    seed = int(os.environ.get("PERDURE_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed} (PERDURE_SEED repeats the kills, not the machine)")
    story.enqueue(pipeline, [{"n": n} for n in range(jobs)], module="saving")
    tuning = {"lease_s": 2.0, "concurrency": 8, "module": "saving"}
    nemesis = Nemesis(story, random.Random(seed), (0.0, 0.0), tuning)
    began_at = time.monotonic()
    nemesis.start(("a", "b"))
    nemesis.rage_by_progress(ended_min=jobs * 9 // 10, every=every, within_s=within_s)
    states = story.all_ended(within_s=within_s)
    print(f"FIGURE {jobs} jobs completed in {time.monotonic() - began_at:.1f} s: {states}")
    print(f"FIGURE strikes: {nemesis.strikes}")
    assert sum(states.values()) == jobs
    assert sum(nemesis.strikes.values()) > 0
    return states["succeeded"]


@on_both
def test_random_kills_leave_as_many_rows_as_jobs_that_have_succeeded(shop):
    done = raged(shop, "twice", jobs=300, every=50, within_s=60)
    assert assert_rows_are_the_successes(shop, "save", "seal") == done


@on_both
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_random_kills_during_100_000_jobs_leave_as_many_rows_as_jobs_that_have_succeeded(shop):
    done = raged(shop, "once", jobs=100_000, every=500, within_s=600)
    assert assert_rows_are_the_successes(shop, "save") == done
