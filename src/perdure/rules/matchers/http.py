"""Plain HTTP: what a status means when nothing more exact is known."""

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Found
from perdure.rules.matchers.text import meaning_of_a_bad_request

STATUSES: dict[int, Kind] = {
    400: Kind.INVALID_REQUEST,
    401: Kind.AUTH,
    402: Kind.BILLING,
    403: Kind.AUTH,
    404: Kind.NOT_FOUND,
    407: Kind.AUTH,
    408: Kind.TIMEOUT,
    409: Kind.INVALID_REQUEST,
    410: Kind.NOT_FOUND,
    413: Kind.TOO_LARGE,
    414: Kind.TOO_LARGE,
    425: Kind.TIMEOUT,
    429: Kind.RATE_LIMITED,
    431: Kind.TOO_LARGE,
    446: Kind.CONTENT_REFUSED,  # Portkey: a guardrail denied it
    498: Kind.RATE_LIMITED,  # Groq: the flexible tier has no capacity
    499: Kind.CANCELLED,
    500: Kind.UPSTREAM_ERROR,
    501: Kind.INVALID_REQUEST,
    502: Kind.UPSTREAM_UNAVAILABLE,
    503: Kind.UPSTREAM_UNAVAILABLE,
    504: Kind.TIMEOUT,
    521: Kind.UPSTREAM_UNAVAILABLE,  # Cloudflare: 521 to 526 and 530
    522: Kind.UPSTREAM_UNAVAILABLE,
    523: Kind.UPSTREAM_UNAVAILABLE,
    524: Kind.TIMEOUT,
    525: Kind.UPSTREAM_UNAVAILABLE,
    526: Kind.UPSTREAM_UNAVAILABLE,
    529: Kind.OVERLOADED,
    530: Kind.UPSTREAM_UNAVAILABLE,
}


def kind_of_status(status: int | None) -> Kind | None:
    """The kind that an HTTP status stands for; None if it is no error."""
    if status is None or not 400 <= status <= 599:
        return None
    known = STATUSES.get(status)
    if known is not None:
        return known
    return Kind.INVALID_REQUEST if status < 500 else Kind.UPSTREAM_ERROR


def http_status(evidence: Evidence) -> Found | None:
    """The kind of the status; of a bad request, what its message says is wrong with it."""
    kind = kind_of_status(evidence.status)
    if kind is None:
        return None
    rule = f"http status {evidence.status}"
    if kind is not Kind.INVALID_REQUEST or evidence.status not in (400, 422):
        return kind, rule
    finer = meaning_of_a_bad_request(evidence)
    return (kind, rule) if finer is None else (finer[0], f"{rule}, {finer[1]}")
