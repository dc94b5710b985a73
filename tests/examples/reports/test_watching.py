"""What operators have: five numbers, good logs, orphans by name, and a retry that is theirs alone."""

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from uuid import uuid4

import psycopg
import pytest
from examples.reports.faults import FAULTS, Fault
from tests.stories.kit import until

from perdure import State

TIMES = (
    "SELECT extract(epoch FROM processed_at - queued_at) AS s FROM files WHERE status = 'succeeded'"
)

WAITING = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'UPDATE files%'"


def open_jobs(reports) -> list:
    jobs = reports.app.jobs
    return [one for state in (State.QUEUED, State.PROCESSING) for one in jobs.list(state=state)]


def waiting(reports) -> int:
    """How many of those who change files wait for somebody else."""
    with reports.files.database() as connection:
        (row,) = connection.execute(WAITING)
    return int(row["n"])


def test_five_numbers_are_those_of_the_jobs_and_files(working):
    for faults in ([], [FAULTS["500"]], [FAULTS["wrong schema"]], [FAULTS["cut-off JSON"]]):
        id = working.upload(*faults)
        working.ended(id)
    with working.files.database() as connection:  # the last is of a time that is not looked at
        connection.execute(
            "UPDATE files SET processed_at = now() - interval '40 days' WHERE id = %s", (id,)
        )
    until("all have ended", lambda: not open_jobs(working), within_s=60.0)
    told = working.get("/api/monitoring", "", "read_all").json()
    jobs = list(working.app.jobs.list(pipeline="reports", limit=500))
    tries = [each for one in jobs for each in working.app.job(one.id).attempts()]
    retried = [one for one in tries if one.status.value == "retrying"]
    with working.files.database() as connection:
        times = [float(row["s"]) for row in connection.execute(TIMES)]
        lately = list(
            connection.execute("SELECT * FROM files WHERE processed_at > now() - interval '1 day'")
        )
    assert id not in [str(one["id"]) for one in lately]
    failed = [one["error_code"] for one in lately if one["status"] == "failed"]
    misfits = failed.count("schema_validation_failed")
    captured = sum(one["raw_output"] is not None for one in lately)
    assert told == {
        "retry_rate": pytest.approx(len(retried) / len(tries), abs=1e-4),
        "final_failure_rate": pytest.approx(len(failed) / len(lately), abs=1e-4),
        "mean_time_to_succeeded_s": pytest.approx(sum(times) / len(times), abs=1e-3),
        "schema_failure_share": pytest.approx(misfits / len(lately), abs=1e-4),
        "raw_output_capture_share": pytest.approx(captured / len(lately), abs=1e-4),
    }
    assert min(told.values()) > 0


def test_a_retry_can_be_read_in_the_log_to_the_millisecond(working, caplog):
    with caplog.at_level(logging.INFO, logger="perdure"):
        id = working.upload(FAULTS["500"])
        working.ended(id)
    job = working.row(id)["job_id"]
    lines = [one for one in caplog.records if one.perdure.get("job_id") == job]
    (retried,) = [one for one in lines if one.perdure_event == "job_retried"]
    (tried, *_) = [one for one in working.attempt_views(id) if one.status.value == "retrying"]
    fields = retried.perdure
    assert (fields["failures"], fields["attempts_max"]) == (1, 4)
    assert (fields["error_code"], fields["upstream_status"]) == ("llm_provider_5xx", 500)
    assert fields["request_id"] == working.row(id)["name"]
    assert fields["delay_ms"] == pytest.approx(tried.delay_s * 1000, abs=1)
    assert abs((tried.due_at - tried.settled_at).total_seconds() - tried.delay_s) < 0.01


def test_users_cannot_run_a_job_again_and_an_operator_can(working):
    id = working.upload(FAULTS["wrong schema"])
    assert working.ended(id)["status"] == "failed"
    for path in (f"/api/files/{id}/retry", f"/api/files/{id}"):
        answer = working.front.post(path, headers=working.headers())
        assert answer.status_code in (404, 405)
    job = working.row(id)["job_id"]
    mounted = working.front.post(
        f"/perdure/api/jobs/{job}/retry", json={}, headers=working.headers()
    )
    assert mounted.status_code == 403
    working.job(id).retry(from_stage="ask", reason="the prompt was mended", by="operator")
    until("the file follows", lambda: working.row(id)["status"] == "succeeded", within_s=60.0)
    assert working.row(id)["raw_output"] is None


