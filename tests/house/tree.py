"""The source tree as data: modules, their imports and their names, read without running them.

Checkers take modules and return offences, one line each; so a test can plant a small offending
tree in a temporary folder and see that its checker catches it.
"""

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "perdure"
PACKAGE = "perdure"


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, its path inside the package (`engine/run.py`) and its tree."""

    name: str
    file: str
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.file.endswith("__init__.py")

    @property
    def layer(self) -> str:
        """`perdure.engine.run` is in `engine`; the package root is in `perdure`."""
        return layer_of(self.name)

    def at(self, node: ast.AST) -> str:
        return f"{self.file}:{getattr(node, 'lineno', 1)}"


@dataclass(frozen=True)
class Import:
    """One imported module, where the import stands, and what it was asked for."""

    target: str
    line: int


def layer_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def read(root: Path) -> tuple[Module, ...]:
    """Every module under `root`, which is the folder of the package itself."""
    return tuple(parse(str(path.relative_to(root)), path.read_text()) for path in sources(root))


def sources(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)


@functools.cache
def house() -> tuple[Module, ...]:
    """The modules of perdure, read once."""
    return read(SRC)


def plant(files: Mapping[str, str]) -> tuple[Module, ...]:
    """Modules that exist only here: `plant({"model/job.py": "import time"})`."""
    return tuple(parse(file, text) for file, text in sorted(files.items()))


def parse(file: str, text: str) -> Module:
    parts = [PACKAGE, *Path(file).with_suffix("").parts]
    if parts[-1] == "__init__":
        parts.pop()
    return Module(".".join(parts), file, text, ast.parse(text, filename=file))


def imports(module: Module, known: frozenset[str]) -> list[Import]:
    """Every import anywhere in the module: at its head, in functions, under TYPE_CHECKING.

    `from perdure.model import states` is an import of the module `perdure.model.states` if that
    is among `known`, and of the package `perdure.model` if not. A call of `import_module` (or
    `__import__`) with a literal name counts like the statement.
    """
    found: list[Import] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = absolute(module, node)
            for alias in node.names:
                submodule = f"{source}.{alias.name}"
                found.append(Import(submodule if submodule in known else source, node.lineno))
        elif isinstance(node, ast.Call) and (name := imported_by_call(module, node)):
            found.append(Import(name, node.lineno))
    return found


def absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    kept = len(parts) - node.level + (1 if module.is_package else 0)
    return ".".join([*parts[:kept], *([node.module] if node.module else [])])


def imported_by_call(module: Module, node: ast.Call) -> str | None:
    called = (
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    )
    if called not in {"import_module", "__import__"} or not node.args:
        return None
    first = node.args[0]
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
        return None
    name = first.value
    level = len(name) - len(name.lstrip("."))
    if not level:
        return name
    return absolute(module, ast.ImportFrom(module=name[level:] or None, names=[], level=level))


def names(modules: tuple[Module, ...]) -> frozenset[str]:
    return frozenset(module.name for module in modules)


def inside(target: str) -> bool:
    return target == PACKAGE or target.startswith(f"{PACKAGE}.")


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def classes(module: Module) -> Iterator[ast.ClassDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            yield node


def docstring_lines(node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many lines the node's docstring takes, 0 if it has none."""
    if ast.get_docstring(node, clean=False) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def aliases(module: Module) -> dict[str, str]:
    """Local names of imported things: `from datetime import datetime as dt` is dt: datetime.datetime."""
    found: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.asname is not None
                name = alias.asname or alias.name.split(".")[0]
                found[name] = alias.name if whole else name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def dotted(node: ast.expr, known: Mapping[str, str]) -> str:
    """The full name of a reference (`dt.now` is `datetime.datetime.now`), or "" for anything else."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value, known)):
        return f"{owner}.{node.attr}"
    return ""


def told(offences: list[str]) -> str:
    """The offences as an assertion's message, one a line."""
    return "\n" + "\n".join(offences)
