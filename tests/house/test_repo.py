"""What is checked in: no lock file, no address of an index, no path of a machine, short front pages."""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import longest_first
from tests.house.tree import ROOT, told

LOCK_FILES = {"uv.lock", "pylock.toml", "poetry.lock"}
LINES_MAX = {"README.md": 120, "ARCHITECTURE.md": 200}

# Spelled in parts, so that this file does not hold what it looks for.
INDEX_HOST = re.compile(r"py" + r"pi\.org|pythonhosted" + r"\.org|https?://\S+/simple\b")
MACHINE_PATH = re.compile(r"(?<![\w.~*)}/-])/(?:home|root|Users)" + r"/")


@pytest.fixture(scope="module")
def files(missing) -> list[str]:
    """Every file that is tracked, or would be by `git add .`."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        missing("a git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def texts(files: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in files:
        content = (ROOT / name).read_bytes()
        if b"\0" not in content:
            found[name] = content.decode("utf-8", errors="replace")
    return found


def lock_files(files: Iterable[str]) -> list[str]:
    return [name for name in files if Path(name).name in LOCK_FILES]


def addresses(found: dict[str, str], root: Path = ROOT) -> list[str]:
    """Lines that name a package index, or a place on the machine where they were written."""
    # A short root (`/src` in a container) is no sign of a machine.
    here = re.escape(str(root)) if len(root.parts) > 2 else r"(?!)"
    patterns = [INDEX_HOST, MACHINE_PATH, re.compile(here + r"(?![\w-])")]
    return [
        f"{name}:{number} {line.strip()[:120]}"
        for name, text in found.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if any(pattern.search(line) for pattern in patterns)
    ]


def ci_commands(script: str) -> list[str]:
    lines = [line.strip() for line in script.splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]


def pins(requirements: str) -> dict[str, str]:
    """Each requirement's name and everything that is said of it, continued lines joined."""
    joined = requirements.replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return {re.split(r"[=<>~!;\s\[]", line)[0]: line for line in lines}


def pin_faults(requirements: str) -> list[str]:
    return [
        f"{name} is no pin with hashes: {line[:80]}"
        for name, line in pins(requirements).items()
        if not re.match(r"[\w.-]+(\[[\w,.-]+\])?==\S+", line)
        or "--hash=sha256:" not in line
        or "://" in line
    ]


def unpinned(pyproject: str, requirements: str) -> list[str]:
    """What pyproject.toml asks for that the pins do not have."""
    asked = tomllib.loads(pyproject)
    extras = asked["project"].get("optional-dependencies", {})
    wanted = [*asked["project"]["dependencies"], *asked["dependency-groups"]["dev"]]
    wanted += [line for extra in extras.values() for line in extra]
    stems = [re.split(r"[=<>~!;\s\[]", line)[0].lower() for line in wanted if isinstance(line, str)]
    return sorted(set(stems) - set(pins(requirements)))


def test_no_lock_file_is_checked_in(files):
    assert lock_files(files) == []


def test_no_text_names_a_package_index_or_a_path_of_a_machine(files):
    offences = addresses(texts(files))
    assert not offences, told(offences)


@pytest.mark.parametrize(("name", "lines_max"), LINES_MAX.items())
def test_the_front_pages_are_short(name, lines_max, missing):
    if not (ROOT / name).exists():
        missing(name)
    assert len((ROOT / name).read_text().splitlines()) <= lines_max


def test_ci_runs_what_a_developer_runs():
    script = ROOT / ".ci" / "run"
    assert ci_commands(script.read_text()) == ["exec make test"]
    assert "set -euo pipefail" in script.read_text()
    assert os.access(script, os.X_OK)


def test_every_requirement_is_pinned_with_hashes_and_without_an_address():
    requirements = (ROOT / "requirements" / "dev.txt").read_text()
    assert pin_faults(requirements) == []
    assert "make pins" in requirements.splitlines()[1]


def test_every_dependency_is_among_the_pins():
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert unpinned(pyproject, (ROOT / "requirements" / "dev.txt").read_text()) == []


def test_a_lock_file_is_caught():
    assert lock_files(["uv.lock", "examples/x/poetry.lock", "a/pylock.toml", "clock.py"]) == [
        "uv.lock",
        "examples/x/poetry.lock",
        "a/pylock.toml",
    ]


ADDRESSES = [
    "see https://py" + "pi.org/project/x",
    "https://files.pythonhosted" + ".org/packages/x",
    "--index-url https://mirror.example/sim" + "ple",
    "cd /ho" + "me/ann/perdure",
    '"/ro' + 'ot/.cache"',
    "/Use" + "rs/ann/x",
    "cd /srv/build/perdure && make",
]


@pytest.mark.parametrize("line", ADDRESSES)
def test_an_address_or_a_machine_path_is_caught(line):
    assert addresses({"x.md": line}, root=Path("/srv/build/perdure")) == [f"x.md:1 {line}"]


@pytest.mark.parametrize(
    "line", ["src/ro" + "ot/x", "GET /jobs/home/x", "https://example.com/home/x"]
)
def test_other_paths_pass(line):
    assert addresses({"x.md": line}, root=Path("/srv/build/perdure")) == []


def test_a_second_command_in_ci_is_caught():
    assert ci_commands("#!/bin/sh\nset -e\npip install x\nexec make test\n") != ["exec make test"]


REQUIREMENTS = [
    "click==8.1\n",
    "click>=8.1 \\\n    --hash=sha256:aa\n",
    "--index-url https://mirror.example\n",
    "click @ https://mirror.example/click.whl --hash=sha256:aa\n",
]


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_a_requirement_without_pin_hash_or_with_an_address_is_caught(text):
    assert len(pin_faults(text)) == 1


def test_a_dependency_that_is_not_pinned_is_caught():
    pyproject = (
        '[project]\ndependencies = ["click>=8"]\n'
        '[project.optional-dependencies]\npostgres = ["psycopg[binary]>=3.2"]\n'
        '[dependency-groups]\ndev = ["Pytest"]\n'
    )
    assert unpinned(pyproject, "click==8.1 --hash=sha256:aa\n") == ["psycopg", "pytest"]


def test_a_missing_part_is_a_skip_at_home_and_a_failure_under_ci(missing, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="missing: chromium"):
        missing("chromium")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="missing under CI: chromium"):
        missing("chromium")


class Item:
    """As much of a test as its place in the order depends on."""

    def __init__(self, name: str, limit_s: int = 0) -> None:
        self.path = ROOT / "tests" / name
        self.limit_s = limit_s

    def get_closest_marker(self, name: str):
        return pytest.mark.timeout(self.limit_s).mark if self.limit_s else None


@pytest.mark.parametrize("processes", [1, 2, 3, 7, 40])
def test_each_process_begins_with_what_takes_longest_and_no_test_is_lost(processes):
    short = [Item(f"{folder}/test_{n}.py") for n in range(6) for folder in ("rules", "sdks")]
    items = [*short, *(Item("sim/test_seeds.py", limit_s) for limit_s in (60, 1800, 900, 300))]
    ordered = longest_first(items, processes)
    assert sorted(map(id, ordered)) == sorted(map(id, items))
    begins = [ordered[len(items) * n // processes].limit_s for n in range(processes)]
    assert processes > 4 or begins == [1800, 900, 300, 60][:processes]
    rest = [one.path.parent.name for one in ordered if not one.limit_s]
    assert rest == ["sdks"] * 6 + ["rules"] * 6
