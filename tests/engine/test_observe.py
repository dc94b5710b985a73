"""observe: everybody is told what is durable, and nobody can hurt us."""

import logging
from datetime import timedelta

import pytest

from perdure.engine.observe import Observers, trace_of
from perdure.engine.record import Ending, in_place
from perdure.engine.settle import settle
from perdure.engine.stages import Stage
from perdure.model.errors import StoreBusy
from perdure.model.events import EventName
from perdure.model.jobs import Capture, Counters, Enqueued, Receipt, RecordRefused, Stale
from perdure.model.kinds import KINDS, Kind
from perdure.model.limits import CAUSES_MAX
from perdure.model.nouns import replace
from perdure.model.operations import Deed, Revival, Target
from perdure.model.outcomes import (
    Death,
    Evidence,
    Interrupted,
    Lost,
    Raised,
    Returned,
    Snoozed,
    Unbegun,
    Withdrawn,
)
from perdure.model.states import State
from perdure.observers.log import log_event
from perdure.rules.decide import GateView
from perdure.rules.policy import FAIL, RETRY, Policy
from perdure.rules.vocabulary import CONVERTER
from tests.engine.kit import DONE, Notes, Shop, claim_of, echo, line_on, stage


def record_for(place, outcome, **options):
    line = line_on(place)
    return settle(Ending(claim_of(), outcome, 1.25, 7, **options), line, line.stages[0], chance=0.5)


def receipt_of(record) -> Receipt:
    return Receipt(record.no, record.id, record.token, record.state, None)


def test_an_observer_that_raises_hurts_neither_us_nor_the_others(caplog):
    notes = Notes()

    def broken(_event):
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, logger="perdure"):
        Observers([broken, notes, broken]).tell(EventName.WORKER_STARTED, worker=1)
    assert notes.names() == [EventName.WORKER_STARTED]
    assert notes.events[0].fields == {"worker": 1}
    said = "an observer failed on worker_started: ZeroDivisionError:  at tests.engine.test_observe:"
    assert [record.getMessage().startswith(said) for record in caplog.records] == [True] * 2


def test_what_an_observer_raises_is_told_on_one_line_without_its_secrets():
    class Mute(Exception):
        def __str__(self):
            raise ZeroDivisionError

    def fail() -> None:
        raise ValueError("key sk-live-0123456789abcdef\nbelow") from Mute()

    with pytest.raises(ValueError, match="below") as caught:
        fail()
    line = trace_of(caught.value)
    assert "ValueError: key [secret] below at tests.engine.test_observe:" in line
    assert "Mute:  at " in line.partition("; after ")[2]
    assert "\n" not in line


def test_a_long_chain_of_causes_is_cut():
    error: BaseException = ValueError("first")
    for _ in range(2000):
        before, error = error, ValueError("next")
        error.__cause__ = before
    assert trace_of(error).count("ValueError") == CAUSES_MAX + 1


FAILED = Raised(Evidence(("builtins.ConnectionError",), "secret text"))
NAMES = [
    (Returned("1"), {}, EventName.JOB_ADVANCED),
    (Returned("1"), {"carry_on": True}, EventName.JOB_ADVANCED),
    (FAILED, {}, EventName.JOB_RETRIED),
    (Interrupted(), {}, EventName.JOB_RELEASED),
    (Withdrawn(), {}, EventName.JOB_CANCELLED),
]


@pytest.mark.parametrize(("outcome", "options", "name"), NAMES)
def test_a_settled_record_is_told_under_its_name(place, outcome, options, name):
    notes = Notes()
    record = record_for(place, outcome, **options)
    Observers([notes]).tell_settled(record, receipt_of(record))
    assert notes.names() == [name]


# No code of this vocabulary is the name of a kind.
OWN = Policy(
    "own", attempts_max=3, rules={Kind.INPUT_INVALID: FAIL}, otherwise=RETRY, vocabulary=CONVERTER
)
BAD_GATEWAY = Raised(Evidence(("httpx.HTTPStatusError",), "secret text", status=502))


def told_of(place, outcome, *, before: Counters | None = None, **options):
    """The name and the fields that are told of an attempt that ended so under that policy, in a run."""
    notes, line = Notes(), line_on(place)
    claim = claim_of(counters=before, run=7)
    ending = Ending(claim, outcome, 1.25, 7, policy=OWN, **options)
    record = settle(ending, line, replace(line.stages[0], upstream="vendor"), chance=0.5)
    Observers([notes]).tell_settled(record, receipt_of(record))
    (event,) = notes.events
    assert "secret" not in str(event.fields)
    return event


