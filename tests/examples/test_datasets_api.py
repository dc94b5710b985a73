"""Samples and data sets over HTTP: what a tenant can do, and what another one cannot."""

import pytest
from examples.datasets.provider import PROMPT_CHARS_MAX

from tests.stories.kit import until

WAIT_S = 60.0


@pytest.fixture(scope="module")
def front(datasets):
    with datasets.front() as client:
        yield client


@pytest.fixture(scope="module")
def acme(datasets):
    return datasets.headers("acme")


def note(number: int, text: str = "The soup was good") -> dict[str, str]:
    return {"id": f"n{number}", "text": f"{text}, number {number}."}


def begin(front, headers, name: str, *samples: dict[str, object], **options: object) -> str:
    """A data set with these samples; its id."""
    made = front.post("/v1/datasets", headers=headers, json={"name": name, **options})
    assert made.status_code == 201, made.text
    id = made.json()["id"]
    sent = front.post("/v1/samples", headers=headers, json={"dataset": id, "samples": samples})
    assert (sent.status_code, sent.json()["accepted"]) == (202, len(samples)), sent.text
    return str(id)


def ended(front, headers, id: str) -> dict[str, object]:
    front.post(f"/v1/datasets/{id}/seal", headers=headers).raise_for_status()

    def over() -> bool:
        told = front.get(f"/v1/datasets/{id}", headers=headers).json()
        return told["pending"] == 0 and told["status"] != "running"

    until("it is over", over, within_s=WAIT_S)
    told: dict[str, object] = front.get(f"/v1/datasets/{id}", headers=headers).json()
    return told


def test_a_data_set_is_begun_fed_sealed_and_read_in_slices(front, acme):
    train = note(3, "The night train was late")
    id = begin(front, acme, "talk", note(1), note(2), train, {"id": "n4", "text": "Short."})
    told = ended(front, acme, id)
    counts = [told[one] for one in ("total", "succeeded", "failed", "dlq", "skipped")]
    assert (told["status"], counts) == ("completed", [4, 3, 0, 0, 1])
    rows = front.get(f"/v1/datasets/{id}/slices?topic=food&limit=1", headers=acme).json()["rows"]
    assert [row["id"] for row in rows] == ["n1"]
    rows = front.get(f"/v1/datasets/{id}/slices?offset=1", headers=acme).json()["rows"]
    assert [row["id"] for row in rows] == ["n2", "n3"]
    listed = front.get("/v1/datasets", headers=acme).json()["datasets"]
    assert [one["id"] for one in listed if one["name"] == "talk"] == [id]


def test_a_sample_that_comes_twice_is_one_and_none_comes_after_the_seal(front, acme):
    id = begin(front, acme, "twice", note(1))
    body = {"dataset": id, "samples": [note(1), note(2)]}
    again = front.post("/v1/samples", headers=acme, json=body)
    assert again.json() == {"accepted": 1, "known": 1}
    ended(front, acme, id)
    late = front.post("/v1/samples", headers=acme, json=body)
    assert (late.status_code, late.json()["code"]) == (409, "not_changeable")


def test_dead_samples_are_listed_with_their_reason_corrected_and_tried_again(front, acme):
    long = note(2, "word " * PROMPT_CHARS_MAX)
    id = begin(front, acme, "mending", note(1), long, {"id": "n3", "text": None})
    told = ended(front, acme, id)
    assert (told["status"], told["dlq"]) == ("failed", 2)
    dead = front.get(f"/v1/samples?dataset={id}&status=dlq", headers=acme).json()["samples"]
    assert [(one["key"], one["dlq_reason"]["stage"]) for one in dead] == [("mending/n3", "pick"), ("mending/n2", "label")]  # fmt: skip
    assert all(one["dlq_reason"]["error"] and one["dlq_reason"]["last_attempt_at"] for one in dead)
    shown = front.get(f"/v1/samples/{dead[1]['id']}", headers=acme).json()
    assert [(one["stage"], one["status"]) for one in shown["stages_applied"]] == [("pick", "success"), ("label", "failed")]  # fmt: skip
    body = {"dataset": id, "samples": [note(2), note(3)]}
    assert front.put("/v1/samples", headers=acme, json=body).json()["samples"] == 2
    show = f"/v1/datasets/{id}"
    until("they are done", lambda: front.get(show, headers=acme).json()["succeeded"] == 3, within_s=WAIT_S)  # fmt: skip


