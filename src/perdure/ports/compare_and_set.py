"""How a row is changed that others change as well: read it, write it where it is still as it was, and else do both again."""

from collections.abc import Callable
from typing import TypeVar

from perdure.model.errors import StoreBusy

TRIES_MAX = 100  # each lost race means that another's change stands, which cannot go on for ever

T = TypeVar("T")


def compare_and_set(what: str, read_and_write: Callable[[], T | None]) -> T:
    """What ``read_and_write`` returns in the end; None says that the row has moved on, and it is called again."""
    for _ in range(TRIES_MAX):
        written = read_and_write()
        if written is not None:
            return written
    raise StoreBusy(f"{what} was changed by others {TRIES_MAX} times before we could; try again")
