"""The table of the converter's README is complete, and leads to files and tests that are there."""

import re
import subprocess
import sys

from tests.house.markdown import links
from tests.house.test_rules import is_test
from tests.house.tree import ROOT

FOLDER = ROOT / "examples" / "converter"
ROW = re.compile(r"^\| ((?:(?:R|C|D|PC-)[\d.a-z]+(?:, )?)+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$")
TEST = re.compile(r"`([^`|]+)::([^`|]+)`")


def numbers(letter: str, *spans: tuple[int, int]) -> set[str]:
    return {f"{letter}{n}" for first, last in spans for n in range(first, last + 1)}


ASKED = (
    numbers(
        "R",
        (4, 6),
        (22, 25),
        (37, 39),
        (54, 58),
        (67, 71),
        (78, 86),
        (98, 100),
        (104, 106),
        (111, 111),
    )
    | numbers("R", (116, 118), (124, 128))
    | numbers("D", (4, 7))
    | {f"PC-001.{n}" for n in (1, 2, 3, 4, 5, "api", "data")}
)


def rows() -> list[re.Match[str]]:
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    return [found for line in lines if (found := ROW.match(line))]


def test_every_rule_of_the_converter_has_a_row():
    named = {rule for row in rows() for rule in row[1].split(", ")}
    assert ASKED - named == set()


def test_every_row_names_files_and_tests_that_are_there():
    for row in rows():
        files, tests = [one.target for one in links(row[2])], TEST.findall(row[3])
        assert files or row[2].strip() == "perdure", row[0]
        assert all((FOLDER / one).exists() for one in files), row[0]
        assert tests, row[0]
        assert [one for one in tests if not is_test(ROOT, *one)] == [], row[0]


def test_a_row_that_names_a_test_that_is_not_there_would_be_noticed():
    assert not is_test(ROOT, "tests/examples/test_converter_readme.py", "test_nothing")
    assert ROW.match("| R4, PC-001.api | x | perdure | `a::b` |")[1] == "R4, PC-001.api"


OUTSIDE = ("gateway.py", "samples.py", "demo.py")


def test_it_is_as_long_as_the_readme_says():
    said = re.search(
        r"some (\d+) lines of .*, (\d+) of page, and (\d+)", (FOLDER / "README.md").read_text()
    )
    files = [*FOLDER.glob("*.py"), *FOLDER.glob("page/**/*.*")]
    lines = {one: len(one.read_text(encoding="utf-8").splitlines()) for one in files}
    outside = sum(lines[FOLDER / name] for name in OUTSIDE)
    python = sum(count for one, count in lines.items() if one.suffix == ".py")
    found = (python - outside, sum(lines.values()) - python, outside)
    assert [round(int(told) / is_, 1) for told, is_ in zip(said.groups(), found, strict=True)] == [
        1.0
    ] * 3


COMMANDS = """
from uvicorn.importer import import_from_string
for name in ("converter.gateway:gateway", "converter.api:make_api"):
    import_from_string(name)
"""


def test_its_commands_work_from_the_folder_that_it_names(tmp_path):
    where = {
        "DATABASE_URL": "postgresql://x/x",
        "GATEWAY_URL": "http://x",
        "UPLOADS_DIR": str(tmp_path),
        "RESULTS_DIR": str(tmp_path),
    }

    def run(*words: str) -> str:
        command = [sys.executable, *words]
        ended = subprocess.run(
            command, cwd=FOLDER.parent, env=where, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    run("-c", COMMANDS)
    assert "variable GATEWAY_URL" in run(
        "-m", "perdure.surfaces.cli", "config", "show", "converter.worker:app", "--origin"
    )
