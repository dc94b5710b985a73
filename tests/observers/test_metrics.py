"""What the metrics say after a run of which every number is known; on both stores, by a real pump and real gates."""

import re
from collections.abc import Iterator
from random import Random

import pytest

from perdure.app.session.metrics import alert_rules, metrics_text
from perdure.engine.attempt.captures import CaptureFactory, aside
from perdure.engine.settle import Finished
from perdure.model.events import EventName
from perdure.model.kinds import Kind
from perdure.model.limits import METRIC_CODES_MAX
from perdure.model.metrics import METRICS
from perdure.model.operations import Deed, LaneScope, Retention
from perdure.model.states import FailedReason
from perdure.model.views import DeathCount, StoreFigures
from perdure.observers.metrics import of_store
from perdure.observers.process_figures import ProcessFigures
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.policy import Policy, Rule
from perdure.stores.opening import open_store
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import crash
from perdure.testing.store_contract.fresh_store import Place
from tests.engine.gating import DOWN, FINE, VENDOR, Post, failed, put, stage
from tests.observers.scraping import Scraped, names_in, shares
from tests.stores.kit import file_in, furnished

ONCE_MORE = Policy(
    "once more",
    attempts_max=3,
    backoff=Backoff("fixed", base_s=1.0),
    jitter=Jitter("none"),
    rules={Kind.CONFIG_MISSING: Rule("fail"), Kind.RATE_LIMITED: Rule("wait")},
    otherwise=Rule("retry"),
)
WHERE = {"pipeline": "g", "stage": "one"}


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path) -> Iterator[Place]:
    """A store of each kind, on a clock that is pushed."""
    on_postgres = request.param == "postgres"
    path = f"sqlite:///{furnished(file_in(tmp_path))}"
    url, clock = request.getfixturevalue("furnished") if on_postgres else path, VirtualClock()
    opened = Place(open_store(url, clock, create=True, wait_s_max=10.0, injected=True), clock)
    yield opened
    opened.close()


@pytest.fixture
def post(place) -> Post:
    """A worker that counts what it does."""
    one = Post(place, stage(policy=ONCE_MORE))
    one.figures = ProcessFigures()
    one.pump._observers.add(one.figures, turns=one.figures.add_turn)
    return one


def scraped(post: Post) -> Scraped:
    return Scraped(metrics_text(post.place.reader.figures(), post.figures.read()).decode())


def run_of_five(post: Post) -> None:
    """Two succeed at once, two with a second attempt (one had written what does not fit), one needs a setting.

    Nine seconds of work in all; everything that is tried again waits for one.
    """
    put(post.place, 5)
    one, two, three, four, five = post.turn(passing_s=2.0)
    post.end(one, elapsed_s=0.2)
    post.end(two, elapsed_s=3.0, tokens=100)
    put_aside = CaptureFactory(post.clock, Random(1), kept_s=None).captures_of(
        FINE, [aside("{broken", "output", "text/plain")]
    )
    del post.running[three.no]
    broken = failed(Kind.INVALID_OUTPUT)
    post.finished.append(Finished(three, broken, 0.4, None, None, put_aside))
    post.end(four, failed(Kind.CONFIG_MISSING), elapsed_s=0.01)
    post.end(five, DOWN, elapsed_s=5.0)
    post.turn()
    again = post.turn(passing_s=1.0)
    assert {claim.no for claim in again} == {three.no, five.no}
    post.end_all(elapsed_s=0.5)
    post.turn()


