"""The server has done it and the answer is lost: the same call again answers as if it were the first."""

import select

import psycopg
import pytest

from perdure.model.errors import StoreUnavailable
from perdure.model.jobs import IfFailed, Receipt, Stale
from perdure.model.nouns import replace
from perdure.model.workers import NewWorker, Role
from tests.stores.kit import advance, failure, retry, snooze, success
from tests.stores.postgres.kit import SIGNAL_S_MAX, until

INSERTING = b"INSERT INTO perdure_jobs"


def losing(proxy, call, words: bytes = b""):
    """Make a call whose answer is lost after the server has committed it."""
    trap = proxy.lose_reply(words)
    with pytest.raises(StoreUnavailable):
        call()
    assert trap.sprung.wait(SIGNAL_S_MAX)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ((None, None, None), INSERTING),
        (("a", "b", "c"), INSERTING),
        ((None, "a", "b"), b"COMMIT"),  # jobs with and without keys are a transaction
    ],
)
def test_an_enqueue_sent_again_gives_the_same_jobs(far, place, proxy, keys, words):
    jobs = [far.new(key=key) for key in keys]
    losing(proxy, lambda: far.store.enqueue(jobs), words)
    assert place.reader.books().accepted == 3
    again = far.store.enqueue(jobs)
    assert [one.id for one in again] == [job.id for job in jobs]
    assert all(one.created and not one.revived for one in again)
    assert place.reader.books().accepted == 3
    assert [place.see(one.id).no for one in again] == [one.no for one in again]
    place.clean()


