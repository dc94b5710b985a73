"""The verifier's tries: how often, after which waits, in which order, and what a run shows of it."""

import itertools
import json
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest
from examples.verifier.app import Poll, make_verifier, policy_of
from examples.verifier.errors import Variant, VerifyError
from examples.verifier.runs import all_runs, in_line, last_polls, reset
from examples.verifier.samples import VERDICTS
from examples.verifier.settings import read_settings

from perdure import JobFailed
from tests.examples.converter_kit import until
from tests.examples.verifier_kit import NOW, VerifierTrial, verifier_trial

PUBLISHED_S = [60, 120, 240, 480, 960, 1920, 3600]
QUICK = {"initial_backoff": 0.05, "max_backoff": 0.2}


@pytest.fixture
def trial(tmp_path):
    with verifier_trial(tmp_path, concurrency=1) as trial:
        yield trial


def tries(trial: VerifierTrial, run_id: str, stage: str) -> list:
    return [one for one in trial.job(run_id).attempts() if one.stage == stage]


def test_eight_tries_with_the_published_waits_and_then_it_is_permanent(trial):
    trial.submit("r1")
    trial.order({"path": "/api/runs/r1", "status": 503, "count": 99})
    trial.discover()
    with trial.working():
        for failures in range(1, 8):
            until("it has failed", lambda n=failures: trial.row("r1").retry_count == n)
            row = trial.row("r1")
            assert (row.status, row.error_class) == ("error", "retryable")
            assert row.next_retry_at > row.updated_at
            trial.job("r1").run_now()
        until("it is permanent", lambda: trial.row("r1").next_retry_at is None)
        row = trial.until_status("r1", "error")
    assert [one.delay_s for one in tries(trial, "r1", "look_up")] == [*PUBLISHED_S, None]
    assert (row.retry_count, row.error_class) == (7, "retryable")
    assert trial.job("r1").view().failed_reason == "exhausted"
    assert len(trial.calls("/api/runs/r1")) == 8


def test_a_hint_is_taken_exactly_and_does_not_count_and_without_one_the_backoff_does(trial):
    trial.submit("hinted")
    trial.submit("bare")
    trial.order(
        {"path": "/files/hinted.save", "status": 429, "retry_after": "7200"},
        {"path": "/files/bare.save", "status": 429},
    )
    trial.discover()
    with trial.working():
        hinted, bare = (trial.until_status(one, "error") for one in ("hinted", "bare"))
    assert {hinted.error_class, bare.error_class} == {"rate_limited"}
    assert (hinted.retry_count, bare.retry_count) == (0, 1)
    assert hinted.next_retry_at - hinted.updated_at == timedelta(seconds=7200)
    assert bare.next_retry_at - bare.updated_at == timedelta(seconds=60)
    assert [one.counted for one in tries(trial, "hinted", "download")] == ["waits"]
    assert [one.counted for one in tries(trial, "bare", "download")] == ["failures"]


def test_hints_have_an_end(trial):
    trial.submit("r1")
    trial.submit("r2")
    trial.order(
        {"path": "/api/runs/r1", "status": 429, "retry_after": "0.02", "count": 99},
        {"path": "/api/runs/r2", "status": 429, "retry_after": "86401"},
    )
    trial.discover()
    with trial.working():
        for one in ("r1", "r2"):
            with pytest.raises(JobFailed):
                trial.job(one).result()
    assert len(trial.calls("/api/runs/r1")) == 21  # twenty waits, and no more
    assert trial.row("r1").next_retry_at is None
    assert len(trial.calls("/api/runs/r2")) == 1  # nobody waits for more than a day


def test_a_retry_that_succeeds_clears_the_retry_fields_and_its_attempts_stay(trial):
    trial.submit("r1")
    trial.order({"path": "/files/r1.save", "status": 503})
    trial.discover()
    with trial.working():
        trial.until_status("r1", "error")
        trial.job("r1").run_now()
        row = trial.until_status("r1", "passed")
    assert (row.error_class, row.error_message, row.next_retry_at, row.retry_count) == (
        None,
        None,
        None,
        0,
    )
    assert [one.kind for one in tries(trial, "r1", "download")] == ["upstream_unavailable", None]
    assert len(tries(trial, "r1", "look_up")) == 1  # what is done is not done again