def test_reprocessing_is_a_run_of_its_own(front, acme, datasets):
    long = note(1, "word " * PROMPT_CHARS_MAX)
    id = begin(front, acme, "again", long, {"id": "n2", "text": 2})
    ended(front, acme, id)
    asked = front.post(f"/v1/datasets/{id}/reprocess", headers=acme, json={"stage": "label"})
    assert asked.status_code == 202, asked.text
    child = asked.json()["dataset"]
    parent = datasets.app.get_run(id).no
    told = ended_child(front, acme, child)
    assert (told["parent"], told["total"], told["status"]) == (parent, 1, "failed")


def ended_child(front, headers, id: str) -> dict[str, object]:
    def told() -> dict[str, object]:
        found: dict[str, object] = front.get(f"/v1/datasets/{id}", headers=headers).json()
        return found

    until("the child has ended", lambda: told()["status"] != "running" and told()["total"] == 1, within_s=WAIT_S)  # fmt: skip
    return told()


def test_a_tenant_sees_nothing_of_another(front, acme, datasets):
    id = begin(front, acme, "secret", note(1))
    ended(front, acme, id)
    sample = front.get(f"/v1/samples?dataset={id}", headers=acme).json()["samples"][0]["id"]
    other = datasets.headers("umbrella")
    asked = [
        ("GET", f"/v1/datasets/{id}", None),
        ("GET", "/v1/datasets/secret", None),
        ("GET", f"/v1/datasets/{id}/slices", None),
        ("GET", f"/v1/samples?dataset={id}", None),
        ("GET", f"/v1/samples/{sample}", None),
        ("POST", f"/v1/datasets/{id}/seal", None),
        ("POST", f"/v1/datasets/{id}/reprocess", {}),
        ("POST", "/v1/samples", {"dataset": id, "samples": [note(2)]}),
        ("PUT", "/v1/samples", {"dataset": id, "samples": [note(1)]}),
    ]
    for method, path, body in asked:
        answer = front.request(method, path, headers=other, json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
    assert front.get("/v1/datasets", headers=other).json() == {"datasets": []}
    begin(front, other, "secret", note(1))  # the same name is another tenant's own


def test_who_is_nobody_or_means_to_be_somebody_else_is_refused(front, acme, datasets):
    def code(headers: dict[str, str], method: str = "GET", path: str = "/v1/datasets") -> tuple[int, str]:  # fmt: skip
        answer = front.request(method, path, headers=headers, json={"name": "x"})
        return answer.status_code, answer.json()["code"]

    assert code({}) == (401, "unauthenticated")
    assert code({"authorization": acme["authorization"]}) == (400, "tenant_missing")
    assert code({**acme, "x-tenant-id": "umbrella"}) == (403, "forbidden")
    assert code(datasets.headers("reader", "read"), "POST") == (403, "forbidden")


def test_bad_requests_are_told_in_a_sentence_that_names_what_is_wrong(front, acme):
    def code(method: str, path: str, names: str = "", **sent: object) -> tuple[int, str]:
        answer = front.request(method, path, headers=acme, **sent)
        assert names in answer.json()["detail"]
        return answer.status_code, answer.json()["code"]

    bad = (400, "bad_request")
    assert code("POST", "/v1/datasets", "$.name", json={"name": "../x"}) == bad
    asked = {"name": "x", "failure_budget": 7}
    assert code("POST", "/v1/datasets", "$.failure_budget", json=asked) == bad
    assert code("POST", "/v1/datasets", "truncated", content=b"{") == bad
    assert code("POST", "/v1/datasets", content=b" " * 8_000_001) == (413, "too_large")
    assert code("GET", "/v1/datasets/nothing") == (404, "not_found")
    id = begin(front, acme, "odd", note(1))
    assert code("GET", f"/v1/samples?dataset={id}&status=gone", "$.status") == bad
    assert code("GET", f"/v1/samples?dataset={id}&limit=-1", "$.limit") == bad
    assert code("GET", f"/v1/datasets/{id}/slices?offset=x", "$.offset") == bad
    body = {"dataset": id, "samples": [{"text": "No id at all, but a text."}]}
    assert code("POST", "/v1/samples", "id", json=body) == (400, "sample_without_id")


def test_a_wrong_method_is_answered_with_all_that_there_are(front, acme):
    for path, allowed in (
        ("/v1/samples", {"GET", "HEAD", "POST", "PUT"}),
        ("/v1/datasets", {"GET", "HEAD", "POST"}),
        ("/v1/datasets/x/seal", {"POST"}),
    ):
        answer = front.patch(path, headers=acme)
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == allowed
