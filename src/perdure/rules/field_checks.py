"""Checks of policy fields: every refusal names the field, the value and what is allowed."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from perdure.model.aliases import FIELD_NAMES
from perdure.model.errors import ConfigError

E = TypeVar("E", bound=StrEnum)

_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_ALIKE_MIN = 0.5  # below it, a word that was guessed hides the list of those that there are


def one_of(field: str, names: type[E], value: object) -> E:
    """The member of an enumeration that a policy names, in Python or in a file."""
    try:
        return names(str(value))
    except ValueError:
        known = tuple(one.value for one in names)
        raise ConfigError(f"{field} is {value!r}; {nearest(str(value), known)}") from None


def number(field: str, value: object, low: float, high: float) -> None:
    """A number in a range."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not low <= value <= high:  # type: ignore[operator]
        largest = f"{high:g}" if high < 1_000_000 else f"{high:,.0f}"  # never 3.16e+07
        raise ConfigError(
            f"{field} is {value!r}; it must be a number between {low:g} and {largest}"
        )


def whole_number(field: str, value: object, low: int, high: int) -> None:
    """A whole number in a range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(
            f"{field} is {value!r}; it must be a whole number between {low} and {high}"
        )


def instance(field: str, value: object, cls: type) -> None:
    """A value of one of our own classes."""
    if not isinstance(value, cls):
        raise ConfigError(f"{field} is {value!r}; it must be a {cls.__name__}")


def flag(field: str, value: object) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{field} is {value!r}; it must be true or false")


def text(field: str, value: object, chars_max: int) -> None:
    """A short text of printable characters."""
    if not isinstance(value, str) or not 0 < len(value) <= chars_max or not value.isprintable():
        raise ConfigError(
            f"{field} is {value!r}; it must be text of 1 to {chars_max} printable characters"
        )


def nearest(
    word: str, known: Mapping[str, object] | tuple[str, ...], *, alike_min: float = _ALIKE_MIN
) -> str:
    """The valid words as the end of a message, first the one that was meant, if one is alike."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=alike_min) if word.strip() else []
    if not close:
        return f"one of: {', '.join(names)}"
    return f"did you mean {str(close[0])!r}? One of: {', '.join(names)}"


def check_aliases(field: str, aliases: Mapping[Any, Any]) -> dict[str, str]:
    """Second names for fields, or a refusal of what is no field, no name, or one field's already."""
    for name, alias in aliases.items():
        if name not in FIELD_NAMES:
            raise ConfigError(
                f"{field} names {name!r}, which is no field; {nearest(str(name), tuple(sorted(FIELD_NAMES)))}"
            )
        if not isinstance(alias, str) or not _ALIAS.fullmatch(alias):
            raise ConfigError(
                f"{field}.{name} is {alias!r}; a name is a letter, then letters, digits, _ and -, 64 at most"
            )
        if alias in FIELD_NAMES or list(aliases.values()).count(alias) > 1:
            raise ConfigError(f"{field}.{name} is {alias!r}, which another field is called")
    return dict(aliases)
