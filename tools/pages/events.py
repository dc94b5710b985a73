"""Events: their fields are read from the calls that tell them."""

import ast
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.pages.text import code, facts, sentences

import perdure
from perdure.model.events import Event, EventName
from perdure.observers import log

OBSERVER = "An observer takes an `Event`, which has a name and fields: `App(observers=[observer])`."


def events_page() -> list[str]:
    lines = [
        "# Events",
        "",
        "What observers and the log are told, always after it is durable.",
        OBSERVER,
        "A field that does not apply is None for observers and left out of the log.",
        "",
    ]
    told = event_fields(Path(perdure.__file__).parent)
    for name, sentence in sentences("event", EventName).items():
        level = _level(Event(EventName(name)))
        again = _level(Event(EventName(name), {"attempt": 2}))
        if again != level:
            level += f"; {again} for every attempt at a stage but the first"
        fields = "not told yet"
        if name in told:
            fields = ", ".join(code(field) for field in told[name]) or "none"
        lines += [f"## {name}", "", sentence, "", *facts({"level": level, "fields": fields})]
    return lines


def _level(event: Event) -> str:
    return logging.getLevelName(log.level_of(event)).lower()


def event_fields(source: Path) -> dict[str, list[str]]:
    """The fields of every event that is told anywhere in the source."""
    found: dict[str, list[str]] = {}
    for path in sorted(source.rglob("*.py")):
        for name, fields in told_in(ast.parse(path.read_text(encoding="utf-8"))):
            known = found.setdefault(name, [])
            known += [field for field in fields if field not in known]
    return found


def told_in(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Each event name that a module passes to ``tell``, with the keywords beside it.

    The name is spelled in the call, or in what is assigned to a variable that the call names.
    """
    values = dict(_assigned(tree))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr == "tell" and node.args:
            fields = [keyword.arg for keyword in node.keywords if keyword.arg]
            for name in _event_names(node.args[0], values):
                yield name, fields


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield ast.unparse(node.targets[0]), node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield ast.unparse(node.target), node.value


def _event_names(expression: ast.expr, values: Mapping[str, ast.expr]) -> list[str]:
    names: list[str] = []
    for node in ast.walk(expression):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "EventName":
            names.append(EventName[node.attr].value)
        elif isinstance(node, ast.Name) and node.id in values:
            names += _event_names(values[node.id], {})
    return list(dict.fromkeys(names))
