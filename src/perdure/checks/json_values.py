"""What a JSON value may hold: the same things that a stage may return.

JSON and Python agree on more than can be kept: NaN, integers of any size, half a surrogate pair, the
same name twice. The engine (`engine/payloads.py`) refuses such a result; here it is the model's fault, and said so.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from perdure.checks.output_paths import OutputMisfit, path_of
from perdure.model.limits import DEPTH_MAX, INTEGER_BITS_MAX

NESTED = f"it is nested deeper than {DEPTH_MAX} levels"

_INTEGER_MAX = 2 ** (INTEGER_BITS_MAX - 1)
_DIGITS_MAX = 20  # an integer of 64 bits has 19; reading one of millions would take minutes

_Way = tuple["_Way", str | int] | None


class _Doubled(dict[str, Any]):
    """An object in which a name stood twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else _Doubled(plain)


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= _DIGITS_MAX else 2 * _INTEGER_MAX


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


def inspect(value: Any, known: frozenset[str]) -> None:
    """`OutputMisfit` where a value holds what cannot be kept. Not recursive: the value may be deep."""
    left: list[tuple[Any, _Way, int]] = [(value, None, 0)]
    while left:
        one, way, depth = left.pop()
        rule = NESTED if depth > DEPTH_MAX else _fault(one)
        if rule:
            raise OutputMisfit(rule, path_of(_steps(way), known))
        if isinstance(one, dict):
            left += [(item, (way, key), depth + 1) for key, item in reversed(one.items())]
        elif isinstance(one, list):
            positions = range(len(one) - 1, -1, -1)
            left += [(one[at], (way, at), depth + 1) for at in positions]


def _fault(value: Any) -> str:
    match value:
        case None | bool():
            return ""
        case str():
            return _text_fault(value)
        case int():
            fits = -_INTEGER_MAX <= value < _INTEGER_MAX
            return "" if fits else f"the number has more than {INTEGER_BITS_MAX} bits"
        case float():
            return "" if math.isfinite(value) else "the number is not finite"
        case _Doubled():
            return "a name stands twice in an object"
        case dict():
            return next(filter(None, map(_name_fault, value)), "")
        case list():
            return ""
        case _:
            return "it is no JSON value"


def _name_fault(name: Any) -> str:
    return _text_fault(name) if isinstance(name, str) else "a name in an object is no text"


def _text_fault(text: str) -> str:
    if "\x00" in text:
        return "a text holds a NUL character"
    if text.isascii():
        return ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a text holds half of a surrogate pair"
    return ""


def _steps(way: _Way) -> list[str | int]:
    return list(_backwards(way))[::-1]


def _backwards(way: _Way) -> Iterator[str | int]:
    while way is not None:
        way, step = way
        yield step
