"""The API and `--json` of the command line show the same: what the API has is in the command's answer, under the same name."""

from datetime import timedelta
from typing import Any

from starlette.testclient import TestClient

from perdure.app.surface.access import create_token
from perdure.http import asgi
from perdure.model.gates import GateChange, GateState
from perdure.model.operations import Deed, NewSchedule
from tests.engine.kit import until
from tests.surfaces.http.conftest import problem
from tests.surfaces.letters import Office, module_in

DEED = Deed("test", "")


def client(office: Office, *scopes: str, owner: str = "") -> TestClient:
    text, _ = create_token(
        office.app._session, name="web", owner=owner, scopes=scopes, expires=None, deed=DEED
    )
    api = asgi(office.app, hosts=("testserver",))
    return TestClient(api, headers={"authorization": f"Bearer {text}"})


def missing(told: Any, shown: Any, where: str = "") -> list[str]:
    """What the API tells and the command does not, by path."""
    if isinstance(told, dict) and isinstance(shown, dict):
        return [
            line
            for name, value in told.items()
            for line in (
                missing(value, shown[name], f"{where}.{name}")
                if name in shown
                else [f"{where}.{name} is missing"]
            )
        ]
    if isinstance(told, list) and isinstance(shown, list) and len(told) == len(shown):
        pairs = enumerate(zip(told, shown, strict=True))
        return [line for n, (one, other) in pairs for line in missing(one, other, f"{where}[{n}]")]
    return [] if told == shown else [f"{where}: {told!r} is not {shown!r}"]


def test_jobs_runs_and_dead_letters_are_the_same_in_both(archive, monkeypatch):
    """But for what only the app knows, which a command is told with --app: when a job fails, and second names."""
    monkeypatch.setenv("PERDURE_ALIASES", "gateway")
    api, get = client(archive, "admin"), {}
    run = archive.app.get_run("march").id
    jobs = api.get("/api/jobs").json()["jobs"]
    dead = archive.json("dead", "list")[0]["id"]
    for path in ("jobs", f"jobs/{dead}", f"jobs/{dead}/captures", "runs", f"runs/{run}", "dead", "dead/groups"):  # fmt: skip
        answer = api.get(f"/api/{path}")
        assert answer.status_code == 200
        get[path] = answer.json()
    assert len(jobs) == 12
    story = get[f"jobs/{dead}"]
    flat = {**story["job"], "attempts": story["attempts"], "payload": story["item"]}
    captures = get[f"jobs/{dead}/captures"]["captures"]
    assert len(captures) == 1
    pairs = [
        (jobs, ("jobs", "list")),
        (flat, ("jobs", "show", dead)),
        ({**flat, "captures": captures}, ("dead", "show", dead)),
        (captures, ("captures", "list", dead)),
        (get["runs"]["runs"], ("runs", "list")),
        (get[f"runs/{run}"], ("runs", "show", run)),
        (get["dead"]["jobs"], ("dead", "list")),
        (get["dead/groups"]["groups"], ("dead", "groups")),
    ]
    for told, words in pairs:
        left_out = [one for one in missing(told, archive.json(*words)) if "ttempts" not in one]
        assert left_out == []
    assert jobs[0]["attempts_max"] == jobs[0]["maxAttempts"] == 3
    assert archive.json("jobs", "list")[0]["attempts_max"] is None


