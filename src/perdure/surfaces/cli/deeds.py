"""perdure jobs cancel, retry and run-now: what is done to one job, or to all that a filter means."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from perdure.app.dead_letters import Redrive
from perdure.app.job_filters import OPEN_STATES, WAITING_STATES
from perdure.app.jobs import Jobs
from perdure.app.session.session import Session
from perdure.app.surface.store_session import job_of, session_at
from perdure.model.errors import CallerError
from perdure.model.operations import BulkStatus
from perdure.surfaces.cli.bulk_panel import outcome, preview_lines, summary_lines, watch
from perdure.surfaces.cli.filters import filter_options, in_words, open_filtered
from perdure.surfaces.cli.jobs import behind, jobs
from perdure.surfaces.cli.options import (
    Command,
    act_on,
    command,
    echo_json,
    is_sure,
    json_option,
    reason_and_by,
    store_option,
    yes_option,
)
from perdure.surfaces.cli.redrive import warn_if_nobody_works
from perdure.surfaces.cli.tables import shorten, so_many
from perdure.surfaces.views import all_of_bulk, all_of_job

_JSON = ("{", "[", '"')  # what begins so is an item, and no name of a file
_APP_HELP = "module:variable of the app, which knows the stages."


def _deed(command: Command) -> Command:
    """What all three have beside their filters."""
    for option in (
        json_option,
        store_option,
        reason_and_by(),
        yes_option,
        click.option("--detach", is_flag=True, help="Do not watch it."),
        click.option("--dry-run", is_flag=True, help="Only say what would happen."),
        click.option("--all", "every", is_flag=True, help="All; needed where no filter is given."),
        click.option("--app", metavar="APP", help=_APP_HELP),
        click.argument("job_id", metavar="[JOB]", required=False),
    ):
        command = option(command)
    return command


@click.command()
@_deed
@open_filtered
@click.option(
    "--state",
    type=click.Choice(OPEN_STATES),
    help="Only jobs in this state; those that are retrying, scheduled or held are queued, too.",
)
def cancel(job_id: str | None, **options: Any) -> None:
    """Cancel one open job, by id or number, or all that a filter means; shows first how many.

    A running job can be cancelled here with --app; else a worker that has its pipeline does it.
    """
    asked = _DeedAsked("cancel", job_id, options)
    with session_at(asked.store, asked.app) as session:
        if job_id is not None:
            one = job_of(session, job_id, owner=asked.chosen.pop("owner"))
            one.cancel(dry_run=asked.dry_run, **asked.words)
            asked.tell_one(session, one.id, f"{asked.becomes} cancelled")
            return
        if asked.sure_of(Jobs(session).count("cancel", **asked.chosen), "Cancel", "open"):
            asked.tell(session, Jobs(session).cancel(every=True, **asked.words, **asked.chosen))


@click.command("run-now")
@_deed
@open_filtered
@click.option(
    "--state",
    type=click.Choice(WAITING_STATES),
    help="Only jobs that wait to be tried again, or for the time that was asked for.",
)
@click.option("--rate", metavar="RATE", help="How many may become due, as in 100/min or 5/s.")
def run_now(job_id: str | None, rate: str | None, **options: Any) -> None:
    """Let a job that waits, by id or number, be due now, or all that a filter means; shows first how many.

    This overrules a time that was asked for and the pause after a failure, and no wait that the upstream has asked for. What
    stands behind a held gate or in a paused queue stays there.
    """
    asked = _DeedAsked("run-now", job_id, options)
    with session_at(asked.store, asked.app) as session:
        if job_id is not None:
            one = job_of(session, job_id, owner=asked.chosen.pop("owner"))
            one.run_now(dry_run=asked.dry_run, **asked.words)
            asked.tell_one(session, one.id, f"{asked.becomes} due now")
            return
        if asked.sure_of(Jobs(session).count("run now", **asked.chosen), "Run now", "waiting"):
            words = {**asked.words, **asked.chosen}
            asked.tell(session, Jobs(session).run_now(every=True, rate=rate, **words))


@click.command()
@_deed
@filter_options
@click.option("--from-stage", metavar="STAGE", help="Go on from this stage instead; needs --app.")
@click.option("--from-start", is_flag=True, help="Begin with the first stage; needs --app.")
@click.option(
    "--payload",
    metavar="ITEM",
    help="The corrected item of JOB: JSON, a file of it, or - for standard input; needs --app.",
)
@click.option(
    "--payloads",
    metavar="FILE",
    help='JSON lines of {"key": …, "payload": …}, or of `dead export`: corrected items by key; needs --app.',
)
@click.option("--rate", metavar="RATE", help="How many may begin, as in 100/min or 5/s.")
def retry(
    job_id: str | None,
    from_stage: str | None,
    from_start: bool,
    payload: str | None,
    payloads: str | None,
    rate: str | None,
    **options: Any,
) -> None:
    """Give a dead letter, by id or number, a new life where it stands, or all that a filter means; shows first how many.

    A corrected item is checked as a new one is, and the job begins with it at its first stage. With --payloads only the
    dead letters with the keys of the file are meant, of --owner or of no owner. To try many again in a run of their own, with a
    canary and a failure budget: perdure dead redrive.
    """
    asked = _DeedAsked("retry", job_id, options)
    way: dict[str, Any] = {"from_stage": from_stage, "from_start": from_start}
    if (payload is not None and job_id is None) or (payloads is not None and job_id is not None):
        raise CallerError("--payload goes with one JOB, and --payloads with a filter")
    if (payload is not None or payloads is not None) and asked.app is None:
        raise CallerError("a corrected item is checked by its app; name it: --app module:variable")
    with session_at(asked.store, asked.app) as session:
        if job_id is not None:
            one = job_of(session, job_id, owner=asked.chosen.pop("owner"))
            given = {} if payload is None else {"payload": _item(payload)}
            stage = one.retry(dry_run=True, **way, **given)  # refused in words, if it cannot be
            if asked.dry_run:
                asked.tell_one(session, one.id, f"would begin at stage {stage}")
                return
            one.retry(**asked.words, **way, **given)
            asked.tell_one(session, one.id, "lives again")
            return
        jobs = Jobs(session)
        known = way if asked.app is not None else {}  # else a worker finds out
        found = jobs.preview_retry(payloads=payloads, **known, **asked.chosen)
        lines = preview_lines(found, {**way, "payloads": payloads}, asked.chosen)
        if asked.sure_of_lines(found, found.eligible, lines, "Retry", "dead letter"):
            begun = jobs.retry(payloads=payloads, rate=rate, **way, **asked.words, **asked.chosen)
            asked.tell(session, begun)


class _DeedAsked:
    """One call of a command: who, why, what is meant, and how it is told."""

    def __init__(self, verb: str, job_id: str | None, options: dict[str, Any]) -> None:
        self.store: str | None = options.pop("store")
        self.app: str | None = options.pop("app")
        self.dry_run: bool = options.pop("dry_run")
        self._reason: str = options.pop("reason")
        self._by_whom: str = options.pop("by_whom")
        self._as_json: bool = options.pop("as_json")
        self._yes: bool = options.pop("yes")
        self._detach: bool = options.pop("detach")
        self._found: Any = None  # the preview
        every: bool = options.pop("every")
        self.chosen: dict[str, Any] = options
        given = [name for name, value in options.items() if value is not None and name != "owner"]
        if job_id is not None and (given or every):
            raise CallerError(
                f"say either one JOB or a filter, not both: {', '.join(given) or '--all'} is given as well"
            )
        if job_id is None and not given and not every and options["owner"] is None:
            raise CallerError(
                f"say which: a JOB, a filter such as --pipeline or --owner, or --all (perdure jobs {verb} --help)"
            )

    @property
    def words(self) -> Mapping[str, Any]:
        """Who and why."""
        return {"reason": self._reason, "by": self._by_whom}

    @property
    def becomes(self) -> str:
        """The verb before what a job becomes; a dry run only says what it would be."""
        return "would be" if self.dry_run else "is"

    def tell_one(self, session: Session, job_id: str, what: str) -> None:
        """What became of one job."""
        job = job_of(session, job_id).view()
        if self._as_json:
            echo_json(all_of_job(session, job))
            return
        click.echo(f"{job.id} {what}: {job.shown_state} for stage {job.stage}, life {job.life}")
        for line in behind(session, job):
            click.echo(line)

    def sure_of(self, found: Any, question: str, state: str) -> bool:
        """Whether so many jobs are to be touched; where there are none, says in which state they would be."""
        more = "more than " if found.capped else ""
        words = in_words(self.chosen)
        lines = [
            f"{more}{so_many(found.count, 'job')}{words}"
            if found.count
            else f"no {state} jobs{words}"
        ]
        return self.sure_of_lines(found, found.count, lines, question, "job")

    def sure_of_lines(
        self, found: Any, count: int, lines: list[str], question: str, noun: str
    ) -> bool:
        """Show a preview; ask, unless there is nothing to be done or nobody wants it done."""
        self._found = found
        if not self._as_json:
            for line in lines:
                click.echo(line)
        if self.dry_run or not count:
            if self._as_json:
                echo_json({"preview": found, "bulk": None})
            return False
        if not is_sure(f"{question} {so_many(count, noun)}?", yes=self._yes):
            click.echo("nothing was done")
            sys.exit(1)
        return True

    def tell(self, session: Session, begun: Redrive) -> None:
        """What a bulk operation has come to; it is watched until it is over, unless that is not wanted."""
        act_on(session.url)
        bulk = begun.view()
        if bulk.status is BulkStatus.RUNNING:
            warn_if_nobody_works(session, bulk)
            if not self._detach:
                watch(begun, self._found.count, quiet=self._as_json)
        if self._as_json:
            echo_json({"preview": self._found, "bulk": all_of_bulk(begun.view())})
        else:
            history = command("perdure dead history {}", bulk.id)
            click.echo(f"bulk operation {bulk.id}; see: {history}")
            for line in summary_lines(begun):
                click.echo(line)
        sys.exit(0 if self._detach else outcome(begun))


def _item(given: str) -> Any:
    """A corrected item as it was typed: JSON itself, a file of it, with or without @ before its name, or - for standard input."""
    path = Path(given.removeprefix("@"))
    named = given.startswith("@") or (not given.lstrip().startswith(_JSON) and _is_there(path))
    try:
        if given == "-":
            return json.loads(sys.stdin.buffer.read())
        return json.loads(path.read_bytes() if named else given)
    except OSError as error:
        raise CallerError(f"--payload {given}: {path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        what = "standard input" if given == "-" else f"the file {path}" if named else ""
        what = what or f"{shorten(given, 60)!r}" + (
            "" if given.lstrip().startswith(_JSON) else ", which is no file here either,"
        )
        raise CallerError(
            f"--payload: {what} is no JSON value ({error}); give the item as JSON, as in --payload '{{\"n\": 1}}', "
            "the name of a file of it, or - for standard input"
        ) from None


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no name that a file can have
        return False


for deed in (cancel, retry, run_now):
    jobs.add_command(deed)
