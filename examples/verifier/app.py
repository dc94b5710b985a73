"""What Perdure is told: the policy of ``daemon.yaml``, the three stages of a verification, a pipeline for each category, and the poll.

    look_up     the run, at the service
    download    its save
    replay      it, in a process of its own; the verdict is the label of the job

A run is a job. It stands in line by the date of its submission, whether it is new or to be tried again, in whichever category. Tries,
waits and classes are those of the preset ``verifier`` with the four numbers of the file. A poll is a job for each page, so that
a page that cannot be had is tried again by itself, and keeps no other one waiting.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from perdure import App, Backoff, ConfigError, Context, Item, Pipeline, Policy, Settings, Succeeded

from . import settings as known
from .errors import Variant, VerifyError
from .replay import Checker
from .settings import Categories
from .submissions import Run, Submission, Submissions

RUNS, POLLS = "runs", "polls"  # the queues
STAGE_S = 120.0  # what a call of the service may take in all; a replay has its own time
PAGES_MAX, SKIPPED_MAX = 10_000, 20  # of a poll: pages, and odd entries that it tells
# A poll goes before any run. A step of priority is worth a minute in line, and a run is up to a year old; all have the same
# priority, which changes nothing between them.
PRIORITY = -600_000


@dataclass
class Poll:
    """The payload of a poll: which page of a category is next, if any, and what came of those before it."""

    game: str
    category: str
    page: int | None = 1
    since: datetime | None = None
    listed: int = 0
    discovered: int = 0
    skipped: list[str] = field(default_factory=list)  # why, of entries that cannot be used


@dataclass(frozen=True)
class Verifier:
    """The app, a pipeline of runs and one of polls for each allowed category, and what they work with."""

    app: App
    runs: dict[tuple[str, str], Pipeline]
    polls: dict[tuple[str, str], Pipeline]
    checker: Checker
    submissions: Submissions

    def enqueue(self, *runs: Run, verification: int = 1) -> int:
        """Have runs of one category verified, each once for each verification, in line by its date; how many are new."""
        pair = (runs[0].game, runs[0].category)
        if pair not in self.runs:
            allowed = ", ".join(f"{game} {category}" for game, category in self.runs)
            raise ConfigError(f"{' '.join(pair)} is not among the games of daemon.yaml: {allowed}")
        again = "" if verification == 1 else f"#{verification}"
        items = (
            Item(
                run,
                key=run.run_id + again,
                ordered_at=run.submitted_date,
                request_id=quote(run.run_id, safe=""),  # so that each line of the log names the run
            )
            for run in runs
        )
        return sum(one.created for one in self.runs[pair].enqueue_many(items, priority=PRIORITY))

    def read(self, poll: Poll) -> Poll:
        """Enqueue the runs of a page; those that are known are left as they are. What is to be polled after it."""
        look_back = timedelta(seconds=self.app.settings[known.LOOK_BACK_S])
        since, number = poll.since or datetime.now(UTC) - look_back, poll.page or 1
        runs, odd, following = self.submissions.page(poll.game, poll.category, since, number)
        new = self.enqueue(*runs) if runs else 0
        if following is not None and not number < following <= PAGES_MAX:
            wrong = f"page {number} is said to be followed by page {following}"
            raise VerifyError(Variant.API_PARSE, wrong)
        listed, skipped = len(runs) + len(odd), [*poll.skipped, *odd][:SKIPPED_MAX]
        counts = (poll.listed + listed, poll.discovered + new)
        return Poll(poll.game, poll.category, following, since, *counts, skipped)

    def save_of(self, run_id: str) -> Path:
        """The file of a run's save, whatever its id is made of."""
        return self.checker.data / "saves" / f"{quote(run_id, safe='')}.save"

    def close(self) -> None:
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
    app, policy = App(settings=settings), policy_of(settings)
    submissions = Submissions(settings[known.SERVICE], settings[known.SAVE_BYTES_MAX])
    checker = Checker(settings, submissions)

    @app.stage(policy=policy, timeout_s=STAGE_S)
    def look_up(run: Run) -> Submission:
        return submissions.run(run.run_id)

    @app.stage(policy=policy, timeout_s=STAGE_S)
    def download(found: Submission, context: Context) -> Submission:
        write_save(verifier.save_of(context.item["run_id"]), submissions.save(found.link))
        return found

    # The checker ends a replay that takes too long, and says so; Perdure's timeout is for what the checker cannot end.
    @app.stage(policy=policy, timeout_s=settings[known.REPLAY_TIMEOUT_S] + STAGE_S)
    def replay(found: Submission, context: Context) -> Succeeded:
        save, category = verifier.save_of(context.item["run_id"]), context.item["category"]
        verdict = checker.verdict(save, category)
        return Succeeded({"player": found.player, **vars(verdict)}, label=verdict.verdict)

    # A first page that is not had in time is given up, as the next poll asks for it; what was begun has a day.
    polling_s = settings[known.POLLING_S]
    patient = Policy.based_on(policy, name=f"{policy.name}, polls", deadline_s=polling_s)

    @app.stage(policy=patient, timeout_s=STAGE_S)
    def poll(poll: Poll, context: Context) -> Poll:
        after, polls = verifier.read(poll), verifier.polls[poll.game, poll.category]
        if after.page is not None:
            polls.enqueue(after, key=context.idempotency_key, deadline_s=86_400.0)
        return after

    verifier = Verifier(app, {}, {}, checker, submissions)
    for game, category in categories:
        name, stages = f"{game}/{category}", (look_up, download, replay)
        verifier.runs[game, category] = app.pipeline(name, *stages, queue=RUNS, category=name)
        polls = app.pipeline(f"polls of {name}", poll, queue=POLLS, category=POLLS)
        verifier.polls[game, category] = polls
        app.every(f"{polling_s}s", polls, Poll(game, category))
    return verifier


def write_save(save: Path, content: bytes) -> None:
    """Write a save; it is there whole or not at all."""
    part = save.with_suffix(".part")
    try:
        save.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(save)
    except OSError as wrong:
        raise VerifyError(Variant.DOWNLOAD_IO, f"{save.name}: {wrong.strerror}") from wrong
