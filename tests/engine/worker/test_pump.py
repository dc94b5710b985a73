"""The pump: what a turn carries, what a broken line costs, and that slots are never exceeded."""

import json
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from perdure.engine.worker.pump import Finished, Pump
from perdure.model.errors import BugError, StoreError, StoreFull, StoreUnavailable, WorkerDead
from perdure.model.events import EventName
from perdure.model.filters import JobFilter
from perdure.model.jobs import ClaimOrder, Counters
from perdure.model.nouns import replace
from perdure.model.outcomes import (
    Death,
    Evidence,
    Interrupted,
    Lost,
    Raised,
    Returned,
    Snoozed,
    Usage,
    Withdrawn,
)
from perdure.model.states import State
from perdure.rules.backoff import Jitter
from tests.engine.kit import DONE, Shop, stage
from tests.stores.kit import cancellation, crash, release

FAILED = Raised(Evidence(("builtins.ConnectionError",), "reset"))

OPEN = JobFilter(states=(State.QUEUED, State.PROCESSING))


@pytest.fixture
def single():
    """A pump with one slot, on a pipeline of one stage."""
    shop = Shop(stage("one"), concurrency=1)
    yield shop
    shop.close()


# -- turns -------------------------------------------------------------------------------


def test_a_turn_fills_the_free_slots_and_asks_to_go_on_at_once(shop):
    shop.place.put_many(6)
    assert shop.pump.once() == 0.0
    assert len(shop.running) == 4
    assert shop.pump.once() is None
    assert len(shop.running) == 4


def test_with_nothing_to_do_a_turn_only_reads(shop):
    assert shop.pump.once() is None
    assert shop.store.turns == []
    assert shop.pump.empty


def test_a_turn_says_when_the_next_job_falls_due(shop):
    shop.place.put(run_at=shop.clock.now() + timedelta(seconds=30))
    assert shop.pump.once() == 30.0
    shop.place.put()
    assert shop.pump.once() == 30.0
    assert len(shop.running) == 1


def test_who_is_told_claims_at_once_and_who_always_comes_too_late_looks_first(shop):
    """Many hear of one job, and a look costs the store a fraction of a claim that finds nothing."""
    shop.place.put()
    shop.pump.once(told=True)
    assert len(shop.running) == len(shop.store.turns) == 1
    for _ in range(10):  # it was another's
        shop.pump.once(told=True)
    assert len(shop.store.turns) == 4
    shop.place.put()
    shop.pump.once(told=True)  # it is there, as a look shows
    assert (len(shop.running), len(shop.store.turns)) == (2, 5)
    shop.pump.once(told=True)  # and after that there is no look again
    assert len(shop.store.turns) == 6


def test_finished_work_and_new_claims_travel_in_one_turn(shop):
    shop.place.put_many(8)
    shop.pump.once()
    shop.finish_all(Withdrawn())
    shop.store.turns.clear()
    shop.pump.once()
    ((records, order),) = shop.store.turns
    assert len(records) == 4
    assert order.slots == 4
    assert shop.place.reader.books().cancelled == 4
    assert len(shop.running) == 4


def test_an_item_walks_through_all_its_stages(shop):
    id = shop.place.put().id
    shop.pump.once()
    shop.finish_all(Returned("[1]"))
    shop.pump.once()
    (second,) = shop.running.values()
    assert (second.stage, second.input_json, second.token) == ("two", "[1]", 3)
    shop.finish_all(Returned('"end"'))
    shop.pump.once()
    job = shop.place.see(id)
    assert (job.state, job.result_json) == (State.SUCCEEDED, '"end"')
    assert shop.pump.empty
    shop.place.clean()


def test_a_failure_waits_in_the_store_and_not_in_a_slot(single):
    single.place.put()
    single.pump.once()
    single.finish_all(FAILED)
    assert single.pump.once() == 10.0
    assert single.pump.empty
    single.clock.push(10)
    assert single.pump.once() == 0.0
    assert [claim.counters for claim in single.running.values()] == [Counters(starts=2, failures=1)]
    single.place.clean()


