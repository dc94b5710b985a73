"""The context: what a stage may say, and what is refused where it is said."""

import threading

import pytest

from perdure.engine.attempt.context import AttemptNotes, Context, Progress
from perdure.model.errors import CallerError
from perdure.model.limits import NOTE_CHARS_MAX
from perdure.model.outcomes import Usage
from perdure.testing import VirtualClock


def context(notes: AttemptNotes | None = None) -> Context:
    return Context(
        "j", "p", "s", "ann", None, 1, 2, 3, "k", None, "r", "a", notes or AttemptNotes()
    )


def test_a_context_that_a_test_has_made_by_hand_works_by_itself():
    made = Context("j", "p", "s", "ann", None, 1, 2, 3, "k", None)
    made.progress(1, 2)
    made.usage(tokens_in=1)
    assert (made.cancelled, made.time_left_s()) == (False, float("inf"))
    assert made == Context("j", "p", "s", "ann", None, 1, 2, 3, "k", None)


def test_the_latest_progress_is_kept_and_every_word_is_heard():
    heard = []
    notes = AttemptNotes(tell=heard.append)
    one = context(notes)
    one.progress(1)
    one.progress(2.5, 10, "a quarter\nof it")
    assert notes.progress == Progress(2.5, 10, "a quarter of it")
    assert heard == [Progress(1), notes.progress]


def test_a_note_is_one_bounded_line():
    notes = AttemptNotes()
    context(notes).progress(0, note="word " * 1000)
    assert len(notes.progress.note) <= NOTE_CHARS_MAX


def test_usage_adds_up_from_many_threads():
    notes = AttemptNotes()

    def use():
        for _ in range(500):
            context(notes).usage(tokens_in=1, tokens_out=2, cost_usd=0.5)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert notes.usage == Usage(2000, 4000, 1000.0)


def test_time_runs_out_and_then_stays_at_nothing():
    clock, notes = VirtualClock(), AttemptNotes()
    notes.begin(5.0, clock.monotonic)
    clock.push(2)
    assert context(notes).time_left_s() == pytest.approx(3.0)
    clock.push(60)
    assert context(notes).time_left_s() == 0.0


def test_after_the_end_nothing_counts():
    heard = []
    notes = AttemptNotes(tell=heard.append)
    one = context(notes)
    one.usage(tokens_in=1)
    notes.end()
    one.usage(tokens_in=1)
    one.progress(1)
    assert one.cancelled
    assert (notes.usage, notes.progress, len(heard)) == (Usage(1), None, 1)


WRONG = [
    ("progress", {"done": -1}), ("progress", {"done": None}), ("progress", {"done": True}),
    ("progress", {"done": float("nan")}), ("progress", {"done": 1, "total": "x"}),
    ("progress", {"done": 1, "note": 5}), ("usage", {"tokens_in": -1}),
    ("usage", {"tokens_in": 1.5}), ("usage", {"tokens_out": "many"}), ("usage", {"cost_usd": -0.1}),
    ("usage", {"cost_usd": float("inf")}), ("usage", {"cost_usd": None}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "said"), WRONG, ids=str)
def test_a_word_that_makes_no_sense_is_refused_by_its_name(what, said):
    notes = AttemptNotes()
    with pytest.raises(CallerError) as caught:
        getattr(context(notes), what)(**said)
    assert what in str(caught.value)
    assert list(said)[-1] in str(caught.value)
    assert (notes.usage, notes.progress) == (None, None)


def test_of_headers_only_what_says_something_of_limits_is_kept():
    notes = AttemptNotes()
    context(notes).limits(
        {"X-RateLimit-Remaining": 5, "Authorization": "Bearer secret", "Date": "x"}
    )
    assert notes.told == {"x-ratelimit-remaining": "5"}
    context(notes).limits({"Date": "y"})
    assert notes.told == {"x-ratelimit-remaining": "5"}
    context(notes).limits({"x-ratelimit-limit": "7"})  # of several answers, the last one
    assert notes.told == {"x-ratelimit-limit": "7"}


def test_headers_are_bounded_and_none_are_heard_after_the_end():
    notes = AttemptNotes()
    context(notes).limits({f"x-ratelimit-{n}": "9" * 10_000 for n in range(1_000)})
    assert len(notes.told) == 32
    assert {len(value) for value in notes.told.values()} == {200}
    notes.end()
    context(notes).limits({"x-ratelimit-limit": "7"})
    assert len(notes.told) == 32


@pytest.mark.parametrize("headers", [None, "x-ratelimit-limit: 7", [("x-ratelimit-limit", "7")]])
def test_headers_that_are_no_mapping_are_refused(headers):
    with pytest.raises(CallerError, match="pass a mapping"):
        context().limits(headers)
