"""The commands: ``daemon``, ``run``, ``run-src``, ``query`` and ``admin``.

A verdict ends with 0 (passed), 1 (failed) or 3 (needs review), a technical error with 20, and wrong usage with 2.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import click
import msgspec

from perdure import CallerError, ConfigError, PerdureError

from . import runs
from .app import POLLS, Poll, Verifier, make_verifier, write_save
from .errors import FINAL, RATE_LIMITED, RETRYABLE
from .replay import Verdict
from .runs import STATUSES, RunRow, all_runs, find_run, runs_meant
from .settings import read_settings

TECHNICAL = 20
EXITS = {"passed": 0, "failed": 1, "needs_review": 3}
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def age(given: str) -> timedelta:
    """An age such as 12h."""
    found = re.fullmatch(r"(\d{1,6})([smhd])", given)
    if found is None:
        raise click.BadParameter(f"{given!r} is no age; write one such as 30m, 12h or 30d")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


RUN = click.Argument(["run_id"], metavar="RUN")
JSON = click.Option(["--json", "as_json"], is_flag=True, help="Answer in JSON.")
FORCE = click.Option(["--force"], is_flag=True, help="Do not ask.")
DRY_RUN = click.Option(["--dry-run"], is_flag=True, help="Only say what is meant.")
CLEAR = click.Option(["--clear-error"], is_flag=True, help="Of one that waits: begin at zero.")
LIMIT = click.Option(["--limit"], default=50, show_default=True, type=click.IntRange(1))
CLASSES = click.Choice([FINAL, RETRYABLE, RATE_LIMITED])
FILTERS = (  # which runs are meant, as `runs_meant` gets them
    click.Option(["--status"], multiple=True, type=click.Choice(STATUSES)),
    click.Option(["--game"], multiple=True),
    click.Option(["--category"], multiple=True),
    click.Option(["--class", "error_class"], multiple=True, type=CLASSES),
    click.Option(["--text"], default="", help="What the error's message has in it."),
    click.Option(
        ["--older-than"], metavar="AGE", type=age, default="0s", help="By their last move: 12h."
    ),
)

query = click.Group("query", help="Look at runs.")
admin = click.Group("admin", help="Change what becomes of runs.")


@click.group(commands=[query, admin], context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", help="Instead of daemon.yaml in this folder.")
def commands(config: str | None) -> None:
    """Verify submitted runs by replaying them."""
    if config is not None:
        os.environ["VERIFIER_CONFIG"] = config


def main() -> NoReturn:
    """Run a command; whatever keeps it from being done for technical reasons is told in a line."""
    try:
        commands.main(standalone_mode=False)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except Exception as wrong:  # noqa: BLE001 - else Python would end with 1, which is a verdict
        what = "" if isinstance(wrong, PerdureError) else f"{type(wrong).__name__}: "
        click.echo(f"error: {what}{' '.join(str(wrong).split())}", err=True)
        sys.exit(TECHNICAL)
    sys.exit(0)


def opened() -> Verifier:
    """The verifier of the settings in force, closed with the command."""
    verifier = make_verifier(*read_settings())
    click.get_current_context().call_on_close(verifier.close)
    return verifier


@commands.command()
@click.option("--category", "categories", multiple=True, metavar="GAME/CATEGORY", help="Only this.")
def daemon(categories: tuple[str, ...]) -> None:
    """Poll and verify until told to stop.

    It becomes a Perdure worker, which keeps working processes, replaces those that die, and lets what runs finish at SIGTERM.
    """
    verifier = opened()
    known = [pipeline.category for pipeline in verifier.runs.values()]
    unknown = sorted(set(categories) - set(known))
    if unknown:
        raise click.UsageError(f"no category {', '.join(unknown)}; there are {', '.join(known)}")
    served = [*(categories or known), POLLS]
    for pair, polls in verifier.polls.items():
        if "/".join(pair) in served:
            polls.enqueue(Poll(*pair))  # at once, and then all of them by schedule
    verifier.close()
    words = [word for one in served for word in ("--category", one)]
    worker = [sys.executable, "-m", "perdure.surfaces.cli", "worker", f"{__package__}.work:app"]
    os.execv(sys.executable, [*worker, *words])


@commands.command()
@click.argument("save", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def run(save: Path) -> None:
    """Verify a save on this machine."""
    conclude(opened().checker.verdict(save))


@commands.command(params=[RUN])
def run_src(run_id: str) -> None:
    """Verify a run at its source, the service; nothing is written down."""
    verifier = opened()
    found = verifier.submissions.run(run_id)
    with TemporaryDirectory() as folder:
        save = Path(folder) / "run.save"
        write_save(save, verifier.submissions.save(found.link))
        conclude(verifier.checker.verdict(save))


def conclude(verdict: Verdict) -> NoReturn:
    """Tell a verdict, and end with it."""
    click.echo(f"{verdict.verdict} after {verdict.ticks} ticks: {verdict.why}")
    sys.exit(EXITS[verdict.verdict])


@query.command("list", params=[*FILTERS, LIMIT, JSON])
def list_runs(limit: int, as_json: bool, **chosen: Any) -> None:
    """List runs, those that were found last first."""
    tell_runs(runs_meant(opened(), **chosen)[:limit], as_json=as_json)


@query.command(params=[JSON])
def queue(as_json: bool) -> None:
    """List what is to be done, in the order in which it will be."""
    tell_runs(runs.in_line(opened()), as_json=as_json)


@query.command(params=[RUN, JSON])
def show(run_id: str, as_json: bool) -> None:
    """Show a run, and what has happened to it."""
    verifier = opened()
    row = find_run(verifier, run_id)
    job = verifier.app.job(row.job_id)
    result = msgspec.json.decode(job.view().result_json or "null")
    history = [f"{shown(one.at)} {one.event}: {one.text}" for one in job.history()]
    facts = {**vars(row), **(result or {})}
    lines = [f"{name:15} {shown(value)}" for name, value in facts.items() if value is not None]
    lines += ["history", *(f"  {line}" for line in history)]
    tell({**vars(row), "result": result, "history": history}, lines, as_json=as_json)


@query.command(params=[JSON])
def stats(as_json: bool) -> None:
    """Count runs: by status, by category, and errors by class; and say how the last poll of each category went."""
    verifier = opened()
    rows = list(all_runs(verifier))
    errors = [row for row in rows if row.status == "error"]
    counted = {
        "status": dict.fromkeys(STATUSES, 0) | Counter(row.status for row in rows),
        "category": Counter(f"{row.game}/{row.category}" for row in rows),
        "error_class": Counter(row.error_class for row in errors),
        "errors": Counter("waiting" if row.next_retry_at else "permanent" for row in errors),
        "last_poll": runs.last_polls(verifier),
    }
    lines = [
        f"{what:12} {name:22} {count!s:>6}"
        for what, counts in counted.items()
        for name, count in counts.items()
    ]
    tell(counted, lines, as_json=as_json)


@query.command(params=[*FILTERS, JSON])
def errors(as_json: bool, **chosen: Any) -> None:
    """Group errors by class and variant, with one run of each."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in runs_meant(opened(), **chosen):
        if row.status == "error":
            variant = str(row.error_message).partition(": ")[0]
            groups.setdefault((str(row.error_class), variant), []).append(row.run_id)
    told = [
        {"class": one, "variant": variant, "runs": len(ids), "example": ids[0]}
        for (one, variant), ids in sorted(groups.items())
    ]
    line = "{runs:5}  {class:12} {variant:26} as {example}"
    tell(told, [line.format(**group) for group in told], as_json=as_json)


