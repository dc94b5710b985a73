"""Mending broken JSON with json-repair, within bounds, and never by making things up.

Read in json-repair 0.64.2: it works in time that is quadratic in the quotes and the escapes of a broken
text, so it is given a text that counts how often it is looked at; its strict mode refuses what has
several meanings. It still reads ``NaN`` and ``...`` as words: where the model left something out,
nothing is mended.
"""

import re
from typing import Any, Self, SupportsIndex

from perdure.model.errors import ConfigError
from perdure.model.limits import REPAIR_CHARS_MAX

REMEDY = 'pip install "perdure[checks]"'

_LOOKS_PER_CHAR = 16  # a broken text of ordinary kind takes three
_ESCAPES_CHARS_MAX = 2**26  # escapes times characters: some seconds where all are in one string
# The closing quote may be missing: a pattern that insisted on it would begin anew at every quote.
_QUOTED = re.compile(r'"(?:[^"\\]++|\\.)*+"?|\'(?:[^\'\\\n]++|\\.)*+\'?', re.DOTALL)
_LEFT_OUT = re.compile(r"\.\.\.|…|\bNaN\b|\bInfinity\b")


class _TooHard(Exception):
    """More was looked at than the text is worth."""


class _Counted(str):
    """A text that may be looked at so many times."""

    __slots__ = ("_looks",)
    _looks: int

    def __new__(cls, text: str) -> Self:
        counted = super().__new__(cls, text)
        counted._looks = _LOOKS_PER_CHAR * len(text)
        return counted

    def __getitem__(self, key: SupportsIndex | slice, /) -> str:
        self._looks -= 1
        if self._looks < 0:
            raise _TooHard
        return str.__getitem__(self, key)


# What json-repair raises over texts that it does not foresee.
_STUMBLES = (ValueError, RecursionError, LookupError, TypeError, AttributeError, AssertionError)


def mender() -> Any:
    """json-repair, or what to do where it is missing."""
    try:
        import json_repair
    except ImportError:
        raise ConfigError(
            f"mending a model's JSON needs json-repair: {REMEDY}, or pass repair=False"
        ) from None
    return json_repair


def mend(text: str) -> Any:
    """The object or array that a broken text begins with, mended; None where that would be a guess."""
    escapes = text.count("\\")
    if len(text) > REPAIR_CHARS_MAX or escapes * len(text) > _ESCAPES_CHARS_MAX:
        return None
    if _LEFT_OUT.search(_QUOTED.sub("", text)):
        return None
    value = _try(text)
    if value is None:  # words may follow the value; they are left away only if all together is none
        end = text.rfind("}" if text[0] == "{" else "]") + 1
        value = _try(text[:end]) if 0 < end < len(text) else None
    return value


def _try(text: str) -> Any:
    try:
        value = mender().loads(_Counted(text), skip_json_loads=True, strict=True)
    except (*_STUMBLES, _TooHard):
        return None
    return value if isinstance(value, dict | list) and value else None
