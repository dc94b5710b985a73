"""How fast calls may start: slowly after a recovery, and then at the rate that the upstream admits.

Releasing a held queue at once trips the gate again or runs into the rate limit: in simulation 3.9
wasted calls per success after a minute's outage, against 0.03 with a slow start and a measured rate.

* **Slow start**: so many calls in flight, one more for each success. What is in flight doubles with
  every round trip, however long that is; no rate is needed, and no clock.
* **Paced**, from the first rate limit on: calls start at ``rate_per_s``. It falls to the measured
  rate, never stays below it, and climbs to find out whether more is admitted: by 1 % a second, and by
  one more for every 10 s without a limit. It never climbs above twice the measured rate; without that
  bound 0.3 calls are wasted per success. A limit met by a call from before the fall is old news.
* **Measured** are successes per second of the time in which calls were in flight or the pace itself
  kept the next one waiting, the recent past weighing more. Neither an idle hour nor a held gate makes
  an upstream look slow; but a worker whose share is one call in two seconds must not take its calls'
  own speed for a rate.
* What a success says about the **room** that is left can slow the pace down before the first limit
  is met: once half of it is used, the rest must last until the reset.

A pace is one worker's own and kept in memory; a worker that begins, starts slowly. Rates of several
workers add up, so each can run one on its slice. Time that runs backwards counts as none.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import exp, sqrt

from perdure.model.limits import DELAY_S_MAX
from perdure.rules.checked import number, whole

MEASURE_S_MAX = 3_600.0  # an hour ago the upstream was another
STILL_S_MAX = 900.0  # a limit that has been raised is found out within a quarter of an hour


@dataclass(frozen=True, slots=True)
class PaceSettings:
    """The knobs of a pace, for a simulation to turn.

    ``still_times``: after a limit the rate stays for so many times the pause that was asked for.
    ``measure_s``: what is that old weighs 1/e. ``burst_s``: how much of the rate is saved up while
    nobody asks; it should cover the time between two looks. ``room_s_max``: room that is renewed
    later than this is a quota, not a rate, and may be used up. Less than ``rate_min_per_s`` is no
    measurement.
    """

    start_calls: int = 1
    calls_max: int = 1_000
    rate_min_per_s: float = 0.01
    climb_per_s: float = 0.01
    quicken_s: float = 10.0
    still_times: float = 20.0
    measured_times_max: float = 2.0
    measure_s: float = 10.0
    burst_s: float = 0.25
    room_share: float = 0.5
    room_s_max: float = 60.0

    def __post_init__(self) -> None:
        whole("pace.calls_max", self.calls_max, 1, 1_000_000)
        whole("pace.start_calls", self.start_calls, 1, self.calls_max)
        number("pace.rate_min_per_s", self.rate_min_per_s, 0.001, 1_000.0)
        number("pace.climb_per_s", self.climb_per_s, 0.0, 1.0)
        number("pace.quicken_s", self.quicken_s, 0.1, 86_400.0)
        number("pace.still_times", self.still_times, 0.0, 1_000.0)
        number("pace.measured_times_max", self.measured_times_max, 1.0, 100.0)
        number("pace.measure_s", self.measure_s, 0.1, MEASURE_S_MAX)
        number("pace.burst_s", self.burst_s, 0.0, 60.0)
        number("pace.room_share", self.room_share, 0.0, 1.0)
        number("pace.room_s_max", self.room_s_max, 0.0, 86_400.0)


@dataclass(frozen=True, slots=True)
class Room:
    """What an answer's headers say: of ``limit`` calls so many remain until the reset."""

    remaining: int
    reset_at: datetime
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """A speed. ``rate_per_s`` is None in slow start, where ``allowance`` bounds the calls in flight.

    ``successes`` and ``watched_s`` are weighted by how recent they are; their ratio is the measured
    rate. ``tokens`` are the calls that the rate has saved up; too many calls make them a debt.
    """

    at: datetime
    allowance: int
    rate_per_s: float | None = None
    tokens: float = 1.0
    in_flight: int = 0
    successes: float = 0.0
    watched_s: float = 0.0
    fell_at: datetime | None = None
    still_until: datetime | None = None
    room: Room | None = None

    @property
    def measured_per_s(self) -> float:
        """Successes per second while calls were in flight."""
        return self.successes / self.watched_s if self.watched_s > 0 else 0.0


