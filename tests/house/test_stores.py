"""What every store keeps to: guarded writes, one colour, no statement that nobody uses."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT

SOURCES = ROOT / "src" / "perdure"
STORES = ("sqlite", "postgres")

# These change only jobs that nobody holds, and say so in their own guard.
UNHELD = {
    "promote.sql": "ready = 0", "claim.sql": "ready = 1", "probe_promote.sql": "ready = 0",
    "probe_claim.sql": "ready = 1",
}  # fmt: skip

SHOWN = re.compile(r"\btoken\s*=\s*(\w+\.token|:token|\?\d+|%\(token\)s)")


def unguarded(statements: dict[str, str]) -> list[str]:
    """Statements that change jobs without showing the token."""
    return [
        name
        for name, text in statements.items()
        if re.search(r"UPDATE\s+perdure_jobs", text)
        and not (SHOWN.search(text) or (name in UNHELD and UNHELD[name] in text))
    ]


def asynchronous(source: str) -> bool:
    """Whether a module has a coroutine."""
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    return any(isinstance(node, kinds) for node in ast.walk(ast.parse(source)))


def statements(store: str) -> dict[str, str]:
    folder = SOURCES / "stores" / store / "sql"
    return {path.name: path.read_text() for path in folder.glob("*.sql")}


@pytest.mark.parametrize("store", STORES)
def test_every_write_of_a_held_job_shows_the_token(store):
    assert unguarded(statements(store)) == []


def test_a_write_without_the_token_is_caught():
    assert unguarded({"record.sql": "UPDATE perdure_jobs SET state = 'x' WHERE no = 1"}) == [
        "record.sql"
    ]


@pytest.mark.parametrize(
    "path",
    [*sorted((SOURCES / "ports").rglob("*.py")), *sorted((SOURCES / "stores").rglob("*.py"))],
    ids=lambda p: p.name,
)
def test_the_store_port_has_one_colour(path: Path):
    assert not asynchronous(path.read_text())


def test_a_coroutine_in_a_store_is_caught():
    assert asynchronous("async def claim(): ...")


@pytest.mark.parametrize("store", STORES)
def test_every_statement_is_used(store):
    used = "\n".join(path.read_text() for path in (SOURCES / "stores" / store).glob("*.py"))
    found = set(re.findall(r"SQL\.(\w+)", used))
    assert {name.removesuffix(".sql") for name in statements(store)} == found


def test_both_stores_are_looked_at():
    assert all(len(statements(store)) > 20 for store in STORES)
