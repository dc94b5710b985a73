"""The README and the tutorial are walked through as a reader would; see walkthrough.py."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from perdure import __version__
from perdure.demo.script import Fault
from perdure.demo.summary import Summary
from perdure.model.jobs import Counters
from perdure.model.views import Books, FailureGroup
from perdure.surfaces.cli.demo import report
from tests.house.markdown import fences
from tests.house.tree import ROOT
from tests.house.walkthrough import (
    BIN,
    Untrue,
    Walk,
    make_targets,
    on_free_ports,
    shown_pattern,
    steps,
)

DOCUMENTS = ["README.md", "docs/tutorial.md"]
EXTRAS = ("postgres", "http", "checks")
TARGETS = frozenset(make_targets((ROOT / "Makefile").read_text()))

WORK = """
```python
# work.py
import os, pathlib
from perdure import App

app = App()


@app.stage
def note(item):
    pathlib.Path("pid").write_text(f"{os.getppid()} {os.getpid()}")
    return item


notes = app.pipeline("notes", note)
```
"""


@pytest.fixture
def walk(tmp_path) -> Walk:
    return Walk(tmp_path, TARGETS)


def running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.story
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_reader_who_types_what_is_written_sees_what_is_shown(name, walk):
    walk.through(on_free_ports((ROOT / name).read_text(encoding="utf-8")))
    assert any(one.startswith("perdure worker") for one in walk.typed)
    assert any(one.startswith("perdure jobs show") for one in walk.typed)
    assert any(one.startswith("kill") for one in walk.typed)


def run_offline(*command: object, cwd: Path, **environment: str) -> str:
    """What a program prints that must not ask the network; its words if it fails."""
    kept = {name: text for name, text in os.environ.items() if "PERDURE" not in name}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.story
def test_the_wheel_of_the_readme_is_made_and_brings_the_command(tmp_path):
    blocks = fences((ROOT / "README.md").read_text(encoding="utf-8"))
    typed = [one.command for block in blocks if block.language == "sh" for one in steps(block)]
    wheel = f"perdure-{__version__}-py3-none-any.whl"
    made = f"dist/{wheel}"
    assert typed == [f'pip install "{wheel}[{",".join(EXTRAS)}]"', "perdure demo"]
    # uv is the pip of our tools; what else the wheel needs is lent to it from there
    uv = [BIN / "uv", "--offline", "--no-cache", "--quiet"]
    own = tmp_path / "own"
    run_offline(
        *uv,
        "build",
        "--wheel",
        "--no-build-isolation",
        "--python",
        BIN / "python",
        "--out-dir",
        tmp_path / "dist",
        ROOT,
        cwd=tmp_path,
    )
    run_offline(*uv, "venv", "--python", BIN / "python", own, cwd=tmp_path)
    run_offline(
        *uv,
        "pip",
        "install",
        "--no-deps",
        "--python",
        own / "bin/python",
        tmp_path / made,
        cwd=tmp_path,
    )
    named = (
        "import importlib.metadata as m; print(*m.metadata('perdure').get_all('Provides-Extra'))"
    )
    assert {*EXTRAS} <= {*run_offline(own / "bin/python", "-c", named, cwd=tmp_path).split()}
    lent = {"PYTHONPATH": sysconfig.get_path("purelib")}
    found = run_offline(
        own / "bin/python", "-c", "import perdure; print(perdure.__file__)", cwd=tmp_path, **lent
    )
    assert Path(found.strip()).is_relative_to(own)
    assert __version__ in run_offline(own / "bin/perdure", "--version", cwd=tmp_path, **lent)
    run_offline(own / "bin/perdure", "db", "upgrade", cwd=tmp_path, **lent)
    assert (tmp_path / "perdure.db").exists()


def demo_ends_like() -> list[str]:
    """The report of a tour in which the same things happened as in the one of the README."""
    failures = (
        FailureGroup("invoices", "extract", "fatal", "invalid_request", 2, "one"),
        FailureGroup("invoices", "extract", "crashed", "worker_lost", 1, "another"),
    )
    summary = Summary(
        items=1000,
        seed=1,
        elapsed_s=23.4,
        books=Books(1000, 0, 0, 997, 3, 0, 0),
        findings=(),
        failures=failures,
        faults=dict.fromkeys(Fault, 5),
        sums=Counters(starts=3426, failures=262, waits=121, crashes=49),
        bereaved=32,
        rescued=30,
        history=None,
    )
    return list(report(summary))


def unlike(shown: list[str], lines: list[str]) -> list[str]:
    """The lines shown that are not among the others, in order, whatever their numbers are."""
    rest, strange = iter([shape(line) for line in lines]), []
    for line in shown:
        if line != "…" and shape(line) not in rest:
            strange.append(line)
            break
    return strange


def shape(line: str) -> str:
    return re.sub(r"\d[\d,.]*", "N", line).replace(" ", "")


def test_the_readme_shows_the_end_of_the_demo_in_its_own_words():
    blocks = fences((ROOT / "README.md").read_text(encoding="utf-8"))
    typed = [one for block in blocks if block.language == "console" for one in steps(block)]
    (demo,) = [one for one in typed if one.command == "perdure demo" and one.shown]
    assert demo.shown is not None
    assert len(demo.shown) > 10
    assert unlike(list(demo.shown), demo_ends_like()) == []
    assert unlike(["The books", "  12 in = 11 succeeded + 1 lost"], demo_ends_like()) != []
    assert unlike(["Faults struck", "The books"], demo_ends_like()) != []


# -- broken twins: each sort of lie is caught ------------------------------------------------

LIES = {
    "a block that does not run": ("```python\nimport nowhere\n```\n", "No module named"),
    "a file that cannot be imported": ("```python\n# a.py\n1 / 0\n```\n", "ZeroDivisionError"),
    "a command that fails": ("```sh\nperdure jobs list\n```\n", "ended with 11"),
    "an option that does not exist": ("```sh\nperdure audit --deep\n```\n", "ended with 2"),
    "a target that does not exist": ("```sh\nmake coffee\n```\n", "nobody knows how"),
    "a command that is not checked": ("```sh\nrm -rf x\n```\n", "nobody knows how"),
    "output that is not shown": (
        "```python\n# a.py\n```\n```console\n$ python a.py\nhello\n```\n",
        "should show\nhello",
    ),
    "output that differs": (
        "```python\n# a.py\nprint('hello there')\n```\n```console\n$ python a.py\nhello\n```\n",
        "but shows\nhello there",
    ),
    "output before a command": ("```console\nhello\n```\n", "before any command"),
    "a number that a shell may not have given back yet": (
        "```console\n$ python -m http.server 0 &\n$ kill %1\n$ python -m http.server 0 &\n```\n",
        "wait %1",
    ),
    "a worker that is not there": ("```console\n$ kill %1\n```\n", "no such job"),
    "a process that was not shown": ("```console\n$ kill -9 1\n```\n", "nobody knows how"),
}


@pytest.mark.parametrize(("text", "words"), LIES.values(), ids=list(LIES))
def test_a_lie_is_caught(text, words, walk):
    with pytest.raises(Untrue, match=re.escape(words)):
        walk.through(text)


def test_a_reading_command_that_never_shows_it_is_given_up(walk):
    walk.patience_s = 0.2
    text = (
        "```console\n$ perdure db upgrade\n```\n\n"
        "```console\n$ perdure db status\nsqlite:///perdure.db: schema 99\n```\n"
    )
    with pytest.raises(Untrue, match=r"but shows\nsqlite:///perdure.db: schema \d+ of \d+"):
        walk.through(text)


def test_a_command_that_does_not_end_is_given_up(walk):
    walk.deadline_s = 0.5
    with pytest.raises(Untrue, match=r"did not end within 0\.5 s"):
        walk.through("```python\nimport time\ntime.sleep(100)\n```\n")


@pytest.mark.story
def test_a_worker_is_ended_with_the_walk_also_when_the_document_lies(walk):
    text = """
