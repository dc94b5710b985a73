"""The mistakes 1 and 2 of the real system behind the document: a worker that dies.

Its claim never saw a job whose worker had died. And it counted attempts at the claim, where a check forbade more of them than the maximum:
the last attempt could not have been saved.
"""

import os
from collections.abc import Iterator

import pytest
from examples.reports.faults import FAULTS, Fault
from examples.reports.parts import PERDURE, System
from tests.examples.reports.conftest import ROOT, Reports
from tests.servers.postgres import Server

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]  # several processes begin


@pytest.fixture(scope="module")
def process(
    reports: Reports, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """A worker in a process of its own, and nobody else who works."""
    folder = tmp_path_factory.mktemp("worker")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    system = System(postgres, folder, environment, reports.model, reports.s3)
    options = ("--concurrency", "4", "--poll", "0.1", "--log-format", "json")
    system.start("worker", *PERDURE, "worker", "examples.reports.app:app", *options)
    yield system
    system.stop("worker")


def killed(process: System) -> Fault:
    return Fault("killed", FAULTS["connection reset"].answer, process.kill_working_process)


def test_1_a_job_whose_worker_dies_is_claimed_again_and_2_its_last_attempt_is_saved(
    reports, process
):
    file = reports.ended(reports.upload(FAULTS["500"], FAULTS["500"], killed(process)))
    assert (file["status"], file["processing"]["attempts"]) == ("succeeded", 4)
    tries = [one for one in reports.attempts(file["id"]) if one[0] == "ask"]
    assert tries == [
        ("ask", "retrying", "llm_provider_5xx"),
        ("ask", "retrying", "llm_provider_5xx"),
        ("ask", "interrupted", "processing_failed"),
        ("ask", "success", None),
    ]
    assert reports.calls(file["id"]) == 4


@pytest.mark.long
def test_2_a_worker_that_dies_in_the_last_attempt_ends_the_job_within_its_maximum(reports, process):
    file = reports.ended(reports.upload(*[FAULTS["500"]] * 3, killed(process)))
    assert (file["status"], file["error_code"]) == ("failed", "processing_failed")
    assert file["processing"]["attempts"] == file["processing"]["max_attempts"] == 4
    assert process.perdure("audit").returncode == 0
