"""How fast calls may start: slowly after a recovery, and then at the rate that the upstream admits.

Releasing a held queue at once trips the gate again or runs into the rate limit: in simulation 3.9
wasted calls per success after a minute's outage, against 0.03 with a slow start and a measured rate.

* **Slow start**: so many calls in flight, one more for each answer, so at most twice as many with every round trip.
  Half of them may begin at once; the others, from six admitted calls on, at no more than six times the measured rate
  (three and three where four workers start): in waves, a limit would refuse half of the last. After an outage it goes
  up to the rate of before. While fewer than ten were admitted lately, or twenty where refusals are isolated, these only
  halve what may be in flight: their rate is the start's own.
* **Paced**, from the first refusal on: calls start at ``rate_per_s``. It falls to the measured rate
  and never stays below it. Then it climbs, to find out whether more is admitted: quickly while it is well below
  the rate that was refused last, or 1.45 times what a start had measured. Near that rate it climbs by 0.3 % a second,
  and by as much more for every 30 s without a refusal; well above it, where hardly any call is refused, by 2 % at least,
  or less after a long hint. It never climbs above twice the measured rate; without that bound 0.3 calls are wasted per
  success. It climbs while calls are in flight or wait for it, and refusals are forgotten with time, too: a crawl would
  last for ever otherwise.
* **Strained**: calls time out, or the upstream says that it is overloaded. Then half as many are in flight,
  and one more with every round trip.
* **Noise**: a share of refusals, or of timeouts, that stays when calls are fewer has nothing to do with
  our speed. It is learned while the pace stands still after a fall, and nobody slows down for it. A spell of much
  noise is over when chance would let so many calls in a row pass once in a hundred times: then slow start again.
* **Measured** are admitted calls per second of the time in which calls were in flight or the pace itself
  kept the next one waiting, the recent past weighing more. Neither an idle hour nor a held gate makes
  an upstream look slow; but a worker whose share is one call in two seconds must not take its calls'
  own speed for a rate. A call that failed on the upstream's side was admitted all the same.
* What an answer says about the **room** that is left can slow the pace down before the first limit
  is met: once half of it is used, the rest must last until the reset.

A pace is one worker's own and kept in memory; a worker that begins, starts slowly. Rates of several
workers add up, so each can run one on its slice. Time that runs backwards counts as none; a clock that was put back counts from there.
"""

from datetime import datetime
from math import exp

from msgspec import Struct

from perdure.model.kinds import Kind, Sign
from perdure.model.limits import DELAY_S_MAX
from perdure.model.nouns import replace
from perdure.rules.gate.pace_settings import REST_S_MAX, PaceSettings
from perdure.rules.gate.pace_trouble import CALM, Trouble
from perdure.rules.gate.signs import Word
from perdure.rules.hints.calls_left import Room

STILL_S_MAX = 900.0  # a limit that has been raised is found out within a quarter of an hour
STILL_S_MIN = 2.0  # after a fall, to see whether it was of any use
DEAR_S = 5.0  # a hold of this length is worth some care afterwards
_NEAR = 0.08  # so close to the rate that was refused it climbs slowly; beyond that it is forgotten
# As many refusals among the latest calls end a slow start where most others were admitted.
_MANY = 0.25
# Calls admitted lately; a rate that is measured from fewer is our own slow start, and where refusals are isolated
# many of them beside fewer may be chance.
_KNOWN = 10.0
_KNOWN_ISOLATED = 20.0
_ALL = 0.5  # so many refusals among the latest calls are as good as all
_RARE = 0.06  # with fewer the rate may climb as if there were no limit,
_BEYOND = 12.0  # by no less than an e-fold in so many times the time in which a refused rate is found again,
_NOISY = 0.04  # and so it may where so much is noise: then what was refused may have been no limit
_START = 1.45  # a start that ends has measured its own slow beginning; so many times that was refused, as far as we know
_AT_ONCE = 0.5  # of what may be in flight in a slow start; else who looks seldom would not grow
_PUT_BACK_S = 5.0  # what is out of order is never so far apart
STRAINS = frozenset({Kind.TIMEOUT, Kind.OVERLOADED})


