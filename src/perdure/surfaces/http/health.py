"""Whether the process lives, and whether it can serve."""

from msgspec import Struct

from perdure.model.errors import StoreError
from perdure.surfaces.http.endpoints import Endpoint, HttpAnswer, HttpCall


class Health(Struct, frozen=True):
    """Whether it is well, and if not, why, in a word."""

    ok: bool
    why: str = ""


def healthz(call: HttpCall) -> HttpAnswer:
    """Whether this process lives."""
    return HttpAnswer(Health(True))


def readyz(call: HttpCall) -> HttpAnswer:
    """Whether the store can be reached and its schema is ours."""
    try:
        call.session.opened.reader.now()
    except StoreError as error:
        return HttpAnswer(Health(False, error.code), 503)
    return HttpAnswer(Health(True))


ENDPOINTS = (
    Endpoint("GET", "/healthz", healthz, None, Health, always=True),
    Endpoint("GET", "/readyz", readyz, None, Health, statuses=(200, 503), always=True),
)