def test_a_retry_that_begins_is_not_due_any_more_and_keeps_its_count(trial):
    trial.submit("r1")
    trial.order({"path": "/files/r1.save", "status": 503}, {"path": "/files/r1.save", "hold": True})
    trial.discover()
    with trial.working():
        trial.until_status("r1", "error")
        trial.job("r1").run_now()
        row = trial.until_status("r1", "processing")
        assert (row.retry_count, row.next_retry_at, row.error_class) == (1, None, None)
        assert in_line(trial.verifier) == []
        trial.order()
        trial.until_status("r1", "passed")


def test_a_retry_that_falls_due_is_tried_without_anything_new(tmp_path):
    with verifier_trial(tmp_path, retry=QUICK) as trial:
        trial.submit("r1")
        trial.order({"path": "/api/runs/r1", "status": 503, "count": 3})
        trial.discover()
        with trial.working():
            assert trial.until_status("r1", "passed").retry_count == 0
        assert len(trial.calls("/api/runs/r1")) == 4


def test_new_runs_and_due_retries_are_taken_in_the_order_of_their_submission(tmp_path):
    """The document's example: the oldest is a retry that is due, one retry is not due yet."""
    slow = {"initial_backoff": 3600}
    with verifier_trial(tmp_path, concurrency=1, retry=slow) as trial:
        trial.submit("oldest", hours_ago=96)
        trial.submit("not due", hours_ago=24)
        trial.order(*({"path": f"/api/runs/{one}", "status": 503} for one in ("oldest", "not due")))
        trial.discover()
        with trial.working():
            for one in ("oldest", "not due"):
                trial.until_status(one, "error")
        trial.submit("newer", hours_ago=25)
        trial.submit(
            "gems", "all the gems", hours_ago=24.5
        )  # of another category, and in the same line
        trial.submit("new", hours_ago=48)
        trial.discover()
        trial.job("oldest").run_now()
        line = ["oldest", "new", "newer", "gems", "not due"]
        assert [one.run_id for one in in_line(trial.verifier)] == line
        before = len(trial.calls("/api/runs/"))
        with trial.working():
            for one in line[:-1]:
                trial.until_status(one, "passed")
        looked_up = trial.calls("/api/runs/")[before:]
        assert [one for one, _ in itertools.groupby(looked_up)] == line[:-1]
        assert trial.row("not due").status == "error"


def test_only_allowed_categories_are_discovered_and_only_served_ones_verified(tmp_path):
    with verifier_trial(tmp_path) as trial:
        trial.submit("r1")
        trial.submit("r2", "all the gems")
        trial.discover()
        with trial.working(categories=["burrow/all-gems"]):
            trial.until_status("r2", "passed")
        assert trial.row("r1").status == "discovered"
        trial.submit("r3")
        with (
            verifier_trial(tmp_path, trial.service, games={"burrow": ["all-gems"]}) as narrow,
            narrow.working(),
        ):
            narrow.discover()
            narrow.submit("r4", "all the gems")
            narrow.discover()
            narrow.until_status("r4", "passed")
            rows = {row.run_id: row.status for row in all_runs(narrow.verifier)}
        assert rows == {"r1": "discovered", "r2": "passed", "r4": "passed"}


def test_pages_are_read_to_the_end_and_a_run_is_found_once(trial):
    for number in range(23):
        trial.submit(f"r{number}", hours_ago=number)
    trial.submit("ancient", hours_ago=24 * 31)
    assert trial.discover() == 23
    assert trial.discover() == 0
    assert trial.calls("/api/runs") == [""] * 8  # three pages and one, twice
    rows = list(all_runs(trial.verifier))
    assert {row.status for row in rows} == {"discovered"}
    assert {row.run_id: row.submitted_date for row in rows} == {
        one.run_id: one.submitted_date
        for one in trial.submitted.values()
        if one.run_id != "ancient"
    }


def page_of(*runs: dict, following: int | None = None) -> str:
    """A page of runs that are good but for what is said of them."""
    good = {"game": "burrow", "category": "any%", "submitted_date": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}
    listed = [{"id": f"listed {n}", **good, **run} for n, run in enumerate(runs)]
    return json.dumps({"runs": listed, "next": following})


