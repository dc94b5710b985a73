"""A JSON Schema as a contract, by jsonschema-rs: compiled once, and never fetched from anywhere."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from perdure.checks.mend_json import REMEDY
from perdure.checks.output_paths import OutputMisfit, path_of
from perdure.model.errors import ConfigError

_RULE_CHARS_MAX = 200  # a schema may list a hundred types
# Of an error: the schema's own words.
_STATED = ("property", "types", "limit", "format", "multiple_of")


class OutputSchema:
    """A compiled schema."""

    def __init__(self, schema: Any) -> None:
        self.known = frozenset(strings_in(schema))
        self._validator = _compile(schema)

    def read(self, value: Any) -> Any:
        """The value itself, if it is valid; of several faults, the first is told."""
        error = next(iter(self._validator.iter_errors(value)), None)
        if error is None:
            return value
        raise OutputMisfit(_rule(error.kind), path_of(error.instance_path, self.known))


def schema_of(schema: Mapping[str, Any]) -> OutputSchema:
    """The compiled schema; a second call with an equal one finds it."""
    try:
        text = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the JSON Schema is no JSON: {error}") from None
    return _cached_schema(text)


@lru_cache(maxsize=256)
def _cached_schema(text: bytes) -> OutputSchema:
    return OutputSchema(json.loads(text))


def strings_in(schema: Any) -> Iterator[str]:
    """Every text in a schema: what it says itself is no secret."""
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list):
            left += one


def _compile(schema: Any) -> Any:
    try:
        import jsonschema_rs
    except ImportError:
        raise ConfigError(f"checking against a JSON Schema needs jsonschema-rs: {REMEDY}") from None
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    except (ValueError, RecursionError) as error:
        first = str(error).partition("\n")[0][:_RULE_CHARS_MAX]
        at = "/".join(map(str, getattr(error, "instance_path", ())))[:_RULE_CHARS_MAX]
        place = f" at {at}" if at else ""
        raise ConfigError(f"the JSON Schema cannot be used{place}: {first}") from None


def _rule(kind: Any) -> str:
    """The keyword that failed and what the schema says there: ``minimum 0``."""
    words = str(kind.name)
    for name in _STATED:
        stated = getattr(kind, name, None)
        if stated is not None:
            words += f" {_short_text(stated)}"
    return words[:_RULE_CHARS_MAX]


def _short_text(stated: Any) -> str:
    if isinstance(stated, list):
        return " or ".join(str(one) for one in stated)
    return str(stated)
