"""perdure runs: batches of items, how they go, and what a person can say to them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from perdure.app.batch.snapshot import look_once, words_for_kept_back
from perdure.app.runs import Result, Run, Sink
from perdure.app.session.session import Session
from perdure.app.surface.store_session import has_stopped, run_at, session_at, unfed_at, unfed_words
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.runs import RunStatus, RunView
from perdure.surfaces.cli.options import (
    SHARE,
    command,
    echo_json,
    is_sure,
    json_option,
    kind_budget,
    limit_option,
    reason_and_by,
    store_option,
    with_options,
    yes_option,
)
from perdure.surfaces.cli.root import CommandGroup
from perdure.surfaces.cli.run_panel import hold_text, resume_paused
from perdure.surfaces.cli.run_report import report_lines
from perdure.surfaces.cli.run_summary import larger_budget
from perdure.surfaces.cli.tables import day_at, dollars, percent, shorten, so_many, table
from perdure.surfaces.run_views import all_of_run

_NUMBER_MAX = 2**63 - 1
_NAME_CHARS_MAX = 50

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=CommandGroup)
def runs() -> None:
    """Look at runs; pause, resume, cancel or seal one, read its report, fetch its results."""


@contextmanager
def _open(named: str, store: str | None, app: str | None = None) -> Iterator[Run]:
    with session_at(store, app) as session:
        yield run_at(session, named)


@runs.command("list")
@click.option("--pipeline", help="Only of this pipeline.")
@click.option("--owner", help="Only of this owner.")
@click.option("--live", is_flag=True, help="Only those that are not over.")
@limit_option("At most so many.")
@click.option(
    "--before", type=click.IntRange(1, _NUMBER_MAX), help="Continue below this run number."
)
@store_option
@json_option
def list_runs(
    pipeline: str | None,
    owner: str | None,
    live: bool,
    limit: int,
    before: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List runs, newest first."""
    with session_at(store) as session:
        found = session.opened.reader.runs(
            pipeline=pipeline, owner=owner, live=live, limit=limit, before=before
        )
        now = session.opened.reader.now()
        kept_back = words_for_kept_back(session.opened, found)
    if as_json:
        echo_json([all_of_run(one) for one in found])
        return
    if not found:
        click.echo("no runs")
        return
    heads = (
        "no",
        "name",
        "pipeline",
        "status",
        "items",
        "succeeded",
        "failed",
        "open",
        "cost",
        "begun",
    )
    rows = [
        (
            one.no,
            shorten(one.name, _NAME_CHARS_MAX),
            one.pipeline,
            ", ".join(
                [
                    one.status.value,
                    *["unfed"] * bool(unfed_at(one, now)),
                    *kept_back.get(one.no, ()),
                ]
            ),
            f"{one.counts.total:,}",
            f"{one.counts.succeeded:,}",
            f"{one.counts.failed:,}",
            f"{one.counts.open:,}",
            dollars(one.counts.cost_usd),
            day_at(one.created_at),
        )
        for one in found
    ]
    for line in table(heads, rows, left=("name", "pipeline", "status", "begun")):
        click.echo(line)
    if len(found) == limit:
        click.echo(f"more: --before {found[-1].no}")


@runs.command()
@click.argument("named", metavar="RUN")
@store_option
@json_option
def show(named: str, store: str | None, as_json: bool) -> None:
    """Show one run, by id, number or name: status and why, counts, budgets, and re-drives of it."""
    with session_at(store) as session:
        run = run_at(session, named).view()
        same = session.opened.reader.runs(pipeline=run.pipeline, limit=PAGE_ROWS_MAX)
        now = session.opened.reader.now()
        kept_back = _kept_back(session, run)
    children = [one for one in same if one.parent == run.no]
    if as_json:
        told = [all_of_run(one) for one in children]
        more = {"unfed_at": unfed_at(run, now), "kept_back": kept_back, "children": told}
        echo_json({**all_of_run(run), **more})
        return
    for line in _lines_of(run, children, now):
        click.echo(line)
    for line in kept_back:
        click.echo(f"  {line}")


@runs.command()
@click.argument("named", metavar="RUN")
@store_option
@json_option
def report(named: str, store: str | None, as_json: bool) -> None:
    """Report how a run went: retries, errors, stages, waste, time to success; walks over all its attempts."""
    with _open(named, store) as run:
        found = run.report()
    if as_json:
        echo_json(found.as_json())
        return
    for line in report_lines(found):
        click.echo(line)


