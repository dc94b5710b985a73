"""What becomes of a file in the converter: codes, tries and their spacing, its states and fields, its result."""

import threading
from io import BytesIO

import psycopg
import pytest
from examples.converter.app import make_converter
from examples.converter.files import write_atomically
from psycopg.rows import dict_row

from perdure import AttemptView, JobRef
from tests.examples.converter_kit import FAR_S, Trial, figures_of, hold, pdf_of, settings_in, until


def tried(job: JobRef, times: int) -> list[AttemptView]:
    """The attempts of a job, once there are so many and it waits or has ended."""
    until(
        f"there are {times} attempts",
        lambda: len(job.attempts()) == times and job.state != "processing",
    )
    return job.attempts()


def run_through(trial: Trial, text: str) -> tuple[JobRef, list[AttemptView]]:
    """A file that is tried to its end without waiting; the waits are those that were decided."""
    job = trial.job(trial.user().upload(pdf_of(text)))
    while tried(job, len(job.attempts()) or 1) and job.state == "queued":
        seen = len(job.attempts())
        job.run_now()
        tried(job, seen + 1)
    return job, job.attempts()


def converter_row(trial: Trial, job_id: str) -> dict:
    """A job under the converter's own names."""
    with psycopg.connect(trial.database_url, row_factory=dict_row) as cx:
        statement = "SELECT * FROM perdure_converter_jobs WHERE id = %s"
        return cx.execute(statement, (job_id,)).fetchone()


def events_of(trial: Trial, job_id: str) -> list[str]:
    with psycopg.connect(trial.database_url) as cx:
        statement = "SELECT event FROM perdure_job_events WHERE job_id = %s ORDER BY at_us"
        return [event for (event,) in cx.execute(statement, (job_id,))]


# -- codes -----------------------------------------------------------------------------------

FINAL = {
    "a 400 of the gateway": ({"status": 400, "code": "VALIDATION_ERROR"}, "GW_4XX"),
    "a mapping that is not there": ({"status": 400, "code": "INVALID_MAPPING"}, "GW_4XX"),
    "a 404, which is no 5xx": ({"status": 404, "code": "X"}, "GW_4XX"),
    "a 422, whose own code stays inside": ({"status": 422, "code": "VALIDATION_ERROR"}, "GW_4XX"),
    "a 429": ({"status": 429, "code": "X"}, "GW_4XX"),
    "an internal code behind a 500": ({"status": 500, "code": "PARSE_ERROR"}, "GW_4XX"),
    "a 413": ({"status": 413, "code": "X"}, "TOO_LARGE"),
    "half an answer": ({"body": "<document><page>"}, "GW_4XX"),
    "another answer": ({"body": "<html/>"}, "GW_4XX"),
}
PASSING = {
    "a 500": ({"status": 500, "code": "X"}, "GW_5XX"),
    "a 502": ({"status": 502, "code": "X"}, "GW_5XX"),
    "a gateway that says it is away": ({"status": 503, "code": "GW_UNAVAILABLE"}, "GW_5XX"),
    "a 504": ({"status": 504, "code": "X"}, "GW_TIMEOUT"),
    "memory that ran out": ({"status": 500, "code": "MEMORY_ERROR"}, "IO_ERROR"),
}


@pytest.mark.parametrize(("orders", "code"), FINAL.values(), ids=list(FINAL))
def test_what_cannot_get_better_is_tried_once(orders, code, converter):
    converter.order(**orders)
    job, attempts = run_through(converter, f"final {orders}")
    assert (job.state, [one.code for one in attempts]) == ("failed", [code])


@pytest.mark.parametrize(("orders", "code"), PASSING.values(), ids=list(PASSING))
def test_what_may_pass_is_tried_three_times_with_the_waits_of_the_formula(orders, code, converter):
    converter.order(**orders)
    job, attempts = run_through(converter, f"passing {orders}")
    assert (job.state, [one.code for one in attempts]) == ("failed", [code] * 3)
    first, second, last = (one.delay_s for one in attempts)
    assert 5.0 <= first <= 10.0  # 5000 ms · 2^0 + up to 5000 ms
    assert 10.0 <= second <= 15.0  # 5000 ms · 2^1 + up to 5000 ms
    assert last is None
    assert job.view().failed_reason == "exhausted"


