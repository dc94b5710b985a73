"""Events go to the log through the standard library; our own commands write it to standard error, off the threads that work."""

import logging
import sys
from collections.abc import Callable, Mapping

from perdure.model.errors import ConfigError
from perdure.model.events import Event
from perdure.observers.event_lines import JsonFormatter, TextFormatter, level_of, log_record_of
from perdure.observers.log_queue import LogQueue, LogStream

log = logging.getLogger("perdure")


def log_event(
    event: Event, aliases_of: Callable[[object], Mapping[str, str]] = lambda _: {}
) -> None:
    """Log one event; ``aliases_of`` a pipeline are the second names of fields, which JSON has beside ours."""
    level = level_of(event)
    if log.isEnabledFor(level):
        log.handle(log_record_of(event, level, aliases_of(event.fields.get("pipeline"))))


def write_logs(*, form: str, level: str) -> None:
    """Send Perdure's log to standard error; for our own commands, never for a library user."""
    if level.upper() not in logging.getLevelNamesMapping():
        raise ConfigError(f"log_level is {level!r}; write DEBUG, INFO, WARNING or ERROR")
    on_screen = sys.stderr is not None and sys.stderr.isatty()
    as_text = form == "text" or (form == "auto" and on_screen)
    formatter = TextFormatter() if as_text else JsonFormatter()
    before = log.handlers[:]
    log.handlers[:] = [LogQueue(LogStream(sys.stderr), formatter, sums_up=as_text)]
    log.setLevel(level.upper())
    log.propagate = False
    for one in before:
        if isinstance(one, LogQueue):
            one.close()


def flush_logs() -> None:
    """Wait until the lines so far are written, so that what is said next comes after them."""
    for one in log.handlers:
        one.flush()