@runs.command()
@click.argument("named", metavar="RUN")
@click.option(
    "-o", "--output", metavar="FILE", help="Values, a JSON object a line; else standard output."
)
@click.option(
    "--failures", metavar="FILE", help="What has no value, with its error, into this file."
)
@click.option("--wait", is_flag=True, help="Wait until the run has stopped.")
@store_option
def results(
    named: str, output: str | None, failures: str | None, wait: bool, store: str | None
) -> None:
    """Write the results of a run, in the order of its items; what is still open is left out."""
    good = bad = 0
    with _open(named, store) as run, ExitStack() as files:
        values = None if output in (None, "-") else files.enter_context(Sink(Path(str(output))))
        others = None if failures is None else files.enter_context(Sink(Path(failures)))
        for one in run.results(failed=others is not None, wait=wait):
            if not one.ok and others is not None:
                others.write(one)
                bad += 1
                continue
            good += 1
            if values is None:
                click.echo(_line(one))
            else:
                values.write(one)
        seen = run.view()
    where = "" if values is None else f" in {output}"
    beside = "" if failures is None else f", {bad:,} without one in {failures}"
    still = "" if has_stopped(seen) else f"; {seen.counts.open:,} items are still open"
    click.echo(f"{good:,} values{where}{beside}{still}", err=values is None)


@runs.command()
@click.argument("named", metavar="RUN")
@reason_and_by()
@store_option
def pause(named: str, reason: str, by_whom: str, store: str | None) -> None:
    """Claim none of a run's items until it is resumed; attempts under way end."""
    with _open(named, store) as run:
        run.pause(reason=reason, by=by_whom)
        click.echo(f"{run.name}: paused; {run.view().counts.open:,} items are open")


_BUDGETS = (
    click.option("--failure-budget", type=SHARE, help="Share of failed items that ends the run."),
    click.option(
        "--kind-budget",
        "kind_budgets",
        multiple=True,
        metavar="KIND=SHARE",
        help="The same for one failure kind; may be repeated.",
    ),
    click.option(
        "--sample-min", type=int, help="Look at the budget when so many items have ended."
    ),
    click.option("--check-every", type=int, help="And then every so many items."),
    click.option("--completed-at", type=SHARE, help="Share of success from which it is completed."),
    click.option("--partial-at", type=SHARE, help="Share from which it is a partial success."),
    click.option("--cost-max-usd", type=click.FloatRange(min=0), help="What it may cost."),
)


@runs.command()
@click.argument("named", metavar="RUN")
@with_options(*_BUDGETS)
@click.option("--app", metavar="APP", help="module:variable of the app, which knows the stages.")
@reason_and_by()
@store_option
def resume(
    named: str,
    app: str | None,
    reason: str,
    by_whom: str,
    store: str | None,
    kind_budgets: tuple[str, ...],
    **budgets: Any,
) -> None:
    """Go on with a paused or aborted run, with other budgets if they are given.

    With --app, a retry of its dead letters that waits for a worker is carried out here, before the budget is looked at.
    """
    kinds = dict(kind_budget(text) for text in kind_budgets) or None
    with _open(named, store, app) as run:
        run.resume(reason=reason, by=by_whom, failure_budgets=kinds, **budgets)
        seen = run.view()
        click.echo(f"{run.name}: {seen.status.value}; {seen.counts.open:,} items are open")


@runs.command()
@click.argument("named", metavar="RUN")
@yes_option
@reason_and_by()
@store_option
def cancel(named: str, yes: bool, reason: str, by_whom: str, store: str | None) -> None:
    """Cancel a run for good: nothing of it is claimed any more, and a worker cancels its open items."""
    with _open(named, store) as run:
        count = run.view().counts.open
        if not is_sure(f"Cancel run {run.name} with {count:,} open items?", yes=yes):
            click.echo("nothing was done")
            sys.exit(1)
        run.cancel(reason=reason, by=by_whom)
        click.echo(
            f"{run.name}: cancelled; a worker cancels its {run.view().counts.open:,} open items"
        )


@runs.command()
@click.argument("named", metavar="RUN")
@store_option
def seal(named: str, store: str | None) -> None:
    """Say that all items of a run are in, where whoever fed it has not; then it can end."""
    with _open(named, store) as run:
        run.seal()
        click.echo(f"{run.name}: sealed, {run.view().status.value}")


