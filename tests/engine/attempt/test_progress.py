"""Progress: the latest word of each job, told at most once a second."""

import threading

from perdure.engine.attempt.context import Progress
from perdure.engine.attempt.progress import ProgressBoard
from perdure.engine.observe import Observers
from perdure.model.events import EventName
from tests.engine.kit import Notes, claim_of


def board() -> tuple[ProgressBoard, Notes]:
    notes = Notes()
    return ProgressBoard(Observers([notes])), notes


def test_the_first_word_is_told_at_once_and_then_the_latest_of_each_second():
    one, notes = board()
    for number in range(40):
        one.note(claim_of(), Progress(number, 40))
        one.once(number / 10)
    told = notes.of(EventName.JOB_PROGRESSED)
    assert [fields["done"] for fields in told] == [0, 10, 20, 30]
    assert told[0] == {
        "job_id": "job-00001",
        "request_id": "req-1",
        "owner": "ann",
        "pipeline": "p",
        "run": None,
        "stage": "one",
        "attempt": 1,
        "done": 0,
        "total": 40,
        "note": None,
    }


def test_what_was_told_is_not_told_again():
    one, notes = board()
    one.note(claim_of(), Progress(1, note="first"))
    for now in range(5):
        one.once(now)
    assert [fields["note"] for fields in notes.of(EventName.JOB_PROGRESSED)] == ["first"]


def test_each_job_has_its_own_word():
    one, notes = board()
    one.note(claim_of(no=1, id="a"), Progress(1))
    one.note(claim_of(no=2, id="b"), Progress(2))
    one.note(claim_of(no=1, id="a"), Progress(3))
    one.once(0)
    told = {fields["job_id"]: fields["done"] for fields in notes.of(EventName.JOB_PROGRESSED)}
    assert told == {"a": 3, "b": 2}


def test_a_job_that_has_ended_says_nothing_more():
    one, notes = board()
    one.note(claim_of(), Progress(1))
    one.drop(claim_of())
    one.drop(claim_of())
    one.once(0)
    assert notes.events == []


def test_words_may_come_while_others_are_told():
    one, notes = board()
    begun, ended = threading.Event(), threading.Event()

    def speak():
        for number in range(5_000):
            one.note(claim_of(no=number % 50, id=str(number % 50)), Progress(number))
            begun.set()
        ended.set()

    speaker = threading.Thread(target=speak)
    speaker.start()
    begun.wait(20)
    now = 0
    while not ended.is_set():
        one.once(now)
        now += 2
    speaker.join()
    one.once(now)
    assert notes.of(EventName.JOB_PROGRESSED)[-1]["done"] >= 4_900