def test_what_is_told_has_become_durable(shop):
    id = shop.place.put().id
    shop.pump.once()
    shop.finish_all()
    shop.store.breaks = ["before"]
    with pytest.raises(StoreUnavailable):
        shop.pump.once()
    assert shop.notes.names() == [EventName.JOB_CLAIMED]
    shop.pump.once()
    assert shop.notes.names()[1:] == [EventName.JOB_ADVANCED, EventName.JOB_CLAIMED]
    assert shop.notes.events[1].fields["job_id"] == id


def test_a_pump_of_suspects_claims_only_suspects():
    shop = Shop(isolation=1)
    shop.place.put_many(2)
    first, second = shop.place.take(shop.worker, 2)
    shop.place.settle(crash(first, shop.worker), release(second, shop.worker), by=shop.worker)
    shop.pump.once()
    assert [claim.id for claim in shop.running.values()] == [first.id]
    shop.close()


# -- slots -------------------------------------------------------------------------------


def test_a_carried_on_job_keeps_its_slot(shop):
    shop.place.put_many(20)
    for _ in range(60):
        shop.pump.once()
        assert len(shop.running) <= 4
        assert len(shop.place.store.tokens_held(shop.worker)) <= 4
        shop.finish_all()
        if shop.place.reader.books().succeeded == 20:
            break
    assert shop.place.reader.books().succeeded == 20
    assert shop.most == 4
    shop.place.clean()


def test_threads_that_were_given_up_take_their_slots_with_them():
    shop = Shop()
    shop.slots_unusable = 3
    shop.place.put_many(8)
    shop.pump.once()
    assert len(shop.running) == 1
    shop.slots_unusable = 9
    shop.pump.once()
    assert len(shop.running) == 1
    shop.slots_unusable = 0
    shop.pump.once()
    assert len(shop.running) == 4
    shop.close()


outcomes = st.sampled_from([DONE, FAILED, Snoozed(5.0), Withdrawn(), Interrupted()])
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "finish", "turn", "push", "break before", "break after", "drain"]),
        st.integers(0, 5),
        outcomes,
    ),
    max_size=40,
)


def played(script, concurrency: int) -> Shop:
    """A pump through any sequence of arrivals, endings, pauses and broken lines."""
    shop = Shop(concurrency=concurrency)
    for what, number, outcome in script:
        if what == "put":
            shop.place.put_many(number)
        elif what == "push":
            shop.clock.push(number * 3.0)
        elif what.startswith("break"):
            shop.store.breaks.append(what.removeprefix("break "))
        elif what == "drain":
            shop.pump._draining = number == 0
        elif what == "finish":
            for claim in list(shop.running.values())[:number]:
                shop.finish(claim, outcome)
        else:
            with suppress(StoreUnavailable):
                shop.pump.once()
        held = shop.place.store.tokens_held(shop.worker)
        assert len(held) <= concurrency
        assert len(shop.running) <= concurrency
    return shop


def brought_home(shop: Shop) -> None:
    """Everything that was put in comes to its end, once the line holds."""
    shop.store.breaks.clear()
    shop.pump._draining = False
    for _ in range(400):
        shop.pump.once()
        shop.finish_all()
        shop.clock.push(5)
        if shop.pump.empty and not shop.place.reader.jobs(OPEN):
            break
    books = shop.place.reader.books()
    assert (books.queued, books.processing) == (0, 0)
    shop.place.clean()


@settings(max_examples=60)
@given(steps, st.integers(1, 4))
def test_no_sequence_of_events_exceeds_the_slots_or_loses_a_job(script, concurrency):
    shop = played(script, concurrency)
    brought_home(shop)
    shop.close()


CARRIED_ON = [("put", 5, DONE), ("turn", 0, DONE), ("finish", 1, DONE), ("turn", 0, DONE)]
NEWS_LOST = [("put", 5, DONE), ("break after", 0, DONE), ("turn", 0, DONE), ("turn", 0, DONE)]


