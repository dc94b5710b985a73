"""Two workers, many jobs, random kills: everything ends, and no committed stage is begun again."""

import os
import random
import time

import pytest

from perdure.model.nouns import replace
from tests.stories.kit import Story, on_both_long
from tests.stories.ledger import Entry, Ledger, Success, reruns, starts_per_stage, unfounded
from tests.stories.nemesis import Nemesis, successes, unjust

pytestmark = pytest.mark.story


def play(
    story: Story,
    *,
    jobs: int,
    pause_s: tuple[float, float],
    within_s: float,
    concurrency: int = 16,
) -> Nemesis:
    """Enqueue, rage until nine tenths have ended, then let the workers finish in peace."""
    seed = int(os.environ.get("PERDURE_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed} (PERDURE_SEED repeats the kills, not the machine)")
    tuning = {"lease_s": 2.0, "concurrency": concurrency}
    nemesis = Nemesis(story, random.Random(seed), pause_s, tuning)
    story.enqueue("walk", [{"work": {"sleep_s": 0.08}}] * jobs)
    began_at = time.monotonic()
    nemesis.start(("a", "b"))
    nemesis.rage(ended_min=jobs * 9 // 10, within_s=within_s)
    states = story.all_ended(within_s=within_s)
    took_s = time.monotonic() - began_at
    print(f"FIGURE {jobs} jobs in {took_s:.1f} s under {sum(nemesis.strikes.values())} strikes")
    print(f"FIGURE strikes: {nemesis.strikes}; states: {states}")
    assert sum(states.values()) == jobs
    return nemesis


def assert_kept_its_promises(story: Story, nemesis: Nemesis) -> None:
    ledger, done = story.ledger(), successes(story)
    began_twice = sum(1 for count in starts_per_stage(ledger).values() if count > 1)
    crashed = story.rows("SELECT count(*) FROM perdure_jobs WHERE failed_reason = 'crashed'")[0][0]
    failed = story.states().get("failed", 0)
    print(f"FIGURE stages begun more than once: {began_twice}, none of them after its commit")
    print(f"FIGURE failed as crashed, each killed while alone: {crashed}")
    assert reruns(ledger, done) == []
    assert unfounded(ledger, done) == []
    assert unjust(story, nemesis.killed) == []
    assert unjust(story, set())  # the same crashes, had nobody been killed
    assert crashed == failed
    assert began_twice > 0  # else no kill has struck
    story.assert_audit_is_clean()


@on_both_long
def test_random_kills_of_two_workers_lose_nothing_and_repeat_no_committed_stage(story):
    nemesis = play(story, jobs=750, concurrency=8, pause_s=(0.3, 0.9), within_s=90)
    assert_kept_its_promises(story, nemesis)


@on_both_long
@pytest.mark.long
@pytest.mark.timeout(900)
def test_random_kills_during_20_000_jobs_lose_nothing_and_repeat_no_committed_stage(story):
    nemesis = play(story, jobs=20_000, pause_s=(0.5, 1.5), within_s=600)
    assert sum(nemesis.strikes.values()) >= 10
    assert_kept_its_promises(story, nemesis)


COMMITTED = Success("j1", "work", token=3, at_s=10.0)
BEFORE = Entry(9.9, 1, "j1", "work", 3, "start")


def test_the_check_finds_a_committed_stage_that_begins_again():
    assert reruns(Ledger((BEFORE,)), [COMMITTED]) == []
    interrupted = replace(BEFORE, at_s=9.5, token=1)
    assert reruns(Ledger((interrupted, BEFORE)), [COMMITTED]) == []
    later_token = replace(BEFORE, token=5)
    assert len(reruns(Ledger((BEFORE, later_token)), [COMMITTED])) == 1
    simply_later = replace(BEFORE, at_s=10.5)
    assert len(reruns(Ledger((simply_later,)), [COMMITTED])) == 1


def test_the_check_finds_a_success_that_no_stage_knows_of():
    end = replace(BEFORE, event="end")
    assert unfounded(Ledger((BEFORE, end)), [COMMITTED]) == []
    assert len(unfounded(Ledger((BEFORE,)), [COMMITTED])) == 1
    assert len(unfounded(Ledger((replace(end, token=1),)), [COMMITTED])) == 1
