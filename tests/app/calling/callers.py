"""Callers with transactions of their own, on either store, through each of the drivers that we know."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from perdure import App
from perdure.app.pipelines import Pipeline

WAIT_S = 30  # a caller stands in no line, and a pump at full speed leaves small gaps
ORDERS = "CREATE TABLE orders (n INTEGER)"


class Shop:
    """A caller's own table in the store's database, and an app whose jobs go with its rows."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.events: list[object] = []
        self.app = App(url, observers=[self.events.append])
        self.pipe: Pipeline = self.app.pipeline("p", self.app.stage(name="one")(lambda item: item))
        self.app.ready()
        with self.look() as cx:
            cx.execute(ORDERS)

    @property
    def file(self) -> str:
        return self.url.removeprefix("sqlite:///")

    @property
    def on_sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    @property
    def alchemy(self) -> sqlalchemy.Engine:
        if self.on_sqlite:
            return sqlalchemy.create_engine(self.url, connect_args={"timeout": WAIT_S})
        return sqlalchemy.create_engine(self.url.replace("://", "+psycopg://", 1))

    @contextmanager
    def look(self) -> Iterator[Any]:
        """A connection of nobody's, in autocommit."""
        if self.on_sqlite:
            cx = sqlite3.connect(self.file, isolation_level=None)
        else:
            cx = psycopg.connect(self.url, autocommit=True)
        try:
            yield cx
        finally:
            cx.close()

    def orders(self) -> list[int]:
        """The rows that a stranger sees."""
        with self.look() as cx:
            return [n for (n,) in cx.execute("SELECT n FROM orders ORDER BY n").fetchall()]

    def jobs(self) -> int:
        """The jobs that a stranger sees; the books and the audit say the same."""
        books = self.app._session.opened.reader.books()
        assert books.balanced
        assert self.app._session.opened.reader.audit() == []
        assert books.accepted == books.queued
        return books.accepted

    def close(self) -> None:
        self.app.close()


@dataclass(frozen=True, slots=True)
class Caller:
    """A transaction under way: what is passed as ``within``, and how the caller goes on with it."""

    within: object
    execute: Callable[[str], object]
    commit: Callable[[], object]
    rollback: Callable[[], object]
    begin: Callable[[], object] = lambda: None

    def order(self, n: int) -> None:
        self.execute(f"INSERT INTO orders VALUES ({n})")


Opening = Callable[[Shop], Any]


@contextmanager
def sqlite3_default(shop: Shop) -> Iterator[Caller]:
    cx = sqlite3.connect(shop.file, timeout=WAIT_S)
    yield Caller(cx, cx.execute, cx.commit, cx.rollback)
    cx.close()


@contextmanager
def sqlite3_immediate(shop: Shop) -> Iterator[Caller]:
    cx = sqlite3.connect(shop.file, timeout=WAIT_S, isolation_level="IMMEDIATE")
    yield Caller(cx, cx.execute, cx.commit, cx.rollback)
    cx.close()


@contextmanager
def sqlite3_by_hand(shop: Shop) -> Iterator[Caller]:
    cx = sqlite3.connect(shop.file, timeout=WAIT_S, isolation_level=None)
    cx.execute("BEGIN")
    yield Caller(
        cx,
        cx.execute,
        lambda: cx.execute("COMMIT"),
        lambda: cx.execute("ROLLBACK"),
        lambda: cx.execute("BEGIN"),
    )
    cx.close()


@contextmanager
def sqlite3_cursor(shop: Shop) -> Iterator[Caller]:
    cx = sqlite3.connect(shop.file, timeout=WAIT_S)
    cursor = cx.cursor()
    yield Caller(cursor, cursor.execute, cx.commit, cx.rollback)
    cx.close()


@contextmanager
def sqlite3_with_own_rows(shop: Shop) -> Iterator[Caller]:
    cx = sqlite3.connect(shop.file, timeout=WAIT_S)
    cx.row_factory, cx.text_factory = sqlite3.Row, bytes
    yield Caller(cx, cx.execute, cx.commit, cx.rollback)
    assert (cx.row_factory, cx.text_factory) == (sqlite3.Row, bytes)
    cx.close()


@contextmanager
def psycopg_default(shop: Shop) -> Iterator[Caller]:
    cx = psycopg.connect(shop.url)
    yield Caller(cx, cx.execute, cx.commit, cx.rollback)
    cx.close()


@contextmanager
def psycopg_by_hand(shop: Shop) -> Iterator[Caller]:
    cx = psycopg.connect(shop.url, autocommit=True)
    cx.execute("BEGIN")
    yield Caller(
        cx,
        cx.execute,
        lambda: cx.execute("COMMIT"),
        lambda: cx.execute("ROLLBACK"),
        lambda: cx.execute("BEGIN"),
    )
    cx.close()


@contextmanager
def psycopg_cursor(shop: Shop) -> Iterator[Caller]:
    cx = psycopg.connect(shop.url, row_factory=psycopg.rows.dict_row)
    cursor = cx.cursor()
    yield Caller(cursor, cursor.execute, cx.commit, cx.rollback)
    cx.close()


@contextmanager
def alchemy_session(shop: Shop) -> Iterator[Caller]:
    engine = shop.alchemy
    with Session(engine) as session:
        run = lambda text: session.execute(sqlalchemy.text(text))  # noqa: E731
        yield Caller(session, run, session.commit, session.rollback)
    engine.dispose()


@contextmanager
def alchemy_scoped_session(shop: Shop) -> Iterator[Caller]:
    engine = shop.alchemy
    session = scoped_session(sessionmaker(engine))
    run = lambda text: session.execute(sqlalchemy.text(text))  # noqa: E731
    yield Caller(session, run, session.commit, session.rollback)
    session.remove()
    engine.dispose()


@contextmanager
def alchemy_connection(shop: Shop) -> Iterator[Caller]:
    engine = shop.alchemy
    with engine.connect() as cx:
        run = lambda text: cx.execute(sqlalchemy.text(text))  # noqa: E731
        yield Caller(cx, run, cx.commit, cx.rollback)
    engine.dispose()


ALCHEMY: list[Opening] = [alchemy_session, alchemy_scoped_session, alchemy_connection]
SQLITE: list[Opening] = [
    sqlite3_default, sqlite3_immediate, sqlite3_by_hand, sqlite3_cursor, sqlite3_with_own_rows,
    *ALCHEMY,
]  # fmt: skip
POSTGRES: list[Opening] = [psycopg_default, psycopg_by_hand, psycopg_cursor, *ALCHEMY]


def name(value: object) -> str:
    return getattr(value, "__name__", str(value))
