"""What every store keeps to: guarded writes, one colour, no statement that nobody uses."""

import ast
import re
from pathlib import Path

import pytest

from perdure.model.errors import BugError
from perdure.stores.postgres.statements import PostgresStatements
from perdure.stores.sqlite.statements import SqliteStatements
from perdure.stores.statements import check_names, with_pieces
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
    """What a store says in its own words, and what both say."""
    folders = (SOURCES / "stores" / store / "sql", SOURCES / "stores" / "sql")
    return {path.name: path.read_text() for folder in folders for path in folder.glob("*.sql")}


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


PORTS = ("store", "control", "reader")


def contract_faults(port: str, suite: set[str]) -> list[str]:
    """Methods of a port that stand under no noun with files of the suite, and files that it names and has not."""
    faults, defined_by = [], set()
    for line in port.splitlines():
        if line.startswith("    # "):
            defined_by = {*re.findall(r"`(\w+\.py)`", line)}
            faults += [f"there is no {file}" for file in sorted(defined_by - suite)]
        elif line.startswith("    def ") and not defined_by:
            faults.append(f"nothing defines {line.split('(')[0].split()[-1]}")
    return faults


def unnamed_contracts(ports: str, suite: dict[str, str]) -> list[str]:
    """Files of the contract suite that have tests, and that no port names."""
    return [
        file for file, text in suite.items() if "    def test_" in text and f"`{file}`" not in ports
    ]


def test_the_ports_name_by_noun_every_file_of_the_suite_that_defines_them():
    ports = [(SOURCES / "ports" / f"{name}.py").read_text() for name in PORTS]
    folder = SOURCES / "testing" / "store_contract"
    suite = {path.name: path.read_text() for path in sorted(folder.glob("*.py"))}
    assert "claim.py" in suite
    assert [fault for port in ports for fault in contract_faults(port, set(suite))] == []
    assert unnamed_contracts("\n".join(ports), suite) == []


def test_a_file_of_the_suite_that_no_port_names_is_caught():
    suite = {"claim.py": "    def test_a(self): ...", "fresh_store.py": "    def put(self): ..."}
    assert unnamed_contracts("`enqueue.py`", suite) == ["claim.py"]


def test_a_method_that_nothing_defines_and_a_file_that_is_not_there_are_caught():
    port = (
        "    def lanes(self): ...\n    # Claims: `claim.py`, `gone.py`.\n    def turn(self): ...\n"
    )
    assert contract_faults(port, {"claim.py"}) == ["nothing defines lanes", "there is no gone.py"]


@pytest.mark.parametrize("store", STORES)
def test_every_statement_is_used(store):
    stores = SOURCES / "stores"
    modules = [*(stores / store).glob("*.py"), *stores.glob("*.py")]
    used = "\n".join(path.read_text() for path in modules)
    found = set(re.findall(r"(?:SQL|self\._sql)\.(\w+)", used))
    assert {name.removesuffix(".sql") for name in statements(store)} == found


@pytest.mark.parametrize(
    ("declared", "shared", "own", "fault"),
    [
        (["beat", "clam"], [], ["beat", "claim"], "clam has no file; claim has a file and no decl"),
        (["beat"], ["left"], ["beat"], "left has a file and no declaration"),
        (["beat"], ["beat"], ["beat"], "beat has two files"),
    ],
)
def test_a_misspelt_declaration_and_a_left_over_file_stop_the_import(declared, shared, own, fault):
    names = [dict.fromkeys(some, "") for some in (declared, shared, own)]
    with pytest.raises(BugError, match=fault):
        check_names("perdure.stores.sqlite", *names)


@pytest.mark.parametrize("kind", [SqliteStatements, PostgresStatements])
def test_statements_are_compared_with_their_folders_as_they_are_read(kind):
    misspelt = type("Misspelt", (kind,), {"__annotations__": {"clam": str}})
    with pytest.raises(BugError, match="clam has no file"):
        misspelt(kind.__module__.rpartition(".")[0], {})


def test_a_misspelt_piece_of_a_statement_stops_the_import():
    columns = {"claim_columns": "@no, @id"}
    assert with_pieces("SELECT {j.claim_columns}", columns) == "SELECT j.no, j.id"
    with pytest.raises(BugError, match=r"unknown piece \{j\.clam_columns\}"):
        with_pieces("SELECT {j.clam_columns}", columns)


def test_both_stores_are_looked_at():
    assert all(len(statements(store)) > 20 for store in STORES)
