"""enqueue: order, keys, repeats, times, and that numbers have no gaps."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from perdure.model.errors import StoreError
from perdure.model.jobs import Enqueued
from perdure.model.limits import AGEING_S
from perdure.model.states import State
from tests.stores.kit import Place, failure, file_in, success


def test_jobs_are_numbered_in_the_order_in_which_they_are_given(place):
    done = place.put_many(5)
    assert [one.no for one in done] == [1, 2, 3, 4, 5]
    assert [one.id for one in done] == [f"job-{n:05d}" for n in range(1, 6)]
    assert all(one.created for one in done)


def test_a_new_job_is_queued_and_due_at_the_stores_time(place):
    id = place.put(owner="ann", priority=3).id
    job = place.see(id)
    now = place.clock.now()
    assert (job.state, job.shown_state, job.stage, job.owner) == (
        State.QUEUED,
        "queued",
        "one",
        "ann",
    )
    assert (job.enqueued_at, job.due_at, job.deadline_at) == (now, now, None)
    assert (job.token, job.life, job.worker, job.priority) == (0, 1, None, 3)
    assert job.payload_json == job.input_json == '{"n":1}'


def test_nothing_to_enqueue_is_nothing(place):
    before = place.everything()
    assert place.store.enqueue([]) == []
    assert place.everything() == before


def test_the_books_count_what_was_accepted(place):
    place.put_many(3)
    place.put(key="a")
    place.put(key="a")
    assert (place.reader.books().accepted, place.reader.books().queued) == (4, 4)


# -- keys --------------------------------------------------------------------------------


def test_the_same_key_is_the_same_job(place):
    first = place.put(key="invoice-7")
    again = place.put(key="invoice-7")
    assert again == Enqueued(first.id, first.no, created=False)
    assert len(place.reader.jobs()) == 1


def test_the_same_key_is_the_same_job_after_it_has_ended(place, worker):
    for end in (success, failure):
        first = place.put(key=end.__name__)
        (claim,) = place.take(worker)
        place.settle(end(claim, worker), by=worker)
        assert place.put(key=end.__name__) == Enqueued(first.id, first.no, created=False)


def test_the_same_key_of_another_owner_is_another_job(place):
    ids = {place.put(key="k", owner=owner).id for owner in ("", "ann", "bob")}
    assert len(ids) == 3


def test_the_same_key_in_another_pipeline_is_another_job(place):
    assert place.put(key="k").created
    assert place.put(key="k", pipeline="other").created


def test_jobs_without_a_key_are_all_different(place):
    assert all(one.created for one in place.put_many(3, key=None))


def test_a_key_that_comes_twice_in_one_batch_is_one_job(place):
    first, other, again = place.store.enqueue(
        [place.new(key="k"), place.new(key="j"), place.new(key="k")]
    )
    assert again == Enqueued(first.id, first.no, created=False)
    assert other.created
    assert place.reader.books().accepted == 2


def test_taken_keys_leave_no_gap_in_the_numbers(place):
    place.put(key="k")
    place.store.enqueue([place.new(key="k"), place.new(key="j"), place.new(key="k")])
    place.put(key="k")
    assert place.put().no == 3
    place.put(key="j")
    place.clean()


def test_the_same_key_from_two_threads_at_once_is_one_job(tmp_path):
    places = [Place(file_in(tmp_path)) for _ in range(2)]
    rounds = 40
    start = threading.Barrier(2)
    found: list[list[Enqueued]] = [[], []]

    def send(who: int) -> None:
        place = places[who]
        for n in range(rounds):
            job = replace(place.new(key=f"k{n}"), id=f"{who}-{n}")
            start.wait(20)
            found[who].append(place.store.enqueue([job])[0])

    threads = [threading.Thread(target=send, args=(who,)) for who in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(one) for one in found] == [rounds, rounds]
    for mine, theirs in zip(*found, strict=True):
        assert mine.id == theirs.id
        assert mine.created != theirs.created
    places[0].clean()
    assert places[0].reader.books().accepted == rounds
    for place in places:
        place.close()


# -- repeats -----------------------------------------------------------------------------


def test_a_call_that_is_sent_again_finds_its_own_jobs(place):
    jobs = [place.new(), place.new(key="k"), place.new()]
    first = place.store.enqueue(jobs)
    assert place.store.enqueue(jobs) == first
    assert place.reader.books().accepted == 3
    place.clean()


def test_a_call_that_is_sent_again_with_more_adds_only_the_new(place):
    known, fresh = place.new(), place.new()
    place.store.enqueue([known])
    done = place.store.enqueue([known, fresh])
    assert [one.no for one in done] == [1, 2]
    assert place.reader.books().accepted == 2
    place.clean()


def test_the_same_job_twice_in_one_batch_is_one_job(place):
    job = place.new()
    first, again = place.store.enqueue([job, job])
    assert first.no == again.no
    assert place.reader.books().accepted == 1
    place.clean()


def test_a_batch_with_an_impossible_row_is_refused_whole(place):
    before = place.everything()
    with pytest.raises(StoreError):
        place.store.enqueue([place.new(), place.new(lane=999), place.new()])
    assert place.everything() == before
    assert place.put().no == 1
    place.clean()


# -- times and ranks ---------------------------------------------------------------------


def test_a_job_for_later_is_not_ready_before(place, worker):
    later = place.clock.now() + timedelta(seconds=30)
    id = place.put(run_at=later).id
    assert (place.see(id).due_at, place.see(id).shown_state) == (later, "scheduled")
    place.clock.push(29.999999)
    assert place.take(worker) == []
    place.clock.push(0.000001)
    assert place.taken_ids(worker) == [id]


def test_a_time_in_the_past_is_now(place, worker):
    id = place.put(run_at=place.clock.now() - timedelta(days=1)).id
    assert place.see(id).due_at == place.clock.now()
    assert place.taken_ids(worker) == [id]


def test_a_deadline_counts_from_the_stores_time(place):
    id = place.put(deadline_s=90.5).id
    assert place.see(id).deadline_at == place.clock.now() + timedelta(seconds=90.5)


def test_a_higher_priority_goes_first_and_equals_keep_their_order(place, worker):
    low = place.put(priority=-1).id
    plain = [one.id for one in place.put_many(2)]
    high = place.put(priority=1).id
    assert place.taken_ids(worker, 9) == [high, *plain, low]


def test_one_step_of_priority_is_worth_its_ageing(place, worker):
    old = place.put(priority=0).id
    place.clock.push(AGEING_S - 0.000001)
    urgent = place.put(priority=1).id
    assert place.taken_ids(worker, 1) == [urgent]
    place.clock.push(0.000002)
    place.put(priority=1)
    assert place.taken_ids(worker, 1) == [old]


def test_a_job_for_later_ranks_by_its_time_and_not_by_when_it_was_sent(place, worker):
    early = place.put(run_at=place.clock.now() + timedelta(seconds=100)).id
    place.clock.push(50)
    sooner = place.put().id
    place.clock.push(60)
    latest = place.put().id
    assert place.taken_ids(worker, 9) == [sooner, early, latest]


def test_payloads_come_back_as_they_were_sent(place, worker):
    payloads = [
        '"\\u0001\\"\\\\"',
        '"🎉 é"',
        "null",
        "[]",
        "-0.0",
        "9223372036854775807",
        '{"a":{}}',
    ]
    ids = [place.put(payload_json=one).id for one in payloads]
    claims = place.take(worker, 20)
    assert [claim.payload_json for claim in claims] == payloads
    assert [place.see(id).payload_json for id in ids] == payloads
