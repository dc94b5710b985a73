"""When a periodic job falls due: at multiples of an interval, or as a cron expression says.

Always true: a rhythm is a set of moments that follows from its text alone. It knows no clock, no start and no
worker, so whoever reads the same text finds the same moments, and "the first one after this moment" has one
answer wherever it is asked.

An interval counts from 1970, in UTC: ``24h`` falls due at midnight UTC, whenever it was declared. A cron expression
is read in its time zone. Where clocks are put back, an hour comes twice: an expression that names minute and
hour falls due in the first of the two, one with ``*`` in minute or hour (it means "often") in both. Where
clocks are put forward, an hour is missing: the first falls due at the end of the gap, the second not
within it. So does Debian's cron, and `cronsim` (2.8) after it.

Three traps, each with a test: aware datetimes of one zone compare by their wall time, so moments are compared in
UTC; asked from within the second of two equal hours, cronsim answers with the first, which is over; and where clocks
are put back by half an hour, it passes moments over.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from msgspec import Struct

from perdure.model.errors import ConfigError
from perdure.model.limits import SCHEDULE_CHARS_MAX
from perdure.rules import field_checks
from perdure.rules.hints.durations import duration_s

if TYPE_CHECKING:
    from cronsim import CronSim

PERIOD_S_MIN = 1.0  # the upkeep looks once a second
PERIOD_S_MAX = 366 * 86_400.0
NEVER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)  # later than any moment that is looked for

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_ODD_HOURS = timedelta(hours=4)  # clocks are put back or forward by less
_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000))
# An expression that finds nothing in 50 years never will.
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_FIELDS = 5
_STORED = re.compile(r"every (?P<period>\S+)|cron (?P<cron>.+) in (?P<zone>\S+)")
_ADVICE = (
    "write an interval such as 30s, 15m or 1h30m, or a cron expression of five fields (minute, "
    "hour, day, month, weekday) such as '0 7 * * 1-5'"
)


class Every(Struct, frozen=True):
    """Every multiple of a period since 1970, UTC."""

    period_us: int

    @property
    def text(self) -> str:
        """The rhythm in words, from which it can be read again."""
        left, words = self.period_us, "every "
        for unit, size in _UNITS:
            count, left = divmod(left, size)
            words += f"{count}{unit}" if count else ""
        return words + (f"{left / 1e6:.6f}".rstrip("0").rstrip(".") + "s" if left else "")

    def after(self, moment: datetime) -> datetime:
        """The first moment later than this."""
        try:
            return _EPOCH + (self._count(moment) + 1) * self.period_us * _US
        except OverflowError:
            return NEVER

    def latest(self, moment: datetime, *, since: datetime) -> datetime:
        """The last moment up to this one; ``since``, which is due, if there is none after it."""
        return max(since, _EPOCH + self._count(moment) * self.period_us * _US)

    def _count(self, moment: datetime) -> int:
        return (moment - _EPOCH) // _US // self.period_us


class Cron(Struct, frozen=True):
    """The moments of a cron expression in a time zone."""

    expression: str
    zone: ZoneInfo

    @property
    def text(self) -> str:
        """The rhythm in words, from which it can be read again."""
        return f"cron {self.expression} in {self.zone.key}"

    def after(self, moment: datetime) -> datetime:
        """The first moment later than this."""
        return next(self._moments(moment), NEVER)

    def latest(self, moment: datetime, *, since: datetime) -> datetime:
        """The last moment up to this one; ``since``, which is due, if there is none after it."""
        start = max(since, self._shortly_before(moment))
        latest = since
        for found in self._moments(start):
            if found > moment:
                break
            latest = found
        return latest

    def _moments(self, after: datetime) -> Iterator[datetime]:
        """All moments later than this, each later than the one before."""
        last = after
        try:
            for found in self._often(after) if self._is_often else self._walk(after):
                moment = found.astimezone(UTC)
                if moment > last:
                    last = moment
                    yield moment
        except (OverflowError, ValueError):  # the year 10000
            return

    @property
    def _is_often(self) -> bool:
        """Whether it has ``*`` in minute or hour."""
        minute, hour, *_ = self.expression.split()
        return minute.startswith("*") or hour.startswith("*")

    def _often(self, after: datetime) -> Iterator[datetime]:
        """All moments later than this at which the clock shows what is asked for.

        cronsim walks by the clock, from one change of clocks to the next: its own way over them loses half an hour or
        more where they are put back or forward by half an hour.
        """
        from cronsim import CronSim

        last, since = after, after.replace(microsecond=0)
        while True:
            offset = self._offset(since)
            clock = timezone(offset)
            for found in CronSim(self.expression, last.astimezone(clock).replace(tzinfo=None)):
                moment = found.replace(tzinfo=clock)
                changed_at = self._changed_at(since, moment, offset)
                if changed_at is not None:
                    last, since = changed_at - _SECOND, changed_at
                    break
                since = moment
                yield moment
            else:
                return

    def _changed_at(self, since: datetime, until: datetime, offset: timedelta) -> datetime | None:
        """The first moment in this time at which clocks are not so far from UTC any more, to the second."""
        while since < until:
            later = min(since + _DAY, until)
            if self._offset(later) != offset:
                while later - since > _SECOND:
                    middle = since + (later - since) // _SECOND // 2 * _SECOND
                    same = self._offset(middle) == offset
                    since, later = (middle, later) if same else (since, middle)
                return later
            since = later
        return None

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self.zone).utcoffset() or timedelta(0)

    def _shortly_before(self, moment: datetime) -> datetime:
        """A start from which few moments lie before this one, and at least one, if there is any.

        Backwards cronsim meets the odd hours from their other side, so it is only asked for the place.
        """
        try:
            found = next(self._walk(moment, reverse=True), None)
            return _EPOCH if found is None else found.astimezone(UTC) - _ODD_HOURS
        except (OverflowError, ValueError):  # the year 0
            return _EPOCH

    def _walk(self, start: datetime, *, reverse: bool = False) -> "CronSim":
        from cronsim import CronSim

        return CronSim(self.expression, start.astimezone(self.zone), reverse=reverse)


Rhythm = Every | Cron


def rhythm_of(spec: str, *, timezone: str | None = None) -> Rhythm:
    """The rhythm that a person means, or `ConfigError`."""
    field_checks.text("schedule", spec, SCHEDULE_CHARS_MAX)
    if len(spec.split()) == 1:
        if timezone is not None:
            raise ConfigError(
                f"schedule {spec!r} is an interval, which is counted in UTC; leave timezone out, or "
                "write a cron expression"
            )
        return _every(spec.strip())
    return _cron(spec, "UTC" if timezone is None else timezone)


def rhythm_in(text: str) -> Rhythm | None:
    """The rhythm behind the words that a store keeps; None when this version cannot read them."""
    found = _STORED.fullmatch(text)
    if found is None:
        return None
    try:
        if found["period"] is not None:
            return rhythm_of(found["period"])
        return rhythm_of(found["cron"], timezone=found["zone"])
    except ConfigError:
        return None


def _every(spec: str) -> Every:
    period_s = duration_s(spec)
    if period_s is None:
        raise ConfigError(f"schedule {spec!r} is no interval; {_ADVICE}")
    if not PERIOD_S_MIN <= period_s <= PERIOD_S_MAX:
        raise ConfigError(
            f"schedule {spec!r} must lie between {PERIOD_S_MIN:g} s and {PERIOD_S_MAX / 86_400:g} days"
        )
    return Every(round(period_s * 1e6))


def _cron(spec: str, timezone: str) -> Cron:
    from cronsim import CronSimError

    fields = spec.upper().split()
    if len(fields) != _FIELDS:
        raise ConfigError(f"schedule {spec!r} has {len(fields)} fields; {_ADVICE}")
    rhythm = Cron(" ".join(fields), _zone(timezone))
    try:
        first = rhythm.after(_LONG_AGO)
    except CronSimError as error:
        said = str(error).lower()
        if "day" in said and _is_cron([*fields[:3], "*", fields[4]]):
            raise ConfigError(
                f"schedule {spec!r} never falls due: no month {fields[3]} has a day {fields[2]}; check its day and month"
            ) from None
        raise ConfigError(f"schedule {spec!r} is no cron expression ({said}); {_ADVICE}") from None
    if first == NEVER:
        raise ConfigError(f"schedule {spec!r} never falls due; check its day, month and weekday")
    return rhythm


def _is_cron(fields: Sequence[str]) -> bool:
    from cronsim import CronSim, CronSimError

    try:
        CronSim(" ".join(fields), _LONG_AGO)
    except CronSimError:
        return False
    return True


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError, TypeError):  # LookupError: no such zone, or no zones
        raise ConfigError(
            f"timezone {name!r} is not known here; write a name such as Europe/Berlin, and install "
            "the package tzdata where the system has no time zones"
        ) from None
