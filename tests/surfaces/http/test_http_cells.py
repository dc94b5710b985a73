"""Who may what: every endpoint × every principal × whose the object is, made from the table that serves them.

An endpoint that is added has its cells at once; one whose body or object this file does not know fails here.
"""

from collections.abc import Mapping
from typing import Any

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
from perdure.model.access import AccessScope
from perdure.model.gates import GateChange, GateState
from perdure.model.operations import BulkVerb, Deed, NewBulk
from perdure.surfaces.http.asgi import ENDPOINTS
from perdure.surfaces.http.endpoints import Endpoint

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
        opened.control._execute(
            "INSERT INTO perdure_artifacts (id, job, token, stage, kind, media_type, content, saved_at)"
            " VALUES (:id, :job, 1, 'shout', 'raw', 'text/plain', X'78', 1)",
            {"id": id, "job": opened.reader.job(job_id, owner=None).no},
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
            self._session.opened.control._execute(
                "UPDATE perdure_access_tokens SET expires_at = 1 WHERE id = :id", {"id": kept.id}
            )
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
        if one.lines:
            options["content"] = b'{"key":"k","item":{"text":"x"}}\n'
            options["headers"]["content-type"] = one.takes
        elif one.body is not None:
            options["json"] = BODIES.get(one.name, {})
        return client.request(one.method, path, **options)


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
def test_every_cell_is_as_the_scopes_and_the_owners_say(app, client):
    world, wrong = World(app, client), []
    for one, principal, whose in CELLS:
        status, allowed = world.ask(one, principal, whose), expected(one, principal, whose)
        right = (
            status in allowed if allowed is not None else status not in (400, 401, 403, 404, 500)
        )
        if not right:
            wrong.append(
                f"{one.method} {one.path} by {principal}, of {whose!r}: {status}, not {allowed}"
            )
    print(
        f"FIGURE authorisation cells: {len(CELLS)} of {len(CELLS)} tested, {len(ENDPOINTS)} endpoints"
    )
    assert wrong == []


@pytest.mark.parametrize("one", ENDPOINTS, ids=lambda one: one.name)
def test_an_endpoint_that_names_an_object_says_that_it_may_not_be_there(one):
    if "{" in one.path:
        assert "not_found" in one.problems
    assert one.scope is not None or one.path in ("/healthz", "/readyz")
