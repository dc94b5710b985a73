"""A run on a screen: a panel that is drawn anew on a terminal, plain lines elsewhere."""

from collections.abc import Callable

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from perdure.app.batch.snapshot import Held, RunSnapshot
from perdure.model.runs import RunStatus, RunView
from perdure.surfaces.cli.live_panel import Echo, counts_text, frame, now_and_then
from perdure.surfaces.cli.options import command, with_store
from perdure.surfaces.cli.tables import dollars

_LINE_S = 10.0
_KINDS_SHOWN = 6
_HELD_SHOWN = 3
_STATE_WORDS = {
    RunStatus.RUNNING: "",
    RunStatus.FAILED: "the run has failed",
    RunStatus.PARTIAL_SUCCESS: "the run is a partial success",
}


def progress_line(shot: RunSnapshot) -> str:
    """A run at one moment, in one line."""
    counts = shot.run.counts
    parts = [
        f"{shot.elapsed_s:.0f} s  {_progress_text(shot)}",
        f"succeeded {counts.succeeded:,}, failed {counts.failed:,}{_kinds(shot)}",
        f"retrying {shot.retrying:,}{_cause(shot)}, open {counts.open:,}",
        *filter(None, (_calls(shot), _cost(shot), _budget(shot))),
        f"ETA {_eta(shot)}",
        *(f"held: {hold_text(one)}" for one in shot.held),
        *(f"{one.name} is {one.says}" for one in shot.paced),
        *filter(None, (_state(shot), shot.note)),
    ]
    return " | ".join(parts)


def lines(echo: Echo) -> Callable[[RunSnapshot], None]:
    """Show a run as lines: one every ten seconds, and one whenever it becomes something else.

    What holds it may come and go many times a second: that makes a line at most every ten seconds, with how often it was.
    """
    write = now_and_then(echo, _LINE_S)
    held: tuple[str, ...] = ()
    changes = told = 0  # of what holds it: since the last line, and lines because of them
    told_at_s = -_LINE_S

    def show(shot: RunSnapshot) -> None:
        nonlocal held, changes, told, told_at_s
        if not shot.run.counts.total and shot.elapsed_s < 1:
            return  # the first items come in a moment
        now_held = tuple(one.what for one in shot.held)
        changes += now_held != held
        held = now_held
        if changes and shot.elapsed_s >= told_at_s + _LINE_S:
            told, told_at_s = told + 1, shot.elapsed_s
        state = (shot.run.status, shot.stopping, bool(shot.note), told)
        more = f" | {changes} changes of what is held" if changes > 1 else ""
        if write(shot.elapsed_s, progress_line(shot) + more, state):
            changes = 0

    return show


def panel(shot: RunSnapshot) -> RenderableType:
    """A run at one moment, for a terminal."""
    run, counts = shot.run, shot.run.counts
    parts: list[RenderableType] = [
        Text(f"{_progress_text(shot)}, ETA {_eta(shot)}", "bold"),
        _counts(shot),
        ProgressBar(total=max(counts.total, 1), completed=shot.ended, width=None),
        Text(),
        _figures(shot),
    ]
    parts += [Text(f"held: {hold_text(one)}", "yellow") for one in shot.held[:_HELD_SHOWN]]
    parts += [Text(f"{one.name} is {one.says}", "yellow") for one in shot.paced[:_HELD_SHOWN]]
    parts += [Text(text, "yellow") for text in (_state(shot), shot.note) if text]
    title = f"[bold]run[/] {_escape_markup(run.name)} of {_escape_markup(run.pipeline)}"
    return frame(title, _time_words(shot.elapsed_s), parts)


def _counts(shot: RunSnapshot) -> Text:
    counts = shot.run.counts
    line = counts_text(
        (counts.succeeded, "succeeded", "green"),
        (counts.failed, "failed", "red"),
        (shot.retrying, f"retrying{_cause(shot)}", "yellow"),
        (counts.open, "open", ""),
    )
    if counts.cancelled:
        line.append(f"{counts.cancelled:,} cancelled")
    return line


