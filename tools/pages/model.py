"""States, errors and limits: the nouns that a user meets."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tools.pages.text import Missing, code, facts, number, sentences, table

from perdure.model import errors, limits
from perdure.model.errors import PerdureError
from perdure.model.states import TRANSITIONS, AttemptStatus, FailedReason, Move, State

_UNITS = {
    "BYTES": "bytes", "CHARS": "characters", "BITS": "bits", "ROWS": "rows", "STAGES": "stages", "LINES": "lines",
    "S": "seconds", "DEPTH": "levels", "BATCH": "jobs", "TOGETHER": "jobs", "NAMES": "names",
    "COUNT": "jobs", "CAUSES": "links", "HEADERS": "headers", "CODES": "codes", "FACTS": "facts", "READ": "bytes",
    "TOKENS": "tokens", "CAPTURES": "captures", "PROCESSES": "processes",
}  # fmt: skip


def states_page() -> list[str]:
    lines = ["# States", "", "Drawn from `TRANSITIONS` in `model/states.py`.", "", *diagram()]
    for name, sentence in sentences("state", State).items():
        leaving = [
            f"{code(move.value)} to {result.value}"
            for source, move, result in TRANSITIONS
            if source is State(name)
        ]
        lines += [f"## {name}", "", sentence, ""]
        lines += facts({"left by": ", ".join(leaving) or "nothing, it is final"})
    lines += ["Screens also say *scheduled* and *retrying*: views of queued, not states.", ""]
    for title, section, names in (
        ("Why a job failed", "failed_reason", FailedReason),
        ("How an attempt ended", "attempt_status", AttemptStatus),
        ("Moves", "move", Move),
    ):
        rows = [(code(name), text) for name, text in sentences(section, names).items()]
        lines += [f"## {title}", "", *table(("name", "meaning"), rows)]
    return lines


def diagram() -> list[str]:
    """The transition table as a Mermaid state diagram: one arrow for each pair of states."""
    pairs: dict[tuple[str, str], list[str]] = {}
    for source, move, result in TRANSITIONS:
        pair = (source.value if source else "[*]", result.value)
        pairs.setdefault(pair, []).append(move.value)
    arrows = [f"    {a} --> {b}: {', '.join(moves)}" for (a, b), moves in pairs.items()]
    return ["```mermaid", "stateDiagram-v2", *arrows, "```", ""]


def errors_page() -> list[str]:
    tree = error_tree(PerdureError)
    drawn = drawn_tree(errors.__doc__ or "")
    if [(one.__name__, depth) for one, depth in tree] != [(name, at) for name, at, _ in drawn]:
        raise Missing("the tree at the head of model/errors.py is not the tree of its classes")
    lines = [
        "# Errors",
        "",
        "Every error that Perdure raises to a caller, branched by whose fault it is.",
        "Codes and exit statuses are stable; HTTP statuses are those of the [HTTP API](http.md).",
        "",
        *("```", *(f"{'    ' * depth}{one.__name__}" for one, depth in tree), "```", ""),
    ]
    for (one, _), (_, _, meaning) in zip(tree, drawn, strict=True):
        text = meaning or (one.__doc__ or "").strip().rstrip(".")
        lines += [f"## {one.__name__}", "", f"{text[0].upper()}{text[1:]}.", ""]
        lines += facts(
            {
                "code": code(one.code),
                "exit status": str(one.exit_code),
                "HTTP status": str(one.http_status),
            }
        )
    return lines


def error_tree(root: type[PerdureError]) -> list[tuple[type[PerdureError], int]]:
    """Every error class of ours with its depth, parents first, in the order of the file."""
    return list(_branch(root, 0))


def _branch(one: type[PerdureError], depth: int) -> Iterator[tuple[type[PerdureError], int]]:
    yield one, depth
    for child in one.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _branch(child, depth + 1)


def drawn_tree(essay: str) -> list[tuple[str, int, str]]:
    """Name, depth and meaning of every line of a tree drawn with ├ and └."""
    lines = re.findall(r"^ {4}([│├└─ ]*)([A-Z]\w*)(?: {2,}(\S.*))?$", essay, re.MULTILINE)
    return [(name, len(stem) // 4, meaning.replace("``", "`")) for stem, name, meaning in lines]


def limits_page() -> list[str]:
    lines = ["# Limits", "", "They are constants of the code, not settings.", ""]
    rows = []
    for name, reason in limit_reasons(Path(limits.__file__).read_text(encoding="utf-8")).items():
        rows.append((code(name), f"{number(getattr(limits, name))} {unit_of(name)}", reason))
    return lines + table(("limit", "value", "reason"), rows)


def unit_of(limit: str) -> str:
    """The unit that a limit's name ends with, MAX aside."""
    last = limit.removesuffix("_MAX").rpartition("_")[2]
    if last not in _UNITS:
        raise Missing(f"{limit} ends with no unit that tools/pages/model.py knows")
    return _UNITS[last]


def limit_reasons(source: str) -> dict[str, str]:
    """The constants of a module and the comments beside them."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {one.start[0]: one.string for one in tokens if one.type == tokenize.COMMENT}
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            comment = comments.get(node.end_lineno or 0, "").lstrip("# ")
            if not comment:
                raise Missing(f"model/limits.py:{node.lineno} gives no reason beside the number")
            found[ast.unparse(node.targets[0])] = comment
    return found
