"""The tour on a screen: a panel that is drawn anew on a terminal, plain lines elsewhere."""

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from perdure.demo.crew import DemoWorker
from perdure.demo.script import Fault
from perdure.demo.tour import Happening, Show, TourSnapshot
from perdure.demo.watch import belongs
from perdure.surfaces.cli.live_panel import Echo, counts_text, frame, now_and_then

_HAPPENINGS_SHOWN = 6
_WORKERS_SHOWN = 3
_LINE_S = 1.0


def progress_line(shot: TourSnapshot) -> str:
    """The tour at one moment, in one line."""
    books, look = shot.look.books, shot.look
    stages = ", ".join(f"{stage.name} {stage.passed:,}" for stage in look.stages)
    struck = ", ".join(f"{fault.value} {n:,}" for fault in Fault if (n := shot.faults.get(fault)))
    alive = sum(1 for demo_worker in shot.crew if demo_worker.running)
    return (
        f"{shot.elapsed_s:5.1f} s  {look.settled:,} of {shot.order.items:,} done, "
        f"{shot.rate_per_s:.0f}/s | succeeded {books.succeeded:,}, failed {books.failed:,}, "
        f"processing {books.processing:,}, retrying {look.retrying:,}, "
        f"queued {books.queued - look.retrying:,} | passed {stages} | "
        f"workers {alive} | faults: {struck or 'none yet'}"
    )


def happening_line(one: Happening) -> str:
    """Something that happened, in one line."""
    return f"{one.at_s:5.1f} s  {one.text}"


def lines(echo: Echo) -> Show:
    """Show the tour as lines: every happening at once, and one about all of it each second."""
    told, write = 0, now_and_then(echo, _LINE_S)

    def show(shot: TourSnapshot) -> None:
        nonlocal told
        for one in shot.happenings[told:]:
            echo(happening_line(one))
        told = len(shot.happenings)
        write(shot.elapsed_s, progress_line(shot), None)

    return show


def panel(shot: TourSnapshot) -> RenderableType:
    """The tour at one moment, for a terminal."""
    look, items = shot.look, shot.order.items
    return frame(
        f"[bold]perdure demo[/]  {items:,} items, seed {shot.order.seed}",
        f"{shot.elapsed_s:.0f} s",
        [
            _counts(shot),
            ProgressBar(total=max(items, 1), completed=look.settled, width=None),
            Text(),
            _tables(shot),
            Text(),
            *_happenings(shot),
        ],
    )


def _tables(shot: TourSnapshot) -> Table:
    """Stages above workers on the left, faults on the right: 80 columns and 24 rows suffice."""
    grid = Table.grid(padding=(0, 4, 0, 0))
    grid.add_row(Group(_stages(shot), Text(), _crew(shot)), _faults(shot))
    return grid


def _counts(shot: TourSnapshot) -> Text:
    books, look = shot.look.books, shot.look
    line = counts_text(
        (books.succeeded, "succeeded", "green"),
        (books.failed, "failed", "red"),
        (books.processing, "processing", "cyan"),
        (look.retrying, "retrying", "yellow"),
        (books.queued - look.retrying, "queued", ""),
    )
    line.no_wrap = True
    return line.append(f"{shot.rate_per_s:.0f}/s", "dim")


def _stages(shot: TourSnapshot) -> Table:
    table = _table("stage", "passed", "processing", "retrying", "queued")
    for stage in shot.look.stages:
        table.add_row(
            stage.name,
            Text(f"{stage.passed:,}", "green"),
            Text(f"{stage.running:,}", "cyan"),
            Text(f"{stage.retrying:,}", "yellow"),
            f"{stage.waiting:,}",
        )
    return table


def _crew(shot: TourSnapshot) -> Table:
    table = _table("worker", "items", "processes")
    table.columns[2].justify = "left"
    for demo_worker in shot.crew[-_WORKERS_SHOWN:]:
        held = len(shot.look.jobs_held_by(demo_worker))
        table.add_row(
            demo_worker.name.removeprefix("worker "), str(held), _processes(shot, demo_worker)
        )
    for _ in range(_WORKERS_SHOWN - len(shot.crew)):
        table.add_row()
    return table


def _processes(shot: TourSnapshot, demo_worker: DemoWorker) -> Text:
    if demo_worker.killed:
        return Text("killed with SIGKILL", "red")
    alive = [
        worker.role.value
        for worker in sorted(shot.look.workers, key=lambda one: one.role.isolation)
        if worker.dead_at is None and belongs(worker, demo_worker)
    ]
    if not demo_worker.running:
        return Text("ended", "red")
    return Text(", ".join(alive)) if alive else Text("starting", "dim")


def _faults(shot: TourSnapshot) -> Table:
    table = _table("faults struck", "")
    table.columns[1].min_width = 6
    for fault in Fault:
        count = shot.faults.get(fault, 0)
        table.add_row(fault.value, Text(f"{count:,}", "magenta" if count else "dim"))
    return table


def _happenings(shot: TourSnapshot) -> list[Text]:
    last = shot.happenings[-_HAPPENINGS_SHOWN:]
    lines = [
        Text(
            happening_line(one), "" if one is last[-1] else "dim", no_wrap=True, overflow="ellipsis"
        )
        for one in last
    ]
    return lines + [Text()] * (_HAPPENINGS_SHOWN - len(lines))


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 0 else "right", no_wrap=True)
    return table