def _figures(shot: RunSnapshot) -> Table:
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    pace = shot.pace
    grid.add_row("pace", f"{pace.items_per_s:,.1f} items/s")
    if calls := _calls(shot):
        grid.add_row("calls", calls)
    grid.add_row("cost", _cost(shot).removeprefix("cost ") or "none reported")
    if shot.allowance is not None:
        bar = ProgressBar(total=1.0, completed=shot.allowance.used, width=20, complete_style="red")
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_row(bar, _budget(shot))
        grid.add_row("budget", row)
    for kind, count in _by_count(shot):
        grid.add_row("failed", Text(f"{count:,} {kind}", "red"))
    return grid


def _progress_text(shot: RunSnapshot) -> str:
    more = "+" if shot.feeding else ""
    return f"{shot.ended:,} of {shot.run.counts.total:,}{more} done"


def _by_count(shot: RunSnapshot) -> list[tuple[str, int]]:
    found = [(kind, count) for kind, count in shot.run.kinds.items() if count]
    return sorted(found, key=lambda one: (-one[1], one[0]))[:_KINDS_SHOWN]


def _kinds(shot: RunSnapshot) -> str:
    found = ", ".join(f"{kind} {count:,}" for kind, count in _by_count(shot))
    return f" ({found})" if found else ""


def _cause(shot: RunSnapshot) -> str:
    return f" ({shot.cause})" if shot.cause and shot.retrying else ""


def _calls(shot: RunSnapshot) -> str:
    """Requests and tokens; of what the stages have none of, nothing is said."""
    pace, counts = shot.pace, shot.run.counts
    asks = bool(counts.calls or pace.requests_per_min)
    reads = bool(counts.tokens_in or counts.tokens_out or pace.tokens_per_min)
    requests = [f"{pace.requests_per_min:,.0f} requests/min"] * asks
    return ", ".join(requests + [f"{pace.tokens_per_min:,.0f} tokens/min"] * reads)


def _cost(shot: RunSnapshot) -> str:
    cost = shot.run.counts.cost_usd
    if not cost:
        return ""
    projected = shot.projected_usd
    if projected is None or not shot.run.counts.open:
        return f"cost {dollars(cost)}"
    return f"cost {dollars(cost)}, about {dollars(projected)} in all"


def _budget(shot: RunSnapshot) -> str:
    allowed = shot.allowance
    if allowed is None:
        return ""
    return f"failures {allowed.share:.1%}, {allowed.share_max:.1%} allowed"


def hold_text(one: Held) -> str:
    """What holds items, how many and why, and what to type about it."""
    text = f"{one.what}, {one.waiting:,} waiting" + (f" ({with_store(one.why)})" if one.why else "")
    release = " and ".join(command(typed) for typed in one.commands)
    return f"{text}; to release it: {release}" if release else text


def is_paused(run: RunView) -> bool:
    """Whether somebody has paused it."""
    return run.status is RunStatus.PAUSED


def resume_paused(run: RunView) -> str:
    """The command that opens a paused run."""
    return command("perdure runs resume {}", run.no)


def _state(shot: RunSnapshot) -> str:
    if shot.stopping:
        return "stopping: what is in hand may end"
    if is_paused(shot.run):
        return f"the run is paused; to go on: {resume_paused(shot.run)}"
    return _STATE_WORDS.get(shot.run.status, f"the run is {shot.run.status.value}")


def _eta(shot: RunSnapshot) -> str:
    if shot.eta_s is None:
        return "unknown"
    return ("more than " if shot.feeding else "") + _time_words(shot.eta_s)


def _time_words(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def _escape_markup(text: str) -> str:
    """Text that is nobody's markup."""
    return text.replace("[", r"\[")
