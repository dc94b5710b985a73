"""From a URL to an open store whose schema fits."""

from dataclasses import dataclass
from pathlib import Path

from perdure.model.errors import ConfigError, StoreUnavailable
from perdure.ports import Clock, Reader, Schema, Store
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.reader import SqliteReader
from perdure.stores.sqlite.schema import SqliteSchema
from perdure.stores.sqlite.store import SqliteStore


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that is open and whose schema fits."""

    store: Store
    reader: Reader


def check_url(url: str) -> None:
    """Refuse what is not the URL of a store."""
    _sqlite_path(url)


def schema_of(url: str, clock: Clock, *, create: bool) -> Schema:
    """The schema behind a URL; without ``create`` the file is left exactly as it is."""
    if not create:
        _check_exists(url)
    return SqliteSchema(Connection(_sqlite_path(url), clock, looking=not create), url)


def open_store(url: str, clock: Clock, *, create: bool, wait_s_max: float) -> Opened:
    """Open a store; a fresh file gets its schema, an outdated one is refused with advice."""
    path = _sqlite_path(url)
    if not create and not schema_of(url, clock, create=False).status().present:
        raise StoreUnavailable(
            f"{url!r} holds no schema of Perdure; check the path, or run: "
            f"perdure db upgrade --store {url}"
        )
    connection = Connection(path, clock, wait_s_max=wait_s_max)
    schema = SqliteSchema(connection, url)
    if not schema.status().present:
        schema.upgrade()
    schema.check()
    reading = Connection(path, clock, wait_s_max=wait_s_max)
    return Opened(SqliteStore(connection), SqliteReader(reading))


def _check_exists(url: str) -> None:
    if not Path(_sqlite_path(url)).exists():
        raise StoreUnavailable(
            f"store {url!r} does not exist; check --store or PERDURE_STORE, or enqueue first"
        )


def _sqlite_path(url: str) -> str:
    """The file behind ``sqlite:///relative`` or ``sqlite:////absolute``."""
    if not url.startswith("sqlite:///") or url == "sqlite:///":
        raise ConfigError(
            f"store {url!r} is not a URL of a store; write sqlite:///work.db for a file beside "
            "you or sqlite:////var/lib/work.db for an absolute path"
        )
    return url.removeprefix("sqlite:///")
