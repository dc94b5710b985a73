"""From a URL to an open store whose schema fits. A store's modules are loaded when one of its sort is opened."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from perdure.model.errors import ConfigError, StoreReadOnly, StoreUnavailable
from perdure.ports import Clock, Control, Reader, Schema, Store
from perdure.stores.urls import POSTGRES, shown_url, sqlite_path

if TYPE_CHECKING:
    from perdure.stores.postgres.connection import PostgresConnection as Server


class Opened(Struct, frozen=True):
    """A store that is open and whose schema fits; ``check_schema`` says so when another version has changed it since."""

    store: Store
    control: Control
    reader: Reader
    check_schema: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Disconnect."""
        self.store.close()
        self.reader.close()


class _OnlyRead:
    """Stands for a store and its control where a store is only read: whatever they are asked for is refused."""

    def __init__(self, url: str, opened: Opened) -> None:
        self._url = url
        self.close = opened.store.close

    def __getattr__(self, verb: str) -> Any:
        raise refusal_to_write(self._url)


def refusal_to_write(url: str) -> StoreReadOnly:
    """What is told to those who write to a store that was opened for reading."""
    return StoreReadOnly(
        f"store {shown_url(url)!r} was opened for reading only (read_only=True); "
        "open another App without that to write to it"
    )


class _CheckedSchema(Schema, Protocol):
    def check(self) -> None: ...


def schema_of(url: str, clock: Clock, *, create: bool) -> Schema:
    """The schema behind a URL; without ``create`` a file is left exactly as it is."""
    if url.startswith(POSTGRES):
        return _postgres_schema(url)
    from perdure.stores.sqlite.connection import SqliteConnection
    from perdure.stores.sqlite.schema import SqliteSchema

    if not create:
        _check_exists(url)
    return SqliteSchema(SqliteConnection(sqlite_path(url), clock, looking=not create), url)


def open_store(
    url: str,
    clock: Clock,
    *,
    create: bool,
    wait_s_max: float,
    connections: int = 8,
    injected: bool = False,
    read_only: bool = False,
) -> Opened:
    """Open a store; a fresh one gets its schema, an outdated one is refused with advice.

    ``injected`` makes a server take the given clock's time for its own, for tests. With ``read_only`` nothing is
    made or written, whatever rights there are.
    """
    if url.startswith(POSTGRES):
        server = _connect(url, clock if injected else None, wait_s_max, connections)
        opened = _open_postgres(server, create=create)
    else:
        opened = _open_sqlite(
            url, clock, create=create, wait_s_max=wait_s_max, only_reads=read_only
        )
    if not read_only:
        return opened
    refusing: Any = _OnlyRead(url, opened)
    return Opened(refusing, refusing, opened.reader, opened.check_schema)


def _open_sqlite(
    url: str, clock: Clock, *, create: bool, wait_s_max: float, only_reads: bool
) -> Opened:
    from perdure.stores.sqlite.connection import SqliteConnection, is_others_file
    from perdure.stores.sqlite.control import SqliteControl
    from perdure.stores.sqlite.reader import SqliteReader
    from perdure.stores.sqlite.schema import SqliteSchema
    from perdure.stores.sqlite.store import SqliteStore

    path = sqlite_path(url)
    if not create:
        with closing(schema_of(url, clock, create=False)) as looking:
            _check_present(looking, url)
    with ExitStack() as undo:
        # what is to be written will be refused
        only_reads = only_reads or (not create and is_others_file(path))
        try:
            connection = SqliteConnection(path, clock, wait_s_max=wait_s_max, looking=only_reads)
        except StoreReadOnly:
            if create or only_reads:
                raise
            only_reads = True
            connection = SqliteConnection(path, clock, wait_s_max=wait_s_max, looking=True)
        undo.callback(connection.close)
        _make_ready(SqliteSchema(connection, url), url, create=create)
        reading = SqliteConnection(path, clock, wait_s_max=wait_s_max, looking=only_reads)
        undo.pop_all()
    return Opened(
        SqliteStore(connection),
        SqliteControl(connection),
        SqliteReader(reading),
        SqliteSchema(reading, url).check,
    )


def _open_postgres(connection: "Server", *, create: bool) -> Opened:
    from perdure.stores.postgres.control import PostgresControl
    from perdure.stores.postgres.reader import PostgresReader
    from perdure.stores.postgres.schema import PostgresSchema
    from perdure.stores.postgres.store import PostgresStore

    with ExitStack() as undo:
        undo.callback(connection.close)
        _make_ready(PostgresSchema(connection), connection.shown_url, create=create)
        undo.pop_all()
    return Opened(
        PostgresStore(connection),
        PostgresControl(connection),
        PostgresReader(connection),
        PostgresSchema(connection).check,
    )


def _postgres_schema(url: str) -> Schema:
    server = _connect(url, None, 10.0, 1)
    from perdure.stores.postgres.schema import PostgresSchema

    return PostgresSchema(server)


def _connect(url: str, clock: Clock | None, wait_s_max: float, connections: int) -> "Server":
    try:
        from perdure.stores.postgres.connection import PostgresConnection as Server
    except ImportError as error:
        raise ConfigError(
            f"PostgreSQL needs its driver ({error}); install it: pip install 'perdure[postgres]'"
        ) from None
    return Server(url, clock=clock, wait_s_max=wait_s_max, size_max=connections)


def _make_ready(schema: _CheckedSchema, url: str, *, create: bool) -> None:
    if not schema.status().present:
        if not create:
            _check_present(schema, url)
        schema.upgrade()
    schema.check()


def _check_present(schema: Schema, url: str) -> None:
    if not schema.status().present:
        whose = "" if url.startswith("sqlite") else ", as the role that is to own its tables,"
        raise StoreUnavailable(
            f"{url!r} holds no schema of Perdure; check --store or PERDURE_STORE, or{whose} run: perdure db upgrade"
        )


def _check_exists(url: str) -> None:
    from perdure.stores.sqlite.connection import translate_errors

    path = sqlite_path(url)
    with translate_errors(path):
        exists = Path(path).exists()
    if not exists:
        raise StoreUnavailable(
            f"store {url!r} does not exist; check --store or PERDURE_STORE, or enqueue first"
        )
