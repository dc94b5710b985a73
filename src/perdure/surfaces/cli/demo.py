"""perdure demo: the tour."""

import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from perdure.demo.script import ITEMS_MIN, Fault
from perdure.demo.summary import TIME_RAN_OUT, Summary
from perdure.demo.tour import LIMIT_S, TourOrder, give_tour
from perdure.model.errors import CallerError
from perdure.model.kinds import KINDS, Kind
from perdure.surfaces.cli.demo_panel import lines, panel
from perdure.surfaces.cli.jobs import story
from perdure.surfaces.cli.live_panel import screen
from perdure.surfaces.cli.options import echo_json, json_option

_WORKER = (sys.executable, "-m", "perdure.surfaces.cli", "worker")


@click.command()
@click.option(
    "--items",
    type=click.IntRange(ITEMS_MIN, 5_000),
    default=1_000,
    show_default=True,
    help="How many items go in.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Which items meet which faults; the same seed strikes the same items.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the store and the workers' logs in this folder, new or empty.",
)
@json_option
@click.option(
    "--without", type=click.Choice([one.value for one in Fault]), multiple=True, hidden=True
)
@click.option("--limit-s", type=float, default=LIMIT_S, hidden=True)
def demo(
    items: int,
    seed: int,
    keep: Path | None,
    as_json: bool,
    without: tuple[str, ...],
    limit_s: float,
) -> None:
    """Push items through a misbehaving upstream and account for each of them.

    A thousand invoices walk through three stages (fetch, extract, store) on two workers and an
    SQLite file. The upstream, on this machine, answers 429 and 503, hangs, sends malformed JSON,
    and refuses two items for ever. One item kills every process that it runs in. Half-way, one
    worker is killed with SIGKILL. You see a panel, or a line a second where there is no terminal.

    At the end: the books, the failures by cause, the faults that struck, and the history of one
    item with the reason of every retry. It takes about half a minute, never more than two. The
    exit status is 0 only if every item is accounted for, the audit is clean and every kind of fault
    has struck; else it is 1.
    """
    with _folder(keep) as folder:
        order = TourOrder(
            items=items,
            seed=seed,
            folder=folder,
            command=_WORKER,
            without=frozenset(Fault(one) for one in without),
            limit_s=limit_s,
        )
        with screen(panel, lines, err=as_json, transient=as_json) as (show, _, _):
            summary = give_tour(order, show)
        if as_json:
            echo_json(_plain_summary(summary, folder if keep else None))
        else:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            for line in report(summary):
                click.echo(_style(line, width))
            for line in _follow_ups(order, summary, kept=keep is not None):
                click.echo(_style(line, None))
    sys.exit(1 if summary.complaints else 0)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        made = Path(tempfile.mkdtemp(prefix="perdure-demo-")).resolve()
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise CallerError(f"{str(keep)!r} is not empty; name a new folder for --keep")
    yield keep.resolve()


def _style(line: str, width: int | None) -> str:
    """A line of the report, in colour, and as wide as the terminal if there is one."""
    indent = " " * (len(line) - len(line.lstrip()))
    if width and len(line) > width:
        line = textwrap.fill(
            line,
            width,
            subsequent_indent=indent + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    if line.startswith("NOT AS PROMISED"):
        return click.style(line, fg="red", bold=True)
    return line if indent else click.style(line, bold=True)


def report(summary: Summary) -> Iterator[str]:
    """The end of a tour in words, a line each."""
    yield from _books(summary)
    yield from _failures(summary)
    yield from _faults(summary)
    if summary.history is not None:
        yield from _title("One item's history")
        yield from (f"  {line}" for line in story(*summary.history))
    yield ""
    for complaint in summary.complaints:
        is_late = complaint.startswith(TIME_RAN_OUT)
        yield complaint if is_late else f"NOT AS PROMISED: {complaint}"
    if not summary.complaints:
        yield (
            "Every item is accounted for and every kind of fault has struck: "
            f"{summary.elapsed_s:.1f} s."
        )


def _title(words: str) -> list[str]:
    return ["", words]


def _books(summary: Summary) -> Iterator[str]:
    books, sums = summary.books, summary.sums
    left = books.accepted - books.succeeded - books.failed
    yield from _title("The books")
    yield (
        f"  {books.accepted:,} in = {books.succeeded:,} succeeded + {books.failed:,} failed"
        + (f" + {left:,} left over" if left else "; nothing unaccounted")
    )
    yield f"  audit: {f'{len(summary.findings)} findings' if summary.findings else 'clean'}"
    good = sums.starts - sums.failures - sums.waits - sums.crashes - sums.releases
    yield (
        f"  {sums.starts:,} attempts: {good:,} succeeded, {sums.failures:,} failed, "
        f"{sums.waits:,} were told to wait, {sums.crashes:,} were lost with their process"
    )
    yield (
        f"  {summary.bereaved:,} items were in the hands of a process that died; "
        f"{summary.rescued:,} of them succeeded"
    )


def _failures(summary: Summary) -> Iterator[str]:
    yield from _title("Failures by cause")
    for group in summary.failures:
        sentence = KINDS[Kind(group.kind)].sentence
        yield f"  {group.count:>5,}  {group.stage}: {group.reason}, {group.kind}. {sentence}"
        yield f"         as in job {group.example_id}"
    if not summary.failures:
        yield "  none"


def _faults(summary: Summary) -> Iterator[str]:
    yield from _title("Faults struck")
    for fault in Fault:
        yield f"  {summary.faults.get(fault, 0):>5,}  {fault.in_words}"


def _follow_ups(order: TourOrder, summary: Summary, *, kept: bool) -> Iterator[str]:
    if not kept:
        if summary.complaints:
            yield "To look inside, run it again with --keep DIR."
        return
    yield from _title(f"Kept in {order.folder}")
    job = summary.history[0].id if summary.history else "JOB"
    for command in ("audit", "jobs list --state failed", f"jobs show {job}"):
        yield f"  perdure {command} --store {shlex.quote(order.store)}"


def _plain_summary(summary: Summary, folder: Path | None) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(summary)
    del plain["unfinished"], plain["trouble"]
    history = summary.history
    return {
        "ok": not summary.complaints,
        "complaints": summary.complaints,
        **plain,
        "elapsed_s": round(summary.elapsed_s, 1),
        "faults": {fault.value: summary.faults.get(fault, 0) for fault in Fault},
        "history": None if history is None else story(*history),
        "folder": None if folder is None else str(folder),
    }
