"""The READMEs of data sets, verifier and gateway: complete, with files and tests that are there, and as long as they say."""

from typing import NamedTuple

import pytest

from tests.examples.readme_kit import faults, lengths, numbers, rules
from tests.house.tree import ROOT, told

HEART_LINES_MAX = 200  # what a stranger must read to understand it


class Example(NamedTuple):
    """An example: the rules that it is to show, what of it stands for the outside, and its most lines."""

    name: str
    asked: set[str]
    outside: tuple[str, ...]
    lines_max: int


DATASETS = Example(
    "datasets",
    numbers("R", (26, 28), (40, 45), (59, 61), (72, 73), (88, 95), (107, 107), (112, 112))
    | numbers("R", (119, 120))
    | {f"PC-002.{one}" for one in (1, 2, 3, 4, "data", "api")}
    | {"C21", "C25", "C28", "D1", "D2", "D3"},
    ("provider.py", "demo.py"),
    800,
)
VERIFIER = Example(
    "verifier",
    numbers("R", (10, 10), (29, 30), (46, 48), (62, 66), (74, 77), (108, 108), (113, 113))
    | numbers("R", (121, 123), (129, 129), (140, 140))
    | numbers("D", (8, 9))
    | {f"PC-003.{one}" for one in (1, 2, 3, 4, 5, "classes", "data")},
    ("service.py", "game.py", "samples.py", "demo.py"),
    1_130,
)
GATEWAY = Example(
    "gateway",
    numbers("R", (11, 13), (31, 34), (49, 51), (96, 97), (109, 110), (114, 114), (132, 132))
    | {f"PC-004.{n}" for n in (1, 2, 3, 4, "api")}
    | {"R141", "D10"},
    ("scripted.py", "demo.py"),
    700,
)
EXAMPLES = pytest.mark.parametrize("example", [DATASETS, VERIFIER, GATEWAY], ids=lambda one: one.name)  # fmt: skip


def folder_of(example: Example):
    return ROOT / "examples" / example.name


def page_of(example: Example) -> str:
    return (folder_of(example) / "README.md").read_text(encoding="utf-8")


@EXAMPLES
def test_every_rule_has_a_row_and_no_rule_has_two(example):
    found = rules(page_of(example))
    assert example.asked - set(found) == set()
    assert len(found) == len(set(found))


def test_the_rows_of_the_data_sets_are_those_rules_in_their_order_and_no_others():
    found = rules(page_of(DATASETS))
    assert set(found) == DATASETS.asked
    by_number = [int(rule[1:]) for rule in found if rule[0] == "R"]
    assert by_number == sorted(by_number)


@EXAMPLES
def test_every_row_names_a_place_and_a_test_that_are_there(example):
    found = faults(page_of(example), folder_of(example))
    assert not found, told(found)


@EXAMPLES
def test_it_is_as_long_as_the_readme_says_and_no_longer_than_it_may_be(example):
    said, found = lengths(page_of(example), folder_of(example), example.outside)
    assert [round(one / is_, 1) for one, is_ in zip(said, found, strict=True)] == [1.0, 1.0]
    assert found[0] <= example.lines_max


@EXAMPLES
def test_its_heart_is_one_file_that_is_read_in_some_minutes(example):
    heart = folder_of(example) / "app.py"
    assert "**[app.py](app.py)**" in page_of(example)
    assert len(heart.read_text(encoding="utf-8").splitlines()) <= HEART_LINES_MAX


def test_a_row_that_lies_is_caught():
    folder = folder_of(DATASETS)
    good = "| R1, C2 | One job. | [app.py](app.py) | `test_readmes.py::test_a_row_that_lies_is_caught` |"
    assert (rules(good), faults(good, folder)) == (["R1", "C2"], [])
    assert faults(good.replace("(app.py)", "(gone.py)"), folder) == ["R1, C2: there is no gone.py"]
    assert faults(good.replace("caught", "gone"), folder)[0].endswith(
        "test_a_row_that_lies_is_gone"
    )
    assert faults("| R1 | One job. | – | – |", folder) == ["R1: no place", "R1: no test"]
