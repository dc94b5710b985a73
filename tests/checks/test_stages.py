"""A stage lets the error of a check escape: the attempt has its kind, the place and the rule."""

import json

import pytest

from perdure import App, Policy, Rule
from perdure.checks import check
from perdure.model.states import State
from perdure.rules.policy import Action
from tests.app.worker.working_off import worked_off
from tests.house.markdown import fences
from tests.house.tree import ROOT

SECRET = "zq7Kx9w"

ENDS = [
    ('{"total": "zq7Kx9w"}', "stop", "invalid_output", "$.total", "type number"),
    ('{"total": 5, "zq7', "length", "truncated_output", "$", "finish reason length"),
    ('{"total": 5, "zq7Kx9w', None, "truncated_output", "$", "its JSON is not closed"),
    ("zq7Kx9w, I cannot", "refusal", "content_refused", "$", "finish reason refusal"),
]


@pytest.mark.parametrize(("text", "reason", "kind", "path", "rule"), ENDS)
def test_a_failed_check_is_evidence_of_its_kind(tmp_path, text, reason, kind, path, rule):
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    schema = {"type": "object", "properties": {"total": {"type": "number"}}}

    @app.stage(policy=Policy("once", otherwise=Rule(Action.FAIL)))
    def ask(item):
        return check(text, schema, finish_reason=reason)

    ref = app.pipeline("p", ask).enqueue(1)
    worked_off(app)
    job = ref.view()
    (attempt,) = app._session.opened.reader.attempts(job.no)
    evidence = json.loads(attempt.evidence_json)
    assert (job.state, attempt.kind) == (State.FAILED, kind)
    assert (evidence["kind"], dict(evidence["facts"])) == (kind, {"path": path, "rule": rule})
    assert SECRET not in attempt.evidence_json + repr(attempt)
    app.close()


def test_the_how_to_does_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "howto-checks.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for code in fences(text):
        if code.language == "python":
            exec("\n".join(code.lines), names)
    app = names["app"]
    refs = names["refs"]
    worked_off(app)
    jobs = [ref.view() for ref in refs]
    assert [job.state for job in jobs] == [State.SUCCEEDED, State.SUCCEEDED, State.QUEUED]
    assert [job.label for job in jobs] == [None, "repaired", None]
    (attempt,) = app._session.opened.reader.attempts(jobs[2].no)
    assert attempt.kind == "invalid_output"
    assert dict(json.loads(attempt.evidence_json)["facts"]) == {
        "path": "$.lines[0].price",
        "rule": "Expected `float`, got `str`",
    }
    app.close()