def test_a_retry_is_refused_where_the_transcript_is_gone(working):
    id = working.upload(FAULTS["wrong schema"])
    working.ended(id)
    working.objects.obstore.delete(working.objects.bucket(), working.row(id)["upload_key"])
    with pytest.raises(Exception, match="its source is gone"):
        working.job(id).retry(from_start=True)


def test_orphans_of_three_kinds_are_found_and_named(working):
    objects = working.objects
    whole = working.upload()
    working.ended(whole)
    lost_upload = f"uploads/{uuid4()}/lost.txt"
    objects.put_once(lost_upload, b"x")
    unsaved = working.upload(FAULTS["wrong schema"], name="unsaved.txt")
    working.ended(unsaved)
    unsaved_report = f"reports/{unsaved}/unsaved.txt.json"
    objects.put_once(unsaved_report, b"{}")
    with working.paused():
        waiting = working.upload(name="waiting.txt")
        objects.put_once(f"reports/{waiting}/waiting.txt.json", b"{}")  # its job will save it
        jobless = str(uuid4())
        with working.files.database() as connection:
            working.files.add(connection, id=jobless, owner="ann", name="a.txt", bytes=1, version="report-2", job_id=None, upload_key=f"uploads/{jobless}/a.txt")  # fmt: skip
        found = set(working.orphans.find_orphans(age_s=-5.0))
        assert {
            ("orphan_s3_object", lost_upload),
            ("orphan_report_object", unsaved_report),
            ("orphan_file_without_job", jobless),
        } <= found
        told = " ".join(what for _, what in found)
        assert whole not in told
        assert waiting not in told
        young = set(working.orphans.find_orphans(age_s=3600.0))
        assert not {what for _, what in young} & {lost_upload, unsaved_report, jobless}
        with working.files.database() as connection:
            connection.execute("DELETE FROM files WHERE id = %s", (jobless,))
    working.ended(waiting)


def test_orphans_that_cannot_be_looked_for_are_no_orphans(reports, monkeypatch, capsys):
    def refuse(*_, **__):
        raise psycopg.OperationalError("the database is away\nand more")

    monkeypatch.setattr(reports.orphans, "find_orphans", refuse)
    monkeypatch.setattr("sys.argv", ["orphans"])
    assert reports.orphans.main() == 2
    assert capsys.readouterr().err == "they cannot be looked for: the database is away\n"


def test_an_upload_whose_transaction_failed_is_an_orphan_and_no_file(working, monkeypatch):
    def refuse(*_, **__):
        raise psycopg.OperationalError("the database is away")

    monkeypatch.setattr(working.files, "add", refuse)
    name = f"{uuid4().hex}.txt"
    assert working.send(name).status_code == 503
    monkeypatch.undo()
    found = [what for kind, what in working.orphans.find_orphans(age_s=-5.0) if name in what]
    assert len(found) == 1


def test_a_follower_that_begins_looks_at_every_open_file(working):
    id = working.upload(FAULTS["wrong schema"])
    assert working.ended(id)["status"] == "failed"
    with working.files.database() as connection:  # as if nobody had followed when it failed
        connection.execute(
            "UPDATE files SET status = 'queued', error_code = NULL, raw_output = NULL, job_token = 0 WHERE id = %s",
            (id,),
        )
    working.follow.catch_up()
    file, row = working.show(id), working.row(id)
    assert (file["status"], file["error_code"]) == ("failed", "schema_validation_failed")
    assert row["raw_output"] is not None


def test_a_row_never_goes_back_to_what_its_job_was_before(working):
    id = working.upload(FAULTS["500"])
    working.ended(id)
    row = working.row(id)
    with working.files.database() as connection:
        stale = (connection, row["job_id"], row["job_token"] - 1)
        working.files.mark(*stale, "queued", "llm_provider_5xx", "late")
        working.files.mark(*stale, "failed", "llm_provider_5xx", "late")
    assert working.files.mark_processing(id, row["job_id"], row["job_token"])
    assert working.row(id) == row


