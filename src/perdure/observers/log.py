"""Events as log records through the standard library: text for people, JSON for machines."""

import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from perdure.model.aliases import under_aliases
from perdure.model.errors import ConfigError
from perdure.model.events import EVENTS, Event, Level

log = logging.getLogger("perdure")

_LEVELS: dict[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def level_of(event: Event) -> int:
    """How loud an event is: by its name, and for some whether it is of a first attempt."""
    facts, attempt = EVENTS[event.name], event.fields.get("attempt")
    if facts.level_again is not None and isinstance(attempt, int) and attempt > 1:
        return _LEVELS[facts.level_again]
    return _LEVELS[facts.level]


def log_event(
    event: Event, aliases_of: Callable[[object], Mapping[str, str]] = lambda _: {}
) -> None:
    """Write one event; the message says it all, because a host's formatters know nothing of our fields.

    ``aliases_of`` a pipeline are the second names of fields, which JSON has beside ours.
    """
    level = level_of(event)
    if log.isEnabledFor(level):
        fields = {name: value for name, value in event.fields.items() if value is not None}
        words = [event.name.value, *(f"{name}={value}" for name, value in fields.items())]
        named = under_aliases(fields, aliases_of(fields.get("pipeline")))
        extra = {"perdure_event": event.name.value, "perdure": named}
        log.log(level, "%s", " ".join(words), extra=extra)


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
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "event": getattr(record, "perdure_event", None) or record.getMessage(),
        }
        fields.update(getattr(record, "perdure", {}))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def write_logs(*, form: str, level: str) -> None:
    """Send Perdure's log to standard error; for our own commands, never for a library user."""
    if level.upper() not in logging.getLevelNamesMapping():
        raise ConfigError(f"log_level is {level!r}; write DEBUG, INFO, WARNING or ERROR")
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    output = logging.StreamHandler()
    output.setFormatter(TextFormatter() if as_text else JsonFormatter())
    log.handlers[:] = [output]
    log.setLevel(level.upper())
    log.propagate = False
