"""A pydantic model, or what holds one, as a contract. pydantic is never imported, only found loaded."""

import sys
import typing
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import msgspec

from perdure.checks.json_schemas import strings_in
from perdure.checks.output_paths import OutputMisfit, path_of
from perdure.model.errors import ConfigError

_CODE_CHARS_MAX = 60
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")
# What pydantic 2 puts into a place for the branch of a union: no part of the output.
_BRANCHES = frozenset(
    {
        "int",
        "str",
        "float",
        "bool",
        "none",
        "dict",
        "list",
        "tuple",
        "set",
        "date",
        "datetime",
        "time",
        "timedelta",
        "decimal",
        "uuid",
        "bytes",
        "[key]",
    }
)


class Model:
    """A pydantic model, dataclass or type adapter."""

    def __init__(self, kind: Any) -> None:
        self._adapter = kind if is_adapter(kind) else _adapter(kind)

    @cached_property
    def known(self) -> frozenset[str]:
        """The names in its JSON Schema; none, where it has no schema."""
        try:
            schema = self._adapter.json_schema(mode="validation")
        except (TypeError, ValueError, AttributeError, LookupError, RuntimeError):
            # Pydantic has several errors for that, and they are of no one family.
            return frozenset()
        return frozenset(strings_in(schema)) | _BRANCHES

    def read(self, value: Any) -> Any:
        """The value as an object of the model."""
        try:
            return self._adapter.validate_json(msgspec.json.encode(value))
        except ValueError as error:
            misfit = self._misfit(error)
        raise misfit

    def _misfit(self, error: ValueError) -> OutputMisfit:
        errors = getattr(error, "errors", None)
        if not callable(errors):  # a validator's own, which pydantic has let through
            raise error
        fault = errors(include_url=False, include_input=False)[0]
        return OutputMisfit(_rule(fault), path_of(fault["loc"], self.known))


def is_model(kind: Any) -> bool:
    """Whether a class is a pydantic model or dataclass, told by what it can do."""
    if not isinstance(kind, type):
        return False
    if hasattr(kind, "__pydantic_validator__"):
        return True
    return all(
        callable(getattr(kind, name, None)) for name in ("model_validate_json", "model_dump")
    )


def is_adapter(kind: Any) -> bool:
    """Whether a thing is a pydantic TypeAdapter."""
    return not isinstance(kind, type) and all(
        callable(getattr(kind, name, None)) for name in ("validate_json", "json_schema")
    )


def is_foreign(kind: Any) -> bool:
    """Whether pydantic should read it: one of its own, or a generic or a union of them."""
    return is_adapter(kind) or any(is_model(one) for one in _leaves(kind))


def _leaves(kind: Any) -> Iterator[Any]:
    yield kind
    for one in typing.get_args(kind):
        yield from _leaves(one)


def _adapter(kind: Any) -> Any:
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        raise ConfigError(f"{kind!r} looks like a pydantic model, and pydantic is not loaded")
    try:
        adapter = pydantic.TypeAdapter(kind)
    except (TypeError, RuntimeError) as error:  # its errors of declaration are of these
        first = str(error).partition("\n")[0]
        raise ConfigError(f"no output can be read as {kind!r}: {first}") from None
    if not adapter.pydantic_complete:
        raise ConfigError(f"{kind!r} names a type that is not defined yet")
    return adapter


def _rule(fault: Any) -> str:
    """pydantic's code and, where it is one, the bound that was missed: ``greater_than 0``."""
    context = fault.get("ctx", {})
    bounds = [f"{context[name]}" for name in _BOUNDS if _is_number(context.get(name))]
    return " ".join([fault["type"][:_CODE_CHARS_MAX], *bounds])


def _is_number(bound: Any) -> bool:
    return isinstance(bound, int | float) and not isinstance(bound, bool)
