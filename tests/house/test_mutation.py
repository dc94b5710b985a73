"""`make mutation` has what it needs: the tests of the rules run in the copy that it makes, with its own packages."""

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tools.mutation import FILES, lay_out

from tests.house.test_repo import pins
from tests.house.tree import ROOT

# pytest in a process that has none of the packages named before the colon.
BEREFT = """
import sys
import pytest

cut = sys.argv.index(":")
names = set(sys.argv[1:cut])

class Absent:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.exit(pytest.main(sys.argv[cut + 1 :]))
"""


def absent() -> list[str]:
    """What we can import and the environment of mutmut cannot."""
    pinned = set(pins((ROOT / "requirements" / "mutation.txt").read_text())) | {"perdure"}
    found = packages_distributions().items()
    return [
        name
        for name, dists in found
        if name.isidentifier() and not {dist.lower().replace("_", "-") for dist in dists} & pinned
    ]


def run_copy(work: Path) -> tuple[int, str]:
    """Collect the tests of the rules in a copy, and run those that read a file beside them."""
    reading = [
        path.stem for path in work.glob("tests/rules/**/*.py") if "__file__" in path.read_text()
    ]
    asked = ["-q", "-p", "no:cacheprovider", "tests/rules", "-k", " or ".join(reading)]
    told = subprocess.run(
        [sys.executable, "-c", BEREFT, *absent(), ":", *asked],
        cwd=work,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": "src",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
        },
    )
    return told.returncode, told.stdout + told.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    lay_out(FILES, tmp_path)
    return tmp_path


def test_the_tests_of_the_rules_run_in_the_copy_that_is_mutated(copy):
    code, told = run_copy(copy)
    assert code == 0, told


def test_a_test_that_needs_what_is_not_there_is_caught(copy):
    foreign = ("tests.house", "psycopg")
    for number, path in enumerate(sorted((copy / "tests" / "rules").glob("test_*.py"))):
        path.write_text(f"import {foreign[number % len(foreign)]}\n")
    code, told = run_copy(copy)
    assert code == pytest.ExitCode.INTERRUPTED, told
    for name in foreign:
        assert f"ModuleNotFoundError: No module named '{name}'" in told


def test_each_file_that_is_mutated_exists(copy):
    assert [name for name in FILES if not (copy / f"src/perdure/rules/{name}.py").exists()] == []