def test_with_the_app_a_command_knows_what_the_api_knows(archive, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    name = module_in(tmp_path, archive.url, tmp_path.name)
    dead = archive.json("dead", "list", "--app", name)
    assert {(one["attempts"], one["failures"], one["attempts_max"]) for one in dead} == {(2, 1, 5)}
    for words in (
        ("jobs", "list"),
        ("jobs", "show", dead[0]["id"]),
        ("dead", "show", dead[0]["id"]),
    ):
        found = archive.json(*words, "--app", name)
        assert (found if isinstance(found, dict) else found[0])["attempts_max"] == 5


def test_a_report_is_the_same_in_both(archive):
    run = archive.app.get_run("march").id
    told = client(archive, "read", owner="ann").get(f"/api/runs/{run}/report").json()
    shown = archive.json("runs", "report", run)
    for moment in ("created_at", "ended_at"):
        shown["run"][moment] = shown["run"][moment].replace("+00:00", "Z")
    assert missing(told, shown) == []
    assert told["waste"]["cost_usd"] == "3.000000000"
    assert told["counts"]["failed_by_kind"] == {"content_refused": 1, "input_invalid": 2}
    assert [one["stage"] for one in told["stages"]] == ["one", "two"]
    other = client(archive, "read", owner="bob").get(f"/api/runs/{run}/report")
    assert problem(other) == "not_found"


def test_what_operators_see_is_the_same_in_both(office):
    api, control = client(office, "admin"), office.app._session.opened.control
    control.change_gate(GateChange("model", 0, GateState.HELD, None), DEED)
    now = office.app._session.opened.reader.now()
    control.put_schedule(NewSchedule("nightly", "rows", "every 1d", "{}", now + timedelta(days=1)))
    bulk = api.post("/api/dead/discard", json={"fingerprint": "none"}).json()["id"]
    pairs = [
        (api.get("/api/gates").json()["gates"], ("gates", "list")),
        (api.get("/api/gates/model").json(), ("gates", "show", "model")),
        (api.get("/api/queues").json()["queues"], ("queues", "list")),
        (api.get("/api/schedules").json()["schedules"], ("schedules", "list")),
        (api.get("/api/dead/bulks").json()["bulks"], ("dead", "history")),
        (api.get(f"/api/dead/bulks/{bulk}").json(), ("dead", "history", bulk)),
    ]
    for told, words in pairs:
        assert told
        shown = office.json(*words)
        for one in [*shown, *told] if isinstance(shown, list) else [shown, told]:
            one.pop("now", None)  # a gate is seen at a moment
        assert missing(told, shown, " ".join(words)) == []


def test_captures_are_their_owners_and_tracebacks_an_admins(office):
    ann, bob = client(office, "read", owner="ann"), client(office, "read", owner="bob")
    admin, viewer = client(office, "admin"), client(office, "read_all")
    job, other = [one["id"] for one in office.json("dead", "list")][:2]
    session = office.app._session
    traceback = session.ids.next()
    session.opened.control._execute(
        "INSERT INTO perdure_artifacts (id, job, token, stage, kind, media_type, content, saved_at)"
        " VALUES (:id, :job, 2, 'two', 'traceback', 'text/plain', X'3c623e', 1)",
        {"id": traceback, "job": session.opened.reader.job(job, owner=None).no},
    )
    where = f"/api/jobs/{job}/captures"
    (raw,) = ann.get(where).json()["captures"]
    assert (raw["kind"], raw["stage"], raw["bytes_kept"]) == ("raw", "two", 6)
    assert len(admin.get(where).json()["captures"]) == 2
    assert viewer.get(where).status_code == 404
    for answer in (
        bob.get(where),
        bob.get(f"{where}/{raw['id']}"),
        ann.get(f"{where}/{traceback}"),
        viewer.get(f"{where}/{raw['id']}"),
        ann.get(f"/api/jobs/{other}/captures/{raw['id']}"),
        ann.get(f"{where}/no-id"),
    ):
        assert problem(answer) == "not_found"
    got = ann.get(f"{where}/{raw['id']}")
    assert got.content.startswith(b"raw ")
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"] == f'attachment; filename="capture-{raw["id"]}"'
    assert admin.get(f"{where}/{traceback}").content == b"<b>"


def test_many_are_discarded_a_thousand_at_once_and_workers_go_on(office, monkeypatch):
    monkeypatch.setattr("perdure.engine.operate.bulks.PAGE_ROWS", 1)
    monkeypatch.setattr("perdure.app.surface.serving._DISCARD_STEPS_MAX", 2)
    ann = client(office, "read", "operate", owner="ann")
    begun = ann.post("/api/dead/discard", json={"reason": "seen"})
    where = begun.headers["location"]
    assert (begun.status_code, begun.json()["status"], begun.json()["done"]) == (202, "running", 2)
    stopped = ann.post(f"{where}/stop", json={})
    assert (stopped.json()["status"], ann.get(where).json()["done"]) == ("stopped", 2)
    assert problem(ann.post(f"{where}/stop", json={})) == "not_changeable"
    assert ann.post(f"{where}/resume", json={}).json()["status"] == "running"
    assert len(ann.get("/api/dead").json()["jobs"]) == 1
    (listed,) = ann.get("/api/dead/bulks?running=true").json()["bulks"]
    assert f"/api/dead/bulks/{listed['id']}" == where
    bob = client(office, "read", owner="bob")
    assert bob.get("/api/dead/bulks").json() == {"bulks": []}
    with office.app.working(concurrency=1, poll_s=0.05):
        until(lambda: ann.get(where).json()["status"] == "done", "the worker goes on")
    assert ann.get(where).json()["done"] == 3
    assert ann.get("/api/dead/bulks?running=true").json() == {"bulks": []}
    assert ann.get("/api/dead").json()["jobs"] == []
