"""Retries inside of a stage: what its code reaches that tries again by itself, as far as that can be seen.

Looked at, and nothing is called: the functions of the application that a stage leads to, by the names in their code, by
what they hold (closures, defaults, partials, decorators) and by the attributes of the application's own objects. A client
that is there says itself how often it tries again. One that is only made when a stage runs is known by the class that the
code names, and by whether the code has the argument that switches retries off.

Not seen: clients that other libraries make themselves, what is chosen while it runs, options of a single call, and
whatever stands between this process and the upstream.
"""

import functools
import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from perdure.engine.stages import Stage, codes_in, has_word, package_of
from perdure.rules.diagnosis.own_retries import WORDS, retries_of, telling_argument
from perdure.rules.foreign_code import member_of, try_or_none

_THINGS_MAX = 5_000
_DEPTH_MAX = 6
_MEMBERS_MAX = 100  # of a container or an object


class _Place(NamedTuple):
    name: str
    thing: Any
    depth: int


def nested_retries(stage: Stage) -> list[str]:
    """What a stage reaches that tries again by itself, a sentence each."""
    found: dict[str, None] = {}
    reached = list(_reach(stage.call, stage.callee.home))
    functions = [
        thing
        for _, thing in reached
        if _is_a(thing, FunctionType) and package_of(thing.__module__) == stage.callee.home
    ]
    for function in functions:
        found |= dict.fromkeys(_made_by(function))
    told_by_call = any(map(_says_so_in_a_call, functions))
    for name, thing in reached:
        more = retries_of(thing)
        if more and not (told_by_call and member_of(thing, "max_retries") is not None):
            found[_retries_words(name, type(thing), more)] = None
    return [f"stage {stage.name!r}: {words}" for words in found]


def _is_a(thing: Any, kind: type) -> bool:
    """As isinstance, which would ask a foreign thing for its class."""
    return issubclass(type(thing), kind)


def _retries_words(name: str, kind: type, more: float) -> str:
    often = "more calls" if more == float("inf") else f"up to {more:g} more calls"
    return f"{name} ({package_of(kind.__module__)}.{kind.__name__}) makes {often} by itself"


def _says_so_in_a_call(function: FunctionType) -> bool:
    """As in ``client.with_options(max_retries=0)``."""
    return any(
        "with_options" in code.co_names and has_word(code, "max_retries")
        for code in codes_in(function)
    )


def _made_by(function: FunctionType) -> Iterator[str]:
    """Clients that a function makes without saying anything about their retries."""
    for code in codes_in(function):
        named = dict(_named_in(code, function.__globals__))
        for name, one in named.items():
            argument = telling_argument(one)
            if argument is not None and not has_word(code, argument):
                yield f"{function.__name__} makes a client of {name} without {argument}=0"
        for module, classes in WORDS.items():
            used = [one for one in classes if one in code.co_names and one not in named]
            if module in code.co_names and used and not has_word(code, "max_retries"):
                yield f"{function.__name__} makes a client of {used[0]} without max_retries=0"


def _reach(call: Callable[..., Any], home: str) -> Iterator[tuple[str, Any]]:
    """Everything that a function refers to, with the name that it uses, each once."""
    seen: set[int] = set()
    left = deque([_Place(getattr(call, "__name__", "it"), call, 0)])
    while left and len(seen) < _THINGS_MAX:
        name, thing, depth = left.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield name, thing
        if depth < _DEPTH_MAX:
            inner = try_or_none(_list_held, thing, home) or []
            left += [_Place(one, held, depth + 1) for one, held in inner]


def _list_held(thing: object, home: str) -> list[tuple[str, object]]:
    return list(_held_by(thing, home))


def _held_by(thing: Any, home: str) -> Iterator[tuple[str, object]]:
    """What a thing of the application's, or one that wraps such a thing, holds; nothing for what is foreign."""
    if isinstance(thing, functools.partial):
        yield from (
            (member_of(thing.func, "__name__") or "it", one) for one in (thing.func, *thing.args)
        )
        yield from thing.keywords.items()
    elif isinstance(thing, MethodType):
        yield from (("self", thing.__self__), (thing.__name__, thing.__func__))
    elif isinstance(thing, FunctionType):
        yield from _held_by_function(thing, home)
    elif isinstance(thing, dict):
        yield from ((str(name), one) for name, one in list(thing.items())[:_MEMBERS_MAX])
    elif isinstance(thing, list | tuple):
        yield from (("a member", one) for one in thing[:_MEMBERS_MAX])
    elif (inner := inspect.getattr_static(thing, "__wrapped__", None)) is not None:
        yield (member_of(inner, "__name__") or "it", member_of(thing, "__wrapped__"))
    elif package_of(type(thing).__module__) == home:
        yield from list(vars(thing).items())[:_MEMBERS_MAX]


def _held_by_function(function: FunctionType, home: str) -> Iterator[tuple[str, object]]:
    code, defaults = function.__code__, function.__defaults__ or ()
    yield from vars(function).items()
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    yield from ((name, member_of(cell, "cell_contents")) for name, cell in cells)
    places = code.co_varnames[: code.co_argcount]
    yield from zip(places[len(places) - len(defaults) :], defaults, strict=False)
    yield from (function.__kwdefaults__ or {}).items()
    if package_of(function.__module__) == home:
        for code in codes_in(function):
            yield from _named_in(code, function.__globals__)


def _named_in(code: CodeType, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the names in a code stand for: globals, modules, and what those have of these names."""
    for name in code.co_names:
        found = names.get(name, sys.modules.get(name))
        if _is_a(found, ModuleType):
            inner = vars(found)
            yield from ((one, inner[one]) for one in code.co_names if one in inner)
        elif name in names:
            yield name, found
