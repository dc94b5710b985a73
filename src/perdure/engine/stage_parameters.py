"""What a stage is called with: the item, of the type that its first parameter is annotated with, and the Context
where a parameter asks for it.

Structs, dataclasses, typed dicts, builtins and their generics are read by msgspec; a pydantic model is
known by its methods, and pydantic is not imported. An annotation that says nothing, cannot be resolved
or names a class that no JSON can become, leaves the item as plain as it was stored.

Types are looked up once: when the stage is declared or, where a name in the annotation is defined
further down in its module, when the first item comes.
"""

import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import msgspec

from perdure.model.errors import ConfigError

log = logging.getLogger("perdure")

_RULE_CHARS_MAX = 300  # a validator of one's own may say anything
_UNRESOLVED = (NameError, AttributeError, SyntaxError)
_AT = " - at `"  # how msgspec 0.22 names the place
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_CONTEXT = "perdure.engine.attempt.context.Context"
_NAMED = re.compile(r"\bContext\b")


class ItemMisfit(Exception):
    """A value does not fit its type: where in it, and which rule it breaks."""

    def __init__(self, path: str, rule: str) -> None:
        self.path = path
        self.rule = rule
        super().__init__(f"{path}: {rule}")


class ItemType:
    """The type of a function's first parameter, and how to read a value of it from JSON."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._read: Callable[[str], Any] | None = None
        try:
            self._read = _reader(_annotation(call))
        except _UNRESOLVED:  # it may be defined further down
            pass
        except TypeError as error:
            self._give_up(error)

    def read(self, text: str) -> Any:
        """The value behind JSON text; `ItemMisfit` where it does not fit."""
        if self._read is None:
            self._look_again()
        assert self._read is not None
        try:
            return self._read(text)
        except msgspec.ValidationError as error:
            raise _misfit(str(error)) from None
        except RecursionError:
            raise ItemMisfit("$", "it is nested too deeply") from None

    def check(self, text: str) -> None:
        """`ItemMisfit` where JSON text does not fit; nothing is read where no type is stated."""
        if self._read is not msgspec.json.decode:
            self.read(text)

    def _look_again(self) -> None:
        try:
            self._read = _reader(_annotation(self._call))
        except (*_UNRESOLVED, TypeError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._read = msgspec.json.decode
        name = getattr(self._call, "__qualname__", repr(self._call))
        log.warning("the type of the item of %s is not checked: %s", name, error)


def is_model(kind: object) -> bool:
    """Whether a class is a pydantic model, told by what it can do."""
    return isinstance(kind, type) and all(
        callable(getattr(kind, name, None)) for name in ("model_validate_json", "model_dump")
    )


def _reader(annotation: Any) -> Callable[[str], Any]:
    foreign = sorted(
        {kind.__qualname__ for kind in _customs(annotation) if not is_model(kind)} - {"object"}
    )
    if foreign:
        raise TypeError(f"no JSON becomes {foreign[0]}")
    if annotation is Any or annotation is object:
        return msgspec.json.decode
    return msgspec.json.Decoder(annotation, dec_hook=_hook).decode


def _annotation(call: Callable[..., Any]) -> Any:
    """The annotation of the first parameter, resolved; Any where there is none."""
    first = next(iter(inspect.signature(call).parameters.values()), None)
    if first is None or first.annotation is first.empty:
        return Any
    alone = SimpleNamespace(__annotations__={"item": first.annotation})  # others may not resolve
    names = getattr(function_behind(call), "__globals__", {})
    return get_type_hints(alone, globalns=names, include_extras=True)["item"]


def function_behind(call: Callable[..., Any]) -> Callable[..., Any]:
    """What has the annotations: behind a partial or a wrapper, or the method of a callable object."""
    while isinstance(call, functools.partial):
        call = call.func
    call = inspect.unwrap(call)
    if inspect.isroutine(call):
        return call
    return call.__init__ if isinstance(call, type) else type(call).__call__  # type: ignore[misc]


def _customs(annotation: Any) -> Iterator[type]:
    """Every class in a type that msgspec itself does not know how to read."""
    seen: set[int] = set()
    left: list[Any] = [msgspec.inspect.type_info(annotation)]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, msgspec.inspect.CustomType):
            yield one.cls
        elif isinstance(one, tuple):
            left += one
        elif isinstance(one, msgspec.inspect.Type | msgspec.inspect.Field):
            left += [getattr(one, name) for name in one.__struct_fields__]


def _hook(kind: type, value: Any) -> Any:
    """Let a pydantic model read its part; what it finds wrong, msgspec puts the way there before."""
    if kind is object:
        return value
    text = msgspec.json.encode(value)
    try:
        return kind.model_validate_json(text)  # type: ignore[attr-defined]
    except ValueError as error:
        raise ValueError(_first_fault(error)) from None


def _first_fault(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error)
    fault = errors(include_url=False, include_context=False, include_input=False)[0]
    path = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in fault["loc"])
    return f"{fault['msg']}{_AT}${path}`" if path else str(fault["msg"])


def _misfit(text: str) -> ItemMisfit:
    """From msgspec's words to path and rule; inner paths come first in them."""
    rule, *places = text.split(_AT)
    path = "".join(
        place.rstrip("`").removeprefix("key` in `").removeprefix("$") for place in reversed(places)
    )
    return ItemMisfit(f"${path}", rule[:_RULE_CHARS_MAX])