class Pace(Struct, frozen=True):
    """A speed. ``rate_per_s`` is None in slow start, where ``allowance`` bounds the calls in flight.

    ``admitted`` and ``watched_s`` are weighted by how recent they are; their ratio is the measured
    rate. ``tokens`` are the calls that the rate has saved up; too many calls, and a rest, make them a debt.
    ``refused_per_s`` is the rate at which calls were refused last. From ``knee`` on, ``allowance`` grows
    by one with every round trip, and no longer by one with every answer.
    """

    at: datetime
    allowance: float
    rate_per_s: float | None = None
    tokens: float = 1.0
    in_flight: int = 0
    admitted: float = 0.0
    watched_s: float = 0.0
    refused_per_s: float = 0.0
    find_s: float = 4.0
    rests: int = 0
    knee: float | None = None
    limit: Trouble = CALM
    strain: Trouble = CALM
    room: Room | None = None

    @property
    def measured_per_s(self) -> float:
        """Admitted calls per second while calls were in flight."""
        return self.admitted / self.watched_s if self.watched_s > 0 else 0.0


def slow_start(
    settings: PaceSettings,
    now: datetime,
    *,
    in_flight: int = 0,
    before: Pace | None = None,
    proved: bool = False,
) -> Pace:
    """Slow start: for a gate that flows anew, with what is still out, and for a new worker.

    Of the pace ``before`` only stays how much the upstream could bear and, where a probe has ``proved`` that it is back,
    at which rate: the start is as slow, and ends there. The rate of a time when many were refused may be a crawl.
    """
    knee = None if before is None else before.knee
    fresh = Pace(at=now, allowance=settings.start_calls, in_flight=in_flight, knee=knee)
    if before is None or not proved or before.rate_per_s is None or before.limit.share >= _MANY:
        return fresh
    limit, knee = CALM.after_fall(now, STILL_S_MIN), knee or float(settings.calls_max)
    return replace(fresh, rate_per_s=before.rate_per_s, knee=knee, limit=limit)


def admits(pace: Pace, settings: PaceSettings, now: datetime) -> int:
    """How many calls may start now."""
    pace = _forward(pace, settings, now)
    calls = calls_max(pace, settings)
    if _start_rate(pace, settings, now) is not None:
        starting = _rate(pace, now) is None
        at_once = max(int(calls * _AT_ONCE), settings.start_calls) if starting else 0
        calls = min(calls, max(pace.in_flight + int(pace.tokens), at_once))
    return max(calls - pace.in_flight, 0)


def opens_in_s(pace: Pace, settings: PaceSettings, now: datetime) -> float | None:
    """How long until a call may start; None where only the end of another call brings that about."""
    if admits(pace, settings, now) > 0:
        return 0.0
    pace = _forward(pace, settings, now)
    rate = _start_rate(pace, settings, now)
    if rate is None or pace.in_flight >= calls_max(pace, settings):
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
    fell_at, still_until = pace.limit.fell_at, pace.limit.still_until
    if pace.rate_per_s is None or fell_at is None:
        return None
    begins_at = now if still_until is None else max(now, still_until)
    if pace.rate_per_s < pace.refused_per_s * (1.0 - _NEAR):
        return begins_at, (pace.refused_per_s / pace.rate_per_s - 1.0) / pace.find_s
    quiet_s = max((begins_at - fell_at).total_seconds(), 0.0)
    return begins_at, _climbs_per_s(pace, settings, pace.rate_per_s, now, quiet_s)


def after_starts(pace: Pace, settings: PaceSettings, calls: int, now: datetime) -> Pace:
    """So many calls start."""
    pace = _forward(pace, settings, now)
    tokens = pace.tokens if _start_rate(pace, settings, now) is None else pace.tokens - calls
    room = pace.room and replace(pace.room, remaining=pace.room.remaining - calls)
    return replace(pace, in_flight=pace.in_flight + calls, tokens=tokens, room=room)


def after_end(
    pace: Pace,
    settings: PaceSettings,
    word: Word,
    *,
    sent_at: datetime,
    now: datetime,
    wait_s: float = 0.0,
    room: Room | None = None,
    isolated: bool = False,
) -> Pace:
    """A call has ended so; the other words are those of `after_refusal`.

    One that says nothing about its upstream was not turned away, so its start was admitted.
    """
    if word.refuses:
        return after_refusal(
            pace, settings, sent_at=sent_at, now=now, wait_s=wait_s, isolated=isolated
        )
    if word.kind in STRAINS:
        return after_strain(pace, settings, sent_at=sent_at, now=now)
    if word.sign is Sign.BAD and not word.admitted:
        return after_failure(pace, settings, now)
    well = word.sign is not Sign.BAD
    return after_answer(pace, settings, sent_at=sent_at, now=now, room=room, well=well)


