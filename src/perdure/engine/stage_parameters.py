"""What a stage is called with: the item first, and the Context where a parameter asks for it."""

import inspect
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

from perdure.engine.item_types import function_behind
from perdure.model.errors import ConfigError

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_CONTEXT = "perdure.engine.attempt.context.Context"
_NAMED = re.compile(r"\bContext\b")


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
    parameters = list(inspect.signature(call).parameters.values())
    if not parameters or parameters[0].kind not in _BY_PLACE or _is_annotated(parameters[0], call):
        raise ConfigError(
            f"stage {stage!r} must take the item as its first parameter; write: def {stage}(item)"
        )
    context = context_parameter(call)
    for one in parameters[1:]:
        if one != context and one.default is one.empty and one.kind not in _MANY:
            raise ConfigError(
                f"stage {stage!r} has the required parameter {one.name!r}, which nobody fills: a stage is called with "
                "the item, and with the Context where a parameter is named 'context' or annotated perdure.Context; "
                f"if {one.name!r} is to be the Context, annotate it so, else give it a default"
            )


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
    """Whether this is our class; it is made of what is made of stages, so it is known by its name here."""
    return isinstance(kind, type) and f"{kind.__module__}.{kind.__qualname__}" == _CONTEXT
