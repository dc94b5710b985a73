"""Imports run one way: from the surfaces down to the model, and never in a circle.

The table is the rule. An import counts wherever it stands: at the head of a module, in a function,
or for types only.
"""

import pytest

from tests.house.tree import Module, house, imports, inside, layer_of, names, plant, told

# layer: the layers it may import. Its own modules it always may.
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "rules": {"model"},
    "ports": {"model"},
    "setting_values": {"model"},
    "config": {"model", "setting_values"},
    "checks": {"model"},
    "engine": {"model", "rules", "ports"},
    "stores": {"model", "ports"},
    "observers": {"model", "ports"},
    "simulate": {"model", "rules"},
    "app": {
        "model",
        "rules",
        "ports",
        "engine",
        "stores",
        "observers",
        "setting_values",
        "config",
        "checks",
    },
    "perdure": {
        "model",
        "rules",
        "engine",
        "app",
        "setting_values",
    },  # the package root: re-exports only
    "demo": {"model", "app", "perdure"},
    "surfaces": {"model", "app", "simulate", "demo"},
    "http": {"model", "app", "surfaces"},  # the public name of what surfaces/http serves
    "testing": {"model", "rules", "ports", "engine", "stores", "app", "perdure"},
}


def forbidden_imports(modules: tuple[Module, ...]) -> list[str]:
    known = names(modules)
    return [
        f"{module.file}:{line.line} {module.layer} may not import {line.target}"
        for module in modules
        if module.layer in ALLOWED
        for line in imports(module, known)
        if inside(line.target)
        and layer_of(line.target) not in ALLOWED[module.layer] | {module.layer}
    ]


def modules_without_a_layer(modules: tuple[Module, ...]) -> list[str]:
    return [
        f"{module.file} is in no layer: give {module.layer} a row in ALLOWED"
        for module in modules
        if module.layer not in ALLOWED
    ]


def import_cycle(modules: tuple[Module, ...]) -> list[str]:
    """One cycle of imports, as the modules on it, or nothing.

    Only what is written counts: importing `perdure.model.job` also runs `perdure/model/__init__.py`,
    but an edge to the package is drawn only where the package itself is named.
    """
    known = names(modules)
    edges = {
        module.name: sorted({line.target for line in imports(module, known)} & known)
        for module in modules
    }
    return circle_in(edges)


def circle_in(edges: dict[str, list[str]]) -> list[str]:
    """One circle of a graph, as the nodes on it, or nothing."""
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        path.append(name)
        for target in edges.get(name, []):
            if cycle := visit(target):
                return cycle
        path.pop()
        done.add(name)
        return []

    for name in edges:
        if cycle := visit(name):
            return cycle
    return []


def room_of(name: str, rooms: frozenset[str]) -> str:
    """The folder inside a layer in which a module lies; a module at the top of its layer is a room of its own."""
    room = ".".join(name.split(".")[:3])
    return room if room in rooms else name


def circle_of_rooms(modules: tuple[Module, ...]) -> list[str]:
    """One circle of imports between folders, or nothing: none of its folders can be understood without the others."""
    known = names(modules)
    rooms = frozenset(".".join(name.split(".")[:3]) for name in known if name.count(".") > 2)
    edges: dict[str, set[str]] = {}
    for module in modules:
        home = room_of(module.name, rooms)
        targets = {line.target for line in imports(module, known)} & known
        edges.setdefault(home, set()).update(room_of(one, rooms) for one in targets)
    return circle_in({home: sorted(targets - {home}) for home, targets in edges.items()})


def test_each_layer_imports_only_the_layers_below_it():
    offences = forbidden_imports(house())
    assert not offences, told(offences)


def test_every_module_belongs_to_a_layer():
    offences = modules_without_a_layer(house())
    assert not offences, told(offences)


def test_no_modules_import_each_other_in_a_circle():
    cycle = import_cycle(house())
    assert not cycle, " -> ".join(cycle)


def test_no_rooms_import_each_other_in_a_circle():
    circle = circle_of_rooms(house())
    assert not circle, " -> ".join(circle)


