"""Small sums and sentences of the nouns: counters, deaths, books, shown states, signals."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import fields

from perdure.model.decisions import Counted
from perdure.model.errors import CallerError
from perdure.model.jobs import ZERO, Counters
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.signals import Cancel, Snooze, Succeeded
from perdure.model.states import State
from perdure.model.views import Books, JobView
from perdure.model.workers import Role

NOW = datetime(2026, 1, 1, tzinfo=UTC)

counts = st.builds(
    Counters,
    **{one.name: st.integers(0, 1000) for one in fields(Counters) if one.name != "waited_s"},
    waited_s=st.integers(0, 10_000).map(float),
)


@given(counts, st.sampled_from(Counted), st.integers(0, 1000))
def test_raising_moves_one_counter_by_one_and_the_waited_time_by_what_was_waited(
    before, counted, waited_s
):
    after = before.after_event(counted, waited_s=float(waited_s))
    name = counted.value
    assert getattr(after, name) == getattr(before, name) + 1
    assert after.waited_s == before.waited_s + waited_s
    assert replace(after, **{name: 0}, waited_s=0.0) == replace(before, **{name: 0}, waited_s=0.0)


@given(counts)
def test_what_counts_as_nothing_raises_nothing(before):
    assert before.after_event(None, waited_s=5.0) is before


@given(counts, counts)
def test_sums_are_by_field_and_in_any_order(one, other):
    both = one.plus(other)
    assert both == other.plus(one)
    assert one.plus(ZERO) == one
    assert all(
        getattr(both, field.name) == getattr(one, field.name) + getattr(other, field.name)
        for field in fields(Counters)
    )


@pytest.mark.parametrize(
    ("death", "words"),
    [
        (Death("exited", signal="SIGKILL"), "was killed by SIGKILL"),
        (Death("exited", exit_status=3), "exited with status 3"),
        (Death("exited", exit_status=0), "exited with status 0"),
        (Death("silent"), "went silent"),
    ],
)
def test_a_death_ends_a_sentence(death, words):
    assert death.in_words() == words


def test_each_role_takes_its_own_isolation_level():
    assert [role.isolation for role in Role] == [0, 1, 2, 0]


def test_books_balance_only_when_every_item_is_found():
    books = Books(accepted=21, queued=1, processing=2, succeeded=3, failed=4, cancelled=5, pruned=6)
    assert books.accounted == 21
    assert books.balanced
    assert not replace(books, accepted=22).balanced
    assert not replace(books, pruned=7).balanced


def seen(state: State, *, error_kind: str | None = None, due_in_s: float = 0.0) -> JobView:
    return JobView(
        no=1,
        id="a",
        owner="",
        queue="q",
        pipeline="p",
        stage="s",
        state=state,
        key=None,
        priority=0,
        life=1,
        token=0,
        lane=1,
        isolation=0,
        ready=due_in_s == 0,
        worker=None,
        counters=ZERO,
        past=ZERO,
        failed_reason=None,
        error_kind=error_kind,
        error_message=None,
        label=None,
        payload_json="1",
        input_json="1",
        result_json=None,
        enqueued_at=NOW,
        due_at=NOW + timedelta(seconds=due_in_s),
        claimed_at=None,
        deadline_at=None,
        finished_at=None,
        updated_at=NOW,
        ordered_at=NOW,
        request_id="a",
    )


@pytest.mark.parametrize(
    ("job", "shown"),
    [
        (seen(State.QUEUED), "queued"),
        (seen(State.QUEUED, due_in_s=5), "scheduled"),
        (seen(State.QUEUED, due_in_s=5, error_kind="timeout"), "retrying"),
        (seen(State.PROCESSING, error_kind="timeout"), "processing"),
        (seen(State.SUCCEEDED), "succeeded"),
        (seen(State.FAILED, error_kind="timeout"), "failed"),
        (seen(State.CANCELLED), "cancelled"),
    ],
)
def test_retrying_and_scheduled_are_views_of_queued(job, shown):
    assert job.shown_state == shown


@pytest.mark.parametrize("wait_s", [float("nan"), float("inf"), -1.0, "5", None, True, 10**400])
def test_a_snooze_that_is_no_length_of_time_is_refused_where_it_is_written(wait_s):
    with pytest.raises(CallerError, match=r"Snooze\.wait_s is"):
        Snooze(wait_s)


@pytest.mark.parametrize("signal", [lambda reason: Snooze(1, reason), Cancel])
@pytest.mark.parametrize("reason", [None, 5, b"later"])
def test_a_reason_that_is_no_text_is_refused_where_it_is_written(signal, reason):
    with pytest.raises(CallerError, match="reason is"):
        signal(reason)


@pytest.mark.parametrize(
    "label", ["", " padded ", "two\nlines", "nul\x00", "half \ud800", "x" * 101, 5, b"x"]
)
def test_a_label_that_cannot_be_stored_or_typed_is_refused_where_it_is_written(label):
    with pytest.raises(CallerError, match=r"Succeeded\.label is"):
        Succeeded({"total": 3}, label=label)


def test_signals_keep_what_they_are_given():
    assert Snooze(0).wait_s == 0
    assert Snooze(2.5, "the batch is not ready").reason == "the batch is not ready"
    assert Cancel().reason == ""
    assert Succeeded(1).label is None
    assert Succeeded(None, label="needs_review").label == "needs_review"
