"""The API as its users meet it: who is let in, what is refused in which words, and what is shown."""

import json
import re
import runpy
from uuid import uuid4

import psycopg
import pytest
from examples.reports.faults import FAULTS, Fault, s3_refusal
from tests.examples.reports.conftest import ROOT
from tests.stories.kit import until

from perdure import ConfigError, load_settings


def problem(answer) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


PATHS = ["/api/files", f"/api/files/{uuid4()}", f"/api/files/{uuid4()}/report", f"/api/files/{uuid4()}/raw", "/api/monitoring"]  # fmt: skip


def test_nobody_is_let_in_without_a_token(reports):
    for path in PATHS:
        assert problem(reports.front.get(path)) == (401, "unauthenticated")
        stranger = reports.front.get(path, headers={"authorization": "Bearer x"})
        assert problem(stranger) == (401, "unauthenticated")


def test_an_upload_needs_a_token_that_may_submit(reports):
    path = "/api/files/upload?name=a.txt"
    assert problem(reports.front.post(path, content=b"x")) == (401, "unauthenticated")
    only_read = reports.headers("ann", "read")
    assert problem(reports.front.post(path, content=b"x", headers=only_read)) == (403, "forbidden")
    assert problem(reports.get("/api/files", "", "read_all")) == (403, "forbidden")
    assert reports.get("/api/monitoring", "ann").status_code == 403


@pytest.mark.parametrize(
    ("name", "code"),
    [("", "invalid_name"), ("a/b.txt", "invalid_name"), ("a\\b.txt", "invalid_name"), ("a\n.txt", "invalid_name"), ("x" * 120 + ".txt", "invalid_name"), ("talk.pdf", "unsupported_extension"), ("talk", "unsupported_extension")],
)  # fmt: skip
def test_a_name_that_cannot_be_is_refused(reports, name, code):
    answer = reports.front.post(
        "/api/files/upload", params={"name": name}, content=b"x", headers=reports.headers()
    )
    assert problem(answer) == (400, code)


def test_a_file_that_is_too_large_is_refused(reports):
    assert problem(reports.send("large.txt", b"x" * 200_001)) == (413, "too_large")


def test_what_is_no_id_is_400_and_what_is_somebody_elses_is_not_there(working):
    id = working.upload()
    working.ended(id)
    for path in (f"/api/files/{id}", f"/api/files/{id}/report", f"/api/files/{id}/raw"):
        assert working.get(path, "boris").status_code == 404
    assert problem(working.get(f"/api/files/{id}", "boris")) == (404, "file_not_found")
    assert problem(working.get(f"/api/files/{uuid4()}")) == (404, "file_not_found")
    assert problem(working.get("/api/files/17")) == (400, "invalid_file_id")
    assert problem(working.get("/api/files/17/report")) == (400, "invalid_file_id")
    assert id not in {one["id"] for one in working.get("/api/files", "boris").json()["files"]}


def test_a_report_that_is_not_ready_is_409_also_when_it_never_will_be(working):
    with working.paused():
        id = working.upload(FAULTS["wrong schema"])
        assert problem(working.get(f"/api/files/{id}/report")) == (409, "report_not_ready")
    assert working.ended(id)["status"] == "failed"
    assert problem(working.get(f"/api/files/{id}/report")) == (409, "report_not_ready")


def test_a_report_that_cannot_be_fetched_is_500_and_a_moment_later_it_can(working):
    id = working.upload(name="fetched.txt")
    working.ended(id)
    working.s3.plan("GET", "fetched.txt.json", Fault("s3", s3_refusal(503, "SlowDown")))
    assert problem(working.get(f"/api/files/{id}/report")) == (500, "report_fetch_failed")
    assert working.get(f"/api/files/{id}/report").status_code == 200


def test_files_are_listed_newest_first_and_page_by_page(reports):
    with reports.paused():
        made = [reports.send(f"{n}.txt", owner="carl").json()["id"] for n in range(3)]
        first = reports.get("/api/files?limit=2", "carl").json()
        rest = reports.get(f"/api/files?limit=2&cursor={first['next_cursor']}", "carl").json()
    assert [one["id"] for one in first["files"] + rest["files"]] == made[::-1]
    assert rest["next_cursor"] is None
    assert {one["status"] for one in first["files"]} == {"queued"}
    assert problem(reports.get("/api/files?limit=many")) == (400, "invalid_limit")
    for wrong in ("0", "-1", str(2**63), "9" * 5_000):
        assert problem(reports.get(f"/api/files?cursor={wrong}")) == (400, "invalid_cursor")