def test_a_gateway_that_does_not_answer_is_a_timeout_and_one_that_is_away_is_gw_5xx(
    make_converter_trial,
):
    with make_converter_trial(GATEWAY_TIMEOUT_MS="300") as trial:
        trial.order(hang=True)
        with trial.working():
            job = trial.job(trial.user().upload(pdf_of("hanging")))
            (timeout,) = tried(job, 1)
            assert (timeout.code, timeout.status) == ("GW_TIMEOUT", "retrying")
            assert timeout.elapsed_s >= 0.29
            assert 5.0 <= timeout.delay_s <= 10.0
        nowhere = make_converter(
            settings_in({**trial.environment, "GATEWAY_URL": "http://127.0.0.1:1"})
        )
        with nowhere.app.working(poll_s=0.05):
            job.run_now()
            _, refused = tried(job, 2)
            assert (refused.code, refused.kind, refused.status) == ("GW_5XX", "network", "retrying")
            assert 10.0 <= refused.delay_s <= 15.0
        nowhere.close()


def test_the_spread_of_the_waits_is_added_and_never_subtracted(converter):
    ann = converter.user()
    good = converter.job(ann.upload(pdf_of("not all of the calls fail")))
    until("it is complete", lambda: good.state == "succeeded")
    converter.order(status=502, code="X")
    jobs = [converter.job(ann.upload(pdf_of(f"spread {n}"))) for n in range(20)]
    waits = [tried(job, 1)[0].delay_s for job in jobs]
    assert all(5.0 <= one <= 10.0 for one in waits)
    assert len(set(waits)) > 10
    assert max(waits) > 6.0  # all of 20 are in the lowest fifth once in 10^14 runs


def test_what_costs_no_try_is_not_shown_as_one(converter):
    ann = converter.user()
    hold(converter)
    job = converter.job(ann.upload(pdf_of("put off"), "put off.pdf"))
    try:
        for times in range(1, 5):
            converter.order(hang=True, status=502, code="X")
            hold(converter, release=True)
            until("it is tried", lambda: hurried(converter, job).state == "processing")
            told = ann.jobs()[job.id]
            assert (told["attemptCount"], told["maxAttempts"]) == (1, 3)
            assert "Try 1 of 3" in ann.get("/").text
            hold(converter)
            converter.order()  # lets it go, and it fails
            assert tried(job, times)[-1].status == "waiting"
            told = ann.jobs()[job.id]
            assert (told["attemptCount"], told["error"]["code"]) == (0, "GW_5XX")
            assert "Put off: The converter has a problem." in ann.get("/").text
    finally:
        hold(converter, release=True)
    until("it is complete", lambda: hurried(converter, job).state == "succeeded")
    assert ann.jobs()[job.id]["attemptCount"] == 1


def hurried(trial: Trial, job: JobRef) -> JobRef:
    """The same job, which is due now if it waits."""
    trial.converter.app.jobs.run_now(pipeline="conversions")
    return job


def test_a_source_that_is_gone_fails_its_job_in_words_without_a_path(converter):
    converter.order(status=502, code="X", count=1)
    ann = converter.user()
    job = converter.job(ann.upload(pdf_of("gone")))
    tried(job, 1)
    converter.converter.files.source(job.view().key).unlink()
    job.run_now()
    tried(job, 2)
    told = ann.jobs()[job.id]
    assert (told["status"], told["error"]["code"], told["retryable"]) == (
        "failed",
        "IO_ERROR",
        False,
    )
    page = ann.get("/").text
    assert str(converter.uploads) not in page
    assert "The PDF is no longer kept: upload it again" in page
    assert "Try again in a moment" not in page


