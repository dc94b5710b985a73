"""Who may what: every endpoint × every principal × whose the object is, made from the document of the API.

An endpoint that is added has its cells at once; one whose body or object this file does not know fails here, and so does
a field of which it does not know whether it names anything.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from perdure.app.surface.access import (
    create_token,
    log_in,
    log_out,
    login_of,
    revoke_token,
    tokens,
)
from perdure.app.surface.serving import pipeline_named
from perdure.model.access import AccessScope, Principal
from perdure.model.gates import GateChange, GateState
from perdure.model.operations import BulkVerb, Deed, NewBulk
from perdure.surfaces.http.asgi import ENDPOINTS
from perdure.surfaces.http.endpoints import Endpoint
from perdure.surfaces.http.openapi import openapi
from tests.stories.looking import looking_at
from tests.surfaces.http.conftest import change_row
from tests.surfaces.http.raw import ask as ask_raw

A = AccessScope
DEED = Deed("test", "")
OWN = (A.SUBMIT, A.READ, A.OPERATE)
UNKNOWN = "00000000-0000-7000-8000-000000000009"

# principal: its owner and scopes; None has no good token
PRINCIPALS: Mapping[str, tuple[str, tuple[AccessScope, ...]] | None] = {
    "owner": ("ann", OWN),
    "other owner": ("bob", OWN),
    "submit alone": ("ann", (A.SUBMIT,)),
    "read alone": ("ann", (A.READ,)),
    "operate alone": ("ann", (A.OPERATE,)),
    "viewer": ("", (A.READ_ALL,)),
    "viewer with an owner": ("ann", (A.READ_ALL,)),
    "viewer who operates nothing": ("", (A.READ_ALL, A.OPERATE, A.SUBMIT)),
    "admin": ("", (A.ADMIN,)),
    "owner, logged in": ("ann", OWN),
    "logged out": None,
    "nobody": None,
    "revoked": None,
    "expired": None,
}
BODIES: Mapping[str, Any] = {
    "create_job": {"pipeline": "shouting", "item": {"text": "x"}},
    "create_jobs": {"pipeline": "shouting", "jobs": [{"item": {"text": "x"}}]},
    "create_run": {"pipeline": "shouting", "name": "a run"},
    "preview_redrive": {"pipeline": "shouting"},
    "redrive_letters": {"pipeline": "shouting"},
    "discard_letters": {"pipeline": "shouting"},
    "hold_gate": {"reason": "why"},
    "release_gate": {"reason": "why"},
    "probe_gate": {"reason": "why"},
}
WHOSE = ("ann", "", "unknown")


class World:
    """An object of each sort for each owner, and a token for each principal."""

    def __init__(self, app, client) -> None:
        self._session = session = app._session
        pipe = pipeline_named(session, "shouting")
        control = session.opened.control
        self._objects: dict[tuple[str, str], str] = {}
        for n, owner in enumerate(("ann", "")):
            bulk = NewBulk(session.ids.next(), BulkVerb.DISCARD, "{}", DEED, owner=owner)
            self._objects |= {
                ("jobs", owner): pipe.enqueue({"text": "x"}, owner=owner, key="cells").id,
                ("runs", owner): pipe.run([], name=f"run {n}", owner=owner, seal=False).id,
                ("dead", owner): control.add_bulk(bulk).id,
            }
            self._objects["capture", owner] = self._capture(self._objects["jobs", owner])
        control.change_gate(GateChange("model", 0, GateState.HELD, None), DEED)
        self._clients = {name: self._client(client, name) for name in PRINCIPALS}

    def _capture(self, job_id: str) -> str:
        """Something put aside in an attempt of a job."""
        opened, id = self._session.opened, self._session.ids.next()
        change_row(
            self._session,
            "INSERT INTO perdure_artifacts (id, job, token, stage, kind, media_type, content, saved_at)"
            " VALUES (:id, :job, 1, 'shout', 'raw', 'text/plain', :content, 1)",
            id=id,
            job=opened.reader.job(job_id, owner=None).no,
            content=b"x",
        )
        return id

    def _client(self, client, name: str) -> Any:
        known = PRINCIPALS[name]
        if name in ("owner, logged in", "logged out"):
            return self._browser(client, leaves=known is None)
        if known is not None:
            return client(*(one.value for one in known[1]), owner=known[0])
        if name == "nobody":
            return client()
        text, kept = create_token(
            self._session, name=name, owner="ann", scopes=["admin"], expires="1s", deed=DEED
        )
        if name == "revoked":
            revoke_token(self._session, kept.id, DEED)
        else:
            expired = "UPDATE perdure_access_tokens SET expires_at = 1 WHERE id = :id"
            change_row(self._session, expired, id=kept.id)
        assert text not in str(tokens(self._session))
        return client(authorization=f"Bearer {text}")

    def _browser(self, client, *, leaves: bool) -> Any:
        """A client that speaks by cookie, or by one whose login has ended."""
        scopes = [one.value for one in OWN]
        text, _ = create_token(
            self._session, name="web", owner="ann", scopes=scopes, expires=None, deed=DEED
        )
        login = log_in(self._session, text)
        known = login_of(self._session, login)
        if leaves:
            log_out(self._session, known)
        return client(cookie=f"perdure_login={login}", **{"x-csrf-token": known.csrf})

    def ask(self, one: Endpoint, principal: str, whose: str | None) -> int:
        """The status of the answer."""
        return int(self.send(self._clients[principal], one, whose, {}).status_code)

    def send(self, client, one: Endpoint, whose: str | None, headers: Mapping[str, str]) -> Any:
        """The answer to a good request of a client for somebody's object, with more headers."""
        sort = one.path.split("/")[2] if one.path.startswith("/api/") else ""
        id = UNKNOWN if whose == "unknown" else self._objects.get((sort, whose or ""), UNKNOWN)
        path = one.path.replace("{id}", id)
        path = path.replace("{capture}", self._objects.get(("capture", whose or ""), UNKNOWN))
        path = path.replace("{name}", "default" if sort == "queues" else "model")
        options: dict[str, Any] = {"headers": dict(headers)}
        if one.hears:
            return asyncio.run(_heard(client, path))
        if one.lines:
            options["content"] = b'{"key":"k","item":{"text":"x"}}\n'
            options["headers"]["content-type"] = one.takes
        elif one.body is not None:
            options["json"] = BODIES.get(one.name, {})
        return client.request(one.method, path, **options)


