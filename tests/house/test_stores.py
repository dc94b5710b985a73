"""What every store keeps to: guarded writes, one colour, no statement that nobody uses."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT

SQL = ROOT / "src" / "perdure" / "stores" / "sqlite" / "sql"
SOURCES = ROOT / "src" / "perdure"

# These change only jobs that nobody holds, and say so in their own guard.
UNHELD = {"promote.sql": "ready = 0", "claim.sql": "ready = 1"}


def unguarded(statements: dict[str, str]) -> list[str]:
    """Statements that change jobs without showing the token."""
    return [
        name
        for name, text in statements.items()
        if re.search(r"UPDATE\s+perdure_jobs", text)
        and not (
            re.search(r"token\s*=\s*r\.token", text) or (name in UNHELD and UNHELD[name] in text)
        )
    ]


def asynchronous(source: str) -> bool:
    """Whether a module has a coroutine."""
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    return any(isinstance(node, kinds) for node in ast.walk(ast.parse(source)))


def statements() -> dict[str, str]:
    return {path.name: path.read_text() for path in SQL.glob("*.sql")}


def test_every_write_of_a_held_job_shows_the_token():
    assert unguarded(statements()) == []


def test_a_write_without_the_token_is_caught():
    assert unguarded({"record.sql": "UPDATE perdure_jobs SET state = 'x' WHERE no = 1"}) == [
        "record.sql"
    ]


@pytest.mark.parametrize(
    "path",
    [SOURCES / "ports.py", *sorted((SOURCES / "stores").rglob("*.py"))],
    ids=lambda p: p.name,
)
def test_the_store_port_has_one_colour(path: Path):
    assert not asynchronous(path.read_text())


def test_a_coroutine_in_a_store_is_caught():
    assert asynchronous("async def claim(): ...")


def test_every_statement_is_used():
    used = "\n".join(path.read_text() for path in (SOURCES / "stores" / "sqlite").glob("*.py"))
    unused = [name for name in statements() if f"SQL.{name.removesuffix('.sql')}" not in used]
    assert unused == []