def _lines_of(run: RunView, children: list[RunView], now: datetime) -> list[str]:
    counts = run.counts
    ended = f"{counts.succeeded:,} succeeded + {counts.failed:,} failed + {counts.cancelled:,} cancelled"
    used = f"{counts.tokens_in:,} tokens in, {counts.tokens_out:,} out, {dollars(counts.cost_usd)}"
    lines = [
        f"run {run.name} (number {run.no}, {run.id}) of pipeline {run.pipeline}: {_status(run)}",
        f"  begun {day_at(run.created_at)}"
        + (f" by {run.owner}" if run.owner else "")
        + (f", sealed {day_at(run.sealed_at)}" if run.sealed_at else "")
        + (f", ended {day_at(run.ended_at)}" if run.ended_at else ""),
        *(() if run.sealed_at else (f"  {_feeding(run, now)}",)),
        f"  {counts.total:,} items = {ended} + {counts.open:,} open",
        f"  {so_many(counts.attempts, 'attempt')}, {counts.retries:,} retries, {used}",
    ]
    lines += [f"  failed by {kind or 'no kind'}: {count:,}" for kind, count in run.kinds.items()]
    lines += [f"  {line}" for line in _settings(run)]
    lines += [
        f"  driven again in run {one.no} ({one.status.value}): {one.counts.succeeded:,} of "
        f"{one.counts.total:,} succeeded"
        for one in children
    ]
    lines += [f"  {line}" for line in _ways_on(run)]
    if counts.failed:
        lines.append(f"  its dead letters: {command('perdure dead groups --run {}', run.no)}")
    return lines


def _ways_on(run: RunView) -> list[str]:
    """How to go on with a run that was paused, or aborted by a budget that would abort it again."""
    if run.status is RunStatus.PAUSED:
        return [f"to go on: {resume_paused(run)}"]
    if run.status is not RunStatus.ABORTED:
        return []
    larger = " ".join(larger_budget(run) or ("--failure-budget", "1"))
    resumed = command(f"perdure runs resume {{}} {larger}", run.no)
    return [
        f"to go on: its `perdure run` again, with --retry-failed or with {larger}",
        f"or for a worker that runs elsewhere: {resumed}",
    ]


def _kept_back(session: Session, run: RunView) -> list[str]:
    """What keeps the items of a run that is not over from going on, and what to type about it, a line each."""
    if run.status is not RunStatus.RUNNING or not run.counts.open:
        return []
    shot, anybody_works = look_once(session.opened, run)
    lines = [f"held: {hold_text(one)}" for one in shot.held]
    lines += [f"{one.name} is {one.says}" for one in shot.paced]
    if shot.cause:
        listed = command("perdure jobs list --run {} --state retrying", run.no)
        lines.append(f"retrying {shot.retrying:,}, most after {shot.cause}: {listed}")
    if not anybody_works:
        lines.append(
            "no worker is alive on this store; start one: perdure worker MODULE:APP, or type its `perdure run` again"
        )
    return lines


def _feeding(run: RunView, now: datetime) -> str:
    """Who feeds a run that is not sealed."""
    unfed = unfed_words(run, now)
    if unfed:
        return command(unfed)  # it ends with one
    fed = "" if run.feeding_at is None else f" by {run.fed_by} since {day_at(run.feeding_at)}"
    return f"not sealed: more items may follow{', fed' + fed if fed else ''}"


def _status(run: RunView) -> str:
    """The status and why, without saying one word twice."""
    why, status = shorten(run.why, 500), run.status.value
    if not why or why.startswith(f"{status}:"):
        return why or status
    return f"{status}, {why}"


def _settings(run: RunView) -> list[str]:
    kept = msgspec.json.decode(run.settings_json, type=dict[str, Any])
    budget, cost = kept.get("failure_budget"), kept.get("cost_max_usd")
    if kept.get("redrive"):
        return [
            f"drives dead letters of run {run.parent} again"
            if run.parent
            else "drives dead letters again"
        ]
    words = ["no failure budget" if budget is None else f"failure budget {percent(budget)}"]
    words += [f"{kind} {percent(share)}" for kind, share in kept.get("kinds", {}).items()]
    return [", ".join(words) + ("" if cost is None else f", at most {dollars(cost)}")]


def _line(one: Result) -> str:
    return msgspec.json.encode(one.as_json()).decode()
