"""Markdown as data: headings with their anchors, links and fenced blocks; only what we use of it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^(`{3,}|~{3,})\s*(\w*)")
HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s+\"[^\"]*\")?\s*$")
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
INLINE_CODE = re.compile(r"(`+)(?:(?!\1).)+?\1")


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language, the line of its first content, and its lines."""

    language: str
    line: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Link:
    """A link's target and the line it stands in."""

    target: str
    line: int


def fences(text: str) -> list[Fence]:
    """The fenced blocks of a document, in order."""
    found: list[Fence] = []
    mark, language, begin, content = "", "", 0, []
    for number, line in enumerate(text.splitlines(), start=1):
        if mark:
            if line.strip() == mark:
                found.append(Fence(language, begin, tuple(content)))
                mark = ""
            else:
                content.append(line)
        elif opening := FENCE.match(line):
            mark, language, begin, content = opening[1], opening[2], number + 1, []
    if mark:
        raise ValueError(f"line {begin - 1} opens a block that nothing closes")
    return found


def plain(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines that stand in no fenced block."""
    mark = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if mark:
            mark = "" if line.strip() == mark else mark
        elif opening := FENCE.match(line):
            mark = opening[1]
        else:
            yield number, line


def headings(text: str) -> list[str]:
    """The headings of a document, in order, as they are written."""
    return [found[2] for _, line in plain(text) if (found := HEADING.match(line))]


def anchors(text: str) -> set[str]:
    """What the part after # may be: GitHub's slugs, the second of a kind with -1, and `<a id>`."""
    seen: dict[str, int] = {}
    found = {one for _, line in plain(text) for one in ANCHOR.findall(INLINE_CODE.sub("", line))}
    for heading in headings(text):
        slug = slug_of(heading)
        found.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return found


def slug_of(heading: str) -> str:
    """GitHub's slug: lower case, punctuation dropped, blanks to hyphens."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")


def links(text: str) -> list[Link]:
    """Every link of a document that is not in code."""
    found: list[Link] = []
    for number, line in plain(text):
        shown = INLINE_CODE.sub("", line)
        found += [Link(target, number) for target in LINK.findall(shown)]
        found += [Link(target, number) for target in DEFINITION.findall(shown)]
    return found
