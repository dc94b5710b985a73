"""The log: one line an event, as text for people and as JSON for machines."""

import io
import json
import logging
import re
import sys

import pytest

from perdure.model.errors import ConfigError
from perdure.model.events import Event, EventName
from perdure.observers.event_lines import JsonFormatter, TextFormatter
from perdure.observers.log import flush_logs, log_event, write_logs

RETRIED = Event(
    EventName.JOB_RETRIED,
    {"job_id": "job-1", "attempt": 2, "delay_ms": 1500, "error_code": "network", "owner": None},
)


@pytest.fixture
def lines(log):
    """What the log writes in a form, line by line."""

    def in_form(
        formatter: logging.Formatter, *events: Event, level: int = logging.DEBUG
    ) -> list[str]:
        output = io.StringIO()
        handler = logging.StreamHandler(output)
        handler.setFormatter(formatter)
        log.handlers[:] = [handler]
        log.propagate = False
        log.setLevel(level)
        for event in events:
            log_event(event)
        return output.getvalue().splitlines()

    return in_form


def test_an_event_is_one_line_for_people(lines):
    (line,) = lines(TextFormatter(), RETRIED)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d\.\d{3} INFO    job_retried job_id=job-1 attempt=2 error_code=network "
        r"delay_ms=1500",
        line,
    )


def test_an_event_is_one_object_for_machines(lines):
    (line,) = lines(JsonFormatter(), RETRIED)
    fields = json.loads(line)
    assert fields.pop("time").endswith("+00:00")
    assert fields == {
        "level": "info",
        "event": "job_retried",
        "job_id": "job-1",
        "attempt": 2,
        "delay_ms": 1500,
        "error_code": "network",
    }


def test_a_value_that_json_does_not_know_is_written_as_text(lines):
    (line,) = lines(JsonFormatter(), Event(EventName.STORE_AWAY, {"reason": ValueError("x")}))
    assert json.loads(line)["reason"] == "x"


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[2J", "\ud800", "🎉"])
def test_json_is_one_plain_line_whatever_the_value(lines, text):
    (line,) = lines(JsonFormatter(), Event(EventName.STORE_AWAY, {"reason": text}))
    assert line.isascii()
    assert line.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"), [("two\nlines", r"two\nlines"), ("\x1b[2J", r"\x1b[2J")]
)
def test_what_somebody_else_wrote_is_neither_a_line_of_its_own_nor_obeyed_by_a_terminal(
    lines, text, shown
):
    (line,) = lines(TextFormatter(), Event(EventName.JOB_FAILED, {"request_id": text}))
    assert line.endswith(f"request_id={shown}")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_field_that_is_not_in_its_events_row_is_not_written(lines, formatter):
    told = {"job_id": "job-1", "payload": "CANARY", "token": "CANARY", "body": "CANARY"}
    (line,) = lines(formatter, Event(EventName.JOB_FAILED, told))
    assert "job-1" in line
    assert "CANARY" not in line


@pytest.mark.parametrize(
    ("name", "level"),
    [
        (EventName.JOB_CLAIMED, "DEBUG"),
        (EventName.JOB_ADVANCED, "DEBUG"),
        (EventName.JOB_SUCCEEDED, "DEBUG"),
        (EventName.JOB_ENQUEUED, "DEBUG"),
        (EventName.JOB_RETRIED, "INFO"),
        (EventName.JOB_RELEASED, "INFO"),
        (EventName.JOB_CANCELLED, "INFO"),
        (EventName.JOB_FAILED, "WARNING"),
        (EventName.RESULT_REFUSED, "WARNING"),
        (EventName.WORKER_STARTED, "INFO"),
        (EventName.WORKER_LOST, "WARNING"),
        (EventName.WORKER_STOPPED, "INFO"),
        (EventName.STORE_AWAY, "WARNING"),
        (EventName.STORE_BACK, "INFO"),
        (EventName.STAGE_UNKNOWN, "WARNING"),
    ],
)
def test_what_is_every_days_work_is_quieter_than_what_needs_a_look(lines, name, level):
    (line,) = lines(TextFormatter(), Event(name))
    assert line.split()[1:3] == [level, name.value]


AGAIN = [EventName.JOB_CLAIMED, EventName.JOB_ADVANCED, EventName.JOB_SUCCEEDED]


@pytest.mark.parametrize("name", AGAIN)
def test_a_second_try_and_its_success_are_told_at_the_usual_level_and_first_ones_are_not(
    lines, name
):
    first, second = (Event(name, {"attempt": number}) for number in (1, 2))
    (line,) = lines(TextFormatter(), first, second, level=logging.INFO)
    assert line.split()[1:] == ["INFO", name.value, "attempt=2"]


def test_another_try_does_not_make_a_dead_letter_quieter(lines):
    (line,) = lines(TextFormatter(), Event(EventName.JOB_FAILED, {"attempt": 3}))
    assert line.split()[1] == "WARNING"


def test_what_is_below_the_level_is_not_written(lines):
    quiet, loud = Event(EventName.JOB_CLAIMED), Event(EventName.JOB_FAILED)
    assert len(lines(TextFormatter(), quiet, loud, level=logging.WARNING)) == 1


def test_an_exception_is_written_with_its_trace(log, lines):
    for formatter in (TextFormatter(), JsonFormatter()):
        lines(formatter)
        output = log.handlers[0].stream
        try:
            int("odd")
        except ValueError:
            log.exception("a turn failed")
        text = output.getvalue()
        assert "a turn failed" in text
        assert "ValueError: invalid literal" in text
    assert "ValueError: invalid literal" in json.loads(text)["exception"]


@pytest.mark.parametrize(
    ("form", "terminal", "formatter"),
    [
        ("text", False, TextFormatter),
        ("json", True, JsonFormatter),
        ("auto", True, TextFormatter),
        ("auto", False, JsonFormatter),
    ],
)
def test_the_form_is_chosen_or_found_out(log, monkeypatch, form, terminal, formatter):
    screen = io.StringIO()
    screen.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", screen)
    write_logs(form=form, level="warning")
    (handler,) = log.handlers
    assert isinstance(handler.formatter, formatter)
    assert (log.level, log.propagate) == (logging.WARNING, False)
    log_event(Event(EventName.JOB_FAILED, {"job_id": "a"}))
    log_event(Event(EventName.JOB_RETRIED))
    flush_logs()
    assert len(screen.getvalue().splitlines()) == 1


def test_starting_twice_writes_every_line_once(log, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    write_logs(form="text", level="INFO")
    write_logs(form="text", level="INFO")
    log_event(Event(EventName.JOB_FAILED))
    flush_logs()
    assert len(screen.getvalue().splitlines()) == 1


def test_a_level_that_does_not_exist_is_refused(log):
    with pytest.raises(ConfigError, match="log_level is 'chatty'; write DEBUG"):
        write_logs(form="text", level="chatty")


def test_an_event_says_it_all_to_the_formatter_of_a_host(log, caplog):
    log.propagate = True
    with caplog.at_level(logging.DEBUG, logger="perdure"):
        log_event(RETRIED)
        log_event(Event(EventName.STORE_BACK))
    assert [record.getMessage() for record in caplog.records] == [
        "job_retried job_id=job-1 attempt=2 error_code=network delay_ms=1500",
        "store_back",
    ]
    assert caplog.records[0].perdure["attempt"] == 2


def test_a_percent_sign_in_a_field_is_no_place_for_another(lines):
    (line,) = lines(TextFormatter(), Event(EventName.STORE_AWAY, {"reason": "100 %s full"}))
    assert line.endswith("store_away reason=100 %s full")
