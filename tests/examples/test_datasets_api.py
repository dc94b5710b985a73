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
    corrected = front.put("/v1/samples", headers=acme, json=body).json()
    assert (corrected["taken"], corrected["left"]) == (2, {})
    show = f"/v1/datasets/{id}"
    until("they are done", lambda: front.get(show, headers=acme).json()["succeeded"] == 3, within_s=WAIT_S)  # fmt: skip


def test_a_correction_says_which_samples_were_no_dead_letters(front, acme):
    id = begin(front, acme, "partly", note(1), {"id": "n2", "text": None})
    ended(front, acme, id)
    body = {"dataset": id, "samples": [note(1), note(2), note(9)]}
    told = front.put("/v1/samples", headers=acme, json=body)
    why = "it is no dead letter of this data set"
    assert (told.status_code, told.json()["taken"]) == (202, 1)
    assert told.json()["left"] == {"n1": why, "n9": why}
    told = front.put("/v1/samples", headers=acme, json={"dataset": id, "samples": [note(9)]})
    assert (told.json()["taken"], told.json()["left"]) == (0, {"n9": why})
    twice = {"dataset": id, "samples": [note(2), note(2, "Another text")]}
    told = front.put("/v1/samples", headers=acme, json=twice)
    assert (told.status_code, told.json()["detail"]) == (400, "$.samples: an id stands twice")


def test_samples_are_taken_all_or_none(front, acme):
    id = begin(front, acme, "whole", note(1))
    for bad, status, named in (
        ({"id": "n3", "text": "w " * 700_000}, 422, "at most 1048576"),
        ({"id": "n3", "text": "a \x00 b c d"}, 422, "NUL"),
        (7, 422, "object"),
        ({"text": "No id."}, 400, "id"),
    ):
        body = {"dataset": id, "samples": [note(2), bad, note(4)]}
        told = front.post("/v1/samples", headers=acme, json=body)
        assert told.status_code == status, told.text
        assert told.json()["detail"].startswith("$.samples[1]: ")
        assert named in told.json()["detail"]
    assert front.get(f"/v1/datasets/{id}", headers=acme).json()["total"] == 1


def test_a_data_set_says_which_budget_holds_also_when_another_is_given(front, acme):
    def told(**options: object) -> list[object]:
        made = front.post("/v1/datasets", headers=acme, json={"name": "budget", **options})
        assert made.status_code == 201, made.text
        return [made.json()[name] for name in ("failure_budget", "failure_check_interval")]

    assert told() == [0.1, 1000]
    assert told(failure_budget=0.5) == [0.5, 1000]
    assert told(failure_check_interval=50) == [0.5, 50]  # what is not given stays
    shown = front.get("/v1/datasets/budget", headers=acme).json()
    assert (shown["failure_budget"], shown["failure_check_interval"]) == (0.5, 50)


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
    assert code("POST", "/v1/datasets", "$.name", json={"name": "films\n"}) == bad
    deep = b'{"samples": [' + b"[" * 3_000 + b"]" * 3_000 + b"]}"
    assert code("POST", "/v1/samples", "nested", content=deep) == bad
    asked = {"name": "x", "failure_budget": 7}
    assert code("POST", "/v1/datasets", "$.failure_budget", json=asked) == bad
    assert code("POST", "/v1/datasets", "truncated", content=b"{") == bad
    assert code("POST", "/v1/datasets", content=b" " * 8_000_001) == (413, "too_large")
    assert code("GET", "/v1/datasets/nothing") == (404, "not_found")
    id = begin(front, acme, "odd", note(1))
    assert code("GET", f"/v1/samples?dataset={id}&status=gone", "$.status") == bad
    assert code("GET", f"/v1/samples?dataset={id}&limit=-1", "$.limit") == bad
    assert code("GET", f"/v1/datasets/{id}/slices?offset=x", "$.offset") == bad
    assert code("GET", f"/v1/datasets/{id}/slices?offset={10**23}", "$.offset") == bad
    assert code("GET", f"/v1/samples?dataset={id}&before={10**23}", "$.before") == bad
    assert code("GET", f"/v1/samples/{10**23}") == (404, "not_found")
    assert code("GET", f"/v1/samples?dataset={10**23}") == (404, "not_found")
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
