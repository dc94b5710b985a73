"""perdure jobs: look at jobs, and read why each attempt ended as it did."""

from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from perdure.app.job_filters import SHOWN_STATES, job_named, jobs_listed, others_with_key
from perdure.app.session.session import Session
from perdure.app.surface.store_session import session_at, why_closed
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.operations import LoggedDeed
from perdure.model.states import AttemptStatus, FailedReason, State
from perdure.model.views import AttemptView, JobView
from perdure.surfaces.cli.filters import in_words, open_filtered
from perdure.surfaces.cli.options import (
    command,
    echo_json,
    json_option,
    limit_option,
    reading_app_option,
    store_option,
    with_store,
)
from perdure.surfaces.cli.root import CommandGroup
from perdure.surfaces.cli.tables import day_at, shorten, so_many, spent_words, table
from perdure.surfaces.views import all_of_attempts, all_of_job, all_of_jobs

_NUMBER_MAX = 2**63 - 1
_CHARS_MAX = 200


@click.group(cls=CommandGroup)
def jobs() -> None:
    """Look at jobs; cancel them, run them now, and retry those that have failed."""


@jobs.command("list")
@store_option
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(SHOWN_STATES),
    help="Only jobs in this state; may be repeated. Those that are retrying, scheduled or held are queued, too.",
)
@open_filtered
@click.option(
    "--key", help="Only with this key: of --owner, else of the run's owner, else of none."
)
@click.option("--label", help="Only with this label, which a stage gave with its success.")
@limit_option("At most so many.")
@click.option(
    "--before", type=click.IntRange(1, _NUMBER_MAX), help="Continue below this job number."
)
@reading_app_option
@json_option
def list_jobs(
    store: str | None,
    app: str | None,
    states: tuple[str, ...],
    limit: int,
    before: int | None,
    as_json: bool,
    **chosen: str | None,
) -> None:
    """List jobs, newest first."""
    with session_at(store, app) as session:
        reader = session.opened.reader
        meant = jobs_listed(reader, states, chosen)
        found = reader.jobs(meant, limit=limit, before=before)
        if as_json:
            echo_json(all_of_jobs(session, found))
            return
    for line in _rows(found):
        click.echo(line)
    if not found:
        nobodys = "; another owner's: --owner" if meant.key is not None and not meant.owner else ""
        click.echo(f"no jobs{in_words(chosen)}{nobodys}")
    elif len(found) == limit:
        click.echo(f"more: --before {found[-1].no}")


def _rows(found: Sequence[JobView]) -> list[str]:
    heads = ("no", "job", "state", "stage", "starts", "error", "enqueued", "key")
    rows = [
        (
            job.no,
            job.id,
            job.shown_state,
            f"{job.pipeline}/{job.stage}",
            job.counters.starts + job.past.starts,
            job.error_kind or "-",
            day_at(job.enqueued_at),
            "-" if job.key is None else shorten(job.key, 40),
        )
        for job in found
    ]
    return table(heads, rows, left=set(heads) - {"no", "starts"}) if rows else []


@jobs.command()
@click.argument("job_id", metavar="JOB")
@store_option
@reading_app_option
@json_option
def show(job_id: str, store: str | None, app: str | None, as_json: bool) -> None:
    """Show one job and the explained history of its attempts; by id or number, or by a key that only one job has."""
    with session_at(store, app) as session:
        reader = session.opened.reader
        job = job_named(reader, job_id)
        attempts, deeds = reader.attempts(job.no), deeds_of(session, job)
        payloads, closed = reader.payloads(job.no), behind(session, job)
        alike = others_with_key(reader, job_id, job)
        aside = len(reader.captures(job.no))
        plain = all_of_job(session, job) if as_json else {}
    if as_json:
        echo_json(
            {
                **plain,
                "attempts": all_of_attempts(session, job, attempts),
                "deeds": deeds,
                "payloads_before": [
                    {"life": one.life, "payload": msgspec.Raw(one.payload_json.encode())}
                    for one in payloads
                ],
            }
        )
        return
    for line in story(job, attempts, deeds, held=bool(closed)):
        click.echo(line)
    for one in payloads:
        click.echo(f"  payload until life {one.life}: {shorten(one.payload_json, _CHARS_MAX)}")
    if aside:
        listed = command("perdure captures list {}", job.id)
        click.echo(f"  raw output was put aside, {so_many(aside, 'capture')}: {listed}")
    for line in closed + ways_on(job) + by_key(job, job_id, alike):
        click.echo(line)


def deeds_of(session: Session, job: JobView) -> list[LoggedDeed]:
    """What people did to a job, oldest first."""
    return session.opened.reader.deeds(subject=job.id, limit=PAGE_ROWS_MAX)[::-1]


