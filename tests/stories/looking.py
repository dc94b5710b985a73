"""Looking at the tables of either store with one kind of question and one kind of row."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Protocol
from uuid import UUID

import psycopg


class Row:
    """One row: its values by name, by place, and in order."""

    def __init__(self, names: Sequence[str], values: Sequence[Any]) -> None:
        self._names = names
        self._values = [str(one) if isinstance(one, UUID) else one for one in values]

    def __getitem__(self, key: str | int) -> Any:
        return self._values[key if isinstance(key, int) else self._names.index(key)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __repr__(self) -> str:
        return repr(dict(zip(self._names, self._values, strict=True)))


class Looking(Protocol):
    """A connection that changes nothing."""

    def rows(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """What a question with a ``?`` for each value finds."""

    def close(self) -> None:
        """Look no more."""


class _AtFile:
    def __init__(self, file: str) -> None:
        self._cx = sqlite3.connect(file, isolation_level=None, timeout=20)
        self._cx.execute("PRAGMA query_only = ON")

    def rows(self, sql: str, values: Sequence[Any]) -> list[Row]:
        found = self._cx.execute(sql, values)
        names = [one[0] for one in found.description]
        return [Row(names, one) for one in found.fetchall()]

    def close(self) -> None:
        self._cx.close()


class _AtServer:
    """Connects again when the server has been away."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._cx = self._connect()

    def _connect(self) -> psycopg.Connection:
        cx = psycopg.connect(self._url, autocommit=True, connect_timeout=10)
        cx.execute("SET default_transaction_read_only = on")
        return cx

    def rows(self, sql: str, values: Sequence[Any]) -> list[Row]:
        text = sql.replace("%", "%%").replace("?", "%s")
        try:
            return self._found(text, values)
        except psycopg.OperationalError:
            if not self._cx.broken:
                raise
        self._cx = self._connect()
        return self._found(text, values)

    def _found(self, text: str, values: Sequence[Any]) -> list[Row]:
        found = self._cx.execute(text, values)
        names = [one.name for one in found.description or ()]
        return [Row(names, one) for one in found.fetchall()]

    def close(self) -> None:
        self._cx.close()


def looking_at(url: str) -> Looking:
    """A look at the store of this URL."""
    if url.startswith("sqlite:///"):
        return _AtFile(url.removeprefix("sqlite:///"))
    return _AtServer(url)