def test_every_number_of_r102_and_r105_is_that_of_the_run(post):
    run_of_five(post)
    put(post.place, 3)  # to be seen in the line
    post.clock.push(4.0)
    seen = scraped(post)
    # R105: created, completed, failed by code, depth, retries
    assert seen("perdure_jobs_created_total", pipeline="g") == 8
    assert seen("perdure_jobs_ended_total", **WHERE, state="succeeded") == 4
    assert seen("perdure_jobs_ended_total", **WHERE, state="failed") == 1
    died_of = {"reason": "fatal", "kind": "config_missing", **WHERE}
    assert seen("perdure_jobs_failed_total", **died_of, code="config_missing") == 1
    assert seen("perdure_dead_letters", **died_of) == 1
    depth = {one["state"]: seen("perdure_jobs", **one) for one in seen.labels("perdure_jobs")}
    assert depth == {
        "ready": 3,
        "scheduled": 0,
        "retrying": 0,
        "held": 0,
        "paused": 0,
        "processing": 0,
        "succeeded": 4,
        "failed": 1,
        "cancelled": 0,
    }
    assert seen("perdure_queue_oldest_due_seconds", queue="q", state="ready") == 4
    assert seen("perdure_retries_total", **WHERE) == 2
    assert seen("perdure_tokens_total", **WHERE, direction="in") == 100
    # R105: the gateway's latency, and how it answers
    called = {one["outcome"] for one in seen.labels("perdure_upstream_call_seconds_count")}
    assert called == {"ok", "failed", "other"}
    calls = "perdure_upstream_call_seconds"
    assert (
        seen(f"{calls}_count", upstream=VENDOR, outcome="ok") == 5
    )  # what does not fit was answered
    assert seen(f"{calls}_sum", upstream=VENDOR, outcome="ok") == pytest.approx(4.6)
    assert seen(f"{calls}_bucket", upstream=VENDOR, outcome="ok", le="0.5") == 4
    assert seen(f"{calls}_bucket", upstream=VENDOR, outcome="failed", le="5.0") == 1
    assert seen(f"{calls}_count", upstream=VENDOR, outcome="failed") == 1
    # R102
    assert shares(seen, ["g"]) == pytest.approx(
        {
            "retry rate": 2 / 7,
            "final failure rate": 1 / 5,
            "mean time to success": (2.2 + 5.0 + 3.5 + 3.5) / 4,
            "share of schema failures": 1 / 7,
            "share of captures": 1 / 7,
        }
    )
    assert seen("perdure_retry_delay_seconds_sum", **WHERE) == 2
    results = {
        one["result"]: seen("perdure_attempt_seconds_count", **one)
        for one in seen.labels("perdure_attempt_seconds_count")
    }
    assert results == {"succeeded": 4, "retried": 2, "failed": 1}
    assert seen.total("perdure_attempt_seconds_count") == seen("perdure_attempts_total", **WHERE)
    assert seen("perdure_turn_seconds_count") > 3
    assert seen("perdure_workers", role="main") == 1
    assert seen("perdure_store_up") == 1


def test_no_counter_falls_when_jobs_are_pruned_live_again_or_are_discarded(post):
    run_of_five(post)
    before = scraped(post)
    (letter,) = [one for one in post.place.every_job() if one.failed_reason]
    post.place.revive(letter)
    post.clock.push(100)
    after = scraped(post)
    assert after.fallen_since(before) == []
    assert after("perdure_jobs_revived_total", **WHERE) == 1
    assert after.total("perdure_dead_letters") == 0
    kept = Retention(succeeded_s=1.0, cancelled_s=1.0, discarded_s=1.0, failed_s=1.0)
    post.place.control.prune(kept, limit=100)
    post.place.control.prune_workers(1.0, limit=100)  # adds up what was written apart
    pruned = scraped(post)
    assert pruned.fallen_since(after) == []
    assert pruned.total("perdure_jobs", state="succeeded") == 0
    assert pruned("perdure_jobs_ended_total", **WHERE, state="succeeded") == 4


def test_a_gate_tells_its_state_and_how_long_it_has_not_flowed_through_its_probes(post):
    put(post.place, 30)
    shut_at = post.trip().shut_at
    post.clock.push(30.0)
    seen = scraped(post)
    held_s = (post.clock.now() - shut_at).total_seconds()
    state = "perdure_gate_state"
    assert [seen(state, gate=VENDOR, state=one) for one in ("flowing", "held", "probing")] == [
        0,
        1,
        0,
    ]
    assert seen("perdure_gate_held_seconds", gate=VENDOR) == held_s >= 30
    assert seen.total("perdure_jobs", state="held") == 30
    assert seen.total("perdure_jobs", state="retrying") == 0
    assert seen("perdure_queue_oldest_due_seconds", queue="q", state="held") > 30
    assert seen("perdure_queue_oldest_due_seconds", queue="q", state="ready") == 0
    (probe,) = post.turn()
    probing = scraped(post)
    assert probing(state, gate=VENDOR, state="probing") == 1
    assert probing("perdure_gate_held_seconds", gate=VENDOR) == held_s
    post.end(probe, DOWN)
    post.turn(passing_s=5.0)
    assert scraped(post)("perdure_gate_held_seconds", gate=VENDOR) == held_s + 5
    while scraped(post)(state, gate=VENDOR, state="flowing") == 0:
        post.turn(passing_s=10.0)
        post.end_all()
        post.turn()
    well = scraped(post)
    assert well("perdure_gate_held_seconds", gate=VENDOR) == 0
    assert well("perdure_events_total", event="gate_changed") == 2
    assert well.total("perdure_jobs", state="held") == 0