async def _heard(client, path: str) -> Any:
    """The status of a stream that is left at once."""
    headers = {name: value for name, value in client.headers.items() if name != "host"}
    async with ask_raw(client.app, "GET", path, headers) as answer:
        return Heard(await answer.status())


class Heard(NamedTuple):
    """What is looked at of a stream."""

    status_code: int


def expected(one: Endpoint, principal: str, whose: str | None) -> set[int] | None:
    """The only statuses that may be; None where it is let in, and none of the three refusals may be."""
    known = PRINCIPALS[principal]
    if one.scope is None:
        return None
    if known is None:
        return {401}
    owner, scopes = known
    held = set(scopes) if owner else set(scopes) & {A.READ_ALL, A.ADMIN}
    if A.READ_ALL in held:
        held.add(A.READ)
    if one.scope not in held and A.ADMIN not in held:
        return {403}
    if whose is None:
        return None
    seen = A.READ_ALL in held and one.scope in (A.READ, A.READ_ALL) and "captures" not in one.path
    own = whose == owner and owner != ""
    return None if whose != "unknown" and (A.ADMIN in held or seen or own) else {404}


CELLS = [
    (one, principal, whose)
    for one in ENDPOINTS
    for principal in PRINCIPALS
    for whose in (WHOSE if "{id}" in one.path else (None,))
]


@pytest.mark.timeout(600)  # a thousand requests, on a machine that may have other things to do
def test_every_cell_is_as_the_scopes_and_the_owners_say(app, client, portal):
    world, wrong = World(app, client), []
    for one in world._clients.values():
        one.portal = portal
    for one, principal, whose in CELLS:
        status, allowed = world.ask(one, principal, whose), expected(one, principal, whose)
        right = (
            status in allowed if allowed is not None else status not in (400, 401, 403, 404, 500)
        )
        if not right:
            wrong.append(
                f"{one.method} {one.path} by {principal}, of {whose!r}: {status}, not {allowed}"
            )
    print(f"FIGURE authorisation cells by path: {len(CELLS)} of {possible()}")
    assert wrong == []
    assert len(CELLS) == possible()