def test_a_page_that_cannot_be_had_is_of_the_class_of_its_fault_and_loses_nothing(trial):
    for number in range(12):
        trial.submit(f"r{number}")
    for fault, variant in (
        ({"status": 503}, Variant.API_NETWORK),
        ({"status": 429, "retry_after": "9"}, Variant.LIMITED),
        ({"body": "{"}, Variant.API_PARSE),
        ({"body": '{"runs": 3}'}, Variant.API_PARSE),
        ({"body": page_of({}, following=1)}, Variant.API_PARSE),
        ({"body": page_of({}, following=0)}, Variant.API_PARSE),
        ({"body": page_of({}, following=10_001)}, Variant.API_PARSE),
    ):
        trial.order({"path": "/api/runs", **fault})
        with pytest.raises(VerifyError) as caught:
            trial.discover()
        assert caught.value.variant is variant
    trial.discover()
    assert len(list(all_runs(trial.verifier))) == 13  # the one of the strange pages, too


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "r#2"},
        {"id": "r2\n"},
        {"id": None},
        {"submitted_date": "2026-11-01T00:00:00"},
        {"submitted_date": "9999-11-01T00:00:00Z"},
        {"submitted_date": "0001-01-01T00:00:00Z"},
    ],
)
def test_an_entry_that_cannot_be_used_is_skipped_and_told(trial, wrong):
    trial.order({"path": "/api/runs", "body": page_of({"id": "r1"}, wrong, {"id": "r3"})})
    poll = trial.verifier.read(Poll("burrow", "any%"))
    assert {row.run_id for row in all_runs(trial.verifier)} == {"r1", "r3"}
    assert (poll.listed, poll.discovered, len(poll.skipped)) == (3, 2, 1)
    assert repr(next(iter(wrong.values()))) in poll.skipped[0]


def polling(trial: VerifierTrial):
    for pair, polls in trial.verifier.polls.items():
        polls.enqueue(Poll(*pair))
    return trial.verifier.app.working(poll_s=0.05, queues=["polls"])


def test_a_service_with_fewer_calls_a_window_than_pages_is_read_to_the_end(tmp_path):
    with verifier_trial(tmp_path, games={"burrow": ["any%"]}) as trial:
        for number in range(33):
            trial.submit(f"r{number:02}", hours_ago=number)
        refused = {"path": "/api/runs", "status": 429, "retry_after": "0.1"}
        for following in (2, 3):
            listed = page_of({"id": f"before {following}"}, following=following)
            trial.order({"path": "/api/runs", "body": listed}, refused)
        with polling(trial):
            until("all is read", lambda: len(list(all_runs(trial.verifier))) == 15)
        # Page 3 is asked for after page 2, and page 4 after it; nothing is asked for twice but what was refused.
        pages = {f"r{number:02}" for number in range(13)}
        found = {row.run_id for row in all_runs(trial.verifier)}
        assert found == {"before 2", "before 3", *pages}
        assert len(trial.calls("/api/runs")) == 6
        until("its end is told", lambda: '"page":null' in last_polls(trial.verifier)["burrow/any%"])
        assert '"listed":15,"discovered":15' in last_polls(trial.verifier)["burrow/any%"]


def test_a_category_that_is_not_there_keeps_no_other_from_being_found(trial):
    trial.submit("gems", "all the gems")
    trial.order({"path": "/api/runs", "status": 404})
    with polling(trial):
        until("both have ended", lambda: "under way" not in str(last_polls(trial.verifier)))
    told = last_polls(trial.verifier)
    assert "failed: api.not_found: api/runs is answered with 404" in told["burrow/any%"]
    assert '"discovered":1' in told["burrow/all-gems"]
    assert [row.run_id for row in all_runs(trial.verifier)] == ["gems"]


