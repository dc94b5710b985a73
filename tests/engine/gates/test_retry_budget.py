"""The budget of retries across jobs is the gate's pace: in a storm the calls are few, however many jobs there are."""

import pytest

from perdure.model.states import State
from tests.engine.gating import DOWN, Post, put, stage
from tests.stores.kit import MEMORY, Place

STORM_S = 600
CONCURRENCY = 8


def calls_in_a_storm(jobs: int, *, upstream: str | None) -> tuple[int, list[State]]:
    """How many calls go out while every call fails for ten minutes, and what becomes of the jobs."""
    place = Place(MEMORY)
    post = Post(place, stage(upstream=upstream), concurrency=CONCURRENCY)
    ids = put(place, jobs)
    for _ in range(STORM_S):
        post.turn(passing_s=1.0)
        post.end_all(DOWN)
        post.turn()
    states = [place.see(id).state for id in ids]
    place.close()
    return post.started, states


@pytest.mark.parametrize("jobs", [20, 400])
def test_a_storm_costs_one_window_and_then_one_probe_at_a_time(jobs):
    """The gaps are 2, 4, 6 … s, so ten minutes hold 24 probes; before them, what one window lets through."""
    calls, states = calls_in_a_storm(jobs, upstream="vendor")
    assert calls <= 2 * CONCURRENCY + 24
    assert set(states) == {State.QUEUED}  # and nobody has paid for it


def test_without_an_upstream_every_job_spends_all_its_attempts():
    """The twin: jobs that retry for themselves, three tries each."""
    calls, states = calls_in_a_storm(400, upstream=None)
    assert calls == 400 * 3
    assert set(states) == {State.FAILED}
