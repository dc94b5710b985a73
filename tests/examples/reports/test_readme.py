"""The table of the README: every rule that the application is to show, where it is, and a test that is there."""

import re
from pathlib import Path

from tests.house.markdown import links, plain
from tests.house.test_rules import is_test
from tests.house.tree import ROOT, told

PAGE = ROOT / "examples" / "reports" / "README.md"
HERE = "tests/examples/reports"
ROW = re.compile(r"^\| ((?:R|C|D|PC-)[\w.-]+) \|[^|]+\|([^|]+)\|([^|]+)\|$")
TEST = re.compile(r"`([\w/.]+)::(\w+)`")
RULES = [1, *range(14, 22), 35, 36, 101, 102, 103, 115]
SHOWN = [*(f"R{no}" for no in RULES), *(f"PC-000.{one}" for one in (*range(1, 7), "codes", "api", "data")), "D11", "C24"]  # fmt: skip


def rows(text: str) -> list[tuple[str, list[str], list[tuple[str, str]]]]:
    found = [row for _, line in plain(text) if (row := ROW.match(line))]
    return [(row[1], [one.target for one in links(row[2])], TEST.findall(row[3])) for row in found]


def faults(text: str, root: Path = ROOT) -> list[str]:
    found = []
    for id, where, tests in rows(text):
        found += [f"{id}: no place" for _ in [0] if not where]
        found += [f"{id}: no test" for _ in [0] if not tests]
        found += [f"{id}: there is no {one}" for one in where if not (PAGE.parent / one).is_file()]
        for file, name in tests:
            path = file if "/" in file else f"{HERE}/{file}"
            found += [
                f"{id}: there is no {file}::{name}" for _ in [0] if not is_test(root, path, name)
            ]
    return found


def test_every_rule_of_the_document_is_shown_once_and_in_order():
    assert [id for id, _, _ in rows(PAGE.read_text())] == SHOWN


def test_every_row_names_a_file_and_a_test_that_are_there():
    found = faults(PAGE.read_text())
    assert not found, told(found)


OUTSIDE = ("demo.py", "faults.py", "parts.py")


def test_it_is_as_long_as_the_readme_says():
    said = re.search(
        r"some (\d+) lines of application.*?some (\d+) lines for", PAGE.read_text(), re.DOTALL
    )
    files = [*PAGE.parent.glob("*.py"), *PAGE.parent.glob("*.sql")]
    lines = {one.name: len(one.read_text(encoding="utf-8").splitlines()) for one in files}
    outside = sum(lines[name] for name in OUTSIDE)
    for claim, found in zip(said.groups(), (sum(lines.values()) - outside, outside), strict=True):
        assert round(int(claim) / found, 2) == 1.0


def test_a_row_that_lies_is_caught():
    good = "| R1 | One job. | [app.py](app.py) | `test_readme.py::test_a_row_that_lies_is_caught` |"
    assert faults(good) == []
    assert faults(good.replace("(app.py)", "(gone.py)")) == ["R1: there is no gone.py"]
    assert faults(good.replace("caught", "gone")) == [
        "R1: there is no test_readme.py::test_a_row_that_lies_is_gone"
    ]
    assert faults("| R1 | One job. | – | – |") == ["R1: no place", "R1: no test"]
