"""Every event that is told anywhere in the house is in the table, with exactly its fields."""

import ast
from collections.abc import Iterator, Mapping

from perdure.model.events import EVENTS, FIELDS, EventName
from tests.house.tree import Module, house, plant, told


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


def offences(modules: tuple[Module, ...]) -> list[str]:
    """Where the calls that tell an event and its line in the table differ."""
    found: dict[str, set[str]] = {}
    wrong = []
    for module in modules:
        for name, fields in told_in(module.tree):
            found.setdefault(name, set()).update(fields)
            unknown = sorted(set(fields) - set(EVENTS[EventName(name)].fields))
            wrong += [f"{module.file}: {name} has no field {field}" for field in unknown]
    for event, facts in EVENTS.items():
        missing = sorted(set(facts.fields) - found.get(event.value, set()))
        wrong += [f"{event.value} is never told with {field}" for field in missing]
        wrong += [] if event.value in found else [f"{event.value} is never told"]
    return wrong


def test_every_event_is_told_with_the_fields_of_its_line_in_the_table():
    wrong = offences(house())
    assert not wrong, told(wrong)


def test_the_tables_hold_every_event_and_every_field_once():
    assert list(EVENTS) == list(EventName)
    used = {field for facts in EVENTS.values() for field in facts.fields}
    assert set(FIELDS) == used
    assert all(len(set(facts.fields)) == len(facts.fields) for facts in EVENTS.values())
    assert all(
        text.strip() for text in [*FIELDS.values(), *(one.sentence for one in EVENTS.values())]
    )


def test_a_field_that_is_not_in_the_table_is_caught_and_one_that_nobody_tells():
    calls = plant({"engine/observe.py": "o.tell(EventName.STORE_AWAY, why=1)"})
    wrong = offences(calls)
    assert "engine/observe.py: store_away has no field why" in wrong
    assert "store_away is never told with reason" in wrong
    assert "store_back is never told" in wrong


def test_the_fields_of_an_event_are_read_from_the_calls_that_tell_it():
    source = """
NAMES: dict = {1: EventName.JOB_FAILED, 2: EventName.JOB_RETRIED}
def f(self):
    self.tell(EventName.STORE_BACK)
    self.tell(NAMES[2], job_id=1)
    name = EventName.WORKER_LOST if x else EventName.WORKER_STOPPED
    self.observers.tell(name, worker=1, **more)
"""
    assert list(told_in(ast.parse(source))) == [
        ("store_back", []),
        ("job_failed", ["job_id"]),
        ("job_retried", ["job_id"]),
        ("worker_lost", ["worker"]),
        ("worker_stopped", ["worker"]),
    ]


def raw_traces(modules: tuple[Module, ...]) -> list[str]:
    """Where an exception is logged as it is: its words may be an upstream's, or hold a secret."""
    return [
        f"{module.at(node)} logs an exception with all its words: log `trace_of` it"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr == "exception" or any(one.arg == "exc_info" for one in node.keywords))
        and ast.unparse(node.func.value) in ("log", "_log", "logging")
    ]


def test_no_exception_is_logged_with_all_its_words():
    wrong = raw_traces(house())
    assert not wrong, told(wrong)


def test_an_exception_that_is_logged_as_it_is_is_caught():
    source = """
log.exception("it failed")
_log.error("it failed", exc_info=True)
log.error("it failed: %s", trace_of(error))
future.exception()
"""
    assert len(raw_traces(plant({"engine/observe.py": source}))) == 2