def test_a_pump_that_forgets_carried_on_jobs_would_be_caught(monkeypatch):
    def greedy(pump):
        free = pump._identity.concurrency - len(pump._in_hand) + len(pump._unsent)
        lanes = pump._catalogue.lane_nos()
        return ClaimOrder(pump._identity.worker, free, lanes) if free else None

    played(CARRIED_ON, 1).close()
    monkeypatch.setattr(Pump, "_order", greedy)
    with pytest.raises(AssertionError):
        played(CARRIED_ON, 1)


def test_a_pump_that_forgets_an_unknown_commit_would_be_caught(monkeypatch):
    def careless(pump):
        pump._unsure = False

    shop = played(NEWS_LOST, 2)
    brought_home(shop)
    shop.close()
    monkeypatch.setattr(Pump, "_catch_up", careless)
    with pytest.raises(AssertionError):
        brought_home(played(NEWS_LOST, 2))


# -- broken lines ------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["before", "after"])
def test_after_an_unknown_commit_the_same_records_are_sent_again_alone(shop, fault):
    shop.place.put_many(4)
    shop.pump.once()
    shop.finish_all(FAILED)
    shop.store.breaks = [fault]
    shop.store.turns.clear()
    with pytest.raises(StoreUnavailable):
        shop.pump.once()
    assert not shop.pump.empty
    assert shop.pump.once() == 0.0
    (first, order), (second, none) = shop.store.turns
    assert first == second
    assert order is not None
    assert none is None
    assert [job.counters.failures for job in shop.place.reader.jobs()] == [1] * 4
    assert shop.pump.empty
    shop.place.clean()


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_carry_on_whose_answer_was_lost_is_taken_up_once(shop, fault):
    shop.place.put()
    shop.pump.once()
    shop.finish_all()
    shop.store.breaks = [fault]
    with pytest.raises(StoreUnavailable):
        shop.pump.once()
    shop.pump.once()
    assert [(claim.stage, claim.token) for claim in shop.started] == [("one", 1), ("two", 3)]
    shop.finish_all()
    shop.pump.once()
    assert shop.place.reader.books().succeeded == 1
    shop.place.clean()


def test_claims_whose_news_was_lost_are_taken_up(shop):
    shop.place.put_many(3)
    shop.store.breaks = ["after"]
    with pytest.raises(StoreUnavailable):
        shop.pump.once()
    assert shop.running == {}
    assert len(shop.place.store.tokens_held(shop.worker)) == 3
    assert not shop.pump.empty
    assert shop.pump.once() == 0.0
    assert len(shop.running) == 3
    shop.finish_all(Withdrawn())
    shop.pump.once()
    shop.place.clean()


def test_while_unsure_the_pump_claims_nothing(shop):
    shop.place.put_many(4)
    shop.store.breaks = ["after", "before", "after", "before"]
    for _ in range(4):
        with pytest.raises(StoreUnavailable):
            shop.pump.once()
    assert [order is None for _, order in shop.store.turns] == [False, True, True, True]
    shop.pump.once()
    assert len(shop.running) == 4


def test_work_that_finishes_while_the_store_is_away_is_kept(shop):
    shop.place.put_many(2)
    shop.pump.once()
    first, second = list(shop.running.values())
    shop.store.breaks = ["before", "before"]
    shop.finish(first, Withdrawn())
    with pytest.raises(StoreUnavailable):
        shop.pump.once()
    shop.finish(second, Withdrawn())
    with pytest.raises(StoreUnavailable):
        shop.pump.once()
    shop.pump.once()
    assert shop.place.reader.books().cancelled == 2


def test_a_full_store_is_an_unknown_commit_too(shop):
    class Full:
        def __getattr__(self, name):
            raise StoreFull("no room")

    shop.place.put()
    shop.pump.once()
    shop.finish_all(Withdrawn())
    real, shop.pump._store = shop.pump._store, Full()
    with pytest.raises(StoreError):
        shop.pump.once()
    shop.pump._store = real
    shop.pump.once()
    assert shop.place.reader.books().cancelled == 1