def test_a_file_that_an_operator_lets_run_again_waits_and_has_not_failed(working):
    id = working.upload(FAULTS["wrong schema"], Fault("look", act=lambda: seen.append(shown())))
    old, seen = working.ended(id), []
    row = working.row(id)

    def shown():
        file = working.show(id)
        return file["status"], file["error_code"], file["error_message"], file["processed_at"]

    with working.paused():
        working.job(id).retry(from_stage="ask", reason="the prompt was mended", by="operator")
        until("the file waits", lambda: working.row(id)["status"] == "queued", within_s=30.0)
        assert shown() == ("queued", None, None, None)
        assert working.show(id)["processing"]["attempts"] == 0
        with working.files.database() as connection:  # as if nobody had followed when it was let
            connection.execute(
                "UPDATE files SET status = 'failed', error_code = %s, job_token = %s, processed_at = now() WHERE id = %s",
                (old["error_code"], row["job_token"], id),
            )
        working.follow.catch_up()
        assert shown() == ("queued", None, None, None)
    assert working.ended(id)["status"] == "succeeded"
    assert seen == [("processing", None, None, None)]


def test_a_stage_that_begins_before_the_retry_is_heard_of_takes_the_old_failure_away(working):
    id = working.upload(FAULTS["wrong schema"])
    working.ended(id)
    row = working.row(id)
    assert working.files.mark_processing(id, row["job_id"], row["job_token"] + 1)
    gone = ("error_code", "error_message", "raw_output", "processed_at")
    new = {"status": "processing", "job_token": row["job_token"] + 1, **dict.fromkeys(gone)}
    assert working.row(id) == row | new


def test_a_file_that_cannot_go_after_its_job_holds_up_no_other(working, caplog):
    refuse = "ALTER TABLE files ADD CONSTRAINT stuck CHECK (name <> 'stuck.txt' OR status <> 'failed') NOT VALID"
    with working.files.database() as connection:
        connection.execute(refuse)
    try:
        stuck = working.upload(FAULTS["wrong schema"], name="stuck.txt")
        job = working.job(stuck)
        until("it is told", lambda: f"job {job.id} cannot" in caplog.text, within_s=60.0)
        other = working.upload(FAULTS["wrong schema"])
        assert working.ended(other)["status"] == "failed"
        assert working.front.get("/health").status_code == 200
        working.follow.catch_up()
        assert working.row(stuck)["status"] != "failed"
    finally:
        with working.files.database() as connection:
            connection.execute("ALTER TABLE files DROP CONSTRAINT stuck")
    working.follow.catch_up()
    assert working.row(stuck)["status"] == "failed"


@pytest.mark.parametrize("begins", [False, True], ids=["takes", "begins"])
def test_a_follower_that_waits_for_a_row_holds_no_other(working, begins):
    """Two that held some each could wait for each other, crosswise."""
    ids = [working.upload(FAULTS["wrong schema"]) for _ in range(6)]
    for id in ids:
        working.ended(id)
    entries = [SimpleNamespace(id=working.row(id)["job_id"], pipeline="reports") for id in ids]
    follow = working.follow.catch_up if begins else partial(working.follow.take, entries)
    with working.files.database() as connection:  # as if nobody had followed when they failed
        connection.execute(
            "UPDATE files SET status = 'queued', error_code = NULL, job_token = 0 WHERE id = ANY(%s)",
            (ids,),
        )
    with ThreadPoolExecutor() as threads:
        with working.files.database() as connection:
            connection.execute("SELECT 1 FROM files WHERE id = %s FOR UPDATE", (ids[-1],))
            followed = threads.submit(follow)
            until("it waits for the row", lambda: waiting(working), within_s=30.0)
            connection.execute("SELECT 1 FROM files WHERE id = ANY(%s) FOR UPDATE NOWAIT", (ids,))
        followed.result(timeout=60.0)
    assert {working.row(id)["status"] for id in ids} == {"failed"}
