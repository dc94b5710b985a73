"""OpenAPI 3.1, made from the rows of the API and from the types that validate its requests."""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

import msgspec

from perdure.model.limits import KEY_CHARS_MAX
from perdure.surfaces.http.endpoints import Endpoint
from perdure.surfaces.http.login import SAFE_METHODS
from perdure.surfaces.http.problems import CODES, Problem

_ALWAYS = (
    "bad_request",
    "caller_error",
    "misdirected",
    "headers_too_large",
    "store_error",
    "internal",
)
# An answer that names an object: the path of that, and where the answer has its name.
_LEADS: Mapping[str, tuple[str, str]] = {
    "create_job": ("/api/jobs/{id}", "/job/id"),
    "create_jobs": ("/api/jobs/{id}", "/jobs/0/id"),
    "list_jobs": ("/api/jobs/{id}", "/jobs/0/id"),
    "list_letters": ("/api/jobs/{id}", "/jobs/0/id"),
    "create_run": ("/api/runs/{id}", "/id"),
    "list_runs": ("/api/runs/{id}", "/runs/0/id"),
    "redrive_letters": ("/api/dead/bulks/{id}", "/id"),
    "discard_letters": ("/api/dead/bulks/{id}", "/id"),
    "list_gates": ("/api/gates/{name}", "/gates/0/name"),
}
_PREFER = {
    "name": "Prefer",
    "description": "`wait=N` waits up to N seconds for the job to end, 60 at most.",
    "schema": {"type": "string"},
}
_KEY = {
    "name": "Idempotency-Key",
    "description": "The same key is the same job, however often it is sent.",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
}
_LAST = {
    "name": "Last-Event-ID",
    "description": "The id of the last event that was heard: the stream goes on after it.",
    "schema": {"type": "string"},
}
_HEADERS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "hear_events": (_LAST,),
    "create_job": (_KEY, _PREFER),
    "show_result": (_PREFER,),
}
_LET_IN = ("unauthenticated", "forbidden", "rate_limited")
_BY_COOKIE = ("cross_site",)
_WITH_BODY = ("too_large", "too_slow", "unsupported_media_type", "payload_refused")


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The whole document."""
    rows = tuple(endpoints)
    kinds = [Problem, *(kind for one in rows for kind in (one.answers, one.body) if kind)]
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    known = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, Any] = {}
    for one in rows:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, known, rows)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Perdure", "version": version("perdure")},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def problems_of(endpoint: Endpoint) -> tuple[str, ...]:
    """Every code that an endpoint may answer with."""
    let_in = _LET_IN if endpoint.scope is not None else ()
    cookie = _BY_COOKIE if endpoint.method not in SAFE_METHODS else ()
    body = _WITH_BODY if endpoint.body is not None else ()
    shed = () if endpoint.always else ("overloaded",)
    return tuple(dict.fromkeys((*_ALWAYS, *let_in, *cookie, *shed, *body, *endpoint.problems)))


def _operation(one: Endpoint, known: Mapping[int, Any], rows: Iterable[Endpoint]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": [*_path_parameters(one), *_query_parameters(one), *_header_parameters(one)],
        "responses": {**_answers(one, known, rows), **_problems(one, known)},
        "security": [] if one.scope is None else [{"token": [one.scope.value]}],
    }
    if one.body is not None:
        content = {one.takes: {"schema": _lines(known[id(one.body)], lines=one.lines)}}
        told["requestBody"] = {"required": not one.may_lack_body, "content": content}
    return told


def _answers(one: Endpoint, known: Mapping[int, Any], rows: Iterable[Endpoint]) -> dict[str, Any]:
    kind = None if one.answers is bytes else known[id(one.answers)]
    content = {one.gives: {} if kind is None else {"schema": _lines(kind, lines=one.streams)}}
    told = {"description": one.summary, "content": content, **_links(one, rows)}
    return {str(status): told for status in one.statuses}


def _lines(kind: Any, *, lines: bool) -> Any:
    """JSON Lines as OpenAPI 3.2 has them: as a list of what each line is."""
    return {"type": "array", "items": kind} if lines else kind


def _links(one: Endpoint, rows: Iterable[Endpoint]) -> dict[str, Any]:
    """Where an answer leads: all that is done to the object that it names."""
    if one.name not in _LEADS:
        return {}
    path, named = _LEADS[one.name]
    parameters = {path[path.index("{") + 1 : -1]: f"$response.body#{named}"}
    there = (row for row in rows if row.path == path or row.path.startswith(f"{path}/"))
    return {
        "links": {row.name: {"operationId": row.name, "parameters": parameters} for row in there}
    }


def _problems(one: Endpoint, known: Mapping[int, Any]) -> dict[str, Any]:
    """By status, with the codes that it may have."""
    by_status: dict[int, list[str]] = {}
    for code in problems_of(one):
        by_status.setdefault(CODES[code][0], []).append(code)
    content = {"application/problem+json": {"schema": known[id(Problem)]}}
    return {
        str(status): {"description": ", ".join(codes), "content": content}
        for status, codes in by_status.items()
        if status not in one.statuses
    }


def _path_parameters(one: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", one.path)
    ]


def _query_parameters(one: Endpoint) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([one.query])
    properties = components[one.query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": kind} for name, kind in properties.items()]


def _header_parameters(one: Endpoint) -> list[dict[str, Any]]:
    return [{"in": "header", **header} for header in _HEADERS.get(one.name, ())]