```console
$ perdure enqueue work:notes 1
01a1de7d-a43c-70af-8f61-84ffa69598b9
$ perdure worker work:app &
12:00:00.000 INFO    worker_started worker=7 role=main pid=100
$ perdure jobs list --state succeeded
no  job                                   state      stage       starts  error  enqueued              key
 1  01a1de7d-a43c-70af-8f61-84ffa69598b9  succeeded  notes/note       1  -      2026-11-15 12:00:00Z  -
$ make coffee
```
"""
    with pytest.raises(Untrue, match="make coffee"):
        walk.through(WORK + text)
    supervisor, child = map(int, (walk.folder / "pid").read_text().split())
    assert walk.names["100"] == str(child)
    assert supervisor != os.getpid()
    assert not running(supervisor)
    assert not running(child)


A_JOB, ANOTHER = "01a1de7d-a43c-70af-8f61-84ffa69598b9", "01a1de7d-ba9b-75b8-926d-c1f7ca9da9fd"

SHOWN = [
    ("after 0.00 s on worker 1", "after 12.34 s on worker 17", True),
    ("after 0.00 s on worker 1", "after a while on worker 1", False),
    ("  2026-11-15 09:15:39.819Z  x", "  2027-01-02 23:59:59.001Z  x", True),
    ("retry in 2.1 s: network", "retry in 2 s: network", True),
    ("retry in 2.1 s: network", "retry in 2 s: timeout", False),
    ("attempt 1 of 5 failed", "attempt 2 of 5 failed", False),
    ("a … c", "a b c", True),
    ("a … c", "a b", False),
    (f"{A_JOB} {A_JOB}", f"{ANOTHER} {ANOTHER}", True),
    (f"{A_JOB} {A_JOB}", f"{ANOTHER} {A_JOB}", False),
    ("a\n…\nd", "a\nb\nc\nd", True),
    ("a\n…\nd", "a\nd", True),
    ("a\n…\nd", "a\nb", False),
    ("a", "a\nb", False),
]


@pytest.mark.parametrize(("shown", "seen", "same"), SHOWN)
def test_only_what_differs_between_two_runs_may_differ(shown, seen, same):
    pattern, _ = shown_pattern(shown.split("\n"), {})
    assert (pattern.fullmatch(seen + "\n") is not None) is same


def test_an_id_that_was_shown_before_stands_for_the_same_job():
    pattern, unbound = shown_pattern([f"job {A_JOB}"], {A_JOB: ANOTHER})
    assert unbound == []
    assert pattern.fullmatch(f"job {ANOTHER}\n")
    assert not pattern.fullmatch(f"job {A_JOB}\n")
