"""What Perdure is told: the policy of ``daemon.yaml``, the three stages of a verification, a pipeline for each category, and the poll.

    look_up     the run, at the service
    download    its save
    replay      it, in a process of its own; the verdict is the label of the job

A run is a job. It stands in line by the date of its submission, whether it is new or to be tried again, in whichever category. Tries,
waits and classes are those of the preset ``verifier`` with the four numbers of the file.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from perdure import App, Backoff, ConfigError, Item, JobRef, Pipeline, Policy, Settings, Succeeded

from . import settings as known
from .errors import Variant, VerifyError
from .replay import Checker
from .settings import Categories
from .submissions import Submission, Submissions

RUNS, POLLS = "runs", "polls"  # the queues
STAGE_S = 120.0  # what a call of the service may take in all; a replay has its own time


@dataclass
class Run:
    """The payload: a run that was found at the service."""

    run_id: str
    game: str
    category: str
    submitted_date: datetime


@dataclass
class Found:
    """What goes from stage to stage; the save itself is a file."""

    run: Run
    submission: Submission


@dataclass(frozen=True)
class Verifier:
    """The app, a pipeline of runs for each allowed category, the polls, and what they work with."""

    app: App
    runs: dict[tuple[str, str], Pipeline]
    polls: Pipeline
    checker: Checker
    submissions: Submissions

    def enqueue(self, *runs: Run, verification: int = 1) -> list[JobRef]:
        """Have runs of one category verified, each once for each verification, in line by its date."""
        pair = (runs[0].game, runs[0].category)
        if pair not in self.runs:
            allowed = ", ".join(f"{game} {category}" for game, category in self.runs)
            raise ConfigError(f"{' '.join(pair)} is not among the games of daemon.yaml: {allowed}")
        # A run is up to a look-back old, and so before any poll in line. As many minutes of priority less, for all of them
        # alike, put the poll first, and change nothing between runs.
        priority = -int(self.app.settings[known.LOOK_BACK_S] // 60) - 1
        items = (
            Item(
                run,
                key=key_of(run.run_id, verification),
                ordered_at=run.submitted_date,
                priority=priority,
                request_id=quote(run.run_id, safe=""),  # so that each line of the log names the run
            )
            for run in runs
        )
        return self.runs[pair].enqueue_many(items)

    def discovered(self) -> list[JobRef]:
        """Ask the service for runs, and enqueue them; what is known already is left as it is."""
        since = datetime.now(UTC) - timedelta(seconds=self.app.settings[known.LOOK_BACK_S])
        found = []
        for game, category in self.runs:
            listed = self.submissions.listed(game, category, since)
            runs = [Run(one.id, game, category, one.submitted_date) for one in listed]
            found += self.enqueue(*runs) if runs else []
        return found

    def save_of(self, run_id: str) -> Path:
        """The file of a run's save, whatever its id is made of."""
        return self.checker.data / "saves" / f"{quote(run_id, safe='')}.save"

    def close(self) -> None:
        """Disconnect from store and service."""
        self.app.close()
        self.submissions.close()


def policy_of(settings: Settings) -> Policy:
    """The preset of the design document with the numbers of the file."""
    backoff = Backoff(
        "exponential",
        base_s=settings[known.INITIAL_BACKOFF_S],
        factor=settings[known.MULTIPLIER],
        cap_s=settings[known.MAX_BACKOFF_S],
    )
    tries = settings[known.ATTEMPTS_MAX]
    return Policy.based_on("verifier", name="verifier-daemon", attempts_max=tries, backoff=backoff)


def make_verifier(settings: Settings, categories: Categories) -> Verifier:
    """Declare everything. Nothing is connected to before it is used."""
    app, policy, runs = App(settings=settings), policy_of(settings), {}
    submissions = Submissions(settings[known.SERVICE], settings[known.SAVE_BYTES_MAX])
    checker = Checker(settings, submissions)

    @app.stage(policy=policy, timeout_s=STAGE_S)
    def look_up(run: Run) -> Found:
        return Found(run, submissions.run(run.run_id))

    @app.stage(policy=policy, timeout_s=STAGE_S)
    def download(found: Found) -> Found:
        write_save(verifier.save_of(found.run.run_id), submissions.save(found.submission.link))
        return found

    # The checker ends a replay that takes too long, and says so; Perdure's timeout is for what the checker cannot end.
    @app.stage(policy=policy, timeout_s=settings[known.REPLAY_TIMEOUT_S] + STAGE_S)
    def replay(found: Found) -> Succeeded:
        verdict = checker.verdict(verifier.save_of(found.run.run_id), found.run.category)
        told = {"player": found.submission.player, **vars(verdict)}
        return Succeeded(told, label=verdict.verdict)

    for game, category in categories:
        name, stages = f"{game}/{category}", (look_up, download, replay)
        runs[game, category] = app.pipeline(name, *stages, queue=RUNS, category=name)
    # A poll that cannot be done in its time is given up: the next one does the same.
    polling_s = settings[known.POLLING_S]
    patient = Policy.based_on(policy, name=f"{policy.name}, polls", deadline_s=polling_s)

    @app.stage(policy=patient, timeout_s=STAGE_S)
    def poll(_item: None) -> dict[str, int]:
        jobs = verifier.discovered()
        return {"listed": len(jobs), "discovered": sum(one.created for one in jobs)}

    polls = app.pipeline("polls", poll, queue=POLLS)
    app.every(f"{polling_s}s", polls)
    verifier = Verifier(app, runs, polls, checker, submissions)
    return verifier


def key_of(run_id: str, verification: int) -> str:
    """What the job of a verification is known by; a reset may ask for another one."""
    return run_id if verification == 1 else f"{run_id}#{verification}"


def write_save(save: Path, content: bytes) -> None:
    """Write a save; it is there whole or not at all."""
    part = save.with_suffix(".part")
    try:
        save.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(save)
    except OSError as wrong:
        raise VerifyError(Variant.DOWNLOAD_IO, f"{save.name}: {wrong.strerror}") from wrong
