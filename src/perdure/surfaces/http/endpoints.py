"""What an endpoint is: one row, from which the router, the check of scopes, the reading of a request and OpenAPI are made."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import fields

from perdure.app.job_refs import Called, JobRef
from perdure.app.session.session import Session
from perdure.model.access import AccessScope, Principal
from perdure.model.runs import RunView
from perdure.model.views import JobView
from perdure.surfaces.http.problems import Refused

JSON_LINES = "application/x-ndjson"
ITEMS_MAX = 10_000  # lines of a body
# A cursor names the last object of a page. Its number would tell how many everybody has.
Cursor = Annotated[str, Meta(pattern=r"^[0-9a-f-]{36}$")]


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """An endpoint that takes nothing from the query."""


class HttpCall(Struct, frozen=True):
    """A request that was let in: whose it is, and what it asks for, read and checked; and whether there is room for one more that waits."""

    session: Session
    principal: Principal
    request_id: str
    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]
    may_wait: bool = True


class HttpAnswer(Struct, frozen=True):
    """What is answered; ``body`` is encoded as it is, or, where it is an iterator, line by line as it comes."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = {}


class AnswerLater(Struct, frozen=True):
    """What is answered when a job has ended, or when ``wait_s`` are over; nobody's thread waits for it.

    ``called`` is what comes of it where it is done in this process.
    """

    job: JobRef
    wait_s: float
    then: Callable[[JobView], HttpAnswer]
    called: Future[Called] | None = None


def number_at(found: JobView | RunView | None) -> int:
    """Where a page goes on: below the object that its cursor names, if the principal sees it."""
    if found is None:
        raise Refused(
            "cursor_too_old", "what this cursor names is not kept; begin at the first page"
        )
    return found.no


def no_jobs(body: Any) -> int:
    """What most endpoints make."""
    return 0


class Endpoint(Struct, frozen=True):
    """A row of the API. ``scope`` None lets everybody in; ``answers`` and ``statuses`` are what OpenAPI says.

    ``makes`` says how many jobs a body makes; what is ``always`` answered is so however much there is to do. With
    ``lines`` the body is JSON Lines, of which each is a ``body``; with ``streams`` so is the answer. With ``hears`` the answer
    goes on as server-sent events, whose data each is of that type, after the cursor that the handler gives. What answers `bytes`
    is sent as it is, for no browser to show, or as its ``media_type``.
    """

    method: str
    path: str
    handler: Callable[[HttpCall], HttpAnswer | AnswerLater]
    scope: AccessScope | None
    answers: Any
    body: Any = None
    query: type[Struct] = NoQuery
    statuses: tuple[int, ...] = (200,)
    problems: tuple[str, ...] = ()
    lines: bool = False
    streams: bool = False
    hears: bool = False
    makes: Callable[[Any], int] = no_jobs
    always: bool = False
    media_type: str = "application/octet-stream"

    @property
    def may_lack_body(self) -> bool:
        """Whether no body counts as an empty one: it needs nothing, and what is meant stands in the path.

        Where the body chooses what is meant, nothing would mean everything; that has to be said.
        """
        if self.body is None or self.lines or "{" not in self.path:
            return False
        return not any(one.required for one in fields(self.body))

    @property
    def has_items(self) -> bool:
        """Whether a body has items in it, which are looked at more closely than other text."""
        return "payload_refused" in self.problems

    @property
    def takes(self) -> str:
        """The media type of its body."""
        return JSON_LINES if self.lines else "application/json"

    @property
    def gives(self) -> str:
        """The media type of its answer."""
        if self.hears:
            return "text/event-stream"
        if self.answers is bytes:
            return self.media_type
        return JSON_LINES if self.streams else "application/json"

    @property
    def name(self) -> str:
        """How OpenAPI and the reference call it."""
        return self.handler.__name__

    @property
    def summary(self) -> str:
        """The first line of what its handler says of itself."""
        return (self.handler.__doc__ or "").split("\n", 1)[0]
