"""perdure dead: look at dead letters, one by one and in groups, and give single ones a new life."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from perdure.app.dead_letters import DeadLetters, letter_line
from perdure.app.job_filters import job_named, others_with_key
from perdure.app.surface.store_session import job_of, session_at
from perdure.model.views import CaptureView, DeadGroup, JobView
from perdure.surfaces.cli.filters import filter_options, in_words
from perdure.surfaces.cli.jobs import by_key, deeds_of, shown_at, story, ways_on
from perdure.surfaces.cli.options import (
    command,
    echo_json,
    json_option,
    limit_option,
    reading_app_option,
    reason_and_by,
    store_option,
    with_store,
)
from perdure.surfaces.cli.redrive import continue_bulk, discard, history, redrive, stop
from perdure.surfaces.cli.root import CommandGroup
from perdure.surfaces.cli.tables import day_at, shorten, so_many, table
from perdure.surfaces.views import (
    all_of,
    all_of_attempts,
    all_of_job,
    all_of_jobs,
    capture_shown,
    group_shown,
)

_NUMBER_MAX = 2**63 - 1
_ITEM_CHARS_MAX = 2_000
_EXAMPLE_CHARS_MAX = 100


@click.group(cls=CommandGroup)
def dead() -> None:
    """Work through dead letters: what has failed for good."""


for verb in (redrive, discard, stop, continue_bulk, history):
    dead.add_command(verb)


@dead.command("list")
@filter_options
@limit_option("At most so many.")
@click.option(
    "--before", type=click.IntRange(1, _NUMBER_MAX), help="Continue below this job number."
)
@store_option
@reading_app_option
@json_option
def list_dead(
    limit: int, before: int | None, store: str | None, app: str | None, as_json: bool, **chosen: Any
) -> None:
    """List dead letters, newest first."""
    with session_at(store, app) as session:
        found = DeadLetters(session).list(limit=limit, before=before, **chosen)
        if as_json:
            echo_json(all_of_jobs(session, found))
            return
    heads = ("no", "job", "failed", "stage", "error", "example")
    rows = [
        (
            job.no,
            job.id,
            day_at(job.finished_at),
            f"{job.pipeline}/{job.stage}",
            _what(job),
            shorten(job.error_detail or job.error_message or "", _EXAMPLE_CHARS_MAX),
        )
        for job in found
    ]
    for line in table(heads, rows, left=heads[1:]) if rows else ():
        click.echo(line)
    if not found:
        click.echo(f"no dead letters{in_words(chosen)}")
    elif len(found) == limit:
        click.echo(f"more: --before {found[-1].no}")


@dead.command()
@filter_options
@limit_option("At most so many groups.")
@store_option
@json_option
def groups(limit: int, store: str | None, as_json: bool, **chosen: Any) -> None:
    """Group dead letters by fingerprint (kind, stage and message without its numbers), most frequent first."""
    with session_at(store) as session:
        found = DeadLetters(session).groups(limit=limit, **chosen)
    if as_json:
        echo_json([all_of(group_shown(one), one) for one in found])
        return
    if not found:
        click.echo(f"no dead letters{in_words(chosen)}")
        return
    heads = ("count", "kind", "stage", "first", "last", "fingerprint", "example")
    for line in table(heads, [_group(one) for one in found], left=heads[1:]):
        click.echo(line)
    more = "more about a group: perdure dead list --fingerprint …; perdure dead show JOB"
    click.echo(with_store(more))
    if chosen.get("run"):
        redriven = command("perdure dead redrive --run {}", chosen["run"])
        click.echo(f"to try them again: its `perdure run` with --retry-failed, or {redriven}")


@dead.command()
@click.argument("job_id", metavar="JOB")
@store_option
@reading_app_option
@json_option
def show(job_id: str, store: str | None, app: str | None, as_json: bool) -> None:
    """Show one dead letter, by id, number or key: item, reason, every attempt with its decision, captures."""
    with session_at(store, app) as session:
        meant = job_named(session.opened.reader, job_id)
        job, attempts = DeadLetters(session).get_letter(meant.id)
        alike = others_with_key(session.opened.reader, job_id, job)
        captures, deeds = session.opened.reader.captures(job.no), deeds_of(session, job)
        plain = all_of_job(session, job) if as_json else {}
    if as_json:
        echo_json(
            {
                **plain,
                "attempts": all_of_attempts(session, job, attempts),
                "captures": [all_of(capture_shown(one), one) for one in captures],
                "deeds": deeds,
            }
        )
        return
    told = story(job, attempts, deeds, item_chars_max=_ITEM_CHARS_MAX)
    for line in [*told, *_rest(job, captures), *by_key(job, job_id, alike)]:
        click.echo(line)


@dead.command("retry")
@click.argument("job_id", metavar="JOB")
@click.option("--from-stage", metavar="STAGE", help="Go on from this stage instead; needs --app.")
@click.option("--from-start", is_flag=True, help="Begin with the first stage; needs --app.")
@click.option("--app", metavar="APP", help="module:variable of the app, which knows its stages.")
@reason_and_by()
@store_option
@json_option
def retry_one(
    job_id: str,
    from_stage: str | None,
    from_start: bool,
    app: str | None,
    reason: str,
    by_whom: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Give one dead letter, by id or number, a new life at the stage where it failed.

    Whether its source still exists is asked only with --app. Unless its caller brought a deadline, it has as long
    as the policies of today give it with --app, which knows them, and as long as before without.
    """
    with session_at(store, app) as session:
        one = job_of(session, job_id)
        one.retry(from_stage=from_stage, from_start=from_start, reason=reason, by=by_whom)
        job = one.view()
        if as_json:
            echo_json(all_of_job(session, job))
            return
    click.echo(f"{job.id} lives again: {job.shown_state} for stage {job.stage}, life {job.life}")


