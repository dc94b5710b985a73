"""What a test leaves behind strikes another one, at random: a logger whose level was not put back by `setLevel`.

A logger remembers what was enabled until `setLevel` is called; with its attribute alone it stays as loud as it was.
"""

import ast

from tests.house.tree import ROOT, Module, parse, plant, sources, told

FOLDERS = ("tests", "benchmarks", "tools", "examples", "src")


def levels_by_attribute(module: Module) -> list[str]:
    return [
        f"{module.at(node)}: say setLevel()"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "level"
        and isinstance(node.ctx, ast.Store)
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]


def test_no_logger_gets_its_level_by_the_attribute():
    files = [path for folder in FOLDERS for path in sources(ROOT / folder)]
    texts = {path: path.read_text() for path in files}
    offences = [
        one
        for path, text in texts.items()
        if ".level" in text
        for one in levels_by_attribute(parse(str(path.relative_to(ROOT)), text))
    ]
    assert offences == [], told(offences)


def test_one_that_does_is_found():
    (module,) = plant({"test_it.py": "log.handlers[:], log.level = before\nlog.setLevel(3)\n"})
    assert levels_by_attribute(module) == ["test_it.py:1: say setLevel()"]
