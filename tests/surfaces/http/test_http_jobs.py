"""Jobs over HTTP: made, shown, fetched and given a new life by their owner, and not there for anybody else."""

import asyncio

import httpx
import pytest

import perdure
from perdure.http import asgi
from tests.surfaces.http.conftest import on_both_stores, problem

EVERYTHING = ("submit", "read", "operate")
UNKNOWN = "00000000-0000-7000-8000-000000000009"


def made(client, **item):
    answer = client.post(
        "/api/jobs", json={"pipeline": "shouting", "item": item or {"text": "hello"}}
    )
    assert answer.status_code == 202
    return answer.json()["job"]["id"]


@on_both_stores
def test_a_job_is_made_shown_done_and_fetched(app, client):
    ann = client(*EVERYTHING)
    answer = ann.post(
        "/api/jobs",
        json={"pipeline": "shouting", "item": {"text": "hello"}, "priority": 3},
        headers={"x-request-id": "r-1"},
    )
    assert answer.status_code == 202
    id = answer.json()["job"]["id"]
    assert answer.headers["location"] == f"/api/jobs/{id}"
    assert answer.headers["x-request-id"] == "r-1"
    shown = ann.get(f"/api/jobs/{id}").json()
    assert (shown["job"]["state"], shown["job"]["owner"], shown["job"]["request_id"]) == (
        "queued",
        "ann",
        "r-1",
    )
    assert (shown["item"], shown["attempts"]) == ({"text": "hello"}, [])
    assert problem(ann.get(f"/api/jobs/{id}/result")) == "job_unfinished"
    with app.working(concurrency=2):
        waited = ann.get(f"/api/jobs/{id}/result", headers={"prefer": "wait=30"})
    assert waited.status_code == 200
    assert (waited.json()["result"], waited.json()["job"]["state"]) == (
        {"text": "HELLO"},
        "succeeded",
    )
    (attempt,) = ann.get(f"/api/jobs/{id}").json()["attempts"]
    assert (attempt["status"], attempt["decision"], attempt["cost_usd"]) == (
        "success",
        "done",
        "0.000000000",
    )


def test_who_prefers_to_wait_has_the_result_in_the_first_answer(app, client):
    ann = client(*EVERYTHING)
    with app.working(concurrency=2):
        answer = ann.post(
            "/api/jobs",
            json={"pipeline": "shouting", "item": {"text": "hello"}},
            headers={"prefer": "wait=30"},
        )
    assert (answer.status_code, answer.json()["result"]) == (200, {"text": "HELLO"})
    assert answer.headers["preference-applied"] == "wait=30"


def test_those_who_wait_keep_nobody_else_from_being_answered(app, client):
    """Waits took the threads that answer: with forty of them nothing else was served, the check of health included."""
    token = {**client(*EVERYTHING).headers}

    async def play() -> int:
        transport = httpx.ASGITransport(asgi(app, hosts=("testserver",)))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://testserver", headers=token, timeout=60
        ) as ann:
            asked = {"pipeline": "shouting", "item": {"text": "hello"}}
            prefer = {"prefer": "wait=30"}
            waits = [
                asyncio.create_task(ann.post("/api/jobs", json=asked, headers=prefer))
                for _ in range(60)
            ]
            async with asyncio.timeout(60):
                while (await ann.get("/api/jobs")).json()["active"] < len(waits):
                    assert (await ann.get("/healthz")).status_code == 200
            assert not any(one.done() for one in waits)
            async with app.working(concurrency=8):
                answers = await asyncio.gather(*waits)
            return sum(one.status_code == 200 for one in answers)

    assert asyncio.run(play()) == 60