def test_a_circle_of_two_rooms_is_caught_though_no_modules_form_one():
    planted = plant(
        {
            "engine/a/one.py": "from perdure.engine.b import two",
            "engine/a/three.py": "",
            "engine/b/two.py": "from perdure.engine.a import three",
        }
    )
    assert import_cycle(planted) == []
    assert circle_of_rooms(planted)


def test_the_testing_kit_is_in_no_layer_s_row_but_its_own():
    assert [layer for layer, row in ALLOWED.items() if "testing" in row] == []


UPWARD = [
    ("model/job.py", "from perdure.rules import decide"),
    ("model/job.py", "import perdure.rules.decide"),
    ("model/job.py", "from ..rules.decide import Retry"),
    ("model/job.py", "def f():\n    from perdure.rules.decide import Retry"),
    (
        "model/job.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from perdure.rules.decide import Retry",
    ),
    ("rules/decide.py", "from importlib import import_module\nimport_module('perdure.engine.run')"),
    ("rules/decide.py", "__import__('perdure.engine.run')"),
    ("rules/decide.py", "from perdure import ports"),
    ("engine/run.py", "from perdure.stores.sqlite import SqliteStore"),
    ("engine/run.py", "from perdure import Job"),
    ("stores/sqlite/claim.py", "from ...rules import decide"),
    ("observers/log.py", "from perdure.engine import walk"),
    ("ports/store.py", "from perdure.config import SETTINGS"),
    ("config.py", "from perdure import ports"),
    ("app.py", "from perdure.surfaces import cli"),
    ("app.py", "from .testing import FakeClock"),
    ("demo/tour.py", "from perdure.engine.run import run"),
    ("surfaces/cli/__init__.py", "from perdure.config import SETTINGS"),
    ("surfaces/cli/__main__.py", "from perdure.stores import sqlite"),
    ("surfaces/view.py", "from perdure.rules import decide"),
    ("__init__.py", "from perdure.stores.sqlite.store import SqliteStore"),
]


@pytest.mark.parametrize(("file", "source"), UPWARD)
def test_an_import_against_the_grain_is_caught(file, source):
    assert len(forbidden_imports(plant({file: source}))) == 1


DOWNWARD = [
    ("rules/decide.py", "from perdure.model.job import Job\nfrom . import backoff"),
    ("engine/run.py", "from perdure.ports import Store\nfrom perdure.rules import decide"),
    ("demo/tour.py", "import perdure\nfrom perdure import Job\nfrom perdure.app import App"),
    ("surfaces/cli/__main__.py", "from perdure.surfaces.cli import main\nfrom ...app import App"),
    ("testing/clock.py", "from perdure.ports import Clock\nimport perdure.testing.store"),
    ("model/job.py", "import perduretools"),
]


@pytest.mark.parametrize(("file", "source"), DOWNWARD)
def test_an_import_with_the_grain_passes(file, source):
    assert forbidden_imports(plant({file: source})) == []


def test_a_module_in_an_unknown_layer_is_caught():
    assert len(modules_without_a_layer(plant({"misc/x.py": "", "model/job.py": ""}))) == 1


def test_a_circle_of_two_modules_is_caught():
    modules = plant(
        {"model/a.py": "from . import b", "model/b.py": "def f():\n    from . import a"}
    )
    assert import_cycle(modules) == ["perdure.model.a", "perdure.model.b", "perdure.model.a"]


def test_a_circle_through_a_package_is_caught():
    modules = plant(
        {
            "model/__init__.py": "from perdure.model.job import Job",
            "model/job.py": "from perdure.model import Attempt",
        }
    )
    assert import_cycle(modules)


def test_a_diamond_of_imports_is_no_circle():
    modules = plant(
        {
            "model/__init__.py": "from . import a, b",
            "model/a.py": "from perdure.model.c import C",
            "model/b.py": "from perdure.model.c import C",
            "model/c.py": "",
        }
    )
    assert import_cycle(modules) == []
