"""Plain HTTP: what a status means when nothing more exact is known."""

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence

STATUSES: dict[int, Kind] = {
    400: Kind.INVALID_REQUEST,
    401: Kind.AUTH,
    402: Kind.BILLING,
    403: Kind.AUTH,
    404: Kind.NOT_FOUND,
    408: Kind.TIMEOUT,
    409: Kind.UPSTREAM_ERROR,
    410: Kind.NOT_FOUND,
    413: Kind.TOO_LARGE,
    425: Kind.TIMEOUT,
    429: Kind.RATE_LIMITED,
    431: Kind.TOO_LARGE,
    499: Kind.CANCELLED,
    501: Kind.INVALID_REQUEST,
    502: Kind.UPSTREAM_UNAVAILABLE,
    503: Kind.UPSTREAM_UNAVAILABLE,
    504: Kind.TIMEOUT,
    529: Kind.OVERLOADED,
}


def http_status(evidence: Evidence) -> Kind | None:
    """The kind that an HTTP status stands for."""
    status = evidence.status
    if status is None or not 400 <= status <= 599:
        return None
    known = STATUSES.get(status)
    if known is not None:
        return known
    return Kind.INVALID_REQUEST if status < 500 else Kind.UPSTREAM_ERROR