def possible() -> int:
    """How many cells there are by the document: one for each principal, or one for each and whosever the object is."""
    operations = [path for path, told in openapi(ENDPOINTS)["paths"].items() for _ in told]
    return sum(len(PRINCIPALS) * (len(WHOSE) if "{id}" in one else 1) for one in operations)


@pytest.mark.parametrize("one", ENDPOINTS, ids=lambda one: one.name)
def test_an_endpoint_that_names_an_object_says_that_it_may_not_be_there(one):
    if "{" in one.path:
        assert "not_found" in one.problems
    assert one.scope is not None or one.path in ("/healthz", "/readyz")


# What a request may name besides its path. What names nothing of anybody's is plain; gates, queues and the audit log are
# the operators', whom the cells above keep apart.
PLAIN = {
    "canary", "deadline_s", "dry_run", "failure_budget", "cost_max_usd", "for_time", "from_start", "item", "jobs", "kind", "label",
    "code", "limit", "live", "newer_than", "older_than", "pipeline", "Prefer", "priority", "rate", "reason", "run_at",
    "running", "since", "stage", "state", "subject", "audit-log cursor",
}  # fmt: skip
NAMING = {
    "key",
    "owner",
    "cursor",
    "after",
    "Last-Event-ID",
    "Idempotency-Key",
    "fingerprint",
    "name",
}


class NamingField(NamedTuple):
    """A field of a request that names something: where it stands, in the query, a header or the body."""

    endpoint: Endpoint
    place: str
    name: str


