"""The whole API under schemathesis, from its own OpenAPI document: every check, every phase, links included.

Cases are made from the document alone, so an endpoint that is added is among them at once. A request that fits the document
is met, or refused in the words of the rule that it breaks; nothing is an error of the server, and nobody is shown what is
another owner's.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import Interaction

import perdure
from perdure.app.surface.access import create_token
from perdure.http import asgi
from perdure.model.gates import GateChange, GateState
from perdure.model.operations import Deed
from perdure.surfaces.http.asgi import ENDPOINTS
from perdure.surfaces.http.openapi import openapi
from perdure.surfaces.http.problems import CODES
from tests.stores.kit import file_in, furnished

CASES = 50_000  # of the long test, on each store
CANARY = "canary-of-bob"
DEED = Deed("test", "")
PARTS = ("Traceback", "SELECT ", "sqlite3", "psycopg", ".py")  # of what is inside

# What a document cannot say: an item that cannot be stored, a name that is none, a rate, an age, a moment, a cursor of nothing,
# a key that an earlier case has used for another item.
MEANT = ("caller_error", "payload_refused", "cursor_too_old", "key_reused")
WORDS = {
    "pipeline": ["shouting"],
    "kind": [None, "invalid_request"],
    "rate": [None, "5/s"],
    "older_than": [None, "1s"],
    "newer_than": [None, "1h"],
}
# Nor a leap second, the NUL that no text may have, and that 1.0 is no integer, which to JSON Schema it is.
FORMS = ("Invalid RFC3339", "it has the character NUL", "Expected `int`, got `float`")
# Any refusal will do: a host that is not ours, say, goes before all that is wrong besides.
REFUSED = sorted({status for status, _ in CODES.values() if status < 500})


@schemathesis.serializer("application/x-ndjson")
def written_lines(context: Any, value: Any) -> bytes:
    """A list as lines."""
    rows = value if isinstance(value, list) else [value]
    return b"".join(json.dumps(one).encode() + b"\n" for one in rows)


@schemathesis.deserializer("application/x-ndjson")
def read_lines(context: Any, response: Any) -> list[Any]:
    """Lines as a list."""
    return [json.loads(line) for line in response.content.splitlines()]


@pytest.fixture(params=["sqlite", "postgres"])
def app(request, tmp_path) -> Iterator[perdure.App]:
    """Jobs and runs of Ann's and of Bob's, one of each sort, and a gate."""
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{furnished(file_in(tmp_path))}" if sqlite else None
    app = perdure.App(url or request.getfixturevalue("furnished"), observers=[])

    @app.stage()
    def shout(item: Any) -> Any:
        if not isinstance(item, dict) or not isinstance(item.get("text"), str):
            raise perdure.StageError("invalid_request", "no text")
        return {"text": item["text"].upper()}

    pipe = app.pipeline("shouting", shout)
    for owner, text in (("ann", "hello"), ("bob", CANARY)):
        pipe.call({"text": text}, owner=owner)
        with suppress(perdure.JobFailed):
            pipe.call({"no": text}, owner=owner)
        pipe.run([{"text": text}], name=f"{text}'s", owner=owner)
    pipe.enqueue({"text": CANARY}, owner="bob", key=CANARY)
    app._session.opened.control.change_gate(GateChange("model", 0, GateState.HELD, None), DEED)
    yield app
    app.close()


def document() -> dict[str, Any]:
    """The API's own, with the words that mean something here, and nobody waits for what no worker does."""
    told = json.loads(json.dumps(openapi(ENDPOINTS)))
    for name in ("JobAsked", "JobsAsked", "RunAsked", "RedriveAsked", "DiscardAsked"):
        fields = told["components"]["schemas"][name]["properties"]
        fields |= {field: {"enum": words} for field, words in WORDS.items() if field in fields}
        if "pipeline" not in told["components"]["schemas"][name].get("required", ()):
            fields["pipeline"] = {"enum": [None, "shouting"]}
    del told["paths"]["/api/events"]  # which never ends
    for path in told["paths"].values():
        for operation in path.values():
            heard = operation["parameters"]
            operation["parameters"] = [one for one in heard if one["name"] != "Prefer"]
    return told


