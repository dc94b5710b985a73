"""A broad except stands only where anything at all may be raised, and nowhere else."""

import ast

import pytest

from tests.house.tree import Module, aliases, dotted, house, plant, told

# file: why it may catch everything.
BROAD: dict[str, str] = {
    "app/surface/loading.py": "an application's module may raise anything while it is imported",
    "engine/run.py": "a stage may raise anything",
    "engine/attempt/perform.py": "a stage may raise anything, in a child too",
    "engine/gates/health.py": "a health check may raise anything",
    "engine/attempt/threads.py": "what a call raises belongs to whoever waits for it",
    "engine/observe.py": "an observer may not hurt the walk",
    "engine/worker/loop.py": "one bad turn may not end the loop",
    "observers/log_queue.py": "what a log line is made of may raise anything, and no other line is lost for that",
    "surfaces/http/asgi.py": "whatever a request brings about is told as a problem, and ends no server",
    "rules/foreign_code.py": "a foreign exception or a policy's own code may raise anything, and no job is lost for that",
}

EVERYTHING = {"Exception", "BaseException", "builtins.Exception", "builtins.BaseException"}


def broad_excepts(modules: tuple[Module, ...]) -> list[str]:
    return [
        f"{module.at(node)} catches everything: name what it expects"
        for module in modules
        if module.file not in BROAD
        for known in [aliases(module)]  # once for each module, not for each node
        for node in ast.walk(module.tree)
        if is_broad(node, known)
    ]


def is_broad(node: ast.AST, known: dict[str, str]) -> bool:
    if isinstance(node, ast.ExceptHandler):
        return node.type is None or names_everything([node.type], known)
    if isinstance(node, ast.Call) and dotted(node.func, known) == "contextlib.suppress":
        return names_everything(node.args, known)
    return False


def names_everything(caught: list[ast.expr], known: dict[str, str]) -> bool:
    flat = [
        one for each in caught for one in (each.elts if isinstance(each, ast.Tuple) else [each])
    ]
    return any(dotted(one, known) in EVERYTHING for one in flat)


def test_only_the_listed_files_catch_everything():
    offences = broad_excepts(house())
    assert not offences, told(offences)


def test_every_listed_file_says_why():
    assert all(reason.strip() for reason in BROAD.values())


CATCHES = [
    "try: f()\nexcept: pass",
    "try: f()\nexcept Exception: pass",
    "try: f()\nexcept BaseException as error: raise",
    "try: f()\nexcept (ValueError, Exception): pass",
    "try: f()\nexcept* Exception: pass",
    "import builtins\ntry: f()\nexcept builtins.Exception: pass",
    "import contextlib\nwith contextlib.suppress(Exception): f()",
    "from contextlib import suppress\nwith suppress(KeyError, BaseException): f()",
]


@pytest.mark.parametrize("source", CATCHES)
def test_a_broad_except_elsewhere_is_caught(source):
    assert len(broad_excepts(plant({"stores/sqlite/claim.py": source}))) == 1


@pytest.mark.parametrize("file", sorted(BROAD))
def test_a_broad_except_in_a_listed_file_passes(file):
    assert broad_excepts(plant({file: CATCHES[1]})) == []


def test_a_named_except_passes():
    source = "from contextlib import suppress\ntry: f()\nexcept (OSError, KeyError): pass\nwith suppress(OSError): f()"
    assert broad_excepts(plant({"engine/settle.py": source})) == []
