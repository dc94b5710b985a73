"""A worker's pace is in the store for people to read: what it is, what it was, why it changed, when it rises."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from perdure.engine.gates import pacing
from perdure.engine.gates.changes import hold_by_person, release_by_person
from perdure.engine.gates.pacing import PaceNotes, PaceShown, pace_in
from perdure.engine.gates.traffic import window_in
from perdure.model.events import EventName
from perdure.model.kinds import Kind, Sign
from perdure.model.operations import Deed
from perdure.rules.gate.limit_allowance import UpstreamLimits
from perdure.rules.gate.pace import Pace
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.gate.pace_trouble import Trouble
from perdure.rules.gate.signs import WELL
from perdure.rules.hints.calls_left import Room
from perdure.rules.presets import preset
from tests.engine.gating import FINE, VENDOR, Post, failed, gate, put, stage, upstream
from tests.rules.gate.gate_kit import said

LIMITED = failed(Kind.RATE_LIMITED)
REFUSED = said(Kind.RATE_LIMITED)
START = datetime(2026, 1, 1, tzinfo=UTC)


def told(place) -> dict[int, PaceShown]:
    """The pace of each worker, as the store has it."""
    found = {one.worker: pace_in(one.samples_json) for one in place.reader.look([VENDOR]).samples}
    return {worker: said.pace for worker, said in found.items() if said.pace is not None}


def work(post: Post, turns: int, outcome=FINE) -> None:
    """So many rounds of a second, in which all that runs ends."""
    for _ in range(turns):
        post.turn(passing_s=1.0)
        post.end_all(outcome)


@pytest.fixture
def post(either):
    post = Post(either)
    put(either, 500)
    return post


def test_before_any_limit_no_rate_is_set_and_successes_admit_more(post):
    work(post, 3)
    post.turn(passing_s=1.1)
    pace = told(post.place)[post.worker]
    assert (pace.rate_per_s, pace.was_per_s, pace.rises_at) == (None, None, None)
    assert pace.calls_max > 8
    assert pace.reason == pacing.NEW


def test_a_rate_limit_is_told_with_the_rate_that_it_led_to_though_such_a_call_is_no_sample(post):
    work(post, 5)
    post.turn(passing_s=1.0)
    *limited, _, _ = list(post.running.values())
    for one in limited:
        post.end(one, LIMITED)
    post.turn()
    met_at = post.clock.now()
    post.turn(passing_s=1.1)
    pace = told(post.place)[post.worker]
    assert pace.rate_per_s is not None
    assert (pace.was_per_s, pace.reason, pace.changed_at) == (None, pacing.LIMITED, met_at)
    assert pace.rises_at is not None
    assert pace.rise_per_s >= 0.004
    assert len(post.running) >= 2  # others are still out, and nobody waits for them


def test_a_second_fall_says_what_the_rate_was_before(post):
    work(post, 5)
    work(post, 1, LIMITED)
    work(post, 3)
    before = told(post.place)[post.worker].rate_per_s
    work(post, 4, failed(Kind.INVALID_REQUEST))  # nothing succeeds, so less is measured
    work(post, 1, LIMITED)
    post.turn(passing_s=1.1)
    pace = told(post.place)[post.worker]
    assert pace.rate_per_s is not None
    assert pace.was_per_s is not None
    assert before is not None
    assert pace.rate_per_s < pace.was_per_s
    assert pace.was_per_s >= before * 0.95
    assert pace.reason == pacing.LIMITED


def test_after_a_probe_let_it_flow_the_pace_says_so(post):
    work(post, 3)
    post.trip()
    post.turn(passing_s=2.5)
    post.end_all(FINE)
    post.turn()
    post.turn(passing_s=1.1)
    pace = told(post.place)[post.worker]
    assert (pace.rate_per_s, pace.reason) == (None, pacing.PROBED)


def test_a_rate_of_before_an_outage_is_told_with_the_start_that_goes_up_to_it(post):
    work(post, 5)
    work(post, 1, LIMITED)
    work(post, 8)  # until what was refused is one call of many
    post.turn(passing_s=1.1)
    before = told(post.place)[post.worker].rate_per_s
    post.trip()
    post.turn(passing_s=2.5)
    post.end_all(FINE)
    post.turn()
    post.turn(passing_s=1.1)
    pace = told(post.place)[post.worker]
    assert pace.rate_per_s == pytest.approx(before, rel=0.05)
    assert pace.reason == pacing.PROBED
    assert pace.calls_max < 20  # as slow as any start
    work(post, 2)
    assert told(post.place)[post.worker].reason == pacing.PROBED


def test_a_person_who_holds_and_releases_a_paced_gate_lets_it_start_slowly_anew(post):
    work(post, 5)
    work(post, 1, LIMITED)
    post.turn(passing_s=1.1)
    assert told(post.place)[post.worker].rate_per_s is not None
    reader, control, deed = (
        post.place.reader,
        post.place.control,
        Deed("ann", "the limit is raised"),
    )
    hold_by_person(reader, control, VENDOR, deed)
    release_by_person(reader, control, VENDOR, deed)
    post.turn(passing_s=1.1)
    post.turn(passing_s=1.1)
    pace = told(post.place)[post.worker]
    assert (pace.rate_per_s, pace.reason) == (None, pacing.RECOVERED)


def test_a_key_that_a_probe_has_proved_before_vouches_for_no_rate_of_its_upstream(either):
    """Only of what flows anew it matters how it came to that."""
    post = Post(either, stage(policy=preset("standard")), upstreams=[upstream(credential="key")])
    put(either, 500)
    work(post, 3)
    post.turn(passing_s=1.0)
    post.end(next(iter(post.running.values())), failed(Kind.QUOTA_WINDOW, wait_s=5.0))
    post.turn()
    assert gate(either, "key").state == "held"
    while gate(either, "key").state != "flowing":
        work(post, 1)
    assert gate(either, "key").is_proved
    work(post, 5)
    work(post, 1, LIMITED)
    post.turn(passing_s=1.1)
    assert told(either)[post.worker].rate_per_s is not None
    deed = Deed("ann", "the limit is raised")
    hold_by_person(either.reader, either.control, VENDOR, deed)
    release_by_person(either.reader, either.control, VENDOR, deed)
    post.turn(passing_s=1.1)
    post.turn(passing_s=1.1)
    pace = told(either)[post.worker]
    assert (pace.rate_per_s, pace.reason) == (None, pacing.RECOVERED)


def test_what_one_worker_tells_for_people_does_not_hide_its_calls_from_the_others(post):
    work(post, 3)
    post.turn(passing_s=1.1)
    (row,) = post.place.reader.look([VENDOR]).samples
    window = window_in(row.samples_json)
    assert window is not None
    assert sum(one.sign is Sign.GOOD for one in window.samples) > 0
    plain = msgspec.json.encode(window).decode()  # as a worker of an older version writes it
    assert pace_in(plain) == pacing.PaceTold()
    assert pace_in("[1]") == pacing.PaceTold()


def test_the_limits_of_an_upstream_are_told_with_the_pace(either):
    limits = UpstreamLimits(calls_per_s=5.0, concurrency=3)
    post = Post(either, upstreams=[upstream(limits=limits)])
    put(either, 50)
    work(post, 4)
    post.turn(passing_s=1.1)
    (row,) = either.reader.look([VENDOR]).samples
    assert pace_in(row.samples_json).limits == limits


def test_a_rate_that_a_limit_led_to_is_told_once(post):
    work(post, 5)
    work(post, 1, LIMITED)
    work(post, 3)
    (event,) = post.notes.of(EventName.GATE_PACED)
    assert (event["gate"], event["was_per_s"], event["reason"]) == (VENDOR, None, pacing.LIMITED)
    assert event["rate_per_s"] is not None
    assert event["rises_in_s"] > 0
    assert event["rise_per_s"] > 0


# -- the notes themselves --------------------------------------------------------------------


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def paced(rate: float | None, seconds: float, **more) -> Pace:
    return Pace(at(seconds), 4, rate_per_s=rate, in_flight=1, **more)


def test_the_noise_of_a_measurement_is_no_change_and_a_slow_decline_is_one():
    notes, settings = PaceNotes(START), PaceSettings()
    assert notes.note(paced(10.0, 1), settings, REFUSED, at(1))
    for n, rate in enumerate((10.2, 9.9, 10.4, 10.0), 2):
        assert not notes.note(paced(rate, n), settings, WELL, at(n))
    assert notes.note(paced(9.8, 9), settings, REFUSED, at(9))
    shown = notes.show(paced(9.8, 9), settings, at(9))
    assert (shown.rate_per_s, shown.was_per_s, shown.changed_at) == (9.8, 10.4, at(9))


def test_changes_by_a_quarter_are_news_and_not_sooner_than_ten_seconds_after_the_last():
    notes, settings, news = PaceNotes(START), PaceSettings(), []
    for second, rate in (
        (1, 8.0),
        (5, 4.0),
        (11, 4.0),
        (22, 4.9),
        (33, 5.0),
        (40, None),
        (44, None),
    ):
        notes.note(paced(rate, second), settings, WELL if second == 33 else REFUSED, at(second))
        told = notes.news(notes.show(paced(rate, second), settings, at(second)), at(second))
        if told is not None:
            news.append((second, told.was_per_s, told.rate_per_s, told.reason))
    assert news == [
        (1, None, 8.0, pacing.LIMITED),
        (11, 8.0, 4.0, pacing.LIMITED),
        (33, 4.0, 5.0, pacing.CLIMBED),
        (44, 5.0, None, pacing.LIMITED),
    ]


def test_room_that_must_last_is_a_rate_with_a_reason_of_its_own():
    notes, settings = PaceNotes(START), PaceSettings()
    room = Room(20, at(21))
    assert notes.note(paced(None, 1, room=room), settings, WELL, at(1))
    shown = notes.show(paced(None, 1, room=room), settings, at(1))
    assert (shown.rate_per_s, shown.reason) == (1.0, pacing.ROOM)
    assert notes.note(paced(None, 30), settings, WELL, at(30))
    assert notes.show(paced(None, 30), settings, at(30)).reason == pacing.FREE


def test_a_pace_that_stays_as_it_is_for_a_while_says_when_it_rises():
    notes, settings = PaceNotes(START), PaceSettings(quicken_s=10.0, climb_per_s=0.01)
    still = paced(5.0, 1, limit=Trouble(fell_at=at(1), still_until=at(11)), refused_per_s=5.0)
    shown = notes.show(still, settings, at(2))
    assert (shown.rises_at, shown.rise_per_s) == (at(11), 0.02)
    assert notes.show(paced(5.0, 1), settings, at(2)).rises_at is None


def test_a_pace_whose_limit_is_not_known_says_that_it_rises_soon():
    notes, settings = PaceNotes(START), PaceSettings()
    fell = Trouble(fell_at=at(1), still_until=at(3))
    shown = [
        notes.show(paced(5.0, 1, limit=fell, refused_per_s=refused), settings, at(4))
        for refused in (0.0, 5.0, 10.0)
    ]
    unknown, near, below = (one.rise_per_s for one in shown)
    assert unknown > 6 * near
    assert below > 10 * near
