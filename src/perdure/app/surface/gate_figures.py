"""What workers have told about a gate, for people: their calls, the pace of each, and who has which
slice of its limits.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from perdure.app.surface.moments import Moment
from perdure.engine.gates.changes import gate_of
from perdure.engine.gates.limit_shares import NOBODY, slices_in
from perdure.engine.gates.pacing import PaceShown, PaceTold, pace_in
from perdure.engine.gates.traffic import window_in
from perdure.model.gates import GateLook
from perdure.rules.gate.limit_allowance import UpstreamLimits
from perdure.rules.gate.window import Reading, WindowSettings, merge, reading


class WorkerPace(Struct, frozen=True):
    """The pace of one worker that is alive, as it told it at ``told_at``; ``name`` is its host and process."""

    worker: int
    name: str
    told_at: Moment
    pace: PaceShown

    def says(self, now: datetime) -> str:
        """What it is, what it was, why it changed, and when it rises."""
        one = self.pace
        was = "no rate" if one.was_per_s is None else per_s(one.was_per_s)
        ago = f"{_time_words(now - one.changed_at)} ago: {one.reason}"
        if one.rate_per_s is None:
            text = f"no rate is set, up to {one.calls_max:,} in flight and one more with each success; half of them begin at once"
            return f"{text} ({ago})" if one.was_per_s is None else f"{text} (was {was}, {ago})"
        text = f"{per_s(one.rate_per_s)} calls a second (was {was}, {ago})"
        if one.rises_at is None:
            return text
        text += f"; rises by {one.rise_per_s * 100:.2g} % a second"
        return (
            text
            if one.rises_at <= now
            else f"{text} from {_time_words(one.rises_at - now)} from now on"
        )


class SliceShown(Struct, frozen=True):
    """What one worker has of an upstream's limits until ``until``, and what it could use."""

    worker: int
    name: str
    alive: bool
    calls: int
    calls_wanted: int
    share: float
    share_wanted: float
    until: Moment

    def says(self, limits: UpstreamLimits | None, now: datetime) -> str:
        """What it has, until when, and whether it waits for more; of limits that nobody has told, all parts."""
        at_once = limits is None or limits.concurrency is not None
        rates = limits is None or (limits.calls_per_s, limits.tokens_per_s) != (None, None)
        whole = "" if limits is None else f" of {limits.concurrency}"
        has = [f"{self.calls}{whole} calls at once"] * at_once
        has += [f"{self.share * 100:.0f} % of the rates"] * rates
        if not self.alive or self.until <= now:
            over = "its lease is over" if self.alive else "the worker is dead"
            return f"{', '.join(has)}; {over}: this is free"
        lacks = [f"{self.calls_wanted} calls"] * (at_once and self.calls < self.calls_wanted)
        short = rates and self.share + 0.005 < self.share_wanted
        lacks += [f"{self.share_wanted * 100:.0f} % of the rates"] * short
        text = f"{', '.join(has)}, for {_time_words(self.until - now)} more"
        if not lacks:
            return text
        return f"{text}; could use {' and '.join(lacks)}: the rest is in other slices"


