"""Events as records of the standard library, and records as lines: text for people, JSON for machines.

The table of events is also the list of what may be written. A field that has no place in its event's row is left out,
whoever told it, so that neither a payload nor an upstream's answer gets into a log by accident.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from perdure.model.aliases import under_aliases
from perdure.model.events import EVENTS, Event, Level

log = logging.getLogger("perdure")

_LEVELS: dict[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_encode = json.JSONEncoder(default=str).encode


class EventWords:
    """An event in words, put together when somebody writes them: not on the thread that tells it."""

    __slots__ = ("_fields", "_name")

    def __init__(self, name: str, fields: Mapping[str, object]) -> None:
        self._name = name
        self._fields = fields

    def __str__(self) -> str:
        named = (f"{name}={_one_line(str(value))}" for name, value in self._fields.items())
        return " ".join([self._name, *named])


def level_of(event: Event) -> int:
    """How loud an event is: by its name, and for some whether it is of a first attempt."""
    facts, attempt = EVENTS[event.name], event.fields.get("attempt")
    if facts.level_again is not None and isinstance(attempt, int) and attempt > 1:
        return _LEVELS[facts.level_again]
    return _LEVELS[facts.level]


def log_record_of(
    event: Event, level: int, aliases: Mapping[str, str] | None = None
) -> logging.LogRecord:
    """The record of an event; its message says it all, because a host's formatters know nothing of our fields."""
    name, told = event.name.value, event.fields
    fields = {
        field: value
        for field in EVENTS[event.name].fields
        if (value := told.get(field)) is not None
    }
    # Made by hand: to look for the caller, who is always the same, would take longer than all the rest.
    return log.makeRecord(
        log.name,
        level,
        __file__,
        0,
        "%s",
        (EventWords(name, fields),),
        None,
        "log_record_of",
        {"perdure_event": name, "perdure": fields, "perdure_aliases": aliases or {}},
    )


class TextFormatter(logging.Formatter):
    """One line for people: time, level, event, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        line = f"{moment} {record.levelname:<7} {record.getMessage()}".rstrip()
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return _encode(self._fields_of(record))

    def _fields_of(self, record: logging.LogRecord) -> dict[str, object]:
        """What is written, under which names. Second names for the same fields are added here and nowhere else."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
        }
        event = getattr(record, "perdure_event", None)
        fields |= {"message": record.getMessage()} if event is None else {"event": event}
        aliases = getattr(record, "perdure_aliases", {})
        fields |= under_aliases(getattr(record, "perdure", {}), aliases)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return fields


def _one_line(text: str) -> str:
    """Text that neither begins a line of its own nor is obeyed by a terminal."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
