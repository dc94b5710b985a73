"""Whether the process lives, and whether it can serve."""

from time import monotonic
from weakref import WeakKeyDictionary

from msgspec import Struct

from perdure.app.session.session import Session
from perdure.app.surface.serving import why_not_ready
from perdure.surfaces.http.endpoints import Endpoint, HttpAnswer, HttpCall

LOOK_S = 1.0  # everybody may ask, so the store is not asked more often than that

_looks: WeakKeyDictionary[Session, tuple[float, str]] = WeakKeyDictionary()


class Health(Struct, frozen=True):
    """Whether it is well, and if not, why, in a word."""

    ok: bool
    why: str = ""


def healthz(call: HttpCall) -> HttpAnswer:
    """Whether this process lives."""
    return HttpAnswer(Health(True))


def readyz(call: HttpCall) -> HttpAnswer:
    """Whether the store can be reached, its schema is ours, and a worker in this process claims jobs."""
    looked_s, why = _looks.get(call.session, (-LOOK_S, ""))
    if monotonic() - looked_s >= LOOK_S:
        why = why_not_ready(call.session)
        _looks[call.session] = (monotonic(), why)
    return HttpAnswer(Health(not why, why), 503 if why else 200)


ENDPOINTS = (
    Endpoint("GET", "/healthz", healthz, None, Health, always=True),
    Endpoint("GET", "/readyz", readyz, None, Health, statuses=(200, 503), always=True),
)
