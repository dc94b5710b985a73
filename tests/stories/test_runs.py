"""Batches under fire: every item accounted for, aborted when broken, not aborted by an outage, resumed at will."""

import json
import os
import random
import signal
import subprocess
import time

import pytest

from perdure import App
from perdure.model.operations import BulkStatus
from perdure.model.runs import RunStatus
from tests.stories.ailing import Ailing, down_for
from tests.stories.kit import CLI, Story, on_both, on_both_long, until
from tests.stories.nemesis import Nemesis
from tests.stories.runs import (
    assert_all_accounted_for,
    assert_no_committed_stage_is_rerun,
    ended,
    hopeless,
    outcome,
    run_of,
    submitted,
    submitting,
)

pytestmark = pytest.mark.story


def seeded() -> random.Random:
    seed = int(os.environ.get("PERDURE_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed} (PERDURE_SEED repeats the kills, not the machine)")
    return random.Random(seed)


# -- two workers killed at random ----------------------------------------------------------


def worked_under_fire(
    story: Story, *, count: int, backlog: int, pause_s: tuple[float, float], within_s: float
) -> None:
    tuning = {"lease_s": 2.0, "concurrency": 64, "module": "batch"}
    nemesis = Nemesis(story, seeded(), pause_s, tuning)
    story.perdure("db", "upgrade")
    submitter = submitting(story, "nightly", count, backlog=backlog)
    nemesis.start(("a", "b"))
    began_at = time.monotonic()
    nemesis.rage(ended_min=count * 9 // 10, within_s=within_s)
    said = submitted(submitter, within_s=within_s)
    over = ended(story, "nightly", within_s=within_s)
    took_s = time.monotonic() - began_at
    print(f"FIGURE {count} items in {took_s:.1f} s under {sum(nemesis.strikes.values())} strikes")
    print(f"FIGURE the submitting process took at most {said.rss_mib:.0f} MiB")
    print(f"FIGURE {over.status}: {over.counts}")
    assert (said.created, said.whole) == (count, True)
    assert said.rss_mib < 200
    assert over.status is RunStatus.COMPLETED
    assert over.counts.total == count
    assert over.counts.retries > count // 5
    assert_all_accounted_for(story, "nightly", count)
    assert_no_committed_stage_is_rerun(story)


@on_both
def test_a_batch_under_random_kills_ends_with_every_item_accounted_for(story):
    worked_under_fire(story, count=1_000, backlog=300, pause_s=(2.5, 4.0), within_s=120)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@on_both
def test_100_000_items_under_random_kills_end_with_every_item_accounted_for(story):
    worked_under_fire(story, count=100_000, backlog=20_000, pause_s=(1.0, 3.0), within_s=1_500)


# -- interrupted and resumed ---------------------------------------------------------------


def interrupted(story: Story, *, count: int, times: int, after: tuple[float, float]) -> None:
    """Run through the command, interrupt it again and again, let it end; the results are those of a quiet run."""
    chance = seeded()
    items = story.folder / "items.jsonl"
    items.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(count)))
    words = [*CLI, "run", "batch:app:batch", "items.jsonl", "-o", "results.jsonl", "--json"]
    codes = []
    for _ in range(times):
        before = len(story.ledger().entries)
        process = subprocess.Popen(
            words,
            cwd=story.folder,
            env=story.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        target = before + chance.randint(*(round(one * count) for one in after))
        until(
            "some stages have run",
            lambda at=target, p=process: len(story.ledger().entries) > at or p.poll() is not None,
            within_s=120,
        )
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        codes.append(process.returncode)
        assert process.returncode in (130, 0, 3), said
    assert codes[0] == 130
    done = subprocess.run(
        words,
        cwd=story.folder,
        env=story.environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    print(f"FIGURE exit codes of the interrupted ones: {codes}, of the last: {done.returncode}")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (story.folder / "results.jsonl").read_text().splitlines()]
    assert [one["result"]["n"] for one in lines] == sorted(set(range(count)) - hopeless(count))
    assert_all_accounted_for(story, "items.jsonl", count)
    assert_no_committed_stage_is_rerun(story)


def test_a_batch_interrupted_and_resumed_twice_gives_the_same_results(story):
    interrupted(story, count=400, times=2, after=(0.5, 1.0))


@pytest.mark.long
@pytest.mark.timeout(1_800)
@on_both
def test_100_000_items_interrupted_and_resumed_five_times_give_the_same_results(story):
    interrupted(story, count=100_000, times=5, after=(0.4, 0.9))


# -- budgets -------------------------------------------------------------------------------


def broken(story: Story, *, count: int, check_every: int) -> None:
    """The last stage is broken: the run is aborted soon, and goes on when it is mended."""
    (story.folder / "broken").touch()
    for name in ("a", "b"):
        story.worker(name, module="batch", concurrency=32)
    app = App(story.url)
    pipe = app.pipeline("batch", *_stages(app))
    run = pipe.run(
        ({"n": n} for n in range(count)), name="big", check_every=check_every, backlog_max=None
    )
    over = until(
        "the run is aborted",
        lambda: seen if (seen := run.view()).status is RunStatus.ABORTED else None,
        within_s=300,
    )
    print(f"FIGURE aborted at {over.counts.processed} of {count}: {over.why}")
    assert over.counts.processed < 4 * check_every + 2_000
    assert over.why.startswith("aborted: the rate of failures is 100 %, the budget is 10 % (")
    assert f"{over.counts.total - over.counts.processed}" == str(over.counts.open)
    story.assert_audit_is_clean()
    app.close()


def _stages(app: App):
    """The stages of `batch.py` by name; this process only submits."""
    return [app.stage(name=name)(lambda item: item) for name in ("read", "think", "tell")]


@on_both_long
def test_a_broken_stage_aborts_a_run_after_the_first_checks(story):
    broken(story, count=5_000, check_every=200)


@pytest.mark.long
@pytest.mark.timeout(900)
@on_both
def test_a_broken_stage_aborts_a_run_of_100_000_items_after_about_the_first_check(story):
    broken(story, count=100_000, check_every=1_000)


def outage(story: Story, *, count: int, outage_s: float) -> None:
    """The upstream goes away in the middle of a run: its items are held, none fails, and the run completes."""
    with Ailing(down_for(outage_s, latency_s=0.02, down_s=0.05)) as upstream:
        story.settings["STORY_UPSTREAM"] = upstream.url
        for name in ("a", "b"):
            story.worker(name, module="calls", concurrency=32)
        app = App(story.url)
        app.upstream("model")
        pipe = app.pipeline("gated", app.stage(name="behind", upstream="model")(lambda item: item))
        run = pipe.run(
            ({"n": n} for n in range(count)),
            name="held",
            check_every=20,
            sample_min=10,
            failure_budget=0.05,
        )
        held = until(
            "its lanes are closed by the gate",
            lambda: [
                one.closed_by
                for one in app._session.opened.reader.lanes()
                if one.lane.run == run.no and one.closed_by
            ],
            within_s=60,
        )
        over = run.wait(wait_s=outage_s + 240)
    print(f"FIGURE held by {held}; {over.counts}; calls in the outage {upstream.in_outage()}")
    assert (over.status, over.counts.succeeded, over.counts.failed) == (
        RunStatus.COMPLETED,
        count,
        0,
    )
    story.assert_audit_is_clean()
    app.close()


@on_both_long
def test_a_short_outage_does_not_abort_a_run(story):
    outage(story, count=300, outage_s=5.0)


@pytest.mark.long
@pytest.mark.timeout(900)
@on_both
def test_an_outage_of_a_minute_does_not_abort_a_run(story):
    outage(story, count=5_000, outage_s=60.0)


# -- dead letters --------------------------------------------------------------------------


def redriven(story: Story, *, count: int, rate: int, kills: int) -> None:
    """Dead letters are driven again at a rate, by workers that are killed, stopped in the middle and continued."""
    (story.folder / "broken").touch()
    first = story.worker("a", module="batch", concurrency=64)
    app = App(story.url)
    pipe = app.pipeline("batch", *_stages(app))
    run = pipe.run(
        ({"n": n} for n in range(count)), name="dead", failure_budget=1.0, backlog_max=None
    )
    assert run.wait(wait_s=300).status is RunStatus.FAILED
    (story.folder / "broken").unlink()

    seen = app.dead.preview(run="dead")
    assert (seen.count, seen.eligible, seen.refused) == (count, count, ())
    redrive = app.dead.redrive(run="dead", rate=rate)
    chance = seeded()
    for _ in range(kills):
        at = redrive.view().done + chance.randint(1, max(2, rate))
        until(
            "some more are driven again",
            lambda at=at: redrive.view().done >= at or redrive.view().status is BulkStatus.DONE,
            within_s=120,
        )
        first.child(within_s=60)
        for child in first.children():
            os.kill(child.pid, signal.SIGKILL)
    until("a third are done", lambda: redrive.view().done >= count // 3, within_s=300)
    stopped = redrive.stop(reason="in the middle")
    print(f"FIGURE stopped after {stopped.done} of {count}")
    if stopped.status is BulkStatus.STOPPED and stopped.done < count:
        time_s = time.monotonic()
        until("a while", lambda: time.monotonic() - time_s > 1.0, within_s=30)
        assert redrive.view().done == stopped.done
        redrive.resume()
    over = redrive.wait(wait_s=300)
    assert (over.done, over.refused) == (seen.eligible, 0)
    child = redrive.run.wait(wait_s=300)
    assert child.counts.total == count
    parent = run.wait(wait_s=60)
    values, dead = outcome(story, "dead")
    assert values.keys() | dead == set(range(count))
    assert parent.status is RunStatus.COMPLETED
    lives = story.rows("SELECT DISTINCT life, retries_manual FROM perdure_jobs")
    assert [tuple(one) for one in lives] == [(2, 1)]
    print(f"FIGURE {over.done} driven again at {rate}/s under {kills} kills: {child.counts}")
    story.assert_audit_is_clean()
    app.close()


@on_both_long
def test_a_redrive_that_is_killed_stopped_and_continued_loses_and_doubles_nothing(story):
    redriven(story, count=300, rate=100, kills=1)


@pytest.mark.long
@pytest.mark.timeout(900)
@on_both
def test_a_redrive_of_10_000_at_a_rate_loses_and_doubles_nothing(story):
    redriven(story, count=10_000, rate=400, kills=3)


def test_a_run_as_it_stands_is_found_by_name(story):
    submitted(submitting(story, "nothing", 0), within_s=60)
    assert run_of(story, "nothing").status is RunStatus.COMPLETED