@dead.command()
@click.option("-o", "--output", metavar="FILE", help="Write to this file; else standard output.")
@filter_options
@store_option
def export(output: str | None, store: str | None, **chosen: Any) -> None:
    """Write dead letters with items and attempts as JSON, one a line, newest first."""
    with session_at(store) as session:
        letters = DeadLetters(session)
        if output is None or output == "-":
            for one in letters.letters(**chosen):
                click.echo(letter_line(one), nl=False)
            return
        count = letters.export(Path(output), **chosen)
    click.echo(f"{so_many(count, 'dead letter')} in {output}")


def _rest(job: JobView, captures: Sequence[CaptureView]) -> list[str]:
    """What the story of a job leaves out: why it is dead, its captures, and what can be done."""
    lines = [f"  reason {_what(job)}: {shorten(job.error_message or 'none', _ITEM_CHARS_MAX)}"]
    if job.error_detail and job.error_detail != job.error_message:
        lines.append(f"  detail {shorten(job.error_detail, _ITEM_CHARS_MAX)}")
    if job.retries_manual:
        lines.append(f"  driven again {job.retries_manual} times before")
    lines += [
        f"  capture {one.id} of {one.stage}, token {one.token}: {one.kind}, "
        f"{one.bytes_kept:,} bytes; see: {command('perdure captures show {}', one.id)}"
        for one in captures
    ]
    if job.discarded_at is not None:
        lines.append(f"  discarded {shown_at(job.discarded_at)}")
    return lines + ways_on(job)


def _group(one: DeadGroup) -> tuple[object, ...]:
    kind = one.kind or "-"
    return (
        f"{one.count:,}",
        kind + (f" {one.code}" if one.code not in ("", kind) else ""),
        f"{one.pipeline}/{one.stage}",
        day_at(one.first_at),
        day_at(one.last_at),
        one.fingerprint or "-",
        shorten(one.example, _EXAMPLE_CHARS_MAX),
    )


def _what(job: JobView) -> str:
    """Kind and code, without saying one word twice."""
    kind = job.error_kind or (job.failed_reason.value if job.failed_reason else "-")
    return kind if job.error_code in (None, kind) else f"{kind} {job.error_code}"