def test_a_worker_that_was_declared_dead_stops_at_once(shop):
    shop.place.put()
    shop.pump.once()
    shop.place.store.end_worker(shop.worker, Death("silent"))
    shop.finish_all()
    with pytest.raises(WorkerDead):
        shop.pump.once()


# -- refusals ----------------------------------------------------------------------------


def test_a_result_that_the_store_refuses_ends_its_job(single):
    id = single.place.put().id
    single.pump.once()
    single.finish_all(Returned('"fine"', "half \ud800"))
    single.pump.once()
    single.pump.once()
    job = single.place.see(id)
    assert (job.state, job.error_kind, job.counters.failures) == (State.FAILED, "internal", 1)
    (attempt,) = single.place.reader.attempts(job.no)
    assert attempt.kind == "internal"
    assert "the store cannot write the result" in attempt.message
    assert "surrogates" in attempt.message
    assert single.pump.empty
    single.place.clean()


def test_what_an_attempt_has_used_up_is_stored_with_the_decision(shop):
    shop.place.put_many(2)
    shop.pump.once()
    plain, paid = list(shop.running.values())
    shop.finished.append(Finished(plain, FAILED, 0.5))
    shop.finished.append(Finished(paid, FAILED, 0.5, Usage(3, 4, 0.25)))
    shop.pump.once()
    (first,) = shop.place.reader.attempts(plain.no)
    (second,) = shop.place.reader.attempts(paid.no)
    assert "usage" not in json.loads(first.why_json)
    why = json.loads(second.why_json)
    assert why["usage"] == {"tokens_in": 3, "tokens_out": 4, "cost_usd": 0.25}
    assert why["text"].startswith("retry in 10 s")
    shop.place.clean()


def test_what_a_refused_result_has_cost_is_still_known(single):
    single.place.put()
    single.pump.once()
    (claim,) = single.running.values()
    refused = Returned('"fine"', "half \ud800")
    single.finished.append(Finished(claim, refused, 0.5, Usage(tokens_in=3)))
    single.pump.once()
    single.pump.once()
    (attempt,) = single.place.reader.attempts(claim.no)
    assert attempt.kind == "internal"
    assert json.loads(attempt.why_json)["usage"]["tokens_in"] == 3
    assert single.pump._used == {}


def test_a_refused_result_does_not_hold_up_its_neighbours():
    shop = Shop(stage("one"), concurrency=4)
    shop.place.put_many(4)
    shop.pump.once()
    good = list(shop.running.values())
    bad = good.pop(1)
    for claim in good:
        shop.finish(claim)
    shop.finish(bad, Returned('"fine"', "half \ud800"))
    shop.pump.once()
    assert shop.place.reader.books().succeeded == 3
    shop.pump.once()
    assert shop.place.see(bad.id).error_kind == "internal"
    shop.place.clean()
    shop.close()


def test_what_is_refused_twice_is_told_and_let_go(single):
    single.place.put()
    single.pump.once()
    single.finish_all()
    for _ in range(2):
        single.pump._gather()
        (no,) = single.pump._unsent
        single.pump._unsent[no] = replace(single.pump._unsent[no], isolation=9)
        single.pump.once()
    assert single.pump.empty
    assert EventName.RESULT_REFUSED in single.notes.names()


def test_a_result_about_a_job_that_was_taken_away_is_dropped(single):
    id = single.place.put().id
    single.pump.once()
    (claim,) = single.running.values()
    single.place.settle(cancellation(claim, single.worker), by=None)
    single.finish_all()
    single.pump.once()
    assert single.place.see(id).state is State.CANCELLED
    assert single.pump.empty
    assert single.notes.names()[-1] is EventName.RESULT_REFUSED
    assert EventName.JOB_SUCCEEDED not in single.notes.names()
    single.place.clean()


