"""Moments in the spellings that servers use: the three of HTTP, and RFC 3339.

Each spelling is matched whole, by a pattern of fixed width. ``email.utils`` reads more than these:
it passes over whatever follows the date, and year 99999 makes it raise. A moment without a zone is
UTC. A moment that no calendar has, or that lies beyond the year 9999, is None.
"""

import re
from datetime import UTC, datetime, timedelta

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SHORT_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LONG_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAYS = frozenset(_SHORT_DAYS + _LONG_DAYS)

_WEEKDAY = "(?:" + "|".join(_LONG_DAYS + _SHORT_DAYS) + ")"
_MONTH = "(?P<month>" + "|".join(_MONTHS) + ")"
# A leap second is written as second 60.
_TIME = r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9]|60)"
_OFFSET = r"(?P<sign>[+-])(?P<ahead_h>[01][0-9]|2[0-3]):?(?P<ahead_m>[0-5][0-9])"
_HTTP_ZONE = rf"(?: (?:GMT|UTC|UT|Z|{_OFFSET}))?"

# The weekday adds nothing, and a server that gets it wrong still names one day: it is not checked.
_IMF_FIXDATE = re.compile(
    rf"(?:{_WEEKDAY}, ?)?(?P<day>[0-9]{{1,2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME}{_HTTP_ZONE}",
    re.ASCII | re.IGNORECASE,
)
_RFC_850 = re.compile(
    rf"(?:{_WEEKDAY}, ?)?(?P<day>[0-9]{{1,2}})-{_MONTH}-(?P<year>[0-9]{{4}}|[0-9]{{2}})"
    rf" {_TIME}{_HTTP_ZONE}",
    re.ASCII | re.IGNORECASE,
)
# Evidence folds blanks, so the day may have lost the one that pads it.
_ASCTIME = re.compile(
    rf"{_WEEKDAY} {_MONTH}  ?(?P<day>[0-9]{{1,2}}) {_TIME} (?P<year>[0-9]{{4}})",
    re.ASCII | re.IGNORECASE,
)
_RFC_3339 = re.compile(
    rf"(?P<year>[0-9]{{4}})-(?P<month>[0-9]{{2}})-(?P<day>[0-9]{{2}})[T ]{_TIME}"
    rf"(?:\.(?P<fraction>[0-9]++))?+(?:Z|{_OFFSET})?",
    re.ASCII | re.IGNORECASE,
)


def http_moment(text: str, now: datetime) -> datetime | None:
    """A date as HTTP writes it: IMF-fixdate, RFC 850 or asctime; ``now`` tells the century."""
    stripped = text.strip(" \t")
    for form in (_IMF_FIXDATE, _RFC_850, _ASCTIME):
        if found := form.fullmatch(stripped):
            fields = found.groupdict()
            month = _MONTHS.index(fields["month"].lower()) + 1
            return _moment(fields, _year(fields, month, now), month)
    return None


def rfc3339_moment(text: str) -> datetime | None:
    """A moment of the internet's own format, the fraction rounded up to a microsecond."""
    found = _RFC_3339.fullmatch(text.strip(" \t"))
    if found is None:
        return None
    fields = found.groupdict()
    return _moment(fields, int(fields["year"]), int(fields["month"]))


def _year(fields: dict[str, str], month: int, now: datetime) -> int:
    """Of two digits, the latest such year that is not more than 50 years ahead (RFC 9110, 5.6.7)."""
    year = int(fields["year"])
    if len(fields["year"]) == 4:
        return year
    year += now.year // 100 * 100 + 100
    clock = tuple(int(fields[name]) for name in ("day", "hour", "minute", "second"))
    while (year - 50, month, *clock) > (
        now.year,
        now.month,
        now.day,
        now.hour,
        now.minute,
        now.second,
    ):
        year -= 100
    return year


def _moment(fields: dict[str, str], year: int, month: int) -> datetime | None:
    day, hour, minute = (int(fields[name]) for name in ("day", "hour", "minute"))
    try:
        moment = datetime(year, month, day, hour, minute, tzinfo=UTC)
        moment += timedelta(
            seconds=int(fields["second"]), microseconds=_microseconds(fields.get("fraction"))
        )
        return moment - _ahead(fields)
    except (ValueError, OverflowError):
        return None


def _microseconds(fraction: str | None) -> int:
    digits = (fraction or "").ljust(6, "0")
    return int(digits[:6]) + bool(digits[6:].strip("0"))


def _ahead(fields: dict[str, str]) -> timedelta:
    """How far the zone is ahead of UTC."""
    if not fields.get("sign"):
        return timedelta()
    ahead = timedelta(hours=int(fields["ahead_h"]), minutes=int(fields["ahead_m"]))
    return ahead if fields["sign"] == "+" else -ahead
