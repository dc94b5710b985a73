"""The verifier's daemon as a process: it polls, verifies, dies and is started again."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress

from examples.verifier.runs import all_runs

from perdure.demo.crew import descendants
from tests.examples.converter_kit import ROOT, until
from tests.examples.verifier_kit import VerifierTrial, verifier_trial

FAR_S = 60


@contextmanager
def daemon(trial: VerifierTrial, log: str):
    """A daemon; whatever becomes of the test, it and what it has started end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PERDURE_LEASE_TTL_S": "3"}
    command = [sys.executable, "-m", "examples.verifier", "daemon"]
    with (trial.folder / log).open("w") as lines:
        process = subprocess.Popen(command, cwd=trial.folder, env=environment, stderr=lines)
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen) -> None:
    if process.poll() is None:
        for pid in [process.pid, *descendants(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(FAR_S)


def events(trial: VerifierTrial, log: str) -> list[dict]:
    return [json.loads(line) for line in (trial.folder / log).read_text().splitlines()]


def test_a_daemon_polls_verifies_is_killed_and_goes_on_and_its_log_tells_it(tmp_path):
    quick = {"max_attempts": 2, "initial_backoff": 0.1}
    with verifier_trial(tmp_path, retry=quick) as trial:
        trial.submit("in hand")
        trial.submit("mended")
        trial.submit("broken", "crash")
        trial.order(
            {"path": "/api/runs/mended", "status": 503},
            {"path": "/files/in hand.save", "hold": True},
        )
        with daemon(trial, "first.log") as first:
            until("both have ended", lambda: statuses(trial) >= {"passed", "error"})
            until("one is in hand", lambda: trial.row("in hand").status == "processing")
            until("it is permanent", lambda: trial.row("broken").has_ended)
            kill(first)
        with daemon(trial, "second.log") as second:
            trial.until_status("in hand", "passed")
            second.send_signal(signal.SIGTERM)
            assert second.wait(FAR_S) == 0
        told = events(trial, "first.log")
        assert trial.row("in hand").retry_count == 0
    by = {(one["event"], one.get("request_id")): one for one in told}
    assert (by["job_retried", "mended"]["attempt"], by["job_retried", "mended"]["delay_ms"]) == (
        1,
        100,
    )
    assert by["job_claimed", "mended"]["attempt"] == 2  # first tries are not told
    assert by["job_advanced", "mended"]["attempt"] == 2
    ended = by["job_failed", "broken"]
    assert (ended["reason"], ended["attempt"], ended["error_code"]) == ("exhausted", 2, "retryable")
    again = [one for one in events(trial, "second.log") if one.get("request_id") == "in%20hand"]
    assert [one["event"] for one in again if one["event"] == "job_claimed"] == ["job_claimed"]


def statuses(trial: VerifierTrial) -> set[str]:
    return {row.status for row in all_runs(trial.verifier)}