def felt(line: psycopg.Connection) -> bool:
    """Whether something has come in on an idle line: here, its end."""
    poll = select.poll()
    poll.register(line.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def test_an_enqueue_with_another_id_and_the_same_key_finds_what_was_lost(far, place, proxy):
    """A caller that died after the loss, and whose successor only has the key."""
    first = far.new(key="order-1")
    losing(proxy, lambda: far.store.enqueue([first]), INSERTING)
    (found,) = far.store.enqueue([far.new(key="order-1")])
    assert (found.id, found.created) == (first.id, False)
    assert place.reader.books().accepted == 1


def test_an_enqueue_that_gives_a_dead_letter_a_new_life_gives_it_one(far, place, worker, proxy):
    dead = place.dead_letter(worker, key="k")
    again = far.new(key="k", if_failed=IfFailed.RETRY)
    losing(proxy, lambda: far.store.enqueue([again]), b"COMMIT")
    assert place.see(dead.id).life == 2
    (found,) = far.store.enqueue([again])
    assert (found.id, found.created) == (dead.id, False)
    assert place.see(dead.id).life == 2
    place.clean()


@pytest.mark.parametrize("end", [success, retry, snooze, failure])
def test_a_record_sent_again_gets_its_stored_receipt(far, place, worker, proxy, end):
    place.put()
    (claim,) = place.take(worker)
    record = end(claim, worker)
    losing(proxy, lambda: far.settle(record, by=worker))
    seen = place.see(claim.id)
    (receipt,) = far.settle(record, by=worker)
    assert isinstance(receipt, Receipt)
    assert receipt.repeated
    assert (receipt.state, receipt.token) == (seen.state, claim.token)
    assert receipt.due_at == (seen.due_at if record.delay_s is not None else None)
    assert place.see(claim.id) == seen
    assert len(place.reader.attempts(claim.no)) == 1
    place.clean()


def test_a_batch_sent_again_with_a_new_record_in_it_gets_old_and_new_receipts(
    far, place, worker, proxy
):
    place.put_many(3)
    one, two, three = place.take(worker, 3)
    losing(proxy, lambda: far.settle(success(one, worker), retry(two, worker), by=worker))
    records = [success(one, worker), retry(two, worker), failure(three, worker)]
    answers = far.settle(*records, by=worker)
    assert [type(answer) for answer in answers] == [Receipt] * 3
    assert [answer.repeated for answer in answers] == [True, True, False]
    place.clean()


def test_a_record_that_another_hand_has_settled_meanwhile_is_stale(far, place, worker, proxy):
    """The loss is no licence: the receipt is only for who wrote the attempt."""
    place.put()
    (claim,) = place.take(worker)
    losing(proxy, lambda: far.settle(retry(claim, worker, delay_s=0), by=worker))
    other = place.hire()
    assert isinstance(far.settle(success(claim, other), by=other)[0], Stale)
    (receipt,) = far.settle(retry(claim, worker, delay_s=0), by=worker)
    assert receipt.repeated


def test_a_stage_that_was_done_and_reclaimed_is_had_again_with_its_claim(far, place, worker, proxy):
    place.put()
    (claim,) = place.take(worker)
    record = advance(claim, worker, place.lanes["two"], reclaim=True)
    losing(proxy, lambda: far.settle(record, by=worker))
    (receipt,) = far.settle(record, by=worker)
    assert receipt.repeated
    assert receipt.claim is not None
    assert (receipt.claim.stage, receipt.claim.token) == ("two", claim.token + 2)
    assert receipt.claim.input_json == '{"from":"one"}'
    (done,) = far.settle(success(receipt.claim, worker), by=worker)
    assert not done.repeated
    assert place.see(claim.id).state == "succeeded"
    place.clean()


def test_claims_whose_news_was_lost_are_found_among_those_held(far, place, worker, proxy):
    place.put_many(5)
    losing(proxy, lambda: far.take(worker, 3))
    held = far.store.claims_held(worker)
    assert len(held) == 3
    assert far.store.tokens_held(worker) == {claim.no: claim.token for claim in held}
    rest = far.take(worker, 5)
    assert {claim.id for claim in rest}.isdisjoint({claim.id for claim in held})
    assert len(rest) == 2
    far.settle(*(success(claim, worker) for claim in [*held, *rest]), by=worker)
    assert place.reader.books().succeeded == 5
    place.clean()


def test_a_whole_turn_whose_answer_was_lost_has_happened_once(far, place, worker, proxy):
    place.put_many(4)
    first = far.take(worker, 2)
    records = [success(claim, worker) for claim in first]
    losing(proxy, lambda: far.turn(records, worker, 2))
    turn = far.turn(records, worker, 2)
    assert [one.repeated for one in turn.settled] == [True, True]
    assert turn.claims == ()  # the lost turn has claimed the other two
    held = far.store.claims_held(worker)
    assert len(held) == 2
    far.settle(*(success(claim, worker) for claim in held), by=worker)
    assert place.reader.books().succeeded == 4
    place.clean()


def test_a_worker_that_registers_again_after_a_loss_is_the_same_worker(far, place, proxy):
    new = NewWorker("boot-1", "host:1", Role.MAIN, 15.0)
    losing(proxy, lambda: far.store.add_worker(new))
    again = far.store.add_worker(new)
    assert [one.no for one in place.reader.workers()] == [again]
    assert far.store.beat([again]) == {again}


def test_lanes_asked_for_again_after_a_loss_are_the_same_lanes(far, place, proxy):
    losing(proxy, lambda: far.lanes_of("fresh"), b"COMMIT")
    assert far.lanes_of("fresh") == place.lanes_of("fresh")


def test_a_beat_sent_again_is_accepted(far, worker, proxy):
    losing(proxy, lambda: far.store.beat([worker]))
    assert far.store.beat([worker]) == {worker}


def test_a_line_that_is_cut_before_the_server_has_heard_changes_nothing(far, place, worker, proxy):
    """The other half of not knowing: it has not happened, and the same call makes it happen."""
    job = far.new()
    proxy.refuse()
    proxy.reset()
    with pytest.raises(StoreUnavailable):
        far.store.enqueue([job])
    assert place.reader.books().accepted == 0
    proxy.accept()
    (made,) = far.store.enqueue([job])
    assert made.created
    (claim,) = far.take(worker)
    record = success(claim, worker)
    proxy.reset()
    until(lambda: all(map(felt, far.connection._lender._idle)), "the reset has reached our end")
    (receipt,) = far.settle(record, by=worker)  # the dead line was noticed before it was used
    assert not receipt.repeated
    assert place.reader.books().succeeded == 1


def test_a_reply_that_is_not_lost_is_not_repeated(far, place, worker):
    """The twin: without a loss no receipt is an old one."""
    place.put()
    (claim,) = place.take(worker)
    (receipt,) = far.settle(success(claim, worker), by=worker)
    assert not receipt.repeated
    assert isinstance(far.settle(replace(success(claim, worker), token=99), by=worker)[0], Stale)