@on_both_stores
def test_a_key_that_belongs_to_a_job_with_another_item_is_refused(client):
    ann, key = client(*EVERYTHING), {"idempotency-key": "order-7"}
    asked = {"pipeline": "shouting", "item": {"say": "a", "times": 1}}
    first = ann.post("/api/jobs", json=asked, headers=key).json()["job"]["id"]
    other = {"pipeline": "shouting", "item": {"say": "b", "times": 1}}
    refused = ann.post("/api/jobs", json=other, headers=key)
    assert (refused.status_code, refused.json()["code"]) == (422, "key_reused")
    assert first in refused.json()["detail"]
    for item in ({"say": "a", "times": True}, {"say": "a", "times": 1.0}, {"say": "a"}):
        again = ann.post("/api/jobs", json={**asked, "item": item, "key": "order-7"})
        assert (again.status_code, again.json()["code"]) == (422, "key_reused"), item
    turned = {"times": 1, "say": "a"}  # the same item, whatever the order of its fields
    again = ann.post("/api/jobs", json={**asked, "item": turned, "priority": 5}, headers=key)
    assert (again.status_code, again.json()["job"]["id"]) == (202, first)
    assert len(ann.get("/api/jobs").json()["jobs"]) == 1


@on_both_stores
def test_of_a_batch_each_job_says_whether_its_key_belongs_to_another_item(client):
    ann = client(*EVERYTHING)
    batch = [{"item": {"text": "a"}, "key": "1"}, {"item": {"text": "b"}, "key": "2"}]
    ann.post("/api/jobs/batch", json={"pipeline": "shouting", "jobs": batch})
    batch = [
        {"item": {"text": "a"}, "key": "1"},
        {"item": {"text": "x"}, "key": "2"},
        {"item": {"text": "c"}, "key": "3"},
    ]
    made = ann.post("/api/jobs/batch", json={"pipeline": "shouting", "jobs": batch})
    assert made.status_code == 202
    told = [(one["created"], one["same_item"]) for one in made.json()["jobs"]]
    assert told == [(False, True), (False, False), (True, True)]


@on_both_stores
def test_a_key_still_belongs_to_the_item_that_its_job_was_made_with_after_that_was_corrected(
    client, app
):
    broken, whole = {"text": "a", "broken": True}, {"text": "a"}
    ann, asked = client(*EVERYTHING), {"pipeline": "shouting", "item": broken, "key": "k"}
    id = ann.post("/api/jobs", json=asked).json()["job"]["id"]
    with app.working(concurrency=1):
        app.job(id).wait()
    retried = ann.post(f"/api/jobs/{id}/retry", json={"item": whole, "from_start": True})
    assert retried.status_code == 200, retried.text
    for item in (broken, whole):
        again = ann.post("/api/jobs", json={**asked, "item": item})
        assert (again.status_code, again.json()["job"]["id"]) == (202, id)
    assert ann.post("/api/jobs", json={**asked, "item": {"text": "c"}}).status_code == 422


@on_both_stores
def test_the_same_idempotency_key_is_the_same_job_and_another_owners_is_another(client):
    asked = {"pipeline": "shouting", "item": {"text": "hello"}}
    key = {"idempotency-key": "order-7"}
    ann, bob = client(*EVERYTHING), client(*EVERYTHING, owner="bob")
    ids = [
        who.post("/api/jobs", json=asked, headers=key).json()["job"]["id"]
        for who in (ann, ann, bob)
    ]
    assert ids[0] == ids[1] != ids[2]


def test_several_jobs_are_made_in_their_order(client):
    ann = client(*EVERYTHING)
    jobs = [{"item": {"text": str(n)}, "key": f"k{n}"} for n in range(3)]
    told = ann.post("/api/jobs/batch", json={"pipeline": "shouting", "jobs": jobs})
    assert told.status_code == 202
    again = ann.post("/api/jobs/batch", json={"pipeline": "shouting", "jobs": jobs}).json()["jobs"]
    assert [one["id"] for one in again] == [one["id"] for one in told.json()["jobs"]]
    assert [one["created"] for one in again] == [False] * 3


@on_both_stores
def test_a_list_has_pages_and_says_how_many_are_active(client):
    ann, bob = client(*EVERYTHING), client(*EVERYTHING, owner="bob")
    ids = [made(ann) for _ in range(3)]
    made(bob)
    first = ann.get("/api/jobs", params={"limit": 2}).json()
    assert ([one["id"] for one in first["jobs"]], first["active"]) == ([ids[2], ids[1]], 3)
    rest = ann.get("/api/jobs", params={"limit": 2, "cursor": first["next"]}).json()
    assert ([one["id"] for one in rest["jobs"]], rest["next"]) == ([ids[0]], None)


