"""The converter's API: what is let in, whose it is, what is told of it, and what is refused with which code."""

import os
import socket
import threading
import time
from datetime import datetime
from urllib.parse import urlsplit

import psycopg
import pytest
from examples.converter.files import Files
from examples.converter.refusals import CODES
from examples.converter.samples import BROKEN_PDF, make_pdf
from examples.converter.templates import clean_name
from lxml import etree

from tests.examples.converter_kit import (
    FAR_S,
    Trial,
    User,
    error_in,
    hold,
    pdf_of,
    settings_in,
    until,
)


def converted(trial: Trial, user: User, text: str) -> str:
    """The id of a file that is complete."""
    job_id = user.upload(pdf_of(text), f"{text}.pdf")
    assert trial.job(job_id).wait(wait_s=FAR_S).state == "succeeded"
    return job_id


def failed(trial: Trial, user: User, text: str) -> str:
    """The id of a file that has failed."""
    trial.order(status=400, code="VALIDATION_ERROR")
    job_id = user.upload(pdf_of(text), f"{text}.pdf")
    assert trial.job(job_id).wait(wait_s=FAR_S).state == "failed"
    trial.order()
    return job_id


def rows(trial: Trial, statement: str, *values: object) -> list[tuple]:
    with psycopg.connect(trial.database_url) as cx:
        return cx.execute(statement, values).fetchall()


# -- upload ----------------------------------------------------------------------------------


def test_what_is_no_pdf_is_known_by_its_content_and_not_by_its_name(quiet):
    ann = quiet.user()
    assert error_in(ann.send_pdf(b"hello, world", "really.pdf")) == (415, "NOT_PDF")
    assert error_in(ann.send_pdf(b"", "empty.pdf")) == (415, "NOT_PDF")
    assert error_in(ann.post("/api/upload", content=b"%PDF-1.4")) == (415, "NOT_PDF")
    assert error_in(ann.post("/api/upload", files={"other": b"%PDF-1.4"})) == (415, "NOT_PDF")
    assert ann.jobs() == {}
    job_id = ann.upload(pdf_of("a letter"), "letter.txt")
    assert ann.jobs()[job_id]["filename"] == "letter.txt"


def answer_to(site: str, *parts: bytes) -> bytes:
    """What a server says to a request that is never sent to its end."""
    place = urlsplit(site)
    with socket.create_connection((place.hostname, place.port), timeout=FAR_S) as wire:
        for part in parts:
            wire.sendall(part)
        said = b""
        while b"}}" not in said and (more := wire.recv(65_536)):
            said += more
        return said


HEAD = b"POST /api/upload HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"


def test_what_is_too_large_is_refused_before_it_is_read(quiet):
    said = answer_to(quiet.site, HEAD + b"Content-Length: 900000000\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 413")
    assert b"TOO_LARGE" in said


def test_what_does_not_say_how_large_it_is_is_refused_where_it_becomes_too_large(
    make_converter_trial,
):
    with make_converter_trial(UPLOAD_MAX_BYTES="100000") as trial:
        begin = (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n%PDF-1.4'
        )
        chunks = [begin, *[b"x" * 50_000] * 6]
        wire = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]  # and no end
        said = answer_to(trial.site, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *wire)
        assert said.startswith(b"HTTP/1.1 413")
        assert b"TOO_LARGE" in said
        ann = trial.user()
        assert error_in(ann.send_pdf(make_pdf("large", ["x"], padding=100_000))) == (
            413,
            "TOO_LARGE",
        )
        ann.upload(make_pdf("small", ["x"], padding=90_000))
        assert len(list(trial.uploads.iterdir())) == 1


