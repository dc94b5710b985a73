"""An event loop that is asked whether it turns."""

from perdure.engine.worker.stage_runner import LoopWatch


class Asked:
    """What a loop was asked to call."""

    def __init__(self) -> None:
        self.calls = []
        self.pulse = LoopWatch(self.calls.append, every_s=1.0, blocked_s=5.0)

    def look_until(self, first: int, last: int) -> None:
        for second in range(first, last + 1):
            self.pulse.look(float(second))


def test_a_loop_that_answers_is_asked_again_every_second():
    asked = Asked()
    for second in range(10):
        asked.pulse.look(second + 0.0)
        asked.calls[-1]()
        asked.pulse.look(second + 0.5)
    assert len(asked.calls) == 10
    assert not asked.pulse.blocked


def test_one_that_is_silent_for_long_enough_is_blocked_until_it_answers():
    asked = Asked()
    asked.look_until(0, 4)
    assert not asked.pulse.blocked
    asked.look_until(5, 9)
    assert asked.pulse.blocked
    assert len(asked.calls) == 1
    asked.calls[0]()
    asked.look_until(10, 10)
    assert not asked.pulse.blocked
    assert len(asked.calls) == 2


def test_who_did_not_look_for_long_does_not_blame_the_loop():
    """The whole process was stopped, or the one who looks was held up by the store."""
    asked = Asked()
    asked.look_until(0, 1)
    asked.pulse.look(1000.0)
    assert not asked.pulse.blocked
    asked.look_until(1001, 1003)
    assert asked.pulse.blocked