def test_a_queue_that_a_person_has_paused_is_told_apart(post):
    put(post.place, 2)
    post.place.control.pause(LaneScope.QUEUE, "q", Deed("ann", ""))
    seen = scraped(post)
    assert seen.total("perdure_jobs", state="paused") == 2
    assert seen.total("perdure_jobs", state="ready") == 0


def test_a_late_result_is_counted_as_stale(post):
    put(post.place, 1)
    (claim,) = post.turn()
    post.place.settle(crash(claim, post.worker), by=post.place.hire())  # who took it for lost
    post.end(claim)
    post.turn()
    seen = scraped(post)
    assert seen("perdure_results_refused_total", cause="stale") == 1
    assert seen("perdure_results_refused_total", cause="unwritable") == 0
    assert seen("perdure_events_total", event="result_refused") == 1


def figures_of(*codes: str) -> StoreFigures:
    deaths = [DeathCount("p", "s", FailedReason.FATAL, "internal", one, 1, 1) for one in codes]
    return StoreFigures(VirtualClock().now(), {}, [], [], deaths, [], [])


def test_codes_beyond_the_bound_are_counted_together_and_those_that_were_first_stay():
    codes = [f"E{n:03}" for n in range(METRIC_CODES_MAX)]
    at_the_bound = Scraped(metrics_text(figures_of(*codes), {}).decode())
    assert {one["code"] for one in at_the_bound.labels("perdure_jobs_failed_total")} == set(codes)
    beyond = Scraped(metrics_text(figures_of(*codes, "A1", "A2"), {}).decode())
    shown = {one["code"] for one in beyond.labels("perdure_jobs_failed_total")}
    assert shown == {*codes, "other"}
    assert beyond.total("perdure_jobs_failed_total", code="other") == 2
    assert beyond.fallen_since(at_the_bound) == []


def test_a_store_that_does_not_answer_is_told_and_the_process_speaks_for_itself():
    figures = ProcessFigures()
    figures.add_turn(0.5)
    seen = Scraped(metrics_text(None, figures.read()).decode())
    assert seen("perdure_store_up") == 0
    assert seen("perdure_turn_seconds_count") == 1
    assert not any(name.startswith("perdure_jobs") for name in seen.families)


def test_everything_in_a_scrape_is_in_the_table_and_no_label_says_who_or_which_job(post):
    run_of_five(post)
    seen = scraped(post)
    table = {one.name.removesuffix("_total"): one for one in METRICS}
    assert seen.families <= set(table)
    missing = set(table) - seen.families
    assert missing == {"perdure_gate_state", "perdure_gate_held_seconds"}  # it never left flowing
    by_sample = {
        name + suffix: one
        for name, one in table.items()
        for suffix in ("", "_total", "_bucket", "_count", "_sum")
    }
    for name, labels in seen.values:
        assert {label for label, _ in labels} - {"le"} == set(by_sample[name].labels), name
    ids = {job.id for job in post.place.every_job()}
    assert not any(id in seen.text for id in ids)
    assert "as the test says" not in seen.text  # the message of a failure
    assert set(of_store(post.place.reader.figures(), {})) == {
        one for one in METRICS if one.source == "store" and one.name != "perdure_store_up"
    }


def test_every_metric_and_bound_that_an_alert_rule_names_is_in_a_real_scrape(post):
    run_of_five(post)
    put(post.place, 30)
    post.trip()
    seen, rules = scraped(post), alert_rules()
    assert {one.removesuffix("_total") for one in names_in(rules)} - seen.families == set()
    bounds = set(re.findall(r'\ble="([^"]+)"', rules))
    assert bounds <= {one["le"] for one in seen.labels("perdure_time_to_success_seconds_bucket")}


def test_what_is_no_every_day_event_is_there_from_the_beginning():
    seen = Scraped(metrics_text(None, ProcessFigures().read()).decode())
    told = {one["event"] for one in seen.labels("perdure_events_total")}
    assert {EventName.GATE_ALERT, EventName.WORKER_LOST, EventName.STORE_AWAY} <= told
    assert EventName.JOB_CLAIMED not in told