def shared(settings: PaceSettings, workers: int) -> PaceSettings:
    """The settings of one of so many workers that call the same upstream.

    Each climbs on its own, so each climbs by its share: four workers that climb by 1 % a second meet
    the limit four times as often as one does. Each sees a share of the successes, so it looks back for
    longer, or it would take chance for a rate. In simulation both together nearly halve the waste of four.
    """
    workers = max(workers, 1)
    return replace(
        settings,
        climb_per_s=settings.climb_per_s / workers,
        measure_s=min(settings.measure_s * sqrt(workers), MEASURE_S_MAX),
    )


def started(settings: PaceSettings, now: datetime, *, in_flight: int = 0) -> Pace:
    """Slow start: for a gate that flows anew, with what is still out, and for a new worker."""
    return Pace(at=now, allowance=settings.start_calls, in_flight=in_flight)


def admits(pace: Pace, settings: PaceSettings, now: datetime) -> int:
    """How many calls may start now."""
    pace = _forward(pace, settings, now)
    calls = pace.allowance if pace.rate_per_s is None else settings.calls_max
    if _rate(pace, now) is not None:
        calls = min(calls, pace.in_flight + int(pace.tokens))
    return max(calls - pace.in_flight, 0)


def opens_in_s(pace: Pace, settings: PaceSettings, now: datetime) -> float | None:
    """How long until a call may start; None where only the end of another call brings that about."""
    if admits(pace, settings, now) > 0:
        return 0.0
    pace = _forward(pace, settings, now)
    rate = _rate(pace, now)
    calls = pace.allowance if pace.rate_per_s is None else settings.calls_max
    if rate is None or pace.in_flight >= calls:
        return None
    wait_s = (1.0 - pace.tokens) / rate if rate > 0 else DELAY_S_MAX
    if pace.room is not None and now < pace.room.reset_at:
        wait_s = min(wait_s, (pace.room.reset_at - now).total_seconds())
    return wait_s


def in_force(pace: Pace, settings: PaceSettings, now: datetime) -> float | None:
    """The rate at which calls may start now; None in slow start."""
    return _rate(_forward(pace, settings, now), now)


def rises(pace: Pace, settings: PaceSettings, now: datetime) -> tuple[datetime, float] | None:
    """From when on the rate climbs while calls go well, and by which share a second; None where it does not."""
    if pace.rate_per_s is None or pace.fell_at is None:
        return None
    begins_at = now if pace.still_until is None else max(now, pace.still_until)
    quiet_s = max((begins_at - pace.fell_at).total_seconds(), 0.0)
    return begins_at, settings.climb_per_s * (1.0 + quiet_s / settings.quicken_s)


def began(pace: Pace, settings: PaceSettings, calls: int, now: datetime) -> Pace:
    """So many calls start."""
    pace = _forward(pace, settings, now)
    tokens = pace.tokens if _rate(pace, now) is None else pace.tokens - calls
    room = pace.room and replace(pace.room, remaining=pace.room.remaining - calls)
    return replace(pace, in_flight=pace.in_flight + calls, tokens=tokens, room=room)


def succeeded(pace: Pace, settings: PaceSettings, now: datetime, room: Room | None = None) -> Pace:
    """A call was answered as it should be."""
    pace = _landed(pace, settings, now)
    rate = pace.rate_per_s
    if rate is not None:  # before this success is counted: right after one, chance looks like more
        rate = max(rate, pace.measured_per_s)
    pace = replace(
        pace,
        allowance=min(pace.allowance + 1, settings.calls_max),
        successes=pace.successes + 1.0,
        rate_per_s=rate,
    )
    return pace if room is None else _heeding(pace, room, settings, now)


def failed(pace: Pace, settings: PaceSettings, now: datetime) -> Pace:
    """A call ended in another way; whether the upstream is sick is the gate's question."""
    return _landed(pace, settings, now)


