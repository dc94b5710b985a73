"""The READMEs of the examples: complete, with files and tests that are there, and as long as they say."""

import re
import subprocess
from typing import NamedTuple

import pytest

from tests.examples.readme_kit import TESTS, faults, lengths, numbers, rules
from tests.house.tree import ROOT, told
from tests.observers.test_alert_rules import check_command

HEART_LINES_MAX = 200  # what a stranger must read to understand it


class Example(NamedTuple):
    """An example: the rules that it is to show, what of it stands for the outside, its most lines, and where its tests are."""

    name: str
    asked: list[str]
    outside: tuple[str, ...]
    lines_max: int
    tests_folder: str = TESTS


REPORTS = Example(
    "reports",
    numbers("R", (1, 1), (14, 21), (35, 36), (101, 103), (115, 115))
    + [f"PC-000.{one}" for one in (*range(1, 7), "codes", "api", "data")]
    + ["D11", "C24"],
    ("demo.py", "faults.py", "parts.py"),
    850,
    f"{TESTS}/reports",
)
CONVERTER = Example(
    "converter",
    numbers("R", (4, 6), (22, 25), (37, 39), (54, 58), (67, 71), (78, 86), (98, 100), (104, 106))
    + numbers("R", (111, 111), (116, 118), (124, 128))
    + numbers("D", (4, 7))
    + [f"PC-001.{n}" for n in (1, 2, 3, 4, 5, "api", "data")],
    ("gateway.py", "samples.py", "demo.py"),
    960,
)
DATASETS = Example(
    "datasets",
    numbers("R", (26, 28), (40, 45), (59, 61), (72, 73), (88, 95), (107, 107), (112, 112))
    + numbers("R", (119, 120))
    + [f"PC-002.{one}" for one in (1, 2, 3, 4, "data", "api")]
    + ["C21", "C25", "C28", "D1", "D2", "D3"],
    ("provider.py", "demo.py"),
    870,
)
VERIFIER = Example(
    "verifier",
    numbers("R", (10, 10), (29, 30), (46, 48), (62, 66), (74, 77), (108, 108), (113, 113))
    + numbers("R", (121, 123), (129, 129), (140, 140))
    + numbers("D", (8, 9))
    + [f"PC-003.{one}" for one in (1, 2, 3, 4, 5, "classes", "data")],
    ("service.py", "game.py", "samples.py", "demo.py"),
    1_080,
)
GATEWAY = Example(
    "gateway",
    numbers("R", (11, 13), (31, 34), (49, 51), (96, 97), (109, 110), (114, 114), (132, 132))
    + [f"PC-004.{n}" for n in (1, 2, 3, 4, "api")]
    + ["R141", "D10"],
    ("scripted.py", "demo.py"),
    755,
)


def of_each(*examples: Example) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", examples, ids=lambda one: one.name)


ALL = (REPORTS, CONVERTER, DATASETS, VERIFIER, GATEWAY)
EXAMPLES = of_each(*ALL)
LIST = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
LISTED = re.compile(r"(?m)^\| \[(\w+)\]\(\1\) \|[^|]+\|([^|]+)\| `make example-\1` \|$")


def folder_of(example: Example):
    return ROOT / "examples" / example.name


def page_of(example: Example) -> str:
    return (folder_of(example) / "README.md").read_text(encoding="utf-8")


@EXAMPLES
def test_every_rule_has_a_row_and_no_rule_has_two(example):
    found = rules(page_of(example))
    assert set(example.asked) - set(found) == set()
    assert len(found) == len(set(found))


@of_each(REPORTS, DATASETS)
def test_its_rows_are_those_rules_in_their_order_and_no_others(example):
    page = page_of(example)
    assert rules(page) == example.asked


@EXAMPLES
def test_make_runs_its_demonstration_and_with_faults_where_that_is_an_option(example):
    recipe = ["make", "-s", "-n", "-C", str(ROOT), f"example-{example.name}"]
    made = subprocess.run(recipe, capture_output=True, text=True, check=True).stdout
    program = rf"examples[./]{example.name}[./]demo(\.py)?( --faults)?$"
    found = [re.search(program, line) for line in made.splitlines() if "python" in line]
    wanted = (
        [None, " --faults"]
        if "--faults" in (folder_of(example) / "demo.py").read_text()
        else [None]
    )
    assert [one and one[2] for one in found] == wanted, made


@EXAMPLES
def test_every_row_names_a_place_and_a_test_that_are_there(example):
    found = faults(page_of(example), folder_of(example), example.tests_folder)
    assert not found, told(found)


@EXAMPLES
def test_it_is_as_long_as_the_readme_says_and_no_longer_than_it_may_be(example):
    said, found = lengths(page_of(example), folder_of(example), example.outside)
    pairs = zip(said, found, strict=True)
    assert [is_ for one, is_ in pairs if abs(one - is_) > is_ / 200] == [], (said, found)
    assert found[0] <= example.lines_max


def test_the_list_has_each_example_first_the_one_to_begin_with_as_long_as_its_readme_says():
    listed = {
        name: [int(one) for one in re.findall(r"\d+", cell.replace(",", ""))]
        for name, cell in LISTED.findall(LIST)
    }
    shown = {one.name: lengths(page_of(one), folder_of(one), one.outside)[0][:2] for one in ALL}
    assert listed == {name: [one for one in said if one] for name, said in shown.items()}
    assert re.search(r"Begin with \[(\w+)\]", LIST)[1] == next(iter(listed))


@EXAMPLES
def test_it_takes_the_time_that_the_list_says(example):
    (time,) = re.findall(rf"\| `make example-{example.name}` \| ([^|]+) \|[^|]+\|[^|]+\|", LIST)
    assert f"takes {time}" in page_of(example)


@EXAMPLES
def test_its_heart_is_one_file_that_is_read_in_some_minutes(example):
    heart = folder_of(example) / "app.py"
    assert "**[app.py](app.py)**" in page_of(example)
    assert len(heart.read_text(encoding="utf-8").splitlines()) <= HEART_LINES_MAX


@EXAMPLES
def test_each_command_of_perdure_that_it_names_is_there_with_all_that_it_needs(example):
    commands = re.findall(r"(?m)(?:`|^\$ |^)perdure ([a-z][^`\n]*)", page_of(example))
    for one in commands:
        check_command(one.split())
    assert commands


def test_a_row_that_lies_is_caught():
    folder = folder_of(DATASETS)
    good = "| R1, C2 | One job. | [app.py](app.py) | `test_readmes.py::test_a_row_that_lies_is_caught` |"
    assert (rules(good), faults(good, folder)) == (["R1", "C2"], [])
    assert faults(good.replace("(app.py)", "(gone.py)"), folder) == ["R1, C2: there is no gone.py"]
    assert faults(good.replace("caught", "gone"), folder) == [
        "R1, C2: there is no test_readmes.py::test_a_row_that_lies_is_gone"
    ]
    odd = good.replace("is_caught", "is-caught")
    assert faults(odd, folder)[0].endswith("test_a_row_that_lies_is-caught")
    assert faults(good, folder, f"{TESTS}/reports")[0].startswith(
        "R1, C2: there is no test_readmes"
    )
    engine = "| R4, PC-001.api | One job. | perdure | `test_readmes.py::test_nothing` |"
    assert rules(engine) == ["R4", "PC-001.api"]
    assert faults(engine, folder) == ["R4, PC-001.api: there is no test_readmes.py::test_nothing"]
    assert rules(f"```\n{good}\n```") == []
    assert faults("| R1 | One job. | – | – |", folder) == ["R1: no place", "R1: no test"]
