"""The four questions that a stage asks about a model's output."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar, overload

import msgspec

from perdure.checks import json_schemas, msgspec_types, pydantic_models
from perdure.checks.find_json import REPAIR, Cut, FoundValue, find
from perdure.checks.finish_reason import End, end_of
from perdure.checks.json_values import inspect
from perdure.checks.mend_json import mender
from perdure.checks.output_paths import ROOT, OutputMisfit
from perdure.model.errors import (
    ConfigError,
    OutputError,
    OutputInvalid,
    OutputRefused,
    OutputTruncated,
)
from perdure.model.limits import OUTPUT_CHARS_MAX

T = TypeVar("T")

_NO_NAMES: frozenset[str] = frozenset()


class Contract(Protocol):
    """What an output has to be: a JSON Schema, a type that msgspec reads, or a pydantic model."""

    @property
    def known(self) -> frozenset[str]:
        """The names that it states itself, which a path may show."""
        ...

    def read(self, value: Any) -> Any:
        """The value as what was asked for; `OutputMisfit` where it does not fit."""
        ...


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """What was read, and what had to be done to the text.

    ``steps`` are, in this order: ``bom``, ``fence`` and ``words`` (left away around the value),
    ``commas`` (left away inside it), ``repair`` (broken, and mended: ``repaired`` is true then).
    """

    value: T
    steps: tuple[str, ...] = ()

    @property
    def repaired(self) -> bool:
        """Whether the text was broken, and the value is a mended one."""
        return REPAIR in self.steps


@overload
def read_json(
    text: str | bytes | bytearray,
    against: type[T],
    *,
    finish_reason: Any = None,
    repair: bool = True,
) -> Parsed[T]: ...


@overload
def read_json(
    text: str | bytes | bytearray,
    against: Any = None,
    *,
    finish_reason: Any = None,
    repair: bool = True,
) -> Parsed[Any]: ...


def read_json(
    text: str | bytes | bytearray,
    against: Any = None,
    *,
    finish_reason: Any = None,
    repair: bool = True,
) -> Parsed[Any]:
    """Read the one JSON value in a model's output, and say what had to be done for it.

    ``finish_reason`` is the provider's word for why the model stopped. A cut-off output is
    `OutputTruncated`, even if it can be read; a refused one is `OutputRefused`. Broken JSON is mended
    only if the word says that the model had come to its end, and never with ``repair=False``.
    ``against`` is what `check` takes; without it any JSON value will do.
    """
    if not isinstance(text, str | bytes | bytearray):
        raise ConfigError(f"a {type(text).__name__} is no text; pass a parsed value to fits()")
    raw = text if isinstance(text, str) else bytes(text)
    contract = None if against is None else contract_of(against)
    is_whole = _is_whole(finish_reason, raw)
    if is_whole and repair:
        mender()  # where it is missing, that is said at the first output, not at the first broken one
    try:
        found = _find(raw, is_whole=is_whole, repair=repair)
        return Parsed(_fit(found.value, contract), found.steps)
    except OutputMisfit as error:
        misfit = error
    raise _error(misfit, raw)


def json_of(
    text: str | bytes | bytearray, *, finish_reason: Any = None, repair: bool = True
) -> Any:
    """The one JSON value in a model's output: ``json_of(answer.text, finish_reason="stop")``."""
    return read_json(text, finish_reason=finish_reason, repair=repair).value


@overload
def check(
    output: Any, against: type[T], *, finish_reason: Any = None, repair: bool = True
) -> T: ...


@overload
def check(output: Any, against: Any, *, finish_reason: Any = None, repair: bool = True) -> Any: ...


def check(output: Any, against: Any, *, finish_reason: Any = None, repair: bool = True) -> Any:
    """A model's output as what was asked for: ``check(answer.text, Invoice, finish_reason="stop")``.

    ``against`` is a JSON Schema (a dict), a Struct, dataclass, TypedDict or other type that msgspec
    reads, a pydantic model or a TypeAdapter. ``output`` is text, or a value that somebody else has
    parsed, such as the arguments of a tool call.
    """
    contract_of(against)
    if isinstance(output, str | bytes | bytearray):
        return read_json(output, against, finish_reason=finish_reason, repair=repair).value
    _is_whole(finish_reason, _as_text(output))
    return fits(output, against)


@overload
def fits(value: Any, against: type[T]) -> T: ...


@overload
def fits(value: Any, against: Any) -> Any: ...


def fits(value: Any, against: Any) -> Any:
    """A parsed JSON value as what was asked for; a text is a value, too, and not parsed."""
    contract = contract_of(against)
    try:
        return _fit(value, contract)
    except OutputMisfit as error:
        misfit = error
    raise _error(misfit, _as_text(value))


def contract_of(against: Any) -> Contract:
    """The contract behind what the caller has given, compiled once."""
    if isinstance(against, Mapping):
        return json_schemas.schema_of(against)
    try:
        hash(against)
    except TypeError:  # an annotation may hold a list
        return _compile(against)
    return _known(against)


def _compile(against: Any) -> Contract:
    if against is None or isinstance(against, str | bytes | bool | int | float | list | tuple):
        raise ConfigError(
            f"an output cannot be checked against a {type(against).__name__}; pass a JSON Schema as a "
            "dict, a type, a pydantic model or a TypeAdapter"
        )
    kind: Callable[[Any], Contract] = (
        pydantic_models.Model if pydantic_models.is_foreign(against) else msgspec_types.Typed
    )
    return kind(against)


_known = lru_cache(maxsize=256)(_compile)


def _is_whole(finish_reason: Any, raw: str | bytes) -> bool:
    end, word = end_of(finish_reason)
    if end is End.CUT:
        raise OutputTruncated(ROOT, f"finish reason {word}", raw=raw)
    if end is End.REFUSED:
        raise OutputRefused(ROOT, f"finish reason {word}", raw=raw)
    return end is End.WHOLE


def _find(raw: str | bytes, *, is_whole: bool, repair: bool) -> FoundValue:
    if len(raw) > OUTPUT_CHARS_MAX:
        raise OutputMisfit(f"it is longer than {OUTPUT_CHARS_MAX} characters")
    if isinstance(raw, str):
        return find(raw, is_whole=is_whole, repair=repair)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise OutputMisfit("it is not UTF-8") from None
    return find(text, is_whole=is_whole, repair=repair)


def _fit(value: Any, contract: Contract | None) -> Any:
    inspect(value, _NO_NAMES if contract is None else contract.known)
    return value if contract is None else contract.read(value)


def _error(misfit: OutputMisfit, raw: str | bytes) -> OutputError:
    kind = OutputTruncated if isinstance(misfit, Cut) else OutputInvalid
    return kind(misfit.path, misfit.rule, raw=raw)


def _as_text(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return ""