def test_a_folder_that_cannot_be_used_is_io_error_and_tried_again_and_no_fault_of_the_gateway(
    make_converter_trial,
):
    far = {"CIRCUIT_WINDOW": "1", "RETRY_BASE_DELAY_MS": "600000"}  # no try but those by hand
    with make_converter_trial(**far) as trial, trial.working():
        ann = trial.user()
        trial.order(hang=True)
        job = trial.job(ann.upload(pdf_of("no folder")))
        until("it is in work", lambda: job.state == "processing")
        away = trial.results.rename(trial.results.with_name("away"))
        trial.order()  # lets it go, and it cannot be written
        tried(job, 1)
        told = ann.jobs()[job.id]
        assert (told["status"], told["error"]["code"]) == ("queued", "IO_ERROR")
        away.rename(trial.results)
        away = trial.uploads.rename(trial.uploads.with_name("away"))
        job.run_now()
        assert [(one.code, one.status) for one in tried(job, 2)] == [("IO_ERROR", "retrying")] * 2
        assert trial.converter.app.gate("gateway").flows  # one failure of its own would hold it
        away.rename(trial.uploads)
        job.run_now()
        until("it is complete", lambda: job.state == "succeeded")
        away = trial.results.rename(trial.results.with_name("away"))
        answer = ann.get(f"/api/jobs/{job.id}/download")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "IO_ERROR")
        away.rename(trial.results)
        assert ann.get(f"/api/jobs/{job.id}/download").status_code == 200


def test_a_pdf_that_cannot_be_read_is_io_error_and_tried_again(make_converter_trial):
    with make_converter_trial(RETRY_BASE_DELAY_MS="600000") as trial:
        job = trial.job(trial.user().upload(pdf_of("unreadable")))
        source = trial.converter.files.source(job.view().key)
        aside = source.rename(source.with_name("aside"))
        source.mkdir()  # which cannot be read as a file
        with trial.working():
            assert [(one.code, one.status) for one in tried(job, 1)] == [("IO_ERROR", "retrying")]
            source.rmdir()
            aside.rename(source)
            job.run_now()
            until("it is complete", lambda: job.state == "succeeded")


def test_while_a_file_waits_for_its_next_try_its_error_and_its_time_can_be_read(converter):
    converter.order(status=502, code="X")
    ann = converter.user()
    job = converter.job(ann.upload(pdf_of("waiting"), "waiting.pdf"))
    tried(job, 1)
    told = ann.jobs()[job.id]
    assert (told["status"], told["attemptCount"], told["error"]["code"]) == ("queued", 1, "GW_5XX")
    assert told["retryAfter"] > told["updatedAt"]
    page = ann.get("/").text
    assert "Try 1 of 3 failed: The converter has a problem." in page
    assert f'Next try at <time datetime="{told["retryAfter"]}"' in page


# -- fields and states -----------------------------------------------------------------------


def test_a_file_that_waits_is_passed_over_and_a_newer_one_goes_first(converter):
    converter.order(status=502, code="X", count=1)
    ann = converter.user()
    early = converter.job(ann.upload(pdf_of("early")))
    tried(early, 1)
    late = ann.upload(pdf_of("late"))
    until("the newer one is complete", lambda: ann.status(late) == "complete")
    row = converter_row(converter, early.id)
    assert (row["status"], row["attemptCount"]) == ("queued", 1)


