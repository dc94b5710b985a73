"""The ``RateLimit`` header: a structured list of quotas, each with what remains and for how long.

IETF draft-ietf-httpapi-ratelimit-headers-11, in the syntax of RFC 9651: ``"daily";r=0;t=30``. As that
RFC asks, a list with one flaw in it says nothing at all.
"""

import re

_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*+"'
_WORD = r"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*+"
_NUMBER = r"-?[0-9]{1,15}+(?:\.[0-9]{1,3}+)?+"
_VALUE = rf"{_STRING}|{_WORD}|{_NUMBER}|@-?[0-9]{{1,15}}+|:[A-Za-z0-9+/=]*+:|\?[01]"
_PARAMETER = rf"; *+([a-z*][a-z0-9_.*-]*+)(?:=({_VALUE}))?+"
_EACH_PARAMETER = re.compile(_PARAMETER)
_MEMBER = re.compile(rf"(?:{_STRING}|{_WORD})((?:{_PARAMETER})*+)[ \t]*+(?:,[ \t]*+(?!$)|$)")
_MEMBERS_MAX = 32  # no server has more quotas than this; a flood of them costs nothing
_COUNT = re.compile(r"-?[0-9]{1,15}")


def exhausted_for_s(text: str) -> float | None:
    """Seconds until the last of the exhausted quotas has something again; None if none is."""
    waits: list[float] = []
    stripped, at, members = text.strip(" \t"), 0, 0
    while at < len(stripped):
        member = _MEMBER.match(stripped, at)
        members += 1
        if member is None or members > _MEMBERS_MAX:
            return None
        parameters = dict(_EACH_PARAMETER.findall(member[1]))
        remaining, reset_s = (_count(parameters.get(name, "")) for name in ("r", "t"))
        if remaining == 0 and reset_s is not None and reset_s >= 0:
            waits.append(float(reset_s))
        at = member.end()
    return max(waits, default=None)


def _count(text: str) -> int | None:
    return int(text) if _COUNT.fullmatch(text) else None