class GateFigures(Struct, frozen=True):
    """All of that for one gate; ``limits`` are None where no worker has told them.

    ``window`` is what the latest calls of all workers came to.
    """

    paces: tuple[WorkerPace, ...] = ()
    slices: tuple[SliceShown, ...] = ()
    limits: UpstreamLimits | None = None
    window: Reading = Reading(0, 0)

    @property
    def window_says(self) -> str:
        """What the window counts, and what it leaves out; empty where nobody has called."""
        one = self.window
        if not one.known and not one.left_out:
            return ""
        return f"{one.failed} of the last {one.known} calls that count failed{one.besides}"

    @property
    def rate_per_s(self) -> float | None:
        """The rates of all workers together; None where none has one."""
        rates = [one.pace.rate_per_s for one in self.paces if one.pace.rate_per_s is not None]
        return sum(rates) if rates else None

    @property
    def pace_says(self) -> str:
        """The rate of all together, what it was, since when, and whether it climbs; empty where there is none."""
        paced = [one for one in self.paces if one.pace.rate_per_s is not None]
        if self.rate_per_s is None:
            return ""
        text = f"paced: {per_s(self.rate_per_s)} calls a second"
        was = [one.pace.was_per_s for one in paced if one.pace.was_per_s is not None]
        if len(was) == len(paced):
            text += f" (was {per_s(sum(was))})"
        if len(paced) < len(self.paces):
            text += f" in {len(paced)} of {len(self.paces)} workers"
        first = min(paced, key=lambda one: one.pace.changed_at)
        text += f" since {_moment_words(first.pace.changed_at, first.told_at)}"
        rising = [(one.pace.rises_at, one.told_at) for one in paced if one.pace.rises_at]
        if not rising:
            return text
        rises_at, told_at = min(rising)
        if rises_at <= told_at:
            return f"{text}, climbing"
        return f"{text}, climbs from {_moment_words(rises_at, told_at)} on"

    @property
    def limits_say(self) -> str:
        """The limits as they were declared."""
        known = self.limits or UpstreamLimits()
        rates = ((known.calls_per_s, "calls"), (known.tokens_per_s, "tokens"))
        at_once = [] if known.concurrency is None else [f"{known.concurrency} calls at once"]
        return ", ".join(
            at_once + [f"{per_s(rate)} {what} a second" for rate, what in rates if rate is not None]
        )


def figures(look: GateLook, names: Mapping[int, str]) -> dict[str, GateFigures]:
    """What is known of each gate; ``names`` are those of the workers."""
    told = {(one.gate, one.worker): (one, pace_in(one.samples_json)) for one in look.samples}
    gates = {gate for gate, _ in told} | {one.gate for one in look.slices}
    return {
        gate: GateFigures(
            tuple(
                WorkerPace(one.worker, names.get(one.worker, ""), one.saved_at, said.pace)
                for (of, _), (one, said) in sorted(told.items())
                if of == gate and said.pace is not None
            ),
            _slices(look, gate, names),
            _limits(said for (of, _), (_, said) in told.items() if of == gate),
            _reading(look, gate, [said for (of, _), (_, said) in told.items() if of == gate]),
        )
        for gate in gates
    }


def _reading(look: GateLook, gate: str, told: Sequence[PaceTold]) -> Reading:
    calls = max((one.window_calls for one in told), default=WindowSettings().calls)
    settings = WindowSettings(calls=calls, calls_min=1)
    windows = [window_in(one.samples_json) for one in look.samples if one.gate == gate]
    counts_from = max(
        (gate_of(row).counts_from for row in look.rows if row.name == gate), default=0
    )
    window = merge(settings, *(one for one in windows if one is not None))
    return reading(window, settings, counts_from=counts_from, now=look.now)


def _slices(look: GateLook, gate: str, names: Mapping[int, str]) -> tuple[SliceShown, ...]:
    parted = [slices_in(one.slices_json) for one in look.slices if one.gate == gate]
    return tuple(
        SliceShown(
            no,
            names.get(no, ""),
            no in look.alive,
            one.calls,
            one.wanted_calls,
            round(one.share, 4),
            round(one.wanted, 4),
            one.until,
        )
        for part in parted
        for no, one in sorted(part.items())
        if no != NOBODY
    )


def _limits(told: Iterable[PaceTold]) -> UpstreamLimits | None:
    return next((one.limits for one in told if one.limits is not None), None)


def per_s(rate: float) -> str:
    """A rate, as long as it need be."""
    return f"{rate:.1f}" if rate >= 1 else f"{rate:.2g}"


def _moment_words(moment: datetime, now: datetime) -> str:
    """A moment in UTC, with its day where that is not today."""
    day = "" if moment.date() == now.date() else "%Y-%m-%d "
    return f"{moment.astimezone(UTC):{day}%H:%M} UTC"


def _time_words(time: timedelta) -> str:
    time_s = max(time.total_seconds(), 0.0)
    return f"{time_s:.0f} s" if time_s < 120 else f"{time_s / 60:.0f} min"
