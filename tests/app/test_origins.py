"""Whose code raised an unknown failure is stored with the attempt and told to people, on both stores."""

import json

import pytest
from click.testing import CliRunner

from perdure.model.states import State
from perdure.surfaces.cli.root import cli
from tests.app import acts
from tests.app.worker.working_off import worked_off


@pytest.mark.parametrize("process", [False, True])
def test_a_defect_of_the_stage_is_kept_and_told_as_own_code(app, url, process):
    ref = app.pipeline("p", app.stage(process=process)(acts.looks_up)).enqueue("lost")
    worked_off(app)
    job = ref.view()
    (attempt,) = app._session.opened.reader.attempts(job.no)
    assert (job.state, attempt.kind) == (State.QUEUED, "unknown")
    assert json.loads(attempt.evidence_json)["origin"] == "own code"
    told = CliRunner().invoke(cli, ["jobs", "show", ref.id, "--store", url]).output
    assert "nobody has named yet; own code: KeyError); attempt 1 of 2 failed" in told
