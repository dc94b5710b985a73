"""OpenAPI 3.1, made from the rows of the API and from the types that validate its requests."""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

import msgspec

from perdure.surfaces.http.endpoints import Endpoint
from perdure.surfaces.http.login import SAFE_METHODS
from perdure.surfaces.http.problems import CODES, Problem

_ALWAYS = ("bad_request", "misdirected", "headers_too_large", "store_error", "internal")
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
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, known)
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


def _operation(one: Endpoint, known: Mapping[int, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": [*_path_parameters(one), *_query_parameters(one)],
        "responses": {**_answers(one, known), **_problems(one, known)},
        "security": [] if one.scope is None else [{"token": [one.scope.value]}],
    }
    if one.body is not None:
        content = {one.takes: {"schema": known[id(one.body)]}}
        told["requestBody"] = {"required": True, "content": content}
    return told


def _answers(one: Endpoint, known: Mapping[int, Any]) -> dict[str, Any]:
    content = {one.gives: {} if one.answers is bytes else {"schema": known[id(one.answers)]}}
    return {
        str(status): {"description": one.summary, "content": content} for status in one.statuses
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
