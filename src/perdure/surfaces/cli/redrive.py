"""perdure dead redrive, discard, stop, continue and history: what is done to many dead letters at once."""

import sys
from collections.abc import Mapping
from typing import Any

import click
import msgspec

from perdure.app.dead_letters import DeadLetters, Redrive, redrive_settings
from perdure.app.session.session import Session
from perdure.app.surface.store_session import RedrivePreview, run_at, session_at, workers_alive
from perdure.model.errors import CallerError, UnknownName
from perdure.model.operations import BulkView
from perdure.surfaces.cli.bulk_panel import (
    REFUSALS_SHOWN,
    outcome,
    preview_lines,
    summary_lines,
    watch,
)
from perdure.surfaces.cli.filters import chosen_words, filter_options, in_words
from perdure.surfaces.cli.options import (
    SHARE,
    act_on,
    command,
    echo_json,
    is_sure,
    json_option,
    limit_option,
    reason_and_by,
    store_option,
    yes_option,
)
from perdure.surfaces.cli.tables import day_at, shorten, so_many, table
from perdure.surfaces.run_views import all_of_run
from perdure.surfaces.views import all_of_bulk

_WORDS_CHARS_MAX = 80
_ASKED_LATER = "whether their sources still exist is asked by the worker that drives them; to ask now: --app APP"


@click.command()
@filter_options
@click.option("--from-stage", metavar="STAGE", help="Go on from this stage, not the failed one.")
@click.option("--from-start", is_flag=True, help="Begin with the first stage.")
@click.option(
    "--canary",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Drive so many first, and no more unless they succeed.",
)
@click.option(
    "--canary-share",
    type=SHARE,
    default=0.9,
    show_default=True,
    help="How many of the canary must succeed.",
)
@click.option("--rate", metavar="RATE", help="How many may begin, as in 100/min or 5/s.")
@click.option(
    "--failure-budget",
    type=SHARE,
    default=0.10,
    show_default=True,
    help="The share that may fail again before its run is aborted.",
)
@click.option(
    "--app", metavar="APP", help="module:variable of the app; asks its source_exists now."
)
@click.option("--all", "every", is_flag=True, help="All of them; needed where no filter is given.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--detach", is_flag=True, help="Do not watch it.")
@yes_option
@reason_and_by()
@store_option
@json_option
def redrive(
    *,
    app: str | None,
    store: str | None,
    as_json: bool,
    dry_run: bool,
    detach: bool,
    yes: bool,
    every: bool,
    reason: str,
    by_whom: str,
    from_stage: str | None,
    from_start: bool,
    canary: int,
    canary_share: float,
    rate: str | None,
    failure_budget: float,
    **chosen: Any,
) -> None:
    """Drive dead letters of one pipeline again, in a run of their own; shows first what would happen.

    Workers do it, for as long as it takes. Exits with 0 when 95 % or more have succeeded, 3 when half or more
    have, 4 when fewer have, 5 when it was stopped. Ctrl-C ends the watching and not the operation.
    """
    _check_chosen(chosen, every, "redrive")
    redrive_settings(from_stage, from_start, canary, canary_share, rate)
    way: dict[str, Any] = {"from_stage": from_stage, "from_start": from_start}
    pace: dict[str, Any] = {"canary": canary, "canary_share": canary_share, "rate": rate}
    with session_at(store, app) as session:
        letters = DeadLetters(session)
        found, notes = _look(session, letters, way, chosen, has_app=app is not None)
        if not as_json:
            for line in _preview(session, found, notes, {**way, **pace}, chosen):
                click.echo(line)
        if dry_run or not found.eligible:
            if as_json:
                echo_json({"preview": found, "notes": notes, "bulk": None})
            return
        if not is_sure(f"Drive {so_many(found.eligible, 'dead letter')} again?", yes=yes):
            click.echo("nothing was done")
            sys.exit(1)
        begun = letters.redrive(
            reason=reason, by=by_whom, failure_budget=failure_budget, **way, **pace, **chosen
        )
        sys.exit(_follow_begun(session, begun, found, notes, detach=detach, as_json=as_json))


