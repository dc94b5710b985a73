"""What is told when a request cannot be answered: RFC 9457, with a stable code, one line, and the request's id.

No stack trace, path, statement or name of a driver ever leaves: only the errors of `model.errors` that are the caller's have
words of their own, and of those that say that something is not there, nobody learns whether it is another's.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from perdure.model.errors import (
    CallerError,
    ConfigError,
    NoResult,
    PerdureError,
    StoreError,
    UnknownName,
)

# code: status and title; the reference is made from it.
CODES: Mapping[str, tuple[int, str]] = {
    "bad_request": (400, "The request does not have the form that is asked for."),
    "unauthenticated": (401, "A token is needed, and this is none that opens anything."),
    "forbidden": (403, "The token does not allow this."),
    "cross_site": (403, "A write by cookie must come from a page of this server, with its X-CSRF-Token."),
    "not_found": (404, "There is no such thing."),
    "method_not_allowed": (405, "This cannot be done here."),
    "too_slow": (408, "The body did not come in time."),
    "job_unfinished": (409, "The job has not ended yet."),
    "not_cancellable": (409, "The job has ended already."),
    "not_retriable": (409, "The job cannot be given a new life."),
    "not_changeable": (409, "It is not in a state for that."),
    "cursor_too_old": (410, "What came after this cursor is no longer kept."),
    "too_large": (413, "The request is too large."),
    "unsupported_media_type": (415, "The body must be JSON: application/json, in UTF-8."),
    "misdirected": (421, "This server does not answer for that host."),
    "key_reused": (422, "The key belongs to a job that was made with another item."),
    "payload_refused": (422, "The item cannot be stored faithfully."),
    "caller_error": (400, "The request cannot be met as it is."),
    "rate_limited": (429, "The owner sends more requests than it may; Retry-After says when one is let in."),
    "too_many_open_jobs": (429, "The owner has as many open jobs as it may; Retry-After says when to ask again."),
    "headers_too_large": (431, "The request has too many headers, or too long ones."),
    "internal": (500, "Something went wrong here; the request's id leads to what."),
    "overloaded": (503, "The server answers as many requests as it can; Retry-After says when to ask again."),
    "store_error": (503, "The store cannot do it now."),
}  # fmt: skip


class Problem(Struct, frozen=True, kw_only=True):
    """A problem on the wire."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str


class Refused(Exception):
    """A request that is not answered; ``detail`` is for whoever sent it.

    A code of your own needs its ``status``. Others are headers of the answer, as in ``retry_after="5"``.
    """

    def __init__(
        self, code: str, detail: str = "", *, status: int | None = None, **headers: str
    ) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
        self.status, self.title = CODES.get(code, (500, "The request cannot be met."))
        self.status = status or self.status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def refusal_of(error: Exception) -> Refused:
    """What is told of an error, and nothing that is not the caller's to know."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, UnknownName):
        return Refused("not_found")
    if isinstance(error, StoreError):
        return Refused("store_error", retry_after="5")
    if isinstance(error, NoResult):  # nobody's fault, so of an endpoint that has let it pass
        return Refused(error.code, _line(error), status=error.http_status)
    if isinstance(error, CallerError):
        return Refused(error.code if error.code in CODES else "caller_error", _line(error))
    return Refused("internal")


@contextmanager
def blame_caller() -> Iterator[None]:
    """Here what is checked like a declaration, a name or a rate, is the caller's own word."""
    try:
        yield
    except ConfigError as wrong:
        raise Refused("caller_error", _line(wrong)) from None


def problem_of(refused: Refused, request_id: str) -> Problem:
    """The problem that a refusal is on the wire."""
    return Problem(
        type=f"urn:perdure:problem:{refused.code}" if refused.code in CODES else "about:blank",
        title=refused.title,
        status=refused.status,
        code=refused.code,
        detail=refused.detail or refused.title,
        request_id=request_id,
    )


def _line(error: PerdureError) -> str:
    """The first line of an error's text, as it is the caller's own words that it names."""
    return str(error).split("\n", 1)[0][:500]
