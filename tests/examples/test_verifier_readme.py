"""The table of the verifier's README is complete, and leads to files and tests that are there."""

import re
import subprocess
import sys

from tests.examples.test_converter_readme import ROW, TEST, numbers
from tests.house.markdown import links
from tests.house.test_rules import is_test
from tests.house.tree import ROOT

FOLDER = ROOT / "examples" / "verifier"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
ASKED = (
    numbers("R", (10, 10), (29, 30), (46, 48), (62, 66), (74, 77), (108, 108), (113, 113))
    | numbers("R", (121, 123), (129, 129), (140, 140))
    | numbers("D", (8, 9))
    | {f"PC-003.{one}" for one in (1, 2, 3, 4, 5, "classes", "data")}
)
OUTSIDE = ("service.py", "game.py", "samples.py", "demo.py")


def rows() -> list[re.Match[str]]:
    return [found for line in PAGE.splitlines() if (found := ROW.match(line))]


def test_every_rule_of_the_verifier_has_a_row():
    assert ASKED - {rule for row in rows() for rule in row[1].split(", ")} == set()


def test_every_row_names_files_and_tests_that_are_there():
    for row in rows():
        files, tests = [one.target for one in links(row[2])], TEST.findall(row[3])
        assert files or row[2].strip() == "perdure", row[0]
        assert all((FOLDER / one).exists() for one in files), row[0]
        assert tests, row[0]
        assert [one for one in tests if not is_test(ROOT, *one)] == [], row[0]


def test_it_is_as_long_as_the_readme_says():
    said = re.search(r"some (\d+) lines for the application, .* and (\d+) for what", PAGE)
    lines = {one.name: len(one.read_text().splitlines()) for one in FOLDER.glob("*.py")}
    outside = sum(lines[name] for name in OUTSIDE)
    found = (sum(lines.values()) - outside, outside)
    told = [round(int(one) / is_, 1) for one, is_ in zip(said.groups(), found, strict=True)]
    assert told == [1.0, 1.0]


def test_the_variants_of_the_readme_are_those_of_the_table():
    from examples.verifier.errors import Variant

    named: dict[str, str] = {}
    for line in PAGE.splitlines():
        row = re.match(r"\| `(final|retryable|rate_limited)`,[^|]+\|[^|]+\|([^|]+)\|", line)
        prefix = ""
        for code in re.findall(r"`([a-z_.]+)`", row[2]) if row else ():
            prefix = prefix if code.startswith(".") else code.partition(".")[0]
            named[code if not code.startswith(".") else prefix + code] = row[1]
    told = {one.code: one.error_class for one in Variant if not one.code.startswith("replay.")}
    assert named == told
    assert len(named) == 22


def test_its_commands_are_those_that_there_are():
    def helped(*words: str) -> str:
        command = [sys.executable, "-m", "verifier", *words, "--help"]
        ended = subprocess.run(
            command, cwd=FOLDER.parent, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    told = helped()
    assert [
        one for one in ("daemon", "run", "run-src", "query", "admin") if f"  {one} " not in told
    ] == []