def after_answer(
    pace: Pace,
    settings: PaceSettings,
    *,
    sent_at: datetime,
    now: datetime,
    room: Room | None = None,
    well: bool = True,
) -> Pace:
    """A call was admitted; not ``well`` where it failed on the upstream's side then."""
    pace = _without_call(pace, settings, now)
    rate = pace.rate_per_s
    if rate is not None:  # before this one is counted: right after one, chance looks like more
        rate = max(rate, pace.measured_per_s)
    news = pace.limit.is_news(sent_at)
    pace = replace(
        pace,
        allowance=_next_allowance(pace, settings) if well else pace.allowance,
        admitted=pace.admitted + 1.0,
        rate_per_s=rate,
        rests=0 if news else pace.rests,
        limit=pace.limit.after_call(False, sent_at),
        strain=pace.strain.after_call(False, sent_at),
    )
    if rate is not None and pace.limit.is_over:
        calls = float(max(pace.in_flight, settings.start_calls))
        limit = replace(CALM, luck=pace.limit.luck)
        pace = replace(pace, allowance=calls, rate_per_s=None, refused_per_s=0.0, limit=limit)
    return pace if room is None else _keep_room(pace, room, settings, now)


def after_failure(pace: Pace, settings: PaceSettings, now: datetime) -> Pace:
    """A call came to nothing; whether the upstream is down is the gate's question."""
    return _without_call(pace, settings, now)


def after_refusal(
    pace: Pace,
    settings: PaceSettings,
    *,
    sent_at: datetime,
    now: datetime,
    wait_s: float = 0.0,
    isolated: bool = False,
) -> Pace:
    """A call met the upstream's rate limit: fall to what was measured, once for each episode.

    ``wait_s`` is the pause that it was told to make. The longer that is, the dearer is the next limit,
    so the longer the rate stays as it is before it climbs again. ``isolated``: hardly any other was refused.
    """
    pace = _without_call(pace, settings, now)
    before = pace.limit
    limit = before.after_call(True, sent_at)
    pace = replace(pace, limit=limit)
    useless = before.stands(sent_at) or limit.is_noise(settings.slack_share)
    starting, many = pace.rate_per_s is None, limit.share >= _MANY
    if not before.is_news(sent_at) or (isolated and (useless or (starting and not many))):
        return pace
    rate = pace.measured_per_s
    if rate < settings.rate_min_per_s:  # nothing to fall to, and a crawl would last: begin again
        return _begin_again(pace, settings, now, told=wait_s > 0)
    known = _KNOWN_ISOLATED if isolated else _KNOWN
    if starting and pace.admitted < known and (isolated or not many):
        half = max(pace.allowance / 2.0, float(settings.start_calls))
        return replace(pace, allowance=half, limit=limit.after_fall(now, 0.0))
    still_s, rest_s, rests = STILL_S_MIN, 0.0, pace.rests
    if not isolated:
        if not wait_s:
            rest_s, rests = min(settings.rest_s * 2.0**rests, REST_S_MAX), rests + 1
        still_s = max(STILL_S_MIN, min(settings.still_times * (wait_s or rest_s), STILL_S_MAX))
    return replace(
        pace,
        rate_per_s=rate,
        refused_per_s=_START * rate if pace.rate_per_s is None else (pace.rate_per_s + rate) / 2.0,
        find_s=max(settings.find_s, wait_s),
        tokens=-rate * rest_s,
        rests=rests,
        limit=limit.after_fall(now, still_s),
    )


def _begin_again(pace: Pace, settings: PaceSettings, now: datetime, *, told: bool) -> Pace:
    """Nothing was admitted for long. Where all is refused, and nobody says until when, one call at a time tries."""
    limit = pace.limit.after_fall(now, 0.0)
    if told or limit.share < _ALL:
        return replace(pace, allowance=settings.start_calls, rate_per_s=None, limit=limit)
    rest_s = min(settings.rest_s * 2.0**pace.rests, REST_S_MAX)
    return replace(
        pace,
        rate_per_s=1.0,
        refused_per_s=0.0,
        tokens=1.0 - rest_s,
        rests=pace.rests + 1,
        limit=limit,
    )


def after_hold(pace: Pace, settings: PaceSettings, *, held_s: float, now: datetime) -> Pace:
    """A hold after a refusal is over: a pace that was still in slow start gets a rate now, if the hold was long."""
    pace = _forward(pace, settings, now)
    rate = pace.measured_per_s
    if held_s < DEAR_S or pace.rate_per_s is not None or rate < settings.rate_min_per_s:
        return pace
    limit, find_s = pace.limit.after_fall(now, STILL_S_MIN), max(settings.find_s, held_s)
    return replace(pace, rate_per_s=rate, refused_per_s=0.0, tokens=1.0, limit=limit, find_s=find_s)


