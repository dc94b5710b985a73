"""Places in a model's output, written so that they show nothing of what the model wrote.

A name in an object is the model's own text, unless what was asked for has a field of that name. So
a path shows the names that are known, and ``[...]`` for every other.
"""

import json
from collections.abc import Iterable

ROOT = "$"
_PATH_CHARS_MAX = 300
_OTHER = "[...]"


class OutputMisfit(Exception):
    """A value is not what it should be: where in it, and which rule it breaks."""

    def __init__(self, rule: str, path: str = ROOT) -> None:
        self.path = path
        self.rule = rule
        super().__init__(f"{path}: {rule}")


def path_of(steps: Iterable[str | int], known: frozenset[str]) -> str:
    """The way to a place: ``$.items[3]["unit price"][...]``."""
    path = ROOT + "".join(_step(one, known) for one in steps)
    return path if len(path) <= _PATH_CHARS_MAX else path[: _PATH_CHARS_MAX - 1] + "…"


def _step(step: str | int, known: frozenset[str]) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if step not in known:
        return _OTHER
    return f".{step}" if step.isidentifier() else f"[{json.dumps(step, ensure_ascii=False)}]"
