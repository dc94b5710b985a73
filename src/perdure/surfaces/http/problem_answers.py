"""How a request is answered that meets an error, here and at an application's own endpoints beside the API: told, and logged."""

import logging
import re
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.app.surface.serving import trace_of
from perdure.model.access import AccessScope, Principal
from perdure.model.errors import StoreError
from perdure.surfaces.http.problems import Refused, problem_of, refusal_of

SAFE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_log = logging.getLogger("perdure.http")


def tell(error: Exception, request_id: str, *, away: bool = False) -> Response:
    """The answer to a request that has met an error, which is logged by whose fault it is.

    ``away`` says that it is no fault of ours: a part cannot be reached now, as the store at times.
    """
    refused = refusal_of(StoreError() if away else error)
    if refused.code == "internal":
        _log.error("request %s went wrong: %s", request_id, trace_of(error))
    elif refused.code == "store_error":
        _log.warning("request %s cannot be met now: %s", request_id, trace_of(error))
    else:
        _log.debug("request %s was refused: %s", request_id, refused.code)
    problem = problem_of(refused, request_id)
    headers = {**SAFE_HEADERS, **refused.headers, "x-request-id": request_id}
    kind = "application/problem+json"
    return Response(msgspec.json.encode(problem), problem.status, headers, media_type=kind)


def request_id_of(request: Request) -> str:
    """The caller's own, if it is sane; else a new one, which this request keeps however often it is asked for."""
    if not hasattr(request.state, "perdure_request_id"):
        given = request.headers.get("x-request-id", "")
        request.state.perdure_request_id = given if _REQUEST_ID.fullmatch(given) else str(uuid4())
    return str(request.state.perdure_request_id)


def checked(principal: Principal | None, scope: AccessScope, told: str) -> Principal:
    """Whoever a request speaks for, if there is somebody and they may."""
    if principal is None:
        raise Refused("unauthenticated", told, www_authenticate="Bearer")
    if not principal.may(scope):
        raise Refused("forbidden", f"this needs the scope {scope.value}")
    return principal


def token_words(request: Request) -> str:
    """What to send; of a token that opens nothing nobody learns whether it ever did."""
    given, remedy = request.headers.get("authorization"), "perdure token create makes one"
    if given is None:
        return f"there is no header Authorization; send Authorization: Bearer TOKEN ({remedy})"
    if given[:7].lower() != "bearer ":
        return "the header Authorization must be Bearer and the token, with a space between them"
    return f"the token is unknown, expired or revoked; send another one ({remedy})"