def named_in(kind: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a body, and those of what it holds."""
    if "$ref" in kind:
        kind = schemas[kind["$ref"].rsplit("/", 1)[1]]
    for name, about in kind.get("properties", {}).items():
        yield name
        yield from named_in(about, schemas)
    yield from named_in(kind["items"], schemas) if isinstance(kind.get("items"), dict) else ()


def fields() -> list[tuple[Endpoint, str, str]]:
    """Every field of every request, by the document."""
    document, found = openapi(ENDPOINTS), []
    for one in ENDPOINTS:
        told = document["paths"][one.path][one.method.lower()]
        found += [
            (one, row["in"], row["name"]) for row in told["parameters"] if row["in"] != "path"
        ]
        for content in told.get("requestBody", {}).get("content", {}).values():
            names = named_in(content["schema"], document["components"]["schemas"])
            found += [(one, "body", name) for name in names]
    return found


FIELDS = [
    NamingField(*one) for one in fields() if one[2] in NAMING and one[0].path != "/api/audit-log"
]


def test_of_every_field_it_is_known_whether_it_names_anything():
    assert {name for _, _, name in fields()} - NAMING - PLAIN == set()


class Anns:
    """What is Ann's: a failed job with a key, a run and a cursor of the feed; and all of it as it is stored."""

    def __init__(self, app) -> None:
        self._session = session = app._session
        pipe = pipeline_named(session, "shouting")
        job = pipe.enqueue({"broken": "canary-of-ann"}, owner="ann", key="anns-key")
        with app.working(concurrency=1):
            job.wait()
        self.run = pipe.run([{"text": "canary-of-ann"}], name="anns-run", owner="ann", seal=False)
        self.job = job.view()
        self.values = {
            "key": "anns-key", "Idempotency-Key": "anns-key", "owner": "ann", "name": "anns-run",
            "fingerprint": self.job.fingerprint, "after": session.opened.reader.changes().cursor,
        }  # fmt: skip
        self.values["Last-Event-ID"] = self.values["after"]

    def value(self, field: NamingField) -> str:
        """Ann's value for a field."""
        if field.name == "cursor":
            return self.run.id if field.endpoint.path == "/api/runs" else self.job.id
        return str(self.values[field.name])

    def stored(self) -> list[Any]:
        """All rows of Ann's."""
        with closing(looking_at(self._session.url)) as look:
            return [
                [
                    list(row)
                    for row in look.rows(
                        f"SELECT * FROM perdure_{table} WHERE owner = 'ann' ORDER BY 1, 2", ()
                    )
                ]
                for table in ("jobs", "runs", "bulks", "owned")
            ]

    def is_in(self, text: str) -> bool:
        """Whether anything of it is told: an id, or what an item says."""
        ids = (row[1] for table in self.stored()[:2] for row in table)
        return any(one in text for one in ("canary-of-ann", *ids))


def ask_with(world: World, client: Any, field: NamingField, value: str) -> Any:
    """A good request but for one field, which has that value."""
    one, bodies = field.endpoint, {**BODIES}
    if one.hears:
        client.headers["last-event-id"] = value
        return world.send(client, one, None, {})
    if field.place == "header":
        return world.send(client, one, "ann", {field.name: value})
    if field.place == "query":
        return client.request(one.method, one.path, params={field.name: value})
    if one.lines:
        line = b'{"key":"%s","item":{"text":"x"}}' % value.encode()
        path = one.path.replace("{id}", world._objects["runs", "ann"])
        return client.post(path, content=line, headers={"content-type": one.takes})
    body = dict(bodies.get(one.name, {}))
    if one.name == "create_jobs":
        body["jobs"] = [{"item": {"text": "x"}, field.name: value}]
    else:
        body[field.name] = value
    return client.request(one.method, one.path, json=body)


def field_faults(world: World, anns: Anns, principals: Iterable[str]) -> list[str]:
    """Where somebody who does not see what is Ann's is told of it, or changes it, by a field that names it."""
    wrong = []
    for field in FIELDS:
        for principal in principals:
            known, allowed = PRINCIPALS[principal], expected(field.endpoint, principal, None)
            sees = known is not None and (
                known[0] == "ann" or {A.READ_ALL, A.ADMIN} & set(known[1])
            )
            before, one = anns.stored(), world._clients[principal]
            answer = ask_with(world, one, field, anns.value(field))
            one.headers.pop("last-event-id", None)
            told = f"{field.endpoint.method} {field.endpoint.path} {field.name} by {principal}: {answer.status_code}"
            if answer.status_code >= 500 or (
                allowed is not None and answer.status_code not in allowed
            ):
                wrong.append(told)
            if not sees and (anns.stored() != before or anns.is_in(getattr(answer, "text", ""))):
                wrong.append(f"{told}, and something is touched or told")
    return wrong


@pytest.mark.timeout(600)
def test_nothing_of_anothers_is_told_or_touched_by_whatever_field_it_is_named(app, client):
    """By every principal: who does not see what is Ann's learns nothing, and nothing of hers is changed."""
    assert field_faults(World(app, client), Anns(app), PRINCIPALS) == []
    cells = len(FIELDS) * len(PRINCIPALS)
    print(f"FIGURE authorisation cells by field: {cells} of {cells}, {len(FIELDS)} fields")


def test_a_server_that_lets_everybody_see_and_act_would_be_noticed(app, client, monkeypatch):
    """The broken twin."""
    for reach in ("sees", "acts_on"):
        monkeypatch.setattr(Principal, reach, property(lambda self: None))
    found = field_faults(World(app, client), Anns(app), ["other owner"])
    for name in ("key", "cursor", "fingerprint", "owner"):
        assert any(f" {name} by other owner" in one for one in found), name


def test_a_cursor_of_anothers_is_as_one_that_never_was(app, client):
    anns, bob = Anns(app), client("read", owner="bob")
    for path, id in (("jobs", anns.job.id), ("dead", anns.job.id), ("runs", anns.run.id)):
        others, never = (bob.get(f"/api/{path}?cursor={one}") for one in (id, UNKNOWN))
        assert others.status_code == never.status_code == 410
        assert others.json() | {"request_id": ""} == never.json() | {"request_id": ""}


def test_what_an_owner_is_shown_does_not_depend_on_what_others_have(app, client):
    """Byte for byte: neither a count nor a cursor tells of them."""
    bob, pipe = client("read", owner="bob"), pipeline_named(app._session, "shouting")
    for n in range(3):
        pipe.enqueue({"text": str(n)}, owner="bob", run_at=datetime(2999, 1, 1, tzinfo=UTC))
        pipe.run([], name=f"bob {n}", owner="bob", seal=False)
    paths = [
        "jobs?limit=2",
        "jobs?since=2020-01-01T00:00:00Z&limit=2",
        "runs?limit=2",
        "dead",
        "dead/groups",
        "dead/bulks",
    ]

    def look() -> list[bytes]:
        return [bob.get(f"/api/{path}").content for path in paths]

    before = look()
    Anns(app)
    assert look() == before
    assert b'"next":null' not in before[0] + before[2]