def test_a_job_has_the_document_s_fields_through_its_life(converter):
    converter.order(hang=True, status=502, code="X", count=1)
    job = converter.job(converter.user().upload(pdf_of("a life")))
    until("it is in work", lambda: job.state == "processing")
    working = converter_row(converter, job.id)
    assert working["attemptCount"] == 1
    assert working["leased_by"]
    assert working["lease_expires_at"] > working["lastAttemptAt"] == working["started_at"]
    converter.order()  # lets it go, and it fails
    until("it waits", lambda: job.state == "queued" and job.attempts())
    waiting = converter_row(converter, job.id)
    assert (waiting["status"], waiting["leased_by"], waiting["lease_expires_at"]) == (
        "queued",
        None,
        None,
    )
    assert waiting["retryAfter"] > waiting["updated_at"] > working["updated_at"]
    job.run_now()
    until("it is complete", lambda: job.state == "succeeded")
    done = converter_row(converter, job.id)
    assert (done["status"], done["attemptCount"], done["leased_by"]) == ("complete", 2, None)
    assert done["started_at"] == working["started_at"] < done["lastAttemptAt"]
    assert (done["errorCode"], done["deadLetter"]) == (None, 0)
    assert [one for one in events_of(converter, job.id) if one != "run job now"] == [
        "queued", "processing", "retry", "processing", "complete",
    ]  # fmt: skip


def test_a_failed_job_is_a_dead_letter_with_its_reason(converter):
    converter.order(status=400, code="X")
    job, _ = run_through(converter, "dead")
    row = converter_row(converter, job.id)
    assert (row["status"], row["deadLetter"], row["failedReason"]) == ("failed", 1, "fatal")
    assert events_of(converter, job.id) == ["queued", "processing", "failed"]
    dead = converter.converter.app.dead
    assert job.id in {one.id for one in dead.list(limit=1_000)}
    dead.discard(key=job.view().key, reason="looked at")  # and when it ended stays
    assert converter_row(converter, job.id)["endedAt"] == row["endedAt"]


# -- results ---------------------------------------------------------------------------------


def test_each_attempt_writes_its_own_file_and_only_that_of_the_record_is_served(converter):
    ann = converter.user()
    job = converter.job(ann.upload(pdf_of("two writers")))
    until("it is complete", lambda: job.state == "succeeded")
    # A worker that was taken for dead and comes back late: its token is another, and so is its file.
    late = converter.results / f"{job.view().key}.99.xml"
    write_atomically(late, BytesIO(b"<document>late</document>"))
    served = ann.get(f"/api/jobs/{job.id}/download").content
    assert served != late.read_bytes()
    assert job.result()["xml"] == f"{job.view().key}.1.xml"
    ann.delete(f"/api/jobs/{job.id}")
    assert not late.exists()


def test_a_result_is_there_whole_or_not_at_all(tmp_path):
    path, whole = tmp_path / "a.xml", [letter * 200_000 for letter in (b"a", b"b")]
    write_atomically(path, BytesIO(whole[0]))
    seen, over = set(), threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    for turn in range(50):
        write_atomically(path, BytesIO(whole[turn % 2]))
    over.set()
    reader.join(FAR_S)
    assert seen <= set(whole)
    (tmp_path / "folder.xml").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(tmp_path / "folder.xml", BytesIO(b"x"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.xml", "folder.xml"]


# -- figures ---------------------------------------------------------------------------------


def test_the_metrics_of_the_document_are_told(converter):
    before, ann = figures_of(converter), converter.user()
    done = ann.upload(pdf_of("counted"))
    until("it is complete", lambda: ann.status(done) == "complete")
    converter.order(status=400, code="X")
    run_through(converter, "counted, and bad")
    converter.order(status=502, code="X")
    tried(converter.job(ann.upload(pdf_of("counted, and tried again"))), 1)
    after = figures_of(converter)

    def more(name: str, **labels: str) -> float:
        return after.total(name, **labels) - before.total(name, **labels)

    conversions = {"pipeline": "conversions"}
    assert more("perdure_jobs_created_total", **conversions) == 3
    assert more("perdure_jobs_ended_total", **conversions, state="succeeded") == 1
    assert more("perdure_jobs_failed_total", **conversions, code="GW_4XX") == 1
    assert after.total("perdure_jobs", **conversions, state="retrying") == 1
    assert more("perdure_retries_total", **conversions) == 1
    assert more("perdure_upstream_call_seconds_count", upstream="gateway") >= 3
    assert after.fallen_since(before) == []
