"""The Python API: what the code says of each public name, around the examples in `examples/`, which a test runs.

The files of examples are the plan of the page. A line ``# Title`` begins a section, ``## App`` and ``### App.stage`` an
entry; below it stand prose and a doctest. Signatures, fields and docstrings are put in from the source. A public name
without an entry, an entry without an example, and an example that does not use its name stop the generator.
"""

import ast
import functools
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NamedTuple

from tools.pages.text import Missing, code, prose, table

import perdure
from perdure.app.jobs import Jobs
from perdure.app.session.gate_standing import GateStanding
from perdure.app.worker.embedded import EmbeddedWorker
from perdure.engine.batch.feeding import Fed
from perdure.engine.operate.eligible import RedrivePreview
from perdure.model.operations import BulkView
from perdure.model.runs import RunCounts
from perdure.model.views import PayloadView, Preview

EXAMPLES = Path(__file__).with_name("examples")
SECTIONS = (
    "app",
    "stages",
    "jobs",
    "runs",
    "dead",
    "policies",
    "gates",
    "changes",
    "settings",
    "errors",
)

# What callers are given and never make: where it comes from stands in place of a constructor.
GIVEN: dict[type, str] = {
    perdure.Pipeline: "`App.pipeline` and `App.get_pipeline`",
    perdure.JobRef: "`Pipeline.enqueue` and `App.job`",
    perdure.Run: "`Pipeline.run` and `App.get_run`",
    perdure.DeadLetters: "`App.dead`",
    perdure.Redrive: "`DeadLetters.redrive` and the methods of `Jobs`",
    perdure.Listener: "`App.follow`",
    perdure.Settings: "`load_settings` and `App.settings`",
    Jobs: "`App.jobs`",
    EmbeddedWorker: "`App.working`",
}
# The same of values; they are not exported, since nobody has to name them.
VALUES = (BulkView, Fed, GateStanding, PayloadView, Preview, RedrivePreview, RunCounts)
# Called by the engine, on values that it alone has.
INSIDE = {
    "Item.options", "Listener.fail", "Listener.hand", "Listener.has_room",
    "Match.fits", "Match.is_by_status_alone", "Settings.with_given", "Vocabulary.meaning_of",
}  # fmt: skip
LINKS = {
    "Kind": "[Failure kinds](kinds.md) says what each of them means.",
    "EventName": "[Events](events.md) says what each of them means.",
    "State": "[States](states.md) says what each of them means.",
    "FailedReason": "[States](states.md#why-a-job-failed) says what each of them means.",
}


class Entry(NamedTuple):
    """A heading of a file of examples, and what stands below it."""

    name: str
    prose: str
    example: str


class Member(NamedTuple):
    """A method or a property of a class, as its source has it."""

    name: str
    is_property: bool
    signature: str
    doc: str


def python_page() -> list[str]:
    lines = [
        "# Python",
        "",
        "What `from perdure import …` gives, and what that gives in turn. Every example is run by a test, with a store in an",
        "empty folder; in a section each example goes on from the one before.",
        "A plain name blocks, and the same name with `_async` is awaited.",
        "`perdure.checks` has a page of its own: [check what a model has written](../howto-checks.md).",
        "",
    ]
    sections = [parts((EXAMPLES / f"{one}.txt").read_text(encoding="utf-8")) for one in SECTIONS]
    check_whole([entry.name for _, entries in sections for entry in entries])
    for title, entries in sections:
        lines.append(f"- [{title}](#{title.lower().replace(' ', '-')}): {_linked(entries)}")
    lines.append("")
    for title, entries in sections:
        lines += [f"## {title}", ""]
        for entry in entries:
            lines += _entry(entry)
    return [*lines, *_errors()]


def _linked(entries: list[Entry]) -> str:
    names = [one.name for one in entries if one.name in things()]
    return ", ".join(f"[{name}](#{name.lower()})" for name in names) or "errors"


def parts(text: str) -> tuple[str, list[Entry]]:
    """The title of a file of examples, and its entries in order."""
    title, *rest = re.split(r"^#+ (.+)\n", text, flags=re.MULTILINE)[1:]
    bodies = zip(rest[1::2], rest[2::2], strict=True)
    return title, [_parted(name, body) for name, body in bodies]


def _parted(name: str, body: str) -> Entry:
    told, found, example = body.partition(">>> ")
    return Entry(name, " ".join(told.split()), (found + example).strip())


