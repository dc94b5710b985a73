"""perdure jobs: look at jobs, and read why each attempt ended as it did."""

from datetime import datetime

import click
import msgspec

from perdure.app.job_filters import check_found
from perdure.app.job_refs import job_at
from perdure.app.surface.store_session import session_at
from perdure.model.filters import JobFilter
from perdure.model.states import AttemptStatus, State
from perdure.model.views import AttemptView, JobView
from perdure.surfaces.cli.options import echo_json, json_option, store_option
from perdure.surfaces.cli.tables import short

_NUMBER_MAX = 2**63 - 1


@click.group()
def jobs() -> None:
    """Look at jobs; cancel them, run them now, and retry those that have failed."""


@jobs.command("list")
@store_option
@click.option(
    "--state", "states", multiple=True, type=click.Choice([s.value for s in State]),
    help="Only jobs in this state; may be repeated.",
)  # fmt: skip
@click.option("--pipeline", help="Only this pipeline.")
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="At most so many."
)
@click.option(
    "--before", type=click.IntRange(1, _NUMBER_MAX), help="Continue below this job number."
)
@json_option
def list_jobs(
    store: str | None,
    states: tuple[str, ...],
    pipeline: str | None,
    limit: int,
    before: int | None,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    chosen = JobFilter(states=tuple(map(State, states)), pipeline=pipeline)
    with session_at(store) as session:
        check_found(session.opened.reader, chosen)
        found = session.opened.reader.jobs(chosen, limit=limit, before=before)
    if as_json:
        echo_json([plain_job(job) for job in found])
        return
    for job in found:
        error = f"  {job.error_kind}" if job.error_kind else ""
        click.echo(
            f"{job.no:>8}  {job.id}  {job.shown_state:<10}  {job.pipeline}/{job.stage}  "
            f"starts {job.counters.starts + job.past.starts}{error}"
        )
    if not found:
        click.echo("no jobs")
    elif len(found) == limit:
        click.echo(f"more: --before {found[-1].no}")


@jobs.command()
@click.argument("job_id")
@store_option
@json_option
def show(job_id: str, store: str | None, as_json: bool) -> None:
    """Show one job, by id or number, and the explained history of its attempts."""
    with session_at(store) as session:
        job = job_at(session.opened.reader, job_id)
        attempts = session.opened.reader.attempts(job.no)
        payloads = session.opened.reader.payloads(job.no)
    if as_json:
        echo_json(
            {
                **plain_job(job),
                "attempts": [plain_attempt(one) for one in attempts],
                "payloads_before": [
                    {"life": one.life, "payload": msgspec.Raw(one.payload_json.encode())}
                    for one in payloads
                ],
            }
        )
        return
    for line in story(job, attempts):
        click.echo(line)
    for one in payloads:
        click.echo(f"  payload until life {one.life}: {short(one.payload_json, 200)}")
    if payloads:
        click.echo(f"  payload now: {short(job.payload_json, 200)}")


def story(job: JobView, attempts: list[AttemptView]) -> list[str]:
    """The history of a job in words, a line each."""
    lines = [
        f"job {job.id} (number {job.no}) of pipeline {job.pipeline}: {job.shown_state}"
        + (f" ({job.failed_reason.value})" if job.failed_reason else "")
        + (f", label {job.label}" if job.label else ""),
        f"  enqueued {shown_at(job.enqueued_at)}"
        + (f" by {job.owner}" if job.owner else "")
        + (f", request {job.request_id}" if job.request_id != job.id else "")
        + (
            f", in line since {shown_at(job.ordered_at)}"
            if job.ordered_at < job.enqueued_at  # which only its caller can have said
            else ""
        ),
    ]
    for one in attempts:
        why = msgspec.json.decode(one.why_json)["text"]
        lines.append(
            f"  {shown_at(one.claimed_at)}  {one.stage} attempt {one.number}: {one.status.value} "
            f"after {one.elapsed_s:.2f} s on worker {one.worker}"
        )
        if one.saw:
            lines.append(f"      saw: {one.saw}")
        if one.status is not AttemptStatus.SUCCESS:
            lines.append(f"      {why}  [policy {one.policy}]")
    if job.state is State.QUEUED:
        lines.append(f"  waits for stage {job.stage}, due {shown_at(job.due_at)}")
    if job.state is State.PROCESSING:
        lines.append(f"  runs stage {job.stage} on worker {job.worker}")
    if job.finished_at is not None:
        lines.append(f"  {job.state.value} {shown_at(job.finished_at)}")
    if job.result_json is not None:
        shown = job.result_json if len(job.result_json) <= 200 else job.result_json[:199] + "…"
        lines.append(f"  result {shown}")
    return lines


def shown_at(moment: datetime) -> str:
    """A moment, for a person."""
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def plain_job(job: JobView) -> dict[str, object]:
    """A job for JSON, its own JSON inside it."""
    plain: dict[str, object] = msgspec.to_builtins(job)
    for name in ("payload", "input", "result"):
        text = plain.pop(f"{name}_json")
        plain[name] = None if text is None else msgspec.Raw(str(text).encode())
    return {**plain, "shown_state": job.shown_state}


def plain_attempt(attempt: AttemptView) -> dict[str, object]:
    """An attempt for JSON, its own JSON inside it."""
    plain: dict[str, object] = msgspec.to_builtins(attempt)
    for name in ("why", "evidence"):
        text = plain.pop(f"{name}_json")
        plain[name] = None if text is None else msgspec.Raw(str(text).encode())
    return plain
