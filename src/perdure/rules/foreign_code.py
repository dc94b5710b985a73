"""Reading things that are somebody else's: the one place where looking may raise anything at all.

An exception's text, its attributes and its response are foreign code. A property may raise, a
comparison may raise, a class may lie about itself. Nothing of it may end the walk, so every look at
a foreign thing goes through `try_or_none`; what cannot be read is not there. A look that never returns
cannot be helped here; the stage's own time limit ends it. The code of a user's policy is foreign too:
settling asks it here, and whoever settles a batch (pump, sweeps, callers) need not fear for the rest.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_INT_MAX = 2**63 - 1


def try_or_none(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """What the act returns, or None if it raises."""
    try:
        return act(*args, **kwargs)
    except BaseException:  # a property may raise SystemExit, too, and that is not ours to obey
        return None


def answer_of(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | BaseException:
    """What a user's own function returns, or what it raises; a person's Ctrl-C goes on its way."""
    try:
        return act(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as raised:  # SystemExit, too: a policy's arithmetic may not end a worker
        return raised


def short_text(value: Any, chars_max: int = 100) -> str:
    """What a foreign value looks like, in short; its class where it will not be shown."""
    text = try_or_none(repr, value)
    return f"a {type(value).__name__}" if text is None else text[:chars_max]


def member_of(thing: Any, name: str) -> Any:
    """What a thing holds under a name: the value of a dict, else an attribute; None if neither."""
    kind = type(thing)
    if kind is dict:
        return thing.get(name)
    if thing is None:
        return None
    if issubclass(kind, dict):
        return try_or_none(dict.get, thing, name)
    return try_or_none(getattr, thing, name, None)


def either(thing: Any, *names: str) -> Any:
    """What a thing holds under the first name that holds anything."""
    for name in names:
        value = member_of(thing, name)
        if value is not None:
            return value
    return None


def text_of(value: Any, chars_max: int) -> str | None:
    """The head of a plain text; bytes are read as UTF-8. None for anything else."""
    kind = type(value)
    if issubclass(kind, str):
        return str.__getitem__(value, slice(chars_max))
    if issubclass(kind, bytes | bytearray):
        return bytes(memoryview(value)[:chars_max]).decode("utf-8", "replace")
    return None


def number_of(value: Any) -> int | None:
    """A plain whole number of ordinary size; a bool is none, an enumeration's member is."""
    if issubclass(type(value), int) and type(value) is not bool:
        number = int.__int__(value)
        return number if -_INT_MAX <= number <= _INT_MAX else None
    return None


def first_members(value: Any, length_max: int) -> list[Any]:
    """The first members of a list or tuple; nothing for anything else."""
    if issubclass(type(value), list):
        return list.__getitem__(value, slice(length_max))
    if issubclass(type(value), tuple):
        return list(tuple.__getitem__(value, slice(length_max)))
    return []