def check_whole(seen: list[str]) -> None:
    """Every public name has one entry, and nothing else has."""
    wanted = {*things(), "Errors"} | {
        f"{name}.{one.name}"
        for name, thing in things().items()
        if isinstance(thing, type)
        for one in members(thing)
        if not one.is_property and not is_twin(one, thing)
    }
    for name in sorted(wanted ^ set(seen)):
        what = "has no example" if name in wanted else "is no public name"
        raise Missing(f"{name} {what}; see tools/pages/examples")
    for name in seen:
        if seen.count(name) > 1:
            raise Missing(f"{name} has two entries in tools/pages/examples")


@functools.cache
def things() -> dict[str, object]:
    """Every class and function that a user meets, by name; errors aside."""
    named = {name: getattr(perdure, name) for name in perdure.__all__}
    shown = {name: one for name, one in named.items() if not _is_error(one)}
    return shown | {one.__name__: one for one in (*GIVEN, *VALUES)}


def _is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, perdure.PerdureError)


def _entry(entry: Entry) -> list[str]:
    name, _, member = entry.name.partition(".")
    if name == "Errors":
        return shown(entry)
    if name not in things():
        raise Missing(f"{entry.name} is no public name; see tools/pages/examples")
    thing = things()[name]
    if not member:
        return [f"### {name}", "", *_thing(name, thing), *shown(entry, name)]
    found = {one.name: one for one in members(thing)}
    told = [found[one] for one in (member, f"{member}_async") if one in found]
    lines = [f"#### {entry.name}", "", "```python", *(one.signature for one in told), "```", ""]
    for one in told:
        lines += paragraphs(one.doc if one is told[0] else f"``{one.name}``: {one.doc}")
    return [*lines, *shown(entry, *(one.name for one in told))]


def shown(entry: Entry, *used: str) -> list[str]:
    for name in used:
        if not re.search(rf"\b{name}\b", entry.example):
            raise Missing(f"the example of {entry.name} does not use {name}")
    told = [entry.prose, ""] if entry.prose else []
    return [*told, "```pycon", *entry.example.splitlines(), "```", ""]


def _thing(name: str, thing: object) -> list[str]:
    """What the source says of a class or a function."""
    node = node_of(thing)
    doc = paragraphs(ast.get_docstring(node) or "")
    if isinstance(node, ast.FunctionDef):
        return ["```python", _signature(node), "```", "", *doc]
    assert isinstance(thing, type)
    if issubclass(thing, Enum):
        if name in LINKS:
            values = ", ".join(code(one.value) for one in thing)
            return [*doc, LINKS[name], "", f"{values}.", ""]
        rows = [(code(one.value), _meaning(thing, one.name)) for one in thing]
        return [*doc, *table(("value", "meaning"), rows)]
    lines = [f"You get one from {GIVEN[thing]}.", ""] if thing in GIVEN else []
    for made in _methods(thing):
        if made.name == "__init__" and thing not in GIVEN:
            lines += ["```python", _signature(made, name), "```", ""]
    return [*lines, *doc, *_attributes(node, thing)]


def _attributes(node: ast.ClassDef, thing: type) -> list[str]:
    rows = [
        (code(ast.unparse(one.target)), code(_type(one.annotation)), _default(one.value))
        for one in node.body
        if isinstance(one, ast.AnnAssign) and not ast.unparse(one.target).startswith("_")
    ]
    lines = table(("field", "type", "default"), rows) if rows else []
    properties = [one for one in members(thing) if one.is_property]
    rows = [(code(one.name), code(one.signature), prose(one.doc)) for one in properties]
    return [*lines, *(table(("property", "type", "meaning"), rows) if rows else [])]


def _default(value: ast.expr | None) -> str:
    if value is None:
        return ""
    text = ast.unparse(value)
    factory = re.search(r"default_factory=(dict|list)\b", text)
    return code({"dict": "{}", "list": "[]"}[factory[1]] if factory else text)


def members(thing: object) -> list[Member]:
    """The public methods and properties of a class, in the order of its source."""
    if not isinstance(thing, type) or issubclass(thing, Enum):
        return []
    found: dict[str, Member] = {}
    for one in _methods(thing):
        if one.name.startswith("_") or f"{thing.__name__}.{one.name}" in INSIDE:
            continue
        is_property = any(ast.unparse(by) == "property" for by in one.decorator_list)
        returned = ast.unparse(one.returns) if one.returns else ""
        doc = ast.get_docstring(one) or ""
        if "overload" in map(ast.unparse, one.decorator_list):
            continue
        if not doc:
            raise Missing(f"{thing.__name__}.{one.name} has no docstring")
        told = returned if is_property else _signature(one)
        found[one.name] = Member(one.name, is_property, told, doc)
    return list(found.values())


