"""From an object in S3 to a report in S3 and a row, and what the document calls retriable and fatal."""

import json
from types import SimpleNamespace

import pytest
from examples.reports.faults import (
    FAULTS,
    GOOD_REPORT,
    SLOW_DOWN,
    Fault,
    completion,
    refusal,
    s3_refusal,
)

from perdure import JobRef, Policy, StageError

STAGES = ("read", "ask", "validate", "write", "save")


def test_an_upload_becomes_a_report_in_five_stages(working):
    id = working.upload(name="встреча 1.txt")
    file = working.ended(id)
    assert (file["status"], file["error_code"], file["version"]) == ("succeeded", None, "report-2")
    assert [(stage, "success", None) for stage in STAGES] == working.attempts(id)
    report = working.get(f"/api/files/{id}/report").json()
    assert report == {"file": "встреча 1.txt", "version": "report-2", "report": GOOD_REPORT}
    row = working.row(id)
    assert working.objects.exists(row["upload_key"])
    assert working.objects.exists(row["report_key"])
    assert row["started_at"] is not None


# -- retriable: R14, R15 -----------------------------------------------------------------------

AT_THE_MODEL = [
    (FAULTS["429 with a hint"], "llm_rate_limited"),
    (FAULTS["429 without a hint"], "llm_rate_limited"),
    (FAULTS["500"], "llm_provider_5xx"),
    (FAULTS["503"], "llm_provider_5xx"),
    (Fault("501", refusal(501, "not_implemented")), "llm_provider_5xx"),
    (Fault("408", refusal(408, "timeout")), "llm_timeout"),
    (FAULTS["connection reset"], "llm_network_error"),
    pytest.param(FAULTS["slow answer"], "llm_timeout", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("fault", "code"), AT_THE_MODEL, ids=lambda one: getattr(one, "name", one))
def test_what_passes_at_the_model_is_tried_again(working, fault, code):
    id = working.upload(fault)
    file = working.ended(id)
    if code == "llm_rate_limited":
        working.forget_pace()
    assert (file["status"], file["processing"]["attempts"]) == ("succeeded", 2)
    assert [one for one in working.attempts(id) if one[0] in ("read", "ask")] == [
        ("read", "success", None),
        ("ask", "retrying", code),
        ("ask", "success", None),
    ]


@pytest.mark.parametrize(
    ("method", "suffix", "stage"), [("GET", "", "read"), ("PUT", ".json", "write")]
)
@pytest.mark.parametrize(
    "answer", [SLOW_DOWN, s3_refusal(500, "InternalError")], ids=["SlowDown", "500"]
)
def test_what_passes_at_s3_is_tried_again(working, method, suffix, stage, answer):
    name = f"{method}-{answer.status}.txt"
    seen = []
    look = Fault("second look", act=lambda: seen.append(working.row(id)["status"]))
    with working.paused():
        id = working.upload(name=name)
        working.s3.plan(method, f"{name}{suffix}", Fault("s3", answer), look)
    assert working.ended(id)["status"] == "succeeded"
    assert seen == ["processing"]  # again, after it waited
    met = [one for one in working.attempts(id) if one[0] == stage]
    assert met == [(stage, "retrying", f"s3_{stage}_failed"), (stage, "success", None)]
    assert working.calls(id) == 1


# -- fatal: R17, R18, R19, R20 -------------------------------------------------------------------

UNFIT = [
    (FAULTS["cut-off JSON"], "ask", "llm_output_invalid_json"),
    (Fault("words", completion("I would rather not.")), "ask", "llm_output_invalid_json"),
    (FAULTS["wrong schema"], "validate", "schema_validation_failed"),
    (Fault("a list", completion("[]")), "validate", "schema_validation_failed"),
]


@pytest.mark.parametrize(("fault", "stage", "code"), UNFIT, ids=[one.name for one, _, _ in UNFIT])
def test_output_that_does_not_fit_is_fatal_and_kept_for_its_owner_alone(
    working, fault, stage, code
):
    id = working.upload(fault)
    file = working.ended(id)
    assert (file["status"], file["error_code"], file["processing"]["attempts"]) == (
        "failed",
        code,
        1,
    )
    assert working.attempts(id)[-1] == (stage, "failed", code)
    said = fault.answer.body["choices"][0]["message"]["content"]
    assert working.get(f"/api/files/{id}/raw").text == said
    shown = [*file.values(), *file["processing"]["last_error"].values()]
    assert not [one for one in shown if said in str(one)]
    row = working.row(id)
    mounted = f"/perdure/api/jobs/{row['job_id']}/captures/{row['raw_output']}"
    for stranger in (("boris",), ("", "read_all"), ("", "admin"), ("boris", "admin")):
        for path in (f"/api/files/{id}/raw", mounted):
            assert working.get(path, *stranger).status_code in (403, 404)


def test_output_is_read_through_fences_words_and_commas(working):
    fenced = f"Here you are:\n```json\n{json.dumps(GOOD_REPORT)[:-1]},}}\n```"
    id = working.upload(Fault("fenced", completion(fenced)))
    assert working.ended(id)["status"] == "succeeded"
    assert working.get(f"/api/files/{id}/report").json()["report"] == GOOD_REPORT
    assert working.get(f"/api/files/{id}/raw").status_code == 404


def test_a_request_that_the_provider_refuses_is_fatal(working):
    codes = {status: f"llm_provider_{status}" for status in (400, 401, 404, 409, 422)}
    refusals = {code: refusal(status, "invalid_request_error") for status, code in codes.items()}
    ids = {code: working.upload(Fault(code, answer)) for code, answer in refusals.items()}
    for code, id in ids.items():
        file = working.ended(id)
        assert (file["status"], file["error_code"]) == ("failed", code)
        assert file["processing"]["attempts"] == working.calls(id) == 1


def test_an_object_that_is_missing_is_fatal(working):
    with working.paused():
        id = working.upload()
        working.objects.obstore.delete(working.objects.bucket(), working.row(id)["upload_key"])
    file = working.ended(id)
    assert (file["error_code"], file["processing"]["attempts"]) == ("file_context_not_found", 1)


def enqueue_again(working, file_id: str, **changed: str) -> JobRef:
    """Another job for a file that has one."""
    item = json.loads(working.job(file_id).view().payload_json) | changed
    job: JobRef = working.app.get_pipeline("reports").enqueue(item, owner="boris")
    return job


def test_a_job_whose_file_is_another_jobs_is_fatal_and_touches_nothing(working):
    with working.paused():
        id = working.upload()
        stranger = enqueue_again(working, id)
        before = working.row(id)
        working.job(id).cancel()  # so nobody else touches it
    assert stranger.wait(wait_s=60.0).error_code == "file_context_not_found"
    assert [(one.stage, one.status.value) for one in stranger.attempts()] == [("read", "failed")]
    after = working.ended(id)
    assert (after["status"], after["started_at"], working.calls(id)) == ("failed", None, 0)
    stages = working.module["app"]
    context = SimpleNamespace(item=json.loads(stranger.view().payload_json), job_id=stranger.id, token=9)  # fmt: skip
    for stage, value in (
        (stages.ask, "a talk"),
        (stages.write, stages.Checked({"title": "forged"}, False)),
        (stages.save, stages.Written("reports/forged.json", "", False)),
    ):
        with pytest.raises(StageError, match=f"file {id} is not of this job"):
            stage(value, context)
    assert not working.objects.exists(f"reports/{id}/{before['name']}.json")
    assert working.row(id)["status"] == "failed"


BROKEN = [
    ({"name": "talk.exe"}, "processing_failed", "The type of the file is not supported."),
    ({"version": "report-99"}, "processing_failed", "The file's metadata are damaged."),
    ({"sha256": "0" * 64}, "processing_failed", "The file's metadata are damaged."),
]


@pytest.mark.parametrize(
    ("changed", "code", "message"), BROKEN, ids=["extension", "version", "checksum"]
)
def test_metadata_that_are_broken_are_fatal(working, changed, code, message):
    with working.paused():
        id = working.upload()
        job = enqueue_again(working, id, **changed)
        with working.files.database() as connection:
            connection.execute("UPDATE files SET job_id = %s WHERE id = %s", (job.id, id))
    view = job.wait(wait_s=60.0)
    assert (view.error_code, view.error_message) == (code, message)
    assert [one.status.value for one in job.attempts()] == ["failed"]


UNREADABLE = [
    (b" \n\t", "empty_original_transcript", "The transcript is empty."),
    (b"\xff\xfe", "processing_failed", "The file is not a text."),
    (b"a\0b", "processing_failed", "The file is not a text."),
]


def test_a_transcript_that_nobody_can_read_is_fatal(working):
    ids = [working.upload(body=body) for body, _, _ in UNREADABLE]
    for id, (_, code, message) in zip(ids, UNREADABLE, strict=True):
        file = working.ended(id)
        assert (file["error_code"], file["error_message"]) == (code, message)
        assert file["processing"]["attempts"] == 1


# -- the numbers: R35, R36, R115 -----------------------------------------------------------------


def test_four_attempts_with_waits_of_30_120_and_480_seconds_and_then_failed(working):
    id = working.upload(*[FAULTS["500"]] * 4)
    file = working.ended(id)
    assert (file["status"], file["error_code"]) == ("failed", "llm_provider_5xx")
    assert (file["processing"]["attempts"], file["processing"]["max_attempts"]) == (4, 4)
    assert working.calls(id) == 4
    tried = [one for one in working.attempt_views(id) if one.stage == "ask"]
    assert [one.status.value for one in tried] == ["retrying"] * 3 + ["failed"]
    for one, base_s in zip(tried, (30, 120, 480), strict=False):
        assert 0.8 * base_s <= one.delay_s / 0.002 <= 1.2 * base_s


def test_in_service_the_stages_have_the_preset_itself_and_a_scaled_one_has_another_name(working):
    policy_at = working.module["app"].policy_at
    assert policy_at(1) == "reports"
    scaled = policy_at(0.002)
    assert scaled.name == "reports-x0.002"
    document = Policy.based_on("reports", name="reports")
    assert [one / 0.002 for one in scaled.backoff.steps_s] == pytest.approx([30, 120, 480])
    assert (document.backoff.steps_s, document.attempts_max) == ((30, 120, 480), 4)
    assert Policy.based_on(scaled, name="x", backoff=document.backoff) == Policy.based_on(
        document, name="x"
    )
    id = working.upload()
    working.ended(id)
    assert {one.policy for one in working.attempt_views(id)} == {"reports-x0.002/1"}


# -- versions and writing once -----------------------------------------------------------------


def test_a_file_is_checked_by_the_version_that_it_was_uploaded_under(working, monkeypatch):
    old = {"title": "A talk", "summary": "Two people spoke."}
    name = "old.txt"
    working.model.plan("POST", name, Fault("old", completion(json.dumps(old))))
    monkeypatch.setattr("examples.reports.api.CURRENT", "report-1")
    id = working.upload(name=name)
    monkeypatch.undo()
    assert working.ended(id)["status"] == "succeeded"
    assert working.get(f"/api/files/{id}/report").json()["version"] == "report-1"
    asked = next(one for one in working.model.requests if one.headers.get("x-request-id") == name)
    assert json.loads(asked.body)["response_format"]["json_schema"]["name"] == "report-1"


def test_a_second_writer_finds_the_first_and_keeps_it(working):
    """The first answer of S3 is lost after the object was written: the retry finds it there."""
    name = "lost-answer.txt"
    lost = Fault("lost answer", FAULTS["connection reset"].answer, passed_on=True)
    working.s3.plan("PUT", f"{name}.json", lost)
    id = working.upload(name=name)
    file = working.ended(id)
    assert (file["status"], file["processing"]["attempts"]) == ("succeeded", 2)
    stages = working.module["app"]
    row = working.row(id)
    item = {"file_id": id, "name": name, "key": row["upload_key"], "sha256": "", "version": "report-2"}  # fmt: skip
    again = SimpleNamespace(token=0, item=item, job_id=row["job_id"])
    second = stages.write(stages.Checked({"title": "another"}, False), again)
    assert (second.key, second.sha256) == (row["report_key"], row["report_sha256"])
    assert working.get(f"/api/files/{id}/report").json()["report"] == GOOD_REPORT
