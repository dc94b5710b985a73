"""The public API is exactly the `__all__` of `perdure`, `perdure.checks` and `perdure.testing`."""

import __future__

import ast
import importlib
import importlib.util
import subprocess
import sys
import types
from pathlib import Path

import pytest


def export_faults(module: types.ModuleType) -> list[str]:
    if not hasattr(module, "__all__"):
        return [f"{module.__name__} has no __all__"]
    exported = list(module.__all__)
    return [
        *(
            []
            if exported == sorted(set(exported))
            else [f"{module.__name__}.__all__ is not sorted"]
        ),
        *(f"{name} is in __all__ but not there" for name in exported if not hasattr(module, name)),
        *(f"{name} is public but not in __all__" for name in stray_names(module)),
    ]


def stray_names(module: types.ModuleType) -> list[str]:
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name not in module.__all__
        and not is_submodule(module, name, value)
        and not isinstance(value, __future__._Feature)
    )


def is_submodule(module: types.ModuleType, name: str, value: object) -> bool:
    return isinstance(value, types.ModuleType) and value.__name__ == f"{module.__name__}.{name}"


def test_the_package_exports_exactly_what_it_lists():
    assert export_faults(importlib.import_module("perdure")) == []


def imported_for_types(source: str) -> dict[str, str]:
    """By name, the module that a type checker is told it comes from."""
    return {
        alias.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.col_offset == 4 and node.module
        for alias in node.names
    }


def test_a_name_comes_from_where_type_checkers_are_told():
    package = importlib.import_module("perdure")
    assert imported_for_types(Path(package.__file__).read_text()) == package._HOMES
    assert sorted(package._HOMES) == package.__all__
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="'perdure' has no attribute 'Ap'"):
        package.Ap  # noqa: B018


def test_so_does_a_name_of_the_composition_root():
    root = importlib.import_module("perdure.app")
    assert imported_for_types(Path(root.__file__).read_text()) == root._HOMES
    assert sorted(root._HOMES) == sorted(root.__all__)
    assert {getattr(root, name).__name__ for name in root.__all__} == set(root.__all__)
    with pytest.raises(AttributeError, match=r"'perdure\.app' has no attribute 'Ap'"):
        root.Ap  # noqa: B018


def test_a_name_that_is_used_alone_brings_what_it_needs():
    """Presets make themselves known to policies when they are loaded."""
    used = "from perdure import Policy; print(Policy.based_on('standard', name='mine').name)"
    done = subprocess.run([sys.executable, "-c", used], capture_output=True, text=True, check=True)
    assert done.stdout == "mine\n"


def test_the_version_is_told_without_the_engine():
    told = (
        "import sys\nfrom perdure.surfaces.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*(one for one in sys.modules if one.startswith('perdure.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", told, "--version"], capture_output=True, text=True, check=True
    )
    version, loaded = done.stdout.splitlines()
    assert version.startswith("perdure, version ")
    assert {one.split(".")[1] for one in loaded.split()} == {"surfaces"}


def test_a_supervisor_and_a_keeper_load_nothing_that_work_is_done_with():
    """They are started beside every worker, and only beat."""
    told = (
        "import sys\nimport perdure.app.worker.keeper_main, perdure.app.worker.supervision, perdure.surfaces.cli.worker\n"
        "print(*(one for one in sys.modules if one.startswith('perdure.')))"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"perdure.engine.supervise.keeper", "perdure.engine.supervise.supervisor"} <= loaded
    assert not {one for one in loaded if one.startswith("perdure.rules.presets")}
    assert (
        not {
            "perdure.app.app",
            "perdure.app.session.session",
            "perdure.engine.run",
            "perdure.rules.policy",
        }
        & loaded
    )


def test_the_checks_export_exactly_what_they_list():
    assert export_faults(importlib.import_module("perdure.checks")) == []


def test_the_testing_kit_exports_exactly_what_it_lists(missing):
    spec = importlib.util.find_spec("perdure.testing")
    if spec is None or spec.origin is None:
        missing("perdure.testing")
    assert export_faults(importlib.import_module("perdure.testing")) == []


def module_with(**attributes: object) -> types.ModuleType:
    module = types.ModuleType("planted")
    vars(module).update(attributes)
    return module


BROKEN = [
    ({}, "no __all__"),
    ({"__all__": ["b", "a"], "a": 1, "b": 2}, "not sorted"),
    ({"__all__": ["a", "a"], "a": 1}, "not sorted"),
    ({"__all__": ["a", "b"], "a": 1}, "b is in __all__ but not there"),
    ({"__all__": ["a"], "a": 1, "b": 2}, "b is public but not in __all__"),
    ({"__all__": [], "sys": types.ModuleType("sys")}, "sys is public"),
]


@pytest.mark.parametrize(("attributes", "fault"), BROKEN)
def test_a_wrong_list_of_exports_is_caught(attributes, fault):
    (only,) = export_faults(module_with(**attributes))
    assert fault in only


def test_submodules_and_private_names_need_no_export():
    module = module_with(__all__=["a"], a=1, _b=2, c=types.ModuleType("planted.c"))
    assert export_faults(module) == []
