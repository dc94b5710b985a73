"""Pictures of a scenario: calls over time, the queue's depth, the gate's state. Needs matplotlib."""

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from perdure.model.errors import ConfigError
from perdure.simulate.run_history import RunHistory
from perdure.simulate.scene import Scene

_POINTS_MAX = 300  # of one curve; more is no longer seen, and an SVG holds every one of them
_COLOURS = ("#0b6e4f", "#c1440e", "#5b5f97", "#8a8d91")
_STATES = {"held": "#f2c0b4", "probing": "#e0523a"}


def require_matplotlib() -> Any:
    """The figure class, drawing without a screen; the error names the extra."""
    try:
        figures = import_module("matplotlib.figure")
    except ImportError:
        raise ConfigError(
            "pictures need matplotlib, which is not installed; install perdure[sim]"
        ) from None
    settings = import_module("matplotlib").rcParams
    settings["svg.hashsalt"] = "perdure"  # same run, same picture
    settings["svg.fonttype"] = "none"  # letters as letters: half the size
    return figures.Figure


def draw(
    scene: Scene, plays: Sequence[tuple[str, RunHistory]], folder: Path, *, forms: Iterable[str]
) -> list[Path]:
    """One picture of a scene in each form (png, svg); the first of ``plays`` has the gate."""
    figure_of = require_matplotlib()
    figure = figure_of(figsize=(8.0, 6.0), layout="constrained")
    calls, depth, gate = figure.subplots(
        3, 1, sharex=True, gridspec_kw={"height_ratios": [3, 3, 0.5]}
    )
    end_s = max(history.finished_s for _, history in plays[:1]) * 1.5 + 1.0
    for (title, history), colour in zip(plays, _COLOURS, strict=False):
        _line(calls, *_calls(history, end_s), title.replace("*", ""), colour)
        _line(depth, *_depth(history, end_s), title.replace("*", ""), colour)
    _axes(scene, calls, depth, gate)
    _states(gate, plays[0][1], end_s)
    gate.set_xlim(0.0, end_s)
    written = []
    for form in forms:
        path = folder / f"{scene.name}.{form}"
        metadata = {"Date": None} if form == "svg" else {"Software": None}
        figure.savefig(path, format=form, dpi=110, metadata=metadata)
        written.append(path)
    return written


def _axes(scene: Scene, calls: Any, depth: Any, gate: Any) -> None:
    calls.set_title(f"{scene.name}: {scene.title}", loc="left", fontsize=10)
    calls.set_ylabel("calls per second")
    calls.set_yscale("symlog", linthresh=10)
    limit_per_s = scene.upstream.full_per_s
    if limit_per_s is not None:
        calls.axhline(limit_per_s, color="#999999", linewidth=0.8, linestyle=":")
    depth.set_ylabel("jobs waiting")
    gate.set_yticks([])
    gate.set_ylabel("gate", rotation=0, ha="right", va="center")
    gate.set_xlabel("seconds; light: held, dark: probing; grey: the upstream is down")
    for from_s, until_s in scene.upstream.outages_s:
        for axes in (calls, depth):
            axes.axvspan(from_s, until_s, color="#eeeeee", linewidth=0)
    calls.legend(fontsize=8, frameon=False)


def _line(axes: Any, xs: list[float], ys: list[float], title: str, colour: str) -> None:
    axes.plot(xs, ys, label=title, color=colour, linewidth=1.1)


def _calls(history: RunHistory, end_s: float) -> tuple[list[float], list[float]]:
    step_s = max(1.0, end_s / _POINTS_MAX)
    counts = Counter(int(start_s / step_s) for start_s in history.starts_s if start_s <= end_s)
    bins = range(int(min(end_s, history.ended_s) / step_s) + 1)
    return [n * step_s for n in bins], [counts[n] / step_s for n in bins]


def _depth(history: RunHistory, end_s: float) -> tuple[list[float], list[float]]:
    known = sorted(second for second in history.depth if second <= end_s)
    step = max(1, len(known) // _POINTS_MAX)
    chosen = known[::step]
    return [float(second) for second in chosen], [float(history.depth[second]) for second in chosen]


def _states(axes: Any, history: RunHistory, end_s: float) -> None:
    """Spans of the same state; of the many short ones in a long outage only what can be seen."""
    axes.set_ylim(0.0, 1.0)
    changes = [*history.gate, (min(history.ended_s, end_s), "end")]
    for (from_s, state), (until_s, _) in pairwise(changes):
        if state not in _STATES or from_s >= end_s:
            continue
        width_s = max(until_s - from_s, end_s / 1_000)
        axes.axvspan(from_s, from_s + width_s, color=_STATES[state], linewidth=0)
