"""The templates of the page, and names, moments and sizes as people read them."""

import re
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, select_autoescape

PAGE = Path(__file__).with_name("page")
NAME_CHARS_MAX = 200


def clean_name(said: str) -> str:
    """What somebody calls a file: without folders, and without signs that are no text."""
    name = re.split(r"[/\\]", said.encode("utf-8", "replace").decode())[-1]
    return re.sub(r"[\x00-\x1f\x7f]", "", name).strip()[-NAME_CHARS_MAX:] or "file.pdf"


def iso(moment: datetime | None) -> str | None:
    """A moment as JSON has it."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")


def clock(moment: str) -> str:
    """A moment for people; the page's script puts it into their own time zone."""
    return datetime.fromisoformat(moment).strftime("%d %b %H:%M:%S UTC")


def size(count: int) -> str:
    """A number of bytes for people."""
    for unit, least in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= least:
            return f"{round(count / least, 1):g} {unit}"
    return f"{count} bytes"


PAGES = Environment(loader=FileSystemLoader(PAGE), autoescape=select_autoescape())
PAGES.filters |= {"clock": clock, "size": size}