def limited(
    pace: Pace, settings: PaceSettings, *, sent_at: datetime, now: datetime, wait_s: float = 0.0
) -> Pace:
    """A call met the upstream's rate limit: fall to what was measured, once for each episode.

    ``wait_s`` is the pause that it was told to make. The longer that is, the dearer is the next limit,
    so the longer the rate stays as it is before it climbs again.
    """
    pace = _landed(pace, settings, now)
    if pace.fell_at is not None and sent_at < pace.fell_at:
        return pace
    rate = pace.measured_per_s
    if rate < settings.rate_min_per_s:  # nothing to fall to, and a crawl would last: begin again
        return replace(pace, allowance=settings.start_calls, rate_per_s=None, fell_at=now)
    still_s = min(settings.still_times * wait_s, STILL_S_MAX)
    return replace(
        pace,
        rate_per_s=rate,
        tokens=0.0,
        fell_at=now,
        still_until=now + timedelta(seconds=still_s),
    )


def _landed(pace: Pace, settings: PaceSettings, now: datetime) -> Pace:
    pace = _forward(pace, settings, now)
    return replace(pace, in_flight=max(pace.in_flight - 1, 0))


def _heeding(pace: Pace, room: Room, settings: PaceSettings, now: datetime) -> Pace:
    ample = room.limit is not None and room.remaining > room.limit * settings.room_share
    left_s = (room.reset_at - now).total_seconds()
    if ample or not 0 < left_s <= settings.room_s_max:
        return replace(pace, room=None)
    return replace(pace, room=room, tokens=min(pace.tokens, float(room.remaining)))


def _rate(pace: Pace, now: datetime) -> float | None:
    """The rate in force: that of the pace, or less where the room that is left must last."""
    if pace.room is None or now >= pace.room.reset_at:
        return pace.rate_per_s
    lasting = max(pace.room.remaining, 0) / (pace.room.reset_at - now).total_seconds()
    return lasting if pace.rate_per_s is None else min(lasting, pace.rate_per_s)


def _forward(pace: Pace, settings: PaceSettings, now: datetime) -> Pace:
    """The pace brought forward to ``now``."""
    passed_s = (now - pace.at).total_seconds()
    if passed_s <= 0:
        return pace
    pace = _watched(pace, settings, _busy_s(pace, passed_s))
    if pace.in_flight > 0:
        pace = _climbed(pace, settings, passed_s)
    rate = _rate(pace, now)
    if rate is None:
        return replace(pace, at=now)
    saved_max = max(rate * settings.burst_s, 1.0)
    return replace(pace, at=now, tokens=min(pace.tokens + rate * passed_s, saved_max))


def _busy_s(pace: Pace, passed_s: float) -> float:
    """The part of that time in which calls were in flight, or waited for this very pace."""
    if pace.in_flight > 0:
        return passed_s
    if pace.rate_per_s is None or pace.tokens >= 1.0:
        return 0.0
    return min(passed_s, (1.0 - pace.tokens) / pace.rate_per_s)


def _watched(pace: Pace, settings: PaceSettings, passed_s: float) -> Pace:
    if passed_s <= 0:
        return pace
    kept = exp(-passed_s / settings.measure_s)
    watched_s = pace.watched_s * kept + settings.measure_s * (1.0 - kept)
    return replace(pace, successes=pace.successes * kept, watched_s=watched_s)


def _climbed(pace: Pace, settings: PaceSettings, passed_s: float) -> Pace:
    if pace.rate_per_s is None or pace.fell_at is None:
        return pace
    if pace.still_until is not None:
        passed_s -= max((pace.still_until - pace.at).total_seconds(), 0.0)
        if passed_s <= 0:
            return pace
    quiet_s = max((pace.at - pace.fell_at).total_seconds(), 0.0) + passed_s
    climb_per_s = settings.climb_per_s * (1.0 + quiet_s / settings.quicken_s)
    bound = max(pace.rate_per_s, settings.measured_times_max * pace.measured_per_s)
    return replace(pace, rate_per_s=min(pace.rate_per_s * (1.0 + climb_per_s * passed_s), bound))
