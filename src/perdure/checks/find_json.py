"""From what a model wrote to the one JSON value in it.

The value is looked for where models put it: the whole text; the one fenced block; what begins at the
first bracket, with words around it. There must be one value only: of two, neither is taken, and no part
of a broken one. A comma too many is left away. Anything else that is broken is mended only if the
caller knows that the output is whole, for the end of a cut one would be made up.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from perdure.checks.json_values import DECODER, NESTED
from perdure.checks.mend_json import mend
from perdure.checks.output_paths import OutputMisfit

SYNTAX = "it is not JSON"
SEVERAL = "it holds several JSON values"
NOTHING = "it holds no JSON value"
EMPTY = "it is empty"
UNCLOSED = "its JSON is not closed"

BOM, FENCE, WORDS, COMMAS, REPAIR = "bom", "fence", "words", "commas", "repair"

_BRACKET = re.compile(r"[\[{]")
# At the start of a line or, with the name of the language, behind some words.
_FENCE = re.compile(
    r"^[ \t>]*(?:`{3,}|~{3,})[ \t]*([\w+-]*)|`{3,}(json\w?\b)", re.MULTILINE | re.IGNORECASE
)
_JSON_NAMES = {"json", "jsonc", "json5", "jsonl", "javascript", "js"}

_STRING = r'"(?:[^"\\]++|\\.)*+'
# A comma before a closing bracket, but not one that stands alone between two brackets.
_COMMA = re.compile(rf'({_STRING}"?|[\[{{]\s*+,)|,(?=\s*+[\]}}])', re.DOTALL)
_MARK = re.compile(rf'{_STRING}("?)|([\[{{])|[\]}}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A value, and what had to be done to get at it."""

    value: Any
    steps: tuple[str, ...]


@dataclass(slots=True)
class _Search:
    """The text that is left, and what was left away."""

    text: str
    steps: list[str] = field(default_factory=list)

    def narrow(self, step: str, text: str) -> None:
        self.text = text.strip()
        self.steps.append(step)

    def find(self, value: Any, *steps: str) -> FoundValue:
        return FoundValue(value, (*self.steps, *steps))


class Cut(OutputMisfit):
    """The JSON begins and does not end."""


def find(text: str, *, is_whole: bool, repair: bool) -> FoundValue:
    """The one JSON value in a text; `Cut` where it does not end, `OutputMisfit` where there is none.

    ``is_whole`` says that the model had come to its end.
    """
    search = _Search(text.strip())
    if search.text.startswith("\ufeff"):
        search.narrow(BOM, search.text.lstrip("\ufeff"))
    if not search.text:
        raise OutputMisfit(EMPTY)
    found = _find_alone(search)
    if found is None and search.text[0] not in "[{":
        block = _block(search.text)
        if block is not None:
            search.narrow(FENCE, block)
            found = _find_alone(search)
    return found or _inside(search, is_whole=is_whole, repair=repair)


def _find_alone(search: _Search) -> FoundValue | None:
    """The value, if the whole text is one."""
    value = _decode(search.text, 0)
    if value is None or value[1] != len(search.text):
        return None
    return search.find(value[0])


def _block(text: str) -> str | None:
    """What is inside the one fenced block; None if no block looks like JSON."""
    blocks: list[tuple[str, str]] = []
    opening: re.Match[str] | None = None
    for fence in _fences(text):
        if opening is None:
            opening = fence
        else:
            blocks.append((_name(opening), text[opening.end() : fence.start()]))
            opening = None
    if opening is not None:  # it is closed at the end of a line, or not at all
        blocks.append((_name(opening), _strip_fence(text[opening.end() :])))
    named = [body for name, body in blocks if name in _JSON_NAMES]
    bodies = named or [body for name, body in blocks if not name]
    if len(bodies) > 1:
        raise OutputMisfit(SEVERAL)
    return bodies[0] if bodies else None


def _fences(text: str) -> Iterator[re.Match[str]]:
    bracket = _BRACKET.search(text)
    for fence in _FENCE.finditer(text):
        is_quoted = fence[2] is not None and bracket is not None and bracket.start() < fence.start()
        if not is_quoted:  # a fence within a line may be part of the value
            yield fence


def _name(fence: re.Match[str]) -> str:
    return str(fence[1] or fence[2] or "").lower()


def _strip_fence(body: str) -> str:
    body = body.rstrip()
    return body.rstrip("`~") if body.endswith(("```", "~~~")) else body


def _inside(search: _Search, *, is_whole: bool, repair: bool) -> FoundValue:
    """The value that begins at the first bracket."""
    bracket = _BRACKET.search(search.text)
    if bracket is None:
        raise OutputMisfit(NOTHING if search.text else EMPTY)
    if bracket.start() > 0:
        search.narrow(WORDS, search.text[bracket.start() :])
    text = search.text
    value = _decode(text, 0)
    if value is None:
        text = _COMMA.sub(r"\1", text)
        value = _decode(text, 0)
        if value is not None:
            search.steps.append(COMMAS)
    if value is None:
        return _mend(search, is_whole=is_whole, repair=repair)
    rest = text[value[1] :]
    if _BRACKET.search(rest):
        raise OutputMisfit(SEVERAL)
    if rest.strip() and WORDS not in search.steps:
        search.steps.append(WORDS)
    return search.find(value[0])


def _mend(search: _Search, *, is_whole: bool, repair: bool) -> FoundValue:
    if is_whole and repair:
        value = mend(search.text)
        if value is not None:
            return search.find(value, REPAIR)
    if not is_whole and _is_open(search.text):
        raise Cut(UNCLOSED)
    raise OutputMisfit(SYNTAX)


def _decode(text: str, at: int) -> tuple[Any, int] | None:
    """The value that begins there and where it ends; None if there is none."""
    try:
        return DECODER.raw_decode(text, at)
    except RecursionError:
        raise OutputMisfit(NESTED) from None
    except ValueError:
        return None


def _is_open(text: str) -> bool:
    """Whether brackets or a string are still open at the end."""
    depth = 0
    for mark in _MARK.finditer(text):
        if mark[1] is not None:
            if not mark[1]:
                return True
        else:
            depth += 1 if mark[2] else -1
    return depth > 0
