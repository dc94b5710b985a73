"""No test fails because the machine is slow: none asserts that something took less than so many seconds.

A bound on work stands for it (calls, turns, statements, seeds), the order of events, or a wait for a signal with a
deadline that is far away. How long something takes is measured in benchmarks.
"""

import ast
import re

import pytest

from tests.house.tree import ROOT, Module, aliases, dotted, functions, parse, plant, sources, told

CLOCKS = {
    f"time.{name}{unit}"
    for name in (
        "monotonic",
        "perf_counter",
        "process_time",
        "thread_time",
        "time",
        "clock_gettime",
    )
    for unit in ("", "_ns")
} | {"datetime.datetime.now", "os.times", "resource.getrusage"}
_MAY_MEASURE = re.compile(
    r"\btime\.[a-z_]+\(|^from time import|\.now\(|\btimes\(|\bgetrusage\(", re.MULTILINE
)


class Spans:
    """What of a function is the time between two looks at a real clock, by name."""

    def __init__(self, known: dict[str, str], told_by: set[str]) -> None:
        self._known = known
        self._told_by = told_by  # functions of the module that return one
        self._moments: set[str] = set()
        self.names: set[str] = set()

    def learn(self, function: ast.AST) -> None:
        """Twice, for what is used above the line that names it."""
        for node in [*ast.walk(function)] * 2:
            match node:
                case ast.Assign(targets=[*targets], value=value):
                    self._named(targets, value)
                case ast.NamedExpr(target=target, value=value):
                    self._named([target], value)
                case ast.Call(
                    func=ast.Attribute(attr="append", value=ast.Name(id=name)), args=[value]
                ) if self.within(value):
                    self.names.add(name)

    def _named(self, targets: list[ast.expr], value: ast.expr) -> None:
        found = {
            one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
        }
        if self.within(value):
            self.names |= found
        elif self._looks(value):
            self._moments |= found

    def _looks(self, expression: ast.AST) -> bool:
        return any(
            (isinstance(node, ast.Call) and dotted(node.func, self._known) in CLOCKS)
            or (isinstance(node, ast.Name) and node.id in self._moments)
            for node in ast.walk(expression)
        )

    def within(self, expression: ast.AST) -> bool:
        """Whether an expression has such a time in it."""
        return any(
            (isinstance(node, ast.Name) and node.id in self.names)
            or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and self._looks(node))
            or (isinstance(node, ast.Call) and dotted(node.func, self._known) in self._told_by)
            for node in ast.walk(expression)
        )


def bounds(module: Module) -> list[str]:
    """The asserts of a module that something was quick enough."""
    known, told_by = aliases(module), set[str]()
    offences: list[str] = []
    for function in [
        *functions(module)
    ] * 2:  # twice, for functions that are written below their use
        spans = Spans(known, told_by)
        spans.learn(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None and spans.within(node.value):
                told_by.add(function.name)
            elif isinstance(node, ast.Assert) and any(map(spans.within, kept_small(node.test))):
                offences.append(
                    f"{module.at(node)} fails on a slow machine: bound the work instead"
                )
    return sorted(set(offences))


def kept_small(test: ast.expr) -> list[ast.expr]:
    """What must be less than something else."""
    small = []
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, how, right in zip(sides, node.ops, sides[1:], strict=False):
                if isinstance(how, ast.Lt | ast.LtE):
                    small.append(left)
                elif isinstance(how, ast.Gt | ast.GtE):
                    small.append(right)
    return small


def test_no_test_asserts_that_something_was_quick_enough():
    offences = []
    for path in sources(ROOT / "tests"):
        text = path.read_text(encoding="utf-8")
        if _MAY_MEASURE.search(text):
            offences += bounds(parse(str(path.relative_to(ROOT)), text))
    assert not offences, told(offences)


HEAD = "import resource\nimport time\nfrom datetime import UTC, datetime\nfrom time import perf_counter\n\ndef test_it():\n    began = time.monotonic()\n    work()\n"


@pytest.mark.parametrize(
    "body",
    [
        "    assert time.monotonic() - began < 5",
        "    took_s = time.monotonic() - began\n    assert took_s <= 5",
        "    assert 5 > perf_counter() - began",
        "    found = []\n    found.append(time.monotonic() - began)\n    assert max(found) < 5",
        "    assert 0.1 <= time.monotonic() - began < 5",
        "    assert took_s() < 5\n\ndef took_s():\n    return time.process_time() - 1.0",
        "    assert (datetime.now(UTC) - began).total_seconds() < 5",
        "    assert resource.getrusage(0).ru_utime - before < 5",
    ],
)
def test_a_bound_on_time_is_caught(body):
    (module,) = plant({"test_it.py": HEAD + body})
    assert len(bounds(module)) == 1


@pytest.mark.parametrize(
    "body",
    [
        "    while not done():\n        assert time.monotonic() < began + 30",
        "    assert time.monotonic() - began >= 0.3",
        "    print(time.monotonic() - began)",
        "    assert done.wait(began + 30 - time.monotonic())",
        "    assert clock.monotonic() - before_s < 5",
    ],
)
def test_a_deadline_a_wait_that_was_kept_and_a_clock_of_our_own_pass(body):
    (module,) = plant({"test_it.py": HEAD + body})
    assert bounds(module) == []