def is_twin(one: Member, thing: object) -> bool:
    """Whether a member is the one to await of another, whose entry shows both."""
    plain = one.name.removesuffix("_async")
    return plain != one.name and plain in {other.name for other in members(thing)}


def _methods(thing: object) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    inner = node_of(thing).body
    return [one for one in inner if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str | None = None) -> str:
    """As it is called, on one line or, when that is long, with a line for each parameter."""
    begins = f"{name or _begins(node)}("
    returned = f" -> {_type(node.returns)}" if node.returns and name is None else ""
    given = [one for one in _parameters(node.args) if one not in ("self", "cls")]
    line = f"{begins}{', '.join(given)}){returned}"
    if len(line) <= 100:
        return line
    return "\n".join([begins, *(f"    {one}," for one in given), f"){returned}"])


def _begins(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ("async def " if isinstance(node, ast.AsyncFunctionDef) else "def ") + node.name


def _parameters(given: ast.arguments) -> Iterator[str]:
    bare: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
    for one, default in zip(given.args, [*bare, *given.defaults], strict=True):
        yield _parameter(one, default)
    if given.vararg is not None:
        yield f"*{_parameter(given.vararg, None)}"
    elif given.kwonlyargs:
        yield "*"
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(one, default)
    if given.kwarg is not None:
        yield f"**{_parameter(given.kwarg, None)}"


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    typed = f": {_type(one.annotation)}" if one.annotation else ""
    return f"{one.arg}{typed}" + (f" = {ast.unparse(default)}" if default else "")


def _type(annotation: ast.expr) -> str:
    """A type as it is written; one that is written in quotes, without them."""
    is_text = isinstance(annotation, ast.Constant) and isinstance(annotation.value, str)
    return str(annotation.value) if is_text else ast.unparse(annotation)


def paragraphs(doc: str) -> list[str]:
    """A docstring as paragraphs of Markdown."""
    return [line for one in doc.split("\n\n") if one.strip() for line in (prose(one), "")]


def node_of(thing: object) -> ast.ClassDef | ast.FunctionDef:
    """A class or a function as it stands in its file."""
    assert isinstance(thing, type | FunctionType)
    for node in _tree(thing.__module__)[0].body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == thing.__name__:
            return node
    raise Missing(f"{thing.__name__} is not in the file of {thing.__module__}")


def _meaning(thing: type, name: str) -> str:
    """The comment beside a member of an enumeration."""
    beside = _tree(thing.__module__)[1]
    for one in node_of(thing).body:
        is_it = isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name
        if is_it and one.lineno in beside:
            return beside[one.lineno]
    raise Missing(f"{thing.__name__}.{name} has no comment beside it that says what it means")


@functools.cache
def _tree(module: str) -> tuple[ast.Module, dict[int, str]]:
    """A module's source as a tree, and its comments by line."""
    path = Path(perdure.__file__).parent.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    source = path.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = {
        one.start[0]: one.string.lstrip("# ") for one in tokens if one.type == tokenize.COMMENT
    }
    tree = ast.parse(source)
    return Plainly(tree, importlib.import_module(module)).visit(tree), found


class Plainly(ast.NodeTransformer):
    """Puts what they stand for in place of a module's names for types and constants, which a reader does not know."""

    def __init__(self, tree: ast.Module, module: ModuleType) -> None:
        self._module = module
        self._named = {
            one.targets[0].id: one.value
            for one in tree.body
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
        }

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._named.get(node.id)
        if value is None or not isinstance(node.ctx, ast.Load):
            known = getattr(self._module, node.id, None) if node.id.isupper() else None
            return ast.Constant(known) if isinstance(known, int | float | str) else node
        bounds = [one.value for one in getattr(value, "keywords", ()) if one.arg == "bound"]
        return bounds[0] if bounds else value


def _errors() -> list[str]:
    links = (
        f"[{name}](errors.md#{name.lower()})"
        for name in perdure.__all__
        if _is_error(getattr(perdure, name))
    )
    return [f"Each of them is in the [reference of errors](errors.md): {', '.join(links)}.", ""]
