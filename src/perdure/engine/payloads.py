"""Payloads and results on their way into a store: the one place that accepts or refuses values, for every store.

What comes out is the JSON text of exactly what went in. What JSON or a store would change in
silence (NaN, a NUL byte, half a surrogate pair, an integer beyond 64 bits, a key that is not text)
is refused with a message that says where it is.
"""

import math
from dataclasses import is_dataclass
from typing import Any

import msgspec

from perdure.engine.stage_parameters import is_model
from perdure.model.errors import PayloadRefused
from perdure.model.limits import DEPTH_MAX, INTEGER_BITS_MAX

_ADVICE = "pass plain values, a dataclass, a Struct or a pydantic model"
_INTEGER_MAX = 2 ** (INTEGER_BITS_MAX - 1)


def admit(value: Any, *, what: str, bytes_max: int) -> str:
    """The value as JSON text, or `PayloadRefused`."""
    if not _is_plain(value, 0):
        _inspect(value, what, 0)
    try:
        text = msgspec.json.encode(value, enc_hook=_dump)
    except (TypeError, ValueError, RecursionError) as error:  # a text or number type of one's own
        raise PayloadRefused(f"{what} cannot be written as JSON: {error}; {_ADVICE}") from None
    if len(text) > bytes_max:
        raise PayloadRefused(
            f"{what} is {len(text)} bytes long, at most {bytes_max} are accepted; store it "
            "elsewhere and pass a reference"
        )
    return text.decode()


def decode(text: str) -> Any:
    """The value behind JSON text that was accepted here."""
    return msgspec.json.decode(text)


def _is_plain(value: Any, depth: int) -> bool:
    """Whether `_inspect` would find nothing, for what items are mostly made of; False is no verdict yet.

    It names no places, which is what an inspection spends its time on.
    """
    kind = type(value)
    if kind is str:
        return "\x00" not in value and (value.isascii() or _is_whole(value))
    if kind is int:
        return bool(-_INTEGER_MAX <= value < _INTEGER_MAX)
    if kind is float:
        return math.isfinite(value)
    if kind is dict and depth < DEPTH_MAX:
        for key, item in value.items():
            if type(key) is not str or not _is_plain(key, depth) or not _is_plain(item, depth + 1):
                return False
        return True
    if kind is list and depth < DEPTH_MAX:
        return all(_is_plain(item, depth + 1) for item in value)
    return value is None or kind is bool


def _inspect(value: Any, where: str, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise PayloadRefused(f"{where} is nested deeper than {DEPTH_MAX} levels; flatten it")
    match value:
        case None | bool():
            return
        case str():
            _inspect_text(value, where)
        case int():
            if not -_INTEGER_MAX <= value < _INTEGER_MAX:
                raise PayloadRefused(f"{where} is an integer beyond 64 bits; pass it as text")
        case float():
            if not math.isfinite(value):
                raise PayloadRefused(f"{where} is {value}, which JSON cannot hold; pass null")
        case list() | tuple():
            for position, item in enumerate(value):
                _inspect(item, f"{where}[{position}]", depth + 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise PayloadRefused(
                        f"{where} has a key of type {type(key).__name__}; JSON keys must be text"
                    )
                _inspect_text(key, f"a key of {where}")
                _inspect(item, f"{where}.{_short_key(key)}", depth + 1)
        case msgspec.Struct():
            _inspect(_builtins(value, where), where, depth)
        case _ if is_model(type(value)) or (is_dataclass(value) and not isinstance(value, type)):
            _inspect(_builtins(value, where), where, depth)
        case _:
            raise PayloadRefused(
                f"{where} is of type {type(value).__name__}, which JSON cannot hold unchanged; "
                f"{_ADVICE}"
            )


def _builtins(value: Any, where: str) -> Any:
    try:
        return msgspec.to_builtins(value, enc_hook=_dump)
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadRefused(f"{where} cannot be written as JSON: {error}; {_ADVICE}") from None


def _dump(value: Any) -> Any:
    if not is_model(type(value)):
        raise TypeError(f"it holds a value of type {type(value).__name__}")
    return value.model_dump(mode="json")


def _short_key(key: str) -> str:
    return key if key.isprintable() and len(key) <= 40 else ascii(key)[:40]


def _inspect_text(text: str, where: str) -> None:
    if "\x00" in text:
        raise PayloadRefused(f"{where} holds a NUL character; remove it")
    if not _is_whole(text):
        raise PayloadRefused(f"{where} holds half of a surrogate pair; replace it")


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