class Fuzzed:
    """How many cases there were, which endpoints have met one, and what was wrong."""

    def __init__(self, *, sees_all: bool) -> None:
        self._parts = PARTS if sees_all else (*PARTS, CANARY)
        self.cases = 0
        self.met: set[str] = set()
        self.faults: list[str] = []

    def take(self, event: events.ScenarioFinished) -> None:
        """Count the cases of a scenario, and look at each answer and each check."""
        record = event.recorder
        for id, made in record.interactions.items():
            self.cases += 1
            assert made.response is not None
            label = record.cases[id].value.operation.label
            if made.response.status_code < 300:
                self.met.add(label)
            told = made.response.content.decode()
            self.faults += [f"{one!r} is in {_told(made)}" for one in self._parts if one in told]
            for check in record.checks.get(id, ()):
                if check.failure_info and not _is_meant(check.name, told):
                    self.faults.append(f"{check.failure_info.failure}\n{_told(made)}")


def _is_meant(check: str, told: str) -> bool:
    """Whether it fits the document and is refused in words all the same."""
    if check != "positive_data_acceptance":
        return False
    problem = json.loads(told)
    return problem["code"] in MEANT or problem["detail"].startswith(FORMS)


def _told(made: Interaction) -> str:
    asked, answer = made.request, made.response
    assert answer is not None
    return f"{asked.method} {asked.uri} {asked.body!r:.500} -> {answer.status_code} {answer.content!r:.500}"


def fuzz(
    app: perdure.App,
    scopes: tuple[str, ...],
    seed: int,
    told: dict[str, Any] | None = None,
    only: str | None = None,
    **chosen: Any,
) -> Fuzzed:
    """Play the chosen phases as Ann with these scopes, and say what was found."""
    text, _ = create_token(
        app._session, name="ann's", owner="ann", scopes=scopes, expires=None, deed=DEED
    )
    print(f"seed {seed} as {', '.join(scopes)}")
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "auth": {"openapi": {"token": {"bearer": text}}},
            "continue-on-failure": True,
            "checks": {"enabled": True, "negative_data_rejection": {"expected-statuses": REFUSED}},
            **chosen,
        }
    )
    schema = schemathesis.openapi.from_dict(told or document(), config=config)
    schema.app, schema.location = asgi(app, hosts=("testserver",)), "/api/openapi.json"
    if only is not None:
        schema = schema.include(operation_id=only)
    fuzzed = Fuzzed(sees_all="admin" in scopes)
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            fuzzed.take(event)
        elif isinstance(event, events.NonFatalError | events.FatalError):
            fuzzed.faults.append(str(event))
    return fuzzed


def generation(examples: int, **more: Any) -> dict[str, Any]:
    return {"max-examples": examples, "no-shrink": True, "database": "none", **more}


FEW = {
    "sqlite": {
        "generation": generation(1, mode="positive"),
        "phases": {"enabled": False, "coverage": {"enabled": True}},
    },
    "postgres": {
        "generation": generation(2),
        "phases": {"coverage": {"enabled": False}, "stateful": {"max-steps": 6}},
    },
}
OWN, ALL = ("submit", "read", "operate"), ("admin",)


@pytest.mark.parametrize("app", FEW, indirect=True)
def test_every_endpoint_keeps_what_its_document_says(app, request):
    store = request.node.callspec.params["app"]
    found = fuzz(app, ALL, 1, **FEW[store])
    print(f"FIGURE cases of schemathesis on {store}: {found.cases}, {len(found.met)} endpoints met")
    assert found.faults == [], "\n\n".join(found.faults)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("app", FEW, indirect=True)
def test_every_endpoint_keeps_it_in_fifty_thousand_cases(app, request):
    """The first half as an owner, to whom nothing of another's is shown; then as an admin, who may call what is Ann's by Bob's words."""
    store = request.node.callspec.params["app"]
    cases, met, faults, seed = 0, set(), [], 0
    with app.working(concurrency=2):
        while cases < CASES and not faults:
            seed += 1
            scopes = OWN if cases < CASES / 2 else ALL
            found = fuzz(app, scopes, seed, generation=generation(100))
            cases, met, faults = cases + found.cases, met | found.met, faults + found.faults
    never = sorted({f"{one.method} {one.path}" for one in ENDPOINTS} - met)
    print(f"FIGURE cases of schemathesis on {store}: {cases}, never met: {never}")
    assert faults == [], "\n\n".join(faults)
    assert len(never) < 8, never


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
def test_a_document_that_says_something_else_would_be_noticed(app):
    """The broken twin: a state that no job has."""
    told = document()
    told["components"]["schemas"]["JobShown"]["properties"]["state"] = {"enum": ["done"]}
    found = fuzz(app, ALL, 1, told, "list_jobs", **FEW["sqlite"])
    assert any("Response violates schema" in one for one in found.faults)