@click.command()
@filter_options
@click.option("--all", "every", is_flag=True, help="All of them; needed where no filter is given.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@yes_option
@reason_and_by(required=True)
@store_option
@json_option
def discard(
    every: bool,
    dry_run: bool,
    yes: bool,
    reason: str,
    by_whom: str,
    store: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Mark dead letters as dealt with: they leave the lists and stay in the books."""
    _check_chosen(chosen, every, "discard")
    if not reason.strip():
        raise CallerError("the reason is blank; say why, it is kept in the audit log")
    with session_at(store) as session:
        letters = DeadLetters(session)
        found = letters.count(**chosen)
        meant = f"{'more than ' if found.capped else ''}{so_many(found.count, 'dead letter')}"
        if not as_json:
            click.echo(f"{meant}{in_words(chosen)}" if found.count else "no dead letters are meant")
            for one in found.groups[:REFUSALS_SHOWN]:
                where = f"{one.pipeline}/{one.stage}"
                click.echo(f"  {one.count:>7,}  {where}  {one.kind or one.reason}")
        if dry_run or not found.count:
            if as_json:
                echo_json({"preview": found, "bulk": None})
            return
        if not is_sure(f"Discard {meant}?", yes=yes):
            click.echo("nothing was done")
            sys.exit(1)
        bulk = letters.discard(every=True, reason=reason, by=by_whom, **chosen)
    if as_json:
        echo_json({"preview": found, "bulk": all_of_bulk(bulk)})
        return
    click.echo(
        f"discarded {bulk.done:,}" + (f", {bulk.refused:,} moved on" if bulk.refused else "")
    )


@click.command()
@click.argument("bulk_id", metavar="BULK")
@reason_and_by()
@store_option
def stop(bulk_id: str, reason: str, by_whom: str, store: str | None) -> None:
    """Let a bulk operation take on no more; what it has driven again goes on."""
    with session_at(store) as session:
        bulk = DeadLetters(session).get_redrive(bulk_id).stop(reason=reason, by=by_whom)
    again = command("perdure dead continue {}", bulk.id)
    click.echo(f"stopped after {bulk.done:,}; to go on where it stands: {again}")


@click.command("continue")
@click.argument("bulk_id", metavar="BULK")
@reason_and_by()
@store_option
def continue_bulk(bulk_id: str, reason: str, by_whom: str, store: str | None) -> None:
    """Go on with a stopped bulk operation where it stands; a canary that failed is taken as known."""
    with session_at(store) as session:
        bulk = DeadLetters(session).get_redrive(bulk_id).resume(reason=reason, by=by_whom)
        warn_if_nobody_works(session, bulk)
    click.echo(f"goes on after {bulk.done:,}; see: {command('perdure dead history {}', bulk.id)}")


@click.command()
@click.argument("bulk_id", metavar="[BULK]", required=False)
@limit_option("At most so many.")
@store_option
@json_option
def history(bulk_id: str | None, limit: int, store: str | None, as_json: bool) -> None:
    """List bulk operations with counts, who, when and why; or show one, with all that it left as it was."""
    with session_at(store) as session:
        letters = DeadLetters(session)
        if bulk_id is not None:
            _show(letters.get_redrive(bulk_id), as_json=as_json)
            return
        found = [one.view() for one in letters.redrives(limit=limit)]
    if as_json:
        echo_json([all_of_bulk(one) for one in found])
        return
    if not found:
        click.echo("no bulk operations")
        return
    heads = ("id", "begun", "verb", "status", "done", "refused", "by", "of", "why")
    rows = [
        (
            one.id,
            day_at(one.begun_at),
            one.verb.value,
            one.status.value,
            f"{one.done:,}",
            f"{one.refused:,}",
            shorten(one.begun_by, 20),
            _filter(one),
            _why(one),
        )
        for one in found
    ]
    for line in table(heads, rows, left=("id", "begun", "verb", "status", "by", "of", "why")):
        click.echo(line)


def _look(
    session: Session,
    letters: DeadLetters,
    way: Mapping[str, Any],
    chosen: Mapping[str, Any],
    *,
    has_app: bool,
) -> tuple[RedrivePreview, list[str]]:
    """The preview, and what it could not find out without an app that knows the pipeline."""
    if has_app:
        found = letters.preview(**way, **chosen)
        missing = [one for one in found.pipelines if session.catalogue.pipeline(one) is None]
        if missing:
            raise UnknownName(
                f"this app has no pipeline {missing[0]!r}, whose dead letters are meant; "
                "name the app that has it, or leave --app out"
            )
        notes = []
    else:
        found = letters.preview(**chosen)
        notes = [_ASKED_LATER]
        if way["from_stage"] is not None or way["from_start"]:
            notes.append("whether they can go on from there, too")
    if len(found.pipelines) > 1:
        names = ", ".join(sorted(found.pipelines))
        raise CallerError(
            f"a re-drive is of one pipeline, and dead letters of several are meant ({names}); "
            "name one: --pipeline"
        )
    return found, notes if found.count else []


def _preview(
    session: Session,
    found: RedrivePreview,
    notes: list[str],
    options: Mapping[str, Any],
    chosen: Mapping[str, Any],
) -> list[str]:
    lines = preview_lines(found, options, chosen)
    if found.eligible:
        lines.append(
            f"they are driven again in a run of their own{_parent(session, chosen)}{_pace(options)}"
        )
        lines += notes
    return lines


def _pace(options: Mapping[str, Any]) -> str:
    words = f", {options['canary']:,} first as a canary" if options["canary"] else ""
    return words + (f", at most {options['rate']}" if options["rate"] else "")


def _parent(session: Session, chosen: Mapping[str, Any]) -> str:
    if chosen["run"] is None:
        return ""
    run = run_at(session, chosen["run"])
    return f", a child of run {run.name!r} (number {run.no})"


def _follow_begun(
    session: Session,
    begun: Redrive,
    found: RedrivePreview,
    notes: list[str],
    *,
    detach: bool,
    as_json: bool,
) -> int:
    """Say what was begun, and watch it unless that is not wanted; the exit status."""
    act_on(session.url)
    bulk, run = begun.view(), begun.run
    see, end = (command(f"perdure dead {verb} {{}}", bulk.id) for verb in ("history", "stop"))
    named = "" if run is None else f", run {run.name!r} (number {run.no})"
    if not as_json:
        click.echo(f"bulk operation {bulk.id}{named}")
    warn_if_nobody_works(session, bulk)
    if not detach:
        try:
            watch(begun, found.count, quiet=as_json)
        except KeyboardInterrupt:
            click.echo(
                f"\nno longer watching; the operation goes on. To stop it: {end}; to see it: {see}",
                err=True,
            )
            return 130
    if as_json:
        after = begun.view()
        echo_json(
            {
                "preview": found,
                "notes": notes,
                "bulk": all_of_bulk(after),
                "run": None if run is None else run.view(),
                "refusals": list(_first_refusals(begun)),
            }
        )
    elif detach:
        click.echo(f"see: {see}; to stop it: {end}")
    else:
        for line in summary_lines(begun):
            click.echo(line)
    return 0 if detach else outcome(begun)


def _first_refusals(begun: Redrive) -> list[object]:
    return [one for one, _ in zip(begun.refusals(), range(REFUSALS_SHOWN), strict=False)]


def warn_if_nobody_works(session: Session, bulk: BulkView) -> None:
    """Say that an operation waits for a worker."""
    if not workers_alive(session.opened.reader):
        click.echo(
            "no worker is alive: nothing happens until one that has the pipeline is started "
            f"(perdure worker APP); the operation {bulk.id} waits for it",
            err=True,
        )


def _show(one: Redrive, *, as_json: bool) -> None:
    bulk, run = one.view(), one.run
    if as_json:
        refusals = list(one.refusals())
        counted = None if run is None else all_of_run(run.view())
        echo_json({**all_of_bulk(bulk), "child": counted, "refusals": refusals})
        return
    click.echo(
        f"{bulk.verb.value} {bulk.id}: {bulk.status.value}"
        + (f", {_why(bulk)}" if bulk.why else "")
    )
    click.echo(
        f"  begun {day_at(bulk.begun_at)} by {shorten(bulk.begun_by, 40)} {shorten(bulk.reason, 200)}".rstrip()
    )
    click.echo(f"  of {_filter(bulk)}")
    for line in summary_lines(one, every=True):
        click.echo(f"  {line}")


def _check_chosen(chosen: Mapping[str, Any], every: bool, verb: str) -> None:
    if not every and not any(value is not None for value in chosen.values()):
        raise CallerError(
            f"say which dead letters: a filter such as --pipeline or --fingerprint, or --all "
            f"(perdure dead {verb} --help)"
        )


def _filter(bulk: BulkView) -> str:
    wanted = msgspec.json.decode(bulk.filter_json, type=dict[str, Any])
    left = {
        name: value
        for name, value in wanted.items()
        if value is not None and name not in ("states", "discarded")
    }
    if wanted.get("discarded"):
        left["discarded"] = True
    return shorten(chosen_words(left) or "all", _WORDS_CHARS_MAX)


def _why(bulk: BulkView) -> str:
    return shorten(bulk.why or bulk.reason, _WORDS_CHARS_MAX)
