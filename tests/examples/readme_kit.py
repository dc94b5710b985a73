"""What the READMEs of the examples promise: each rule, where it is kept and which test holds it; and how long all of it is."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.house.markdown import links, plain
from tests.house.test_rules import is_test
from tests.house.tree import ROOT

TESTS = "tests/examples"
ROW = re.compile(r"^\| ((?:(?:R|C|D|PC-)[\w.-]+(?:, )?)+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$")
TEST = re.compile(r"`([^`|]+)::([^`|]+)`")
LONG = re.compile(
    r"The application has some ([\d,]+) lines(?: and its page ([\d,]+))?.*what stands for the outside ([\d,]+)"
)


def numbers(letter: str, *spans: tuple[int, int]) -> list[str]:
    return [f"{letter}{n}" for first, last in spans for n in range(first, last + 1)]


def rows(page: str) -> list[re.Match[str]]:
    return [found for _, line in plain(page) if (found := ROW.match(line))]


def rules(page: str) -> list[str]:
    return [rule for row in rows(page) for rule in row[1].split(", ")]


def faults(page: str, folder: Path, tests_folder: str = TESTS) -> list[str]:
    """Rows that name no place or no test, or one that is not there; a test without a folder is in that of the tests."""
    found = []
    for row in rows(page):
        files, tests = [one.target for one in links(row[2])], TEST.findall(row[3])
        found += [] if files or row[2].strip() == "perdure" else [f"{row[1]}: no place"]
        found += [] if tests else [f"{row[1]}: no test"]
        found += [f"{row[1]}: there is no {one}" for one in files if not (folder / one).is_file()]
        for file, name in tests:
            path = file if "/" in file else f"{tests_folder}/{file}"
            found += [] if is_test(ROOT, path, name) else [f"{row[1]}: there is no {file}::{name}"]
    return found


def lengths(page: str, folder: Path, outside: Sequence[str]) -> tuple[list[int], list[int]]:
    """Lines of the application, of its web page and of what stands for the outside: as the README says, and as it is."""
    code = {one.name: _lines(one) for one in (*folder.glob("*.py"), *folder.glob("**/*.sql"))}
    theirs = sum(code[name] for name in outside)
    web_page = sum(_lines(one) for one in folder.glob("page/**/*.*"))
    said = [int((one or "0").replace(",", "")) for one in LONG.search(page).groups()]
    return said, [sum(code.values()) - theirs, web_page, theirs]


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())
