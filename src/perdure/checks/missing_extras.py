"""What the checks of a stage need and is not installed, told when the stage is declared.

A stage calls a check only when an item comes. So its source is read: which of our functions it calls, itself or
through functions of its own module, and with what. What cannot be told from the source is left to the call.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from types import CodeType, FunctionType, ModuleType
from typing import Any

from perdure.checks.mend_json import REMEDY
from perdure.checks.output import check, fits, json_of, read_json
from perdure.model.errors import ConfigError

_MENDING: tuple[Callable[..., Any], ...] = (read_json, json_of, check)
_FITTING: tuple[Callable[..., Any], ...] = (read_json, check, fits)
_CHECKS: dict[str, Any] = {one.__name__: one for one in (*_MENDING, fits)}
_HERE = "perdure.checks"
_NONE, _TRUE = ast.Constant(None), ast.Constant(True)


def check_extras(stage: str, call: object) -> None:
    """Refuse a stage whose checks cannot be done, because the extra is not installed."""
    for function in _own_functions(call):
        for node, called, names in _calls(function):
            given = {one.arg: one.value for one in node.keywords}
            if called in _MENDING and _mends(given) and find_spec("json_repair") is None:
                need = f"{called.__name__}(…, finish_reason=…), which mends JSON with json-repair"
                raise _missing(stage, need, f"{REMEDY}, or pass repair=False")
            is_schema = called in _FITTING and _has_schema(node, given, names)
            if is_schema and find_spec("jsonschema_rs") is None:
                need = f"{called.__name__}(…) with a JSON Schema, which needs jsonschema-rs"
                raise _missing(stage, need, REMEDY)


def _missing(stage: str, need: str, remedy: str) -> ConfigError:
    return ConfigError(f"stage {stage!r} calls {need}, and that is not installed: {remedy}")


def _mends(given: Mapping[str | None, ast.expr]) -> bool:
    """Whether broken JSON will be mended as soon as a model says that it has come to its end."""
    reason, repair = given.get("finish_reason", _NONE), given.get("repair", _TRUE)
    return None not in given and not _is(reason, None) and _is(repair, True)  # None: **options


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _has_schema(
    node: ast.Call, given: Mapping[str | None, ast.expr], names: Mapping[str, Any]
) -> bool:
    against = node.args[1] if len(node.args) > 1 else given.get("against")
    if isinstance(against, ast.Dict):
        return True
    return against is not None and isinstance(_meaning_of(against, names), Mapping)


# -- reading functions -------------------------------------------------------------------


def _own_functions(call: object) -> Iterator[FunctionType]:
    """The function, and those of its module that it names, and so on."""
    left, seen = [call], set[int]()
    while left:
        one = left.pop()
        if not isinstance(one, FunctionType) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        known = _names_known(one)
        named = [known.get(name) for name in _names_in(one.__code__)]
        left += [
            other
            for other in named
            if isinstance(other, FunctionType) and other.__globals__ is one.__globals__
        ]


def _calls(
    function: FunctionType,
) -> Iterator[tuple[ast.Call, Callable[..., Any], Mapping[str, Any]]]:
    """Where it calls a check, which, and what its names mean."""
    known, mentioned = _names_known(function), _names_in(function.__code__)
    if _HERE not in mentioned and not any(_is_ours(known.get(name)) for name in mentioned):
        return
    tree = _tree(function)
    if tree is None:
        return
    names = known | _checks_imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_check(called := _meaning_of(node.func, names)):
            yield node, called, names


def _names_known(function: FunctionType) -> dict[str, Any]:
    """What the names mean that it has from outside; its own parameters and variables hide them."""
    code = function.__code__
    known = dict(function.__globals__)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            known[name] = cell.cell_contents
        except ValueError:  # not set yet
            known.pop(name, None)
    for name in code.co_varnames:
        known.pop(name, None)
    return known


def _names_in(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*map(_names_in, inner))


def _is_ours(thing: object) -> bool:
    if isinstance(thing, ModuleType):
        return thing.__name__ in ("perdure", _HERE)
    return _is_check(thing)


def _is_check(thing: object) -> bool:
    return any(thing is one for one in _CHECKS.values())


def _checks_imported(tree: ast.AST) -> dict[str, Any]:
    """The checks that it imports itself."""
    return {
        one.asname or one.name: _CHECKS[one.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == _HERE
        for one in node.names
        if one.name in _CHECKS
    }


def _tree(function: FunctionType) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError):  # typed at a prompt, or half a line
        return None


def _meaning_of(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """What a name, or a name in a module, stands for."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        inside = _meaning_of(node.value, names)
        return vars(inside).get(node.attr) if isinstance(inside, ModuleType) else None
    return None
