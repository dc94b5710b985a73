"""Judgement is pure: no clock, no chance, no I/O in `model` and `rules`."""

import ast

import pytest

from tests.house.tree import (
    Module,
    aliases,
    dotted,
    house,
    imports,
    inside,
    layer_of,
    names,
    plant,
    told,
)

# pure layer: the layers of perdure it may import besides itself.
PURE_LAYERS: dict[str, set[str]] = {"model": set(), "rules": {"model"}}

# The parts of the standard library that read no clock, draw no lots and touch nothing outside.
# A module that is not here is refused; add it only if that is true of it.
PURE_STDLIB = {
    "__future__",
    "abc",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "collections.abc",
    "contextlib",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "email.utils",
    "enum",
    "errno",
    "fnmatch",
    "fractions",
    "functools",
    "graphlib",
    "hashlib",
    "heapq",
    "html",
    "http",
    "ipaddress",
    "itertools",
    "json",
    "keyword",
    "math",
    "numbers",
    "operator",
    "re",
    "statistics",
    "string",
    "struct",
    "textwrap",
    "types",
    "typing",
    "unicodedata",
    "urllib.parse",
}

# Nouns are structs (docs/decisions/0025): frozen values, which no clock and no file is needed for.
PURE_NOUNS = {"msgspec"}
PURE_NOUN_NAMES = {
    "msgspec",
    "msgspec.Struct",
    "msgspec.UNSET",
    "msgspec.UnsetType",
    "msgspec.field",
    "msgspec.structs",
    "msgspec.structs.replace",
}

# What the modules above have that is not pure.
IMPURE_NAMES = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "email.utils.formatdate",
    "email.utils.localtime",
    "email.utils.make_msgid",
    "hashlib.file_digest",
}
IMPURE_CALLS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}


def impure_imports(modules: tuple[Module, ...]) -> list[str]:
    known = names(modules)
    return [
        f"{module.file}:{line.line} {module.layer} is pure and may not import {line.target}"
        for module in modules
        if module.layer in PURE_LAYERS
        for line in imports(module, known)
        if not is_pure_import(module.layer, line.target)
    ]


def is_pure_import(layer: str, target: str) -> bool:
    if inside(target):
        return layer_of(target) in PURE_LAYERS[layer] | {layer}
    return target in PURE_STDLIB | PURE_NOUNS


def impure_acts(modules: tuple[Module, ...]) -> list[str]:
    """Uses of a clock (called or handed on), and calls that reach outside."""
    return [
        f"{module.at(node)} {module.layer} is pure and may not use {name}"
        for module in modules
        if module.layer in PURE_LAYERS
        for node, name in impure_uses(module)
    ]


def impure_uses(module: Module) -> list[tuple[ast.AST, str]]:
    known = aliases(module)
    found: list[tuple[ast.AST, str]] = []
    for node in ast.walk(module.tree):
        name = dotted(node, known) if isinstance(node, ast.Name | ast.Attribute) else ""
        is_more_than_noun = name.startswith("msgspec.") and name not in PURE_NOUN_NAMES
        if name in IMPURE_NAMES or is_more_than_noun:
            found.append((node, name))
        elif isinstance(node, ast.Call) and dotted(node.func, known) in IMPURE_CALLS:
            found.append((node, dotted(node.func, known)))
    return found


def test_model_and_rules_import_nothing_impure():
    offences = impure_imports(house())
    assert not offences, told(offences)


def test_model_and_rules_use_no_clock_and_reach_nothing_outside():
    offences = impure_acts(house())
    assert not offences, told(offences)


REFUSED = [
    "asyncio",
    "io",
    "logging",
    "os",
    "os.path",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "sqlite3",
    "subprocess",
    "threading",
    "time",
    "traceback",
    "uuid",
    "msgspec.json",
    "perdure.ports",
    "perdure.engine.run",
]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("file", ["model/job.py", "rules/decide.py"])
def test_an_impure_import_is_caught(file, name):
    assert len(impure_imports(plant({file: f"def f():\n    import {name}"}))) == 1
    assert len(impure_imports(plant({file: f"from {name} import x"}))) == 1


def test_model_may_not_import_rules_but_rules_may_import_model():
    assert impure_imports(plant({"model/job.py": "from perdure.rules import decide"}))
    assert not impure_imports(plant({"rules/decide.py": "from perdure.model import Job"}))


@pytest.mark.parametrize("name", sorted(PURE_STDLIB))
def test_a_pure_import_passes(name):
    assert impure_imports(plant({"model/job.py": f"import {name}"})) == []


IMPURE = [
    "import datetime\ndatetime.datetime.now(datetime.UTC)",
    "from datetime import datetime\ndatetime.now()",
    "from datetime import datetime as dt\ndt.utcnow()",
    "import datetime as d\nd.datetime.today()",
    "from datetime import date\ndate.today()",
    "from datetime import datetime\nfield(default_factory=datetime.now)",
    "from email.utils import formatdate\nformatdate()",
    "import email.utils\nemail.utils.localtime()",
    "def f():\n    open('x')",
    "print('x')",
    "exec('import time')",
]


@pytest.mark.parametrize("source", IMPURE)
def test_an_impure_act_is_caught(source):
    assert len(impure_acts(plant({"rules/decide.py": source}))) == 1


@pytest.mark.parametrize(
    "source",
    ["import msgspec\nmsgspec.json.decode(b'')", "from msgspec import json\njson.decode(b'')"],
)
def test_of_msgspec_only_what_makes_a_noun_passes(source):
    assert impure_acts(plant({"model/job.py": source}))
    noun = "import msgspec\nfrom msgspec import Struct\nclass Job(Struct):\n    no: int = msgspec.field(default=0)"
    assert impure_acts(plant({"model/job.py": noun})) == []
    assert impure_imports(plant({"model/job.py": noun})) == []


def test_arithmetic_on_moments_passes():
    source = (
        "from datetime import datetime, timedelta\ndef f(now: datetime): return now + timedelta(1)"
    )
    assert impure_acts(plant({"rules/decide.py": source})) == []


def test_an_impure_act_outside_the_pure_layers_passes():
    assert impure_acts(plant({"engine/run.py": "print(open('x'))"})) == []
