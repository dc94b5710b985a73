"""The table of the README: every rule that the application is to show, where it is, and a test that is there."""

import re

from tests.house.markdown import links, plain
from tests.house.test_rules import is_test
from tests.house.tree import ROOT, told

PAGE = ROOT / "examples" / "datasets" / "README.md"
ROW = re.compile(r"^\| ((?:R|C|D|PC-)[\w.-]+) \|[^|]+\|([^|]+)\|([^|]+)\|$")
TEST = re.compile(r"`([\w/.]+)::(\w+)`")
RULES = [*range(26, 29), *range(40, 46), *range(59, 62), 72, 73, *range(88, 96), 107, 112, 119, 120]  # fmt: skip
SHOWN = [
    *(f"R{no}" for no in RULES),
    *(f"PC-002.{one}" for one in (1, 2, 3, 4, "data", "api")),
    *("C21", "C25", "C28", "D1", "D2", "D3"),
]


def rows(text: str) -> list[tuple[str, list[str], list[tuple[str, str]]]]:
    found = [row for _, line in plain(text) if (row := ROW.match(line))]
    return [(row[1], [one.target for one in links(row[2])], TEST.findall(row[3])) for row in found]


def faults(text: str) -> list[str]:
    found = []
    for id, where, tests in rows(text):
        found += [] if where else [f"{id}: no place"]
        found += [] if tests else [f"{id}: no test"]
        found += [f"{id}: there is no {one}" for one in where if not (PAGE.parent / one).is_file()]
        for file, name in tests:
            path = file if "/" in file else f"tests/examples/{file}"
            found += [] if is_test(ROOT, path, name) else [f"{id}: there is no {file}::{name}"]
    return found


def test_every_rule_of_the_document_is_shown_once_and_in_order():
    assert [id for id, _, _ in rows(PAGE.read_text())] == SHOWN


def test_every_row_names_a_file_and_a_test_that_are_there():
    found = faults(PAGE.read_text())
    assert not found, told(found)


def test_a_row_that_lies_is_caught():
    good = "| R1 | One job. | [app.py](app.py) | `test_datasets_readme.py::test_a_row_that_lies_is_caught` |"
    assert faults(good) == []
    assert faults(good.replace("(app.py)", "(gone.py)")) == ["R1: there is no gone.py"]
    assert faults(good.replace("caught", "gone"))[0].endswith("test_a_row_that_lies_is_gone")
    assert faults("| R1 | One job. | – | – |") == ["R1: no place", "R1: no test"]


def test_it_is_as_long_as_the_readme_says():
    said = re.search(r"some (\d+) lines, and (\d+) of demonstration", PAGE.read_text())
    files = [*PAGE.parent.glob("*.py"), *PAGE.parent.glob("history/*.sql")]
    lines = {one.name: len(one.read_text().splitlines()) for one in files}
    outside = lines["demo.py"] + lines["provider.py"]
    found = (sum(lines.values()) - outside, outside)
    assert [round(int(one) / is_, 1) for one, is_ in zip(said.groups(), found, strict=True)] == [1.0, 1.0]  # fmt: skip
