"""Markdown in small pieces, and the sentences that the code itself does not hold."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

WORDS = Path(__file__).with_name("words.toml")


class Missing(Exception):
    """The code and its documents have drifted apart: says what has to be written, and where."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(head), "|" + "---|" * len(head), *(_row(row) for row in rows), ""]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def facts(pairs: Mapping[str, str]) -> list[str]:
    """A short list of what is true of one thing; what is empty is left out."""
    return [*(f"- {name}: {text}" for name, text in pairs.items() if text), ""]


def code(text: object) -> str:
    return f"`{text}`"


def prose(text: str) -> str:
    """A docstring as Markdown: unwrapped, with our double backticks made single."""
    return " ".join(text.replace("``", "`").split())


def number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{round(value, 3):g}"


def seconds(value_s: float) -> str:
    return f"{number(value_s)} s"


def yes(value: bool) -> str:
    return "yes" if value else "no"


def sentences(
    section: str, names: type[StrEnum], words: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, str]:
    """One sentence for every member of an enumeration, in its order; neither more nor fewer."""
    found = (words or tomllib.loads(WORDS.read_text(encoding="utf-8"))).get(section, {})
    wanted = [name.value for name in names]
    if set(found) != set(wanted):
        differing = ", ".join(sorted(set(found) ^ set(wanted)))
        raise Missing(f"[{section}] of {WORDS.name} and {names.__name__} differ: {differing}")
    return {name: found[name] for name in wanted}
