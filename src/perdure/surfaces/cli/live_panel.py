"""What goes on, on a screen: a picture that is drawn anew on a terminal, plain lines elsewhere.

The tour, a run and a re-drive give it their pictures and their lines; where these go is decided here.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

T = TypeVar("T")
Echo = Callable[[str], None]


@contextmanager
def screen(
    draw: Callable[[T], RenderableType],
    lines: Callable[[Echo], Callable[[T], None]] | None,
    *,
    err: bool,
    transient: bool = True,
) -> Iterator[tuple[Callable[[T], None], Echo, bool]]:
    """How to show a moment, how to say a line that stays, and whether there is a terminal.

    Without ``lines`` nothing is shown where there is none.
    """
    console = Console(stderr=err)
    if not console.is_terminal:
        show = (lambda _: None) if lines is None else lines(partial(click.echo, err=err))
        yield show, partial(click.echo, err=True), False
        return
    with Live(console=console, auto_refresh=False, transient=transient) as live:
        say = partial(live.console.print, markup=False, highlight=False)
        yield lambda shot: live.update(draw(shot), refresh=True), say, True


def now_and_then(echo: Echo, every_s: float) -> Callable[[float, str, object], bool]:
    """Write a line every so many seconds, and one whenever there is another state; none twice in a row.

    Says whether it has written.
    """
    said: tuple[object, str] | None = None
    next_at_s = 0.0

    def show(at_s: float, line: str, state: object) -> bool:
        nonlocal said, next_at_s
        is_due = said is None or state != said[0] or at_s >= next_at_s
        if not is_due or (state, line) == said:
            return False
        said, next_at_s = (state, line), at_s + every_s
        echo(line)
        return True

    return show


def frame(title: str, corner: str, parts: Iterable[RenderableType]) -> Panel:
    """Parts one under the other in a frame: the title above, in markup, and a few words in the corner below."""
    return Panel(
        Group(*parts),
        title=title,
        title_align="left",
        padding=(0, 2),
        subtitle=corner,
        subtitle_align="right",
    )


def counts_text(*pieces: tuple[int, str, str]) -> Text:
    """Counts with their names beside each other, each in its style."""
    line = Text()
    for count, name, style in pieces:
        line.append(f"{count:,}", f"bold {style}".strip()).append(f" {name}  ", style)
    return line
