"""Killed at every write and sync of a job's life on SQLite: whole steps, acknowledged ones present, and on it goes.

The same with a disk that fails or is full for one call, and with a file system that is really full. A loss of
power is not simulated: what a killed process has written stays with the kernel.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.stories.crashing import KILLED, ROOT, Nursery, Point, strace
from tests.stories.life import STEPS, Life, Tables, tables_of

pytestmark = pytest.mark.story

RUNS = {"log left to grow": "live", "log moved after every commit": "live_moving"}
OURS = {"StoreFull", "StoreUnavailable"}
SAMPLE = 83  # of how many points the quick tests take one; odd, as writes come in pairs


@pytest.fixture
def nursery(missing) -> Iterator[Nursery]:
    if strace() is None:
        missing("strace, to crash processes at their writes (make parts)")
    with Nursery() as one:
        yield one


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> list[Tables]:
    """The tables of a life in peace: before the first step, and after each."""
    path = tmp_path_factory.mktemp("peace") / "work.db"
    seen: list[Tables] = [{}]
    Life(path).go_on(lambda _: seen.append(tables_of(path)))
    assert len(seen) == len(STEPS) + 1
    return seen


class Found:
    """What is left of a life that was cut short."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.db"
        self.said = folder / f"{name}.said"

    @property
    def words(self) -> list[list[str]]:
        """What was said in whole lines."""
        text = self.said.read_text() if self.said.exists() else ""
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    @property
    def acknowledged(self) -> int:
        """How many steps were said to be done."""
        return max((int(number) for word, number, *_ in self.words if word == "done"), default=0)


def steps_in(tables: Tables, whole: list[Tables], acknowledged: int) -> int | None:
    """How many steps are in these tables: all acknowledged ones and at most one more, and no half ones."""
    possible = (acknowledged, min(acknowledged + 1, len(STEPS)))
    return next((one for one in possible if tables == whole[one]), None)


def assert_whole_and_goes_on(found: Found, whole: list[Tables]) -> None:
    done = steps_in(tables_of(found.path), whole, found.acknowledged)
    assert done is not None, f"{found.acknowledged} steps were acknowledged; found another state"
    life = Life(found.path, done)
    if 0 < done < len(STEPS):
        assert life.opened.reader.audit() == []
        assert life.opened.reader.books().balanced
    life.go_on(lambda _: None)
    assert tables_of(found.path) == whole[-1]


def crash_at_each(
    nursery: Nursery, folder: Path, run: str, whole: list[Tables], *, sample: int
) -> None:
    called = f"tests.stories.life:{run}"
    peace = Found(folder, "peace")
    points = nursery.points(called, str(peace.path), str(peace.said))
    assert tables_of(peace.path) == whole[-1]
    for number, point in enumerate(points[::sample]):
        found = Found(folder, str(number))
        status = nursery.crashed_at(point, called, str(found.path), str(found.said))
        try:
            assert status == KILLED
            assert_whole_and_goes_on(found, whole)
        except BaseException:
            print(f"killed at {point}")
            raise
        remove(found)
    print(f"FIGURE killed at {len(points[::sample])} of {len(points)} points: {tally(points)}")


def remove(found: Found) -> None:
    for file in found.path.parent.glob(f"{found.path.stem}.*"):
        file.unlink()


def tally(points: list[Point]) -> dict[str, int]:
    return dict(Counter(point.call for point in points))


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_process_killed_at_one_of_its_writes_leaves_whole_steps(nursery, tmp_path, whole, run):
    crash_at_each(nursery, tmp_path, run, whole, sample=SAMPLE)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_process_killed_at_any_of_its_writes_leaves_whole_steps(nursery, tmp_path, whole, run):
    crash_at_each(nursery, tmp_path, run, whole, sample=1)


# -- a disk that fails -------------------------------------------------------------------