@on_both_stores
def test_jobs_are_listed_by_the_label_of_their_success(app, client):
    @app.stage
    def grade(item):
        return perdure.Succeeded(item, label=item["grade"])

    pipe = app.pipeline("grading", grade)
    ids = {
        who + grade: pipe.enqueue({"grade": grade}, owner=who).id
        for who in ("ann", "bob")
        for grade in ("good", "poor")
    }
    with app.working(concurrency=2):
        for id in ids.values():
            app.job(id).result(wait_s=30)
    ann, admin = client(*EVERYTHING), client("admin", owner="")

    def found(who, **asked):
        return [one["id"] for one in who.get("/api/jobs", params=asked).json()["jobs"]]

    assert found(ann, label="good") == [ids["anngood"]]
    assert found(ann, label="good", state="succeeded", pipeline="grading") == [ids["anngood"]]
    assert found(admin, label="poor") == [ids["bobpoor"], ids["annpoor"]]
    assert found(ann, label="GOOD") == found(ann, label="good", state="failed") == []


def test_what_has_changed_since_is_listed_oldest_change_first_in_pages(client):
    ann = client(*EVERYTHING)
    ids = [made(ann) for _ in range(3)]
    ann.post(f"/api/jobs/{ids[0]}/cancel", json={})
    asked = {"since": "2020-01-01T00:00:00Z", "limit": 2}
    first = ann.get("/api/jobs", params=asked).json()
    rest = ann.get("/api/jobs", params={**asked, "cursor": first["next"]}).json()
    assert [one["id"] for one in first["jobs"] + rest["jobs"]] == [ids[1], ids[2], ids[0]]
    assert rest["next"] is None
    for cursor in ("1@" + "9" * 24, "1@2030-01-01T00:00:00.0", "x"):
        assert problem(ann.get("/api/jobs", params={**asked, "cursor": cursor})) == "bad_request"
    for since in ("", "0", "0.5", "yesterday", "2020-01-01T00:00:00", "2020-01-01"):
        for cursor in (None, UNKNOWN, f"{UNKNOWN}@2020-01-01T00:00:00.000Z"):
            odd = {"since": since} | ({} if cursor is None else {"cursor": cursor})
            assert problem(ann.get("/api/jobs", params=odd)) == "bad_request", odd
    lost = ann.get("/api/jobs", params={**asked, "cursor": UNKNOWN})
    assert problem(lost) == "cursor_too_old"
    admin = client("admin", owner="")
    assert problem(admin.get("/api/jobs", params=asked)) == "caller_error"
    assert len(admin.get("/api/jobs", params={**asked, "owner": "ann"}).json()["jobs"]) == 2


def test_a_failed_job_is_given_a_new_life_with_a_corrected_item(app, client):
    ann = client(*EVERYTHING)
    id = made(ann, broken=True)
    assert problem(ann.post(f"/api/jobs/{id}/retry", json={})) == "not_retriable"
    with app.working(concurrency=2):
        failed = ann.get(f"/api/jobs/{id}/result", headers={"prefer": "wait=30"}).json()
        assert (failed["job"]["state"], failed["result"]) == ("failed", None)
        assert "/srv" not in str(failed)
        dry = ann.post(f"/api/jobs/{id}/retry", json={"dry_run": True}).json()
        assert (dry["job"]["state"], dry["stage"], dry["dry_run"]) == ("failed", "shout", True)
    told = ann.post(
        f"/api/jobs/{id}/retry", json={"item": {"text": "now"}, "reason": "mended"}
    ).json()
    assert (told["job"]["state"], told["job"]["retries_manual"]) == ("queued", 1)
    with app.working(concurrency=2):
        done = ann.get(f"/api/jobs/{id}/result", headers={"prefer": "wait=30"}).json()
    assert done["result"] == {"text": "NOW"}
    deeds = app._session.opened.reader.deeds(subject=id)
    assert [(one.by_whom, one.reason) for one in deeds] == [("ann's", "mended")]


