"""A type as a contract: what msgspec reads, with pydantic models anywhere inside it."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.checks.output_paths import ROOT, OutputMisfit, path_of
from perdure.checks.pydantic_models import Model, is_model
from perdure.model.errors import ConfigError

OWN_RULE = "a rule of the type's own"

_RULE_CHARS_MAX = 200
# How msgspec 0.22 names the place, and the three rules that quote the output.
_AT = re.compile(r" - at `(key` in `)?(\$[^`]*)`\Z")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_QUOTING = {
    "Invalid enum value": "Invalid enum value",
    "Invalid value": "Invalid value",
    "Object contains unknown field": "Object contains unknown field",
}


class _Inner(ValueError):
    """What a pydantic model inside another type finds wrong."""

    def __init__(self, misfit: OutputMisfit) -> None:
        self.misfit = misfit
        super().__init__()


class Typed:
    """A type that msgspec reads."""

    def __init__(self, kind: Any) -> None:
        self._models: dict[type, Model] = {}
        try:
            parts = list(_parts(kind))
            self._decoder = msgspec.json.Decoder(kind, dec_hook=self._hook)
        except (TypeError, NameError) as error:
            raise ConfigError(f"no output can be read as {kind!r}: {error}") from None
        self.known = frozenset(
            part.encode_name for part in parts if isinstance(part, msgspec.inspect.Field)
        )
        for part in parts:
            if isinstance(part, msgspec.inspect.CustomType):
                self._add(part.cls)

    def read(self, value: Any) -> Any:
        """The value as that type."""
        try:
            return self._decoder.decode(msgspec.json.encode(value))
        except msgspec.ValidationError as error:
            misfit = self._misfit(error)
        raise misfit

    def _add(self, kind: type) -> None:
        if kind is object:
            return
        if not is_model(kind):
            raise ConfigError(
                f"no JSON becomes {kind.__qualname__}; use a Struct, a dataclass, a TypedDict or a "
                "pydantic model"
            )
        self._models[kind] = Model(kind)

    def _hook(self, kind: type, value: Any) -> Any:
        if kind is object:
            return value
        try:
            return self._models[kind].read(value)
        except OutputMisfit as misfit:
            raise _Inner(misfit) from None

    def _misfit(self, error: msgspec.ValidationError) -> OutputMisfit:
        """From msgspec's words to rule and path, without what they quote of the output."""
        text, cause = str(error), error.__cause__
        if cause is not None:  # its own words come first, and may look like a place
            text = text.removeprefix(str(cause))
        at = _AT.search(text)
        path = ROOT if at is None else path_of(_steps(at[2]), self.known)
        if isinstance(cause, _Inner):
            return OutputMisfit(cause.misfit.rule, path + cause.misfit.path.removeprefix(ROOT))
        if cause is not None:
            return OutputMisfit(OWN_RULE, path)
        rule = text if at is None else text[: at.start()]
        rule = next((word for head, word in _QUOTING.items() if rule.startswith(head)), rule)
        if at is not None and at[1]:
            rule += ", of a name in an object"
        return OutputMisfit(rule[:_RULE_CHARS_MAX], path)


def _parts(kind: Any) -> Iterator[Any]:
    """Every type and field of which a type is made."""
    seen: set[int] = set()
    left: list[Any] = [msgspec.inspect.type_info(kind)]
    kept: list[Any] = []  # an id stays taken only as long as its owner lives
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kept.append(one)
        if isinstance(one, tuple):
            left += one
        elif isinstance(one, msgspec.inspect.Type | msgspec.inspect.Field):
            yield one
            left += [getattr(one, name) for name in one.__struct_fields__]


def _steps(path: str) -> Iterator[str | int]:
    """The steps of msgspec's path; a name with dots or brackets in it comes out as an unknown one."""
    for step in _STEP.finditer(path):
        name, position = step[1], step[2]
        yield int(position) if position else name or ""