def test_a_retry_is_told_with_everything_a_reader_of_logs_needs(place):
    event = told_of(place, BAD_GATEWAY)
    assert event.name is EventName.JOB_RETRIED
    assert event.fields == {
        "job_id": "job-00001",
        "request_id": "req-1",
        "owner": "ann",
        "pipeline": "p",
        "run": 7,
        "worker": 7,
        "status": "queued",
        "stage": "one",
        "attempt": 1,
        "failures": 1,
        "attempts_max": 3,
        "duration_ms": 1250.0,
        "age_ms": None,
        "reason": None,
        "error_kind": "upstream_unavailable",
        "error_code": "GW_5XX",
        "raised": "HTTPStatusError",
        "error_message": KINDS[Kind.UPSTREAM_UNAVAILABLE].sentence,
        "upstream": "vendor",
        "upstream_status": 502,
        "gate_state": "flowing",
        "delay_ms": 2000,
        "captures": None,
        "hinted": False,
    }


LIMITED = Raised(
    Evidence(("httpx.HTTPStatusError",), "x", status=429, headers=(("retry-after", "9"),))
)


@pytest.mark.parametrize(
    ("outcome", "delay_ms", "hinted"), [(BAD_GATEWAY, 2000, False), (LIMITED, 9000, True)]
)
def test_a_retry_says_how_long_it_waits_and_whether_the_upstream_asked_for_it(
    place, outcome, delay_ms, hinted
):
    """R109."""
    fields = told_of(place, outcome).fields
    assert (fields["delay_ms"], fields["hinted"]) == (delay_ms, hinted)


def test_a_retry_for_which_its_caller_waits_says_how_long_all_the_same(place):
    notes, retry = Notes(), record_for(place, BAD_GATEWAY)
    record = in_place(retry)
    Observers([notes]).tell_settled(record, receipt_of(record))
    (fields,) = notes.of(EventName.JOB_RETRIED)
    assert (record.delay_s, fields["delay_ms"]) == (0.0, round(retry.delay_s * 1000) or None)
    assert fields["delay_ms"] > 0


@pytest.mark.parametrize("outcome", [FAILED, LIMITED, Lost(Death("silent")), Snoozed(5.0)])
def test_every_retry_says_which_attempt_it_was_of_how_many(place, outcome):
    """R109."""
    event = told_of(place, outcome)
    assert event.name is EventName.JOB_RETRIED
    assert (event.fields["attempt"], event.fields["attempts_max"]) == (1, 3)


def test_a_job_whose_tries_are_used_up_says_so_and_where(place):
    event = told_of(place, BAD_GATEWAY, before=Counters(starts=3, failures=2))
    assert event.name is EventName.JOB_FAILED
    assert event.fields == {
        "job_id": "job-00001",
        "request_id": "req-1",
        "owner": "ann",
        "pipeline": "p",
        "run": 7,
        "worker": 7,
        "status": "failed",
        "stage": "one",
        "attempt": 3,
        "failures": 3,
        "attempts_max": 3,
        "duration_ms": 1250.0,
        "age_ms": None,
        "reason": "exhausted",
        "error_kind": "upstream_unavailable",
        "error_code": "GW_5XX",
        "raised": "HTTPStatusError",
        "error_message": KINDS[Kind.UPSTREAM_UNAVAILABLE].sentence,
        "upstream": "vendor",
        "upstream_status": 502,
        "gate_state": "flowing",
        "delay_ms": None,
        "captures": None,
        "hinted": None,
    }


@pytest.mark.parametrize(
    ("outcome", "before", "reason"),
    [
        (Raised(Evidence(("builtins.MyOwn",), "x", kind=Kind.INPUT_INVALID)), {}, "fatal"),
        (BAD_GATEWAY, {"failures": 2}, "exhausted"),
        (Lost(Death("silent")), {"crashes": 2}, "crashed"),
        (Unbegun(), {}, "expired"),
    ],
)
def test_a_dead_letter_is_told_with_its_reason(place, outcome, before, reason):
    event = told_of(place, outcome, before=Counters(starts=3, **before))
    assert (event.name, event.fields["reason"]) == (EventName.JOB_FAILED, reason)