def context_parameter(call: Callable[..., Any]) -> inspect.Parameter | None:
    """The parameter after the item that is annotated with `Context`, else the one that is named ``context``."""
    others = list(inspect.signature(call).parameters.values())[1:]
    asking = [
        one
        for place, one in enumerate(others)
        if one.kind not in _MANY and (one.kind is not one.POSITIONAL_ONLY or place == 0)
    ]
    annotated = [one for one in asking if _is_annotated(one, call)]
    found = annotated or [one for one in asking if one.name == "context"]
    return found[0] if found else None


def check_parameters(stage: str, call: Callable[..., Any]) -> None:
    """Refuse a stage that cannot be called with the item, or with the item and a Context."""
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except ValueError as error:
        raise ConfigError(
            f"stage {stage!r} cannot be {call!r:.80}, whose parameters nobody can read; write: def {stage}(item)"
        ) from error
    if (
        not parameters
        or parameters[0].kind not in _BY_PLACE
        or _is_for_context(parameters[0], call)
    ):
        raise ConfigError(
            f"stage {stage!r} must take the item as its first parameter; write: def {stage}(item), or "
            f"def {stage}(item, context)"
        )
    context = context_parameter(call)
    for one in parameters[1:]:
        if one != context and one.default is one.empty and one.kind not in _MANY:
            raise ConfigError(
                f"stage {stage!r} has the required parameter {one.name!r}, which nobody fills: a stage is called with "
                "the item, and with the Context where a parameter is named 'context' or annotated perdure.Context; "
                f"if {one.name!r} is to be the Context, annotate it so, else give it a default"
            )


def _is_for_context(parameter: inspect.Parameter, call: Callable[..., Any]) -> bool:
    """Whether a first parameter is meant for the Context; one that has a type of its own is the item, whatever its name."""
    bare = parameter.annotation is parameter.empty
    return (bare and parameter.name == "context") or _is_annotated(parameter, call)


def _is_annotated(parameter: inspect.Parameter, call: Callable[..., Any]) -> bool:
    """Whether it is annotated with `Context`, alone or in a union; what cannot be resolved is known by its name."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        alone = SimpleNamespace(__annotations__={"it": annotation})
        names = getattr(function_behind(call), "__globals__", {})
        try:
            annotation = get_type_hints(alone, globalns=names)["it"]
        except (NameError, AttributeError, SyntaxError, TypeError):
            return _NAMED.search(annotation) is not None
    return any(_is_context(one) for one in (annotation, *get_args(annotation)))


def _is_context(kind: object) -> bool:
    """Whether this is `Context`; compared by name, because importing it here would be a cycle."""
    return isinstance(kind, type) and f"{kind.__module__}.{kind.__qualname__}" == _CONTEXT
