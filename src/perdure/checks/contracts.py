"""What an output is checked against: a JSON Schema, a type that msgspec reads, or a pydantic model.

Each kind of contract is known by what it is, and compiled once.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from perdure.checks import models, schemas, types
from perdure.model.errors import ConfigError


class Contract(Protocol):
    """What an output has to be."""

    @property
    def known(self) -> frozenset[str]:
        """The names that it states itself, which a path may show."""
        ...

    def read(self, value: Any) -> Any:
        """The value as what was asked for; `Misfit` where it does not fit."""
        ...


def contract_of(against: Any) -> Contract:
    """The contract behind what the caller has given."""
    if isinstance(against, Mapping):
        return schemas.schema_of(against)
    try:
        hash(against)
    except TypeError:  # an annotation may hold a list
        return _made(against)
    return _cached(against)


def _made(against: Any) -> Contract:
    if against is None or isinstance(against, str | bytes | bool | int | float | list | tuple):
        raise ConfigError(
            f"an output cannot be checked against a {type(against).__name__}; pass a JSON Schema as a "
            "dict, a type, a pydantic model or a TypeAdapter"
        )
    kind: Callable[[Any], Contract] = models.Model if models.is_foreign(against) else types.Typed
    return kind(against)


_cached = lru_cache(maxsize=256)(_made)
