"""What an upstream asks for holds everybody behind it; bills and keys hold what shares them; people have the last word."""

from datetime import timedelta

import pytest

from perdure.app.surface import gate_control
from perdure.engine.gates.changes import hold_by_person, probe_by_person, release_by_person
from perdure.model.events import EventName
from perdure.model.gates import GateState
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.states import State
from perdure.rules.gate.gate import HoldCause
from perdure.rules.presets import preset
from perdure.stores.opening import Opened
from tests.engine.gating import (
    DOWN,
    FINE,
    QUICK,
    STANDARD,
    Post,
    counters,
    failed,
    gate,
    jobs_of,
    line_of,
    put,
    stage,
    upstream,
)

HELD, FLOWING, PROBING = GateState.HELD, GateState.FLOWING, GateState.PROBING
KEY = "key-1"
SAID = Deed("ann", "the bill is paid")


def standard(place, **more) -> Post:
    """A stage under the recommended policy, behind an upstream with a credential."""
    return Post(place, stage(policy=STANDARD), upstreams=[upstream(credential=KEY, **more)])


def left_s(place, name: str = "vendor") -> float:
    held = gate(place, name)
    assert held.held_until is not None
    return (held.held_until - place.clock.now()).total_seconds()


# -- hints -------------------------------------------------------------------------------


def test_a_hint_holds_all_that_is_behind_the_upstream_and_then_it_flows_by_itself(either):
    post = standard(either)
    put(either, 9)
    first, *others = post.turn()
    post.end(first, failed(Kind.RATE_LIMITED, wait_s=30.0))
    for claim in others:
        post.end(claim, FINE)
    post.turn()
    assert (gate(either).state, gate(either).cause) == (HELD, HoldCause.HINT)
    assert left_s(either) == pytest.approx(30.0)
    post.running.clear()
    for _ in range(29):
        assert post.turn(passing_s=1.0) == []
    post.turn(passing_s=1.1)
    assert gate(either).state is FLOWING
    while len(post.running) < 2:
        post.turn(passing_s=0.5)
    assert counters(either, first.id).failures == 0
    assert post.moves() == ["hint", "resume"]


@pytest.mark.parametrize("kind", [Kind.RATE_LIMITED, Kind.OVERLOADED])
@pytest.mark.parametrize("waits_s", [(10.0, 60.0), (60.0, 10.0)])
def test_the_later_of_two_hints_stands(either, kind, waits_s):
    post = standard(either)
    put(either, 2)
    first, second = post.turn()
    post.end(first, failed(kind, wait_s=waits_s[0]))
    post.turn()
    post.end(second, failed(kind, wait_s=waits_s[1]))
    post.turn()
    assert left_s(either) == pytest.approx(60.0)


def test_of_two_workers_hints_at_once_the_later_stands(anywhere):
    first, second = standard(anywhere()), standard(anywhere())
    put(first.place, 16)
    (one, *_), (other, *_) = first.turn(), second.turn()
    first.end(one, failed(Kind.RATE_LIMITED, wait_s=60.0))
    second.end(other, failed(Kind.RATE_LIMITED, wait_s=20.0))
    first.turn()
    second.turn()  # from a copy in which the gate still flows
    assert left_s(first.place) == pytest.approx(60.0)
    assert gate(first.place).generation == 2  # declared, held; the second hint changed nothing
    assert second.moves() == []


def test_a_hint_beyond_the_bound_is_a_persons_case(either):
    post = standard(either, gate=replace(QUICK, hint_s_max=100.0))
    put(either, 4)
    claim = post.turn()[0]
    post.end(claim, failed(Kind.RATE_LIMITED, wait_s=101.0))
    post.turn()
    assert (gate(either).held_until, gate(either).until_person) == (None, True)
    assert len(post.notes.of(EventName.GATE_ALERT)) == 1
    post.running.clear()
    assert post.turn(passing_s=200.0) == []
    assert gate(either).state is HELD


def test_no_room_left_paces_the_calls_before_the_first_rate_limit(either):
    """What an answer says of the calls that are left; without it all slots would be filled at once."""
    post = standard(either)
    put(either, 40)
    claim, *others = post.turn()
    headers = {"x-ratelimit-limit": "100", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "20"}
    for one in others:
        post.end(one, FINE)
    post.end(claim, FINE, told=headers)
    assert post.turn() == []
    for _ in range(19):
        assert post.turn(passing_s=1.0) == []
    assert len(post.turn(passing_s=1.1)) == 8
    assert gate(either).state is FLOWING


def test_little_room_left_lasts_until_the_reset(either):
    post = standard(either)
    put(either, 60)
    claim, *others = post.turn()
    for one in others:
        post.end(one, FINE)
    headers = {"x-ratelimit-limit": "100", "x-ratelimit-remaining": "10", "x-ratelimit-reset": "20"}
    post.end(claim, FINE, told=headers)
    before = post.started
    for _ in range(19):
        post.turn(passing_s=1.0)
        post.end_all(FINE)
    assert 8 <= post.started - before <= 10


