"""Numbered, forward-only migrations inside the package, each with the oldest code it lets run.

Always true: what was applied is never changed (a checksum of each step is kept), steps are applied in
order and all in one transaction under a lock, and code that is too old for a schema is refused.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from perdure.model.errors import SchemaMismatch, StoreDamaged
from perdure.model.views import SchemaStatus
from perdure.stores.statements import texts

CODE_VERSION = 1  # raised with every migration; compared with each migration's compat_min

Applied = Mapping[int, tuple[str, int]]  # number: checksum, compat_min


class Migration(Struct, frozen=True):
    """One step of the schema."""

    number: int
    name: str
    sql: str
    compat_min: int

    @property
    def label(self) -> str:
        """As people see it."""
        return f"{self.number:04d}_{self.name}"

    @property
    def checksum(self) -> str:
        """What the step was when it was applied."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations(package: str) -> tuple[Migration, ...]:
    """All steps that this version knows for one store, in order."""
    found = [_migration(name, sql) for name, sql in texts(package, "migrations").items()]
    return tuple(sorted(found, key=lambda one: one.number))


def _migration(file_name: str, sql: str) -> Migration:
    number, _, name = file_name.partition("_")
    compat = re.match(r"-- compat_min: (\d+)\n", sql)
    if compat is None:  # pragma: no cover - a packaging mistake, caught by the tests
        raise StoreDamaged(f"migration {file_name} does not say its compat_min")
    return Migration(int(number), name, sql, int(compat[1]))


def status_of(url: str, applied: Applied, known: Iterable[Migration]) -> SchemaStatus:
    """Where a schema stands."""
    steps = tuple(known)
    version = max(applied, default=0)
    pending = tuple(one.label for one in steps if one.number > version)
    return SchemaStatus(url, bool(applied), version, steps[-1].number, pending)


def check_fits(url: str, applied: Applied, known: Iterable[Migration]) -> None:
    """Refuse a schema that this version must not touch."""
    steps = {one.number: one for one in known}
    for number, (checksum, compat_min) in applied.items():
        if compat_min > CODE_VERSION:
            raise SchemaMismatch(
                f"the schema of {url} is at {max(applied)} and needs a newer version of Perdure "
                f"than this one; upgrade the package"
            )
        if number in steps and steps[number].checksum != checksum:
            raise SchemaMismatch(
                f"migration {number} of {url} was applied in another form than this version "
                "knows; the file belongs to another build of Perdure"
            )


def check_current(
    url: str,
    applied: Applied,
    known: Iterable[Migration],
    *,
    owner: Callable[[], str | None] = lambda: None,
) -> None:
    """As `check_fits`, and refuse a schema that waits for an upgrade; ``owner`` tells whose the tables of a server are."""
    steps = tuple(known)
    check_fits(url, applied, steps)
    version, needed = max(applied, default=0), steps[-1].number
    if version < needed:
        role = owner()
        whose = url if role is None else f"URL, with the URL of {role!r}, who owns its tables"
        raise SchemaMismatch(
            f"the schema of {url} is at {version}, this version of Perdure needs {needed}; "
            f"run: perdure db upgrade --store {whose}"
        )
