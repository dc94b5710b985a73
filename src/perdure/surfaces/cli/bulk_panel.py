"""Watching a bulk operation; in words, what it would do and what it has come to."""

import time
from collections.abc import Mapping
from itertools import islice
from typing import Any

from perdure.app.dead_letters import Redrive
from perdure.app.session.waiting import looks, wait_until
from perdure.app.surface.store_session import RedrivePreview
from perdure.model.operations import BulkStatus, BulkView
from perdure.model.runs import RunStatus, RunView
from perdure.surfaces.cli.filters import in_words
from perdure.surfaces.cli.options import command
from perdure.surfaces.cli.tables import so_many

REFUSALS_SHOWN = 20
_GLANCE_S = 0.2
_LINE_S = 5.0  # between two lines where nobody can be shown a moving one
_UNTOUCHED_S = 15.0  # after which somebody may have forgotten to start the right worker

_EXIT = {
    RunStatus.COMPLETED: 0,
    RunStatus.RUNNING: 0,
    RunStatus.PARTIAL_SUCCESS: 3,
    RunStatus.FAILED: 4,
}


def watch(redrive: Redrive, count: int, *, quiet: bool) -> None:
    """Look on until all are taken on and have ended, or it was stopped and what lived again has."""
    if quiet:
        wait_until(lambda seen: _is_over(*seen), lambda: _see(redrive), None)
        return
    from rich.text import Text  # here, because it is half of a command's start-up

    from perdure.surfaces.cli.live_panel import Echo, now_and_then, screen

    begun_s = time.monotonic()

    def lines(echo: Echo) -> Echo:
        write = now_and_then(echo, _LINE_S)

        def show(line: str) -> None:
            write(time.monotonic() - begun_s, line, None)

        return show

    hinted = False
    with screen(Text, lines, err=True) as (show, say, _):
        for bulk, run in looks(lambda: _see(redrive), every_s=_GLANCE_S):
            show(_line(bulk, run, count))
            if _is_over(bulk, run):
                return
            untouched = not bulk.done and not bulk.refused and bulk.cursor is None
            if untouched and not hinted and time.monotonic() - begun_s > _UNTOUCHED_S:
                hinted = True
                say("nobody has taken it up yet; is a worker that has the pipeline at work?")


def summary_lines(redrive: Redrive, *, every: bool = False) -> list[str]:
    """The result of a bulk operation, with its first refusals, or with all of them."""
    bulk, run = _see(redrive)
    lines = [_line(bulk, run, None)]
    if bulk.status is BulkStatus.STOPPED:
        lines.append(f"it was stopped: {bulk.why or 'nobody said why'}")
        lines.append(f"to go on where it stands: {command('perdure dead continue {}', bulk.id)}")
    refused = redrive.refusals() if every else islice(redrive.refusals(), REFUSALS_SHOWN)
    shown = [f"  {one.job_id}  {one.why}" for one in refused]
    if shown:
        lines += ["left as they were:", *shown]
    if bulk.refused > len(shown):
        more = bulk.refused - len(shown)
        lines.append(f"  and {more:,} more; for all: {command('perdure dead history {}', bulk.id)}")
    return lines


def outcome(redrive: Redrive) -> int:
    """The exit status of who has watched."""
    bulk, run = _see(redrive)
    if bulk.status is BulkStatus.STOPPED:
        return 5
    return 0 if run is None else _EXIT.get(run.status, 5)


def preview_lines(
    found: RedrivePreview, options: Mapping[str, Any], chosen: Mapping[str, Any]
) -> list[str]:
    """How many dead letters are eligible for a new life, and how many are not and why."""
    unknown = [f"  {one}  is no key of such a dead letter" for one in found.keys_unknown]
    if not found.count:
        return [f"no dead letters{in_words(chosen)}", *unknown[:REFUSALS_SHOWN]]
    more = "; there are more, which were not looked at" if found.capped else ""
    lines = [
        f"{so_many(found.count, 'dead letter')} of pipeline {found.pipelines[0]}{more}",
        f"  {found.eligible:>7,}  eligible, {_way(options)}",
    ]
    refused = found.count - found.eligible
    if refused:
        lines.append(f"  {refused:>7,}  not eligible:")
        lines += [
            f"           {one.count:>7,}  {one.why}, as {one.example_id}" for one in found.refused
        ]
    if unknown:
        lines.append(f"  {len(unknown):>7,}  of the payloads are for no such dead letter:")
        lines += [f"           {one}" for one in found.keys_unknown[:REFUSALS_SHOWN]]
    return lines


def _way(options: Mapping[str, Any]) -> str:
    if options.get("payloads") is not None:
        return "with another item from the start"
    if options["from_start"]:
        return "from the start"
    stage = options["from_stage"]
    return "at the stage where they failed" if stage is None else f"from stage {stage}"


def _see(redrive: Redrive) -> tuple[BulkView, RunView | None]:
    bulk = redrive.view()
    run = redrive.run
    return bulk, None if run is None else run.view()


def _is_over(bulk: BulkView, run: RunView | None) -> bool:
    if bulk.status is BulkStatus.RUNNING:
        return False
    if run is None or run.ended_at is not None:
        return True
    if run.status in (RunStatus.ABORTED, RunStatus.CANCELLED):
        return True
    return bulk.status is BulkStatus.STOPPED and not run.counts.open


def _line(bulk: BulkView, run: RunView | None, count: int | None) -> str:
    among = "" if count is None else f" of {count:,}"
    line = f"{bulk.done:,}{among} taken on, {bulk.refused:,} left as they were"
    if run is None:
        return line
    counts = run.counts
    return (
        f"{line}; {counts.succeeded:,} succeeded, {counts.failed:,} failed again, "
        f"{counts.open:,} open"
        + (f" ({run.status.value})" if run.status is RunStatus.PAUSED else "")
    )
