"""A policy with code of its own: what that code does wrong is told, and costs no job, whoever settles (L5)."""

import json

import pytest

from perdure.engine.call import Try
from perdure.engine.stages import Catalogue
from perdure.model.errors import BugError
from perdure.model.events import EventName
from perdure.model.jobs import Counters
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import (
    Evidence,
    Interrupted,
    Lost,
    Raised,
    Returned,
    Revoked,
    Snoozed,
    TimedOut,
    Unbegun,
)
from perdure.model.states import State
from perdure.rules.matchers import Match
from perdure.rules.policy import RETRY
from tests.engine.kit import PLAIN, Shop, line_on, stage
from tests.engine.test_call import SYNC, counter, failing  # noqa: F401 - a fixture
from tests.engine.upkeep.test_overrun_attempts import TIMEOUT_S
from tests.engine.upkeep.upkeeping import KILLED, MARGIN_S, upkeep
from tests.engine.worker.test_pump import FAILED

UNSTORABLE = Returned('"fine"', "half \ud800")
TOLD_MATCH = "match 1 of the policy raised LookupError('my own table')"
TOLD = "own_delay raised ZeroDivisionError('my own arithmetic'), so the policy's curve was used"


def broken(failures, kind) -> float:
    raise ZeroDivisionError("my own arithmetic")


class BrokenMatch(Match):
    """A user's line of the table that cannot be asked."""

    def fits(self, evidence) -> bool:
        raise LookupError("my own table")


OWN = replace(PLAIN, own_delay=broken, matches=(BrokenMatch(Kind.BILLING, status=599),))


def why_of(place, job) -> str:
    return json.loads(place.reader.attempts(job.no)[-1].why_json)["text"]


def test_the_pump_judges_by_the_policys_curve_where_its_own_code_raises():
    shop = Shop(stage("one", policy=OWN), concurrency=2)
    shop.place.put_many(2)
    shop.pump.once()
    shop.finish_all(FAILED)
    shop.pump.once()
    jobs = shop.place.reader.jobs()
    assert [job.state for job in jobs] == [State.QUEUED] * 2
    assert {job.error_kind for job in jobs} == {"network"}
    assert all(job.counters.failures == 1 for job in jobs)
    assert all(TOLD in why_of(shop.place, job) for job in jobs)
    assert shop.pump.empty
    shop.close()


def test_a_line_of_the_table_that_raises_is_no_match_and_is_told():
    shop = Shop(stage("one", policy=OWN), concurrency=1)
    id = shop.place.put().id
    shop.pump.once()
    shop.finish_all(Raised(Evidence(("builtins.ConnectionError",))))
    shop.pump.once()
    job = shop.place.see(id)
    assert job.error_kind == "network"
    assert TOLD_MATCH in shop.place.reader.attempts(job.no)[-1].why_json
    shop.close()


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Revoked("not wanted"), State.CANCELLED),
        (Unbegun(), State.FAILED),
        (Interrupted("shutdown"), State.QUEUED),
        (TimedOut(60.0), State.QUEUED),
        (Snoozed(5.0, "later"), State.QUEUED),
        (Lost(KILLED), State.QUEUED),
    ],
)
def test_every_end_of_an_attempt_is_settled_beside_such_a_policy(outcome, state):
    shop = Shop(stage("one", policy=replace(OWN, crash_is_failure=True)), concurrency=1)
    id = shop.place.put().id
    shop.pump.once()
    shop.finish_all(outcome)
    shop.pump.drain()  # what is given back is not taken again
    shop.pump.once()
    assert shop.place.see(id).state is state
    assert shop.pump.empty
    shop.close()


def test_the_sweep_of_overruns_ends_every_job_of_the_batch(either):
    """L5: it failed as a whole, and so did every sweep after it."""
    known = Catalogue([line_on(either, stage("one", policy=OWN), stage("two"))])
    judge, holder = either.hire(), either.hire()
    broken_id = either.put().id
    sound_id = either.put(lane=either.lanes["two"], stage="two").id
    either.take(holder, 2)
    either.live([judge, holder], TIMEOUT_S + MARGIN_S + 1)
    assert upkeep(either, judge, catalogue=known).once() == 2
    one, two = either.see(broken_id), either.see(sound_id)
    assert (one.state, one.error_kind) == (two.state, two.error_kind) == (State.QUEUED, "timeout")
    assert TOLD in why_of(either, one)
    either.clean()


