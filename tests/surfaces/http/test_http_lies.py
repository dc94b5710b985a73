"""Bodies and headers that lie, or that are more than anybody needs: each gets the answer that is written down for it."""

import asyncio

import msgspec
import pytest

from perdure.http import asgi
from perdure.surfaces.http import asgi as parsing, limits
from tests.surfaces.http.conftest import bearer, on_both_stores, problem
from tests.surfaces.http.raw import ask

JSON = {"content-type": "application/json"}
LINES = {"content-type": "application/x-ndjson"}
FINE = b'{"pipeline": "shouting", "item": {"text": "x"}}'


def holding(item: bytes) -> bytes:
    return b'{"pipeline": "shouting", "item": {"text": "x", "more": %s}}' % item


LIES = {
    "nothing": (b"", JSON, "bad_request"),
    "cut off": (FINE[:-1], JSON, "bad_request"),
    "no item": (b'{"pipeline": "shouting"}', JSON, "bad_request"),
    "a number for a name": (b'{"pipeline": 3, "item": 1}', JSON, "bad_request"),
    "a word for a number": (FINE[:-1] + b', "priority": "high"}', JSON, "bad_request"),
    "an owner": (FINE[:-1] + b', "owner": "bob"}', JSON, "bad_request"),
    "NaN": (holding(b"NaN"), JSON, "bad_request"),
    "1e400": (holding(b"1e400"), JSON, "bad_request"),
    "10^400": (holding(b"1" + b"0" * 400), JSON, "payload_refused"),
    "a lone surrogate": (holding(b'"\\ud800"'), JSON, "bad_request"),
    "a lone surrogate inside": (holding(b'"\\ud800 and more text"'), JSON, "bad_request"),
    "no UTF-8": (holding(b'"\xe9"'), JSON, "bad_request"),
    "UTF-16": (FINE.decode().encode("utf-16"), JSON, "bad_request"),
    "depth 65": (holding(b"[" * 65 + b"]" * 65), JSON, "payload_refused"),
    "depth 10,000": (holding(b"[" * 10_000 + b"]" * 10_000), JSON, "payload_refused"),
    "depth 10,000, open": (holding(b"[" * 10_000), JSON, "payload_refused"),
    "another charset": (FINE, {"content-type": 'application/json; charset="latin-1"'}, "unsupported_media_type"),
    "no type": (FINE, {}, "unsupported_media_type"),
    "lines": (FINE, LINES, "unsupported_media_type"),
    "cut off gzip": (b"\x1f\x8b\x08\x00", {**JSON, "content-encoding": "gzip"}, "unsupported_media_type"),
    "50 MB": (b" " * 50_000_000, JSON, "too_large"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_body_that_lies_gets_its_answer(app, client, lie):
    body, headers, code = LIES[lie]
    answer = client("submit").post("/api/jobs", content=body, headers=headers)
    assert problem(answer) == code
    assert app._session.opened.reader.open_jobs("ann") == 0


MANY = {
    "lists": b"[" + b"[]," * 600_000 + b"[]]",
    "keys": b"{" + b",".join(b'"%d":0' % n for n in range(600_000)) + b"}",
    "numbers": b"[" + b"1," * 1_000_000 + b"1]",
}


DEEP = {
    "depth 69": b"[" * 68 + b"]" * 68,
    "depth 10,000": b"[" * 10_000 + b"]" * 10_000,
    "objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "open": b"[" * 10_000,
    "after many": b"[[],{}," * 200 + b"]" * 200,
    "with brackets in texts": b'["]]]]",' * 80 + b"1" + b"]" * 80,
    "50 MB": b"[" * 50_000_000,
    "too many": b"[]," * 600_000,
}


@pytest.mark.parametrize("deep", DEEP)
def test_what_is_too_deep_or_too_large_is_refused_before_it_is_parsed(client, monkeypatch, deep):
    def parse(*given):
        raise AssertionError("it was given to the parser")

    monkeypatch.setattr(parsing, "_decode", parse)
    answer = client("submit").post("/api/jobs", content=holding(DEEP[deep]), headers=JSON)
    code = "too_large" if deep in ("50 MB", "too many") else "payload_refused"
    assert (answer.status_code, problem(answer)) == ({"too_large": 413}.get(code, 422), code)


@pytest.mark.parametrize(
    "item",
    [b"[" * 60 + b"]" * 60, b"[" + b"[],{}," * 2_000 + b"1]", b'"' + b"[{" * 5_000 + b'"'],
    ids=["deep enough", "many side by side", "in a text"],
)
def test_what_is_not_too_deep_passes(client, item):
    answer = client("submit").post("/api/jobs", content=holding(item), headers=JSON)
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize("many", MANY)
def test_more_values_than_anybody_needs_are_refused_before_they_are_made(client, many):
    """They fit into the bytes that a body may have, and would take some hundred megabytes."""
    answer = client("submit").post("/api/jobs", content=holding(MANY[many]), headers=JSON)
    assert (answer.status_code, problem(answer)) == (413, "too_large")
    assert answer.json()["detail"] == "a body may have 500,000 values; send the rest in others"


@pytest.mark.parametrize(
    "text", [b",[{" * 200_000, b'\\"' * 200_000 + b",", b"\\\\" * 99_999 + b"," * 600_000]
)
def test_what_stands_in_a_text_is_no_value(client, text):
    answer = client("submit").post("/api/jobs", content=holding(b'"' + text + b'"'), headers=JSON)
    assert answer.status_code == 202


def test_a_text_without_an_end_is_read_once(client):
    body = holding(b'"' + b'\\"' * 1_000_000 + b"," * 600_000)
    assert problem(client("submit").post("/api/jobs", content=body, headers=JSON)) == "bad_request"


def test_of_a_key_that_is_given_twice_the_last_counts(client):
    ann = client("submit", "read")
    body = holding(b'{"a": 1, "a": 2}')[:-1] + b', "priority": 1, "priority": 2}'
    utf8 = {"content-type": "application/json; charset=UTF-8"}
    job = ann.post("/api/jobs", content=body, headers=utf8).json()["job"]
    told = ann.get(f"/api/jobs/{job['id']}").json()
    assert (told["item"]["more"], told["job"]["priority"]) == ({"a": 2}, 2)


def test_a_batch_and_a_body_of_lines_have_so_many_items(client):
    ann = client("submit", "read")
    jobs = [{"item": {"text": "x"}}] * 1_001
    assert problem(ann.post("/api/jobs/batch", json={"pipeline": "shouting", "jobs": jobs})) == "bad_request"  # fmt: skip
    run = ann.post("/api/runs", json={"pipeline": "shouting", "name": "n"}).headers["location"]
    for body in (b"\n" * 10_001, b"{}\n" * 10_001, b"[\n" * 10_001):
        assert problem(ann.post(f"{run}/items", content=body, headers=LINES)) == "too_large"


@on_both_stores
def test_no_text_has_the_character_nul(client):
    admin = client("admin", owner="")
    for path in ("runs?name=%00", "jobs?pipeline=%00", "jobs?key=%00", "audit-log?subject=%00", "dead?fingerprint=%00"):  # fmt: skip
        assert problem(admin.get(f"/api/{path}")) == "bad_request", path
    body = {"pipeline": "shouting", "stage": "\0"}
    assert problem(admin.post("/api/dead/discard", json=body)) == "bad_request"
    assert problem(admin.get("/api/jobs/%00")) == "not_found"


def test_a_key_for_many_jobs_is_refused(client):
    """As each has its own, one for all of them would be a promise that is not kept."""
    asked = {"pipeline": "shouting", "jobs": [{"item": {"text": "x"}}]}
    answer = client("submit").post("/api/jobs/batch", json=asked, headers={"idempotency-key": "k"})
    assert problem(answer) == "bad_request"


def test_more_headers_than_anybody_needs_are_refused(client):
    ann = client("read")
    many = {f"x-{n}": "1" for n in range(100)}
    for asked in ({"headers": many}, {"headers": {"x-long": "x" * 33_000}}, {"params": {"key": "x" * 33_000}}):  # fmt: skip
        answer = ann.get("/api/jobs", **asked)
        assert (answer.status_code, problem(answer)) == (431, "headers_too_large")


def test_what_is_declared_too_large_is_not_even_read_and_what_comes_too_slowly_is_let_go(
    app, monkeypatch
):
    monkeypatch.setattr(limits, "BODY_S_MAX", 0.05)
    api, token = asgi(app, hosts=("testserver",)), bearer(app, "submit")

    async def never() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def play() -> None:
        large = {**token, **JSON, "content-length": "8388609"}
        for headers, code, status in ((large, "too_large", 413), (JSON | token, "too_slow", 408)):
            async with ask(api, "POST", "/api/jobs", headers, receive=never) as answer:
                assert await answer.status() == status
                assert msgspec.json.decode(await answer.body())["code"] == code

    asyncio.run(play())
