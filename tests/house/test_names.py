"""Some words are no names: each hides a better word."""

import re
from pathlib import Path

import pytest

from tests.house.tree import Module, classes, functions, house, plant, told

NOT_NAMES = {
    "manager",
    "handler",
    "processor",
    "service",
    "helper",
    "util",
    "common",
    "data",
    "info",
}
NOT_WHOLE_NAMES = {"base"}  # fine as a part: a base of something is said

# "surfaces/web/page.py:handle_data": why the name is not ours to choose.
GIVEN: dict[str, str] = {}


def words(name: str) -> list[str]:
    """`HTTPServiceBase2` and `http_service_base2` are both http, service, base."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def is_no_name(name: str) -> bool:
    parts = words(name)
    singular = {part.removesuffix("s") for part in parts} | set(parts)
    return bool(singular & NOT_NAMES) or (len(parts) == 1 and bool(singular & NOT_WHOLE_NAMES))


def named(module: Module) -> list[str]:
    """The names that a module gives: of itself, its folders, its classes and functions."""
    of_the_path = [part for part in Path(module.file).with_suffix("").parts if part != "__init__"]
    of_classes = [node.name for node in classes(module)]
    return [*of_the_path, *of_classes, *(node.name for node in functions(module))]


def bad_names(modules: tuple[Module, ...]) -> list[str]:
    return [
        f"{module.file}:{name}" for module in modules for name in named(module) if is_no_name(name)
    ]


def test_no_module_class_or_function_has_an_empty_name():
    offences = sorted(set(bad_names(house())) - set(GIVEN))
    assert not offences, told(offences)


def test_every_given_name_is_needed_and_says_why():
    assert set(GIVEN) <= set(bad_names(house()))
    assert all(reason.strip() for reason in GIVEN.values())


EMPTY = [
    {"engine/manager.py": ""},
    {"engine/job_utils.py": ""},
    {"common/x.py": ""},
    {"helpers/__init__.py": ""},
    {"engine/base.py": ""},
    {"engine/run.py": "class JobManager: ..."},
    {"engine/run.py": "class HTTPService: ..."},
    {"engine/run.py": "class Base: ..."},
    {"engine/run.py": "def load_data(): ..."},
    {"engine/run.py": "async def job_info(): ..."},
    {"engine/run.py": "class A:\n    def _handler(self): ..."},
]


@pytest.mark.parametrize("files", EMPTY)
def test_an_empty_name_is_caught(files):
    assert len(bad_names(plant(files))) == 1


def test_attributes_and_longer_words_pass():
    source = (
        "class BaseUrl:\n    base_delay_s: float\n    data = 1\n"
        "def metadata(info): ...\ndef database(): ...\ndef processing(): ...\n"
    )
    assert bad_names(plant({"model/baseline.py": source})) == []


def namesakes(modules: tuple[Module, ...]) -> list[str]:
    """Class names that are used more than once, with where."""
    found: dict[str, list[str]] = {}
    for module in modules:
        for node in classes(module):
            found.setdefault(node.name, []).append(module.file)
    return [f"{name}: {', '.join(files)}" for name, files in found.items() if len(files) > 1]


def test_a_class_name_is_used_once():
    offences = namesakes(house())
    assert not offences, told(offences)


def test_two_classes_of_one_name_are_caught():
    planted = plant({"engine/a.py": "class Line: ...", "rules/b.py": "class Line: ..."})
    assert namesakes(planted) == ["Line: engine/a.py, rules/b.py"]