@admin.command(params=[RUN, CLEAR, DRY_RUN, FORCE])
def reset_run(run_id: str, **asked: bool) -> None:
    """Have a run verified again."""
    verifier = opened()
    reset_all(verifier, [find_run(verifier, run_id)], **asked)


@admin.command("reset", params=[*FILTERS, CLEAR, DRY_RUN, FORCE])
def reset_runs(clear_error: bool, dry_run: bool, force: bool, **chosen: Any) -> None:
    """Have all runs verified again that are meant; those in work are left alone. Without a filter, errors are meant."""
    verifier, open_now = opened(), ("discovered", "processing")
    if not any(chosen.values()):
        chosen["status"] = ("error",)
    rows = [row for row in runs_meant(verifier, **chosen) if row.status not in open_now]
    reset_all(verifier, rows, clear_error=clear_error, dry_run=dry_run, force=force)


def reset_all(verifier: Verifier, rows: list[RunRow], *, clear_error: bool, **asked: bool) -> None:
    refused = False
    for row in rows if agreed(rows, "verified again", **asked) else ():
        try:
            told = runs.reset(verifier, row, clear_error=clear_error)
        except (CallerError, ConfigError) as wrong:  # in work by now, or of a category that is out
            told, refused = f"is left out: {wrong}", True
        click.echo(f"{row.run_id} {told}")
    if refused:
        sys.exit(TECHNICAL)


@admin.command(params=[*FILTERS, DRY_RUN, FORCE])
def cleanup(dry_run: bool, force: bool, **chosen: Any) -> None:
    """Remove the saves of runs that have ended, and take permanent errors among them off the lists."""
    verifier = opened()
    rows = [row for row in runs_meant(verifier, **chosen) if row.has_ended]
    if agreed(rows, "cleaned up", dry_run=dry_run, force=force):
        meant = {row.job_id for row in rows}  # somebody may have reset one while we asked
        rows = [row for row in all_runs(verifier) if row.has_ended and row.job_id in meant]
        for row in rows:
            verifier.save_of(row.run_id).unlink(missing_ok=True)
            if row.status == "error":  # the books keep it
                job = verifier.app.job(row.job_id).view()
                found = {"pipeline": job.pipeline, "key": job.key}
                verifier.app.dead.discard(**found, reason="admin cleanup")
        click.echo(f"cleaned up: {len(rows)}")


def agreed(rows: list[RunRow], deed: str, *, dry_run: bool, force: bool) -> bool:
    """Say which runs are meant, and whether it is to be done."""
    tell_runs(rows, as_json=False)
    click.echo(f"{len(rows)} {'run' if len(rows) == 1 else 'runs'} would be {deed}")
    return bool(rows) and not dry_run and (force or click.confirm("Go on?", abort=True))


def tell_runs(rows: Iterable[RunRow], *, as_json: bool) -> None:
    """Runs, one a line."""
    for row in rows:
        tell(row, [line_of(row)], as_json=as_json)


def tell(told: object, lines: Iterable[str], *, as_json: bool) -> None:
    """For programs, or in lines for people."""
    click.echo(msgspec.json.encode(told) if as_json else "\n".join(lines))


def line_of(row: RunRow) -> str:
    date = shown(row.submitted_date)
    said = f"{row.run_id:14} {row.game}/{row.category:10} {date} {row.status:12}"
    if row.status == "error":
        due = f"next try {shown(row.next_retry_at)}" if row.next_retry_at else "permanent"
        said += f" {row.error_class}, {row.retry_count} retries, {due}: {row.error_message}"
    return said.rstrip()


def shown(value: object) -> str:
    """A value for people; moments are UTC."""
    return value.strftime("%Y-%m-%d %H:%M:%SZ") if isinstance(value, datetime) else str(value)
