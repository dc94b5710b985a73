"""A noun with some of its fields changed, whether it is a dataclass or a `Struct`."""

import dataclasses
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def replace(noun: T, **changes: Any) -> T:
    """The same noun with these changes."""
    if isinstance(noun, msgspec.Struct):
        return msgspec.structs.replace(noun, **changes)
    return dataclasses.replace(noun, **changes)  # type: ignore[type-var]