def test_perdures_own_api_is_for_operators_alone(reports):
    """A user who could make jobs there would name any file, and run a failed one again."""
    with reports.paused():
        id = reports.upload()
        item, job = json.loads(reports.job(id).view().payload_json), reports.row(id)["job_id"]
        asked = {"pipeline": "reports", "item": item, "key": id}
        before = [one.id for one in reports.app.jobs.list(owner="boris")]
        for path, body in (("jobs", asked), ("jobs/batch", {"jobs": [asked]})):
            headers = reports.headers("boris")
            answer = reports.front.post(f"/perdure/api/{path}", json=body, headers=headers)
            assert problem(answer) == (403, "forbidden")
        for path in ("jobs", f"jobs/{job}", f"jobs/{job}/captures", "dead", "events"):
            assert problem(reports.get(f"/perdure/api/{path}")) == (403, "forbidden")
            assert reports.front.get(f"/perdure/api/{path}").status_code == 401
        assert reports.get(f"/perdure/api/jobs/{job}", "", "read_all").status_code == 200
        assert [one.id for one in reports.app.jobs.list(owner="boris")] == before


def test_a_job_is_not_a_file_and_its_state_is_never_shown(working):
    """A job between two stages is queued; the file is being processed all the while."""
    with working.resuming():
        id = working.upload(Fault("pausing", act=working.pause))
        job = working.job(id)
        until("the model has answered", lambda: job.view().stage == "validate", within_s=60.0)
        until("the job waits for its next stage", lambda: job.state == "queued", within_s=60.0)
        working.follow.catch_up()
        file = working.show(id)
        assert (file["status"], file["processing"]["attempts"]) == ("processing", 1)
    assert working.ended(id)["status"] == "succeeded"


def test_a_file_that_cannot_be_stored_or_queued_is_refused_and_nothing_is_half_done(
    reports, monkeypatch
):
    reports.s3.plan("PUT", "away.txt", Fault("s3", s3_refusal(503, "SlowDown")))
    assert problem(reports.send("away.txt", owner="dora")) == (503, "upload_failed")

    def refuse(*_, **__):
        raise psycopg.OperationalError("the database is away")

    monkeypatch.setattr(reports.files, "add", refuse)
    assert problem(reports.send("unqueued.txt", owner="dora")) == (503, "enqueue_failed")
    monkeypatch.undo()
    assert reports.get("/api/files", "dora").json()["files"] == []
    assert list(reports.app.jobs.list(owner="dora")) == []


def test_errors_are_told_in_one_form_and_without_a_trace(reports, monkeypatch):
    def away(*_, **__):
        raise psycopg.OperationalError("connection to server at 10.0.0.1 failed")

    monkeypatch.setattr(reports.files, "page", away)
    answer = reports.get("/api/files")
    assert problem(answer) == (503, "store_error")
    assert "10.0.0.1" not in answer.text
    monkeypatch.setattr(reports.files, "page", lambda *_, **__: 1 / 0)
    assert problem(reports.get("/api/files")) == (500, "internal")
    assert problem(reports.get("/api/nothing")) == (404, "not_found")


def test_health_knows_whether_files_still_go_after_their_jobs(reports, monkeypatch):
    assert reports.front.get("/health").json() == {"status": "ok"}
    with reports.follow.following() as is_well:
        assert is_well()
    monkeypatch.setitem(reports.front.app.state._state, "is_well", is_well)  # its thread has ended
    assert problem(reports.front.get("/health")) == (503, "follower_stopped")
    monkeypatch.undo()
    assert reports.front.get("/health").status_code == 200


def test_a_setting_that_is_missing_or_wrong_is_named(reports, monkeypatch):
    from examples.reports.settings import NAMES, TIMEOUT_S

    monkeypatch.setenv("REPORTS_TIMEOUT_S", "1")
    assert load_settings(NAMES)[TIMEOUT_S] == 1.0
    for wrong in ("soon", "0", "-1", "nan", "inf"):
        monkeypatch.setenv("REPORTS_TIMEOUT_S", wrong)
        with pytest.raises(ConfigError, match=f"REPORTS_TIMEOUT_S is '{wrong}'"):
            load_settings(NAMES)
    monkeypatch.delenv("REPORTS_TIMEOUT_S")
    assert load_settings(NAMES)[TIMEOUT_S] == 180.0
    for name in ("REPORTS_LLM_URL", "REPORTS_S3_SECRET", "REPORTS_DATABASE"):
        monkeypatch.delenv(name)
    with pytest.raises(ConfigError) as refused:
        load_settings(NAMES)
    assert re.findall(r"^(\w+) is not set; it is needed: ", str(refused.value), re.MULTILINE) == [
        "REPORTS_DATABASE",
        "REPORTS_S3_SECRET",
        "REPORTS_LLM_URL",
    ]


def test_a_program_without_its_settings_ends_with_a_sentence(reports, monkeypatch):
    monkeypatch.delenv("REPORTS_LLM_URL")
    with pytest.raises(SystemExit, match="reports: REPORTS_LLM_URL is not set"):
        runpy.run_path(str(ROOT / "examples" / "reports" / "settings.py"))