def test_a_wait_behind_a_held_gate_is_told_with_the_gate_and_counts_no_failure(place):
    class Held:
        def end_call(self, _ending, _verdict):
            return GateView("held")

        def hear_decision(self, _claim, _decision):
            pass

    notes, line = Notes(), line_on(place)
    ending = Ending(claim_of(), BAD_GATEWAY, 1.25, 7, policy=OWN)
    record = settle(ending, line, line.stages[0], chance=0.5, gates=Held())
    Observers([notes]).tell_settled(record, receipt_of(record))
    (fields,) = notes.of(EventName.JOB_RETRIED)
    assert (fields["gate_state"], fields["failures"], fields["upstream_status"]) == ("held", 0, 502)


def test_a_success_has_no_error_and_says_which_try_it_was(place):
    event = told_of(place, Returned("1"), before=Counters(starts=3, failures=2), carry_on=True)
    fields = event.fields
    assert (event.name, fields["attempt"], fields["pipeline"]) == (EventName.JOB_ADVANCED, 3, "p")
    for name in (
        "error_kind",
        "error_code",
        "error_message",
        "upstream_status",
        "gate_state",
        "reason",
    ):
        assert fields[name] is None


def test_a_cancelled_wait_has_no_attempt_to_tell_of(place):
    notes = Notes()
    record = replace(record_for(place, Withdrawn()), attempt=None)
    Observers([notes]).tell_settled(record, receipt_of(record))
    (fields,) = notes.of(EventName.JOB_CANCELLED)
    assert (fields["stage"], fields["attempt"], fields["duration_ms"]) == ("one", None, None)


@pytest.mark.parametrize("answer", [Stale(1, "a", 1), RecordRefused(1, "a", 1, "bad row")])
def test_a_word_that_did_not_count_is_told_as_refused(place, answer):
    notes = Notes()
    Observers([notes]).tell_settled(record_for(place, Returned("1")), answer)
    (fields,) = notes.of(EventName.RESULT_REFUSED)
    assert (fields["request_id"], fields["owner"], fields["worker"]) == ("req-1", "ann", 7)


def test_of_a_stores_words_about_a_row_only_those_are_told_that_do_not_quote_it(place):
    notes, record = Notes(), record_for(place, Returned("1"))
    said = 'a check is violated, password=hunter2\nDETAIL: Failing row contains (1, "canary").'
    Observers([notes]).tell_settled(record, RecordRefused(1, "a", 1, said))
    (fields,) = notes.of(EventName.RESULT_REFUSED)
    assert fields["reason"] == "a check is violated, password=[secret]"


def test_a_claim_is_told():
    notes = Notes()
    Observers([notes]).tell_claimed(claim_of(run=4), 7)
    assert notes.of(EventName.JOB_CLAIMED) == [
        {
            "job_id": "job-00001",
            "request_id": "req-1",
            "owner": "ann",
            "pipeline": "p",
            "run": 4,
            "worker": 7,
            "status": "processing",
            "stage": "one",
            "attempt": 1,
            "token": 1,
        }
    ]


def test_what_people_do_to_a_job_is_told_with_its_request_id():
    notes = Notes()
    observers, target, deed = (
        Observers([notes]),
        Target(1, "a", 1, "req-1", "eve"),
        Deed("ann", "why"),
    )
    observers.tell_discarded(target, deed)
    observers.tell_brought_forward(target, deed)
    revival = Revival(1, "a", 1, "one", 1, None, request_id="req-1", owner="eve")
    observers.tell_revived(revival, deed)
    assert notes.names() == [
        EventName.JOB_DISCARDED,
        EventName.JOB_BROUGHT_FORWARD,
        EventName.JOB_REVIVED,
    ]
    for event in notes.events:
        assert (event.fields["request_id"], event.fields["by_whom"]) == ("req-1", "ann")
        assert event.fields["owner"] == "eve"


def test_a_batch_is_told_by_its_new_jobs_alone():
    notes = Notes()
    observers = Observers([notes])
    done = [Enqueued("a", 1, created=False), Enqueued("b", 2, created=True)]
    observers.tell_enqueued("p", done)
    observers.tell_enqueued("p", done[:1])
    observers.tell_enqueued("p", [])
    observers.tell_enqueued("p", done, request_id="req-7", owner="ann", run=4)
    assert notes.of(EventName.JOB_ENQUEUED) == [
        {"job_id": "b", "pipeline": "p", "count": 1} | own
        for own in (
            {"request_id": "b", "owner": None, "run": None},
            {"request_id": "req-7", "owner": "ann", "run": 4},
        )
    ]