def test_the_limit_is_each_file_s_own_and_a_form_that_is_refused_says_why(make_converter_trial):
    with make_converter_trial(UPLOAD_MAX_BYTES="100000") as trial:
        ann = trial.user()

        def send(*paddings: int, **headers: str):
            pdfs = (make_pdf(str(n), ["x"], padding=it) for n, it in enumerate(paddings))
            files = [("file", (f"{n}.pdf", pdf)) for n, pdf in enumerate(pdfs)]
            return ann.post("/api/upload", files=files, headers=headers)

        assert len(send(*[90_000] * 3).json()["jobs"]) == 3
        assert len(ann.jobs()) == 3
        for paddings, why in {
            (500, 100_000, 500): "1.pdf is larger than 100 kB",
            (90_000,) * 12: "1 MB at once are the most",
            (10,) * 51: "50 files at once are the most",
        }.items():
            answer = send(*paddings)
            assert error_in(answer) == (413, "TOO_LARGE")
            assert answer.json()["error"]["message"] == f"{why}. Nothing was uploaded."
            page = send(*paddings, accept="text/html")
            assert (page.status_code, f"<h1>{why}. " in page.text) == (413, True)
        assert len(ann.jobs()) == len(list(trial.uploads.iterdir())) == 3
        cut = ann.post(
            "/api/upload",
            content=b"--b\r\nno form",
            headers={"content-type": "multipart/form-data; boundary=b"},
        )
        assert error_in(cut) == (400, "UNKNOWN")


def test_the_same_file_of_the_same_owner_is_the_same_job(quiet):
    ann, bob = quiet.user(), quiet.user()
    pdf = pdf_of("the same")
    first = ann.send_pdf(pdf, "one.pdf").json()["jobs"][0]
    again = ann.send_pdf(pdf, "two.pdf").json()["jobs"][0]
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["id"] == first["id"]
    assert bob.upload(pdf) != first["id"]
    assert ann.upload(pdf_of("another")) != first["id"]


