"""What a family of failures is made of: tables by code and by class, and a few conditions.

A class is known by its *short name*: the root package and the class's own name, so that
``httpx._exceptions.ReadTimeout`` and ``httpx.ReadTimeout`` are both ``httpx.ReadTimeout``. Libraries
move their classes between modules; they hardly ever rename either end.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec
from msgspec import Struct

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence

Found = tuple[Kind, str]  # a kind, and what it was known by
Trap = Callable[[Evidence], Found | None]


class Family(Struct, frozen=True):
    """The tables of one family.

    ``traps`` are conditions on an answer, and ``class_traps`` on an exception of a class; both go
    before every table. ``codes`` are machine codes that are to be
    believed whatever the status; ``weak_codes`` only where there is no error status.
    ``classes`` say more than the status that may come with them; ``late_classes`` are asked after
    the status. ``wrappers`` are classes whose cause says more, with what they mean without one.
    ``statuses`` are classes that stand for an HTTP status. ``parents`` tells the ancestry of a class, for
    the sake of names that are given without an exception.
    """

    name: str
    roots: frozenset[str] = frozenset()
    traps: tuple[Trap, ...] = ()
    class_traps: Mapping[str, Trap] = msgspec.field(default_factory=dict)
    codes: Mapping[str, Kind] = msgspec.field(default_factory=dict)
    weak_codes: Mapping[str, Kind] = msgspec.field(default_factory=dict)
    classes: Mapping[str, Kind] = msgspec.field(default_factory=dict)
    late_classes: Mapping[str, Kind] = msgspec.field(default_factory=dict)
    wrappers: Mapping[str, Kind] = msgspec.field(default_factory=dict)
    statuses: Mapping[str, int] = msgspec.field(default_factory=dict)
    parents: Mapping[str, str] = msgspec.field(default_factory=dict)


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """``a.b.c.D`` as ``a.D``."""
    root, dot, rest = name.partition(".")
    return f"{root}.{rest.rpartition('.')[2]}" if dot else name


@lru_cache(maxsize=1024)
def short_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Every name of an ancestry, short."""
    return tuple(short_name(name) for name in names)


def message_of(evidence: Evidence) -> str:
    """The server's own words where it gave any, else the exception's; in lower case."""
    return f"{evidence.fact('message') or ''} {evidence.message}".lower()


def each(roots: tuple[str, ...], kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """The same classes in several packages."""
    return {f"{root}.{name}": kind for root in roots for name, kind in kinds.items()}