# -- credentials -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.BILLING, Kind.AUTH])
def test_a_bill_or_a_key_holds_every_upstream_of_the_credential_until_a_person_speaks(either, kind):
    second = line_of(either, stage("ask", "other", STANDARD), pipeline="h")
    post = Post(
        either,
        stage(policy=STANDARD),
        lines=[second],
        upstreams=[upstream(credential=KEY), upstream("other", credential=KEY)],
    )
    ids = put(either, 3)
    claim = post.turn()[0]
    post.end(claim, failed(kind))
    post.end_all(FINE)
    post.turn()
    put(either, 3)
    put(either, 3, pipeline="h", lane=second.lane_nos["ask"], stage="ask")
    held = gate(either, KEY)
    assert (held.state, held.cause, held.until_person) == (HELD, HoldCause.CREDENTIAL, True)
    alerts = post.notes.of(EventName.GATE_ALERT)
    assert [(one["gate"], kind.value in str(one["reason"])) for one in alerts] == [(KEY, True)]
    for _ in range(5):
        assert post.turn(passing_s=1_000.0) == []
    assert either.see(ids[0]).state is not State.FAILED
    assert counters(either, claim.id).failures == 0
    release_by_person(either.reader, either.control, KEY, SAID)
    post.turn(passing_s=1.1)
    assert gate(either, KEY).state is FLOWING
    assert {one.pipeline for one in post.running.values()} == {"g", "h"}


def release(place, name: str = KEY) -> str:
    opened = Opened(place.store, place.control, place.reader)
    return gate_control.release(opened, name, by_whom="ann", reason="the bill is paid").text


@pytest.mark.parametrize("kind", [Kind.BILLING, Kind.AUTH])
def test_jobs_that_met_the_hold_of_a_credential_are_due_when_a_person_releases_it(either, kind):
    post = standard(either)
    ids = put(either, 2)
    post.turn()
    post.end_all(failed(kind))
    post.turn()
    assert [either.see(one).ready for one in ids] == [False, False]
    assert release(either).endswith("; jobs that had met this hold and are due now: 2")
    assert {one.id for one in post.turn(passing_s=1.1)} == set(ids)


def test_a_job_that_was_told_by_the_upstream_when_to_come_back_keeps_that_time(either):
    post = standard(either)
    (id,) = put(either, 1)
    post.end(post.turn()[0], failed(Kind.BILLING, wait_s=600.0))
    post.turn()
    due_at = either.see(id).due_at
    assert release(either) == "released by a person (the bill is paid)"
    assert either.see(id).due_at == due_at
    assert post.turn(passing_s=599.0) == []
    assert len(post.turn(passing_s=1.1)) == 1


def test_a_release_leaves_what_waits_behind_other_gates_alone(either):
    other = line_of(either, stage("ask", "other", STANDARD), pipeline="h")
    post = Post(
        either,
        stage(policy=STANDARD),
        lines=[other],
        upstreams=[upstream(credential=KEY), upstream("other")],
    )
    put(either, 1)
    (id,) = put(either, 1, pipeline="h", lane=other.lane_nos["ask"], stage="ask")
    post.turn()
    post.end_all(failed(Kind.AUTH))
    post.turn()
    assert release(either).endswith("due now: 1")
    assert not either.see(id).ready


@pytest.mark.parametrize("name", ["reports", "converter", "verifier"])
def test_under_the_presets_of_others_a_bill_fails_the_job_and_holds_nothing(either, name):
    post = Post(either, stage(policy=preset(name)), upstreams=[upstream(credential=KEY)])
    (id,) = put(either, 1)
    post.end(post.turn()[0], failed(Kind.BILLING))
    post.turn()
    assert either.see(id).state is State.FAILED
    assert gate(either, KEY).state is FLOWING


def test_a_quota_with_a_reset_is_proved_by_one_job_and_waits_again_if_it_is_not_over(either):
    post = standard(either)
    put(either, 8)
    claim, *others = post.turn()
    for one in others:
        post.end(one, FINE)
    post.end(claim, failed(Kind.QUOTA_WINDOW, wait_s=3_600.0))
    post.turn()
    put(either, 8)
    assert left_s(either, KEY) == pytest.approx(3_600.0)
    assert not gate(either, KEY).until_person
    assert post.turn(passing_s=3_590.0) == []
    while not post.running:
        post.turn(passing_s=1.0)
    (probe,) = post.running.values()
    assert gate(either, KEY).state is PROBING
    post.end(probe, failed(Kind.QUOTA_WINDOW, wait_s=600.0))
    post.turn()
    assert left_s(either, KEY) == pytest.approx(600.0)
    assert not gate(either, KEY).until_person


