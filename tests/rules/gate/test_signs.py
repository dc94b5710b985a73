"""What the end of a call says about its upstream: every kind, with and without a status, by whose code."""

import pytest

from perdure.model.kinds import KINDS, Kind, Sign
from perdure.model.outcomes import Origin
from perdure.model.verdicts import Failure, Handback, Overdue, Pause, Stop, Success
from perdure.rules.gate.signs import WELL, Word, sign_of, word_of

GOOD, BAD, NEITHER = Sign.GOOD, Sign.BAD, Sign.NEITHER

# kind: without an HTTP status, with one
TABLE: dict[Kind, tuple[Sign, Sign]] = {
    Kind.RATE_LIMITED: (NEITHER, NEITHER),
    Kind.QUOTA_WINDOW: (NEITHER, NEITHER),
    Kind.BILLING: (NEITHER, NEITHER),
    Kind.OVERLOADED: (BAD, BAD),
    Kind.UPSTREAM_ERROR: (BAD, BAD),
    Kind.UPSTREAM_UNAVAILABLE: (BAD, BAD),
    Kind.NETWORK: (BAD, BAD),
    Kind.TIMEOUT: (BAD, BAD),
    Kind.AMBIGUOUS: (BAD, BAD),
    Kind.INVALID_OUTPUT: (GOOD, GOOD),
    Kind.TRUNCATED_OUTPUT: (GOOD, GOOD),
    Kind.CONTENT_REFUSED: (GOOD, GOOD),
    Kind.INVALID_REQUEST: (NEITHER, GOOD),
    Kind.TOO_LARGE: (NEITHER, GOOD),
    Kind.AUTH: (NEITHER, NEITHER),
    Kind.CONFIG_MISSING: (NEITHER, NEITHER),
    Kind.INPUT_INVALID: (NEITHER, NEITHER),
    Kind.NOT_FOUND: (NEITHER, GOOD),
    Kind.STORAGE_TRANSIENT: (BAD, BAD),
    Kind.RESOURCE_EXHAUSTED: (NEITHER, NEITHER),
    Kind.WORKER_LOST: (NEITHER, NEITHER),
    Kind.CANCELLED: (NEITHER, NEITHER),
    Kind.INTERNAL: (NEITHER, NEITHER),
    Kind.UNKNOWN: (BAD, BAD),
}


def test_the_table_has_every_kind():
    assert set(TABLE) == set(Kind)


@pytest.mark.parametrize("origin", Origin)
@pytest.mark.parametrize("kind", Kind)
def test_a_failure_says_what_the_table_says_whoever_raised_it_but_for_the_unknown(kind, origin):
    for status, sign in zip((None, 404), TABLE[kind], strict=True):
        failure = Failure(kind, "test", status=status, origin=origin)
        expected = NEITHER if kind is Kind.UNKNOWN and origin is Origin.OWN else sign
        assert sign_of(failure) is expected
        assert word_of(failure) == Word(expected, kind)


@pytest.mark.parametrize("kind", Kind)
def test_a_result_that_cannot_be_stored_was_an_answer(kind):
    assert sign_of(Failure(kind, "test", final=True)) is GOOD


def test_a_success_is_good_and_whoever_snoozed_stopped_or_gave_back_has_said_nothing():
    assert word_of(Success("1")) is WELL
    assert WELL.sign is GOOD
    for verdict in (Pause(1.0, ""), Stop(""), Handback(""), Overdue()):
        assert word_of(verdict) == Word(NEITHER, Kind.CANCELLED)


@pytest.mark.parametrize("kind", Kind)
def test_a_word_refuses_where_the_upstream_asked_for_fewer_calls(kind):
    refuses = kind in (Kind.RATE_LIMITED, Kind.QUOTA_WINDOW)
    assert Word(KINDS[kind].sign, kind).refuses is refuses
    assert not WELL.refuses


@pytest.mark.parametrize("kind", Kind)
def test_a_call_was_admitted_where_it_was_answered_or_went_wrong_after_it_was_taken_on(kind):
    taken_on = TABLE[kind][0] is GOOD or kind in (Kind.UPSTREAM_ERROR, Kind.AMBIGUOUS)
    assert Word(KINDS[kind].sign, kind).admitted is taken_on
    assert Word(GOOD, kind).admitted
    assert WELL.admitted


def test_a_word_has_a_label_for_people():
    assert WELL.label == "success"
    assert Word(BAD, Kind.TIMEOUT).label == "timeout"