def after_strain(pace: Pace, settings: PaceSettings, *, sent_at: datetime, now: datetime) -> Pace:
    """A call timed out, or was told that the upstream is overloaded: fewer at once, once for each episode."""
    pace = _without_call(pace, settings, now)
    news = pace.strain.is_news(sent_at)
    pace = replace(pace, strain=pace.strain.after_call(True, sent_at))
    down = pace.measured_per_s < settings.rate_min_per_s  # and not weak: that is the gate's case
    if down or not news or pace.strain.share < settings.strain_share:
        return pace
    knee = max((pace.in_flight + 1) / 2.0, float(settings.start_calls))
    return replace(pace, allowance=knee, knee=knee, strain=pace.strain.after_fall(now, 0.0))


def calls_max(pace: Pace, settings: PaceSettings) -> int:
    """How many calls may be in flight at once."""
    bounded = pace.rate_per_s is None or pace.knee is not None
    return int(pace.allowance) if bounded else settings.calls_max


def _next_allowance(pace: Pace, settings: PaceSettings) -> float:
    past_knee = pace.knee is not None and pace.allowance >= pace.knee
    more = 1.0 / pace.allowance if past_knee else 1.0
    return min(pace.allowance + more, settings.calls_max)


def _without_call(pace: Pace, settings: PaceSettings, now: datetime) -> Pace:
    pace = _forward(pace, settings, now)
    return replace(pace, in_flight=max(pace.in_flight - 1, 0))


def _keep_room(pace: Pace, room: Room, settings: PaceSettings, now: datetime) -> Pace:
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


def _start_rate(pace: Pace, settings: PaceSettings, now: datetime) -> float | None:
    """The same, and in slow start what keeps calls from coming in waves; the crawl of a spell that is over does not."""
    rate = _rate(pace, now)
    waves = rate is None and pace.admitted >= settings.wave_times and not pace.limit.is_over
    return settings.wave_times * pace.measured_per_s if waves else rate


def _forward(pace: Pace, settings: PaceSettings, now: datetime) -> Pace:
    """The pace brought forward to ``now``."""
    passed_s = (now - pace.at).total_seconds()
    if passed_s <= 0:
        return replace(pace, at=now) if passed_s < -_PUT_BACK_S else pace
    busy_s = _busy_s(pace, passed_s)
    kept = exp(-busy_s / settings.measure_s)
    watched_s = pace.watched_s * kept + settings.measure_s * (1.0 - kept)
    pace = replace(pace, admitted=pace.admitted * kept, watched_s=watched_s)
    pace = _climb(pace, settings, busy_s)
    rate = _start_rate(pace, settings, now)
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


def _climb(pace: Pace, settings: PaceSettings, passed_s: float) -> Pace:
    rate, fell_at, still_until = pace.rate_per_s, pace.limit.fell_at, pace.limit.still_until
    if rate is None or fell_at is None or passed_s <= 0:
        return pace
    if still_until is not None:
        passed_s -= max((still_until - pace.at).total_seconds(), 0.0)
        if passed_s <= 0:
            return pace
    bound = max(rate, settings.measured_times_max * pace.measured_per_s)
    refused_per_s, soon = pace.refused_per_s, 1.0 - exp(-passed_s / pace.find_s)
    near = refused_per_s * (1.0 - _NEAR)
    if rate < near:
        rate = min(rate + (refused_per_s - rate) * soon, near)
    else:
        quiet_s = max((pace.at - fell_at).total_seconds(), 0.0) + passed_s
        rate *= 1.0 + _climbs_per_s(pace, settings, rate, pace.at, quiet_s) * passed_s
    return replace(pace, rate_per_s=min(rate, bound))


def _climbs_per_s(
    pace: Pace, settings: PaceSettings, rate: float, now: datetime, quiet_s: float
) -> float:
    """By which share a rate that is near the refused one, or beyond it, rises in a second."""
    climb_per_s = settings.climb_per_s * (1.0 + quiet_s / settings.quicken_s)
    near = rate <= pace.refused_per_s * (1.0 + _NEAR) and pace.limit.noise <= _NOISY
    if near or pace.limit.share_lately(now) >= _RARE:
        return climb_per_s
    # What was refused once is admitted now, or nobody knows what is too fast.
    return max(climb_per_s, 1.0 / (_BEYOND * pace.find_s))
