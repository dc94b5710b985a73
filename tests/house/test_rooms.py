"""The tests mirror the rooms: whoever knows where a thing is made knows where it is tested."""

from collections.abc import Iterable
from pathlib import PurePosixPath as Path

import pytest

from tests.house.tree import ROOT, SRC, sources, told

# A room without a folder of tests: where its tests are.
ELSEWHERE = {
    "ports": "the contract suite says what a port means: src/perdure/testing/store_contract"
}


def folders(files: Iterable[Path]) -> set[Path]:
    """The folders in which files stand, with those around them."""
    return {folder for file in files for folder in file.parents} - {Path()}


def untested_rooms(modules: Iterable[Path], tests: Iterable[Path]) -> list[str]:
    rooms = folders(modules) - {Path(room) for room in ELSEWHERE}
    return [f"{room}/ has no tests: tests/{room}/" for room in sorted(rooms - folders(tests))]


def roomless_tests(modules: Iterable[Path], tests: Iterable[Path]) -> list[str]:
    """Folders of tests inside one that is named after a layer, and that are no rooms of it."""
    rooms = folders(modules)
    layers = {room.parts[0] for room in rooms}
    of_layers = {folder for folder in folders(tests) if folder.parts[0] in layers}
    return [f"tests/{one}/ is no room of src/perdure" for one in sorted(of_layers - rooms)]


def misplaced_tests(modules: Iterable[Path], tests: Iterable[Path]) -> list[str]:
    """Tests that have the name of one module of their layer, and stand in another room than that."""
    homes: dict[tuple[str, str], set[Path]] = {}
    for module in modules:
        homes.setdefault((module.parts[0], module.stem), set()).add(module.parent)
    found = []
    for test in tests:
        named = homes.get((test.parts[0], test.stem.removeprefix("test_")), set())
        if len(named) == 1 and test.parent not in named:
            found.append(f"tests/{test} has the name of a module in {named.pop()}/")
    return found


RULES = [untested_rooms, roomless_tests, misplaced_tests]
MODULES = [Path(path.relative_to(SRC).as_posix()) for path in sources(SRC)]
TESTS = [
    Path(path.relative_to(ROOT / "tests").as_posix())
    for path in sources(ROOT / "tests")
    if path.name.startswith("test_")
]


@pytest.mark.parametrize("rule", RULES)
def test_every_room_has_its_tests_in_a_folder_of_its_name(rule):
    offences = rule(MODULES, TESTS)
    assert not offences, told(offences)


def test_a_room_without_tests_is_listed_only_while_it_has_none():
    assert {Path(room) for room in ELSEWHERE} <= folders(MODULES) - folders(TESTS)


PLANTED = [
    (untested_rooms, ["engine/gates/rows.py"], ["engine/test_rows.py"]),
    (roomless_tests, ["engine/run.py"], ["engine/test_run.py", "engine/chores/test_x.py"]),
    (misplaced_tests, ["engine/gates/rows.py"], ["engine/test_rows.py", "stores/test_rows.py"]),
]


@pytest.mark.parametrize(("rule", "modules", "tests"), PLANTED)
def test_what_stands_in_the_wrong_room_is_caught(rule, modules, tests):
    assert len(rule(list(map(Path, modules)), list(map(Path, tests)))) == 1


def test_folders_that_are_no_layer_and_names_of_two_rooms_pass():
    modules = [Path("stores/sqlite/gates.py"), Path("stores/postgres/gates.py")]
    tests = [Path("stores/test_gates.py"), Path("stories/test_kill.py")]
    assert roomless_tests(modules, tests) == []
    assert misplaced_tests(modules, tests) == []
