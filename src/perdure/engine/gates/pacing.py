"""A worker's pace in words: what it is, what it was, why it changed and when it will rise.

A worker writes it beside its samples, in the same row, so that people can read it; nobody judges by it.
"""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from perdure.model.nouns import replace
from perdure.rules.gate import pace
from perdure.rules.gate.limit_allowance import UpstreamLimits
from perdure.rules.gate.pace import Pace
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.gate.signs import Word
from perdure.rules.gate.window import WindowSettings

TELL_S = 10.0  # between two events about one gate
NEW = "a worker that begins starts slowly"
PROBED = "slow start: a probe let it flow"
RECOVERED = "slow start after a recovery"
LIMITED = "a rate limit was met"
STRAINED = "calls timed out, so fewer are out at once"
ROOM = "the answers say how many calls are left"
CLIMBED = "climbing: the upstream admits more"
FREE = "no limit is known any more"
_FALL = 0.95  # of the rate; less than that is a change, and not the noise of a measurement
_MUCH = 1.25  # times more or less than was last told
At = Annotated[datetime, Meta(extra_json_schema={"format": "date-time"})]  # in documents of it


class PaceShown(Struct, frozen=True):
    """One worker's pace. ``rate_per_s`` None: no rate is set, and ``calls_max`` calls may be out at once.

    ``was_per_s`` was the rate before the last change (None: none was set), ``changed_at`` is when that was, and
    ``reason`` why. From ``rises_at`` on it rises, by a share of ``rise_per_s`` a second.
    """

    rate_per_s: float | None
    calls_max: int
    was_per_s: float | None
    reason: str
    changed_at: At
    rises_at: At | None = None
    rise_per_s: float = 0.0

    def rises_in_s(self, now: datetime) -> float | None:
        """How long it stands still from now on."""
        return None if self.rises_at is None else max(0.0, (self.rises_at - now).total_seconds())


class PaceTold(Struct, frozen=True):
    """The part of a samples row that people read; empty in rows written without it."""

    pace: PaceShown | None = None
    limits: UpstreamLimits | None = None
    window_calls: int = WindowSettings().calls


class PaceNotes:
    """Follows one worker's pace towards one upstream."""

    def __init__(self, now: datetime) -> None:
        self._rate_per_s: float | None = None  # the highest since the last change
        self._was_per_s: float | None = None
        self._reason = NEW
        self._changed_at = now
        self._allowance = 0.0
        self._told_per_s: float | None = None
        self._told_at: datetime | None = None

    def note_slow_start(self, speed: Pace, now: datetime, *, probed: bool) -> None:
        """It starts slowly, after a hold, and where a rate was known up to that."""
        self._change(speed.rate_per_s, PROBED if probed else RECOVERED, now)

    def note(self, speed: Pace, settings: PaceSettings, word: Word, now: datetime) -> bool:
        """A call has landed; whether the pace is another now. Rising by and by is no change."""
        rate, before = pace.in_force(speed, settings, now), self._rate_per_s
        fewer, self._allowance = speed.allowance < self._allowance, speed.allowance
        if fewer and word.kind in pace.STRAINS:
            self._change(rate, STRAINED, now)
            return True
        if rate is None and before is None:
            return False
        if rate is not None and before is not None and rate >= before * _FALL:
            self._rate_per_s = max(rate, before)
            return False
        room = ROOM if rate is not None else FREE
        self._change(rate, LIMITED if word.refuses else room, now)
        return True

    def show(self, speed: Pace, settings: PaceSettings, now: datetime) -> PaceShown:
        """The pace at this moment."""
        rate = pace.in_force(speed, settings, now)
        rises = pace.rises(speed, settings, now)
        return PaceShown(
            None if rate is None else round(rate, 3),
            pace.calls_max(speed, settings),
            None if self._was_per_s is None else round(self._was_per_s, 3),
            self._reason,
            self._changed_at,
            None if rises is None else rises[0],
            0.0 if rises is None else round(rises[1], 4),
        )

    def news(self, shown: PaceShown, now: datetime) -> PaceShown | None:
        """What is to be told of it as an event: a large change since the last one, and not too soon after it."""
        was, rate = self._told_per_s, shown.rate_per_s
        soon = self._told_at is not None and now < self._told_at + timedelta(seconds=TELL_S)
        if soon or not _is_much(was, rate):
            return None
        rose = was is not None and rate is not None and rate > was
        self._told_per_s, self._told_at = rate, now
        return replace(shown, was_per_s=was, reason=CLIMBED if rose else shown.reason)

    def _change(self, rate: float | None, reason: str, now: datetime) -> None:
        self._was_per_s, self._rate_per_s = self._rate_per_s, rate
        self._reason, self._changed_at = reason, now


def _is_much(was: float | None, rate: float | None) -> bool:
    if was is None or rate is None:
        return was is not rate
    return rate * _MUCH <= was or rate >= was * _MUCH


_decoder = msgspec.json.Decoder(PaceTold)


def pace_in(samples_json: str) -> PaceTold:
    """What a worker has told of its pace; nothing where its row is of another version."""
    try:
        return _decoder.decode(samples_json)
    except msgspec.DecodeError:
        return PaceTold()