def test_the_sweep_of_lost_jobs_settles_every_job_of_the_batch(either):
    policy = replace(OWN, crash_is_failure=True)
    known = Catalogue([line_on(either, stage("one", policy=policy), stage("two"))])
    judge, dead = either.hire(), either.hire()
    broken_id = either.put().id
    sound_id = either.put(lane=either.lanes["two"], stage="two").id
    either.take(dead, 2)
    either.store.end_worker(dead, KILLED)
    assert upkeep(either, judge, catalogue=known).once() == 2
    one, two = either.see(broken_id), either.see(sound_id)
    assert one.counters == Counters(starts=1, failures=1, crashes=1)
    assert two.counters == Counters(starts=1, crashes=1)
    assert TOLD in why_of(either, one)
    either.clean()


def test_a_call_goes_on_by_the_policys_curve(counter):  # noqa: F811
    policy = replace(SYNC, own_delay=broken, otherwise=RETRY)
    call, _ = counter.begun(policy=policy)
    step = call.end_stage(failing(Kind.NETWORK), 0.1)
    assert isinstance(step, Try)
    assert TOLD in why_of(counter.place, counter.job())


# -- a result that the store refuses ---------------------------------------------------------


def test_a_refused_result_ends_its_job_and_every_receipt_is_delivered():
    shop = Shop(stage("one", policy=OWN), concurrency=4)
    shop.place.put_many(4)
    shop.pump.once()
    refused, *good = shop.running.values()
    shop.finish(refused, UNSTORABLE)  # first in the batch, so that all the others come after it
    for claim in good:
        shop.finish(claim)
    shop.pump.once()
    assert [one["job_id"] for one in shop.notes.of(EventName.JOB_SUCCEEDED)] == [
        claim.id for claim in good
    ]
    shop.pump.once()
    job = shop.place.see(refused.id)
    assert (job.state, job.error_kind) == (State.FAILED, "internal")
    assert "no policy asks for it" in why_of(shop.place, job)
    assert shop.pump.empty
    shop.close()


def test_whatever_goes_wrong_with_what_was_refused_the_others_are_delivered_first(monkeypatch):
    shop = Shop(stage("one"), concurrency=4)
    shop.place.put_many(4)
    shop.pump.once()
    refused, *good = shop.running.values()
    shop.finish(refused, UNSTORABLE)
    for claim in good:
        shop.finish(claim)
    shop.pump._gather()

    def settled(_one):
        raise LookupError("nobody has thought of this")

    monkeypatch.setattr(shop.pump, "_record_of", settled)
    with pytest.raises(LookupError):
        shop.pump._send(None)
    assert len(shop.notes.of(EventName.JOB_SUCCEEDED)) == 3
    shop.close()


def test_a_defect_in_judging_what_was_refused_keeps_no_other_back(monkeypatch):
    shop = Shop(stage("one"), concurrency=4)
    shop.place.put_many(4)
    shop.pump.once()
    refused, other, *good = shop.running.values()
    for claim in (refused, other):
        shop.finish(claim, UNSTORABLE)
    for claim in good:
        shop.finish(claim)
    shop.pump._gather()
    right = shop.pump._record_of

    def settled(one):
        if one.claim.no == refused.no:
            raise BugError("cannot be judged")
        return right(one)

    monkeypatch.setattr(shop.pump, "_record_of", settled)
    with pytest.raises(BugError, match="cannot be judged"):
        shop.pump._send(None)
    assert len(shop.notes.of(EventName.JOB_SUCCEEDED)) == 2
    assert shop.pump.in_hand == (refused.no,)
    shop.pump._send(None)
    assert shop.place.see(other.id).error_kind == "internal"
    shop.close()
