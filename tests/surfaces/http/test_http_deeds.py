"""Every operator's deed stands in the audit log with the token's name; made from the table of endpoints."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import perdure
from perdure.app.surface.serving import pipeline_named
from perdure.model.access import AccessScope
from perdure.model.gates import GateChange, GateState
from perdure.model.operations import Deed
from perdure.surfaces.http.asgi import ENDPOINTS
from tests.surfaces.http.conftest import problem

DEED = Deed("test", "")
OPERATES = [
    one
    for one in ENDPOINTS
    if one.scope in (AccessScope.OPERATE, AccessScope.ADMIN) and one.name != "preview_redrive"
]


class Yard:
    """Things in the state in which something can be done to each."""

    def __init__(self, app, root) -> None:
        self._session, self._root = app._session, root
        self._pipe = pipeline_named(app._session, "shouting")
        broken = [self._pipe.enqueue({"broken": n}, owner="ann") for n in range(3)]
        with app.working(concurrency=1):
            for one in broken:
                one.wait()
        self.dead = broken[0].id
        control = self._session.opened.control
        control.change_gate(GateChange("model", 0, GateState.HELD, None), DEED)

    def later(self) -> str:
        """A job that waits for its time."""
        at = self._session.opened.reader.now().replace(year=2999)
        return self._pipe.enqueue({"text": "x"}, owner="ann", run_at=at).id

    def run(self, *, paused: bool = False) -> str:
        """A run that is begun."""
        run = self._pipe.run([], name=self._session.ids.next(), owner="ann", seal=False)
        if paused:
            run.pause()
        return run.id

    def held(self) -> str:
        """A gate that is held."""
        self._root.post("/api/gates/model/hold", json={"reason": "so that it can be probed"})
        return "model"

    def bulk(self, *, stopped: bool = False) -> str:
        """A re-drive of nothing yet that runs, since no worker is there."""
        begun = self._root.post("/api/dead/redrive", json={"pipeline": "shouting"}).json()["id"]
        if stopped:
            self._root.post(f"/api/dead/bulks/{begun}/stop", json={})
        return str(begun)


# Of which thing, and what is said with it.
READY: Mapping[str, tuple[Callable[[Yard], str], dict[str, Any]]] = {
    "cancel_job": (lambda yard: yard.later(), {}),
    "run_job_now": (lambda yard: yard.later(), {}),
    "retry_job": (lambda yard: yard.dead, {}),
    "pause_run": (lambda yard: yard.run(), {}),
    "resume_run": (lambda yard: yard.run(paused=True), {}),
    "cancel_run": (lambda yard: yard.run(), {}),
    "redrive_letters": (lambda yard: "", {"pipeline": "shouting"}),
    "discard_letters": (lambda yard: "", {"pipeline": "shouting"}),
    "stop_bulk": (lambda yard: yard.bulk(), {}),
    "resume_bulk": (lambda yard: yard.bulk(stopped=True), {}),
    "hold_gate": (lambda yard: "model", {}),
    "release_gate": (lambda yard: "model", {}),
    "probe_gate": (lambda yard: yard.held(), {}),
    "pause_queue": (lambda yard: "default", {}),
    "resume_queue": (lambda yard: "default", {}),
}


@pytest.fixture
def root(client):
    return client("admin", owner="root")


@pytest.fixture
def yard(app, root) -> Yard:
    return Yard(app, root)


def test_every_deed_is_logged_with_who_and_why(app, root, yard):
    reader, missing = app._session.opened.reader, []
    for one in OPERATES:
        of, said = READY[one.name]
        path = one.path.replace("{id}", "{name}").replace("{name}", of(yard))
        before = len(reader.deeds(limit=500))
        answer = root.post(path, json={**said, "reason": f"so that {one.name}"})
        assert answer.status_code in (200, 202), (one.name, answer.text)
        log = reader.deeds(limit=500)
        new = [(deed.by_whom, deed.reason) for deed in log[: len(log) - before]]
        if ("root's", f"so that {one.name}") not in new:
            missing.append(one.name)
    print(f"FIGURE deeds in the audit log: {len(OPERATES) - len(missing)} of {len(OPERATES)}")
    assert missing == []


def test_a_deed_that_is_only_tried_is_not_logged(app, root, yard):
    before = app._session.opened.reader.deeds(limit=500)
    for path in (
        f"jobs/{yard.dead}/retry",
        f"jobs/{yard.later()}/cancel",
        f"jobs/{yard.later()}/run-now",
    ):
        assert root.post(f"/api/{path}", json={"dry_run": True}).status_code == 200
    root.post("/api/dead/preview", json={"pipeline": "shouting"})
    assert app._session.opened.reader.deeds(limit=500) == before


def test_a_job_whose_source_is_gone_is_not_retried(app, client):
    there = []

    @app.stage
    def read(item):
        raise perdure.StageError("input_invalid", "no")

    pipe = app.pipeline("reading", read, source_exists=lambda item: there)
    job = pipe.enqueue({"file": "a"}, owner="ann")
    with app.working(concurrency=1):
        job.wait()
    ann = client("operate")
    for dry_run in (True, False):
        refused = ann.post(f"/api/jobs/{job.id}/retry", json={"dry_run": dry_run})
        assert (refused.status_code, problem(refused)) == (409, "not_retriable")
        assert "its source is gone" in refused.json()["detail"]
    there.append(1)
    assert ann.post(f"/api/jobs/{job.id}/retry", json={}).json()["job"]["state"] == "queued"


def test_who_waits_for_a_job_that_fails_or_is_cancelled_has_its_state_and_public_error(app, client):
    ann = client("submit", "operate", prefer="wait=30")
    with app.working(concurrency=1):
        failed = ann.post("/api/jobs", json={"pipeline": "shouting", "item": {"broken": 1}})
    told = failed.json()["job"]
    assert (failed.status_code, told["state"], told["error"]["code"]) == (200, "failed", "unknown")
    assert (told["attempts"], told["failures"], told["attempts_max"]) == (1, 1, 1)
    assert "/srv" not in failed.text
    made = ann.post(
        "/api/jobs", json={"pipeline": "shouting", "item": {"text": "x"}}, headers={"prefer": ""}
    )
    id = made.json()["job"]["id"]
    ann.post(f"/api/jobs/{id}/cancel", json={})
    over = client("read", prefer="wait=30").get(f"/api/jobs/{id}/result")
    assert (over.status_code, over.json()["job"]["state"]) == (200, "cancelled")