def test_a_job_is_cancelled_once(client):
    ann = client(*EVERYTHING)
    id = made(ann)
    assert ann.post(f"/api/jobs/{id}/cancel", json={"reason": "no"}).json()["state"] == "cancelled"
    assert problem(ann.post(f"/api/jobs/{id}/cancel", json={})) == "not_cancellable"


PATHS = [
    ("GET", ""), ("GET", "/result"), ("POST", "/cancel"), ("POST", "/run-now"), ("POST", "/retry"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_another_owners_job_is_not_found_as_one_that_never_was(client, method, path):
    id = made(client(*EVERYTHING))
    bob = client(*EVERYTHING, owner="bob")
    body = {"json": {}} if method == "POST" else {}
    others, never = (bob.request(method, f"/api/jobs/{one}{path}", **body) for one in (id, UNKNOWN))
    assert problem(others) == problem(never) == "not_found"
    assert others.json() | {"request_id": ""} == never.json() | {"request_id": ""}


def test_what_is_nobodys_is_the_operators(app, client):
    pipe = app.job(made(client("submit"))).view()
    assert pipe.owner == "ann"
    nobodys = perdure_job(app)
    assert problem(client(*EVERYTHING).get(f"/api/jobs/{nobodys}")) == "not_found"
    assert client("admin", owner="").get(f"/api/jobs/{nobodys}").status_code == 200
    viewer = client("read_all", owner="")
    assert viewer.get(f"/api/jobs/{nobodys}").status_code == 200
    assert problem(viewer.post(f"/api/jobs/{nobodys}/cancel", json={})) == "forbidden"


def perdure_job(app) -> str:
    from perdure.app.surface.serving import pipeline_named

    return pipeline_named(app._session, "shouting").enqueue({"text": "x"}).id


@pytest.mark.parametrize(("scope", "method", "path"), [
    ("read", "POST", "/api/jobs"), ("submit", "GET", "/api/jobs"), ("read", "POST", "/api/jobs/x/cancel"),
])  # fmt: skip
def test_a_scope_opens_what_it_says_and_nothing_else(client, scope, method, path):
    assert problem(client(scope).request(method, path, json={})) == "forbidden"
    assert problem(client().request(method, path, json={})) == "unauthenticated"
    assert (
        problem(client(authorization="Bearer nonsense").request(method, path)) == "unauthenticated"
    )


NO_TOKEN = [
    ({}, "there is no header Authorization; send Authorization: Bearer TOKEN (perdure token create makes one)"),
    ({"authorization": "Basic YQ=="}, "the header Authorization must be Bearer and the token, with a space between them"),
    ({"authorization": "Bearer nonsense"}, "the token is unknown, expired or revoked; send another one (perdure token create makes one)"),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "words"), NO_TOKEN)
def test_who_is_not_let_in_is_told_what_to_send(client, headers, words):
    answer = client().get("/api/jobs", headers=headers)
    assert (problem(answer), answer.json()["detail"]) == ("unauthenticated", words)


NOT_THERE = [
    ("GET", "/", "not_found", "nothing answers at this path; what does stands in /api/openapi.json"),
    ("GET", "/api", "not_found", "nothing answers at this path; what does stands in /api/openapi.json"),
    ("DELETE", "/api/jobs", "method_not_allowed", "this path takes GET, HEAD, POST"),
    ("GET", "/api/jobs?kee=x", "bad_request", "Object contains unknown field `kee`; there are: pipeline, state, key, "),
    ("GET", "/api/jobs?state=done", "bad_request", "Invalid enum value 'done' - at `$.state`; one of: queued, processing, succeeded, failed, "),
    ("GET", "/api/jobs/x?wait=1", "bad_request", "Object contains unknown field `wait`; there are none here"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "code", "words"), NOT_THERE)
def test_what_is_not_there_is_answered_with_what_is(client, method, path, code, words):
    answer = client(*EVERYTHING).request(method, path)
    assert problem(answer) == code
    assert answer.json()["detail"].startswith(words)


def test_what_is_too_large_or_no_json_or_for_another_host_is_refused(client):
    ann = client(*EVERYTHING)
    big = b'"' + b"x" * (8 * 1024 * 1024) + b'"'
    json_type = {"content-type": "application/json"}
    assert problem(ann.post("/api/jobs", content=big, headers=json_type)) == "too_large"
    assert (
        problem(ann.post("/api/jobs", content=b"a=1", headers={"content-type": "text/plain"}))
        == "unsupported_media_type"
    )
    zipped = {**json_type, "content-encoding": "gzip"}
    assert problem(ann.post("/api/jobs", content=b"{}", headers=zipped)) == "unsupported_media_type"
    elsewhere = ann.get("/api/jobs", headers={"host": b"evil.example\xe9" + b"x" * 1_000})
    assert problem(elsewhere) == "misdirected"
    told = elsewhere.json()["detail"]
    assert told.startswith(r"the host asked for is 'evil.example\x")
    assert "perdure serve --as HOST, or mounted with hosts=[…]" in told
    assert "x" * 100 not in told
    assert (
        problem(ann.get("/api/jobs?limit=0"))
        == problem(ann.get("/api/jobs?nonsense=1"))
        == "bad_request"
    )
    assert problem(ann.get("/api/jobs?owner=bob")) == "forbidden"
    unknown = ann.post("/api/jobs", json={"pipeline": "nothing", "item": 1})
    assert problem(unknown) == "not_found"
    run = ann.post("/api/runs", json={"pipeline": "nothing", "name": "nightly"})
    said = {one.json()["detail"].partition(":")[0] for one in (unknown, run)}
    assert said == {"there is no pipeline 'nothing' here; did you mean 'shouting'? One of"}


def test_a_path_or_a_method_that_there_is_not_is_a_problem_like_others(client):
    assert problem(client().get("/api/nothing")) == "not_found"
    assert problem(client().delete("/api/jobs")) == "method_not_allowed"


def test_a_method_that_there_is_not_is_told_with_those_that_there_are(client):
    allowed = {
        path: client().put(path).headers["allow"]
        for path in ("/api/jobs", "/api/jobs/batch", f"/api/jobs/{UNKNOWN}")
    }
    assert list(allowed.values()) == ["GET, HEAD, POST", "POST", "GET, HEAD"]


@pytest.mark.parametrize(("path", "body", "says"), [
    ("/api/runs", {"pipeline": "shouting", "name": " nightly"}, "run name ' nightly' must have"),
    ("/api/runs", {"pipeline": "shouting", "name": "7"}, "a run cannot be called '7'"),
    ("/api/dead/redrive", {"pipeline": "shouting", "rate": "fast"}, "rate is 'fast'; write it as '500/min'"),
    ("/api/dead/preview", {"pipeline": "shouting", "rate": "fast"}, "rate is 'fast'; write it as '500/min'"),
])  # fmt: skip
def test_a_word_that_cannot_be_is_the_callers_mistake(client, path, body, says):
    """A name and a rate are checked as declarations are, and were told as errors of the server."""
    answer = client(*EVERYTHING).post(path, json=body)
    assert (answer.status_code, problem(answer)) == (400, "caller_error")
    assert answer.json()["detail"].startswith(says)


def test_an_empty_idempotency_key_is_refused_and_not_overlooked(client):
    asked = {"pipeline": "shouting", "item": {"text": "hello"}}
    answer = client(*EVERYTHING).post("/api/jobs", json=asked, headers={"idempotency-key": ""})
    assert (answer.status_code, problem(answer)) == (400, "caller_error")


def test_a_request_id_that_is_not_sane_is_replaced(client):
    answer = client().get("/healthz", headers={"x-request-id": "a b\tc"})
    assert (answer.json(), answer.status_code) == ({"ok": True, "why": ""}, 200)
    assert len(answer.headers["x-request-id"]) == 36
    assert client().get("/readyz").json()["ok"] is True


def test_the_document_names_every_endpoint_and_what_it_may_answer(client):
    told = client().get("/api/openapi.json").json()
    assert told["openapi"] == "3.1.0"
    show = told["paths"]["/api/jobs/{id}"]["get"]
    assert set(show["responses"]) == {
        "200",
        "400",
        "401",
        "403",
        "404",
        "421",
        "429",
        "431",
        "500",
        "503",
    }
    assert show["security"] == [{"token": ["read"]}]
