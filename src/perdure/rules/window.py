"""The sliding window of a gate: what the latest calls to an upstream came to.

A call is noted when it is *sent* and holds its place in that order; its result fills the place in.
So a slow answer from before an outage cannot pass for news, however late it comes.

* Places are ordered by (generation, sent, name). Of the calls that have ended the last
  ``calls`` count. Calls still in flight are kept but do not push ended ones out: with a hundred in
  flight and a window of twenty nothing would ever be seen otherwise.
* Failures are mostly quicker than answers. A call that is in flight for longer than calls usually take
  to fail counts as one that did not: otherwise, with answers of 30 s and failures of a second, the
  latest calls that have ended would all be failures, and one call in ten enough to hold a queue.
* A failure is a kind that counts for a gate. Every other failure (a rate limit, a request that is
  wrong, a cancelled call…) gives its place back and is neither: as a success it would hide an
  outage behind a caller's own mistakes, as a failure it would hold everybody's queue for them.
* With ``window_s`` only calls that *ended* within it count. Their end, not their start: a window
  shorter than a call's timeout would otherwise never see a timeout.
* A window is one worker's and mergeable: a call is noted by the worker that sent it and by no one
  else, and merging is the union, an ended call before one in flight. Order and repetition do not
  matter.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from perdure.model.errors import ConfigError
from perdure.model.kinds import KINDS, Kind
from perdure.model.limits import DELAY_S_MAX
from perdure.rules.checked import number, whole
from perdure.rules.words import seconds

WINDOW_CALLS_MAX = 1_000  # a window is read as a whole for each result
IN_FLIGHT_MAX = 1_000  # calls without a result that a window remembers; the oldest are forgotten


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """When a window is sick: ``fail_share`` of the last ``calls``, once ``calls_min`` have ended.

    ``window_s`` leaves out what ended longer ago. With ``slow_s`` a call that took that long is
    slow, and ``slow_share`` of slow calls is as bad as failures.
    """

    calls: int = 20
    calls_min: int = 10
    fail_share: float = 0.5
    window_s: float | None = None
    slow_s: float | None = None
    slow_share: float = 0.8

    def __post_init__(self) -> None:
        whole("window.calls", self.calls, 1, WINDOW_CALLS_MAX)
        whole("window.calls_min", self.calls_min, 1, self.calls)
        _share("window.fail_share", self.fail_share)
        if self.window_s is not None:
            number("window.window_s", self.window_s, 1.0, DELAY_S_MAX)
        if self.slow_s is not None:
            number("window.slow_s", self.slow_s, 0.001, DELAY_S_MAX)
        _share("window.slow_share", self.slow_share)


@dataclass(frozen=True, slots=True)
class Sample:
    """One call. ``failed`` is None while it is in flight; ``name`` is unique among all calls."""

    generation: int
    sent_at: datetime
    name: str
    failed: bool | None = None
    took_s: float = 0.0

    @property
    def place(self) -> tuple[int, datetime, str]:
        """Where the call stands among the others, from the moment it is sent."""
        return (self.generation, self.sent_at, self.name)


@dataclass(frozen=True, slots=True)
class Window:
    """Calls in order of their places."""

    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """How many calls are judged, and how many of them failed or were slow."""

    known: int
    failed: int
    slow: int


def sent(
    window: Window, settings: WindowSettings, *, name: str, generation: int, now: datetime
) -> Window:
    """A call starts, under the generation of the gate that let it pass."""
    return merged(settings, window, Window((Sample(generation, now, name),)))


def ended(
    window: Window, settings: WindowSettings, *, name: str, kind: Kind | None, took_s: float
) -> Window:
    """A call's result fills its place in; ``kind`` is None for a success.

    A call that the window does not know, or that has ended already, changes nothing.
    """
    kept = tuple(
        after
        for sample in window.samples
        for after in (_filled(sample, kind, took_s) if sample.name == name else (sample,))
    )
    return Window(_pruned(kept, settings))


def merged(settings: WindowSettings, *windows: Window) -> Window:
    """The windows of several workers as one."""
    known: dict[tuple[int, datetime, str], Sample] = {}
    for sample in (sample for window in windows for sample in window.samples):
        there = known.get(sample.place)
        if there is None or there.failed is None:
            known[sample.place] = sample
    return Window(_pruned((known[place] for place in sorted(known)), settings))


def reading(
    window: Window, settings: WindowSettings, *, counts_from: int, now: datetime
) -> Reading:
    """What the last calls came to; calls of a generation before ``counts_from`` are history.

    ``known`` are those that have ended or, so far, not failed.
    """
    last = [sample for sample in window.samples if sample.failed is not None][-settings.calls :]
    quick_s = _failing_s(last)
    if quick_s is not None:
        last = [
            sample
            for sample in window.samples
            if sample.failed is not None or _outlasts(sample, quick_s, now)
        ][-settings.calls :]
    counted = [
        sample
        for sample in last
        if sample.generation >= counts_from and _recent(sample, settings, now)
    ]
    slow_s = settings.slow_s
    return Reading(
        known=len(counted),
        failed=sum(sample.failed is True for sample in counted),
        slow=0 if slow_s is None else sum(sample.took_s >= slow_s for sample in counted),
    )


def sickness(found: Reading, settings: WindowSettings) -> str | None:
    """Why the upstream counts as sick, in words; None while it does not."""
    if found.known < settings.calls_min:
        return None
    if found.failed / found.known >= settings.fail_share:
        return f"{found.failed} of the last {found.known} calls failed"
    if settings.slow_s is not None and found.slow / found.known >= settings.slow_share:
        return (
            f"{found.slow} of the last {found.known} calls took {seconds(settings.slow_s)} or more"
        )
    return None


def _failing_s(ended: list[Sample]) -> float | None:
    """How long a call usually takes to fail; None where none has failed."""
    took_s = sorted(sample.took_s for sample in ended if sample.failed)
    return took_s[len(took_s) // 2] if took_s else None


def _outlasts(sample: Sample, quick_s: float, now: datetime) -> bool:
    return (now - sample.sent_at).total_seconds() > quick_s


def _filled(sample: Sample, kind: Kind | None, took_s: float) -> tuple[Sample, ...]:
    if sample.failed is not None:
        return (sample,)
    if kind is not None and not KINDS[kind].counts_for_gate:
        return ()
    return (replace(sample, failed=kind is not None, took_s=took_s),)


def _pruned(samples: Iterable[Sample], settings: WindowSettings) -> tuple[Sample, ...]:
    """What can still matter: a call with enough ended calls after it never counts again."""
    kept: list[Sample] = []
    ended_left, in_flight_left = settings.calls, IN_FLIGHT_MAX
    for sample in reversed(tuple(samples)):
        if sample.failed is None:
            in_flight_left -= 1
            if in_flight_left >= 0:
                kept.append(sample)
        elif ended_left > 0:
            ended_left -= 1
            kept.append(sample)
    return tuple(reversed(kept))


def _recent(sample: Sample, settings: WindowSettings, now: datetime) -> bool:
    if settings.window_s is None or sample.failed is None:
        return True
    return (now - sample.sent_at).total_seconds() - sample.took_s <= settings.window_s


def _share(field: str, value: float) -> None:
    number(field, value, 0.0, 1.0)
    if value == 0:
        raise ConfigError(f"{field} is {value!r}; a share of nothing would hold a healthy upstream")