def fail_at_each(
    nursery: Nursery, folder: Path, run: str, whole: list[Tables], error: str, *, sample: int
) -> None:
    called = f"tests.stories.life:{run}"
    peace = Found(folder, "peace")
    points = nursery.points(called, str(peace.path), str(peace.said))
    chosen = [point for point in points if point.call != "write"][::sample]
    errors: Counter[str] = Counter()
    for number, point in enumerate(chosen):
        found = Found(folder, str(number))
        status = nursery.failed_at(point, error, called, str(found.path), str(found.said))
        try:
            assert status == 0
            assert_errors_are_ours_and_nothing_false_is_said(found, errors)
            assert tables_of(found.path) == whole[-1]
        except BaseException:
            print(f"{error} at {point}; said: {found.words}")
            raise
        remove(found)
    print(f"FIGURE {error} at {len(chosen)} of {len(points)} points; raised: {dict(errors)}")
    assert errors  # else no fault has struck


def assert_errors_are_ours_and_nothing_false_is_said(found: Found, errors: Counter[str]) -> None:
    done = 0
    for word, *rest in found.words:
        if word == "done":
            assert int(rest[0]) == done + 1
            done += 1
        else:
            kind, step = rest
            assert kind in OURS
            assert (
                int(step) == done
            )  # an error of the step under way, before it was said to be done
            errors[kind] += 1
    assert done == len(STEPS)


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_write_that_fails_once_is_one_of_our_errors_and_work_goes_on(
    nursery, tmp_path, whole, error
):
    fail_at_each(nursery, tmp_path, "live", whole, error, sample=SAMPLE)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_any_write_that_fails_once_is_one_of_our_errors_and_work_goes_on(
    nursery, tmp_path, whole, run, error
):
    fail_at_each(nursery, tmp_path, run, whole, error, sample=1)


# -- what the checks see -----------------------------------------------------------------


def test_a_lost_step_and_a_half_one_are_seen(tmp_path, whole):
    assert steps_in(whole[5], whole, 5) == 5
    assert steps_in(whole[6], whole, 5) == 6
    assert steps_in(whole[4], whole, 5) is None  # an acknowledged step is gone
    assert steps_in(whole[7], whole, 5) is None  # a step that nobody has asked for
    half = {**whole[6], "perdure_attempts": whole[5]["perdure_attempts"]}
    assert steps_in(half, whole, 5) is None


def test_the_steps_can_be_told_apart(whole):
    same = [step for step in range(len(STEPS)) if whole[step] == whole[step + 1]]
    assert same == [len(STEPS) - 1]  # closing writes nothing new


# -- a disk that is full -----------------------------------------------------------------

MOUNTED = 'mount -t tmpfs -o size=64m tmpfs "$1" && cd "$2" && shift 2 && exec "$@"'


def on_a_small_disk(folder: Path, missing: Callable[[str], NoReturn], *command: str) -> str:
    """Run a command beside a file system of 64 MB, which is gone with the command; what it says."""
    apart = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    if shutil.which(apart[0]) is None or subprocess.run([*apart, "true"], check=False).returncode:
        missing("the right to mount a small file system (unshare)")
    words = [*apart, "sh", "-c", MOUNTED, "sh", str(folder), str(ROOT), *command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    if "permission denied" in done.stderr.lower() and "mount" in done.stderr:
        missing("the right to mount a small file system")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_refuses_what_is_new_loses_nothing_and_goes_on_when_there_is_room(
    tmp_path, missing
):
    program = [sys.executable, "-m", "tests.stories.full_disk", str(tmp_path)]
    seen = json.loads(on_a_small_disk(tmp_path, missing, *program))
    print(f"FIGURE on a full disk: {seen}")
    assert set(seen["errors_while_full"]) == {"StoreFull"}
    assert not seen["settled_while_full"]
    assert seen["errors"] == seen["errors_while_full"]  # none once there was room
    assert seen["succeeded"] == seen["accepted"] > seen["accepted_while_full"] > 100
    assert list(tmp_path.iterdir()) == []  # nothing was written beside the small disk