def test_a_store_that_is_away_is_told_once_each_time():
    notes = Notes()
    observers = Observers([notes])
    for _ in range(2):
        observers.store_answers()
        observers.store_is_away(StoreBusy("held"))
        observers.store_is_away(StoreBusy("held"))
        observers.store_answers()
    assert notes.names() == [EventName.STORE_AWAY, EventName.STORE_BACK] * 2


def test_every_end_of_an_attempt_has_a_name(place):
    assert {record_for(place, outcome).state for outcome, _, _ in NAMES} == {
        State.QUEUED,
        State.CANCELLED,
    }


@pytest.fixture
def shop():
    """A pump with one slot, on a pipeline of one stage that is tried twice."""
    shop = Shop(stage("one", policy=replace(OWN, attempts_max=2)), concurrency=1)
    yield shop
    shop.close()


def shown(shop, log) -> list[str]:
    """What the log says at its usual level of all that was told since, in the words that count here."""
    log.clear()
    with log.at_level(logging.INFO, logger="perdure"):
        for event in shop.notes.events:
            log_event(event)
    shop.notes.events.clear()
    words = ("attempt", "failures", "attempts_max", "reason")
    return [
        " ".join(
            [
                one.perdure_event,
                *(f"{name}={one.perdure[name]}" for name in words if name in one.perdure),
            ]
        )
        for one in log.records
    ]


def ended(shop, outcome) -> None:
    shop.clock.push(60)
    shop.pump.once()
    shop.finish_all(outcome)
    shop.pump.once()


def test_first_tries_retries_the_last_one_and_a_retry_that_succeeds_are_told_apart(shop, caplog):
    shop.place.put()
    ended(shop, DONE)
    assert shown(shop, caplog) == []
    shop.place.put()
    ended(shop, BAD_GATEWAY)
    assert shown(shop, caplog) == ["job_retried attempt=1 failures=1 attempts_max=2"]
    ended(shop, DONE)
    assert shown(shop, caplog) == ["job_claimed attempt=2", "job_succeeded attempt=2 failures=1"]
    shop.place.put()
    for _ in range(2):
        ended(shop, BAD_GATEWAY)
    assert shown(shop, caplog)[1:] == [
        "job_claimed attempt=2",
        "job_failed attempt=2 failures=2 attempts_max=2 reason=exhausted",
    ]


def test_a_success_says_how_long_it_took_since_it_stood_in_line_and_whom_it_called(place):
    """Waits and earlier attempts included; what was put aside is counted, and not shown."""
    notes, line = Notes(), line_on(place, Stage("one", echo, OWN, 20.0, upstream="model"))
    claim = claim_of()
    claim = replace(claim, ordered_at=claim.claimed_at - timedelta(seconds=60))
    kept = (Capture("c", "output", "text/plain", b"raw words", 9, None),)
    ending = Ending(claim, Returned("1"), 1.25, 7, captures=kept)
    record = settle(ending, line, line.stages[0], chance=0.5)
    Observers([notes]).tell_settled(record, receipt_of(record))
    (fields,) = notes.of(EventName.JOB_SUCCEEDED)
    assert (fields["age_ms"], fields["upstream"], fields["captures"]) == (61_250, "model", 1)
    assert "raw words" not in str(fields)


def test_a_call_that_never_began_called_nobody(place):
    notes, line = Notes(), line_on(place, Stage("one", echo, OWN, 20.0, upstream="model"))
    record = settle(Ending(claim_of(), Unbegun(), 0.0, 7), line, line.stages[0], chance=0.5)
    Observers([notes]).tell_settled(record, receipt_of(record))
    (fields,) = notes.of(EventName.JOB_FAILED)
    assert fields["upstream"] is None


def test_whoever_wants_to_hears_how_long_each_turn_took(shop):
    heard: list[float] = []
    shop.observers.add(Notes(), turns=heard.append)
    shop.place.put()
    shop.pump.once(told=True)
    shop.finish_all()
    shop.pump.once()
    assert len(heard) == len(shop.store.turns) == 2
    assert all(one >= 0 for one in heard)