def test_of_uploads_that_race_one_makes_the_job(quiet):
    ann = quiet.user()
    pdf, answers = pdf_of("a race"), []
    begin = threading.Barrier(6)

    def upload() -> None:
        with User(base_url=quiet.site, cookies=ann.cookies, timeout=FAR_S) as same:
            begin.wait(FAR_S)
            answers.append(same.send_pdf(pdf).json()["jobs"][0])

    threads = [threading.Thread(target=upload) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(FAR_S)
    assert len(answers) == 6
    assert len({one["id"] for one in answers}) == 1
    assert [one["duplicate"] for one in answers].count(False) == 1
    assert len(ann.jobs()) == 1


def test_a_file_that_has_failed_is_tried_again_when_it_is_uploaded_again(converter):
    ann = converter.user()
    job_id = failed(converter, ann, "failed before")
    again = ann.send_pdf(pdf_of("failed before")).json()["jobs"][0]
    assert (again["id"], again["duplicate"]) == (job_id, True)
    assert converter.job(job_id).wait(wait_s=FAR_S).state == "succeeded"
    assert [one.life for one in converter.job(job_id).attempts()] == [1, 2]


def test_a_file_that_was_cancelled_or_removed_can_be_uploaded_anew(quiet):
    ann, pdf = quiet.user(), pdf_of("changed my mind")
    seen = [ann.upload(pdf)]
    assert ann.delete(f"/api/jobs/{seen[0]}").json()["job"]["status"] == "cancelled"
    seen.append(ann.upload(pdf))
    assert {one: job["status"] for one, job in ann.jobs().items()} == dict(
        zip(seen, ["cancelled", "queued"], strict=True)
    )
    assert ann.delete(f"/api/jobs/{seen[0]}").json() == {"job": None}
    assert list(ann.jobs()) == [seen[1]]
    assert len(set(seen)) == 2


def test_a_file_that_an_operator_has_cancelled_can_be_uploaded_anew(quiet):
    ann, pdf = quiet.user(), pdf_of("an operator's deed")
    first = ann.upload(pdf)
    quiet.job(first).cancel(by="operator")
    again = ann.send_pdf(pdf).json()["jobs"][0]
    assert (again["id"] != first, again["status"], again["duplicate"]) == (True, "queued", False)
    assert ann.status(first) == "cancelled"


def test_several_files_of_one_form_are_several_jobs_and_one_that_is_no_pdf_harms_no_other(quiet):
    ann = quiet.user()
    files = [("file", (f"{text}.pdf", pdf_of(text))) for text in ("first", "second")]
    told = ann.post("/api/upload", files=[*files, ("file", ("no.pdf", b"no PDF"))]).json()
    assert [one["filename"] for one in told["jobs"]] == ["first.pdf", "second.pdf"]
    assert [(one["filename"], one["error"]["code"]) for one in told["refused"]] == [
        ("no.pdf", "NOT_PDF")
    ]
    assert len(ann.jobs()) == 2


def test_an_upload_that_is_not_stored_leaves_no_job_and_no_file(make_converter_trial, postgres):
    with make_converter_trial() as trial:
        ann = trial.user()
        with psycopg.connect(trial.database_url) as cx:
            cx.execute("ALTER TABLE perdure_jobs RENAME TO elsewhere")
        assert error_in(ann.send_pdf(pdf_of("lost"))) == (503, "IO_ERROR")
        with psycopg.connect(trial.database_url) as cx:
            cx.execute("ALTER TABLE elsewhere RENAME TO perdure_jobs")
        assert ann.jobs() == {}
        assert rows(trial, "SELECT count(*) FROM converter_files") == [(0,)]
        assert list(trial.uploads.iterdir()) == []


NAMES = {
    "../../etc/passwd.pdf": "passwd.pdf",
    "C:\\Users\\ann\\a.pdf": "a.pdf",
    "a\x1b\x7fb.pdf": "ab.pdf",
    "x" * 300 + ".pdf": "x" * 196 + ".pdf",
    "<img src=x onerror=alert(1)>.pdf": "<img src=x onerror=alert(1)>.pdf",
}


def test_a_name_is_text_without_folders_and_is_only_ever_shown(quiet):
    ann = quiet.user()
    for said, kept in NAMES.items():
        job_id = ann.upload(pdf_of(said), said)
        assert ann.jobs()[job_id]["filename"] == kept
        assert (quiet.uploads / f"{quiet.job(job_id).view().key}.pdf").exists()
    assert "<img src=x" not in ann.get("/").text
    assert clean_name("a\x00\r\n\udc80b.pdf") == "a?b.pdf"
    assert clean_name(" \t") == "file.pdf"


# -- the list --------------------------------------------------------------------------------


def test_a_list_has_the_document_s_names_and_only_what_is_the_owner_s(quiet):
    ann, bob = quiet.user(), quiet.user()
    job_id = ann.upload(pdf_of("mine"), "mine.pdf")
    told = ann.get("/api/jobs").json()
    assert set(told) == {"jobs", "active_count", "timestamp", "gateway"}
    assert told["active_count"] == 1
    (job,) = told["jobs"]
    assert (job["id"], job["status"], job["filename"], job["attemptCount"]) == (
        job_id, "queued", "mine.pdf", 0,
    )  # fmt: skip
    assert {
        "lastAttemptAt",
        "retryAfter",
        "createdAt",
        "queuedAt",
        "startedAt",
        "updatedAt",
    } <= set(job)
    assert bob.jobs() == {}


def test_since_tells_what_has_changed_and_what_is_gone(quiet):
    ann = quiet.user()
    old, new = ann.upload(pdf_of("old")), ann.upload(pdf_of("new"))
    # As if both had been there for an hour: what is committed late is told for half a minute.
    with psycopg.connect(quiet.database_url) as cx:
        cx.execute("UPDATE converter_files SET changed_at = changed_at - interval '1 hour'")
        cx.execute("UPDATE perdure_jobs SET updated_at = updated_at - 3600000000")
    since = ann.get("/api/jobs").json()["timestamp"]
    assert datetime.fromisoformat(since).tzinfo is not None
    assert ann.jobs(since=since) == {}
    ann.delete(f"/api/jobs/{new}")
    changed = ann.jobs(since=since)
    assert {one: job["status"] for one, job in changed.items()} == {new: "cancelled"}
    ann.delete(f"/api/jobs/{new}")
    assert ann.jobs(since=since)[new]["deleted"]
    assert list(ann.jobs()) == [old]
    assert ann.get("/api/jobs").json()["active_count"] == 1


def test_whoever_asks_on_is_told_of_every_change_however_many(quiet, monkeypatch):
    monkeypatch.setattr("examples.converter.files.SHOWN_MAX", 2)
    ann = quiet.user()
    sent = [ann.upload(pdf_of(f"one of many {n}")) for n in range(6)]
    with psycopg.connect(quiet.database_url) as cx:
        cx.execute("UPDATE perdure_jobs SET updated_at = updated_at - 36000000000")
        for ago_s, job_id in zip((500, 400, 300, 300, 300, 200), sent, strict=True):
            statement = "UPDATE converter_files SET changed_at = now() - %s * interval '1 second' WHERE job_id = %s"
            cx.execute(statement, (ago_s, job_id))
        (since,) = cx.execute("SELECT now() - interval '1 hour'").fetchone()
    since, told = since.isoformat(), []
    for _ in range(3):
        answer = ann.get("/api/jobs", params={"since": since}).json()
        told += [job["id"] for job in answer["jobs"]]
        since = answer["timestamp"]
    # Of one moment all are told, or nobody would get past it.
    assert (told[:2], set(told[2:5]), told[5:]) == (sent[:2], set(sent[2:5]), sent[5:])


@pytest.mark.parametrize("since", ["yesterday", "2030-01-01T00:00:00", "2030-13-01T00:00:00Z"])
def test_a_since_that_is_no_moment_is_refused_with_the_remedy(since, quiet):
    answer = quiet.user().get("/api/jobs", params={"since": since})
    assert answer.status_code == 400
    assert "2030-01-01T00:00:00+00:00" in answer.json()["error"]["message"]


# -- retry, delete ---------------------------------------------------------------------------


def test_a_retry_by_hand_begins_anew(converter):
    ann = converter.user()
    job_id = failed(converter, ann, "by hand")
    before = ann.jobs()[job_id]
    assert (before["error"]["code"], before["attemptCount"], before["retryable"]) == (
        "GW_4XX",
        1,
        True,
    )
    converter.order(hang=True)
    answer = ann.post(f"/api/jobs/{job_id}/retry")
    assert answer.status_code == 200
    until("it is tried", lambda: converter.job(job_id).state == "processing")
    after = ann.jobs()[job_id]
    assert (after["error"], after["attemptCount"]) == (None, 1)
    assert after["queuedAt"] > before["queuedAt"]
    assert after["updatedAt"] > before["updatedAt"]
    assert after["createdAt"] == before["createdAt"]
    converter.order()
    assert converter.job(job_id).wait(wait_s=FAR_S).state == "succeeded"
    assert converter.job(job_id).view().retries_manual == 1


def test_a_retry_is_for_the_owner_of_a_failed_file_whose_pdf_is_there(converter):
    ann, bob = converter.user(), converter.user()
    job_id = failed(converter, ann, "whose")
    assert error_in(bob.post(f"/api/jobs/{job_id}/retry")) == (403, "FORBIDDEN")
    assert error_in(ann.post("/api/jobs/01a1ebc0-5a1d-7796-88c1-5066205e7499/retry")) == (
        403,
        "FORBIDDEN",
    )
    assert error_in(ann.post("/api/jobs/none/retry")) == (403, "FORBIDDEN")
    done = converted(converter, ann, "done")
    assert error_in(ann.post(f"/api/jobs/{done}/retry")) == (409, "NOT_READY")
    upload = converter.job(job_id).view().key
    (converter.uploads / f"{upload}.pdf").unlink()
    assert not ann.jobs()[job_id]["retryable"]
    version = converter.converter.files.find(job_id, converter.job(job_id).view().owner)["version"]
    assert error_in(ann.post(f"/api/jobs/{job_id}/retry")) == (404, "EXPIRED")
    told = converter.converter.files.find(job_id, converter.job(job_id).view().owner)
    assert told["version"] != version  # so an open page draws the row anew
    # The engine would have said so, too.
    with pytest.raises(Exception, match="its source is gone"):
        converter.job(job_id).retry()
    assert ann.upload(pdf_of("whose")) == job_id  # the same file is the same job, and tried again
    assert converter.job(job_id).wait(wait_s=FAR_S).state == "succeeded"


def test_delete_cancels_what_is_in_work_and_removes_what_has_ended(converter):
    ann, bob = converter.user(), converter.user()
    converter.order(hang=True)
    job_id = ann.upload(pdf_of("hanging"))
    until("it is in work", lambda: converter.job(job_id).state == "processing")
    assert error_in(bob.delete(f"/api/jobs/{job_id}")) == (403, "FORBIDDEN")
    assert ann.delete(f"/api/jobs/{job_id}").json()["job"]["status"] == "cancelled"
    converter.order()
    done = converted(converter, ann, "to be removed")
    upload = converter.job(done).view().key
    assert len(kept(converter, upload)) == 2
    assert ann.delete(f"/api/jobs/{done}").json() == {"job": None}
    assert kept(converter, upload) == []
    assert error_in(ann.get(f"/api/jobs/{done}/download")) == (403, "FORBIDDEN")
    assert error_in(ann.delete(f"/api/jobs/{done}")) == (403, "FORBIDDEN")


def test_a_file_that_fails_before_it_can_be_cancelled_stays_one_file(converter, monkeypatch):
    ann, find = converter.user(), Files.find
    converter.order(hang=True, status=400, code="X")
    job_id = ann.upload(pdf_of("just then"))
    until("it is in work", lambda: converter.job(job_id).state == "processing")

    def find_while_it_fails(self: Files, *asked: str):
        row = find(self, *asked)
        converter.order()  # lets it go
        until("it has failed", lambda: converter.job(job_id).state == "failed")
        return row

    with monkeypatch.context() as patch:
        patch.setattr(Files, "find", find_while_it_fails)
        assert ann.delete(f"/api/jobs/{job_id}").json()["job"]["status"] == "failed"
    assert ann.upload(pdf_of("just then")) == job_id


def test_a_file_that_is_retried_just_before_it_is_removed_is_not_in_work(converter, monkeypatch):
    ann, find = converter.user(), Files.find
    job = converter.job(failed(converter, ann, "once more"))
    hold(converter)  # else a worker may find first that its PDF is gone

    def find_while_it_is_retried(self: Files, *asked: str):
        monkeypatch.setattr(Files, "find", find)
        row = find(self, *asked)
        job.retry()
        return row

    monkeypatch.setattr(Files, "find", find_while_it_is_retried)
    try:
        assert ann.delete(f"/api/jobs/{job.id}").json() == {"job": None}
        assert job.state == "cancelled"
    finally:
        hold(converter, release=True)


def test_what_was_removed_stays_so_whoever_cancels_it_at_the_same_time(quiet):
    ann = quiet.user()
    job_id = ann.upload(pdf_of("removed"))
    files, upload = quiet.converter.files, quiet.job(job_id).view().key
    files.close(upload, delete=True)
    files.close(upload, delete=False)
    assert ann.jobs() == {}


def kept(trial: Trial, upload: str) -> list[str]:
    folders = (trial.uploads, trial.results)
    return [path.name for folder in folders for path in folder.glob(f"{upload}.*")]


# -- download, expiry ------------------------------------------------------------------------


def test_a_result_is_downloaded_by_its_owner_alone_when_it_is_ready(converter):
    ann, bob = converter.user(), converter.user()
    converter.order(hang=True)
    job_id = ann.upload(
        make_pdf("Tea & <time>", ["Tea (hot)", "a second line"]), "Tee für zwei.pdf"
    )
    until("it is in work", lambda: converter.job(job_id).state == "processing")
    assert error_in(ann.get(f"/api/jobs/{job_id}/download")) == (409, "NOT_READY")
    converter.order()
    assert converter.job(job_id).wait(wait_s=FAR_S).state == "succeeded"
    assert error_in(bob.get(f"/api/jobs/{job_id}/download")) == (403, "FORBIDDEN")
    answer = ann.get(f"/api/jobs/{job_id}/download")
    assert answer.headers["content-disposition"].endswith(
        "filename*=UTF-8''Tee%20f%C3%BCr%20zwei.xml"
    )
    root = etree.fromstring(answer.content)
    assert root.findtext("meta") == "Tea & <time>"
    assert [line.text for line in root.iter("line")] == ["Tea (hot)", "a second line"]
    assert ann.jobs()[job_id]["downloadCount"] == 1
    assert error_in(ann.get(f"/api/jobs/{failed(converter, ann, 'no result')}/download")) == (
        409,
        "NOT_READY",
    )


def test_a_result_expires_and_its_file_can_be_converted_anew(make_converter_trial):
    with make_converter_trial(RESULTS_KEPT_SEC="3600") as trial, trial.working():
        ann = trial.user()
        done, broken = converted(trial, ann, "old"), failed(trial, ann, "bad")
        upload = trial.job(done).view().key
        stray = trial.uploads / f"{'0' * 32}.pdf"
        stray.write_bytes(b"of an upload that was never committed")
        assert trial.converter.files.sweep() == {"expired": 0, "strays": 0}
        assert rows(trial, "SELECT name, spec FROM perdure_schedules") == [("sweeps", "every 10m")]
        with psycopg.connect(trial.database_url) as cx:  # two hours later
            cx.execute(
                "UPDATE perdure_jobs SET updated_at = updated_at - 7200000000,"
                " finished_at = finished_at - 7200000000 WHERE pipeline = 'conversions'"
            )
        two_hours_ago = stray.stat().st_mtime - 7_200
        os.utime(stray, (two_hours_ago, two_hours_ago))
        # By the clock, before anybody has swept.
        assert error_in(ann.get(f"/api/jobs/{done}/download")) == (404, "EXPIRED")
        assert error_in(ann.post(f"/api/jobs/{broken}/retry")) == (404, "EXPIRED")
        again = converted(trial, ann, "old")
        assert again != done
        assert ann.get(f"/api/jobs/{again}/download").status_code == 200
        assert kept(trial, upload) == []
        # By the sweep, which a schedule makes a job.
        swept = trial.converter.sweeps.enqueue(None).result(wait_s=FAR_S)
        assert swept == {"expired": 1, "strays": 1}
        assert error_in(ann.get(f"/api/jobs/{done}/download")) == (404, "EXPIRED")
        assert error_in(ann.post(f"/api/jobs/{broken}/retry")) == (404, "EXPIRED")
        told = ann.jobs()
        assert {one for one in told if told[one]["expired"]} == {done, broken}
        assert not told[broken]["retryable"]
        with psycopg.connect(trial.database_url) as cx:  # a month later, its job is pruned
            cx.execute("UPDATE converter_files SET closed_at = closed_at - interval '40 days'")
            cx.execute(
                "UPDATE converter_files SET job_id = gen_random_uuid() WHERE job_id = %s", (done,)
            )
        trial.converter.files.sweep()
        assert rows(trial, "SELECT count(*) FROM converter_files") == [(2,)]


def test_what_has_expired_is_told_as_changed_before_anybody_has_swept(converter):
    ann = converter.user()
    done = converted(converter, ann, "by the clock")
    ((owner,),) = rows(converter, "SELECT owner FROM converter_files WHERE job_id = %s", done)
    before = ann.jobs()[done]
    since = datetime.fromisoformat(before["updatedAt"])
    assert converter.converter.files.listed(owner, since).rows == []
    brief = Files(settings_in({**converter.environment, "RESULTS_KEPT_SEC": "0.01"}))
    until("it has expired", lambda: brief.listed(owner).rows[0]["expired"])
    (told,) = brief.listed(owner, since).rows
    assert told["expired"]
    assert told["version"] != before["version"]  # by which the page knows that a row has changed


def test_a_file_whose_job_is_gone_has_expired_and_its_pdf_is_not_kept(quiet):
    ann = quiet.user()
    job_id = ann.upload(pdf_of("pruned"))
    upload = quiet.job(job_id).view().key
    with psycopg.connect(quiet.database_url) as cx:
        cx.execute("DELETE FROM perdure_jobs WHERE id = %s", (job_id,))
    assert quiet.converter.files.sweep()["expired"] == 1
    assert kept(quiet, upload) == []
    assert ann.upload(pdf_of("pruned")) != job_id


def test_a_sweep_touches_no_file_but_those_that_have_our_names(quiet):
    kept_upload = quiet.job(quiet.user().upload(pdf_of("kept"))).view().key
    strays = [
        quiet.uploads / f"{'a' * 32}.pdf",
        quiet.results / f"{'a' * 32}.7.xml",
        quiet.results / f".{'a' * 32}",
    ]
    others = [quiet.uploads / "notes.txt", quiet.results / "report.pdf", quiet.results / ".hidden"]
    for path in (*strays, *others):
        path.write_text("old")
    others += [quiet.uploads / "lost+found", quiet.results / f"{'b' * 32}.pdf"]
    for folder in others[-2:]:
        folder.mkdir()
    two_hours_ago = time.time() - 7_200
    for path in (*strays, *others, quiet.uploads / f"{kept_upload}.pdf"):
        os.utime(path, (two_hours_ago, two_hours_ago))
    assert quiet.converter.files.sweep()["strays"] == 3
    assert not any(path.exists() for path in strays)
    assert all(path.exists() for path in others)
    assert kept(quiet, kept_upload) == [f"{kept_upload}.pdf"]


def test_a_result_whose_file_is_gone_has_expired(converter):
    ann = converter.user()
    done = converted(converter, ann, "vanished")
    for path in converter.results.glob(f"{converter.job(done).view().key}.*"):
        path.unlink()
    assert error_in(ann.get(f"/api/jobs/{done}/download")) == (404, "EXPIRED")
    again = converted(converter, ann, "vanished")  # as the message says
    assert again != done
    assert ann.get(f"/api/jobs/{again}/download").status_code == 200
    assert set(ann.jobs()) == {done, again}


def test_a_cancel_of_a_page_that_is_old_leaves_what_has_ended_by_now(converter):
    ann = converter.user()
    done = converted(converter, ann, "done by now")
    told = ann.post(f"/api/jobs/{done}/cancel").json()["job"]
    assert told["status"] == "complete"
    assert ann.get(f"/api/jobs/{done}/download").status_code == 200
    assert error_in(converter.user().post(f"/api/jobs/{done}/cancel")) == (403, "FORBIDDEN")


# -- who may, and what is said ---------------------------------------------------------------


def test_a_session_is_a_cookie_that_scripts_cannot_read_and_the_database_does_not_have(quiet):
    ann = quiet.user()
    ann.upload(pdf_of("secret"))
    with User(base_url=quiet.site) as stranger:
        given = stranger.get("/").headers["set-cookie"]
    assert "HttpOnly" in given
    assert "SameSite=Lax" in given
    (session,) = ann.cookies.values()
    owners = {owner for (owner,) in rows(quiet, "SELECT DISTINCT owner FROM converter_files")}
    assert not any(session in owner for owner in owners)
    with User(base_url=quiet.site, cookies={"converter_session": "guessed"}) as guesser:
        assert "set-cookie" in guesser.get("/").headers


def test_over_https_a_cookie_that_another_host_could_have_set_is_no_session(quiet):
    https = {"x-forwarded-proto": "https", "cookie": f"converter_session={'A' * 32}"}
    with User(base_url=quiet.site, headers=https) as victim:
        given = victim.get("/").headers["set-cookie"]
        assert given.startswith("__Host-converter_session=")
        assert {"Secure", "Path=/"} <= set(given.split("; "))
        assert "omain" not in given
        victim.headers["cookie"] = given.partition(";")[0]
        assert "set-cookie" not in victim.get("/").headers


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
def test_another_site_cannot_act_for_its_visitor(headers, quiet):
    ann = quiet.user()
    job_id = ann.upload(pdf_of("forged"))
    pdf = {"file": ("a.pdf", pdf_of("forged too"))}
    assert error_in(ann.post("/api/upload", files=pdf, headers=headers)) == (403, "FORBIDDEN")
    assert error_in(ann.delete(f"/api/jobs/{job_id}", headers=headers)) == (403, "FORBIDDEN")
    assert error_in(ann.post(f"/api/jobs/{job_id}/retry", headers=headers)) == (403, "FORBIDDEN")
    assert list(ann.jobs()) == [job_id]
    assert ann.status(job_id) == "queued"
    own = {"origin": quiet.site, "sec-fetch-site": "same-origin"}
    assert ann.delete(f"/api/jobs/{job_id}", headers=own).status_code == 200


def test_a_database_that_is_away_is_told_in_one_line_and_comes_back(make_converter_trial, postgres):
    with make_converter_trial() as trial:
        ann = trial.user()
        job_id = ann.upload(pdf_of("before"))
        name = urlsplit(trial.database_url).path[1:]
        with postgres.admin() as cx:
            cx.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
            cx.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
        assert error_in(ann.get("/api/jobs")) == (503, "IO_ERROR")
        assert error_in(ann.send_pdf(pdf_of("while it is away"))) == (503, "IO_ERROR")
        page = ann.get("/", headers={"accept": "text/html"})
        assert (page.status_code, CODES["IO_ERROR"][1] in page.text) == (503, True)
        with postgres.admin() as cx:
            cx.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
        assert list(ann.jobs()) == [job_id]


def test_there_are_ten_codes_each_with_one_line_and_no_other_gets_out(quiet):
    assert set(CODES) == {
        "NOT_PDF", "TOO_LARGE", "GW_4XX", "GW_5XX", "GW_TIMEOUT", "IO_ERROR", "NOT_READY", "EXPIRED", "FORBIDDEN", "UNKNOWN",
    }  # fmt: skip
    assert all("\n" not in line and len(line) < 80 for _, line in CODES.values())
    ann = quiet.user()
    for answer in (
        ann.get("/nowhere"),
        ann.put("/api/upload"),
        ann.get("/api/jobs/x/y/z"),
        ann.patch("/"),
    ):
        assert error_in(answer)[1] in CODES


def test_a_wrong_method_is_answered_with_those_that_there_are(quiet):
    ann = quiet.user()
    for accept in ("application/json", "text/html"):
        answer = ann.put("/api/upload", headers={"accept": accept})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert error_in(ann.delete("/api/jobs")) == (405, "UNKNOWN")
    assert set(ann.delete("/api/jobs").headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_a_broken_pdf_is_the_converter_s_to_refuse(converter):
    ann = converter.user()
    job_id = ann.upload(BROKEN_PDF)
    assert converter.job(job_id).wait(wait_s=FAR_S).state == "failed"
    job = ann.jobs()[job_id]
    assert (job["error"]["code"], job["attemptCount"]) == ("GW_4XX", 1)
    assert job["error"]["message"] == CODES["GW_4XX"][1]
