"""A function fits in the eye, and a file in an afternoon; docstrings are free."""

from collections import Counter
from pathlib import PurePath

from tests.house.tree import Module, docstring_lines, functions, house, plant, told

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 400

# The top of a room shows the walk, or the handles of a user; what else there is has a room of its own.
TOP_FILES_MAX = {"engine": 14, "app": 8}

# "engine/run.py" or "engine/run.py:run": why it may be larger.
LARGER: dict[str, str] = {}


def sizes(modules: tuple[Module, ...]) -> dict[str, tuple[int, int]]:
    """Every file and function, by name: its lines and its limit. Of two namesakes, the larger."""
    found: dict[str, tuple[int, int]] = {}
    for module in modules:
        lines = len(module.text.splitlines()) - docstring_lines(module.tree)
        found[module.file] = (lines, FILE_LINES_MAX)
        for node in functions(module):
            name = f"{module.file}:{node.name}"
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node)
            found[name] = max(found.get(name, (0, 0)), (lines, FUNCTION_LINES_MAX))
    return found


def too_large(modules: tuple[Module, ...]) -> dict[str, str]:
    return {
        name: f"{name} has {lines} lines, the limit is {limit}: split it where the nouns change"
        for name, (lines, limit) in sizes(modules).items()
        if lines > limit
    }


def crowded_rooms(modules: tuple[Module, ...]) -> list[str]:
    """Rooms with more files on top than they may have, beside their own `__init__.py`."""
    on_top = Counter(PurePath(module.file).parent.name for module in modules if is_on_top(module))
    return [
        f"{room}/ has {on_top[room]} files on top, the limit is {limit}: put some into a room by purpose"
        for room, limit in TOP_FILES_MAX.items()
        if on_top[room] > limit
    ]


def is_on_top(module: Module) -> bool:
    """Whether a file stands in a room itself and not in one inside it."""
    return len(PurePath(module.file).parts) == 2 and not module.is_package


def test_functions_and_files_keep_to_their_sizes():
    offences = [line for name, line in too_large(house()).items() if name not in LARGER]
    assert not offences, told(offences)


def test_every_exception_to_the_sizes_is_needed_and_says_why():
    assert set(LARGER) <= set(too_large(house()))
    assert all(reason.strip() for reason in LARGER.values())


def test_the_tops_of_engine_and_app_can_be_taken_in_at_a_glance():
    offences = crowded_rooms(house())
    assert not offences, told(offences)


def test_a_file_too_many_on_top_is_caught_and_one_in_a_room_inside_passes():
    full = {f"app/f{number}.py": "" for number in range(8)} | {"app/__init__.py": ""}
    assert crowded_rooms(plant(full | {"app/batch/more.py": "", "model/more.py": ""})) == []
    (offence,) = crowded_rooms(plant(full | {"app/more.py": ""}))
    assert offence.startswith("app/ has 9 files on top")


def function_of(lines: int, doc: str = "") -> str:
    return "def f():\n" + doc + "    x = 1\n" * (lines - 1)


def test_a_function_of_61_lines_is_caught_and_one_of_60_passes():
    assert list(too_large(plant({"engine/run.py": function_of(61)}))) == ["engine/run.py:f"]
    assert too_large(plant({"engine/run.py": function_of(60)})) == {}


def test_a_file_of_401_lines_is_caught_and_one_of_400_passes():
    assert list(too_large(plant({"engine/run.py": "x = 1\n" * 401}))) == ["engine/run.py"]
    assert too_large(plant({"engine/run.py": "x = 1\n" * 400})) == {}


def test_docstrings_do_not_count():
    doc = '    """Why.\n' + "    more\n" * 50 + '    """\n'
    assert too_large(plant({"engine/run.py": function_of(60, doc)})) == {}
    essay = '"""Why.\n' + "more\n" * 50 + '"""\n'
    assert too_large(plant({"engine/run.py": essay + "x = 1\n" * 400})) == {}


def test_of_two_methods_of_one_name_the_larger_counts():
    method = "    def f(self):\n" + "        x = 1\n" * 60
    source = f"class A:\n{method}class B:\n    def f(self): ...\n"
    assert list(too_large(plant({"engine/run.py": source}))) == ["engine/run.py:f"]
