"""Operators over HTTP: what they see and do, and what nobody else does."""

from datetime import UTC, datetime

import pytest

from perdure.model.gates import GateChange, GateState
from perdure.model.operations import Deed
from perdure.surfaces.http.operators import ENDPOINTS
from tests.engine.kit import until
from tests.surfaces.http.conftest import problem


@pytest.fixture
def admin(client):
    return client("admin", owner="")


def test_gates_are_seen_held_probed_and_released(app, admin):
    app.upstream("model")
    held = admin.post("/api/gates/model/hold", json={"for_time": "10m", "reason": "maintenance"})
    assert problem(held) == "not_found"  # nothing has called it yet
    assert admin.get("/api/gates").json() == {"gates": []}
    app._session.opened.control.change_gate(
        GateChange("model", 0, GateState.FLOWING, None), Deed("t", "")
    )
    assert (
        admin.post("/api/gates/model/hold", json={"for_time": "10m", "reason": "why"}).json()[
            "state"
        ]
        == "held"
    )
    assert (
        problem(admin.post("/api/gates/model/release", json={})) == "bad_request"
    )  # without a reason
    assert (
        admin.post("/api/gates/model/release", json={"reason": "done"}).json()["state"] == "flowing"
    )


def test_a_queue_is_paused_and_resumed_and_the_log_says_by_whom(app, admin):
    told = admin.post("/api/queues/default/pause", json={"reason": "moving"}).json()
    assert [(one["name"], one["paused_by"], one["reason"]) for one in told["queues"]] == [
        ("default", "'s", "moving")
    ]
    again = admin.post("/api/queues/default/resume", json={}).json()
    assert again["queues"][0]["paused_at"] is None
    assert problem(admin.post("/api/queues/defualt/pause", json={})) == "not_found"
    log = admin.get("/api/audit-log", params={"limit": 2}).json()
    assert [one["verb"] for one in log["deeds"]] == ["resume queue", "pause queue"]
    assert admin.get("/api/audit-log", params={"cursor": log["next"]}).json()["deeds"]


def test_workers_schedules_and_figures_are_seen(app, admin):
    app.every("15m", app.get_pipeline("shouting"), {"text": "tick"})
    with app.working(concurrency=1):
        (worker,) = admin.get("/api/workers").json()["workers"]
        assert worker["dead_at"] is None
        until(lambda: admin.get("/api/schedules").json()["schedules"], "the schedule is there")
        (schedule,) = admin.get("/api/schedules").json()["schedules"]
        assert schedule["rule"] == "every 15m"
    stats = admin.get("/api/stats").json()
    assert set(stats) == {"depths", "flows", "deaths"}


@pytest.mark.parametrize("one", ENDPOINTS, ids=lambda one: one.name)
def test_what_is_the_operators_is_closed_to_owners_and_viewers_change_nothing(client, one):
    path = one.path.replace("{name}", "default")
    body = {"json": {}} if one.method == "POST" else {}
    ann = client("submit", "read", "operate")
    assert problem(ann.request(one.method, path, **body)) == "forbidden"
    viewer = client("read_all", owner="").request(one.method, path, **body)
    seen = viewer.status_code if viewer.status_code == 200 else problem(viewer)
    assert seen in ({"forbidden"} if one.method == "POST" else {200, "not_found"})


def test_a_queue_says_since_when_its_first_job_could_run(app, admin):
    assert admin.get("/api/queues").json()["queues"][0]["oldest_due_at"] is None
    job = app.get_pipeline("shouting").enqueue({"text": "x"}).view()
    (queue,) = admin.get("/api/queues").json()["queues"]
    assert (queue["ready"], queue["later"]) == (1, 0)
    assert queue["oldest_due_at"] == job.due_at.isoformat().replace("+00:00", "Z")


def test_money_in_the_figures_is_a_decimal_text(app, admin):
    @app.stage
    def pay(item, context):
        context.usage(cost_usd=0.1)
        return item

    app.pipeline("paying", pay).call({"n": 1})
    (flow,) = admin.get("/api/stats").json()["flows"]
    assert (flow["pipeline"], flow["succeeded"], flow["cost_usd"]) == ("paying", 1, "0.100000000")
    assert "nusd" not in admin.get("/api/stats").text


def test_a_job_behind_a_gate_that_lets_nothing_pass_is_held(app, client):
    @app.stage(upstream=app.upstream("model"))
    def ask(item):
        return item

    pipe = app.pipeline("asking", ask)
    pipe.enqueue({"n": 1}, owner="ann", run_at=datetime(2999, 1, 1, tzinfo=UTC))
    job, ann = pipe.enqueue({"n": 2}, owner="ann"), client("read")

    def views() -> list[str]:
        listed = ann.get("/api/jobs").json()["jobs"]
        shown = ann.get(f"/api/jobs/{job.id}").json()["job"]
        assert shown == listed[0]
        return [one["view"] for one in listed]

    assert views() == ["queued", "scheduled"]
    control = app._session.opened.control
    control.change_gate(GateChange("model", 0, GateState.HELD, None), Deed("t", ""))
    assert views() == ["held", "scheduled"]
    held = ann.get("/api/jobs?state=held").json()["jobs"]
    assert [one["view"] for one in held] == ["held", "scheduled"]
    control.change_gate(GateChange("model", 1, GateState.FLOWING, None), Deed("t", ""))
    assert views() == ["queued", "scheduled"]
