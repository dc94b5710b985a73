"""Lengths of time in the spellings that servers use: plain numbers, ``1m30s``, and English.

Every reader takes text and returns a number or None; none of them raises. A number is ASCII digits
with at most one point between digits: no sign, exponent, underscore or digit of another script,
all of which ``float`` would take. The patterns give nothing back once matched, so that time grows
with the length of the text and no faster.
"""

import re

_DIGITS = re.compile(r"[0-9]++")
_NUMBER = re.compile(r"[0-9]++(?:\.[0-9]++)?+")

# Nanoseconds are the smallest unit, so that each value is divided once, and 350 ms make 0.35 s.
# As Go prints them, with either sign for micro; days are not Go's, but they mean one thing only.
_GO_NS = {
    "d": 86_400e9,
    "h": 3_600e9,
    "m": 60e9,
    "s": 1e9,
    "ms": 1e6,
    "us": 1e3,
    "µs": 1e3,
    "μs": 1e3,
    "ns": 1.0,
}
_WORD_NS = {
    "day": 86_400e9,
    "hour": 3_600e9,
    "hr": 3_600e9,
    "minute": 60e9,
    "min": 60e9,
    "second": 1e9,
    "sec": 1e9,
    "millisecond": 1e6,
    "msec": 1e6,
}
_SPOKEN_NS = _GO_NS | _WORD_NS | {f"{word}s": ns for word, ns in _WORD_NS.items()}

# Longer spellings first, so that "m" does not take the place of "ms".
_GO_UNIT = "|".join(sorted(_GO_NS, key=len, reverse=True))
_SPOKEN_UNIT = "|".join(sorted(_SPOKEN_NS, key=len, reverse=True))

_GO = rf"([0-9]++(?:\.[0-9]++)?+)({_GO_UNIT})"
_GO_PIECE = re.compile(_GO)
_GO_DURATION = re.compile(rf"(?:{_GO}){{1,16}}+")

_SPOKEN = rf"([0-9]{{1,15}}+(?:\.[0-9]{{1,15}}+)?+) ?+({_SPOKEN_UNIT})(?![a-z_])"
_SPOKEN_PIECE = re.compile(_SPOKEN)
_SPOKEN_WAIT = (
    r"(?: (?:about|approximately|around|at least))?+ "
    rf"(?P<wait>{_SPOKEN}(?:(?:,? and |, | )?{_SPOKEN}){{0,7}})(?![\w-]|\.[0-9])"
)
# Each begins with plain letters, which are searched for far faster than a choice of words is.
_ASKED = (
    re.compile(
        r"try(?:(?<=\btry)|(?<=\bretry)|(?<=\bre-try))"
        r"(?: (?:again|(?:your|the) request again))?+ (?:in|after)" + _SPOKEN_WAIT,
        re.ASCII,
    ),
    re.compile(
        r"wait(?:(?<=\bplease wait)|(?<=\bmust wait)|(?<=\bshould wait))(?: for)?+" + _SPOKEN_WAIT,
        re.ASCII,
    ),
)


def number_of(text: str) -> float | None:
    """A plain number, perhaps with a fraction; infinite when it is too large for a float."""
    stripped = text.strip(" \t")
    return float(stripped) if _NUMBER.fullmatch(stripped) else None


def whole_number_of(text: str) -> float | None:
    """A plain whole number."""
    stripped = text.strip(" \t")
    return float(stripped) if _DIGITS.fullmatch(stripped) else None


def duration_s(text: str) -> float | None:
    """A duration as Go and protobuf print it: ``6m0s``, ``12ms``, ``45.837906927s``."""
    stripped = text.strip(" \t")
    if not _GO_DURATION.fullmatch(stripped):
        return None
    return sum(float(count) * _GO_NS[unit] for count, unit in _GO_PIECE.findall(stripped)) / 1e9


def asked_in_words_s(text: str) -> float | None:
    """The longest wait that a text asks for: "Please retry after 37 seconds"."""
    lower = text.lower()
    if "try" not in lower and "wait" not in lower:
        return None
    found = [_spoken_s(one["wait"]) for asked in _ASKED for one in asked.finditer(lower)]
    return max(found, default=None)


def _spoken_s(text: str) -> float:
    pieces = _SPOKEN_PIECE.findall(text)
    return float(sum(float(count) * _SPOKEN_NS[unit] for count, unit in pieces)) / 1e9