def test_a_credential_and_its_only_upstream_that_are_both_held_do_not_wait_for_each_other(either):
    """Each would have to be proved by a job that the other keeps back."""
    post = standard(either)
    put(either, 8)
    first, *others = post.turn()
    post.end(first, failed(Kind.QUOTA_WINDOW, wait_s=60.0))
    for claim in others:
        post.end(claim, DOWN)
    post.turn(passing_s=0.1)
    assert (gate(either).state, gate(either, KEY).state) == (HELD, HELD)
    post.running.clear()
    for _ in range(400):
        post.turn(passing_s=0.5)
        post.end_all(FINE)
        if (gate(either).state, gate(either, KEY).state) == (FLOWING, FLOWING):
            break
    assert (gate(either).state, gate(either, KEY).state) == (FLOWING, FLOWING)


def test_a_pause_that_a_credentials_probe_is_told_holds_the_upstream_that_told_it(either):
    """Only the credential's gate was held, and the upstream went on being called."""
    post = standard(either)
    put(either, 8)
    first, *others = post.turn()
    for one in others:
        post.end(one, FINE)
    post.end(first, failed(Kind.QUOTA_WINDOW, wait_s=60.0))
    post.turn()
    put(either, 8)
    while not post.running:
        post.turn(passing_s=1.0)
    assert gate(either, KEY).state is PROBING
    post.end(next(iter(post.running.values())), failed(Kind.OVERLOADED, wait_s=25.0))
    post.turn()
    assert gate(either).state is HELD
    assert left_s(either, "vendor") == pytest.approx(25.0)


def test_a_credential_does_not_give_way_to_an_upstream_that_a_person_has_released_meanwhile(either):
    """Its worker had an old copy of the upstream, took it for held, and let the credential flow unproved."""
    post = standard(either)
    put(either, 8)
    first, *others = post.turn()
    post.end(first, failed(Kind.QUOTA_WINDOW, wait_s=60.0))
    for claim in others:
        post.end(claim, DOWN)
    post.turn(passing_s=0.1)
    hold_by_person(either.reader, either.control, "vendor", SAID)
    post.running.clear()
    post.turn(passing_s=59.5)
    assert (gate(either).state, gate(either, KEY).state) == (HELD, HELD)
    release_by_person(either.reader, either.control, "vendor", SAID)
    post.turn(
        passing_s=0.5
    )  # less than a second after its last look: the credential's time is over
    assert gate(either, KEY).state is not FLOWING


# -- people ------------------------------------------------------------------------------


def test_what_a_person_says_is_kept_with_who_and_why_and_survives_reopening(anywhere):
    place = anywhere()
    post = Post(place)
    put(place, 12)
    post.turn()
    hold_by_person(place.reader, place.control, "vendor", Deed("ann", "maintenance"))
    again = anywhere()
    assert (gate(again).state, gate(again).cause) == (HELD, HoldCause.PERSON)
    newcomer = Post(again)
    assert newcomer.turn(passing_s=5_000.0) == []
    release_by_person(again.reader, again.control, "vendor", Deed("bob", "it is over"))
    deeds = [(one.verb, one.by_whom, one.reason) for one in again.reader.deeds()]
    assert deeds[:2] == [("release gate", "bob", "it is over"), ("hold gate", "ann", "maintenance")]
    assert len(newcomer.turn(passing_s=1.1)) == 4


def test_a_hold_for_a_time_ends_by_itself(either):
    post = Post(either)
    put(either, 4)
    until = either.clock.now() + timedelta(seconds=60)
    hold_by_person(either.reader, either.control, "vendor", Deed("ann", "a pause"), until=until)
    assert post.turn(passing_s=59.0) == []
    assert len(post.turn(passing_s=1.1)) == 4


def test_a_person_can_have_a_probe_now_and_its_failure_leads_back(either):
    post = standard(either)
    put(either, 8)
    claim, *others = post.turn()
    for one in others:
        post.end(one, FINE)
    post.end(claim, failed(Kind.BILLING))
    post.turn()
    put(either, 8)
    assert post.turn(passing_s=500.0) == []
    probe_by_person(either.reader, either.control, KEY, SAID)
    while not post.running:
        post.turn(passing_s=0.5)
    (probe,) = post.running.values()
    assert gate(either, KEY).state is PROBING
    post.end(probe, failed(Kind.BILLING))
    post.turn()
    assert gate(either, KEY).state is HELD
    assert post.turn(passing_s=5_000.0) == []  # until a person, as before
    probe_by_person(either.reader, either.control, KEY, SAID)
    while not post.running:
        post.turn(passing_s=0.5)
    post.end_all(FINE)
    post.turn()
    assert gate(either, KEY).state is FLOWING


def test_a_dead_letter_that_is_retried_by_hand_while_held_just_queues(either):
    post = Post(either, concurrency=4)
    (id,) = put(either, 1)
    for _ in range(3):
        post.end(post.turn(passing_s=1.1)[0], failed(Kind.INTERNAL))
        post.turn()
    assert either.see(id).state is State.FAILED
    put(either, 8)
    post.trip()
    calls = post.started
    either.revive(either.see(id))
    assert post.turn(passing_s=0.2) == []
    (job,) = jobs_of(either, [id])
    assert (job.state, post.started) == (State.QUEUED, calls)
    either.clean()
