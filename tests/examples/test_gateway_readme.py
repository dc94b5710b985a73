"""The table of the gateway's README is complete, leads to files and tests that are there, and its commands work."""

import re
import subprocess
import sys

from tests.examples.test_converter_readme import ROW, TEST, numbers
from tests.house.markdown import links
from tests.house.test_rules import is_test
from tests.house.tree import ROOT

FOLDER = ROOT / "examples" / "gateway"
PAGE = FOLDER / "README.md"
OUTSIDE = ("scripted.py", "demo.py")
SPANS = ((11, 13), (31, 34), (49, 51), (96, 97), (109, 110), (114, 114), (132, 132), (141, 141))
ASKED = numbers("R", *SPANS) | {f"PC-004.{n}" for n in (1, 2, 3, 4, "api")} | {"D10"}


def rows() -> list[re.Match[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [found for line in lines if (found := ROW.match(line))]


def test_every_rule_of_the_gateway_has_a_row():
    named = {rule for row in rows() for rule in row[1].split(", ")}
    assert ASKED - named == set()


def test_every_row_names_files_and_tests_that_are_there():
    for row in rows():
        files, tests = [one.target for one in links(row[2])], TEST.findall(row[3])
        assert files or row[2].strip() == "perdure", row[0]
        assert all((FOLDER / one).exists() for one in files), row[0]
        assert tests, row[0]
        assert [one for one in tests if not is_test(ROOT, *one)] == [], row[0]


def test_it_is_as_long_as_the_readme_says():
    said = re.search(r"some (\d+) lines for the application and (\d+) for", PAGE.read_text())
    lines = {one.name: len(one.read_text().splitlines()) for one in FOLDER.glob("*.py")}
    outside = sum(lines[name] for name in OUTSIDE)
    found = (sum(lines.values()) - outside, outside)
    assert [round(int(told) / is_, 1) for told, is_ in zip(said.groups(), found, strict=True)] == [
        1.0
    ] * 2


COMMANDS = """
from uvicorn.importer import import_from_string
for name in ("gateway.gateway:make_gateway", "gateway.api:make_api"):
    import_from_string(name)()
"""


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=FOLDER.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_commands_work_from_the_folder_that_it_names(tmp_path):
    store = f"sqlite:///{tmp_path / 'perdure.db'}"
    where = {"AI_PROVIDERS": "a,b", "AI_GATEWAY_URL": "http://x", "PERDURE_STORE": store}
    ended = run(where, "-c", COMMANDS)
    assert ended.returncode == 0, ended.stderr
    worker = ("-m", "perdure.surfaces.cli", "config", "show", "gateway.worker:app")
    assert run(where, *worker).returncode == 0


def test_what_is_not_set_is_told_in_a_line_without_a_trace():
    ended = run({}, "-c", COMMANDS)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "AI_PROVIDERS is not set" in ended.stderr
    worker = run({}, "-m", "perdure.surfaces.cli", "worker", "gateway.worker:app")
    assert worker.returncode
    assert "AI_GATEWAY_URL is not set" in worker.stderr
    assert "Traceback" not in worker.stderr
