"""Runs as the stories play them: submitted, worked on under fire, looked at in the end."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from perdure import App
from perdure.model.runs import RunView
from tests.stories.kit import Story, until
from tests.stories.ledger import reruns, unfounded
from tests.stories.nemesis import successes

HOPELESS = (50, 7)  # as batch.py has it: items that can never be done


@dataclass(frozen=True, slots=True)
class Submitted:
    """What a submitting process said when it left."""

    rss_mib: float
    created: int
    known: int
    whole: bool


def hopeless(count: int) -> set[int]:
    """The items that end as dead letters."""
    every, at = HOPELESS
    return {n for n in range(count) if n % every == at}


def submitting(
    story: Story, name: str, count: int, *, backlog: int | None = None
) -> subprocess.Popen[str]:
    """Start a process that submits a run."""
    words = [name, str(count)] + ([] if backlog is None else [str(backlog)])
    return subprocess.Popen(
        [sys.executable, "submit.py", *words],
        cwd=story.folder,
        env=story.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def submitted(submitter: subprocess.Popen[str], *, within_s: float) -> Submitted:
    """What it said."""
    said, _ = submitter.communicate(timeout=within_s)
    assert submitter.returncode == 0
    return Submitted(**json.loads(said))


def run_of(story: Story, name: str) -> RunView:
    """A run as it stands."""
    app = App(story.url)
    try:
        return app.get_run(name).view()
    finally:
        app.close()


def ended(story: Story, name: str, *, within_s: float) -> RunView:
    """The run when it is over."""
    return until(
        f"run {name} is over",
        lambda: run if (run := run_of(story, name)).ended_at is not None else None,
        within_s=within_s,
    )


def outcome(story: Story, name: str) -> tuple[dict[int, Any], set[int]]:
    """The values of a run by item, and the items of its dead letters."""
    app = App(story.url)
    try:
        values = {one.value["n"]: one.value for one in app.get_run(name).results(failed=False)}
        dead = {letter["item"]["n"] for letter in app.dead.letters(run=name)}
    finally:
        app.close()
    return values, dead


def assert_all_accounted_for(story: Story, name: str, count: int) -> None:
    """Every item is in the results or in the dead letters, and those that ought to be are where they ought to."""
    values, dead = outcome(story, name)
    assert values.keys() | dead == set(range(count))
    assert values.keys() & dead == set()
    assert dead >= hopeless(count)
    assert all(values[n]["square"] == n * n for n in values)
    crashed = story.rows("SELECT count(*) FROM perdure_jobs WHERE failed_reason = 'crashed'")[0][0]
    assert len(dead) == len(hopeless(count)) + crashed
    story.assert_audit_is_clean()


def assert_no_committed_stage_is_rerun(story: Story) -> None:
    """By the stages' own ledger."""
    ledger, done = story.ledger(), successes(story)
    assert reruns(ledger, done) == []
    assert unfounded(ledger, done) == []
