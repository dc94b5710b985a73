"""Runs over HTTP: fed in pieces, gone on with after a crash, and their results fetched by their owner."""

import msgspec
import pytest

from tests.engine.kit import until
from tests.surfaces.http.conftest import on_both_stores, problem

EVERYTHING = ("submit", "read", "operate")
LINES = {"content-type": "application/x-ndjson"}


def lines(*keys: str) -> bytes:
    return b"".join(
        msgspec.json.encode({"key": one, "item": {"text": one}}) + b"\n" for one in keys
    )


@pytest.fixture
def run(client) -> str:
    """The path of a run of Ann's that is begun."""
    asked = {"pipeline": "shouting", "name": "nightly"}
    begun = client(*EVERYTHING).post("/api/runs", json=asked)
    assert (begun.status_code, begun.json()["status"]) == (201, "running")
    return begun.headers["location"]


@on_both_stores
def test_a_run_is_fed_in_pieces_sealed_and_its_results_are_fetched(app, client, run):
    ann = client(*EVERYTHING)
    first = ann.post(f"{run}/items", content=lines("a", "b"), headers=LINES).json()
    assert (first["items"], first["created"], first["known"]) == (2, 2, 0)
    again = ann.post(f"{run}/items", content=lines("b", "c"), headers=LINES).json()
    assert (again["items"], again["created"], again["known"]) == (2, 1, 1)
    assert again["run"]["counts"]["total"] == 3
    assert ann.post(f"{run}/seal").json()["sealed_at"] is not None
    assert problem(ann.post(f"{run}/items", content=lines("d"), headers=LINES)) == "not_changeable"
    with app.working(concurrency=2):
        until(lambda: ann.get(run).json()["status"] == "completed", "the run is over")
    told = ann.get(f"{run}/results")
    assert told.headers["content-type"].startswith("application/x-ndjson")
    found = [msgspec.json.decode(line) for line in told.content.splitlines()]
    assert [(one["key"], one["value"]) for one in found] == [
        (key, {"text": key.upper()}) for key in "abc"
    ]


def test_the_same_name_goes_on_with_the_same_run_and_another_owners_is_another(client, run):
    asked = {"pipeline": "shouting", "name": "nightly"}
    same = client(*EVERYTHING).post("/api/runs", json=asked).headers["location"]
    other = client(*EVERYTHING, owner="bob").post("/api/runs", json=asked).headers["location"]
    assert (same == run, other == run) == (True, False)
    (one,) = client("read").get("/api/runs").json()["runs"]
    assert (one["name"], one["owner"], one["cost_usd"]) == ("nightly", "ann", "0.000000000")
    assert len(client("read_all", owner="").get("/api/runs").json()["runs"]) == 2


def test_a_run_is_paused_resumed_and_cancelled(client, run):
    ann = client(*EVERYTHING)
    assert ann.post(f"{run}/pause", json={"reason": "wait"}).json()["status"] == "paused"
    assert ann.post(f"{run}/resume", json={}).json()["status"] == "running"
    assert ann.post(f"{run}/cancel", json={}).json()["status"] == "cancelled"
    assert problem(ann.post(f"{run}/pause", json={})) == "not_changeable"


PATHS = [
    ("GET", ""), ("GET", "/results"), ("POST", "/seal"), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/cancel"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_another_owners_run_is_not_found(client, run, method, path):
    bob = client(*EVERYTHING, owner="bob")
    body = {"json": {}} if method == "POST" else {}
    assert problem(bob.request(method, f"{run}{path}", **body)) == "not_found"
    assert problem(bob.post(f"{run}/items", content=lines("x"), headers=LINES)) == "not_found"


def test_an_items_job_has_the_id_of_the_request_that_brought_it(client, run):
    ann = client(*EVERYTHING)
    sent = {**LINES, "x-request-id": "web-7"}
    assert ann.post(f"{run}/items", content=lines("a"), headers=sent).status_code == 200
    (job,) = ann.get("/api/jobs").json()["jobs"]
    assert job["request_id"] == "web-7"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b'{"item": {"text"', "line 4: Input data was truncated"),
        (
            b'{"itme": 1, "key": "x"}',
            "line 4: Object contains unknown field `itme`; there are: key, item, priority",
        ),
        (b'{"item": "\xe9", "key": "x"}', "line 4: "),
    ],
)
def test_the_answer_names_the_line_that_cannot_be_read(client, run, bad, why):
    body = lines("a", "b") + b"\n" + bad + b"\n" + lines("c")
    answer = client(*EVERYTHING).post(f"{run}/items", content=body, headers=LINES)
    assert problem(answer) == "bad_request"
    assert answer.json()["detail"].startswith(why)
    assert answer.json()["detail"].endswith("; nothing of this body was taken")
    assert client(*EVERYTHING).get(run).json()["counts"]["total"] == 0


def test_items_that_cannot_be_read_are_refused_and_none_of_them_is_in(client, run):
    ann = client(*EVERYTHING)
    broken = lines("a") + b'{"item": 1}\n'
    assert problem(ann.post(f"{run}/items", content=broken, headers=LINES)) == "bad_request"
    assert problem(ann.post(f"{run}/items", json=[1])) == "unsupported_media_type"
    assert ann.get(run).json()["counts"]["total"] == 0


@pytest.mark.parametrize("money", ["2.50", "1", "0.000000001"])
def test_money_comes_as_a_decimal_text(app, client, money):
    asked = {"pipeline": "shouting", "name": "paid", "cost_max_usd": money}
    begun = client(*EVERYTHING).post("/api/runs", json=asked)
    assert begun.status_code == 201
    kept = app.get_run(begun.json()["id"]).view().settings_json
    assert msgspec.json.decode(kept)["cost_max_usd"] == float(money)


@pytest.mark.parametrize(("money", "code"), [
    (2.5, "bad_request"), ("NaN", "bad_request"), ("1e9", "bad_request"), ("-1", "bad_request"),
])  # fmt: skip
def test_money_that_is_none_is_refused(client, money, code):
    asked = {"pipeline": "shouting", "name": "paid", "cost_max_usd": money}
    assert problem(client(*EVERYTHING).post("/api/runs", json=asked)) == code
