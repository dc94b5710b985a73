"""The loop: a bad turn is told and tried again; only an order or a death ends it."""

import logging
import socket
import threading

import pytest

from perdure.engine.observe import Observers
from perdure.engine.worker.loop import Loop
from perdure.model.errors import StoreDamaged, StoreUnavailable, WorkerDead
from perdure.model.events import EventName
from tests.engine.kit import Notes, until


class Turns:
    """A step that does what the test says, turn by turn, and then rests."""

    def __init__(self, *turns):
        self._turns = list(turns)
        self.count = 0
        self.last: list[Exception | None] = []
        self.ended = threading.Event()
        self.notes = Notes()
        self.hint = lambda: False
        self.ask = lambda: None
        self.rest_s = 60.0
        self.wake_fd = lambda: None
        self.loop = Loop(
            self.step,
            changed=self.has_changed,
            answers=self.asked,
            wake_fd=self.ask_wake_fd,
            tick_s=0.001,
            ended=self.end,
            observers=Observers([self.notes]),
        )

    def step(self) -> float:
        self.count += 1
        turn = self._turns.pop(0) if self._turns else self.rest_s
        if isinstance(turn, Exception):
            raise turn
        return turn

    def has_changed(self) -> bool:
        return self.hint()

    def asked(self) -> None:
        self.ask()

    def ask_wake_fd(self) -> int | None:
        return self.wake_fd()

    def end(self, last: Exception | None) -> None:
        self.last.append(last)
        self.ended.set()


@pytest.fixture
def turning():
    """Start loops; stop them all at the end."""
    started: list[Turns] = []

    def start(*turns, **options) -> Turns:
        made = Turns(*turns)
        made.loop._tick_s = options.pop("tick_s", 0.001)
        for name, value in options.items():
            setattr(made, name, value)
        made.loop.start()
        started.append(made)
        return made

    yield start
    for made in started:
        made.loop.stop()
        made.ended.wait(20)


def test_a_step_that_has_more_to_do_is_called_again_at_once(turning):
    turns = turning(0.0, 0.0, 0.0)
    until(lambda: turns.count == 4, "four turns")


def test_a_resting_loop_can_be_woken(turning):
    turns = turning()
    until(lambda: turns.count == 1, "the first turn")
    turns.loop.wake()
    until(lambda: turns.count == 2, "the second turn")


def test_a_resting_loop_notices_a_change(turning):
    hints = iter([False] * 5 + [True])
    turns = turning(hint=lambda: next(hints, False))
    until(lambda: turns.count == 2, "the turn after the change")


def test_a_resting_loop_goes_on_when_the_time_is_over(turning):
    turns = turning(0.005)
    until(lambda: turns.count == 2, "the turn after the rest")


def test_a_step_that_raises_does_not_end_the_loop(turning, caplog):
    with caplog.at_level(logging.ERROR, logger="perdure"):
        turns = turning(ValueError("odd"), KeyError("odd"))
        until(lambda: turns.count == 3, "the turn after two bad ones")
    assert not turns.ended.is_set()
    said = [record.getMessage().split(": ") for record in caplog.records]
    assert [words[:2] for words in said] == [
        ["a turn failed; it will be tried again", kind] for kind in ("ValueError", "KeyError")
    ]


def test_a_store_that_is_away_is_told_once_and_so_is_its_return(turning):
    turns = turning(*(StoreUnavailable("gone") for _ in range(3)), 0.0)
    until(lambda: turns.count == 5, "the turns after the store was away")
    assert turns.notes.names() == [EventName.STORE_AWAY, EventName.STORE_BACK]
    assert turns.notes.events[0].fields == {"reason": "gone"}


def test_the_return_of_a_store_is_told_only_when_it_has_answered(turning):
    """Turns that ask it nothing pass meanwhile, and a look for changes need not reach it."""
    answers = iter([StoreUnavailable("still gone")] * 3)

    def ask() -> None:
        error = next(answers, None)
        if error is not None:
            raise error

    turns = turning(StoreUnavailable("gone"), *[0.0] * 4, ask=ask)
    until(lambda: turns.count == 6, "the turns after the outage")
    assert turns.notes.names() == [EventName.STORE_AWAY, EventName.STORE_BACK]


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("gone"),
        StoreDamaged("a page is broken"),
    ],
)
def test_looking_for_a_change_in_a_store_that_fails_does_not_end_the_loop(turning, error):
    looked = threading.Event()

    def failing() -> bool:
        looked.set()
        raise error

    turns = turning(hint=failing)
    assert looked.wait(20)
    turns.loop.wake()
    until(lambda: turns.count == 2, "the second turn", within_s=20)
    assert not turns.ended.is_set()


def test_a_worker_that_is_dead_ends_the_loop_with_the_reason(turning):
    dead = WorkerDead("worker 7 was declared dead")
    turns = turning(0.0, dead, 0.0)
    assert turns.ended.wait(20)
    assert turns.last == [dead]
    assert turns.count == 2


def test_told_to_stop_the_loop_ends_without_a_reason(turning):
    turns = turning()
    until(lambda: turns.count == 1, "the first turn")
    turns.loop.stop()
    assert turns.ended.wait(20)
    assert turns.last == [None]


def test_a_loop_with_a_wake_fd_looks_only_when_that_has_something(turning):
    ear, mouth = socket.socketpair()
    looks = []

    def hint() -> bool:
        looks.append(ear.recv(16))
        return True

    turns = turning(hint=hint, wake_fd=ear.fileno)
    until(lambda: turns.count == 1, "the first turn")
    mouth.send(b"!")
    until(lambda: turns.count == 2, "the turn after the word")
    assert looks == [b"!"]  # with ticks of a millisecond there would be many
    turns.loop.stop()
    assert turns.ended.wait(20)
    ear.close()
    mouth.close()


def test_a_word_before_the_rest_ends_the_rest(turning):
    turns = turning()
    turns.loop.wake()
    until(lambda: turns.count >= 2, "a turn after the word")


def test_a_wake_fd_that_speaks_without_news_keeps_nobody_from_resting(turning):
    """Something can be read there for ever, and nobody reads it; waiting there again would be no rest."""
    ear, mouth = socket.socketpair()
    mouth.send(b"!")
    looks = []

    def hint() -> bool:
        looks.append(1)
        return False

    turns = turning(hint=hint, wake_fd=ear.fileno, tick_s=60.0)
    for rests in (1, 2, 3):
        until(lambda rests=rests: len(looks) == rests, "a look")
        turns.loop.wake()
        until(lambda rests=rests: turns.count == rests + 1, "the turn after the rest")
    assert len(looks) <= 4
    turns.loop.stop()
    assert turns.ended.wait(20)
    ear.close()
    mouth.close()