def story(
    job: JobView,
    attempts: Sequence[AttemptView],
    deeds: Sequence[LoggedDeed] = (),
    *,
    item_chars_max: int = _CHARS_MAX,
    held: bool = False,
) -> list[str]:
    """The history of a job in words, a line each; one that is ``held`` goes on at no moment that could be told."""
    lines = [
        f"job {job.id} (number {job.no}) of pipeline {job.pipeline}: {job.shown_state}"
        + (f" ({job.failed_reason.value})" if job.failed_reason else "")
        + (f", label {job.label}" if job.label else ""),
        f"  enqueued {shown_at(job.enqueued_at)}"
        + (f" by {job.owner}" if job.owner else "")
        + (f", key {shorten(job.key, _CHARS_MAX)}" if job.key is not None else "")
        + (f", request {job.request_id}" if job.request_id != job.id else "")
        + (
            f", in line since {shown_at(job.ordered_at)}"
            if job.ordered_at < job.enqueued_at  # which only its caller can have said
            else ""
        ),
    ]
    told = [(one.claimed_at, _attempt_lines(one)) for one in attempts]
    told += [(one.done_at, [_deed_line(one)]) for one in deeds]
    for _, some in sorted(told, key=lambda one: one[0]):
        lines += some
    if paid := spent_words(*_sums(attempts)):
        lines.append(f"  in all: {paid}")
    lines.append(f"  item {shorten(job.payload_json, item_chars_max)}")
    return lines + _end_lines(job, held=held)


def _attempt_lines(one: AttemptView) -> list[str]:
    paid = spent_words(one.cost_nusd, one.tokens_in, one.tokens_out)
    lines = [
        f"  {shown_at(one.claimed_at)}  {one.stage} attempt {one.number}: {one.status.value} "
        f"after {one.elapsed_s:.2f} s on worker {one.worker}" + (f"; {paid}" if paid else "")
    ]
    if one.saw:
        lines.append(f"      saw: {one.saw}")
    if one.status is not AttemptStatus.SUCCESS:
        why = msgspec.json.decode(one.why_json)["text"]
        lines.append(f"      {why}  [policy {one.policy}]")
    return lines


def _deed_line(one: LoggedDeed) -> str:
    why = f": {shorten(one.reason, _CHARS_MAX)}" if one.reason else ""
    return f"  {shown_at(one.done_at)}  {one.verb} by {shorten(one.by_whom, 40)}{why}"


def _sums(attempts: Sequence[AttemptView]) -> tuple[int, int, int]:
    """Cost and tokens of all attempts."""
    return (
        sum(one.cost_nusd for one in attempts),
        sum(one.tokens_in for one in attempts),
        sum(one.tokens_out for one in attempts),
    )


def _end_lines(job: JobView, *, held: bool) -> list[str]:
    """What a job waits for or does, or how it has ended."""
    lines = []
    if job.state is State.QUEUED:
        is_told = not held or (not job.ready and job.error_kind is None)
        due = f", due {shown_at(job.due_at)}" if is_told else ""
        lines.append(f"  waits for stage {job.stage}{due}")
    if job.state is State.PROCESSING:
        lines.append(f"  runs stage {job.stage} on worker {job.worker}")
    if job.finished_at is not None:
        lines.append(
            f"  {job.state.value} {shown_at(job.finished_at)}{_late(job, job.finished_at)}"
        )
    if job.result_json is not None:
        lines.append(f"  result {shorten(job.result_json, _CHARS_MAX)}")
    return lines


def _late(job: JobView, ended_at: datetime) -> str:
    """Of a job that has expired, its deadline, which lies ahead where only the next try would have missed it."""
    if job.failed_reason is not FailedReason.EXPIRED or job.deadline_at is None:
        return ""
    passed = "passed" if job.deadline_at <= ended_at else "would pass before the next try:"
    return f"; its deadline {passed} {shown_at(job.deadline_at)}"


def behind(session: Session, job: JobView) -> list[str]:
    """What keeps a queued job where it is, however due it may be: a gate, a paused queue or run."""
    closed = why_closed(session.opened.reader, job.lane) if job.state is State.QUEUED else None
    stays = "it stays queued, due or not, whatever an attempt says of its next try"
    return (
        [f"  {stays if job.error_kind else 'it stays queued, due or not'}: {with_store(closed)}"]
        if closed
        else []
    )


def by_key(job: JobView, named: str, others: Sequence[str]) -> list[str]:
    """That what named a job by its number is the key of another one, too."""
    return [
        f"  this is the job with the number {job.no}; the one with the key {named}: {command('perdure jobs show {}', one)}"
        for one in others
    ]


def ways_on(job: JobView) -> list[str]:
    """How a dead letter is tried again, and where others like it are."""
    if job.state is not State.FAILED:
        return []
    alike = "perdure dead list --fingerprint {}"
    return [
        f"  to try it again: {command('perdure dead retry {}', job.id)}",
        *([f"  others like it: {command(alike, job.fingerprint)}"] if job.fingerprint else []),
    ]


def shown_at(moment: datetime) -> str:
    """A moment, for a person."""
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
