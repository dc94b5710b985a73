"""docs/rules.md is complete and true: every rule once, every path and every test there."""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.rules.presets import PRESETS
from tests.house.markdown import links, plain
from tests.house.tree import ROOT, told

PAGE = ROOT / "docs" / "rules.md"
TEST = re.compile(r"`([^`|]+)::([^`|]+)`")
ROW = re.compile(
    r'^\| <a id="([^"]+)"></a>(\S+) \|([^|]*)\|([^|]*)'
    r"\| ((?:`[^`|]+::[^`|]+`(?:<br>)?)*) \|([^|]*)\|$"
)
STATE = re.compile(r"true|later: .*\b(dashboard|trac|webhook).*")  # nothing else is open

# By design: how many mistakes it made, and what it has besides.
MISTAKES = {
    "000": (6, "codes", "api", "data", "cli"),
    "001": (5, "api", "data"),
    "002": (4, "data", "api"),
    "003": (5, "classes", "data"),
    "004": (4, "api"),
}


@dataclass(frozen=True)
class RuleRow:
    """A row of the page: the rule, the files that do it, the tests that hold it, and its state."""

    line: int
    anchor: str
    id: str
    rule: str
    where: tuple[str, ...]
    tests: tuple[tuple[str, str], ...]
    state: str


def expected() -> list[str]:
    mistakes = [
        f"PC-{design}.{name}"
        for design, (count, *names) in MISTAKES.items()
        for name in [*range(1, count + 1), *names]
    ]
    numbered = {"R": 141, "C": 28}
    ids = [f"{letter}{no}" for letter, most in numbered.items() for no in range(1, most + 1)]
    return [*ids, *mistakes, *(f"D{no}" for no in range(1, 13))]


def rows(text: str) -> Iterator[RuleRow]:
    for number, line in plain(text):
        if found := ROW.match(line):
            anchor, id_, rule, where, tests, state = (one.strip() for one in found.groups())
            files = tuple(link.target for link in links(where))
            named = tuple((file, name) for file, name in TEST.findall(tests))
            yield RuleRow(number, anchor, id_, rule, files, named, state)


@functools.cache
def functions_of(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in nodes if isinstance(node, defined))


def is_test(root: Path, file: str, name: str) -> bool:
    path = root / file
    return name.startswith("test_") and path.is_file() and name in functions_of(path)


def faults(root: Path, row: RuleRow) -> Iterator[str]:
    """What is wrong with a row of a page in the folder `docs` of a tree."""
    if row.anchor != row.id.lower():
        yield f"its anchor is {row.anchor}"
    if not row.rule:
        yield "it has no rule"
    if not STATE.fullmatch(row.state):
        yield f"its state is {row.state!r}: write true, or `later: …` with the dashboard, tracing or webhooks"
    if row.state == "true" and not row.tests:
        yield "it is true without a test"
    if row.state == "true" and not row.where:
        yield "it is true nowhere"
    yield from (f"there is no {one}" for one in row.where if not (root / "docs" / one).exists())
    yield from (f"there is no {a}::{b}" for a, b in row.tests if not is_test(root, a, b))


def offences(root: Path, text: str) -> list[str]:
    return [f"{row.line} {row.id}: {one}" for row in rows(text) for one in faults(root, row)]


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_every_rule_is_there_once_and_in_order(text):
    assert [row.id for row in rows(text)] == expected()


def test_every_row_names_files_and_tests_that_exist(text):
    found = offences(ROOT, text)
    assert not found, told(found)


def test_a_preset_names_only_rules_that_have_a_line():
    named = {one for preset in PRESETS.values() for one in preset.implements}
    assert named <= set(expected())


# -- broken twins: each sort of lie is caught ------------------------------------------------

GOOD = '| <a id="r1"></a>R1 | Retry. | [a](../a.py) | `a.py::test_a`<br>`a.py::test_b` | true |'

LIES = {
    "a wrong anchor": (('id="r1"', 'id="r2"'), "its anchor is r2"),
    "no rule": (("Retry.", ""), "it has no rule"),
    "a file that is not there": (("../a.py", "../b.py"), "there is no ../b.py"),
    "a test file that is not there": (
        ("`a.py::test_b", "`b.py::test_b"),
        "there is no b.py::test_b",
    ),
    "a test that is not there": (("test_b", "test_c"), "there is no a.py::test_c"),
    "a function that is no test": (("::test_b", "::plain"), "there is no a.py::plain"),
    "true without a test": (("`a.py::test_a`<br>`a.py::test_b`", ""), "it is true without a test"),
    "true nowhere": (("[a](../a.py)", ""), "it is true nowhere"),
}
OPEN = ["done", "part: needs the dashboard", "later", "later: needs time", "later: an extract"]


@pytest.fixture
def tree(tmp_path) -> Path:
    (tmp_path / "docs").mkdir()
    source = "def plain(): ...\ndef test_a(): ...\nclass Suite:\n    async def test_b(self): ...\n"
    (tmp_path / "a.py").write_text(source)
    return tmp_path


def test_a_row_that_is_true_passes(tree):
    assert [row.id for row in rows(GOOD)] == ["R1"]
    assert offences(tree, GOOD) == []
    for what in ("the dashboard", "tracing", "webhooks"):
        assert offences(tree, GOOD.replace("true", f"later: needs {what}")) == []


@pytest.mark.parametrize(("change", "fault"), LIES.values(), ids=list(LIES))
def test_a_row_that_lies_is_caught(change, fault, tree):
    assert offences(tree, GOOD.replace(*change)) == [f"1 R1: {fault}"]


@pytest.mark.parametrize("state", OPEN)
def test_a_row_is_open_only_for_the_dashboard_tracing_or_webhooks(state, tree):
    (found,) = offences(tree, GOOD.replace("true", state))
    assert found.startswith(f"1 R1: its state is {state!r}: write true, or")
