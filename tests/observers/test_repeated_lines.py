"""Repeats: lines that say the same of one job after the other are summed up, for people."""

import logging

from perdure.model.events import Event, EventName
from perdure.observers.event_lines import TextFormatter, level_of, log_record_of
from perdure.observers.repeated_lines import Repeats

FAILED = {
    "pipeline": "invoices",
    "stage": "ask",
    "error_code": "GW_5XX",
    "reason": "exhausted",
    "attempt": 3,
}


def failed(job: int, **changes: object) -> logging.LogRecord:
    event = Event(EventName.JOB_FAILED, {"job_id": f"job-{job}"} | FAILED | changes)
    return log_record_of(event, level_of(event))


def plain(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("perdure", logging.ERROR, "", 0, text, values, None)


def repeats() -> Repeats:
    return Repeats(TextFormatter().format)


def words(lines: list[str]) -> list[str]:
    """Lines without their times."""
    return [line.partition(" ")[2] for line in lines]


def test_the_first_lines_of_a_second_are_whole_and_the_rest_is_one_line_with_their_number():
    told = repeats()
    lines = [line for job in range(5_000) for line in told.lines_of(failed(job), now_s=job / 9_999)]
    assert [line.partition("job_id=")[2].partition(" ")[0] for line in lines] == [
        "job-0",
        "job-1",
        "job-2",
    ]
    assert told.lines_due(0.999) == []
    assert told.next_s == 1.0
    (total,) = words(told.lines_due(1.0))
    assert total == (
        "WARNING … and 4,997 more like it in the last second: job_failed pipeline=invoices stage=ask "
        "reason=exhausted error_code=GW_5XX; the last is job-4999"
    )
    assert (told.lines_due(9.0), told.next_s) == ([], None)


def test_a_second_later_the_next_one_is_whole_again_and_comes_after_the_sum():
    told = repeats()
    for job in range(5):
        told.lines_of(failed(job), now_s=0.0)
    total, whole = told.lines_of(failed(5), now_s=1.5)
    assert "… and 2 more like it" in total
    assert "job_id=job-5 " in whole


def test_what_differs_in_its_cause_is_another_kind_and_what_differs_in_its_job_is_not():
    told = repeats()
    for job in range(3):
        told.lines_of(failed(job, attempt=job, owner=f"o-{job}", run=job, duration_ms=job), 0.0)
    assert told.lines_of(failed(9, attempt=9, owner="x", error_message="other"), 0.0) == []
    for change in (
        {"error_code": "GW_TIMEOUT"},
        {"stage": "tell"},
        {"pipeline": "orders"},
        {"reason": "fatal"},
        {"upstream": "vendor"},
        {"upstream_status": 502},
        {"gate_state": "held"},
        {"raised": "KeyError at mine:7"},
    ):
        assert len(told.lines_of(failed(10, **change), 0.0)) == 1, change


def test_a_retry_is_no_failure_and_a_second_try_no_first_one():
    told = repeats()
    for name, attempt in (
        (EventName.JOB_FAILED, 1),
        (EventName.JOB_RETRIED, 1),
        (EventName.JOB_CLAIMED, 1),
        (EventName.JOB_CLAIMED, 2),
    ):
        for job in range(3):
            event = Event(name, {"job_id": f"job-{job}", "attempt": attempt})
            assert len(told.lines_of(log_record_of(event, level_of(event)), 0.0)) == 1


def test_what_is_not_about_a_job_is_never_summed_up():
    told, event = repeats(), Event(EventName.WORKER_LOST, {"worker": 1, "why": "silent"})
    lines = [line for _ in range(50) for line in told.lines_of(log_record_of(event, 30), 0.0)]
    assert len(lines) == 50
    assert told.lines_left() == []


def test_plain_words_are_summed_up_whatever_their_values():
    told = repeats()
    lines = [told.lines_of(plain("an observer failed on %s", one), 0.0) for one in range(7)]
    assert sum(map(len, lines)) == 3
    assert words(told.lines_left()) == [
        "ERROR   … and 4 more like it in the last second: an observer failed on 6"
    ]


def test_what_is_left_is_told_at_the_end():
    told = repeats()
    for job in range(9):
        told.lines_of(failed(job), now_s=0.0)
    assert "… and 6 more" in told.lines_left()[0]
    assert told.lines_left() == []