def test_a_run_that_ends_with_a_wait_has_had_a_retry_for_each_failure(tmp_path):
    with verifier_trial(tmp_path, retry=QUICK) as trial:
        for one in ("waited", "failed"):
            trial.submit(one)
            trial.order({"path": f"/api/runs/{one}", "status": 503, "count": 2})
        hinted = {"status": 429, "retry_after": "0.02"}
        trial.order(
            {"path": "/api/runs/waited", **hinted, "count": 99},
            {"path": "/api/runs/failed", **hinted},
            {"path": "/api/runs/failed", "status": 404},
        )
        trial.discover()
        with trial.working():
            for one in ("waited", "failed"):
                until(f"{one} is permanent", lambda name=one: trial.row(name).has_ended)
        assert trial.row("waited").retry_count == 2
        assert trial.row("failed").retry_count == 2  # and the last was the third failure


def test_the_queue_is_told_in_the_order_in_which_it_is_taken(trial):
    trial.submit("mended", "no save", hours_ago=96)
    trial.discover()
    with trial.working():
        trial.until_status("mended", "error")
    trial.submit("mended", hours_ago=96)
    for one in ("b", "a"):  # of the same date
        trial.verifier.enqueue(trial.submit(one, hours_ago=48))
    reset(trial.verifier, trial.row("mended"), clear_error=False)
    line = [one.run_id for one in in_line(trial.verifier)]
    before = len(trial.calls("/api/runs/"))
    with trial.working():
        for one in line:
            trial.until_status(one, "passed")
    assert line == [one for one, _ in itertools.groupby(trial.calls("/api/runs/")[before:])]
    assert line == ["b", "a", "mended"]  # a reset stands in line as if it were new


def test_a_poll_goes_before_runs_though_these_are_older(trial):
    trial.submit("r1", hours_ago=24 * 29)
    trial.discover()
    assert last_polls(trial.verifier) == {}
    job = trial.verifier.polls["burrow", "any%"].enqueue(Poll("burrow", "any%"))
    with trial.verifier.app.working(poll_s=0.05):
        assert (job.result()["listed"], job.result()["discovered"]) == (1, 0)
        trial.until_status("r1", "passed")
    assert trial.calls("/api/runs")[2:] == ["", "/r1"]
    (said,) = last_polls(trial.verifier).values()
    assert "succeeded: " in said
    assert '"listed":1,"discovered":0,"skipped":[]' in said


@pytest.mark.parametrize("sort", VERDICTS)
def test_a_verdict_is_a_result_and_no_error(shared, sort):
    row = shared.until_status(sort, "passed", "needs_review", "failed", "error")
    assert row.status == VERDICTS[sort]
    view = shared.job(sort).view()
    assert (view.state, view.label) == ("succeeded", VERDICTS[sort])
    assert shared.job(sort).result()["player"] == "player 3"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A run of each sort that has a verdict, verified by one worker."""
    with verifier_trial(tmp_path_factory.mktemp("verdicts"), concurrency=4) as trial:
        for sort in VERDICTS:
            trial.submit(sort, sort)
        trial.discover()
        with trial.working():
            for sort in VERDICTS:
                trial.job(sort).wait()
        yield trial


def test_what_waits_is_there_again_when_the_store_is_opened_again(trial):
    trial.submit("r1")
    trial.order({"path": "/api/runs/r1", "status": 503})
    trial.discover()
    with trial.working():
        before = trial.until_status("r1", "error")
    trial.verifier.close()
    again = make_verifier(*read_settings())
    assert list(all_runs(again)) == [before]
    again.close()
    with closing(sqlite3.connect(trial.folder / "verifier.db")) as store:
        ((kept,),) = store.execute("SELECT due_at - updated_at FROM perdure_jobs").fetchall()
    assert kept == 60_000_000


def test_the_four_numbers_of_the_file_make_the_policy(tmp_path):
    numbers = {
        "max_attempts": 3,
        "initial_backoff": 5,
        "max_backoff": 40,
        "backoff_multiplier": 3.0,
    }
    with verifier_trial(tmp_path, service="http://127.0.0.1:9", retry=numbers):
        policy = policy_of(read_settings()[0])
    backoff = policy.backoff
    assert (policy.attempts_max, backoff.base_s, backoff.cap_s, backoff.factor) == (3, 5, 40, 3)
    assert (policy.jitter.spread, policy.scope) == ("none", "job")
