"""The converter's workers as processes: SIGTERM, a kill, a long job's lease, late results, the log, the limit."""

from datetime import timedelta

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.examples.converter_kit import Trial, WorkerProcess, pdf_of, until, worker_of

pytestmark = pytest.mark.story

LEASE_S = 2.0


def row_of(trial: Trial, job_id: str) -> dict:
    with psycopg.connect(trial.database_url, row_factory=dict_row) as cx:
        statement = "SELECT *, now() AS now FROM perdure_converter_jobs WHERE id = %s"
        return cx.execute(statement, (job_id,)).fetchone()


def assert_books_balance(trial: Trial) -> None:
    assert trial.converter.app._session.opened.reader.audit() == []


def test_sigterm_finishes_what_it_can_and_gives_the_rest_back_and_nothing_is_counted(
    make_converter_trial,
):
    with make_converter_trial(WORKER_LEASE_TTL_SEC=str(LEASE_S)) as trial:
        ann = trial.user()
        with worker_of(trial, "finishes", WORKER_CONCURRENCY="1") as worker:
            assert_fault_can_be_found(trial, worker)
            trial.order(hang=True)
            job, unbegun = (
                trial.job(ann.upload(pdf_of(one))) for one in ("to be finished", "not to be begun")
            )
            until("it is in work", lambda: trial.traffic()["in_flight"] == 1)
            worker.terminate()
            until("it drains", lambda: "worker_draining" in worker.log.read_text())
            assert trial.traffic()["in_flight_max"] == 1  # WORKER_CONCURRENCY
            trial.order()
            assert worker.exit_status() == 0
            assert (job.state, len(job.attempts())) == ("succeeded", 1)
            assert (unbegun.state, unbegun.attempts()) == ("queued", [])
            assert ann.get(f"/api/jobs/{job.id}/download").status_code == 200
        with worker_of(
            trial,
            "gives-back",
            PERDURE_GRACE_S="0.3",
            WORKER_LEASE_TTL_SEC="600",
            WORKER_CONCURRENCY="2",
        ) as worker:
            # A worker's calls start one by one: the first that is answered lets two go at once.
            until("what was not begun is complete", lambda: unbegun.state == "succeeded")
            trial.order(hang=True)
            back = trial.job(ann.upload(pdf_of("to be given back")))
            ann.upload(pdf_of("beside it"))
            until("both are in work", lambda: trial.traffic()["in_flight"] == 2)
            lease = row_of(trial, back.id)  # of WORKER_LEASE_TTL_SEC
            assert lease["lease_expires_at"] > lease["now"] + timedelta(seconds=500)
            worker.terminate()
            assert worker.exit_status() == 0
        row, counters = row_of(trial, back.id), back.view().counters
        assert row["status"] == "queued"
        assert (row["leased_by"], row["lease_expires_at"], row["retryAfter"]) == (None, None, None)
        assert (counters.releases, counters.failures, counters.crashes) == (1, 0, 0)
        assert_books_balance(trial)


def test_a_long_job_keeps_its_lease(make_converter_trial):
    with make_converter_trial() as trial, trial.working(lease_ttl_s=LEASE_S):
        trial.order(hang=True)
        job = trial.job(trial.user().upload(pdf_of("long")))
        until("it is in work", lambda: job.state == "processing")
        begun = row_of(trial, job.id)["lease_expires_at"]
        until(
            "its lease has run out twice",
            lambda: row_of(trial, job.id)["now"] > begun + timedelta(seconds=LEASE_S),
        )
        lease = row_of(trial, job.id)
        assert (lease["status"], lease["attemptCount"]) == ("processing", 1)
        assert lease["lease_expires_at"] > lease["now"] > begun
        trial.order()
        until("it is complete", lambda: job.state == "succeeded")
        assert len(job.attempts()) == 1


@pytest.mark.long  # a killed worker's job is taken over in test_converter_load.py, too
def test_a_long_job_keeps_its_lease_and_a_killed_worker_s_job_is_taken_over(make_converter_trial):
    with make_converter_trial(WORKER_LEASE_TTL_SEC=str(LEASE_S)) as trial:
        ann = trial.user()
        trial.order(hang=True)
        with worker_of(trial, "first") as first, worker_of(trial, "second") as second:
            job = trial.job(ann.upload(pdf_of("long")))
            until("it is in work", lambda: row_of(trial, job.id)["leased_by"])
            begun = row_of(trial, job.id)
            assert begun["lease_expires_at"] <= begun["now"] + timedelta(seconds=LEASE_S)
            # Three leases later it is still the same attempt, and its lease lies in the future.
            later = begun["lastAttemptAt"] + timedelta(seconds=3 * LEASE_S)
            until("three leases are over", lambda: row_of(trial, job.id)["now"] > later)
            long = row_of(trial, job.id)
            assert (long["status"], long["leased_by"]) == ("processing", begun["leased_by"])
            assert (long["attemptCount"], trial.traffic()["calls"]) == (1, 1)
            assert long["lease_expires_at"] > begun["lease_expires_at"] + timedelta(
                seconds=2 * LEASE_S
            )

            holder = first if any(f":{pid}" in long["leased_by"] for pid in first.pids) else second
            holder.kill()
            until(
                "another has it",
                lambda: row_of(trial, job.id)["leased_by"] not in (None, long["leased_by"]),
            )
            trial.order()
            until("it is complete", lambda: job.state == "succeeded")
        statuses = [one.status for one in job.attempts()]
        assert statuses == ["interrupted", "success"]
        assert (job.view().counters.crashes, job.view().counters.failures) == (1, 0)
        assert ann.get(f"/api/jobs/{job.id}/download").status_code == 200
        assert_books_balance(trial)


def assert_fault_can_be_found(trial: Trial, worker: WorkerProcess) -> None:
    """The log says of a retry and of a success all that the document asks for, and no path of ours."""
    trial.order(status=502, code="X", count=1)
    job = trial.job(trial.user().upload(pdf_of("logged")))
    until("it waits", job.attempts)
    job.run_now()
    until("it is complete", lambda: job.state == "succeeded")
    until("that is logged", lambda: "job_succeeded" in worker.log.read_text())
    lines = {one["event"]: one for one in worker.lines() if one.get("job_id") == job.id}
    retried, done = lines["job_retried"], lines["job_succeeded"]
    assert (retried["status"], retried["attempt"], retried["upstream_status"]) == ("queued", 1, 502)
    assert (retried["error_code"], retried["gate_state"]) == ("GW_5XX", "flowing")
    assert retried["duration_ms"] > 0
    assert 5_000 <= retried["delay_ms"] <= 10_000
    assert (done["status"], done["attempt"]) == ("succeeded", 2)
    assert str(trial.uploads) not in worker.log.read_text()