def test_handlers_of_jobs_that_were_taken_away_are_stopped(shop):
    shop.place.put_many(3)
    shop.pump.once()
    first, second, third = list(shop.running.values())
    shop.place.settle(cancellation(second, shop.worker), by=None)
    shop.pump.check_held()
    assert shop.stopped == [second.no]
    shop.finish(second, Interrupted())
    shop.pump.once()
    assert shop.place.see(second.id).state is State.CANCELLED
    assert {claim.no for claim in shop.running.values()} == {first.no, third.no}


def test_nobody_is_stopped_while_all_is_well(shop):
    shop.place.put_many(3)
    shop.pump.once()
    shop.pump.check_held()
    assert shop.stopped == []


def test_what_has_finished_and_is_not_yet_told_is_not_stopped_or_given_back(shop):
    shop.place.put()
    shop.pump.once()
    shop.finish_all(Withdrawn())
    shop.store.breaks = ["after"]
    with pytest.raises(StoreUnavailable):
        shop.pump.once()
    shop.pump.check_held()
    shop.pump.give_back()
    assert shop.stopped == []
    shop.pump.once()
    assert shop.place.reader.books().cancelled == 1
    assert shop.place.reader.jobs()[0].counters.releases == 0


# -- draining ----------------------------------------------------------------------------


def test_while_it_drains_a_pump_claims_nothing_and_carries_nothing_on(shop):
    shop.place.put_many(8)
    shop.pump.once()
    shop.pump.drain()
    shop.finish_all()
    shop.pump.once()
    assert shop.running == {}
    assert shop.pump.empty
    jobs = shop.place.reader.jobs()
    assert sorted(job.stage for job in jobs) == ["one"] * 4 + ["two"] * 4
    shop.place.clean()


def test_what_is_given_back_counts_only_as_a_release(shop):
    shop.place.put_many(3)
    shop.pump.once()
    shop.pump.drain()
    shop.pump.give_back()
    shop.pump.once()
    assert shop.pump.empty
    for job in shop.place.reader.jobs():
        assert (job.state, job.counters) == (State.QUEUED, Counters(starts=1, releases=1))
        assert job.shown_state == "queued"
    shop.place.clean()


def test_what_finished_just_before_is_not_given_back(shop):
    shop.place.put_many(2)
    shop.pump.once()
    first, second = list(shop.running.values())
    shop.finish(first, Withdrawn())
    shop.pump.give_back()
    shop.pump.give_back()
    shop.pump.drain()
    shop.pump.once()
    assert shop.place.see(first.id).state is State.CANCELLED
    assert shop.place.see(second.id).counters.releases == 1


def test_a_word_after_the_job_was_given_back_is_ignored(shop):
    shop.place.put()
    shop.pump.once()
    (claim,) = shop.running.values()
    shop.pump.drain()
    shop.pump.give_back()
    shop.pump.once()
    before = shop.place.everything()
    shop.finish(claim)
    shop.pump.once()
    assert shop.place.everything() == before


def test_a_claim_of_a_stage_that_is_not_here_is_a_bug_and_says_so(shop):
    shop.place.put()
    shop.pump.once()
    shop.finish_all(Lost(Death("silent")))
    shop.pump._catalogue = type(shop.catalogue)([])
    with pytest.raises(BugError, match="unknown here"):
        shop.pump.once()


def test_the_chance_of_a_pump_is_its_own():
    """The same seed gives the same waits, which is what a simulation needs."""

    def due(seed: int) -> list[object]:
        jittery = replace(stage("one").policy, jitter=Jitter("full"))
        shop = Shop(stage("one", policy=jittery))
        shop.pump._chance = Random(seed)
        shop.place.put_many(4)
        shop.pump.once()
        shop.finish_all(FAILED)
        shop.pump.once()
        waits = [job.due_at for job in shop.place.reader.jobs()]
        shop.close()
        return waits

    assert due(1) == due(1)
    assert due(1) != due(2)
    assert len(set(due(1))) == 4
