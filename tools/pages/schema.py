"""The tables of the stores, read from a file that the migrations have just made."""

import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tools.pages.text import code, table

from perdure.app import schema_of


def schema_page() -> list[str]:
    lines = [
        "# Schema of the stores",
        "",
        "The tables that `perdure db upgrade` makes, with the types of SQLite.",
        "PostgreSQL has the same tables, columns, checks and indexes, with `bigint`, `integer`, `boolean`, `text`,",
        "`double precision` and `bytea` in their place, and `uuid` for ids that people see;",
        "there tallies have one row for each writer, which are summed on read.",
        "Read them for reports as you like; write to them only through Perdure.",
        "Moments (`…_at`) are microseconds since 1970, UTC; the view `perdure_job_events` shows them readable.",
        "",
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reference.db"
        with closing(schema_of(f"sqlite:///{path}")) as schema:
            schema.upgrade()
        with closing(sqlite3.connect(path)) as cx:
            for name, sql in tables(cx):
                lines += [f"## {name}", "", *_columns(cx, name, sql), *_indexes(cx, name)]
            for name, sql in views(cx):
                lines += [f"## {name}", "", "A view.", "", "```sql", sql, "```", ""]
    return lines


def tables(cx: sqlite3.Connection) -> list[tuple[str, str]]:
    """Name and statement of every table of ours."""
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name LIKE 'perdure%'"
    return sorted(cx.execute(query))


def views(cx: sqlite3.Connection) -> list[tuple[str, str]]:
    """Name and statement of every view of ours."""
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'view' AND name LIKE 'perdure%'"
    return sorted(cx.execute(query))


def _allowed(sql: str) -> dict[str, str]:
    """The values that a column may have, be it by an IN or by a chain of OR."""
    found = dict(re.findall(r"CHECK \((\w+) IN\s*\(([^)]*)\)\)", sql))
    for column, chain in re.findall(r"CHECK \((?=(\w+) = )(\1 = [^()]* OR [^()]*)\)", sql):
        found[column] = ", ".join(re.findall(r"= ('\w+'|\d+)", chain))
    return found


def _columns(cx: sqlite3.Connection, name: str, sql: str) -> list[str]:
    allowed = _allowed(sql)
    refers = {
        row[3]: f"{row[2]}.{row[4]}" for row in cx.execute(f"PRAGMA foreign_key_list({name})")
    }
    unique = dict(_unique(cx, name))
    rows = []
    for _, column, type_, not_null, default, key in cx.execute(f"PRAGMA table_info({name})"):
        notes = [
            "primary key" if key else "",
            "" if not_null or key else "may be null",
            unique.get(column, ""),
            f"default {default}" if default is not None else "",
            f"one of {allowed[column]}" if column in allowed else "",
            f"refers to {code(refers[column])}" if column in refers else "",
        ]
        rows.append((code(column), type_, "; ".join(note for note in notes if note)))
    return table(("column", "type", "notes"), rows)


def _unique(cx: sqlite3.Connection, name: str) -> Iterator[tuple[str, str]]:
    for _, index, _, origin, _ in cx.execute(f"PRAGMA index_list({name})").fetchall():
        if origin == "u":
            columns = [row[2] for row in cx.execute(f"PRAGMA index_info({index})")]
            for column in columns:
                others = [code(other) for other in columns if other != column]
                yield column, "unique" + (f" with {', '.join(others)}" if others else "")


def _indexes(cx: sqlite3.Connection, name: str) -> list[str]:
    query = "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql NOT NULL"
    found = sorted(" ".join(sql.split()) for (sql,) in cx.execute(query, (name,)))
    return ["```sql", *(f"{sql};" for sql in found), "```", ""] if found else []
